"""How the pipeline's throughput grows with events, keys and rules: W1 streaming, everything else as in the race.

Each figure is events a second over the whole query, its start included; `few.s` is a query over a few events.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from unerring.log import EventLog, with_origin
from unerring.model import schema_of
from unerring.pipeline import Bounds, Level, SparkConfig, detect_available, levels_of, start
from unerring.rules import W1, W2, W3, Plan, Typed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = schema_of(Typed)
BUCKETS = 2
PER_SEGMENT, PER_BATCH = 1_000_000, 4_000_000
FEW = 2_000


def run(quick: bool = False) -> Iterator[dict[str, Any]]:
    scale = 100 if quick else 1
    sizes = [2_000_000 // scale, 8_000_000 // scale, 32_000_000 // scale]
    usual = sizes[1]
    with tempfile.TemporaryDirectory(prefix="unerring-growth-") as name:
        folder = Path(name)
        spark = start(SparkConfig(master="local[2]", memory="1g", log=str(folder / "spark.log")), "growth")
        try:
            for plans in ((W1.plan,), (W2.plan,), (W3.plan,)):  # Java compiles what it runs for the first time.
                _timed(spark, _level(folder, usual, 1000, plans))
            yield _figure("few.s", _timed(spark, _level(folder, FEW, 1000, (W1.plan,))), "s")
            for events in sizes:
                yield _figure(f"events.{events}", _rate(spark, folder, events, 1000, (W1.plan,)))
            for keys in (10, 1000, 100_000, 1_000_000 // scale):
                yield _figure(f"keys.{keys}", _rate(spark, folder, usual, keys, (W1.plan,)))
            for plans in ((W1.plan,), (W1.plan, W2.plan), (W1.plan, W2.plan, W3.plan)):
                yield _figure(f"rules.{len(plans)}", _rate(spark, folder, usual, 1000, plans))
        finally:
            spark.stop()


def _rate(spark: SparkSession, folder: Path, events: int, keys: int, plans: tuple[Plan, ...]) -> float:
    return events / _timed(spark, _level(folder, events, keys, plans))


def _timed(spark: SparkSession, level: Level) -> float:
    began = time.perf_counter()
    detect_available(spark, level, Bounds(rows_per_batch=PER_BATCH))
    return time.perf_counter() - began


def _level(folder: Path, events: int, keys: int, plans: tuple[Plan, ...]) -> Level:
    source = folder / f"log-{events}-{keys}"
    if not source.exists():
        _write(source, events, keys)
    data = folder / f"run-{len(list(folder.iterdir()))}"
    (data / "log").mkdir(parents=True)
    (data / "log" / SCHEMA.name).symlink_to(source / SCHEMA.name)
    [level] = levels_of(plans, (SCHEMA,), str(data), BUCKETS)
    return level


def _write(log: Path, events: int, keys: int) -> None:
    rng = np.random.default_rng(7)
    chain = EventLog(log).create(SCHEMA, BUCKETS)
    from_us = 0
    for first in range(0, events, PER_SEGMENT):
        count = min(PER_SEGMENT, events - first)
        times = from_us + np.cumsum(rng.integers(1, 5, count)) * 1000
        columns = {"time": times, "ordinal": np.zeros(count, np.int64), "key": rng.integers(0, keys, count)}
        kinds = pa.array(rng.choice(["A", "B", "C", "D"], count))
        chain.seal(int(times[-1]), with_origin(pa.table({**columns, "type": kinds, "v": rng.random(count)}), SCHEMA))
        from_us = int(times[-1])


def _figure(name: str, value: float, unit: str = "events/s") -> dict[str, Any]:
    return {"bench": "growth", "figure": name, "value": value, "unit": unit, "goal": None, "met": None}
