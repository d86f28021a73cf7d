"""The pipeline on Spark: W1, W2 and W3, streaming with checkpoints and in batch, against a floor from the same run.

The floor is Spark reading the same columns of the same files and repartitioning them by key into a no-op sink: what any
keyed computation on Spark pays before it computes anything. Floor and rules take turns; each figure is the best of its
rounds, since other work on the machine only ever makes a round slower.

`hashing` is the part of a stream's processor time, on all cores, that the digests and hashes of its files take: those
that it read, and those that it wrote, hashed once more in this process.
"""

from __future__ import annotations

import hashlib
import importlib
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pyarrow as pa
import xxhash

from unerring.log import EventLog, LogWriter, WriterConfig, with_origin
from unerring.model import TIME_MAX, CallerError, Stamp, schema_of
from unerring.pipeline import (
    Level,
    Sealed,
    SparkConfig,
    detect_available,
    detect_batch,
    detect_stream,
    levels_of,
    start,
)
from unerring.rules import W1, W2, W3, Typed

sys.path.insert(0, str(Path(__file__).parent / "peers"))

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = 20_000_000
PER_SEGMENT = 1_000_000
CORES = 2
BUCKETS = 2
SCHEMA = schema_of(Typed)
RULES = {"W1": (W1, ["key", "type", "v"]), "W2": (W2, ["key", "type", "v"]), "W3": (W3, ["key", "type", "v"])}
PEERS = {
    "flink": "flink_sql",
    "flink-java": "flink_java",
    "duckdb": "tables",
    "polars": "tables",
    "transform": "transform",
}
"""Modules of bench/peers; each has `race(peer, quick)`."""
COUNTS = {EVENTS: {"W1": 2_163_773, "W2": 658_889, "W3": 3_032_563}}


def run(quick: bool = False, against: str = "") -> Iterator[dict[str, Any]]:
    if against:
        yield from _against(against, quick)
        return
    with _prepared(quick) as (spark, folder, events):
        for name in RULES:
            yield from _workload(spark, folder, name, events, 1 if quick else 2)
        yield from _latency(spark, folder, 5 if quick else 45)


def hashing(quick: bool) -> Iterator[dict[str, Any]]:
    """W1 alone, for what its stream's digests and hashes cost."""
    with _prepared(quick) as (spark, folder, events):
        figures = _workload(spark, folder, "W1", events, 1 if quick else 2)
        yield from (figure for figure in figures if figure["figure"] == "W1.hashing")


@contextmanager
def _prepared(quick: bool) -> Iterator[tuple[SparkSession, Path, int]]:
    """Spark, warm, and a folder with the events."""
    events = 200_000 if quick else EVENTS
    folder = Path(tempfile.mkdtemp(prefix="unerring-bench-"))
    try:
        memory = "1g" if quick else "4g"
        spark = start(SparkConfig(master=f"local[{CORES}]", memory=memory, log=str(folder / "spark.log")), "bench")
        try:
            write_events(folder / "log", events)
            # The JVM compiles what it runs often; without this the first floor would pay for all of them.
            _floor(spark, _level(folder, "W1", "warm"))
            yield spark, folder, events
        finally:
            spark.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _against(peer: str, quick: bool) -> Iterator[dict[str, Any]]:
    """The same workloads on somebody else's engine and on ours, in one run (bench/peers)."""
    if peer not in PEERS:
        raise CallerError(f"there is no peer {peer!r} to race against; there are {', '.join(PEERS)}")
    module = importlib.import_module(PEERS[peer])
    yield from module.race(peer, quick)


def write_events(log: Path | str, count: int) -> None:
    """The events of the workloads, drawn column by column, as sealed segments."""
    rng = np.random.default_rng(7)
    ts = np.cumsum(rng.integers(1, 5, count)) * 1000
    key = rng.integers(0, 1000, count)
    kind = rng.choice(["A", "B", "C", "D"], count)
    v = rng.random(count)
    chain = EventLog(log).create(SCHEMA, BUCKETS)
    for first in range(0, count, PER_SEGMENT):
        part = slice(first, first + PER_SEGMENT)
        columns = {"time": ts[part], "ordinal": np.zeros(len(ts[part]), np.int64), "key": key[part], "v": v[part]}
        table = pa.table({**columns, "type": pa.array(kind[part])})
        chain.seal(int(ts[part][-1]), with_origin(table, SCHEMA))


def _workload(spark: SparkSession, folder: Path, name: str, events: int, rounds: int) -> Iterator[dict[str, Any]]:
    best: dict[str, float] = {}
    peak = 0.0
    state = 0
    batches: list[float] = []
    kinds = [("floor", _floor), ("batch", _batch), ("stream", _stream)]
    for number in range(rounds):
        for kind, play in kinds:
            level = _level(folder, name, f"{name}-{kind}-{number}")
            with Memory() as memory:
                began = time.perf_counter()
                told = play(spark, level)
                took = time.perf_counter() - began
            best[kind] = min(best.get(kind, took), took)
            if kind != "floor":
                peak = max(peak, memory.peak_mib)
                _check(level, name, events)
            if kind == "stream":
                batches += np.diff([began, *(moment for moment, _ in told)]).tolist()[1:]
                state = _state_bytes(level)
                hashing_s = _hashing_s(folder, folder / f"{name}-{kind}-{number}")
    for kind, goal in (("batch", 1.5), ("stream", 2.5)):
        yield _figure(f"{name}.{kind}.floor_ratio", best[kind] / best["floor"], "ratio", goal)
        yield _figure(f"{name}.{kind}.rate", events / best[kind], "events/s")
    yield _figure(f"{name}.floor.rate", events / best["floor"], "events/s")
    yield _figure(f"{name}.hashing", hashing_s / CORES / best["stream"], "ratio", 0.1)
    yield _figure(f"{name}.peak_memory", peak, "MiB")
    yield _figure(f"{name}.state", state, "bytes")
    if batches:
        yield _figure(f"{name}.batch_s.p50", float(np.median(batches)), "s")


def _level(folder: Path, name: str, run_name: str) -> Level:
    """The rule in a folder of its own whose log partitions the events."""
    data = folder / run_name
    (data / "log").mkdir(parents=True)
    (data / "log" / SCHEMA.name).symlink_to(folder / "log" / SCHEMA.name)
    [level] = levels_of((RULES[name][0].plan,), (SCHEMA,), str(data), BUCKETS)
    return level


def _floor(spark: SparkSession, level: Level) -> list[Any]:
    columns = ["time", *RULES[level.plans[0].name][1]]
    path = f"{level.address}/log/{SCHEMA.name}/segments/*.parquet"
    frame = spark.read.parquet(path).select(*columns).repartition(2, "key")
    frame.write.format("noop").mode("overwrite").save()
    return []


def _batch(spark: SparkSession, level: Level) -> list[Any]:
    detect_batch(spark, level)
    return []


def _stream(spark: SparkSession, level: Level) -> list[tuple[float, Sealed]]:
    intervals: list[tuple[float, Sealed]] = []
    detect_available(spark, level, on_sealed=lambda sealed: intervals.append((time.perf_counter(), sealed)))
    return intervals


def _check(level: Level, name: str, events: int) -> None:
    """The counts that the workloads are known to have."""
    chain = level.log.chain(name)
    found = sum(chain.footer(span).rows for span in chain.spans(chain.base.from_us, TIME_MAX))
    wanted = COUNTS.get(events, {}).get(name, found)
    if found != wanted:
        raise AssertionError(f"{name} found {found} situations in {events} events, not {wanted}")


def _state_bytes(level: Level) -> int:
    from unerring.pipeline import Partition, spans_of

    partition = Partition(level, 0)
    partition.begin(level.chains()[SCHEMA.name].base.from_us)
    chains = level.chains()
    end = chains[SCHEMA.name].spans(partition.through_us, TIME_MAX)[0].through_us
    partition.advance(end, spans_of(chains, partition.through_us, end))
    return len(partition.snapshot()) * level.buckets


def _hashing_s(folder: Path, run_folder: Path) -> float:
    """To hash once more what the stream read (a digest) and what it left behind (a digest and a hash)."""
    read = [path.read_bytes() for path in (folder / "log" / SCHEMA.name / "segments").glob("*.parquet")]
    written = [path.read_bytes() for path in run_folder.rglob("*") if path.is_file() and not path.is_symlink()]
    began_s = time.process_time()
    for data in (*read, *written):
        xxhash.xxh3_128_hexdigest(data)
    for data in written:
        hashlib.sha256(data).hexdigest()
    return time.process_time() - began_s


class Memory:
    """The most that this process and all below it held at once, sampled."""

    def __enter__(self) -> Memory:
        self.peak_mib = 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()

    def _sample(self) -> None:
        own = psutil.Process()
        while not self._done.wait(0.25):
            held = 0
            for process in [own, *own.children(recursive=True)]:
                try:
                    held += process.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
            self.peak_mib = max(self.peak_mib, held / 2**20)


def _latency(spark: SparkSession, folder: Path, seconds: int) -> Iterator[dict[str, Any]]:
    """Published → situation readable, at 5 000 events/s: a writer seals by age, a query runs, situations appear.

    What bounds it is in the figures: an event waits for its segment, for the micro-batch that runs, and for its own.
    """
    data = folder / "latency"
    [level] = levels_of((W1.plan,), (SCHEMA,), str(data), BUCKETS)
    writer = LogWriter(level.log, SCHEMA, WriterConfig(), BUCKETS)
    published: dict[int, float] = {}
    sealed_at: list[tuple[int, float]] = []
    query = detect_stream(
        spark, level, on_sealed=lambda sealed: sealed_at.append((sealed.through_us, time.perf_counter()))
    )
    # How long a query takes to start is another question: what is published before it runs is not counted.
    for part in (2, seconds):
        before = len(published)
        feeding = threading.Thread(target=_publish, args=(writer, 5_000, part, published))
        feeding.start()
        feeding.join()
        _wait(lambda: bool(sealed_at) and sealed_at[-1][0] >= max(published), query)
    query.stop()
    times = level.log.chain("W1").read(0, TIME_MAX, columns=[]).column("time").to_pylist()
    ends = np.array([through for through, _ in sealed_at])
    moments = [moment for _, moment in sealed_at]
    warm = sorted(published)[before + (len(published) - before) // 5]
    waits = [1000 * (moments[int(np.searchsorted(ends, t))] - published[t]) for t in times if t > warm]
    yield _figure("latency.p50_ms", float(np.percentile(waits, 50)), "ms", 1500)
    yield _figure("latency.p99_ms", float(np.percentile(waits, 99)), "ms", 3000)
    yield _figure("latency.batch_p50_ms", 1000 * float(np.median(np.diff(moments)[len(moments) // 5 :])), "ms")


def _publish(writer: LogWriter, rate: int, seconds: int, published: dict[int, float]) -> None:
    rng = np.random.default_rng(7)
    began, pause, before = time.perf_counter(), threading.Event(), len(published)
    for number in range(before, before + rate * seconds):
        due = began + (number - before) / rate
        while (now := time.perf_counter()) < due:
            if writer.due(int(now * 1e6)):
                writer.seal()
            pause.wait(min(due - now, 0.002))
        event_us = 1_000_000 + number * 1_000_000 // rate
        payload = {"key": int(rng.integers(1000)), "type": "ABCD"[int(rng.integers(4))], "v": float(rng.random())}
        writer.append("bench", (0, number), Stamp(event_us), payload, int(now * 1e6))
        published[event_us] = now
        if writer.due(int(now * 1e6)):
            writer.seal()
    writer.advance(event_us, int(now * 1e6))  # or the last time might go on
    writer.seal()


def _wait(condition: Callable[[], bool], query: Any, timeout_s: float = 120) -> None:
    until = time.perf_counter() + timeout_s
    while not condition():
        if not query.isActive or time.perf_counter() > until:
            raise AssertionError(f"the query did not reach the end: {query.exception()}")
        query.awaitTermination(0.05)


def _figure(name: str, value: float, unit: str, goal: float | None = None) -> dict[str, Any]:
    return {
        "bench": "pipeline",
        "figure": name,
        "value": value,
        "unit": unit,
        "goal": None if goal is None else f"≤ {goal}",
        "met": None if goal is None else value <= goal,
    }
