"""Learned costs: what actions of processes took, from the histories in the event log, on Spark.

Quantiles are weighted: an execution counts half as much for each half-life that has passed since, so that a service
that became slow is believed within hours, and an outlier of last month is forgotten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from unerring.model import CallerError
from unerring.processes import STREAM, Cost

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
    newest = F.max("ended_us").over(_all())
    weighed = actions.withColumn("weight", F.pow(F.lit(0.5), (newest - F.col("ended_us")) / (half_life_s * 1e6)))
    counts = weighed.groupBy("process", "action").agg(F.count("*").alias("seen"), F.count("undo_us").alias("undone"))
    costs = counts
    for column, of, q in (("p50_us", "took_us", 0.5), ("p95_us", "took_us", 0.95), ("undo_p50_us", "undo_us", 0.5)):
        costs = costs.join(_quantile(weighed, of, q, column), ["process", "action"], "left")
    rows = costs.orderBy("process", "action").collect()
    return [Cost(**{name: _whole(row[name]) for name in Cost.__struct_fields__}) for row in rows]


def _all() -> Any:
    from pyspark.sql import Window

    return Window.partitionBy()


def _quantile(weighed: DataFrame, of: str, q: float, called: str) -> DataFrame:
    """The least value that has at least a share q of the weight at or below it."""
    from pyspark.sql import Window, functions as F

    action = Window.partitionBy("process", "action")
    upto = action.orderBy(of, "iid").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    known = weighed.where(F.col(of).isNotNull())
    partitions = known.withColumn("below", F.sum("weight").over(upto)).withColumn("total", F.sum("weight").over(action))
    reached = partitions.where(F.col("below") >= F.col("total") * q * (1 - 1e-9))
    return reached.groupBy("process", "action").agg(F.min(of).alias(called))


def _whole(value: Any) -> Any:
    return 0 if value is None else value
