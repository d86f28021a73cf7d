"""Learned costs: what actions of processes took, from the histories in the event log, on Spark.

Quantiles are weighted: an execution counts half as much for each half-life that has passed since, so that a service
that became slow is believed within hours, and an outlier of last month is forgotten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from unerring.model import CallerError
from unerring.processes import STREAM, Cost

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

HALF_LIFE_S: Final = 6 * 3600.0


def learn(spark: SparkSession, address: str, half_life_s: float = HALF_LIFE_S) -> list[Cost]:
    """The cost of each action, by process and action, from the log of a run."""
    from pyspark.sql import functions as F

    from unerring.log import EventLog, join
    from unerring.pipeline.source import UnerringSource

    if half_life_s <= 0:
        raise CallerError(f"the half-life is {half_life_s} s; it must be above 0")
    if EventLog(join(address, "log")).declaration(STREAM) is None:
        raise CallerError(f"{address} has no histories of processes; run `unerring process export` first")
    spark.dataSource.register(UnerringSource)
    actions = spark.read.format("unerring").option("stream", STREAM).load(address)
    newest_us = actions.agg(F.max("ended_us")).collect()[0][0]
    age = (F.lit(newest_us) - F.col("ended_us")) / (half_life_s * 1e6)
    weighed = _ranked(actions.withColumn("weight", F.pow(F.lit(0.5), age)))
    costs = weighed.groupBy("process", "action").agg(
        F.count("*").alias("seen"),
        F.count("undo_us").alias("undone"),
        _quantile("took_us", 0.5).alias("p50_us"),
        _quantile("took_us", 0.95).alias("p95_us"),
        _quantile("undo_us", 0.5).alias("undo_p50_us"),
    )
    rows = costs.orderBy("process", "action").collect()
    return [Cost(**{name: _whole(row[name]) for name in Cost.__struct_fields__}) for row in rows]


def _ranked(weighed: DataFrame) -> DataFrame:
    """With the share of its action's weight that is at or below each row's time, where the time is known."""
    from pyspark.sql import Window, functions as F

    action = Window.partitionBy("process", "action")
    for of in ("took_us", "undo_us"):
        upto = action.orderBy(of, "iid").rowsBetween(Window.unboundedPreceding, Window.currentRow)
        weight = F.when(F.col(of).isNotNull(), F.col("weight"))
        weighed = weighed.withColumn(f"{of}_share", F.sum(weight).over(upto) / F.sum(weight).over(action))
    return weighed


def _quantile(of: str, q: float) -> Column:
    """The least time that has at least a share q of the weight at or below it."""
    from pyspark.sql import functions as F

    return F.min(F.when(F.col(f"{of}_share") >= q * (1 - 1e-9), F.col(of)))


def _whole(value: Any) -> Any:
    return 0 if value is None else value
