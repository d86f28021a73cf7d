"""Intake on Spark, as a ratio to a floor in the same run: the figures `spark.*` of `unerring bench intake`.

The floor is Spark's own way to rows by key and in order: read the same files, repartition by key, sort within
partitions by time, write Parquet. Intake reads the same files, checks every row, writes runs and seals them. Both take
turns, and each counts with its best round, since other work on the machine only ever makes a round slower.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parent))

import workloads
from unerring.log import EventLog
from unerring.model import TIME_MAX, schema_of
from unerring.pipeline import SparkConfig, ingest, spark_session
from unerring.rules import Typed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = schema_of(Typed)
FILES = 8
BUCKETS = 4
COLUMNS = "at timestamp, key bigint, type string, v double"


def spark_figures(quick: bool = False) -> Iterator[dict[str, Any]]:
    rows = 40_000 if quick else 8_000_000
    rounds = 1 if quick else 3
    with tempfile.TemporaryDirectory(prefix="unerring-intake-") as name:
        folder = Path(name)
        _write(folder / "events", rows)
        config = SparkConfig(master="local[2]", memory="2g", log=str(folder / "spark.log"))
        with spark_session(config, "bench intake") as spark:
            for kind, floor, own in (("batch", _floor, _batch), ("stream", _floor_stream, _stream)):
                measured = _in_turns(spark, folder, floor, own, rows, rounds)
                yield _figure(f"spark.{kind}.floor_ratio", measured["wall"], "ratio", 1.2 if kind == "batch" else 1.5)
                yield _figure(f"spark.{kind}.cpu_ratio", measured["cpu"], "ratio")
                yield _figure(f"spark.{kind}.rows_per_s", rows / measured["own_s"], "rows/s")


Work = Callable[["SparkSession", Path, Path], None]


def _in_turns(spark: SparkSession, folder: Path, floor: Work, own: Work, rows: int, rounds: int) -> dict[str, float]:
    taken: dict[str, list[tuple[float, float]]] = {"floor": [], "own": []}
    for number in range(rounds + 1):  # the first one is for the JVM's compilers
        for side, work in (("floor", floor), ("own", own)):
            out = folder / f"{side}-out"
            before, began = _cpu_s(), time.perf_counter()
            work(spark, folder / "events", out)
            if number or rounds == 1:
                taken[side].append((time.perf_counter() - began, _cpu_s() - before))
            if side == "own":
                _check(out, rows)
            shutil.rmtree(out)
    best = {side: [min(column) for column in zip(*times, strict=True)] for side, times in taken.items()}
    return {
        "wall": best["own"][0] / best["floor"][0],
        "cpu": best["own"][1] / max(best["floor"][1], 1e-9),
        "own_s": best["own"][0],
    }


def _write(folder: Path, rows: int) -> None:
    folder.mkdir()
    drawn = workloads.columns(rows)
    for number, part in enumerate(np.array_split(np.arange(rows), FILES)):
        some = drawn.part(int(part[0]), int(part[-1]) + 1)
        table = pa.table(
            {
                "at": pa.array(some.time_us).cast(pa.timestamp("us", tz="UTC")),
                "key": some.key,
                "type": pa.array(np.array(workloads.TYPES)[some.code]),
                "v": some.v,
            }
        )
        pq.write_table(table, folder / f"{number}.parquet")
        os.utime(folder / f"{number}.parquet", (number, number))  # Spark takes the oldest first


def _floor(spark: SparkSession, events: Path, out: Path) -> None:
    frame = spark.read.schema(COLUMNS).parquet(str(events))
    frame.repartition(BUCKETS, "key").sortWithinPartitions("at").write.parquet(str(out))


def _batch(spark: SparkSession, events: Path, out: Path) -> None:
    frame = spark.read.schema(COLUMNS).parquet(str(events))
    ingest(frame, stream=SCHEMA, time="at", data=out, buckets=BUCKETS)


def _floor_stream(spark: SparkSession, events: Path, out: Path) -> None:
    def write(batch: Any, number: int) -> None:
        batch.repartition(BUCKETS, "key").sortWithinPartitions("at").write.mode("append").parquet(str(out / "rows"))

    frame = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(events))
    query = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(out / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()


def _stream(spark: SparkSession, events: Path, out: Path) -> None:
    frame = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(events))
    options: dict[str, Any] = {"stream": SCHEMA, "time": "at", "data": out}
    ingest(frame, lateness="1s", once=True, buckets=BUCKETS, **options).awaitTermination()


def _check(out: Path, rows: int) -> None:
    """Everything is there, but for what may still be late."""
    chain = EventLog(out / "log").chain(SCHEMA.name)
    counted = chain.count(chain.base.from_us, TIME_MAX)
    if not rows - 2000 <= counted <= rows:
        raise SystemExit(f"{counted} of {rows} rows are in the stream")


def _cpu_s() -> float:
    """Processor time of this process, the JVM and the workers."""
    own = psutil.Process()
    total = 0.0
    for process in [own, *own.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


def _figure(name: str, value: float, unit: str, goal: float | None = None) -> dict[str, Any]:
    met = None if goal is None else value <= goal
    return {"bench": "intake", "figure": name, "value": round(value, 4), "unit": unit, "goal": goal, "met": met}
