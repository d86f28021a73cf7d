"""Payloads checked against their stream, and columns made of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from unerring.model import ColumnType, SchemaError, StreamSchema, to_time_us

if TYPE_CHECKING:
    import pyarrow as pa

_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_TYPES: Final[dict[ColumnType, Any]] = {
    ColumnType.BOOL: bool,
    ColumnType.INT: _Int64,
    ColumnType.FLOAT: float,
    ColumnType.TEXT: str,
    ColumnType.BYTES: bytes,
    ColumnType.TIME: _Int64 | datetime,
}


def row_type(schema: StreamSchema, **more: Any) -> type[msgspec.Struct]:
    """A struct with the stream's columns, against which a payload or a line of JSON is checked."""
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = list(more.items())
    for column in schema.columns:
        if column.name in more:
            continue
        hint = _TYPES[column.type]
        fields.append((column.name, hint | None, None) if column.nullable else (column.name, hint))
    return msgspec.defstruct(f"{schema.name}Row", fields, kw_only=True, gc=False)


def columns_of(rows: list[Any], schema: StreamSchema) -> dict[str, pa.Array]:
    """The payload columns of checked rows."""
    import pyarrow as pa

    columns: dict[str, pa.Array] = {}
    for column, field in zip(schema.columns, schema.arrow(), strict=True):
        values = [getattr(row, column.name) for row in rows]
        if column.type is ColumnType.TIME:
            numbers = [value if value is None else to_time_us(value) for value in values]
            columns[column.name] = pa.array(numbers, pa.int64()).cast(field.type)
        else:
            columns[column.name] = pa.array(values, field.type)
    return columns


def time_of(value: int | str, unit_us: float) -> int:
    """Event time of a number in some unit, or of an ISO 8601 text with its offset."""
    if isinstance(value, int):
        return int(value * unit_us) if unit_us >= 1 else int(value // round(1 / unit_us))
    moment = datetime.fromisoformat(value)
    if moment.tzinfo is None:
        raise SchemaError(f"{value!r} has no time zone; write an offset such as Z or +01:00, or use --zone")
    return to_time_us(moment.astimezone(UTC))
