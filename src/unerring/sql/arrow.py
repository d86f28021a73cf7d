"""Rows in and out as Arrow tables: what DuckDB and Spark both speak.

The input comes partitioned and ordered by the SQL engine: sorted by `PARTITION`, then by ORDER BY. An event's ordinal
is the number of its row; its time is that number too, or, with WITHIN, the time it is ordered by.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeGuard

from unerring.model import ColumnType, Event, RuleError, Stamp, Value
from unerring.rules import expressions as ex, walk
from unerring.sql.names import TableColumn
from unerring.sql.recognition import PARTITION, ROW, Recognition

if TYPE_CHECKING:
    import pyarrow as pa


def column_type(kind: pa.DataType) -> ColumnType | None:
    """The type that conditions and measures see; None: they cannot read it."""
    import pyarrow as pa

    kinds = pa.types
    if kinds.is_dictionary(kind):
        return column_type(kind.value_type)
    if kinds.is_boolean(kind):
        return ColumnType.BOOL
    if kinds.is_integer(kind) or (kinds.is_decimal(kind) and kind.scale == 0):
        return ColumnType.INT
    if kinds.is_floating(kind) or kinds.is_decimal(kind):
        return ColumnType.FLOAT
    if kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind) or kinds.is_null(kind):
        return ColumnType.TEXT
    if kinds.is_binary(kind) or kinds.is_large_binary(kind) or kinds.is_fixed_size_binary(kind):
        return ColumnType.BYTES
    if kinds.is_timestamp(kind) or kinds.is_date(kind):
        return ColumnType.TIME
    return None


def values_of(table: pa.Table, column: TableColumn) -> list[Value]:
    """A column's values as expressions see them."""
    import pyarrow as pa

    array = table.column(column.name)
    try:
        if pa.types.is_dictionary(array.type):
            array = array.cast(array.type.value_type)
        if column.type is ColumnType.TIME:
            # Finer than a microsecond is cut off.
            array = array.cast(pa.timestamp("us", getattr(array.type, "tz", None)), safe=False).cast(pa.int64())
        elif column.type is ColumnType.INT:
            array = array.cast(pa.int64())
        elif column.type is ColumnType.FLOAT:
            array = array.cast(pa.float64())
    except pa.ArrowInvalid as error:
        raise RuleError(f"column {column.name} holds a value that does not fit {column.type}: {error}") from None
    values: list[Value] = array.to_pylist()
    return values


def partitions_of(recognition: Recognition, table: pa.Table) -> list[tuple[int, list[Event]]]:
    """The rows of each partition, as events of the batch plan's input."""
    columns = recognition.needed()
    fields = [column.field for column in columns]
    partitions = table.column(PARTITION).to_pylist()
    times: list[Any] = list(range(table.num_rows))
    if recognition.plan.within_us is not None:
        by = recognition.order[0][0]
        times = values_of(table, by)
        if None in times:
            raise RuleError(
                f"{recognition.place}: WITHIN needs a time for every row, but {by.name} is NULL in one; filter such "
                "rows out in a subquery"
            )
    partitioned: list[tuple[int, list[Event]]] = []
    rows = (
        zip(*(values_of(table, column) for column in columns), strict=True) if columns else iter([()] * table.num_rows)
    )
    for number, (partition, time, values) in enumerate(zip(partitions, times, rows, strict=True)):
        payload = dict(zip(fields, values, strict=True))
        payload[PARTITION] = partition
        event = Event("input", Stamp(time, number), (), payload)
        if not partitioned or partitioned[-1][0] != partition:
            partitioned.append((partition, []))
        partitioned[-1][1].append(event)
    return partitioned


def output_table(recognition: Recognition, table: pa.Table, outputs: Iterable[tuple[int, dict[str, Any]]]) -> pa.Table:
    """The table that a MATCH_RECOGNIZE makes. `outputs`: partition and payload of each output row of the batch plan."""
    import pyarrow as pa

    listed = list(outputs)
    first = {partition: number for number, partition in reversed(list(enumerate(table.column(PARTITION).to_pylist())))}
    rows = _array([first[partition] if payload[ROW] is None else payload[ROW] for partition, payload in listed])
    by_field = {column.field: column for column in recognition.columns}
    measures = {measure.name: measure.expr for measure in recognition.measures}
    arrays: list[Any] = []
    for output in recognition.layout:
        if not output.measure:
            arrays.append(table.column(output.name).take(rows))
            continue
        values = [payload[output.field] for _, payload in listed]
        expr = measures[output.field]
        if isinstance(expr, ex.Attribute):
            arrays.append(table.column(by_field[expr.name].name).take(_array(values)))
        elif is_list(expr):
            arrays.append(_lists(values, _arrow_type(recognition, table, expr.arguments[0])))
        else:
            arrays.append(_array(values, _arrow_type(recognition, table, expr)))
    if not arrays:
        arrays = [_array([True] * len(listed), pa.bool_())]
        return pa.Table.from_arrays(arrays, names=["matched"])
    return pa.Table.from_arrays(arrays, names=[output.name for output in recognition.layout])


def is_list(expr: ex.Expr) -> TypeGuard[ex.Aggregate]:
    """Whether a measure is a list. A plan knows it as JSON text; a table has it as it is."""
    return isinstance(expr, ex.Aggregate) and expr.name == "array_agg"


def _lists(texts: list[str | None], kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    lists = [None if text is None else json.loads(text) for text in texts]
    flat = _array([value for one in lists for value in one or ()], kind)
    offsets = _array(list(accumulate((len(one or ()) for one in lists), initial=0)))
    absent = _array([one is None for one in lists], pa.bool_())
    return pa.LargeListArray.from_arrays(offsets, flat, mask=absent)


def _arrow_type(recognition: Recognition, table: pa.Table, expr: ex.Expr) -> pa.DataType:
    import pyarrow as pa

    if expr.type is ColumnType.TIME:
        # Times made from a column with a zone have one.
        names = {column.field: column.name for column in recognition.columns}
        read = [names[node.name] for node in walk(expr) if isinstance(node, ex.Attribute)]
        zoned = any(getattr(table.schema.field(name).type, "tz", None) for name in read)
        return pa.timestamp("us", "UTC" if zoned else None)
    kinds = {
        ColumnType.BOOL: pa.bool_(),
        ColumnType.INT: pa.int64(),
        ColumnType.FLOAT: pa.float64(),
        ColumnType.BYTES: pa.binary(),
    }
    return pa.string() if expr.type is None else kinds.get(expr.type, pa.string())


def _array(values: list[Any], kind: pa.DataType | None = None) -> pa.Array:
    """An Arrow array (of int64 without a `kind`), put together from its buffers: `pyarrow.array` would load pandas, and
    that takes longer than most queries."""
    import pyarrow as pa

    kind = pa.int64() if kind is None else kind
    known = [value is not None for value in values]
    validity = None if all(known) else pa.py_buffer(_bits(known))
    if pa.types.is_boolean(kind):
        buffers = [validity, pa.py_buffer(_bits([bool(value) for value in values]))]
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        kind = pa.large_string() if pa.types.is_string(kind) else pa.large_binary()
        texts = [value.encode() if isinstance(value, str) else value or b"" for value in values]
        offsets = array("q", accumulate(map(len, texts), initial=0))
        buffers = [validity, pa.py_buffer(offsets.tobytes()), pa.py_buffer(b"".join(texts))]
    else:
        code = "d" if pa.types.is_floating(kind) else "q"
        buffers = [validity, pa.py_buffer(array(code, [value or 0 for value in values]).tobytes())]
    return pa.Array.from_buffers(kind, len(values), buffers)


def _bits(flags: list[bool]) -> bytes:
    """Eight flags a byte, the first one lowest."""
    packed = bytearray((len(flags) + 7) // 8)
    for number, flag in enumerate(flags):
        if flag:
            packed[number >> 3] |= 1 << (number & 7)
    return bytes(packed)
