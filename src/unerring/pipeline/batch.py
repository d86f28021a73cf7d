"""Detect, in batch: the same partitions over a stretch of the log, one task a bucket.

Tasks walk the same intervals; what they staged for one interval is numbered and sealed as in streaming. So the events
are the same, stamps included, and a streaming query may go on where the batch ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from unerring.log import Chain
from unerring.model import TIME_MAX
from unerring.pipeline import savepoints, shuffling
from unerring.pipeline.answers import stage
from unerring.pipeline.beginnings import beginning
from unerring.pipeline.intervals import Bounds, next_end, spans_of
from unerring.pipeline.level import Level
from unerring.pipeline.session import settings
from unerring.pipeline.shuffling import Handed, Interval, Reading, readings, split
from unerring.pipeline.spreading import Lane, shuffled_lanes
from unerring.pipeline.states import partition_at
from unerring.pipeline.streaming import Sealed, numbered_by_stream, output_chains, seal_outputs
from unerring.pipeline.versions import end_of, enter

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, Row, SparkSession

    Run = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

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
    outputs = output_chains(level)
    ends_us = [end_us for _, end_us in steps]
    spans = spans_of(chains, steps[0][0], ends_us[-1])
    rows = _answers(spark, level, chains, Interval(steps[0][0], tuple(ends_us), spans))
    for index, (from_us, end_us) in enumerate(steps):
        answers = [row for row in rows if row.interval == index]
        added = seal_outputs(level, outputs, numbered_by_stream(outputs, answers, from_us, end_us), end_us)
        sizes = [(row.keys, row.rows) for row in answers if row.stream == level.outputs[0].name]
        keys, events = (sum(column) for column in zip(*sizes, strict=True))
        on_sealed(Sealed(index, end_us, added, keys, events))
    return steps[-1][1]


def intervals(level: Level, chains: dict[str, Chain], bounds: Bounds, through_us: int) -> list[tuple[int, int]]:
    """The stretch from the last state (or the start) to where every chain is contiguous, cut at segments' ends.

    A state after what is sealed is of a batch that was not finished: its outputs are still to be made.
    """
    from_us = beginning(level, bounds.start_us, through_us)
    reached = min([through_us, end_of(level), *(chain.refresh() for chain in chains.values())])
    steps: list[tuple[int, int]] = []
    while from_us < reached:
        end_us = next_end(chains, from_us, reached, bounds.rows_per_batch)
        steps.append((from_us, end_us))
        from_us = end_us
    return steps


def _answers(spark: SparkSession, level: Level, chains: dict[str, Chain], interval: Interval) -> list[Row]:
    """What the partitions staged for each step of the interval."""
    lanes = shuffled_lanes(level)
    if not lanes:
        return _numbers(spark, level.buckets).mapInArrow(run_steps(level, interval), STAGED).collect()
    parts = readings(chains, interval, lanes, level.buckets)
    with settings(spark, shuffling.SETTINGS):
        rows = _numbers(spark, len(parts)).mapInArrow(_split(level, interval, lanes, parts), shuffling.SHUFFLED)
        return shuffling.by_partition(rows, level).mapInArrow(_run_shuffled(level, lanes), STAGED).collect()


def _numbers(spark: SparkSession, count: int) -> DataFrame:
    """A task for each number."""
    return spark.range(0, count, 1, count)


def _split(level: Level, interval: Interval, lanes: tuple[Lane, ...], parts: list[Reading]) -> Run:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in _numbers_in(batches):
            yield from split(level, interval, lanes, parts[number])

    return run


def _run_shuffled(level: Level, lanes: tuple[Lane, ...]) -> Run:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        handed = Handed(batches, lanes)
        if handed.interval is not None:
            yield from _walk(level, handed.part, handed.interval, handed.tables)

    return run


def run_steps(level: Level, interval: Interval) -> Run:
    """The task's function: one bucket's partition over all steps; its last state is a savepoint."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for bucket in _numbers_in(batches):
            yield from _walk(level, bucket, interval, lambda step: {})

    return run


def _walk(
    level: Level, bucket: int, interval: Interval, handed: Callable[[int], dict[Lane, pa.Table | None]]
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    partition = partition_at(level, bucket, interval.from_us)
    for index, (from_us, end_us) in enumerate(interval.steps):
        outputs = partition.advance(end_us, interval.spans, handed(index))
        staged: list[tuple[Any, ...]] = [
            (index, stream, stage(level, stream, table, from_us, end_us), partition.keys, partition.rows)
            for stream, table in outputs.items()
        ]
        columns = [pa.array(column, kind) for column, kind in zip(zip(*staged, strict=True), _kinds(), strict=True)]
        yield pa.RecordBatch.from_arrays(columns, names=["interval", "stream", "outputs", "keys", "rows"])
    savepoints.keep(partition)


def _numbers_in(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [number for batch in batches for number in batch.column(0).to_pylist()]


def _kinds() -> list[Any]:
    import pyarrow as pa

    return [pa.int32(), pa.string(), pa.binary(), pa.int64(), pa.int64()]
