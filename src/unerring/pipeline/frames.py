"""Rules on DataFrames: `unerring.detect(df, rule)`, batch or streaming, for people who have a DataFrame and no log."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from unerring.model import TIME_MAX, CallerError, ColumnType, StreamSchema
from unerring.pipeline.carrying import uncarried
from unerring.pipeline.connecting import prepare
from unerring.pipeline.sql_streams import with_watermark
from unerring.pipeline.sql_tables import plan_type
from unerring.pipeline.streamed import BUCKETS, Reading, run_plan
from unerring.rules import Plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TYPES = {
    ColumnType.BOOL: "boolean",
    ColumnType.INT: "bigint",
    ColumnType.FLOAT: "double",
    ColumnType.TEXT: "string",
    ColumnType.BYTES: "binary",
    ColumnType.TIME: "timestamp",
}


def detect(
    df: DataFrame, rule: Any, *, time: str = "time", lateness: str | None = None, buckets: int | None = None
) -> DataFrame:
    """The situations of a rule in a DataFrame whose columns are those of the rule's stream, and `time` its event time.

    Of a batch DataFrame all situations, with the stamps that every other engine would give them; a situation that only
    the end of the data decides has no time. Of a streaming one those that are final, as they become so; `lateness` is
    how late a row may come and still count. An `ordinal` column orders events of one time; without it a batch's rows
    of one time stand in their own order (a file's, where the DataFrame was not shuffled), a stream's in that of what
    they hold. A row without an event time is an error.

    In the files of a declarative pipeline the DataFrame cannot be asked what it is: with `lateness` it is taken for a
    stream, without it for a batch.
    """
    plan: Plan = getattr(rule, "plan", rule)
    stream = _only_stream(plan)
    if _is_in_a_pipeline():
        return _detect_in_a_flow(df, plan, time, lateness, buckets or BUCKETS)
    prepare(df.sparkSession)
    _check_columns(df, stream, time, plan)
    if df.isStreaming:
        df = with_watermark(df, time, lateness, f"rule {plan.name}")
    spread = int(df.sparkSession.conf.get("spark.sql.shuffle.partitions") or BUCKETS)
    reading = Reading(
        plan,
        tuple(column.name for column in stream.columns),
        plan.inputs[0].key,
        time,
        "ordinal" if "ordinal" in df.columns else None,
        buckets or (BUCKETS if df.isStreaming else spread),
        df.isStreaming,
    )
    outputs = run_plan(df, reading)
    return _as_events(outputs, reading) if reading.streaming else _numbered(outputs, reading)


def _is_in_a_pipeline() -> bool:
    """Whether this is said in a file of a declarative pipeline. In its flows Spark refuses to be asked anything of a
    DataFrame, since the tables that it reads may not be there yet."""
    registry = sys.modules.get("pyspark.pipelines.graph_element_registry")
    if registry is None:
        return False
    from pyspark.errors import PySparkRuntimeError

    try:
        registry.get_active_graph_element_registry()
    except PySparkRuntimeError:
        return False
    return True


def _detect_in_a_flow(df: DataFrame, plan: Plan, time: str, lateness: str | None, buckets: int) -> DataFrame:
    """The columns are taken to be those of the rule's stream, and a DataFrame with a lateness to be a stream. If they
    are not, the flow fails."""
    names = tuple(column.name for column in plan.inputs[0].schema.columns)
    reading = Reading(plan, names, plan.inputs[0].key, time, None, buckets, lateness is not None, in_flow=True)
    if lateness is None:
        return _numbered(run_plan(df, reading), reading)
    return _as_events(run_plan(df.withWatermark(time, lateness), reading), reading)


def _as_events(outputs: DataFrame, reading: Reading) -> DataFrame:
    return outputs.selectExpr("timestamp_micros(v0) AS time", *_payload(reading))


def _numbered(outputs: DataFrame, reading: Reading) -> DataFrame:
    """Add ordinals, counted as everywhere: by the deciding event's rank and ordinal, the key, the index."""
    place = [f"v{number}" for number in range(1, 3)]
    key = [part for number in range(4, _first(reading)) for part in (f"NOT n{number}", f"v{number}")]
    order = ", ".join([*place, *key, "v3"])
    return outputs.selectExpr(
        f"IF(v0 = {TIME_MAX}L, NULL, timestamp_micros(v0)) AS time",
        f"CAST(row_number() OVER (PARTITION BY v0 ORDER BY {order}) - 1 AS bigint) AS ordinal",
        *_payload(reading),
    )


def _first(reading: Reading) -> int:
    return len(reading.outputs) - len(reading.plan.outputs[0].columns)


def _payload(reading: Reading) -> list[str]:
    first = _first(reading)
    return [
        uncarried(column.type, first + number, _TYPES[column.type], column.name)
        for number, column in enumerate(reading.outputs[first:])
    ]


def _only_stream(plan: Plan) -> StreamSchema:
    names = list(dict.fromkeys(source.schema.name for source in plan.inputs))
    if len(plan.inputs) != 1:
        raise CallerError(
            f"rule {plan.name} reads {', '.join(names)}, but a DataFrame is one stream; run it in an app (unerring.App)"
        )
    return plan.inputs[0].schema


def _check_columns(df: DataFrame, stream: StreamSchema, time: str, plan: Plan) -> None:
    from pyspark.sql.types import TimestampType

    if time not in df.columns:
        raise CallerError(
            f"rule {plan.name}: the DataFrame has no column {time!r} for the event time; name it with time=...; it has "
            f"{', '.join(df.columns)}"
        )
    if not isinstance(df.schema[time].dataType, TimestampType):
        raise CallerError(
            f"rule {plan.name}: event time {time} is {df.schema[time].dataType.simpleString()}, not a TIMESTAMP; cast "
            "it"
        )
    for column in stream.columns:
        if column.name not in df.columns:
            raise CallerError(
                f"rule {plan.name}: stream {stream.name} has a column {column.name!r}, which the DataFrame lacks "
                f"({', '.join(df.columns)}); rename or add it"
            )
        actual = plan_type(df.schema[column.name].dataType)
        wider = (actual, column.type) == (ColumnType.INT, ColumnType.FLOAT)
        if actual is not column.type and not wider:
            type_name = df.schema[column.name].dataType.simpleString()
            raise CallerError(
                f"rule {plan.name}: column {column.name!r} is {type_name}, but stream {stream.name} declares it "
                f"{column.type.value}; cast it"
            )
