"""What a level of the pool has numbered, for the levels that read it, before it is sealed.

A level that reads only such streams does not wait for the disk: the hub hands it the rows with the interval. It is
sealed after what it has read, so whoever begins again finds in the log what was handed over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from unerring.log import PartRows, arrow_schema
from unerring.model import StreamSchema

if TYPE_CHECKING:
    import pyarrow as pa

    from unerring.pipeline.partition import Partition
    from unerring.pipeline.spreading import Lane

PIECES_MAX: Final = 32
"""So many intervals are held of a stream; a level that is further behind reads the log."""
BYTES_MAX: Final = 256 << 10
"""An interval with more is not handed over: every partition gets all of it, and many rows are read faster than sent."""


class _Piece(NamedTuple):
    from_us: int
    through_us: int
    rows: pa.Table | None


class Fresh:
    """The newest intervals of a stream."""

    def __init__(self, schema: StreamSchema) -> None:
        self._schema = schema
        self._pieces: deque[_Piece] = deque(maxlen=PIECES_MAX)

    def add(self, from_us: int, through_us: int, rows: pa.Table | PartRows | None) -> None:
        """The interval after the last one."""
        if isinstance(rows, PartRows) or (rows is not None and rows.nbytes > BYTES_MAX):
            self._pieces.clear()
        else:
            self._pieces.append(_Piece(from_us, through_us, rows))

    def end_us(self, from_us: int) -> int:
        """Up to where everything after a time is here; that time itself if nothing is."""
        if not self._pieces or from_us < self._pieces[0].from_us:
            return from_us
        return max(from_us, self._pieces[-1].through_us)

    def rows(self, from_us: int, through_us: int) -> tuple[int, bytes]:
        """How many rows `(from, through]` has, and they themselves."""
        import pyarrow as pa

        pieces = [
            _between(rows, from_us, through_us)
            for _, end_us, rows in self._pieces
            if rows is not None and end_us > from_us
        ]
        pieces = [rows for rows in pieces if len(rows)]
        if not pieces:
            return 0, b""
        columns = arrow_schema(self._schema)
        names = [name for name in columns.names if name in pieces[0].column_names]
        table = pa.concat_tables([rows.select(names) for rows in pieces])
        table = table.cast(pa.schema([columns.field(name) for name in names]))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return len(table), sink.getvalue().to_pybytes()


def received(
    partition: Partition, handed: Mapping[str, bytes], from_us: int, through_us: int
) -> dict[Lane, pa.Table | None]:
    """A partition's rows of what was handed over, of a step of the interval."""
    import pyarrow as pa

    lanes: dict[Lane, pa.Table | None] = {}
    for stream, data in handed.items():
        table = pa.ipc.open_stream(pa.py_buffer(data)).read_all() if data else None
        table = None if table is None else _between(table, from_us, through_us)
        for lane in partition.lanes_of(stream):
            lanes[lane] = None if table is None else partition.own_rows(table, lane)
    return lanes


def _between(table: pa.Table, from_us: int, through_us: int) -> pa.Table:
    import numpy as np

    low, high = np.searchsorted(table.column("time").to_numpy(), [from_us, through_us], side="right").tolist()
    return table.slice(low, high - low)
