"""A level's query in one stage: the source's own tasks run the partitions, and what comes out of it is staged outputs.

The offset is a time, up to which every input chain is contiguous; a micro-batch is the interval between two of them,
one task for each bucket. Nothing is shuffled, no event passes through the JVM, and Spark keeps no state: a partition's
state is a file beside the checkpoint (see `states`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from unerring.pipeline.intervals import Bounds, Front, read_spans, spans_of, steps_of
from unerring.pipeline.level import Level
from unerring.pipeline.partition import Partition
from unerring.pipeline.staging import STAGED, staged_batch
from unerring.pipeline.states import States

if TYPE_CHECKING:
    import pyarrow as pa

COMMITS_PER_SWEEP: Final = 16
_KEPT: dict[tuple[str, str, int], Partition] = {}
"""Partitions that this worker process ran last; used again only when they stand exactly where the interval starts."""


class Task(InputPartition):
    """One bucket's part of a micro-batch."""

    def __init__(self, bucket: int, from_us: int, ends_us: list[int], spans: bytes) -> None:
        self.bucket = bucket
        self.from_us = from_us
        self.ends_us = ends_us
        """The interval in steps, so that a large one is not held in memory at once."""
        self.spans = spans


class Work(DataSource):
    """`spark.readStream.format("unerring-work")`, with the level handed over by `of`."""

    level: Level
    bounds: Bounds

    @classmethod
    def name(cls) -> str:
        return "unerring-work"

    def schema(self) -> str:
        return STAGED

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return _Reader(self.level, self.bounds)

    @classmethod
    def of(cls, level: Level, bounds: Bounds) -> type[Work]:
        """A source class of its own: options are strings, a level is not."""
        return type("Work", (cls,), {"level": level, "bounds": bounds})


class _Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Beside the driver it cuts time into intervals; in the executors, where a copy is sent, it runs them."""

    def __init__(self, level: Level, bounds: Bounds) -> None:
        self._level = level
        self._bounds = bounds
        self._front: Front | None = None
        self._commits = 0

    def __getstate__(self) -> dict[str, Any]:
        return {"_level": self._level, "_bounds": self._bounds, "_front": None, "_commits": 0}

    def initialOffset(self) -> dict[str, int]:
        return {"through_us": States(self._level).begins_at()}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        return {"through_us": self._at().next_end(start["through_us"])}

    def prepareForTriggerAvailableNow(self) -> None:
        self._at().stop_at_present()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Task]:
        from_us, through_us = start["through_us"], end["through_us"]
        if through_us <= from_us:
            return []
        front = self._at()
        front.check(through_us)
        spans = spans_of(front.chains, from_us, through_us)
        ends = steps_of(front.chains, from_us, through_us, self._bounds.rows_at_once)
        return [Task(bucket, from_us, ends, spans) for bucket in range(self._level.buckets)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        task: Any = partition
        yield run_task(self._level, task)

    def commit(self, end: dict[str, int]) -> None:
        self._commits += 1
        if self._commits % COMMITS_PER_SWEEP == 0:
            States(self._level).drop_before(end["through_us"])

    def _at(self) -> Front:
        if self._front is None:
            self._front = Front(self._level, self._bounds)
        return self._front


def run_task(level: Level, task: Task) -> pa.RecordBatch:
    """Take the bucket's partition, advance it through the interval, keep its state, stage its outputs."""
    import pyarrow as pa

    states = States(level)
    partition = _KEPT.pop((level.address, level.version, task.bucket), None)
    if partition is None or partition.through_us != task.from_us:
        partition = states.partition_at(task.bucket, task.from_us)
    spans, rows = read_spans(task.spans), 0
    parts_of: dict[str, list[pa.Table]] = {}
    for end_us in task.ends_us:
        for stream, table in partition.advance(end_us, spans).items():
            parts_of.setdefault(stream, []).append(table)
        rows += partition.rows
    states.keep(partition)
    _KEPT[level.address, level.version, task.bucket] = partition
    outputs = {stream: pa.concat_tables(parts) for stream, parts in parts_of.items()}
    return staged_batch(level, task.bucket, task.from_us, partition.through_us, outputs, partition.keys, rows)
