"""Between events and columns: rows of a log as events, events as rows of a segment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from unerring.model import ColumnType, Event, Stamp, StreamSchema

if TYPE_CHECKING:
    import pyarrow as pa


def events_of(table: pa.Table, schema: StreamSchema) -> Iterator[Event]:
    """Rows of a log as events. Columns that were not read are not in the payload."""
    import pyarrow as pa

    names = [column.name for column in schema.columns if column.name in table.column_names]
    columns: list[list[Any]] = []
    for name in names:
        column = table.column(name)
        is_time = schema.column(name).type is ColumnType.TIME
        columns.append((column.cast(pa.int64()) if is_time else column).to_pylist())
    key = [names.index(name) for name in schema.key if name in names]
    stamps = zip(table.column("time").to_pylist(), table.column("ordinal").to_pylist(), strict=True)
    for (time, ordinal), values in zip(stamps, zip(*columns, strict=True) if columns else _nothing(), strict=False):
        payload = dict(zip(names, values, strict=True))
        yield Event(schema.name, Stamp(time, ordinal), tuple(values[i] for i in key), payload)


def _nothing() -> Iterator[tuple[Any, ...]]:
    while True:
        yield ()


def table_of(events: Sequence[Event], schema: StreamSchema) -> pa.Table:
    """Events as a segment's columns, without their origin."""
    import pyarrow as pa

    wanted = schema.arrow()
    arrays: list[Any] = []
    for column in schema.columns:
        values = [event.payload[column.name] for event in events]
        kind = wanted.field(column.name).type
        arrays.append(
            pa.array(values, pa.int64()).cast(kind) if column.type is ColumnType.TIME else pa.array(values, kind)
        )
    times = pa.array([event.stamp.time for event in events], pa.int64())
    ordinals = pa.array([event.stamp.ordinal for event in events], pa.int64())
    names = ["time", "ordinal", *(column.name for column in schema.columns)]
    return pa.Table.from_arrays([times, ordinals, *arrays], names=names)
