"""Detect, in batch: the same partitions over a stretch of the log, one task a bucket, no shuffle.

Tasks walk the same intervals; what they staged for one interval is numbered and sealed as in streaming. So the events
are the same, stamps included, and a streaming query may go on where the batch ended.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from unerring.log import Chain
from unerring.model import TIME_MAX
from unerring.pipeline import savepoints
from unerring.pipeline.intervals import Bounds, next_end, read_spans, spans_of
from unerring.pipeline.level import Level
from unerring.pipeline.staging import stage
from unerring.pipeline.streaming import Sealed, numbered_by_stream, output_chains, seal_outputs
from unerring.pipeline.versions import end_of, enter

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

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
    shutil.rmtree(level.staging, ignore_errors=True)
    bounds = bounds or Bounds()
    chains = level.chains()
    steps = intervals(level, chains, bounds, through_us)
    if not steps:
        saved_us = savepoints.find(level, through_us)
        return bounds.start_us if saved_us is None else saved_us
    rows = (
        spark.range(0, level.buckets, 1, level.buckets)
        .mapInArrow(run_steps(level, [(*step, spans_of(chains, *step)) for step in steps]), STAGED)
        .collect()
    )
    outputs = output_chains(level)
    for index, (_, end_us) in enumerate(steps):
        answers = [row for row in rows if row.interval == index]
        added = seal_outputs(level, outputs, numbered_by_stream(outputs, answers), end_us)
        sizes = [(row.keys, row.rows) for row in answers if row.stream == level.outputs[0].name]
        keys, events = (sum(column) for column in zip(*sizes, strict=True))
        on_sealed(Sealed(index, end_us, added, keys, events))
    return steps[-1][1]


def intervals(level: Level, chains: dict[str, Chain], bounds: Bounds, through_us: int) -> list[tuple[int, int]]:
    """The stretch from the last savepoint (or the start) to where every chain is contiguous, cut at segments' ends.

    A savepoint after what is sealed is of a batch that was not finished: its outputs are still to be made.
    """
    start_us = max([bounds.start_us, *(chain.base.from_us for chain in chains.values())])
    saved_us = savepoints.find(level, min(through_us, level.sealed_us()))
    from_us = start_us if saved_us is None else saved_us
    reached = min([through_us, end_of(level), *(chain.refresh() for chain in chains.values())])
    steps: list[tuple[int, int]] = []
    while from_us < reached:
        end_us = next_end(chains, from_us, reached, bounds.rows_per_batch)
        steps.append((from_us, end_us))
        from_us = end_us
    return steps


def run_steps(
    level: Level, steps: list[tuple[int, int, bytes]]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The task's function: one bucket's partition over all intervals; its last state is a savepoint."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for bucket in [number for batch in batches for number in batch.column(0).to_pylist()]:
            partition = savepoints.partition_at(level, bucket, steps[0][0])
            for index, (_, end_us, spans) in enumerate(steps):
                outputs = partition.advance(end_us, read_spans(spans))
                staged: list[tuple[Any, ...]] = [
                    (index, stream, stage(table, level.staging), partition.keys, partition.rows)
                    for stream, table in outputs.items()
                ]
                columns = [
                    pa.array(column, kind) for column, kind in zip(zip(*staged, strict=True), _kinds(), strict=True)
                ]
                yield pa.RecordBatch.from_arrays(columns, names=["interval", "stream", "outputs", "keys", "rows"])
            savepoints.keep(level, partition.through_us, bucket, partition.snapshot())

    return run


def _kinds() -> list[Any]:
    import pyarrow as pa

    return [pa.int32(), pa.string(), pa.binary(), pa.int64(), pa.int64()]
