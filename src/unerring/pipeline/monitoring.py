"""What Spark's own monitoring has of our work: what a job is for, and how far the levels of a run are.

Gauges go through Spark's `AccumulatorSource`, so that its UI (`/metrics/json`) and every sink of its metrics system has
them. They are set in the driver: resident tasks report nothing to Spark until they end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from unerring.pipeline.connecting import is_connect
from unerring.pipeline.ring import name_ring

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUP: Final = "spark.jobGroup.id"
DESCRIPTION: Final = "spark.job.description"
GAUGES: Final = ("rows_read", "rows_out", "state_keys", "state_bytes", "watermark_us", "lag_us")
"""Of each level: rows since the start, what its state is now, and in event time where it is and how far the log of its
inputs goes beyond that."""
_SOURCE: Final = "org.apache.spark.metrics.source.LongAccumulatorSource$"
_known: dict[tuple[str, str], dict[str, Any]] = {}
"""The accumulators of an application of Spark and a level: Spark knows a name once."""


@contextmanager
def named_jobs(spark: SparkSession, what: str) -> Iterator[None]:
    """Jobs inside have this for their group and description in Spark's UI, where the user has not set them; over Spark
    Connect they have it as a tag."""
    if is_connect(spark):
        tag = what.replace(",", " ")
        spark.addTag(tag)
        try:
            yield
        finally:
            spark.removeTag(tag)
        return
    name_ring(spark)
    context = spark.sparkContext
    ours = [name for name in (GROUP, DESCRIPTION) if context.getLocalProperty(name) is None]
    for name in ours:
        context.setLocalProperty(name, what)
    try:
        yield
    finally:
        for name in ours:
            context.setLocalProperty(name, None)  # type: ignore[arg-type]


class Gauges:
    """The numbers of a run's levels, by their labels. A client of Spark Connect cannot set those of its server."""

    def __init__(self, spark: SparkSession, labels: Sequence[str]) -> None:
        self._gauges: dict[str, dict[str, Any]] = {}
        if is_connect(spark):
            return
        context: Any = spark.sparkContext
        application = str(context.applicationId)
        fresh: dict[str, Any] = {}
        for label in labels:
            if (application, label) not in _known:
                made = {name: context._jsc.sc().longAccumulator(_name(label, name)) for name in GAUGES}
                _known[application, label] = made
                fresh |= {_name(label, name): accumulator for name, accumulator in made.items()}
        if fresh:
            jvm = context._jvm
            named = jvm.java.util.HashMap()
            for name, accumulator in fresh.items():
                named.put(name, accumulator)
            scala = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(named)
            source = jvm.java.lang.Class.forName(_SOURCE).getField("MODULE$").get(None)
            source.register(context._jsc.sc(), scala)
        self._gauges = {label: _known[application, label] for label in labels}
        for label in labels:
            self.set(label, **dict.fromkeys(GAUGES, 0))

    def set(self, label: str, **values: int) -> None:
        """What a level is at now; each of `GAUGES`."""
        for name, value in values.items():
            if label in self._gauges:
                self._gauges[label][name].setValue(value)


def _name(label: str, name: str) -> str:
    return f"unerring.level-{label}.{name}"
