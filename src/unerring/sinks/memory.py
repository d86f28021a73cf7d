"""A target in memory, for tests: what a table with transactions does, and the faults that one can have."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from unerring.model import Stamp, StreamSchema
from unerring.sinks.port import Overtaken, last_stamp, target_schema

if TYPE_CHECKING:
    import pyarrow as pa


class MemoryTable:
    """What a server would hold."""

    def __init__(self, schema: StreamSchema) -> None:
        self.rows: pa.Table = target_schema(schema).empty_table()
        self.positions: dict[str, Stamp] = {}
        self.lock = threading.Lock()


class MemoryTarget:
    """A connection of one sink to a table. `fault` is called before a write and after it, and may raise."""

    def __init__(self, table: MemoryTable, sink: str, fault: Callable[[str], Any] = lambda when: None) -> None:
        self._table = table
        self._sink = sink
        self._fault = fault

    def position(self) -> Stamp | None:
        self._fault("position")
        return self._table.positions.get(self._sink)

    def write(self, chunk: pa.Table, after: Stamp | None) -> None:
        import pyarrow as pa

        self._fault("before")
        with self._table.lock:
            at = self._table.positions.get(self._sink)
            if at != after:
                raise Overtaken(f"the table is at {at}, not at {after}")
            self._table.rows = pa.concat_tables([self._table.rows, chunk])
            self._table.positions[self._sink] = last_stamp(chunk)
        self._fault("after")

    def read(self, from_us: int, through_us: int) -> pa.Table:
        import pyarrow as pa
        import pyarrow.compute as pc

        times = self._table.rows.column("time").cast(pa.int64())
        return self._table.rows.filter(pc.and_(pc.greater(times, from_us), pc.less_equal(times, through_us)))

    def rewind(self, to: Stamp) -> None:
        with self._table.lock:
            self._table.rows = self.read(-(1 << 62), to.time)
            self._table.positions[self._sink] = to

    def close(self) -> None:
        """Nothing is held."""
