"""Columns on their way through Spark's Python functions and back, exactly: pandas would turn whole numbers with NULLs
into floats, and a NaN into a NULL.

Each column becomes two: its value, with something harmless where it is NULL, and whether it is NULL. Times travel as
whole microseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from unerring.model import Column, ColumnType, StreamSchema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

TIME: Final = "event_us"
ORDINAL: Final = "event_ordinal"
BUCKET: Final = "bucket"

_SPARK: Final = {
    ColumnType.BOOL: ("boolean", "false"),
    ColumnType.INT: ("long", "0L"),
    ColumnType.FLOAT: ("double", "0D"),
    ColumnType.TEXT: ("string", "''"),
    ColumnType.BYTES: ("binary", "X''"),
    ColumnType.TIME: ("long", "0L"),
}


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def carried(column: str, kind: ColumnType, number: int) -> list[str]:
    """A column of a DataFrame as two expressions."""
    read = quoted(column)
    value = f"unix_micros(CAST({read} AS timestamp))" if kind is ColumnType.TIME else read
    spark, blank = _SPARK[kind]
    return [f"coalesce(CAST({value} AS {spark}), {blank}) AS v{number}", f"{read} IS NULL AS n{number}"]


def carried_schema(kinds: list[ColumnType]) -> StructType:
    """The schema, for Spark, of what a function returns."""
    from pyspark.sql.types import StructType

    schema = StructType()
    for number, kind in enumerate(kinds):
        schema = schema.add(f"v{number}", _SPARK[kind][0]).add(f"n{number}", "boolean")
    return schema


def uncarried(kind: ColumnType, number: int, spark_type: str, name: str) -> str:
    """Two columns as one again, of a given type."""
    value = f"timestamp_micros(v{number})" if kind is ColumnType.TIME else f"v{number}"
    return f"IF(n{number}, NULL, CAST({value} AS {spark_type})) AS {quoted(name)}"


def as_log_rows(table: pa.Table, schema: StreamSchema) -> pa.Table:
    """What was carried, with the columns that engines read: time, ordinal, payload. In the order of time; events of one
    time in the order of their ordinals, or, where they have none, of what they hold, so that it does not matter in
    which order they came."""
    import numpy as np
    import pyarrow as pa

    columns = [_joined(table, column, number) for number, column in enumerate(schema.columns)]
    names = [column.name for column in schema.columns]
    made = pa.table([table.column(TIME), table.column(ORDINAL), *columns], names=["time", "ordinal", *names])
    keys = [("time", "ascending"), ("ordinal", "ascending"), *((name, "ascending") for name in names)]
    made = made.sort_by(keys)
    if len(made) and not schema_has_ordinals(table):
        time = made.column("time").to_numpy()
        first = np.concatenate([[True], time[1:] != time[:-1]])
        starts = np.maximum.accumulate(np.where(first, np.arange(len(time)), 0))
        made = made.set_column(1, "ordinal", pa.array(np.arange(len(time)) - starts))
    return made


def schema_has_ordinals(table: pa.Table) -> bool:
    """Whether the DataFrame brought ordinals of its own; −1 stands for none."""
    return len(table) > 0 and table.column(ORDINAL)[0].as_py() >= 0


def _joined(table: pa.Table, column: Column, number: int) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = StreamSchema("One", (column,)).arrow().field(0).type
    value = table.column(f"v{number}")
    value = value.cast(pa.int64()).cast(kind) if pa.types.is_timestamp(kind) else value.cast(kind)
    return pc.if_else(table.column(f"n{number}"), pa.scalar(None, kind), value)


def split(table: pa.Table, columns: tuple[Column, ...]) -> list[Any]:
    """Columns of an engine's outputs, carried."""
    import pyarrow as pa
    import pyarrow.compute as pc

    blanks: dict[ColumnType, Any] = {
        ColumnType.BOOL: False,
        ColumnType.FLOAT: 0.0,
        ColumnType.TEXT: "",
        ColumnType.BYTES: b"",
    }
    arrays: list[Any] = []
    for column in columns:
        value = table.column(column.name)
        if column.type is ColumnType.TIME:
            value = value.cast(pa.int64())
        arrays.append(pc.fill_null(value, pa.scalar(blanks.get(column.type, 0), value.type)))
        arrays.append(value.is_null())
    return arrays
