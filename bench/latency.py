"""Latency on Spark: published to readable at 5 000 events a second, by resident tasks and in micro-batches, in one run.

A writer seals what it has held for 20 ms. `spark.resident` is one level (W1), `spark.tree` the highest of three levels;
what a situation waits for is its event's segment, the partition that runs it, and the seals up to its own level. The
same events go to micro-batches afterwards. `failover` is the longest time without a seal after kill -9 of a worker.
`cluster` is the first one again with executors in processes of their own (`local-cluster`), which are killed then.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from unerring import last, rule, step
from unerring.log import LogWriter, WriterConfig
from unerring.model import TIME_MAX, Stamp, schema_of
from unerring.pipeline import Level, Pool, Sealed, SparkConfig, detect_stream, levels_of, start
from unerring.rules import W1, Typed

RATE = 5_000
BUCKETS = 2
AGE_US = 20_000
SCHEMA = schema_of(Typed)
MORE = (("spark.deploy.maxExecutorRetries", "-1"),)
"""Executors are killed often here."""


def run(quick: bool = False) -> Iterator[dict[str, Any]]:
    seconds, kills = (3, 1) if quick else (20, 9)
    with _session("local[2]") as (spark, folder):
        yield from _resident(spark, folder, seconds, kills)
        yield from _tree(spark, folder, seconds)
        yield from _micro_batches(spark, folder, seconds)
    with _session("local-cluster[2,1,1024]") as (spark, folder):
        yield from _cluster(spark, folder, seconds, kills)


@contextmanager
def _session(master: str) -> Iterator[tuple[Any, Path]]:
    folder = Path(tempfile.mkdtemp(prefix="unerring-bench-"))
    spark = start(SparkConfig(master=master, memory="1g", log=str(folder / "spark.log"), more=MORE), "bench")
    try:
        yield spark, folder
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


class Published:
    """Events of a stream at a steady rate, with the moment of each; and the moments at which levels were sealed."""

    def __init__(self, level: Level) -> None:
        self.writer = LogWriter(level.log, SCHEMA, WriterConfig(age_us_max=AGE_US), BUCKETS)
        self.at_s: dict[int, float] = {}
        self.sealed: dict[str, list[tuple[int, float]]] = {}
        self._rng = np.random.default_rng(7)

    def hear(self, level: Level, sealed: Sealed) -> None:
        self.sealed.setdefault(level.label, []).append((sealed.through_us, time.perf_counter()))

    def publish(self, seconds: float) -> int:
        """So many seconds of events; the time of the last one."""
        before = len(self.at_s)
        began, pause = time.perf_counter(), threading.Event()
        for number in range(before, before + round(RATE * seconds)):
            due = began + (number - before) / RATE
            while (now := time.perf_counter()) < due:
                self._seal_due(now)
                pause.wait(min(due - now, 0.002))
            event_us = 1_000_000 + number * 1_000_000 // RATE
            key, code, v = self._rng.integers(1000), self._rng.integers(4), self._rng.random()
            payload = {"key": int(key), "type": "ABCD"[int(code)], "v": float(v)}
            self.writer.append("bench", (0, number), Stamp(event_us), payload, int(now * 1e6))
            self.at_s[event_us] = now
            self._seal_due(now)
        self.writer.advance(event_us, int(now * 1e6))  # or the last time might go on
        self.writer.seal()
        return event_us

    def _seal_due(self, now_s: float) -> None:
        if self.writer.due(int(now_s * 1e6)):
            self.writer.seal()

    def reached(self, label: str, time_us: int) -> bool:
        known = self.sealed.get(label)
        return bool(known) and known[-1][0] >= time_us  # type: ignore[index]

    def waits_ms(self, level: Level, stream: str, after_us: int) -> Any:
        """How long each situation took from its event's publication to its seal."""
        times = level.log.chain(stream).read(after_us, TIME_MAX, columns=[]).column("time").to_numpy()
        ends = np.array([through for through, _ in self.sealed[level.label]])
        moments = np.array([moment for _, moment in self.sealed[level.label]])
        published = np.array([self.at_s[t] for t in times.tolist()])
        return 1000 * (moments[np.searchsorted(ends, times)] - published)


def _resident(spark: Any, folder: Path, seconds: int, kills: int) -> Iterator[dict[str, Any]]:
    [level] = levels_of((W1.plan,), (SCHEMA,), str(folder / "resident"), BUCKETS)
    published = Published(level)
    pool = Pool(spark, [level], on_sealed=published.hear)
    pool.start()
    try:
        warm_us = _warm(published, pool, [level])
        end_us = published.publish(seconds)
        _wait(lambda: published.reached("1", end_us), pool)
        waits = published.waits_ms(level, "W1", warm_us)
        yield _figure("spark.resident.p50_ms", float(np.percentile(waits, 50)), "ms", 30)
        yield _figure("spark.resident.p99_ms", float(np.percentile(waits, 99)), "ms", 100)
        yield _figure("spark.resident.idle_cpu", _idle_cpu(3 if seconds < 5 else 15), "cores", 0.05)
        gaps = [_gap_after_a_kill(published, pool, _worker) for _ in range(kills)]
        yield _figure("failover.worker.p50_s", float(np.median(gaps)), "s", 0.5)
        yield _figure("failover.worker.max_s", max(gaps), "s")
    finally:
        pool.stop()


def _cluster(spark: Any, folder: Path, seconds: int, kills: int) -> Iterator[dict[str, Any]]:
    [level] = levels_of((W1.plan,), (SCHEMA,), str(folder / "cluster"), BUCKETS)
    published = Published(level)
    pool = Pool(spark, [level], on_sealed=published.hear)
    pool.start()
    try:
        warm_us = _warm(published, pool, [level])
        end_us = published.publish(seconds)
        _wait(lambda: published.reached("1", end_us), pool)
        waits = published.waits_ms(level, "W1", warm_us)
        yield _figure("cluster.resident.p50_ms", float(np.percentile(waits, 50)), "ms", 30)
        yield _figure("cluster.resident.p99_ms", float(np.percentile(waits, 99)), "ms", 100)
        gaps = [_gap_after_a_kill(published, pool, _executor) for _ in range(kills)]
        yield _figure("failover.executor.p50_s", float(np.median(gaps)), "s", 0.5)
        yield _figure("failover.executor.max_s", max(gaps), "s")
    finally:
        pool.stop()


def _tree(spark: Any, folder: Path, seconds: int) -> Iterator[dict[str, Any]]:
    plans = _three_levels()
    levels = levels_of(plans, (SCHEMA,), str(folder / "tree"), BUCKETS)
    published = Published(levels[0])
    pool = Pool(spark, levels, on_sealed=published.hear)
    pool.start()
    try:
        warm_us = _warm(published, pool, levels)
        end_us = published.publish(seconds)
        _wait(lambda: all(published.reached(level.label, end_us) for level in levels), pool)
        waits = published.waits_ms(levels[-1], plans[-1].name, warm_us)
        yield _figure("spark.tree.p50_ms", float(np.percentile(waits, 50)), "ms", 60)
        yield _figure("spark.tree.p99_ms", float(np.percentile(waits, 99)), "ms", 150)
    finally:
        pool.stop()


def _three_levels() -> tuple[Any, ...]:
    """Each finds two of the one below it within two seconds."""
    a = step("a", Typed, Typed.type == "A")
    b = step("b", Typed, (Typed.type == "B") & (Typed.v >= last(a).v))
    low = rule("Low").pattern(a.then(b).within(seconds=2)).emit(v=last(b).v)
    made = [low]
    for name in ("Middle", "High"):
        below = made[-1]
        first, then = step("first", below), step("then", below)
        made.append(rule(name).pattern(first.then(then).within(seconds=2)).emit(v=last(then).v))
    return tuple(one.plan for one in made)


def _micro_batches(spark: Any, folder: Path, seconds: int) -> Iterator[dict[str, Any]]:
    [level] = levels_of((W1.plan,), (SCHEMA,), str(folder / "batches"), BUCKETS)
    published = Published(level)
    level.log.create(SCHEMA, BUCKETS)
    query = detect_stream(spark, level, on_sealed=lambda sealed: published.hear(level, sealed))
    try:
        for part in (2, seconds):
            before_us = max(published.at_s, default=0)
            end_us = published.publish(part)
            while not published.reached("1", end_us):
                query.awaitTermination(0.05)
        waits = published.waits_ms(level, "W1", before_us)
        yield _figure("spark.batches.p50_ms", float(np.percentile(waits, 50)), "ms")
        yield _figure("spark.batches.p99_ms", float(np.percentile(waits, 99)), "ms")
    finally:
        query.stop()


def _warm(published: Published, pool: Pool, levels: Any) -> int:
    """Until all tasks are there and have compiled their rules; the time of the last event."""
    _wait(lambda: len(pool.hub.tasks) == pool.jobs.count, pool)
    warm_us = published.publish(4)
    _wait(lambda: all(published.reached(level.label, warm_us) for level in levels), pool)
    return warm_us


def _worker(task: str) -> int:
    return int(task.rpartition("/")[2])


def _executor(task: str) -> int:
    """The JVM above a task's worker and the daemon that forked it."""
    above = psutil.Process(_worker(task)).parents()
    return next(process.pid for process in above if "java" in process.name())


def _gap_after_a_kill(published: Published, pool: Pool, victim: Callable[[str], int]) -> float:
    """The longest time without a seal when a task's worker or executor is killed while events come."""
    _wait(lambda: len(pool.hub.tasks) == pool.jobs.count, pool)
    publishing = threading.Thread(target=published.publish, args=(2.0,))
    publishing.start()
    threading.Event().wait(1.0)
    before = len(published.sealed["1"])
    os.kill(victim(pool.hub.tasks[0]), signal.SIGKILL)
    publishing.join()
    _wait(lambda: published.reached("1", max(published.at_s)), pool)
    moments = [moment for _, moment in published.sealed["1"][before - 1 :]]
    return float(np.diff(moments).max())


def _idle_cpu(seconds: float) -> float:
    """Cores that everything of this run uses while nothing comes: this process, the JVM, the workers."""
    own = psutil.Process()

    def used() -> float:
        return sum(
            times.user + times.system
            for process in [own, *own.children(recursive=True)]
            for times in [process.cpu_times()]
        )

    before = used()
    time.sleep(seconds)
    return (used() - before) / seconds


def _wait(condition: Callable[[], bool], pool: Pool, timeout_s: float = 60) -> None:
    until = time.monotonic() + timeout_s
    while not condition():
        pool.check()
        if time.monotonic() > until:
            raise AssertionError("the pool did not get there")
        time.sleep(0.005)


def _figure(name: str, value: float, unit: str, goal: float | None = None) -> dict[str, Any]:
    return {
        "bench": "latency",
        "figure": name,
        "value": value,
        "unit": unit,
        "goal": None if goal is None else f"≤ {goal}",
        "met": None if goal is None else value <= goal,
    }
