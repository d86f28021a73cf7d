"""Audit at scale: the perfect run beside what was delivered, compared by Spark's tasks; a few numbers come back.

A task takes some segments of the delivered stream and reads the same stretch of the perfect one; nobody ever holds a
whole stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from unerring.audit import (
    COMPLETENESS,
    FALSE_POSITIVE,
    Incarnation,
    Intake,
    Range,
    RuleVerdict,
    Stretch,
    Violation,
    Witness,
    check_intake,
    compare,
    making,
    missing,
    moment,
    unmaking,
)
from unerring.log import (
    BadEvent,
    Chain,
    EventLog,
    Mark,
    Parts,
    Quarantine,
    Resets,
    Span,
    Taken,
    declared_losses,
    waiting,
)
from unerring.model import TIME_MAX, Stamp, all_shown
from unerring.pipeline.connecting import parallelism
from unerring.pipeline.erased import Unknowable
from unerring.pipeline.history import rows_before
from unerring.pipeline.level import Level
from unerring.pipeline.monitoring import named_jobs
from unerring.pipeline.reference import Judged
from unerring.rules import Plan
from unerring.sinks import SinkRecord, Target, judge_target

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

NUMBER_MAX: Final = 1 << 62
"""Above every number of an event: the end of an epoch that is over."""
BINS: Final = 72
"""Bars of the plots."""
_NEARBY: Final = 6
TASKS_PER_CORE: Final = 4
NOTHING_ERASED: Final = Unknowable()


@dataclass(frozen=True, slots=True)
class Scope:
    """The times that an audit covers."""

    first_us: int
    last_us: int
    """The plots end here: a finished stream's time goes on for ever."""
    through_us: int

    def edges(self) -> list[int]:
        width = max(self.last_us - self.first_us, BINS)
        return [self.first_us + width * number // BINS for number in range(BINS + 1)]


def judge_stream(
    spark: SparkSession,
    level: Level,
    plan: Plan,
    delivered: Chain,
    judged: Judged,
    scope: Scope,
    engine: str,
    known: Stretch | None = None,
    unknowable: Unknowable = NOTHING_ERASED,
) -> RuleVerdict:
    """One stream of situations beside the perfect one, which `level`'s log holds. `known`: what was found before.
    `unknowable`: what is left out of both."""
    through_us = scope.through_us
    perfect = level.log.chain(delivered.name)
    sealed_us = min(delivered.refresh(), through_us)
    spans = delivered.spans(max(judged.from_us, delivered.base.from_us), sealed_us)
    total = known or Stretch()
    for part in run_pieces(
        spark, len(spans), _compare_task(delivered, perfect, spans, judged.from_us, scope, unknowable)
    ):
        total.add(msgspec.msgpack.decode(part, type=Stretch))
    rest_us = max(sealed_us, judged.from_us)
    if rest_us < through_us:
        later = perfect.spans(max(rest_us, perfect.base.from_us), through_us)
        for part in run_pieces(spark, len(later), _missing_task(perfect, later, rest_us, scope, unknowable)):
            total.add(msgspec.msgpack.decode(part, type=Stretch))
    return _verdict(level, plan, delivered.name, delivered.through_us, judged, scope, engine, total, unknowable)


def judge_sink(
    level: Level,
    plan: Plan,
    target: Target,
    record: SinkRecord,
    judged: Judged,
    scope: Scope,
    unknowable: Unknowable = NOTHING_ERASED,
) -> RuleVerdict:
    """What a sink's target holds beside the perfect stream, which `level`'s log holds; read by the driver itself."""
    stream = record.stream
    perfect = level.log.chain(stream) if record.secrets else level.log.veiled(stream)
    from_us = max(judged.from_us, perfect.base.from_us)

    def counted(stretch: Stretch, ours: list[Any], theirs: list[Any], wrong: list[int]) -> Stretch:
        return _counted(stretch, ours, theirs, wrong, scope)

    def knowable(tables: Sequence[pa.Table]) -> tuple[list[pa.Table], int]:
        return unknowable.without(tables, perfect.schema)

    total = judge_target(target, perfect, from_us, scope.through_us, counted, knowable)
    at = target.position()
    reached_us = from_us if at is None else at.time
    return _verdict(level, plan, stream, reached_us, judged, scope, f"sink {record.name}", total, unknowable)


def _verdict(
    level: Level,
    plan: Plan,
    stream: str,
    reached_us: int,
    judged: Judged,
    scope: Scope,
    engine: str,
    total: Stretch,
    unknowable: Unknowable,
) -> RuleVerdict:
    through_us, notes = scope.through_us, list(judged.notes)
    reached_us = min(reached_us, judged.until_us)
    if judged.until_us < TIME_MAX:
        notes.append(f"this version of the rule counted until {moment(judged.until_us)}")
    if unknowable:
        notes.append(unknowable.note(total.erased))
    if reached_us > through_us:
        notes.append(
            f"situations after {moment(through_us)} are not judged: what was asked for, or the log, ends there"
        )
    return RuleVerdict(
        plan.name,
        stream,
        engine,
        plan.version,
        judged.from_us,
        through_us,
        reached_us,
        total.delivered,
        total.perfect,
        total.counts,
        tuple(all_shown(_witness(level, plan, finding)) for finding in total.findings),
        tuple(notes),
        tuple(total.bins_delivered),
        tuple(total.bins_perfect),
        tuple(total.bins_wrong),
    )


def judge_intake(spark: SparkSession, log: EventLog, name: str) -> tuple[list[Intake], list[Violation], int]:
    """A primary stream's account, and how many events it holds."""
    chain = log.chain(name)
    spans = chain.spans(chain.base.from_us, TIME_MAX)
    taken: dict[Incarnation, list[Range]] = {}
    for part in run_pieces(spark, len(spans), _intake_task(chain, spans)):
        for producer, epoch, ranges in msgspec.msgpack.decode(part, type=list[tuple[str, int, list[Range]]]):
            taken.setdefault((producer, epoch), []).extend(ranges)
    cut, end, resets = chain.base.taken, chain.taken(), Resets(log.store, name).all()
    kept = [bad for bad in Quarantine(log.store, name).events() if is_accounted(bad, cut, end, resets)]
    marks = [(*bad.id, bad.reason.value) for bad in kept]
    incarnations = {*taken, *((producer, epoch) for producer, epoch, *_ in marks)}
    excused = excused_of(incarnations, cut, end)
    for who, ranges in _waiting_numbers(chain).items():
        excused.setdefault(who, []).extend(ranges)
    accounts, violations = check_intake(name, taken, marks, excused, declared_losses(kept))
    return accounts, violations, chain.count(chain.base.from_us, TIME_MAX)


def _waiting_numbers(chain: Chain) -> dict[Incarnation, list[Range]]:
    """The numbers of rows that intakes hold until the watermark has passed them."""
    import numpy as np

    parts = Parts(chain.store, chain.folder, chain.schema)
    waits: dict[Incarnation, list[Range]] = {}
    for settled_us, run in waiting(chain.store, chain.folder, chain.producers()).runs:
        for at, piece in enumerate(run.pieces):
            if piece.last_us <= settled_us:
                continue
            table = parts.part(run.part(at), ["time", "_producer", "_epoch", "_sequence"])
            numbers = np.sort(table.column("_sequence").to_numpy()[table.column("time").to_numpy() > settled_us])
            ends = np.flatnonzero(np.append(np.diff(numbers) > 1, True))
            starts = np.append(0, ends[:-1] + 1)
            who = table.column("_producer")[0].as_py(), table.column("_epoch")[0].as_py()
            waits.setdefault(who, []).extend(zip(numbers[starts].tolist(), numbers[ends].tolist(), strict=True))
    return waits


def is_accounted(bad: BadEvent, cut: Taken, end: Taken, resets: Mapping[str, Sequence[Mark]]) -> bool:
    """Before the cut retention took the account along; after the end the writer has not sealed what is between. An
    epoch that was reset is over, though its number is above what followed it."""
    mark = bad.epoch, bad.sequence
    over = any(epoch == bad.epoch for epoch, _ in resets.get(bad.producer, ()))
    sealed = bad.producer not in end.marks or end.has(bad.producer, mark)
    return not cut.has(bad.producer, mark) and (over or sealed)


def excused_of(incarnations: Iterable[Incarnation], cut: Taken, end: Taken) -> dict[Incarnation, list[Range]]:
    """The numbers that the account of a chain leaves out: retention removed them with what it cut, or they are not
    sealed yet though later ones are."""
    excused: dict[Incarnation, list[Range]] = {}
    for producer, epoch in incarnations:
        for first, last in (*cut.above.get(producer, ()), *end.holes(producer)):
            if first[0] <= epoch <= last[0]:
                low = first[1] if first[0] == epoch else 0
                high = last[1] if last[0] == epoch else NUMBER_MAX
                excused.setdefault((producer, epoch), []).append((low, high))
    return excused


def bounds_of(chains: Sequence[Chain], through_us: int) -> tuple[int, int] | None:
    """The times of the first and the last event of these chains, up to a time; None if there is no event."""
    firsts: list[int] = []
    lasts: list[int] = []
    for chain in chains:
        spans = chain.spans(chain.base.from_us, through_us)
        for order, ends, place in ((spans, firsts, 0), (spans[::-1], lasts, -1)):
            for span in order:
                times = chain.read(span.from_us, min(span.through_us, through_us), columns=[]).column("time")
                if len(times):
                    ends.append(times[place].as_py())
                    break
    return (min(firsts), max(lasts)) if firsts else None


def waiting_after(chain: Chain, stamp: Stamp) -> int:
    """How many events a reader at that position has still to take."""
    waiting = 0
    for span in chain.spans(max(stamp.time - 1, chain.base.from_us), TIME_MAX):
        if span.from_us >= stamp.time:
            waiting += chain.count(span.from_us, span.through_us)
        else:
            table = chain.read(span.from_us, span.through_us, columns=[])
            stamps = zip(table.column("time").to_pylist(), table.column("ordinal").to_pylist(), strict=True)
            waiting += sum(one > tuple(stamp) for one in stamps)
    return waiting


# --- tasks ---


def run_pieces(spark: SparkSession, pieces: int, task: Callable[[list[int]], bytes]) -> list[bytes]:
    """Give every task some of the pieces, by number; what each of them answers: little, by few tasks for each core."""
    if not pieces:
        return []

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
        yield pa.RecordBatch.from_arrays([pa.array([task(numbers)], pa.binary())], names=["answer"])

    tasks = min(pieces, TASKS_PER_CORE * parallelism(spark))
    with named_jobs(spark, "audit"):
        rows = spark.range(0, pieces, 1, tasks).mapInArrow(run, "answer binary").collect()
    return [bytes(row.answer) for row in rows]


def _compare_task(
    delivered: Chain, perfect: Chain, spans: list[Span], from_us: int, scope: Scope, unknowable: Unknowable
) -> Callable[[list[int]], bytes]:
    ours, theirs = chain_address(delivered), chain_address(perfect)

    def task(numbers: list[int]) -> bytes:
        chain, other = open_chain(*ours), open_chain(*theirs)
        total = Stretch()
        for number in numbers:
            span = spans[number]
            start_us, end_us = max(span.from_us, from_us), min(span.through_us, scope.through_us)
            parts, erased = unknowable.without(_as_it_lies(chain, span, from_us, scope.through_us), chain.schema)
            columns = [column.name for column in chain.schema.columns]
            [wanted], _ = unknowable.without([other.read(start_us, end_us, columns=columns)], chain.schema)
            stretch, wrong = compare(chain.schema, parts, wanted, start_us, end_us)
            stretch.erased = erased
            times = [part.column("time").to_numpy() for part in parts]
            total.add(_counted(stretch, times, [wanted.column("time").to_numpy()], wrong, scope))
        return msgspec.msgpack.encode(total)

    return task


def _missing_task(
    perfect: Chain, spans: list[Span], from_us: int, scope: Scope, unknowable: Unknowable
) -> Callable[[list[int]], bytes]:
    theirs = chain_address(perfect)

    def task(numbers: list[int]) -> bytes:
        chain = open_chain(*theirs)
        total = Stretch()
        for number in numbers:
            span = spans[number]
            start_us, end_us = max(span.from_us, from_us), min(span.through_us, scope.through_us)
            columns = [column.name for column in chain.schema.columns]
            [wanted], _ = unknowable.without([chain.read(start_us, end_us, columns=columns)], chain.schema)
            stretch, wrong = missing(
                chain.schema, wanted, COMPLETENESS, f"nothing was delivered after {moment(from_us)}"
            )
            total.add(_counted(stretch, [], [wanted.column("time").to_numpy()], wrong, scope))
        return msgspec.msgpack.encode(total)

    return task


def _intake_task(chain: Chain, spans: list[Span]) -> Callable[[list[int]], bytes]:
    ours = chain_address(chain)

    def task(numbers: list[int]) -> bytes:
        import numpy as np
        import pyarrow.compute as pc

        own = open_chain(*ours)
        ranges_of: dict[Incarnation, list[Range]] = {}
        for number in numbers:
            span = spans[number]
            table = own.read(span.from_us, span.through_us, None, ["_producer", "_epoch", "_sequence"])
            table = table.filter(table.column("_producer").is_valid())
            for pair in table.group_by(["_producer", "_epoch"]).aggregate([]).to_pylist():
                producer, epoch = pair["_producer"], pair["_epoch"]
                rows = table.filter(
                    pc.and_(pc.equal(table.column("_producer"), producer), pc.equal(table.column("_epoch"), epoch))
                )
                ordered = np.sort(rows.column("_sequence").to_numpy())
                starts = np.flatnonzero(np.diff(ordered, prepend=ordered[0] - 2) != 1)
                ends = [*(starts[1:] - 1), len(ordered) - 1]
                ranges_of.setdefault((producer, epoch), []).extend(
                    (int(ordered[a]), int(ordered[b])) for a, b in zip(starts.tolist(), ends, strict=True)
                )
        return msgspec.msgpack.encode([(producer, epoch, ranges) for (producer, epoch), ranges in ranges_of.items()])

    return task


def _counted(stretch: Stretch, ours: list[Any], theirs: list[Any], wrong: list[int], scope: Scope) -> Stretch:
    stretch.bins_delivered = _bins(ours, scope)
    stretch.bins_perfect = _bins(theirs, scope)
    stretch.bins_wrong = _bins([wrong] if wrong else [], scope)
    return stretch


def _bins(times: list[Any], scope: Scope) -> list[int]:
    import numpy as np

    counted = np.zeros(BINS, np.int64)
    for some in times:
        counted += np.histogram(np.asarray(some, np.int64), scope.edges())[0]
    return [int(count) for count in counted]


def chain_address(chain: Chain) -> tuple[str, str]:
    """A chain by its folder, so that a task finds it again."""
    return chain.store.locate(""), chain.name


def open_chain(folder: str, name: str) -> Chain:
    return EventLog(folder).chain(name)


def _as_it_lies(chain: Chain, span: Span, from_us: int, through_us: int) -> list[pa.Table]:
    """A segment's rows in the order of the file, bucket by bucket; where it is cut, those of `(from, through]`. If it
    was compacted meanwhile they lie in the same order in what holds them now."""
    import pyarrow.compute as pc

    parts = chain.lying(span, ["time", "ordinal", *(column.name for column in chain.schema.columns)])
    start_us, end_us = max(span.from_us, from_us), min(span.through_us, through_us)
    return [
        part.filter(pc.and_(pc.greater(part.column("time"), start_us), pc.less_equal(part.column("time"), end_us)))
        for part in parts
    ]


# --- witnesses ---


def _witness(level: Level, plan: Plan, finding: Any) -> Witness:
    """The events behind a finding: from the same streams that the perfect run was computed from."""
    event = finding.event
    rows = None if event is None else rows_before(level, plan, event)
    if rows is None:
        return Witness(finding)
    nearby = tuple(row.event for row in rows[-_NEARBY:])
    if finding.promise != FALSE_POSITIVE:
        made = making(plan, rows, event)
        return Witness(finding, made_by=tuple(made)) if made else Witness(finding, nearby=nearby)
    made = None if finding.perfect is None else making(plan, rows, finding.perfect)
    broken = unmaking(plan, rows, event)
    return Witness(finding, tuple(made or ()), tuple(broken), () if made or broken else nearby)
