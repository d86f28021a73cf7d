"""MATCH_RECOGNIZE over a streaming table: the plan that a rule on a stream has, run as micro-batches come.

What is refused here could never be final on a stream, or would need what Spark does not give a stream.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from unerring.model import RuleError
from unerring.pipeline.carrying import uncarried
from unerring.pipeline.session import line_of
from unerring.pipeline.sql_types import output_types
from unerring.pipeline.streamed import Reading, run_plan
from unerring.sql import Recognition, check_streamable, is_list

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_WATERMARK: Final = "spark.watermarkDelayMs"
"""Spark's metadata key of a column that has a watermark."""


def recognise_stream(frame: DataFrame, recognition: Recognition, lateness: str | None, buckets: int) -> DataFrame:
    """The table that a MATCH_RECOGNIZE makes of a stream, as a stream."""
    time = _time_column(frame, recognition)
    frame = with_watermark(frame, time, lateness, recognition.place)
    unreadable = [column for column in recognition.columns if column.type is None]
    shown = {output.name for output in recognition.layout if not output.measure}
    for column in unreadable:
        if column.name in shown or column in recognition.partition:
            raise RuleError(
                f"{recognition.place}: column {column.name} is {column.declared}, which a match on a stream cannot "
                "pass on; leave it out in a subquery"
            )
    for measure in recognition.measures:
        if is_list(measure.expr):
            raise RuleError(
                f"{recognition.place}: a list such as {measure.name} cannot be made on a stream yet; use string_agg, "
                "or an aggregate of one value"
            )
    plan = replace(recognition.plan, order_by=())
    try:
        check_streamable(plan)
    except RuleError as error:
        raise RuleError(f"{recognition.place}: {str(error).removeprefix(f'rule {plan.name}: ')}") from None
    columns = tuple(column.name for column in recognition.columns if column.type is not None)
    key = tuple(column.name for column in recognition.partition)
    reading = Reading(plan, columns, key, time, buckets=buckets, streaming=True)
    outputs = run_plan(frame, reading)
    first = len(reading.outputs) - len(plan.measures)
    wanted = output_types(recognition, frame.schema)
    return outputs.selectExpr(
        *(
            uncarried(column.type, first + number, field.dataType.simpleString(), field.name)
            for number, (column, field) in enumerate(zip(reading.outputs[first:], wanted.fields, strict=True))
        )
    )


def with_watermark(frame: DataFrame, time: str, lateness: str | None, place: str) -> DataFrame:
    """The frame with a watermark on its event time: its own, or one of the stated lateness."""
    metadata: dict[str, Any] = frame.schema[time].metadata or {}
    if _WATERMARK in metadata:
        return frame
    if lateness is None:
        raise RuleError(
            f"{place}: this stream has no watermark on {time}, so nothing in it would ever be final; say how late a "
            f'row may be with lateness="10 seconds", or with withWatermark("{time}", ...) on the DataFrame'
        )
    from pyspark.errors import PySparkException

    try:
        marked = frame.withWatermark(time, lateness)
        marked.schema  # noqa: B018  (analysed now: over Spark Connect a mistake would show later)
        return marked
    except PySparkException as error:
        reason = line_of(error)
        raise RuleError(f"{place}: invalid lateness {lateness!r}: {reason}; write it like '10 seconds'") from None


def _time_column(frame: DataFrame, recognition: Recognition) -> str:
    from pyspark.sql.types import TimestampType

    if not recognition.order:
        raise RuleError(
            f"{recognition.place}: rows of a stream have no order of their own; add ORDER BY its event time"
        )
    column, key = recognition.order[0]
    kind = frame.schema[column.name].dataType
    if key.descending or not isinstance(kind, TimestampType) or len(recognition.order) > 1:
        raise RuleError(
            f"{recognition.place}: a stream is matched in the order of its event time, so ORDER BY one TIMESTAMP "
            f"column, ascending; {column.name} is {kind.simpleString()}{' in descending order' * key.descending}"
        )
    return column.name
