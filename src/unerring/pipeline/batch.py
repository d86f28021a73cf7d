"""Detect, in batch: the same rules over a stretch of the log.

Tasks walk the same intervals; what they staged for one interval is numbered and sealed as in streaming. So the events
are the same, stamps included, and a streaming query may go on where the batch ended.

A level may have fewer partitions than there are cores. A long stretch is then run in finer ones, so that all cores have
something to do: its streams are read in ranges of time, split by key and shuffled (see `shuffling`). The states at the
end are of the finer partitions; whoever goes on from them merges them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from unerring.log import Chain
from unerring.matching import why_interpreted
from unerring.model import TIME_MAX
from unerring.pipeline import savepoints, shuffling
from unerring.pipeline.answers import stage
from unerring.pipeline.beginnings import beginning
from unerring.pipeline.connecting import parallelism
from unerring.pipeline.intervals import Bounds, next_end, spans_of, steps_of
from unerring.pipeline.level import Level
from unerring.pipeline.monitoring import named_jobs
from unerring.pipeline.partition import Partition
from unerring.pipeline.session import with_settings
from unerring.pipeline.shuffling import Handed, Interval, Reading, readings, split
from unerring.pipeline.spreading import Lane, finer, lanes_of, shuffled_lanes
from unerring.pipeline.states import partition_at
from unerring.pipeline.streaming import Sealed, numbered_by_stream, outputs_in, query_name, seal_outputs
from unerring.pipeline.versions import end_of, enter
from unerring.pipeline.walking import nothing_handed, walk
from unerring.tracing import send_waiting

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, Row, SparkSession

    Run = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

ROWS_FINER_MIN: Final = 200_000
"""Below this a shuffle would take longer than the work that it divides."""
STAGED: Final = "interval int, stream string, outputs binary, keys long, rows long"


def detect_batch(
    spark: SparkSession,
    level: Level,
    bounds: Bounds | None = None,
    *,
    through_us: int = TIME_MAX,
    on_sealed: Callable[[Sealed], None] = lambda sealed: None,
) -> int:
    """Run a level over what its log holds, seal the outputs, keep a savepoint at the end; the time that was reached."""
    enter(level)
    bounds = bounds or Bounds()
    chains = level.chains()
    steps = intervals(level, chains, bounds, through_us)
    if not steps:
        reached_us = beginning(level, bounds.start_us, through_us)
        savepoints.take(level, reached_us)
        return reached_us
    outputs = outputs_in(level)
    ends_us = [step_us for step in steps for step_us in steps_of(chains, *step, bounds.rows_at_once)]
    interval = Interval(steps[0][0], tuple(ends_us), spans_of(chains, steps[0][0], ends_us[-1]))
    with named_jobs(spark, query_name(level)):
        rows = _answers(spark, level, chains, Task(interval, tuple(steps)))
    for index, (from_us, end_us) in enumerate(steps):
        answers = [row for row in rows if row.interval == index]
        found = [(row.stream, bytes(row.outputs)) for row in answers]
        added = seal_outputs(outputs, numbered_by_stream(outputs.chains, found, from_us, end_us), end_us)
        sizes = [(row.keys, row.rows) for row in answers if row.stream == level.outputs[0].name]
        keys, events = (sum(column) for column in zip(*sizes, strict=True))
        on_sealed(Sealed(index, end_us, added, keys, events))
    return steps[-1][1]


def intervals(level: Level, chains: dict[str, Chain], bounds: Bounds, through_us: int) -> list[tuple[int, int]]:
    """The stretch from the last state (or the start) to where every chain is contiguous, cut at segments' ends.

    A state after what is sealed is of a batch that was not finished: its outputs are still to be made.
    """
    from_us = beginning(level, bounds.start_us, through_us)
    reached = min([through_us, *(chain.refresh() for chain in chains.values())])
    reached = min(reached, end_of(level))  # only now: what is agreed may have come after the last look at a chain
    steps: list[tuple[int, int]] = []
    while from_us < reached:
        end_us = next_end(chains, from_us, reached, bounds.rows_per_batch)
        steps.append((from_us, end_us))
        from_us = end_us
    return steps


@dataclass(frozen=True, slots=True)
class Task:
    """What each partition runs."""

    interval: Interval
    sealed: tuple[tuple[int, int], ...]
    """The intervals that are answered and sealed one after the other; each has some of the steps."""


def _answers(spark: SparkSession, level: Level, chains: dict[str, Chain], task: Task) -> list[Row]:
    """What the partitions staged for each interval."""
    interval = task.interval
    tasks = parallelism(spark)
    rows = sum(chain.count(interval.from_us, interval.ends_us[-1]) for chain in chains.values())
    divided = finer(level, tasks) if rows >= ROWS_FINER_MIN and tasks >= _worth_from(level) else level
    lanes = shuffled_lanes(level)
    if divided != level:
        lanes = tuple(lane for lane in lanes_of(level) if lane[1])
    if not lanes:
        return _numbers(spark, level.buckets).mapInArrow(run_steps(level, task), STAGED).collect()
    parts = readings(chains, interval, lanes, max(tasks, level.buckets))
    beside = with_settings(spark, shuffling.SETTINGS)
    read = _numbers(beside, len(parts)).mapInArrow(_split(divided, interval, lanes, parts), shuffling.SHUFFLED)
    run = _run_shuffled(level, divided, lanes, task)
    return shuffling.by_partition(read, divided).mapInArrow(run, STAGED).collect()


def _worth_from(level: Level) -> int:
    """From how many tasks on finer partitions are quicker. A shuffle takes six times as long as compiled rules take for
    the same rows, reading included; other rules take far longer."""
    compiled = all(why_interpreted(plan) is None for plan in level.plans)
    return (8 if compiled else 2) * level.buckets


def _numbers(spark: SparkSession, count: int) -> DataFrame:
    """A task for each number."""
    return spark.range(0, count, 1, count)


def _split(level: Level, interval: Interval, lanes: tuple[Lane, ...], parts: list[Reading]) -> Run:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in _numbers_in(batches):
            yield from split(level, interval, lanes, parts[number])

    return run


def _run_shuffled(level: Level, divided: Level, lanes: tuple[Lane, ...], task: Task) -> Run:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        handed = Handed(batches, lanes)
        if handed.interval is not None:
            partition = partition_at(divided, handed.part, handed.interval.from_us)
            yield from _walk(level, partition, task, handed.tables)
        send_waiting()

    return run


def run_steps(level: Level, task: Task) -> Run:
    """The task's function: one bucket's partition over all steps; its last state is a savepoint."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for bucket in _numbers_in(batches):
            partition = partition_at(level, bucket, task.interval.from_us)
            yield from _walk(level, partition, task, nothing_handed)
        send_waiting()

    return run


def _walk(
    level: Level, partition: Partition, task: Task, handed: Callable[[int], dict[Lane, pa.Table | None]]
) -> Iterator[pa.RecordBatch]:
    """Take a partition, of the level or finer, through all steps. Its outputs are those of the level."""
    import pyarrow as pa

    answers = iter(enumerate(task.sealed))
    index, (from_us, through_us) = next(answers)
    held: dict[str, list[pa.Table]] = {}
    rows = 0
    for end_us, outputs in walk(partition, task.interval, handed):
        rows += partition.rows
        for stream, table in outputs.items():
            held.setdefault(stream, []).append(table)
        if end_us == through_us:
            staged = [(stream, pa.concat_tables(tables)) for stream, tables in held.items()]
            yield _batch(
                [
                    (index, name, stage(level, name, table, from_us, end_us), partition.keys, rows)
                    for name, table in staged
                ]
            )
            index, (from_us, through_us) = next(answers, (index, (end_us, end_us)))
            held, rows = {}, 0
    savepoints.keep(partition)


def _batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    import pyarrow as pa

    kinds = [pa.int32(), pa.string(), pa.binary(), pa.int64(), pa.int64()]
    columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=["interval", "stream", "outputs", "keys", "rows"])


def _numbers_in(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [number for batch in batches for number in batch.column(0).to_pylist()]
