"""Events of one stream as columns: read, sent, queued, merged, fed to a kernel and sealed without an object for each.

A chunk is a sequence of events for whoever wants objects: they are made when they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, overload

import numpy as np

from unerring.matching.kernel.arrow import from_arrow, to_arrow
from unerring.matching.kernel.columns import DTYPES, Array, Column, Columns, Numbers, Texts, column_of, joined
from unerring.matching.kernel.outputs import OutputColumns, output_order, values_of
from unerring.matching.packed import Packed, PackedColumn
from unerring.model import ORDINAL_MAX, TIME_MAX, TIME_MIN, ColumnType, Event, ProtocolError, Stamp, StreamSchema

if TYPE_CHECKING:
    import pyarrow as pa

_INTEGERS: Final = np.dtype("<i8")
_CODES: Final = (np.dtype("<i1"), np.dtype("<i2"), np.dtype("<i4"))
_WIRE: Final[dict[ColumnType, np.dtype[Any]]] = {
    ColumnType.BOOL: np.dtype("u1"),
    ColumnType.INT: _INTEGERS,
    ColumnType.FLOAT: np.dtype("<f8"),
    ColumnType.TIME: _INTEGERS,
}
_TEXT_TYPES: Final[dict[ColumnType, type]] = {ColumnType.TEXT: str, ColumnType.BYTES: bytes}


class Chunk(Sequence[Event]):
    """Some events of one stream, in stamp order. Never changed; a part of it shares its arrays."""

    __slots__ = ("batch", "schema")

    def __init__(self, schema: StreamSchema, batch: Columns) -> None:
        """`batch`: all columns of the schema, in their order, each with its type's array; ordinals as an array."""
        self.schema = schema
        self.batch = batch

    # ---- a sequence of events ----------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.batch.time)

    @overload
    def __getitem__(self, at: int) -> Event: ...
    @overload
    def __getitem__(self, at: slice) -> Chunk: ...
    def __getitem__(self, at: int | slice) -> Event | Chunk:
        if isinstance(at, slice):
            first, end, _ = at.indices(len(self))
            return Chunk(self.schema, self.batch.part(first, max(first, end)))
        place = range(len(self))[at]
        return next(iter(Chunk(self.schema, self.batch.part(place, place + 1))))

    def __iter__(self) -> Iterator[Event]:
        names = tuple(self.batch.columns)
        stream, key = self.schema.name, [names.index(name) for name in self.schema.key]
        columns = [values_of(column) for column in self.batch.columns.values()]
        rows = zip(*columns, strict=True) if columns else iter([()] * len(self))
        stamps = map(Stamp, self.batch.time.tolist(), self._ordinals.tolist())
        for stamp, values in zip(stamps, rows, strict=True):
            yield Event(stream, stamp, tuple(values[i] for i in key), dict(zip(names, values, strict=True)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    @property
    def _ordinals(self) -> Array:
        return self.batch.ordinal  # type: ignore[return-value]

    # ---- stamps ------------------------------------------------------------------------------------------------

    def stamp(self, at: int) -> Stamp:
        return Stamp(int(self.batch.time[at]), int(self._ordinals[at]))

    def first_after(self, stamp: Stamp, lo: int = 0) -> int:
        """The place of the first event above a stamp."""
        times = self.batch.time[lo:]
        first, end = (lo + int(np.searchsorted(times, stamp.time, side)) for side in ("left", "right"))
        return first + int(np.searchsorted(self._ordinals[first:end], stamp.ordinal, "right"))

    def first_fault(self, last: Stamp) -> int | None:
        """The place of the first event that does not come after the one before it, the first one after `last`."""
        if not len(self):
            return None
        if self.stamp(0) <= last:
            return 0
        times, ordinals = self.batch.time, self._ordinals
        rising = times[1:] > times[:-1]
        if not rising.all():
            rising |= (times[1:] == times[:-1]) & (ordinals[1:] > ordinals[:-1])
            if not rising.all():
                return int(np.argmin(rising)) + 1
        return None

    @property
    def row_bytes(self) -> int:
        """The most that one of its events takes in a message."""
        count = 16
        for column in self.batch.columns.values():
            if isinstance(column, Texts):
                count += 8 + 4 * max(map(len, column.values), default=0)
            else:
                count += column.values.itemsize + 1
        return count

    def has_null(self, names: Iterable[str]) -> bool:
        """Whether an event has NULL in one of some columns."""
        for name in names:
            column = self.batch.columns[name]
            null = column.codes < 0 if isinstance(column, Texts) else column.null
            if null is not None and null.any():
                return True
        return False

    # ---- other forms -------------------------------------------------------------------------------------------

    @classmethod
    def of_events(cls, schema: StreamSchema, events: Sequence[Event]) -> Chunk:
        """Events as columns."""
        stamps = [event.stamp for event in events]
        columns = {
            column.name: column_of([event.payload[column.name] for event in events], column.type)
            for column in schema.columns
        }
        times = np.array([stamp.time for stamp in stamps], np.int64)
        return cls(schema, Columns(times, columns, ordinal=np.array([stamp.ordinal for stamp in stamps], np.int64)))

    @classmethod
    def of_table(cls, schema: StreamSchema, table: pa.Table) -> Chunk:
        """Rows of a log, in stamp order."""
        columns = {column.name: from_arrow(table.column(column.name), column.type) for column in schema.columns}
        times, ordinals = (table.column(name).to_numpy() for name in ("time", "ordinal"))
        return cls(schema, Columns(times, columns, ordinal=ordinals))

    def table(self) -> pa.Table:
        """A segment's columns, without their origin."""
        import pyarrow as pa

        wanted = self.schema.arrow()
        arrays = [to_arrow(column, wanted.field(name).type) for name, column in self.batch.columns.items()]
        stamps = [pa.array(self.batch.time), pa.array(self._ordinals)]
        return pa.Table.from_arrays([*stamps, *arrays], names=["time", "ordinal", *self.batch.columns])

    @classmethod
    def joined(cls, schema: StreamSchema, pieces: Sequence[Sequence[Event]]) -> Chunk:
        """Several in a row, events among them: always a copy, of arrays that can be written."""
        chunks = [piece if isinstance(piece, Chunk) else cls.of_events(schema, piece) for piece in pieces]
        return cls(schema, joined([chunk.batch for chunk in chunks or [cls.of_events(schema, ())]]))

    @classmethod
    def numbered(cls, outputs: OutputColumns, schema: StreamSchema) -> Chunk:
        """A kernel's outputs of whole times as events, in order: `outputs.number` with columns."""
        order = output_order(outputs)
        times = outputs.time[order]
        first = np.ones(len(times), np.bool_)
        first[1:] = times[1:] != times[:-1]
        places = np.arange(len(times))
        ordinals = places - np.maximum.accumulate(np.where(first, places, 0))
        columns = {c.name: _typed(outputs.columns[c.name], c.type, order) for c in schema.columns}
        return cls(schema, Columns(times, columns, ordinal=ordinals))

    def packed(self) -> Packed:
        """For a message or a record."""
        times, ordinals = self.batch.time, self._ordinals
        columns = tuple(
            _packed(column, spec.type)
            for spec, column in zip(self.schema.columns, self.batch.columns.values(), strict=True)
        )
        counted = ordinals.astype(_INTEGERS, copy=False).tobytes() if ordinals.any() else b""
        return Packed(len(self), times.astype(_INTEGERS, copy=False).tobytes(), counted, columns)

    @classmethod
    def unpacked(cls, schema: StreamSchema, packed: Packed) -> Chunk:
        """ProtocolError: it cannot be events of this stream. Whether they rise is not looked at."""
        count = packed.count
        times = _buffer(schema, packed.times, _INTEGERS, count)
        ordinals = _buffer(schema, packed.ordinals, _INTEGERS, count) if packed.ordinals else np.zeros(count, np.int64)
        _check(schema, not count or (times.min() >= TIME_MIN and times.max() <= TIME_MAX), "times that cannot be")
        _check(schema, not count or (ordinals.min() >= 0 and ordinals.max() <= ORDINAL_MAX), "ordinals that cannot be")
        _check(schema, len(packed.columns) == len(schema.columns), f"{len(packed.columns)} columns")
        columns = {
            spec.name: _unpacked(schema, column, spec.type, count)
            for spec, column in zip(schema.columns, packed.columns, strict=True)
        }
        return cls(schema, Columns(times, columns, ordinal=ordinals))


def _packed(column: Column, kind: ColumnType) -> PackedColumn:
    if isinstance(column, Texts):
        codes, values = column.codes, column.values
        if len(codes) < len(values):  # a part of a larger chunk: not all its texts are its own
            used, codes = np.unique(codes, return_inverse=True)
            missing = int(len(used) > 0 and used[0] < 0)
            codes = codes - missing
            values = tuple(values[code] for code in used[missing:].tolist())
        width = next(dtype for dtype in _CODES if len(values) <= np.iinfo(dtype).max)
        return PackedColumn(codes.astype(width).tobytes(), texts=values)
    null = b"" if column.null is None else column.null.astype(np.uint8).tobytes()
    return PackedColumn(column.values.astype(_WIRE[kind], copy=False).tobytes(), null)


def _unpacked(schema: StreamSchema, column: PackedColumn, kind: ColumnType, count: int) -> Column:
    if kind in _TEXT_TYPES:
        values = column.texts
        right = all(type(value) is _TEXT_TYPES[kind] for value in values) and len(set(values)) == len(values)
        _check(schema, right and len(values) <= np.iinfo(_CODES[-1]).max, "texts of another type, or twice the same")
        width = next(dtype for dtype in _CODES if len(values) <= np.iinfo(dtype).max)
        codes = _buffer(schema, column.values, width, count).astype(np.int32)
        _check(schema, not count or (codes.min() >= -1 and codes.max() < len(values)), "codes without a text")
        return Texts(codes, values)
    null = _buffer(schema, column.null, np.dtype("u1"), count) != 0 if column.null else None
    numbers = _buffer(schema, column.values, _WIRE[kind], count)
    return Numbers(numbers != 0 if kind is ColumnType.BOOL else numbers, null)


def _buffer(schema: StreamSchema, data: bytes, dtype: np.dtype[Any], count: int) -> Array:
    _check(schema, len(data) == count * dtype.itemsize, f"{len(data)} bytes for {count} values")
    return np.frombuffer(data, dtype)


def _check(schema: StreamSchema, right: object, what: str) -> None:
    if not right:
        raise ProtocolError(f"stream {schema.name}: events as columns with {what}, which its schema does not allow")


def _typed(column: Column, kind: ColumnType, order: Array) -> Column:
    """Some rows of a kernel's column, with the array of its type."""
    if isinstance(column, Texts):
        return Texts(column.codes[order], column.values, column.places)
    values = column.values[order]
    if values.dtype == object:
        return column_of(values.tolist(), kind)
    return Numbers(values.astype(DTYPES[kind], copy=False), None if column.null is None else column.null[order])
