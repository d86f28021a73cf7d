"""The race: W1, W2 and W3 on Apache Flink's MATCH_RECOGNIZE and on our pipeline, in one run, on the same events.

Both stream with exactly-once checkpoints on two cores and write what they find to files. Both are taken net of their
start-up: the time that the same job takes over a few events, in the same process, is subtracted. Flink reads the
first events of the ones that we read, since it would need long for all; the rates are events a second.
Before anything is said of speed, the matches are compared: they must be equal where the two mean the same.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.csv

from unerring.log import EventLog, with_origin
from unerring.model import TIME_MAX, CallerError, WorldError, schema_of
from unerring.pipeline import Bounds, Level, SparkConfig, detect_available, detect_batch, levels_of, start
from unerring.rules import W1, W2, W3, Rule, Typed, fn, last, rule, step, time_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent
PYTHON = HERE / "flink" / "bin" / "python"
SCHEMA = schema_of(Typed)
BUCKETS = 2
EVENTS, FLINK_EVENTS, FEW = 20_000_000, 2_000_000, 2_000
PER_SEGMENT, PER_BATCH = 1_000_000, 4_000_000
TIMEOUT_S = 3600

_a = step("a", Typed, Typed.type == "A")
_b = step("b", Typed, Typed.type == "B")
_c = step("c", Typed, lambda c: (Typed.type == "C") & (fn.is_null(last(c, 1).v) | (Typed.v > last(c, 1).v)))


def _exclusive(seconds: int) -> timedelta:
    """Flink's WITHIN excludes its end, ours does not; event times here are whole milliseconds."""
    return timedelta(seconds=seconds) - timedelta(milliseconds=1)


AS_FLINK_MEANS: dict[str, Rule] = {
    "W1": rule("W1").pattern(_a.then(_b).within(_exclusive(10))).select("recent").emit(began=time_of(last(_a))),
    "W2": rule("W2")
    .where(Typed, Typed.type != "D")
    .pattern(_a.next(_c.one_or_more(gap="strict")).next(_b).within(_exclusive(30)))
    .emit(began=time_of(last(_a))),
    "W3": W3,
}


def race(quick: bool = False) -> Iterator[dict[str, Any]]:
    """Every figure of the race."""
    if not PYTHON.exists():
        raise CallerError("Flink is not installed; run `make peers` (it needs its own environment, about 600 MB)")
    events, flink_events = (20_000, 20_000) if quick else (EVENTS, FLINK_EVENTS)
    with tempfile.TemporaryDirectory(prefix="unerring-race-") as name:
        folder = Path(name)
        drawn = draw(events)
        for size, where in ((events, "all"), (flink_events, "some"), (FEW, "few")):
            write_log(folder / where / "log", drawn, size)
        write_csv(folder / "csv", drawn, flink_events)
        write_csv(folder / "csv-few", drawn, FEW)
        peers = {workload: on_flink(folder, workload, flink_events) for workload in ("W1", "W2", "W3")}
        spark = start(SparkConfig(master="local[2]", memory="1g", log=str(folder / "spark.log")), "race")
        try:
            for workload, rule_ in (("W1", W1), ("W2", W2), ("W3", W3)):
                found = compare(spark, folder, workload, drawn, flink_events)
                ours = on_spark(spark, folder, rule_, events)
                yield from _figures(workload, ours, peers[workload], found)
        finally:
            spark.stop()


# --- the events ---

Drawn = dict[str, Any]


def draw(count: int) -> Drawn:
    rng = np.random.default_rng(7)
    return {
        "ms": np.cumsum(rng.integers(1, 5, count)),
        "key": rng.integers(0, 1000, count),
        "type": rng.choice(["A", "B", "C", "D"], count),
        "v": rng.random(count),
    }


def write_log(log: Path, drawn: Drawn, count: int) -> None:
    chain = EventLog(log).create(SCHEMA, BUCKETS)
    for first in range(0, count, PER_SEGMENT):
        part = slice(first, min(first + PER_SEGMENT, count))
        times = drawn["ms"][part] * 1000
        columns = {"time": times, "ordinal": np.zeros(len(times), np.int64), "key": drawn["key"][part]}
        table = pa.table({**columns, "v": drawn["v"][part], "type": pa.array(drawn["type"][part])})
        chain.seal(int(times[-1]), with_origin(table, SCHEMA))


def write_csv(folder: Path, drawn: Drawn, count: int) -> None:
    """Two files, one for each of Flink's readers; each in the order of time."""
    folder.mkdir(parents=True)
    plain = pyarrow.csv.WriteOptions(include_header=False, quoting_style="none")
    for reader in range(2):
        table = pa.table({name: pa.array(values[reader:count:2]) for name, values in drawn.items()})
        pyarrow.csv.write_csv(table, folder / f"{reader}.csv", plain)


# --- the two ---


def on_flink(folder: Path, workload: str, events: int) -> dict[str, float]:
    """One process: a few events for the start-up, then all."""
    results = folder / f"flink-{workload}"
    results.mkdir()
    command = [str(PYTHON), str(HERE / "flink_race.py"), workload, str(folder / "csv"), str(folder / "csv-few")]
    process = subprocess.Popen([*command, str(results)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with Memory(psutil.Process(process.pid)) as memory:
        try:
            said, error = process.communicate(timeout=TIMEOUT_S)
        finally:
            process.kill()
    if process.returncode:
        raise WorldError(f"Flink did not run {workload}: {error.strip().splitlines()[-1] if error else 'no word'}")
    told = json.loads(said.splitlines()[-1])
    return {"rate": events / (told["took_s"] - told["start_up_s"]), "memory": memory.peak_mib, **_numbers(told)}


def _numbers(told: dict[str, Any]) -> dict[str, float]:
    return {name: value for name, value in told.items() if isinstance(value, float)}


def on_spark(spark: SparkSession, folder: Path, rule_: Rule, events: int) -> dict[str, float]:
    """The pipeline, streaming: the session is up, the few events show what a query costs before it does anything."""
    _timed(spark, _level(folder, "few", rule_, "warming"))  # Java compiles what it runs for the first time
    started = _timed(spark, _level(folder, "few", rule_, "stream"))
    level = _level(folder, "all", rule_, "stream")
    with Memory(psutil.Process()) as memory:
        took = _timed(spark, level)
    return {"rate": events / (took - started), "memory": memory.peak_mib, "took_s": took, "start_up_s": started}


def _timed(spark: SparkSession, level: Level) -> float:
    began = time.perf_counter()
    detect_available(spark, level, Bounds(rows_per_batch=PER_BATCH))
    return time.perf_counter() - began


def _level(folder: Path, which: str, rule_: Rule, use: str) -> Level:
    """The rule in a folder of its own whose log shares the events."""
    data = folder / f"{which}-{rule_.plan.name}-{use}"
    (data / "log").mkdir(parents=True)
    (data / "log" / SCHEMA.name).symlink_to(folder / which / "log" / SCHEMA.name)
    [level] = levels_of((rule_.plan,), (SCHEMA,), str(data), BUCKETS)
    return level


# --- the same matches? ---


def compare(spark: SparkSession, folder: Path, workload: str, drawn: Drawn, count: int) -> dict[str, int]:
    """Matches of both over the same events; a difference that meaning does not explain ends the race."""
    level = _level(folder, "some", AS_FLINK_MEANS[workload], "compared")
    detect_batch(spark, level, Bounds(rows_per_batch=PER_BATCH))
    chain = level.log.chain(workload)
    table = chain.read(chain.base.from_us, TIME_MAX, columns=["key", "began"])
    began = table.column("began").cast(pa.int64()).to_numpy() // 1000
    ours = set(zip(table.column("key").to_pylist(), began.tolist(), strict=True))
    theirs = _flink_matches(folder / f"flink-{workload}" / "csv")
    unexplained = ours ^ theirs
    if workload == "W3":
        # Flink learns that a deadline has passed from the key's next event; a key that fell silent has none.
        latest = dict(zip(drawn["key"][:count].tolist(), drawn["ms"][:count].tolist(), strict=True))
        unexplained = (theirs - ours) | {(key, ms) for key, ms in ours - theirs if latest[key] > ms + 5000}
    if unexplained:
        raise WorldError(f"{workload}: {len(unexplained)} matches differ, such as {sorted(unexplained)[:3]}")
    return {"ours": len(ours), "flink": len(theirs)}


def _flink_matches(folder: Path) -> set[tuple[int, int]]:
    found: set[tuple[int, int]] = set()
    for path in folder.rglob("part-*"):
        if path.stat().st_size:
            read = pyarrow.csv.ReadOptions(column_names=["key", "began", "ended"])
            table = pyarrow.csv.read_csv(path, read_options=read)
            found |= set(zip(table.column("key").to_pylist(), table.column("began").to_pylist(), strict=True))
    return found


class Memory:
    """The most that a process and all below it held at once, sampled."""

    def __init__(self, process: psutil.Process) -> None:
        self.peak_mib = 0.0
        self._process = process
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._done.wait(0.25):
            held = 0
            try:
                tree = [self._process, *self._process.children(recursive=True)]
            except psutil.NoSuchProcess:
                continue
            for process in tree:
                try:
                    held += process.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
            self.peak_mib = max(self.peak_mib, held / 2**20)


def _figures(
    workload: str, ours: dict[str, float], theirs: dict[str, float], found: dict[str, int]
) -> Iterator[dict[str, Any]]:
    ratio, memory = ours["rate"] / theirs["rate"], ours["memory"] / theirs["memory"]
    yield _figure(f"{workload}.flink_ratio", ratio, "ratio", "≥ 10", ratio >= 10)
    yield _figure(f"{workload}.memory_ratio", memory, "ratio", "< 1", memory < 1)
    for name, side in (("ours", ours), ("flink", theirs)):
        yield _figure(f"{workload}.{name}.rate", side["rate"], "events/s")
        yield _figure(f"{workload}.{name}.peak_memory", side["memory"], "MiB")
        yield _figure(f"{workload}.{name}.start_up", side["start_up_s"], "s")
        yield _figure(f"{workload}.{name}.matches_compared", found[name], "matches")


def _figure(name: str, value: float, unit: str, goal: str | None = None, met: bool | None = None) -> dict[str, Any]:
    return {"bench": "pipeline", "figure": name, "value": value, "unit": unit, "goal": goal, "met": met}
