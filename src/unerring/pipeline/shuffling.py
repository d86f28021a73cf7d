"""Streams that a rule reads by another key than their own: read once, in pieces, and handed over by a shuffle of Spark.

The tasks of a first stage read pieces of the segments (some steps of time, some buckets), split their rows by the
partition that the rule's key belongs to, and give them out as Arrow bytes. Spark brings each partition's rows to its
task, in the order of the steps. What a partition is handed is what it would have found by reading everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import msgspec

from unerring.log import Chain, Span, Spread, in_stamp_order
from unerring.model import InvariantBreach, invariant
from unerring.pipeline.level import Level
from unerring.pipeline.spreading import Lane, columns_read, owners_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

SHUFFLED: Final = "part int, step int, lane int, rows binary"
SETTINGS: Final = {"spark.sql.execution.arrow.maxRecordsPerBatch": "16"}
"""A row holds many events: few of them are enough for a batch on its way to Python."""
ROWS_PER_READER_MIN: Final = 50_000
"""Less than this is not worth another task."""
ROWS_PER_UNIT: Final = 1_000_000
"""About how many rows are read at a time, times the number of buckets that the stream has."""
_INTERVAL: Final = -1
"""The step of the row that tells a partition its interval, before all others."""

Row = tuple[int, int, int, Any]
"""Partition, step, lane, and Arrow bytes."""


class Interval(msgspec.Struct, frozen=True):
    """What a partition is to run."""

    from_us: int
    ends_us: tuple[int, ...]
    """In steps, so that a large interval is not held in memory at once."""
    spans: dict[str, list[Span]]
    behind_us: int = 0
    """How far the log went beyond it when it was planned."""

    @property
    def steps(self) -> list[tuple[int, int]]:
        return list(pairwise((self.from_us, *self.ends_us)))


@dataclass(frozen=True, slots=True)
class Unit:
    """One bucket of some segments of a stream, in one step: what a reader reads at a time."""

    stream: str
    step: int
    from_us: int
    through_us: int
    bucket: int
    rows: int


@dataclass(frozen=True, slots=True)
class Reading:
    """What a task of the first stage reads. The first one tells every partition its interval."""

    units: tuple[Unit, ...]
    first: bool


def readings(chains: dict[str, Chain], interval: Interval, lanes: tuple[Lane, ...], tasks_max: int) -> list[Reading]:
    """The units of an interval, divided among tasks in equal shares of rows."""
    units: list[Unit] = []
    for stream in dict.fromkeys(stream for stream, _ in lanes):
        for step, ends in enumerate(interval.steps):
            units += _units(chains[stream], step, *ends)
    total = sum(unit.rows for unit in units)
    tasks = max(1, min(tasks_max, len(units), total // ROWS_PER_READER_MIN))
    shares: list[list[Unit]] = [[] for _ in range(tasks)]
    taken = 0
    for unit in units:
        shares[min(taken * tasks // max(total, 1), tasks - 1)].append(unit)
        taken += unit.rows
    return [Reading(tuple(share), number == 0) for number, share in enumerate(shares)]


def _units(chain: Chain, step: int, from_us: int, through_us: int) -> Iterator[Unit]:
    rows = 0
    spans = chain.spans(from_us, through_us)
    for number, span in enumerate(spans):
        rows += chain.footer(span).rows
        if rows >= ROWS_PER_UNIT or number == len(spans) - 1:
            end_us = min(span.through_us, through_us)
            for bucket in range(chain.buckets if rows else 0):
                yield Unit(chain.name, step, from_us, end_us, bucket, rows // chain.buckets)
            from_us, rows = end_us, 0


def split(level: Level, interval: Interval, lanes: tuple[Lane, ...], reading: Reading) -> Iterator[pa.RecordBatch]:
    """A task of the first stage: the rows of its units, a batch for each unit."""
    if reading.first:
        described = msgspec.msgpack.encode(interval)
        yield _batch([(part, _INTERVAL, 0, described) for part in range(level.buckets)])
    columns = columns_read(level)
    for unit in reading.units:
        chain = level.log.known_chain(unit.stream, interval.spans[unit.stream])
        table = chain.read(unit.from_us, unit.through_us, unit.bucket, columns[unit.stream])
        handed: list[Row] = []
        for number, (stream, key) in enumerate(lanes):
            if stream == unit.stream and len(table):
                handed += [(part, unit.step, number, data) for part, data in _parts(table, key, level.spread)]
        if handed:
            yield _batch(handed)


def by_partition(frame: DataFrame, level: Level) -> DataFrame:
    """The rows of `split`, brought to the tasks of their partitions."""
    return frame.repartitionById(level.buckets, frame["part"]).sortWithinPartitions("part", "step")


class Handed:
    """A partition's rows as they come out of the shuffle, step after step."""

    def __init__(self, batches: Iterable[pa.RecordBatch], lanes: tuple[Lane, ...]) -> None:
        self._lanes = lanes
        self._rows = _rows(batches)
        first = next(self._rows, None)
        self.part = 0 if first is None else first[0]
        self.interval = None if first is None else _interval(first)
        """None where there is nothing to do at all."""
        self._next = next(self._rows, None)

    def tables(self, step: int) -> dict[Lane, pa.Table | None]:
        """The rows of a step, in stamp order; None for lanes without any. Steps are asked for one after the other."""
        pieces: dict[Lane, list[Any]] = {lane: [] for lane in self._lanes}
        while self._next is not None and self._next[1] == step:
            part, _, lane, data = self._next
            invariant(part == self.part, f"partition {self.part} is handed rows of its own, not of {part}")
            pieces[self._lanes[lane]].append(data)
            self._next = next(self._rows, None)
        return {lane: _joined(parts) if parts else None for lane, parts in pieces.items()}


def _interval(row: Row) -> Interval:
    if row[1] != _INTERVAL:
        raise InvariantBreach(f"partition {row[0]} is told its interval before it is handed rows")
    return msgspec.msgpack.decode(row[3], type=Interval)


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    for batch in batches:
        numbers = [batch.column(number).to_pylist() for number in range(3)]
        for row, (part, step, lane) in enumerate(zip(*numbers, strict=True)):
            yield part, step, lane, batch.column(3)[row].as_buffer()


def _parts(table: pa.Table, key: tuple[str, ...], spread: Spread) -> Iterator[tuple[int, bytes]]:
    """The rows of each partition, as bytes. They keep their order."""
    import numpy as np
    import pyarrow as pa

    owners = owners_of(table, key, spread).astype(np.uint16)
    ends = np.cumsum(np.bincount(owners, minlength=spread.buckets)).tolist()
    table = table.combine_chunks().take(pa.array(np.argsort(owners, kind="stable")))
    for part, (start, end) in enumerate(pairwise((0, *ends))):
        if end > start:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table.slice(start, end - start))
            yield part, sink.getvalue().to_pybytes()


def _joined(parts: list[Any]) -> pa.Table:
    import pyarrow as pa

    tables = [pa.ipc.open_stream(part).read_all() for part in parts]
    return in_stamp_order(pa.concat_tables(tables), len(tables))


def _batch(rows: list[Row]) -> pa.RecordBatch:
    import pyarrow as pa

    kinds = (pa.int32(), pa.int32(), pa.int32(), pa.binary())
    columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=["part", "step", "lane", "rows"])
