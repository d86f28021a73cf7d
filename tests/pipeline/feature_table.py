"""The feature table of MATCH_RECOGNIZE on Spark: as a batch, and as a stream that is stopped and started again."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import unerring
from tests.sql.sqlrun import recognition_of
from tests.sql.test_features import CASES, Case, table
from tests.sql.test_features_on_streams import BOUNDED, WITHIN, final
from unerring.matching import oracle
from unerring.matching.outputs import Row
from unerring.model import SECOND_US, ColumnType, Event, Stamp
from unerring.pipeline.sql_tables import rows_of

from .test_frames import drain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH = CASES
STREAMS = [
    case for case in (*BOUNDED, *WITHIN) if final(case) and case.select == "*" and "array_agg" not in case.clause
]
"""What a stream can say for good. Arrays cross to a stream's sink as text only and are refused there."""

EPOCH = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def hold_in_batch(spark: SparkSession, case: Case) -> None:
    """The rows worked out by hand, whatever Spark did to their order."""
    rows = [(row["at"], row["x"]) for row in table(case)]
    spark.createDataFrame(rows, "at long, x long").createOrReplaceTempView("t")
    sql = f"SELECT {case.select} FROM t MATCH_RECOGNIZE (ORDER BY at {case.clause})"
    found = [tuple(row.values()) for row in rows_of(unerring.match(spark, sql))]
    assert sorted(found, key=repr) == sorted(case.rows, key=repr), case.what


def hold_on_a_stream(spark: SparkSession, case: Case, folder: Path) -> int:
    """What the stream gives over a restart in its middle is what the oracle calls final at its watermark; how much."""
    for name in ("in", "out"):
        (folder / name).mkdir(parents=True)
    rows = table(case)
    middle, last = len(rows) // 2, rows[-1]["at"]
    _add(folder / "in", 0, rows[:middle])
    drain(_matched(spark, case, folder / "in"), folder / "out")
    _add(folder / "in", 1, rows[middle:])
    # Two rows of a later time: the first moves the watermark, the second makes Spark look at it. Neither is final.
    _add(folder / "in", 2, [{"at": last + 1000, "x": None}])
    _add(folder / "in", 3, [{"at": last + 1001, "x": None}])
    drain(_matched(spark, case, folder / "in"), folder / "out")
    told = spark.read.parquet(str(folder / "out" / "found")).drop("batch").collect()
    found = [tuple(_micros(value) if isinstance(value, dt.datetime) else value for value in row) for row in told]
    wanted = _final(case, _micros(_moment(last + 1000)) - 2 * SECOND_US)
    assert sorted(found, key=repr) == sorted(wanted, key=repr), case.what
    return len(wanted)


SCHEMA = "ts timestamp, at long, x long"


def _statement(case: Case) -> str:
    return f"SELECT {case.select} FROM t MATCH_RECOGNIZE (ORDER BY ts {case.clause})"


def _matched(spark: SparkSession, case: Case, folder: Path) -> DataFrame:
    frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(folder))
    frame.createOrReplaceTempView("t")
    return unerring.match(spark, _statement(case), lateness="2 seconds", buckets=2)


def _final(case: Case, through_us: int) -> list[tuple[Any, ...]]:
    columns = {"ts": ColumnType.TIME, "at": ColumnType.INT, "x": ColumnType.INT}
    plan = replace(recognition_of(_statement(case), **columns).plan, order_by=())
    events = [
        Event("input", Stamp(_micros(_moment(row["at"]))), (), {"ts": _micros(_moment(row["at"])), **row})
        for row in table(case)
    ]
    outputs = oracle.outputs_of(plan, [Row(0, event) for event in events], through_us)
    return [tuple(output.payload.values()) for output in outputs]


def _micros(moment: dt.datetime) -> int:
    return (moment.astimezone(dt.UTC) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


def _moment(at: int) -> dt.datetime:
    return EPOCH + dt.timedelta(seconds=at)


def _add(folder: Path, number: int, rows: list[dict[str, Any]]) -> None:
    lines = [json.dumps({**row, "ts": _moment(row["at"]).strftime("%Y-%m-%dT%H:%M:%SZ")}) for row in rows]
    (folder / f".{number}").write_text("\n".join(lines))
    (folder / f".{number}").rename(folder / f"{number}.json")
