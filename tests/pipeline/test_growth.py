"""A stream that grew: Spark's reading, Spark's rules and the rules of the live engine see NULL in what was before."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from unerring import App, fn, last, rule, schema_of, step, stream
from unerring.cli import main
from unerring.log import EventLog, events_of, with_origin
from unerring.matching.oracle import run_tree
from unerring.model import TIME_MAX
from unerring.pipeline import detect_batch, ingest, levels_of
from unerring.rules.tree import ranks_of

from .worlds import sealed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@stream(key="machine", name="Reading")
class Old:
    machine: str
    celsius: int


@stream(key="machine", name="Reading", added="humidity")
class Reading:
    machine: str
    celsius: int
    humidity: float | None = None


def over(kind: Any) -> Any:
    hot = step("hot", kind, kind.celsius > 80)
    return rule("hot").pattern(hot).emit(celsius=last(hot).celsius)


damp = step("damp", Reading, fn.coalesce(Reading.humidity, 0.0) > 0.5)
dry = step("dry", Reading, fn.is_null(Reading.humidity))
wet = rule("wet").pattern(dry.then(damp).within(seconds=10)).emit(celsius=last(damp).celsius)
app = App("plant", rules=[wet])


def fill(data: Path) -> EventLog:
    log = EventLog(data / "log")
    for kind, first in ((Old, 10), (Reading, 20)):
        chain = log.create(schema_of(kind), 2)
        for time in range(first, first + 5):
            values: dict[str, Any] = {"machine": pa.array(["m"]), "celsius": pa.array([70 + time])}
            if kind is Reading:
                values["humidity"] = pa.array([time / 40])
            table = pa.table({"time": pa.array([time]), "ordinal": pa.array([0]), **values})
            chain.seal(time, with_origin(table, chain.schema))
    return log


def test_a_rule_that_does_not_read_the_new_column_stays_the_same_rule() -> None:
    assert over(Old).plan.version == over(Reading).plan.version
    assert wet.plan.version != over(Reading).plan.version


def test_both_engines_see_null_before(spark: SparkSession, tmp_path: Path) -> None:
    log = fill(tmp_path)
    read = spark.read.format("unerring").option("stream", "Reading").load(str(tmp_path)).orderBy("time").collect()
    assert [row.humidity for row in read] == [None] * 5 + [time / 40 for time in range(20, 25)]
    schema = schema_of(Reading)
    plans = (wet.plan,)
    [level] = levels_of(plans, (schema,), str(tmp_path), 2)
    detect_batch(spark, level)
    events = list(events_of(log.chain("Reading").read(0, TIME_MAX), schema))
    wanted = run_tree(plans, events, ranks_of(plans, (schema,)), 24)
    assert [event.payload["celsius"] for event in wanted] == [91]
    assert sealed(tmp_path, "wet") == wanted


def test_a_narrower_column_of_a_source_is_read_into_the_stream(spark: SparkSession, tmp_path: Path) -> None:
    """A source's int and float are the stream's 64 bits from the beginning: when they grow, nothing does."""
    for number, (whole, real) in enumerate((("int", "float"), ("bigint", "double"))):
        frame = spark.range(2).selectExpr(
            f"timestamp_seconds(id + {number * 10}) AS at",
            f"CAST(id AS {whole}) AS celsius",
            f"CAST(0.5 AS {real}) AS humidity",
            "'m' AS machine",
        )
        done = ingest(frame, stream=Reading, time="at", data=tmp_path, source=f"s{number}")
        assert done.added == 2
    assert [event.payload["celsius"] for event in sealed(tmp_path, "Reading")] == [0, 1, 0, 1]


def test_explain_says_since_when(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    fill(tmp_path)
    with pytest.raises(SystemExit):
        main(["explain", f"{__name__}:wet", "--data", str(tmp_path)])
    said = capfd.readouterr().out
    assert "Reading.humidity since 1970-01-01T00:00:00.000014Z; events up to then have NULL" in said
