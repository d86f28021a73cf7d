"""Settle an intake: seal its stream up to the intake's watermark, from runs that tasks wrote before.

A segment names the pieces of runs that it holds, or some of their rows. Rows of one time follow each other in the order
of the runs, and within a run as they came. Only where runs overlap in time are times read at all: for the rows of a
time that several runs have, the segment writes the ordinals down. All of this follows from the intake and from where
the chain ends, so whoever settles it seals the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import msgspec

from unerring.log.chain import Chain
from unerring.log.intakes import Intake, producer_of
from unerring.log.parts import Parts
from unerring.log.quarantine import BadEvent, Quarantine, Reason
from unerring.log.runs import RunFile
from unerring.log.segments import ORIGIN_COLUMNS, Part, arrow_schema, stating
from unerring.model import TIME_MAX, TIME_MIN

if TYPE_CHECKING:
    import numpy as np

ROWS_PER_SEGMENT: Final = 4_000_000
"""About how many rows a segment gets, if an intake has more."""
_ROWS_AT_ONCE: Final = 50_000
"""So many late rows become one object of the quarantine."""


class Slice(msgspec.Struct, frozen=True):
    """What a segment holds, ready to be sealed."""

    from_us: int
    through_us: int
    parts: tuple[Part, ...]
    ordinals: tuple[tuple[bytes, bytes] | None, ...]
    """For each part the rows whose ordinal differs from the run's own, and those ordinals, as 64 bit numbers."""
    doubled: tuple[Part, ...] = ()
    """Rows that a strict stream cannot hold: an earlier run has their time."""


Slicer = Callable[[Sequence[tuple[int, int]]], Iterator[Slice]]
"""Makes the slices of some intervals, in their order."""


def settle(chain: Chain, intake: Intake, slicer: Slicer | None = None) -> int:
    """Bring the chain to the intake's watermark; how many rows were late by then, because others extended the chain.

    Bad rows must be published before: once the chain has passed the watermark, nobody looks at the intake again.
    """
    producer = producer_of(intake.source)
    parts = Parts(chain.store, chain.folder, chain.schema)
    cut = slicer or (lambda ends: (slice_of(parts, intake, *one) for one in ends))
    late = 0
    while True:
        chain.refresh()
        settled_us = max(chain.producers().get(producer, (0, TIME_MIN))[1], intake.settled_us)
        reached_us = min(chain.through_us, intake.through_us)
        if reached_us > settled_us:
            passed = [part for run in intake.runs for part in _between(parts, run, settled_us, reached_us)]
            late += _refuse(chain, passed, Reason.LATE, f"the stream has already reached {chain.through_us}")
        if chain.through_us >= intake.through_us:
            return late
        ends = [end for end in cuts(intake) if end > chain.through_us]
        for one in cut(list(pairwise([chain.through_us, *ends]))):
            stated = stating(chain.taken().with_mark(producer, (intake.number, one.through_us)))
            _refuse(chain, one.doubled, Reason.NOT_INCREASING, "another event has this time")
            if not chain.seal_parts(one.through_us, one.parts, _numbers(one), **stated).won:
                break  # another driver sealed the same, or another writer something else, which makes rows late


def cuts(intake: Intake) -> list[int]:
    """Where the segments of an intake end: between two times, and about the same number of rows apart."""
    pieces = sorted(
        (min(piece.last_us, intake.through_us), piece.rows)
        for run in intake.runs
        for piece in run.pieces
        if piece.last_us > intake.settled_us and piece.first_us <= intake.through_us
    )
    total = sum(rows for _, rows in pieces)
    wanted = max(round(total / ROWS_PER_SEGMENT), 1)
    ends: list[int] = []
    counted = 0
    for last_us, rows in pieces:
        counted += rows
        if counted * wanted >= total * (len(ends) + 1) and last_us < intake.through_us:
            ends.append(last_us)
    return [*dict.fromkeys(ends), intake.through_us]


def slice_of(parts: Parts, intake: Intake, from_us: int, through_us: int) -> Slice:
    """The rows of an interval, and the ordinals that their runs do not know."""
    held = [
        (number, part) for number, run in enumerate(intake.runs) for part in _between(parts, run, from_us, through_us)
    ]
    shared = _shared(held)
    alone = _joined(intake.runs, [one for at, one in enumerate(held) if at not in shared])
    tied = [held[at] for at in sorted(shared)]
    offsets = _offsets(parts, tied) if tied else []
    if parts.schema.strict:
        kept, doubled = _without_doubled(tied, offsets)
        return Slice(from_us, through_us, (*alone, *kept), (None,) * (len(alone) + len(kept)), doubled)
    numbers = [None if not len(one.rows) else (one.rows.tobytes(), one.ordinals.tobytes()) for one in offsets]
    named = (*alone, *(part for _, part in tied))
    return Slice(from_us, through_us, named, (*(None for _ in alone), *numbers))


@dataclass(frozen=True, slots=True)
class _Tied:
    """Of a part that overlaps with others: its times, and the rows that come after other runs' rows of their time."""

    times: np.ndarray[Any, Any]
    rows: np.ndarray[Any, Any]
    ordinals: np.ndarray[Any, Any]


def _between(parts: Parts, run: RunFile, from_us: int, through_us: int) -> Iterator[Part]:
    """A run's rows of an interval: whole pieces, and some rows of those that lie across its ends."""
    import numpy as np

    for at, piece in enumerate(run.pieces):
        if piece.last_us <= from_us or piece.first_us > through_us:
            continue
        part = run.part(at)
        if piece.first_us <= from_us or piece.last_us > through_us:
            times = parts.part(part, ["time"]).column("time").to_numpy()
            low, high = np.searchsorted(times, [from_us, through_us], side="right").tolist()
            if low == high:
                continue
            part = _some(part, times, low, high)
        yield part


def _some(part: Part, times: np.ndarray[Any, Any], low: int, high: int) -> Part:
    """Some rows of a part, whose times are given."""
    return msgspec.structs.replace(
        part, skip=part.skip + low, rows=high - low, first_us=int(times[low]), last_us=int(times[high - 1])
    )


def _shared(held: Sequence[tuple[int, Part]]) -> set[int]:
    """Which of them overlap in time with another run."""
    import numpy as np

    if len({number for number, _ in held}) < 2:
        return set()
    runs = np.array([number for number, _ in held])
    firsts, lasts = np.array([(part.first_us, part.last_us) for _, part in held], np.int64).T
    shared = np.zeros(len(held), dtype=bool)
    for run in np.unique(runs):
        own = runs == run
        shared |= ~own & (firsts <= lasts[own].max()) & (lasts >= firsts[own].min())
    return set(np.flatnonzero(shared).tolist())


def _joined(runs: Sequence[RunFile], held: Sequence[tuple[int, Part]]) -> list[Part]:
    """Pieces of a bucket that follow each other in a run, as one part."""
    joined: list[Part] = []
    for number, part in held:
        last = joined[-1] if joined else None
        first = part.pieces[0] if part.pieces else 0
        if (
            last is not None
            and last.pieces is not None
            and (last.name, last.bucket, sum(last.pieces), 0) == (part.name, part.bucket, first, part.skip)
            and last.skip + last.rows == sum(piece.rows for piece in runs[number].pieces[last.pieces[0] : first])
        ):
            joined[-1] = msgspec.structs.replace(
                last,
                rows=last.rows + part.rows,
                last_us=part.last_us,
                bytes=last.bytes + part.bytes,
                pieces=(last.pieces[0], last.pieces[1] + 1),
            )
        else:
            joined.append(part)
    return joined


def _offsets(parts: Parts, tied: Sequence[tuple[int, Part]]) -> list[_Tied]:
    """For each part the rows of a time that an earlier run has too, with their ordinals."""
    import numpy as np

    tables = [parts.part(part, ["time", "ordinal"]) for _, part in tied]
    times = [table.column("time").to_numpy() for table in tables]
    all_times = np.concatenate(times)
    runs = np.concatenate([np.full(len(one), number) for one, (number, _) in zip(times, tied, strict=True)])
    order = np.lexsort((runs, all_times))
    ordered, whose = all_times[order], runs[order]
    starts = np.flatnonzero(np.append(True, (ordered[1:] != ordered[:-1]) | (whose[1:] != whose[:-1])))
    counts = np.diff(np.append(starts, len(ordered)))
    moments = ordered[starts]
    first = np.append(True, moments[1:] != moments[:-1])
    at = np.maximum.accumulate(np.where(first, np.arange(len(starts)), 0))
    offsets = np.empty(len(ordered), np.int64)
    offsets[order] = np.repeat(starts - starts[at], counts)
    found: list[_Tied] = []
    for one, table, own in zip(
        times, tables, np.split(offsets, np.cumsum([len(one) for one in times])[:-1]), strict=True
    ):
        rows = np.flatnonzero(own)
        found.append(_Tied(one, rows, table.column("ordinal").to_numpy()[rows] + own[rows]))
    return found


def _without_doubled(
    tied: Sequence[tuple[int, Part]], offsets: Sequence[_Tied]
) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
    """The parts without rows of a time that an earlier run has, and those rows."""
    kept: list[Part] = []
    doubled: list[Part] = []
    for (_, part), one in zip(tied, offsets, strict=True):
        low = 0
        for row in [*one.rows.tolist(), part.rows]:
            if row > low:
                kept.append(_some(part, one.times, low, row))
            if row < part.rows:
                doubled.append(_some(part, one.times, row, row + 1))
            low = row + 1
    return tuple(kept), tuple(doubled)


def _numbers(one: Slice) -> list[Any]:
    import numpy as np

    return [None if noted is None else tuple(np.frombuffer(data, np.int64) for data in noted) for noted in one.ordinals]


def _refuse(chain: Chain, passed: Sequence[Part], reason: Reason, why: str) -> int:
    """Put rows into quarantine that are in runs, and will be in no segment."""
    parts, quarantine = Parts(chain.store, chain.folder, chain.schema), Quarantine(chain.store, chain.folder)
    names = [name for name in arrow_schema(chain.schema).names if name != "ordinal"]
    for part in passed:
        table = parts.part(part, names)
        for low in range(0, len(table), _ROWS_AT_ONCE):
            quarantine.add([_bad(row, reason, why) for row in table.slice(low, _ROWS_AT_ONCE).to_pylist()])
    return sum(part.rows for part in passed)


def _bad(row: dict[str, Any], reason: Reason, why: str) -> BadEvent:
    origin = row["_producer"], row["_epoch"], row["_sequence"]
    payload = {name: value for name, value in row.items() if name not in ORIGIN_COLUMNS}
    return BadEvent(*origin, reason, f"time {row['time']}: {why}", msgspec.json.encode(payload), row["time"])


def overlapping_rows(intake: Intake) -> int:
    """About how many rows have to be looked at because their runs overlap in time."""
    held = [
        (number, run.part(at))
        for number, run in enumerate(intake.runs)
        for at, piece in enumerate(run.pieces)
        if piece.last_us > intake.settled_us and piece.first_us <= intake.through_us
    ]
    return sum(held[at][1].rows for at in _shared(held))


def waiting_rows(chain: Chain, intake: Intake) -> int:
    """How many rows come after an intake's watermark."""
    parts = Parts(chain.store, chain.folder, chain.schema)
    return sum(part.rows for run in intake.runs for part in _between(parts, run, intake.through_us, TIME_MAX))
