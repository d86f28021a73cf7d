"""Events as JSON documents, for programs of any language; and back, for an audit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from unerring.model import ColumnType, Event, Stamp, StreamSchema

if TYPE_CHECKING:
    import pyarrow as pa

_INT_MAX: Final = 2**53


class _Document(msgspec.Struct, gc=False):
    id: str
    """The same at every try, for ever."""
    stream: str
    time_us: int
    ordinal: int
    payload: Any


def key_of(stamp: Stamp) -> str:
    return f"{stamp.time}-{stamp.ordinal}"


def stamp_in(key: str) -> Stamp:
    """A time may be before 1970."""
    time_us, _, ordinal = key.rpartition("-")
    return Stamp(int(time_us), int(ordinal))


def documents(rows: pa.Table, schema: StreamSchema) -> Iterator[tuple[str, bytes]]:
    """Rows of a log as documents, each with its stamp as a text. Bytes are hexadecimal digits; whole numbers beyond
    2^53, NaN and the infinities are texts."""
    names = [column.name for column in schema.columns]
    columns = [_plain(rows.column(column.name), column.type) for column in schema.columns]
    stamps = zip(rows.column("time").to_pylist(), rows.column("ordinal").to_pylist(), strict=True)
    encode, stream = msgspec.json.Encoder().encode, schema.name
    payload = msgspec.defstruct("Payload", names, gc=False)
    for (time_us, ordinal), values in zip(stamps, zip(*columns, strict=True), strict=True):
        key = f"{time_us}-{ordinal}"
        yield key, encode(_Document(f"{stream}-{key}", stream, time_us, ordinal, payload(*values)))


def event_in(data: bytes, schema: StreamSchema) -> Event:
    """The event of a document."""
    document = msgspec.json.decode(data, type=_Document)
    read = {column.name: _read(document.payload.get(column.name), column.type) for column in schema.columns}
    key = tuple(read[name] for name in schema.key)
    return Event(schema.name, Stamp(document.time_us, document.ordinal), key, read)


def _plain(column: Any, kind: ColumnType) -> list[Any]:
    """Values as JSON has them, a whole column at a time; one by one only where some are not."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if kind is ColumnType.TIME:
        column = column.cast(pa.int64())
    values: list[Any] = column.to_pylist()
    if kind is ColumnType.BYTES:
        return [None if value is None else value.hex() for value in values]
    if kind is ColumnType.FLOAT and pc.all(pc.is_finite(column)).as_py() is not True:
        return [value if value is None or math.isfinite(value) else str(value) for value in values]
    if kind in (ColumnType.INT, ColumnType.TIME) and _is_large(pc.min_max(column).as_py()):
        return [value if value is None or abs(value) <= _INT_MAX else str(value) for value in values]
    return values


def _is_large(extent: dict[str, int | None]) -> bool:
    return any(abs(value) > _INT_MAX for value in extent.values() if value is not None)


def _read(value: Any, kind: ColumnType) -> Any:
    if value is None:
        return None
    if kind is ColumnType.BYTES:
        return bytes.fromhex(value)
    if kind in (ColumnType.INT, ColumnType.TIME):
        return int(value)
    return float(value) if kind is ColumnType.FLOAT else value
