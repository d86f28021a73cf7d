"""Rows of many producers into one order: (time, producer, epoch, sequence), up to the stream's watermark.

What is released, in which order and with which ordinals follows from what was published alone, not from when it came.
Rows are columns from the beginning to the end. No input or output happens here, and time is an argument; several
writers may do this at once over the same producers, and a segment that one of them sealed says to the others what they
drop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from unerring.log.lanes import Lanes, ProducerState
from unerring.log.producers import NOTHING, Mark, Run, Taken, less, within
from unerring.model import TIME_MAX, TIME_MIN, StreamSchema

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    Numbers = np.ndarray[Any, Any]

_SPAN_MAX: Final = 1 << 61


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of any producers. Those of one producer are in its order."""

    codes: Numbers
    """Each row's producer, by its number in the merge (`Merge.code`)."""
    epochs: Numbers
    sequences: Numbers
    times: Numbers
    ordinals: Numbers | None
    """What the producer gave each among events of one time; None: it gave none."""
    columns: pa.Table
    """The payload."""

    def __len__(self) -> int:
        return len(self.codes)

    def part(self, first: int, last: int | None = None) -> Rows:
        """A stretch of them, without copying."""
        to = len(self) if last is None else last
        ordinals = None if self.ordinals is None else self.ordinals[first:to]
        numbers = (self.codes[first:to], self.epochs[first:to], self.sequences[first:to], self.times[first:to])
        return Rows(*numbers, ordinals, self.columns.slice(first, to - first))

    def with_columns(self, which: Numbers, columns: pa.Table) -> Rows:
        """Some of them, by a mask; `columns` are those of just these."""
        ordinals = None if self.ordinals is None else self.ordinals[which]
        return Rows(self.codes[which], self.epochs[which], self.sequences[which], self.times[which], ordinals, columns)

    def pick(self, which: Numbers) -> Rows:
        """Some of them: a mask, or numbers in any order."""
        import numpy as np
        import pyarrow as pa

        if which.dtype == bool:
            if which.all():
                return self
            which = np.flatnonzero(which)
        ordinals = None if self.ordinals is None else self.ordinals[which]
        numbers = (self.codes[which], self.epochs[which], self.sequences[which], self.times[which])
        return Rows(*numbers, ordinals, self.columns.take(pa.array(which)))


def joined(parts: list[Rows]) -> Rows:
    """The same rows, one part after the other."""
    import numpy as np
    import pyarrow as pa

    if len(parts) == 1:
        return parts[0]
    ordinals = None
    if any(part.ordinals is not None for part in parts):
        nothing = [np.zeros(len(part), np.int64) if part.ordinals is None else part.ordinals for part in parts]
        ordinals = np.concatenate(nothing)
    codes, epochs, sequences, times = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("codes", "epochs", "sequences", "times")
    )
    return Rows(codes, epochs, sequences, times, ordinals, pa.concat_tables([part.columns for part in parts]))


@dataclass(frozen=True, slots=True)
class Expired:
    """Rows that have no place, since the chain has passed their time without them."""

    late: Rows | None
    disordered: Rows | None
    """Those that were further behind their own producer's newest time than the lateness allows."""


@dataclass(frozen=True, slots=True)
class Cut:
    """What is held, divided at a time."""

    ready: Rows | None
    """Everything up to the time, in order, with its ordinals; of a strict stream the first of each time."""
    rest: list[Rows]


class Merge:
    """Holds what is not released yet, and knows how far every producer is. `now` is monotonic microseconds."""

    kind_of_lanes: ClassVar[type[Lanes]] = Lanes

    def __init__(self, schema: StreamSchema) -> None:
        self.schema = schema
        self.lanes = self.kind_of_lanes(schema.lateness_us, schema.strict, schema.idle_after_us)
        self._held: list[Rows] = []
        """Each part in the order of release; the parts in the order in which they came."""
        self._disordered: list[Rows] = []
        """Rows too far behind their own producer: they have no place. Whether that is so says the chain, once it has
        passed their time without them; another writer, which lost what was before them, may have let them in."""
        self._runs: dict[int, tuple[Run, ...]] = {}
        """What a chain has taken above what was received here, by producer."""
        self._floor_us = TIME_MIN
        self._expired_us = TIME_MIN
        self._newly_us = TIME_MAX
        """The least time of what came since `expire` last looked."""
        self.rows = 0
        """How many are held."""

    def begin(self, taken: Taken, now: int) -> None:
        """Start from what a chain has taken."""
        self.lanes.begin(taken, now)
        self._runs = {self.lanes.codes[name]: runs for name, runs in taken.above.items()}

    def code(self, producer: str, now: int) -> int:
        """A producer's number for `Rows`; a producer that is new holds the stream back until it speaks."""
        return self.lanes.code(producer, now)

    def meet(self, producer: str, now: int) -> None:
        """A producer is there: the stream does not end without it. One that was idle stays so until it speaks."""
        self.lanes.meet(self.code(producer, now))

    def hear(self, producer: str, now: int) -> int:
        """Something came from a producer, which is not idle then; its number."""
        code = self.lanes.code(producer, now)
        self.lanes.hear(code, now)
        return code

    # --- what comes ---

    def take(self, rows: Rows) -> int:
        """Take rows in; how many of them were known already."""
        newest = self.lanes.epochs.copy()
        newest[rows.codes] = rows.epochs
        older = rows.epochs != newest[rows.codes]
        if older.any():  # a producer began again among these: its old epoch first
            return self.take(rows.pick(older)) + self.take(rows.pick(~older))
        fresh = self._fresh(rows)
        count = len(rows)
        rows = rows.pick(fresh)
        self._receive(rows)
        behind = self._advance(rows)
        if behind.any():
            self._disordered.append(rows.pick(behind))
            self._newly_us = min(self._newly_us, int(self._disordered[-1].times.min()))
            self.rows += len(self._disordered[-1])
            rows = rows.pick(~behind)
        if len(rows):
            self._held.append(self._ordered(rows))
            self._newly_us = min(self._newly_us, int(self._held[-1].times[0]))
            self.rows += len(rows)
        return count - int(fresh.sum())

    def is_new(self, producer: str, mark: Mark) -> bool:
        """Whether an event was neither received here nor taken by another writer."""
        code = self.lanes.codes.get(producer)
        if code is None:
            return True
        return mark > self._received(code) and not within(self._runs.get(code, ()), mark)

    def note(self, producer: str, mark: Mark, now: int) -> bool:
        """An event that has no row is out of the way (it could not be read, or it is lost); False: it was before."""
        code = self.lanes.code(producer, now)
        new = self.is_new(producer, mark)
        if mark > self._received(code):
            if mark[0] > self.lanes.epochs[code]:
                self.lanes.succeed(code, mark[0])
            self.lanes.received[code] = mark[1]
            self.lanes.hear(code, now)
        return new

    def missing(self, producer: str, first: Mark, last: Mark) -> list[Run]:
        """What was neither received here nor taken by another writer, from one event of a producer to another."""
        code = self.lanes.codes.get(producer)
        if code is not None:
            epoch, sequence = self._received(code)
            first = max(first, (epoch, sequence + 1))
        missing: list[Run] = []
        for begin, end in () if code is None else self._runs.get(code, ()):
            if begin > last:
                break
            if first < begin:
                missing.append((first, (begin[0], begin[1] - 1)))
            if first <= end:
                first = end[0], end[1] + 1
        return [*missing, (first, last)] if first <= last else missing

    def _received(self, code: int) -> Mark:
        return int(self.lanes.epochs[code]), int(self.lanes.received[code])

    def declare(self, producer: str | None, time_us: int, now: int) -> bool:
        """Nothing at or before this time follows: from one producer, or (None) from any. Whether that is news."""
        if producer is not None:
            return self.lanes.declare(self.lanes.code(producer, now), time_us, now)
        news, self._floor_us = time_us > self._floor_us, max(time_us, self._floor_us)
        return news

    def _fresh(self, rows: Rows) -> Numbers:
        """Which were neither received here nor taken by another writer."""
        epochs, received = self.lanes.epochs[rows.codes], self.lanes.received[rows.codes]
        fresh: Numbers = (rows.epochs > epochs) | ((rows.epochs == epochs) & (rows.sequences > received))
        fresh &= _rising(rows.codes, rows.sequences)
        self._leave_out_runs(rows, fresh)
        return fresh

    def _receive(self, rows: Rows) -> None:
        import numpy as np

        if not len(rows):
            return
        risen = rows.epochs > self.lanes.epochs[rows.codes]
        if risen.any():
            for code in np.unique(rows.codes[risen]).tolist():
                self.lanes.succeed(code, int(rows.epochs[rows.codes == code][0]))
        self.lanes.received[rows.codes] = rows.sequences  # a producer's last one stays

    def _advance(self, rows: Rows) -> Numbers:
        """Raise the producers' newest times; which rows are too far behind them?"""
        import numpy as np

        lateness_us, newest = self.schema.lateness_us, self.lanes.newest
        behind = np.zeros(len(rows), bool)
        if not len(rows):
            return behind
        if (rows.codes == rows.codes[0]).all():
            behind, newest[rows.codes[0]] = _behind(rows.times, int(newest[rows.codes[0]]), lateness_us, self._strictly)
            return behind
        order = np.argsort(rows.codes, kind="stable")
        codes, times = rows.codes[order], rows.times[order]
        starts = np.flatnonzero(np.concatenate([[True], codes[1:] != codes[:-1]]))
        base, span = int(times.min()), int(times.max()) - int(times.min()) + 1
        if span * (len(starts) + 1) > _SPAN_MAX or self._strictly:
            for first, last in zip(starts.tolist(), [*starts[1:].tolist(), len(codes)], strict=True):
                part = order[first:last]
                code = codes[first]
                behind[part], newest[code] = _behind(times[first:last], int(newest[code]), lateness_us, self._strictly)
            return behind
        # Every producer's running maximum at once: each one's times lie above those of the one before it.
        shift = np.repeat(np.arange(len(starts)), np.diff([*starts, len(codes)])) * span
        highest = np.maximum.accumulate(times - base + shift) - shift + base
        highest = np.maximum(highest, newest[codes])
        behind[order] = times < highest - lateness_us
        ends = np.concatenate([starts[1:], [len(codes)]]) - 1
        newest[codes[ends]] = highest[ends]
        return behind

    @property
    def _strictly(self) -> bool:
        """Whether an event at its producer's newest time is behind it, too."""
        return self.schema.strict and not self.schema.lateness_us

    def _ordered(self, rows: Rows) -> Rows:
        """In the order (time, producer, epoch, sequence). Rows of one producer are in the latter order already."""
        import numpy as np

        rising = bool((rows.times[1:] >= rows.times[:-1]).all())
        if rising and (rows.codes == rows.codes[0]).all():
            return rows
        ranks = self.lanes.ranks[rows.codes]
        order = np.argsort(ranks, kind="stable")
        return rows.pick(order[np.argsort(rows.times[order], kind="stable")])

    # --- what goes ---

    def watermark_us(self, now: int) -> int:
        """Up to where all is known that can come."""
        self.lanes.look(now)
        return max(self._floor_us, self.lanes.watermark_us())

    def releases(self, now: int) -> bool:
        """Whether any of what is held could go."""
        watermark_us = self.watermark_us(now)
        return any(part.times[0] <= watermark_us for part in self._held)

    def cut(self, through_us: int) -> Cut:
        """Divide what is held at a time; nothing changes before `drop`."""
        parts: list[Rows] = []
        rest: list[Rows] = []
        for part in self._held:
            count = _count_through(part, through_us)
            if count:
                parts.append(part.part(0, count))
            if count < len(part):
                rest.append(part.part(count) if count else part)
        if not parts:
            return Cut(None, rest)
        rows = self._ordered(joined(parts))
        first = _first_of_time(rows.times)
        if self.schema.strict:
            if not first.all():
                rest.append(rows.pick(~first))
            return Cut(rows.pick(first), rest)
        ordinals = _ordinals(rows.ordinals, first)
        return Cut(Rows(rows.codes, rows.epochs, rows.sequences, rows.times, ordinals, rows.columns), rest)

    def drop(self, cut: Cut) -> None:
        """What was ready is sealed."""
        self._held = cut.rest
        self._count()

    def expire(self, through_us: int) -> Expired:
        """Let go of what is held at or before the end of what is sealed: it has no place any more."""
        if through_us <= self._expired_us and self._newly_us > through_us:
            return Expired(None, None)  # as most of the time: nothing was sealed since, and nothing came that is late
        self._expired_us, self._newly_us = through_us, TIME_MAX
        parts = [part.part(0, count) for part in self._held if (count := _count_through(part, through_us))]
        doomed = [part.pick(over) for part in self._disordered if (over := part.times <= through_us).any()]
        if parts:
            self._held = [
                part.part(count) for part in self._held if (count := _count_through(part, through_us)) < len(part)
            ]
        if doomed:
            self._disordered = [part.pick(left) for part in self._disordered if (left := part.times > through_us).any()]
        self._count()
        return Expired(joined(parts) if parts else None, joined(doomed) if doomed else None)

    def _count(self) -> None:
        self.rows = sum(map(len, self._held)) + sum(map(len, self._disordered))

    def yield_to(self, taken: Taken, now: int) -> None:
        """Another writer extended the chain: what it took is done."""
        import numpy as np

        lanes = self.lanes
        lanes.learn(taken, now)
        self._runs = {lanes.codes[name]: runs for name, runs in taken.above.items()}
        marks = [taken.marks.get(name, NOTHING) for name in lanes.names]
        epochs, sequences = np.array([mark[0] for mark in marks]), np.array([mark[1] for mark in marks])

        def left_of(parts: list[Rows]) -> list[Rows]:
            left: list[Rows] = []
            for part in parts:
                over, through = epochs[part.codes], sequences[part.codes]
                open_ = (part.epochs > over) | ((part.epochs == over) & (part.sequences > through))
                self._leave_out_runs(part, open_)
                if open_.any():
                    left.append(part.pick(open_))
            return left

        self._held, self._disordered = left_of(self._held), left_of(self._disordered)
        self._count()

    def _leave_out_runs(self, rows: Rows, which: Numbers) -> None:
        """Take out of a mask what another writer took above its marks."""
        import numpy as np

        for code, runs in self._runs.items():
            for at in np.flatnonzero(which & (rows.codes == code)).tolist():
                which[at] = not within(runs, (int(rows.epochs[at]), int(rows.sequences[at])))

    def taken(self, held: Sequence[Rows] | None = None) -> Taken:
        """What is out of our hands, if only this is still held (by default what is)."""
        import numpy as np

        lanes = self.lanes
        count = len(lanes)
        epochs, received = lanes.epochs[:count].copy(), lanes.received[:count].copy()
        odd = set(self._runs)
        parts = [*(self._held if held is None else held), *self._disordered]
        own = np.zeros(0, np.int64)
        if parts:
            codes, eras, numbers = (
                np.concatenate([getattr(part, name) for part in parts]) for name in ("codes", "epochs", "sequences")
            )
            counts = np.bincount(codes, minlength=count)
            firsts = np.full(count, np.iinfo(np.int64).max)
            np.minimum.at(firsts, codes, numbers)
            own = np.flatnonzero(counts)
            # Mostly what is held of a producer is the last that came of it, without a gap.
            whole = firsts[own] + counts[own] - 1 == received[own]
            received[own[whole]] = firsts[own[whole]] - 1
            odd.update(own[~whole].tolist(), codes[eras != epochs[codes]].tolist())
        pairs = zip(epochs.tolist(), received.tolist(), strict=True)
        marks: dict[str, Mark] = dict(zip(lanes.names, pairs, strict=True))
        above: dict[str, tuple[Run, ...]] = {}
        for code in sorted(odd):
            mine = np.flatnonzero(codes == code) if parts else own
            name, still = (
                lanes.names[code],
                zip(eras[mine].tolist(), numbers[mine].tolist(), strict=True) if parts else (),
            )
            marks[name], runs = less(self._received(code), self._runs.get(code, ()), sorted(still))
            if runs:
                above[name] = runs
        # Whoever has something here that is not sealed is waited for by a writer that goes on from there.
        return Taken(marks, above, lanes.away() - {lanes.names[code] for code in own.tolist()})

    # --- what can be seen ---

    def awaited(self, now: int) -> ProducerState | None:
        """The producer for whom all wait."""
        code = self.lanes.awaited()
        return None if code is None else self.lanes.state(code, now)

    def producers(self, now: int) -> list[ProducerState]:
        """Every producer, in the order of their names."""
        return [self.lanes.state(self.lanes.codes[name], now) for name in sorted(self.lanes.names)]


def _count_through(rows: Rows, through_us: int) -> int:
    import numpy as np

    return int(np.searchsorted(rows.times, through_us, side="right"))


def _rising(codes: Numbers, sequences: Numbers) -> Numbers:
    """Which rows are beyond all before them of the same producer; the others came twice."""
    import numpy as np

    order = np.argsort(codes, kind="stable")
    by_producer, numbers = codes[order], sequences[order]
    same = by_producer[1:] == by_producer[:-1]
    rising = np.ones(len(codes), bool)
    if (same & (numbers[1:] <= numbers[:-1])).any():
        starts = np.flatnonzero(np.concatenate([[True], ~same]))
        for first, last in zip(starts.tolist(), [*starts[1:].tolist(), len(codes)], strict=True):
            highest = np.maximum.accumulate(numbers[first:last])
            rising[order[first + 1 : last]] = numbers[first + 1 : last] > highest[:-1]
    return rising


def _behind(times: Numbers, newest_us: int, lateness_us: int, strictly: bool) -> tuple[Numbers, int]:
    """Which of one producer's times are too far behind those before them; and the newest now."""
    import numpy as np

    highest = np.maximum.accumulate(np.concatenate([[newest_us], times]))
    behind: Numbers = times <= highest[:-1] if strictly else times < highest[:-1] - lateness_us
    return behind, int(highest[-1])


def _first_of_time(times: Numbers) -> Numbers:
    """Which rows are the first of their time."""
    import numpy as np

    first = np.ones(len(times), bool)
    first[1:] = times[1:] != times[:-1]
    return first


def _ordinals(given: Numbers | None, first: Numbers) -> Numbers:
    """Rows of one time are numbered in their order. What a producer gave them is kept where it is higher than that."""
    import numpy as np

    at = np.arange(len(first))
    group = np.cumsum(first) - 1
    within_time: Numbers = at - np.flatnonzero(first)[group]
    if given is None or not given.any():
        return within_time
    # The highest of what was given less the row's place, so far within the time, is what all after it are lifted by.
    lift = np.maximum(given - within_time, 0)
    step = int(lift.max()) + 1
    lifted: Numbers = within_time + np.maximum.accumulate(lift + group * step) - group * step
    return lifted
