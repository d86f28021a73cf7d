"""`unerring.match` and `unerring.detect` for people with a Spark session and nothing else: batch, and streams that are
stopped and started again in the middle."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

import unerring
from unerring.matching.oracle import run
from unerring.model import CallerError, Event, RuleError, Stamp
from unerring.pipeline.session import own_sentence
from unerring.pipeline.sink import LogSink

from .worlds import OTHER, TYPED, missing, pair, random_events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PAIRS = pair("Pairs", TYPED, "A", "B", 40)
MISSES = missing("Misses", TYPED, "A", "B", 15)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
SQL = """
    SELECT key, began, ended, price FROM ticks MATCH_RECOGNIZE (
        PARTITION BY key ORDER BY time
        MEASURES FIRST(time) AS began, LAST(time) AS ended, LAST(B.v) AS price, 1 AS one
        PATTERN (A C* B) WITHIN INTERVAL '30' SECOND
        DEFINE A AS type = 'A', C AS type IN ('C', 'D'), B AS type = 'B')"""


@pytest.fixture
def small(any_spark: SparkSession) -> Iterator[SparkSession]:
    any_spark.conf.set("spark.sql.shuffle.partitions", "2")
    yield any_spark
    any_spark.conf.unset("spark.sql.shuffle.partitions")


def rows_of(events: list[Event]) -> list[dict[str, Any]]:
    return [{"time": event.stamp.time, **event.payload} for event in events]


def frame_of(spark: SparkSession, events: list[Event]) -> DataFrame:
    rows = [(row["time"], row["key"], row["type"], row["v"]) for row in rows_of(events)]
    frame = spark.createDataFrame(rows, "us long, key long, type string, v double")
    return frame.selectExpr("timestamp_micros(us) AS time", "key", "type", "v")


def microseconds(moment: dt.datetime) -> int:
    return (moment.astimezone(dt.UTC) - EPOCH) // dt.timedelta(microseconds=1)


def test_a_rule_finds_in_a_dataframe_what_it_finds_in_a_log(small: SparkSession) -> None:
    events = random_events(4, 150, 6)
    found = unerring.detect(frame_of(small, events), PAIRS).orderBy("time", "ordinal").collect()
    told = [(microseconds(row.time), row.ordinal, row.key, microseconds(row.began), row.type) for row in found]
    wanted = run(PAIRS, events, {"Typed": 0})
    assert told == [(*event.stamp, *event.payload.values()) for event in wanted]
    assert wanted


def streaming(spark: SparkSession, folder: Path) -> DataFrame:
    return (
        spark.readStream.schema("time timestamp, key long, type string, v double")
        .option("maxFilesPerTrigger", 1)
        .option("timestampFormat", "yyyy-MM-dd'T'HH:mm:ss.SSSSSSX")
        .json(str(folder))
    )


def add(folder: Path, number: int, rows: list[dict[str, Any]]) -> None:
    lines = []
    for row in rows:
        moment = EPOCH + dt.timedelta(microseconds=row["time"])
        lines.append(json.dumps({**row, "time": moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")}))
    (folder / f".{number}").write_text("\n".join(lines))
    (folder / f".{number}").rename(folder / f"{number}.json")


def drain(frame: DataFrame, out: Path) -> None:
    """Run what is there now, to the end, going on from the checkpoint."""
    writer = frame.writeStream.option("checkpointLocation", str(out / "checkpoint")).trigger(availableNow=True)
    writer.format("parquet").start(str(out / "found")).awaitTermination()


@pytest.mark.long_over_connect
def test_a_stream_gives_what_is_final_and_goes_on_after_a_restart(small: SparkSession, tmp_path: Path) -> None:
    """Rows come late by up to two seconds; the query is stopped in the middle; a quiet end brings absences out."""
    for name in ("in", "sql", "rule"):
        (tmp_path / name).mkdir()
    scaled = [Event("Typed", Stamp(e.stamp.time * 200_000), e.key, e.payload) for e in random_events(4, 120, 6)]
    rows = rows_of(scaled)
    late = sorted(rows, key=lambda row: row["time"] + (int(row["v"] * 1000) % 3) * 1_000_000)
    pieces = [late[:40], late[40:80], late[80:]]
    end = {"key": 99, "type": "D", "v": 0.0}
    quiet = rows[-1]["time"] + 60_000_000
    absence = missing("Misses", TYPED, "A", "B", 3_000_000)

    def queries() -> tuple[DataFrame, DataFrame]:
        streaming(small, tmp_path / "in").createOrReplaceTempView("ticks")
        return (
            unerring.match(small, SQL, lateness="2 seconds", buckets=2),
            unerring.detect(streaming(small, tmp_path / "in"), absence, lateness="2 seconds", buckets=2),
        )

    add(tmp_path / "in", 0, pieces[0])
    add(tmp_path / "in", 1, pieces[1])
    for frame, name in zip(queries(), ("sql", "rule"), strict=True):
        drain(frame, tmp_path / name)
    add(tmp_path / "in", 2, pieces[2])
    add(tmp_path / "in", 3, [{"time": quiet, **end}])
    add(tmp_path / "in", 4, [{"time": quiet + 1, **end}])
    for frame, name in zip(queries(), ("sql", "rule"), strict=True):
        drain(frame, tmp_path / name)

    frame_of(small, scaled).createOrReplaceTempView("ticks")
    wanted = unerring.match(small, SQL).collect()
    found = small.read.parquet(str(tmp_path / "sql" / "found")).collect()
    assert sorted(map(tuple, found)) == sorted(map(tuple, wanted))
    assert wanted

    perfect = run(absence, scaled, {"Typed": 0}, quiet - 2_000_000)
    told = small.read.parquet(str(tmp_path / "rule" / "found")).collect()
    assert sorted((microseconds(row.time), row.key) for row in told) == sorted(
        (event.stamp.time, event.key[0]) for event in perfect
    )
    assert perfect


def test_what_a_stream_cannot_do_is_said_in_a_sentence(small: SparkSession, tmp_path: Path) -> None:
    stream = streaming(small, tmp_path)
    stream.createOrReplaceTempView("ticks")
    stream.selectExpr("CAST(time AS string) AS time", "key", "type", "v").createOrReplaceTempView("texts")

    def refused(said: str, sql: str, **options: Any) -> None:
        with pytest.raises(RuleError, match=said) as caught:
            unerring.match(small, sql, **options)
        assert "\n" not in str(caught.value)
        assert "stacktrace" not in str(caught.value)

    clause = "PATTERN (A B) WITHIN INTERVAL '1' SECOND"
    refused("has no watermark on time", f"SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY time {clause})")
    late = {"lateness": "1 second"}
    refused("add ORDER BY its event time", "SELECT * FROM ticks MATCH_RECOGNIZE (PATTERN (A B))", **late)
    refused("ascending; v is double", "SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY v PATTERN (A B))", **late)
    refused("in descending order", "SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY time DESC PATTERN (A B))", **late)
    refused("time is string", "SELECT * FROM texts MATCH_RECOGNIZE (ORDER BY time PATTERN (A B))", **late)
    refused(
        "might never be final",
        "SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY time PATTERN (A+ B) DEFINE B AS v > 1)",
        **late,
    )
    refused("invalid lateness", f"SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY time {clause})", lateness="soon")
    refused(
        "cannot be matched again",
        f"SELECT * FROM (SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY time MEASURES LAST(time) AS z {clause})) "
        f"MATCH_RECOGNIZE (ORDER BY z {clause})",
        **late,
    )


def test_rows_without_a_time_are_not_dropped_without_a_word(small: SparkSession, tmp_path: Path) -> None:
    events = random_events(4, 30, 6)
    frame = frame_of(small, events)
    some = frame.selectExpr("CASE WHEN type != 'C' THEN time END AS time", "key", "type", "v")
    with pytest.raises(PySparkException) as caught:
        unerring.detect(some, PAIRS).collect()
    said = r"rule Pairs: \w+ rows? ha\w+ no time in column 'time', .* leave them out \(where time IS NOT NULL\)"
    assert re.match(said, own_sentence(caught.value) or "")
    assert unerring.detect(some.where("time IS NOT NULL"), PAIRS).count() >= 0

    add(tmp_path, 1, [row for row in rows_of(events) if row["type"] != "C"])
    (tmp_path / "2.json").write_text(json.dumps({"key": 1, "type": "A", "v": 0.5}))
    with pytest.raises(PySparkException) as caught:
        drain(unerring.detect(streaming(small, tmp_path), PAIRS, lateness="1 second"), tmp_path / ".out")
    assert re.match(said, own_sentence(caught.value) or "")
    with pytest.raises(CallerError, match="writing stream Out: 1 of a micro-batch's rows have no `time`; give them"):
        LogSink(str(tmp_path), "Out", frame.schema, (), 1, "here").write(
            iter(some.where("time IS NULL").limit(1).toArrow().to_batches())
        )


def test_a_dataframe_that_does_not_fit_is_refused(small: SparkSession, tmp_path: Path) -> None:
    frame = frame_of(small, random_events(1, 3, 2))

    def refused(said: str, df: DataFrame, rule: Any = PAIRS, **options: Any) -> None:
        with pytest.raises(CallerError, match=said):
            unerring.detect(df, rule, **options)

    refused("no column 'at' for the event time", frame, time="at")
    refused("event time key is bigint, not a TIMESTAMP", frame, time="key")
    refused("has a column 'v', which the DataFrame lacks", frame.drop("v"))
    refused("column 'key' is string, but stream Typed declares it int", frame.withColumn("key", frame.type))
    refused("has no watermark on time", streaming(small, tmp_path))
    both = pair("Both", OTHER, "A", "B", 1)
    joined = type(both)(**{**_fields(both), "inputs": (*both.inputs, *PAIRS.inputs)})
    refused("a DataFrame is one stream", frame, joined)


def _fields(plan: Any) -> dict[str, Any]:
    return {name: getattr(plan, name) for name in plan.__dataclass_fields__ if not name.startswith("_")}
