"""What the Spark engine does with much: outputs that tasks write and a driver seals, and a long history in one bucket.

`seal.outputs_per_s`: two processes write an interval's outputs as parts, as two tasks do, and this one numbers their
times and seals the segment. The times of outputs differ, as with a clock of microseconds; `seal.shared_times` is the
same where ten outputs share each time. `backfill.floor_ratio`: a history in one bucket, on two cores, over what Spark
takes to read the same columns and to repartition them by key.
"""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa

from unerring.log import seal_interval
from unerring.model import TIME_MAX, schema_of
from unerring.pipeline import Level, SparkConfig, answers, detect_batch, feeding, levels_of, output_chains, start
from unerring.rules import W1, Typed

SCHEMA = schema_of(Typed)
TASKS = 2
PER_TASK = 2_000_000
EVENTS = 8_000_000
ROUNDS = 3


def run(quick: bool = False) -> Iterator[dict[str, Any]]:
    folder = Path(tempfile.mkdtemp(prefix="unerring-scale-"))
    try:
        count = 30_000 if quick else PER_TASK
        rate = _outputs_per_s(folder / "own", count, shared=False)
        yield _figure("seal.outputs_per_s", rate, "outputs/s", 10e6, most=False)
        rate = _outputs_per_s(folder / "shared", count, shared=True)
        yield _figure("seal.shared_times.outputs_per_s", rate, "outputs/s")
        ratio = _backfill_ratio(folder, 200_000 if quick else EVENTS)
        yield _figure("backfill.floor_ratio", ratio, "ratio", 1.5)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _outputs_per_s(folder: Path, count: int, shared: bool) -> float:
    """The best of some rounds, each an interval with so many outputs from every task."""
    [level] = levels_of((W1.plan,), (SCHEMA,), str(folder), TASKS)
    chain = output_chains(level)[W1.plan.output.name]
    best, from_us = 0.0, 0
    with ProcessPoolExecutor(TASKS, mp_context=get_context("fork")) as pool:
        for _ in range(ROUNDS):
            tables = [_outputs(level, task, count, from_us, shared) for task in range(TASKS)]
            through_us = max(table.column("time")[-1].as_py() for table in tables)
            written = list(pool.map(_staged, [(level, table, from_us, through_us) for table in tables]))
            began = time.perf_counter()
            outputs = answers.outputs_of(chain, [data for data, _ in written], from_us, through_us)
            added = seal_interval(chain, outputs, through_us, "bench")
            took = time.perf_counter() - began + max(seconds for _, seconds in written)
            best, from_us = max(best, added / took), through_us
    return best


def _outputs(level: Level, task: int, count: int, from_us: int, shared: bool) -> pa.Table:
    """Outputs of one partition, as its rules stage them."""
    rng = np.random.default_rng(task)
    keys = rng.integers(0, 100_000, 3 * count * TASKS)
    keys = keys[level.spread.of_columns([pa.array(keys)], len(keys)) == task][:count]
    step = np.arange(count) // (10 // TASKS) if shared else np.cumsum(rng.integers(1, 9, count))
    times = from_us + 1 + (step if shared else step * TASKS + task)
    plan = level.plans[0]
    wanted = feeding.staged_schema(plan, plan.output)
    zeros = np.zeros(count, np.int64)
    known = {"time": times, "_rank": zeros, "_ordinal": np.arange(count) if shared else zeros, "_index": zeros}
    columns = [
        pa.array(known.get(field.name, keys if field.name in ("_key0", "key") else times)).cast(field.type)
        for field in wanted
    ]
    return pa.Table.from_arrays(columns, schema=wanted)


def _staged(task: tuple[Level, pa.Table, int, int]) -> tuple[bytes, float]:
    level, table, from_us, through_us = task
    began = time.perf_counter()
    return answers.stage(level, level.outputs[0].name, table, from_us, through_us), time.perf_counter() - began


def _backfill_ratio(folder: Path, events: int) -> float:
    pipeline = _pipeline()
    pipeline.BUCKETS = 1
    spark = start(SparkConfig(master="local[2]", memory="2g", log=str(folder / "spark.log")), "bench")
    best: dict[str, float] = {}
    try:
        pipeline.write_events(folder / "log", events)
        for number in range(ROUNDS):
            for kind in ("floor", "batch"):
                level = pipeline._level(folder, "W1", f"{kind}-{number}")
                began = time.perf_counter()
                if kind == "floor":
                    pipeline._floor(spark, level)
                else:
                    detect_batch(spark, level)
                best[kind] = min(best.get(kind, TIME_MAX), time.perf_counter() - began)
    finally:
        spark.stop()
    return best["batch"] / best["floor"]


def _pipeline() -> ModuleType:
    """The events, the level and the floor of the pipeline's benchmark."""
    spec = importlib.util.spec_from_file_location("bench_pipeline_parts", Path(__file__).parent / "pipeline.py")
    if spec is None or spec.loader is None:
        raise FileNotFoundError("bench/pipeline.py cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _figure(name: str, value: float, unit: str, goal: float | None = None, *, most: bool = True) -> dict[str, Any]:
    met = None if goal is None else value <= goal if most else value >= goal
    said = None if goal is None else f"{'≤' if most else '≥'} {goal:g}"
    return {"bench": "scale", "figure": name, "value": value, "unit": unit, "goal": said, "met": met}
