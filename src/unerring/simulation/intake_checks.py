"""Whether a log is the canonical merge of what was published, less what is declared late or lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from unerring.audit import Violation, check_intake
from unerring.log import Chain, Quarantine, Reason, declared_losses
from unerring.simulation.intake_programs import Id, Plant

_LATE = (Reason.LATE, Reason.NOT_INCREASING)
_WITNESSES = 5


def check_merge(plant: Plant, chain: Chain) -> Iterator[Violation]:
    """The log's rows, its quarantine and the producers' own words agree."""
    table = chain.read(chain.base.from_us, chain.refresh())
    names = ("time", "_producer", "_epoch", "_sequence", "ordinal", "number")
    rows = list(zip(*(table.column(name).to_pylist() for name in names), strict=True))
    yield from _check_order(rows)
    published, bad = plant.events(), Quarantine(chain.store, chain.folder).events()
    in_log: list[Id] = [(producer, epoch, sequence) for _, producer, epoch, sequence, *_ in rows]
    wrong = [row for row, key in zip(rows, in_log, strict=True) if key not in published]
    wrong += [
        row for row, key in zip(rows, in_log, strict=True) if key in published and row[0] != published[key].time_us
    ]
    yield from _violation("every row was published just so", wrong)
    kept = {event.id: event.reason for event in bad if event.reason is not Reason.LOST}
    yield from _violation("nothing is in the log and in quarantine", sorted(set(in_log) & set(kept)))
    late = {key for key, reason in kept.items() if reason in _LATE}
    gone = set(published) - set(in_log) - set(kept)
    lost = {key for key in gone if _may_be_lost(plant, key)}
    yield from _violation("every event is in the log, in quarantine or lost", sorted(gone - lost))
    refused = (set(kept) - late) ^ (plant.poison() - lost)
    yield from _violation("what is poison, and nothing else, is refused", sorted(refused))
    if plant.determined:
        yield from _violation("late is what breaks its producer's order", sorted(late ^ plant.disordered()))
    taken: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for producer, epoch, sequence in in_log:
        taken.setdefault((producer, epoch), []).append((sequence, sequence))
    marks = [(*event.id, event.reason.value) for event in bad]
    _, violations = check_intake(chain.name, taken, marks, declared=declared_losses(bad))
    yield from violations
    holes = [(name, run) for name in sorted(chain.taken().above) for run in chain.taken().holes(name)]
    pending = [key for key in published for name, (first, last) in holes if key[0] == name and first <= key[1:] <= last]
    # A writer that died may have held one that another one was told is lost.
    yield from _violation(
        "in the end only what is refused or lost is not taken", sorted(set(pending) - set(kept) - lost)
    )


def _check_order(rows: list[tuple[int, str, int, int, int, int]]) -> Iterator[Violation]:
    places = [row[:4] for row in rows]
    yield from _violation(
        "rows are in the order (time, producer, sequence), each once",
        [pair for pair in pairwise(places) if pair[0] >= pair[1]],
    )
    expected, last_us = 0, None
    for time_us, *_, ordinal, _ in rows:
        expected = expected + 1 if time_us == last_us else 0
        last_us = time_us
        if ordinal != expected:
            yield Violation("rows of one time are numbered", (f"{time_us}: {ordinal}, not {expected}",))
            return


def _may_be_lost(plant: Plant, key: Id) -> bool:
    producer, epoch, sequence = key
    return sequence > plant.lives[producer].kept.get(epoch, 1 << 60)


def _violation(rule: str, witnesses: Sequence[object]) -> Iterator[Violation]:
    if witnesses:
        yield Violation(rule, tuple(map(str, witnesses[:_WITNESSES])))
