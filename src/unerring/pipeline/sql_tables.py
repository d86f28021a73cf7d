"""SQL with MATCH_RECOGNIZE on Spark: Spark orders and partitions, the matchers find the matches, and the rest
of the statement is Spark SQL.

Tables are whatever the session knows: temporary views, catalog tables. Each partition is one task's group, in Arrow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from unerring.matching import outputs_of
from unerring.model import ColumnType, RuleError
from unerring.pipeline.carrying import quoted
from unerring.pipeline.connecting import prepare
from unerring.pipeline.session import line_of, sentence_of
from unerring.pipeline.sql_streams import recognise_stream
from unerring.pipeline.sql_types import output_types
from unerring.pipeline.streamed import BUCKETS
from unerring.sql import PARTITION, Recognition, Rewriting, column_type, output_table, partitions_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

_ARRIVAL: Final = "input_arrival"
_PLACE: Final = "input_place"


def match(
    spark: SparkSession, sql: str, *, lateness: str | None = None, steps_max: int | None = None, buckets: int = BUCKETS
) -> DataFrame:
    """A statement with any number of MATCH_RECOGNIZE, as a DataFrame. Nothing runs before it is asked for rows.

    A MATCH_RECOGNIZE over a streaming table gives a streaming DataFrame; `lateness` (such as "10 seconds") is how much
    later than the newest row another one may come and still count, unless the table has a watermark already. `buckets`
    is how many tasks partition a stream's partitions.
    """
    prepare(spark)
    return SparkTables(spark, steps_max, lateness, buckets).query(sql)


class SparkTables:
    """A session as the engine of the SQL around MATCH_RECOGNIZE (`sql.statement.SqlEngine`)."""

    dialect = "spark"

    def __init__(
        self, spark: SparkSession, steps_max: int | None = None, lateness: str | None = None, buckets: int = BUCKETS
    ) -> None:
        self._spark = spark
        self._steps_max = steps_max
        self._lateness = lateness
        self._buckets = buckets
        self._streamed: list[str] = []
        self._statement: Rewriting | None = None

    def query(self, sql: str) -> DataFrame:
        """The statement's rows, as a DataFrame."""
        return self._answer(sql)[1]

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """The statement's rows, each by the names of its columns."""
        statement, frame = self._answer(sql)
        statement.check_names(frame.columns)
        return rows_of(frame)

    def _answer(self, sql: str) -> tuple[Rewriting, DataFrame]:
        statement = self._statement = Rewriting(sql)
        statement.recognise_all(self)
        return statement, self._frame(statement.sql(self.dialect))

    def describe(self, query: str) -> list[tuple[str, ColumnType | None, str]]:
        schema = self._frame(query).schema
        return [(field.name, plan_type(field.dataType), field.dataType.simpleString()) for field in schema.fields]

    def recognise(self, query: str, recognition: Recognition, table: str) -> None:
        frame = self._frame(query)
        if frame.isStreaming:
            if any(name in query for name in self._streamed):
                raise RuleError(
                    f"{recognition.place}: a stream's matches cannot be matched again in one query; write the inner "
                    "ones to a table, and read that as a stream"
                )
            recognise_stream(frame, recognition, self._lateness, self._buckets).createOrReplaceTempView(table)
            self._streamed.append(table)
            return
        partition = [quoted(column.name) for column in recognition.partition]
        keys = [
            f"{quoted(column.name)}{' DESC' * key.descending} NULLS {'FIRST' if key.nulls_first else 'LAST'}"
            for column, key in recognition.order
        ]
        by = f"PARTITION BY {', '.join(partition)} " if partition else ""
        placed = self._frame(
            f"SELECT *, row_number() OVER ({by}ORDER BY {', '.join([*keys, _ARRIVAL])}) AS {_PLACE} "
            f"FROM (SELECT *, monotonically_increasing_id() AS {_ARRIVAL} FROM ({query}))"
        )
        schema = output_types(recognition, placed.schema)
        grouped = placed.groupBy(*partition)
        matched = grouped.applyInArrow(_one_partition(recognition, schema, self._steps_max), schema)
        matched.createOrReplaceTempView(table)

    def _frame(self, sql: str) -> DataFrame:
        from pyspark.errors import PySparkException

        try:
            frame = self._spark.sql(sql)
            frame.schema  # noqa: B018  (analysed now, so that a mistake is reported now)
        except PySparkException as error:
            raise RuleError(self._sentence(error)) from None
        return frame

    def _sentence(self, error: Any) -> str:
        text = line_of(error)
        parameters = (error.getMessageParameters() or {}) if hasattr(error, "getMessageParameters") else {}
        names = {part.strip("`").lower() for value in parameters.values() for part in str(value).split(".")}
        place = self._statement.place_of(names) if self._statement is not None else None
        return f"{place}: {text}" if place else text


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    """All rows of an answer, in order; a mistake that shows only now is still one sentence."""
    from pyspark.errors import PySparkException

    try:
        rows: list[dict[str, Any]] = frame.toArrow().to_pylist()
    except PySparkException as error:
        raise RuleError(sentence_of(error)) from None
    return rows


def _one_partition(
    recognition: Recognition, schema: StructType, steps_max: int | None
) -> Callable[[pa.Table], pa.Table]:
    def run(table: pa.Table) -> pa.Table:
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema

        ordered = table.sort_by(_PLACE)
        ordered = ordered.append_column(PARTITION, pa.repeat(0, ordered.num_rows))
        partitions = partitions_of(recognition, ordered)
        outputs = outputs_of(recognition.batch_plan(), partitions, recognition.place, attempts_max=steps_max)
        made = output_table(recognition, ordered, outputs)
        return made.cast(to_arrow_schema(schema, timezone="UTC"))  # whatever the session's zone is

    return run


def plan_type(kind: DataType) -> ColumnType | None:
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_type

    try:
        return column_type(to_arrow_type(kind, timezone="UTC"))
    except PySparkException:  # what Arrow cannot carry can be passed through at best
        return None
