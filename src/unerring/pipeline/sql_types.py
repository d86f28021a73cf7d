"""The Spark types of the table that a MATCH_RECOGNIZE makes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unerring.model import ColumnType
from unerring.rules import expressions as ex, walk
from unerring.sql import Recognition, is_list

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def output_types(recognition: Recognition, schema: StructType) -> StructType:
    """The types of the table that a MATCH_RECOGNIZE makes: the input's own where a column is passed on."""
    from pyspark.sql import types as st

    kinds = {
        ColumnType.BOOL: st.BooleanType(),
        ColumnType.INT: st.LongType(),
        ColumnType.FLOAT: st.DoubleType(),
        ColumnType.TEXT: st.StringType(),
        ColumnType.BYTES: st.BinaryType(),
    }
    names = {column.field: column.name for column in recognition.columns}
    measures = {measure.name: measure.expr for measure in recognition.measures}

    def kind_of(expr: ex.Expr) -> st.DataType:
        if is_list(expr):
            return st.ArrayType(kind_of(expr.arguments[0]))
        if isinstance(expr, ex.Attribute):
            return schema[names[expr.name]].dataType
        if expr.type is ColumnType.TIME:
            read = [schema[names[node.name]].dataType for node in walk(expr) if isinstance(node, ex.Attribute)]
            zoned = any(isinstance(kind, st.TimestampType) for kind in read)
            return st.TimestampType() if zoned else st.TimestampNTZType()
        return st.StringType() if expr.type is None else kinds[expr.type]

    made = st.StructType()
    for output in recognition.layout:
        kind = kind_of(measures[output.field]) if output.measure else schema[output.name].dataType
        made = made.add(output.name, kind, True)
    return made if len(made) else made.add("matched", st.BooleanType(), True)
