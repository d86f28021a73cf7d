"""A level's source: the offset is a time, up to which every input chain is contiguous; a micro-batch is the interval
between two of them, one task for each bucket.

Where every rule reads its streams by their own keys, the source's tasks run the partitions, and what comes out of it is
staged outputs: nothing is shuffled, and no event passes through the JVM. Otherwise the source's tasks read the streams
and split them (see `shuffling`), and the tasks of a second stage run the partitions. Spark keeps no state: see
`states`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from unerring.pipeline.answers import STAGED, answered
from unerring.pipeline.intervals import Bounds, Front, spans_of, steps_of
from unerring.pipeline.level import Level
from unerring.pipeline.partition import Partition
from unerring.pipeline.requests import PlannerRequests
from unerring.pipeline.shuffling import SHUFFLED, Handed, Interval, Reading, readings, split
from unerring.pipeline.spreading import Lane, shuffled_lanes
from unerring.pipeline.states import States, partition_at
from unerring.pipeline.walking import advanced, nothing_handed

if TYPE_CHECKING:
    import pyarrow as pa

COMMITS_PER_SWEEP: Final = 16
_KEPT: dict[tuple[str, str, int], Partition] = {}
"""Partitions that this worker process ran last; used again only when they stand exactly where the interval starts."""


class Task(InputPartition):
    """One bucket's part of a micro-batch, or what is read of it for all buckets."""

    def __init__(self, interval: Interval, part: int | Reading) -> None:
        self.interval = interval
        self.part = part


class Work(DataSource):
    """`spark.readStream.format("unerring-work")`, with the level handed over by `of`."""

    level: Level
    bounds: Bounds

    @classmethod
    def name(cls) -> str:
        return "unerring-work"

    def schema(self) -> str:
        return SHUFFLED if shuffled_lanes(self.level) else STAGED

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return _Reader(self.level, self.bounds)

    @classmethod
    def of(cls, level: Level, bounds: Bounds) -> type[Work]:
        """A source class of its own: options are strings, a level is not. The bounds say where the query begins."""
        return type("Work", (cls,), {"level": level, "bounds": bounds})


class _Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Beside the driver it cuts time into intervals; in the executors, where a copy is sent, it runs them."""

    def __init__(self, level: Level, bounds: Bounds) -> None:
        self._level = level
        self._bounds = bounds
        self._front: Front | None = None
        self._requests = PlannerRequests(level)
        self._commits = 0

    def __getstate__(self) -> dict[str, Any]:
        own = {"_front": None, "_requests": PlannerRequests(self._level), "_commits": 0}
        return {"_level": self._level, "_bounds": self._bounds, **own}

    def initialOffset(self) -> dict[str, int]:
        return {"through_us": self._bounds.start_us}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        self._requests.note()
        return {"through_us": self._at().next_end(start["through_us"])}

    def reportLatestOffset(self) -> dict[str, int] | None:
        """How far the log goes, as far as it was looked at: what a query's progress shows beside how far it is."""
        return None if self._front is None else {"through_us": self._front.known_us}

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
        interval = Interval(from_us, tuple(ends), spans, front.behind_us(through_us))
        lanes = shuffled_lanes(self._level)
        if lanes:
            parts = readings(front.chains, interval, lanes, self._level.buckets)
            return [Task(interval, reading) for reading in parts]
        return [Task(interval, bucket) for bucket in range(self._level.buckets)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        task: Any = partition
        if isinstance(task.part, Reading):
            yield from split(self._level, task.interval, shuffled_lanes(self._level), task.part)
        else:
            yield run_partition(self._level, task.part, task.interval, nothing_handed)

    def commit(self, end: dict[str, int]) -> None:
        self._commits += 1
        if self._commits % COMMITS_PER_SWEEP == 0:
            States(self._level).drop_before(end["through_us"])

    def _at(self) -> Front:
        if self._front is None:
            self._front = Front(self._level, self._bounds)
        return self._front


def run_shuffled(level: Level) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function of the second stage: a partition that is handed some of its rows."""
    lanes = shuffled_lanes(level)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        handed = Handed(batches, lanes)
        if handed.interval is None:  # a micro-batch without an interval
            return
        yield run_partition(level, handed.part, handed.interval, handed.tables)

    return run


def run_partition(
    level: Level, bucket: int, interval: Interval, handed: Callable[[int], dict[Lane, pa.Table | None]]
) -> pa.RecordBatch:
    """Take the bucket's partition, advance it through the interval, keep its state, stage its outputs. `handed`: the
    rows of a step that others read for it."""
    partition = _KEPT.pop((level.address, level.name, bucket), None)
    if partition is None or partition.through_us != interval.from_us:
        partition = partition_at(level, bucket, interval.from_us)
    outputs, rows = advanced(partition, interval, handed)
    States(level).keep(partition)
    _KEPT[level.address, level.name, bucket] = partition
    return answered(partition, interval.from_us, outputs, rows, interval.behind_us)
