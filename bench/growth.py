"""How the cost grows with events, keys, rules, levels and replicas: W1 streaming on Spark, and live for replicas.

Each figure on Spark is events a second over the whole query, its start included; `few.s` is a query over a few events.
The levels are rules that pass every event on, each on the output of the one before. `f` is the processor time of an
event in the live engine, all replicas together. `….over_linear`: the cost at the end of an axis over what it would be
if it had grown in proportion from its beginning: 1 is linear, less is better. For keys, the cost of an event with
the most over that with a thousand. There is no axis of shards: a live rule runs in one process of each replica.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from unerring.log import EventLog, with_origin
from unerring.model import schema_of
from unerring.pipeline import Bounds, Level, SparkConfig, detect_available, levels_of, start
from unerring.rules import W1, W2, W3, Plan, Typed, last, rule, step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = schema_of(Typed)
BUCKETS = 2
PER_SEGMENT, PER_BATCH = 1_000_000, 4_000_000
FEW = 2_000
RULES = ((W1.plan,), (W1.plan, W2.plan), (W1.plan, W2.plan, W3.plan))
LINEAR = 1.2
"""What is above 1 by no more may be the machine's mood."""


def run(quick: bool = False) -> Iterator[dict[str, Any]]:
    scale = 100 if quick else 1
    sizes = [2_000_000 // scale, 8_000_000 // scale, 32_000_000 // scale]
    usual = sizes[1]
    with tempfile.TemporaryDirectory(prefix="unerring-growth-") as name:
        folder = Path(name)
        spark = start(SparkConfig(master="local[2]", memory="1g", log=str(folder / "spark.log")), "growth")
        try:
            for plans in ((W1.plan,), (W2.plan,), (W3.plan,)):  # Java compiles what it runs for the first time.
                _timed(spark, _levels(folder, usual, 1000, plans))
            yield _figure("few.s", _timed(spark, _levels(folder, FEW, 1000, (W1.plan,))), "s")
            yield from _axis("events", {n: _timed(spark, _levels(folder, n, 1000, (W1.plan,))) for n in sizes}, sizes)
            keys = [10, 1000, 10_000, 100_000] if quick else [10, 1000, 100_000, 1_000_000, 10_000_000]
            took = {n: _timed(spark, _levels(folder, usual, n, (W1.plan,))) for n in keys}
            yield from _axis("keys", took, [usual] * len(keys), proportional=False)
            ruled = {len(plans): _timed(spark, _levels(folder, usual, 1000, plans)) for plans in RULES}
            yield from _axis("rules", ruled, [usual] * len(ruled))
            fewer = usual // 4
            tall = {n: _timed(spark, _levels(folder, fewer, 1000, _passing(n))) for n in (1, 2, 3)}
            yield from _axis("levels", tall, [fewer] * len(tall))
        finally:
            spark.stop()
        yield from _replicas(folder, quick)


def _axis(
    name: str, took_s: dict[int, float], events: list[int], proportional: bool = True
) -> Iterator[dict[str, Any]]:
    """A curve, and how its end compares with its beginning."""
    for (place, seconds), count in zip(took_s.items(), events, strict=True):
        yield _figure(f"{name}.{place}", count / seconds)
    first, last = (1000, max(took_s)) if not proportional else (min(took_s), max(took_s))
    growth = took_s[last] / took_s[first] / (last / first if proportional else 1)
    yield _figure(f"{name}.over_linear", growth, "x", LINEAR)


def _replicas(folder: Path, quick: bool) -> Iterator[dict[str, Any]]:
    """Live: f + 1 replicas of W1, as the benchmark of correlation runs them."""
    correlation = _correlation()
    drawn = correlation.workloads.columns(20_000) if quick else correlation.workloads.columns().head(300_000)
    expected = correlation._expected(drawn)
    costs = {}
    for f in (0, 1, 2):
        data = folder / f"live-{f}"
        data.mkdir()
        costs[f] = asyncio.run(correlation._load(data, f, drawn, expected)).cpu_us_per_event
        yield _figure(f"f.{f}", costs[f], "µs")
    yield _figure("f.over_linear", costs[2] / costs[0] / 3, "x", LINEAR)


def _correlation() -> ModuleType:
    sys.path.insert(0, str(Path(__file__).parent))
    import correlation

    return correlation


def _passing(levels: int) -> tuple[Plan, ...]:
    """A rule for each level: it passes on all that the one below it does."""
    passing: list[Any] = []
    for number in range(1, levels + 1):
        a = step("a", passing[-1] if passing else Typed)
        passing.append(rule(f"Level{number}").pattern(a).emit(v=last(a).v))
    return tuple(one.plan for one in passing)


def _timed(spark: SparkSession, levels: tuple[Level, ...]) -> float:
    began = time.perf_counter()
    for level in levels:
        detect_available(spark, level, Bounds(rows_per_batch=PER_BATCH))
    return time.perf_counter() - began


def _levels(folder: Path, events: int, keys: int, plans: tuple[Plan, ...]) -> tuple[Level, ...]:
    source = folder / f"log-{events}-{keys}"
    if not source.exists():
        _write(source, events, keys)
    data = folder / f"run-{len(list(folder.iterdir()))}"
    (data / "log").mkdir(parents=True)
    (data / "log" / SCHEMA.name).symlink_to(source / SCHEMA.name)
    return levels_of(plans, (SCHEMA,), str(data), BUCKETS)


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


def _figure(name: str, value: float, unit: str = "events/s", goal: float | None = None) -> dict[str, Any]:
    met = None if goal is None else value <= goal
    return {"bench": "growth", "figure": name, "value": value, "unit": unit, "goal": goal, "met": met}
