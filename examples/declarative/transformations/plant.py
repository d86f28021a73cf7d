"""Readings as they come, and the situations in them: a rule is the flow from one table to the other."""

from __future__ import annotations

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

import unerring
from unerring import last, rule, step, stream, time_of

spark = SparkSession.active()


@stream(key="machine")
class Reading:
    machine: str
    celsius: float


hot = step("hot", Reading, Reading.celsius > 80)
hotter = step("hotter", Reading, Reading.celsius > last(hot).celsius)
rising = (
    rule("rising")
    .pattern(hot.then(hotter).within(seconds=10))
    .emit(began=time_of(last(hot)), peak=last(hotter).celsius)
)


def arriving() -> DataFrame:
    return spark.readStream.schema("machine string, at timestamp, celsius double").json("incoming")


@dp.table
def readings() -> DataFrame:
    """Files of JSON lines, each taken once."""
    return arriving()


@dp.materialized_view
def overheating() -> DataFrame:
    """All situations in the readings, made anew with every run."""
    return unerring.detect(spark.read.table("readings"), rising, time="at")


@dp.table
def alarms() -> DataFrame:
    """The situations in what arrives, each once, as soon as no row within the lateness can change it."""
    return unerring.detect(arriving(), rising, time="at", lateness="10 seconds")
