"""The two sides of a race: our pipeline on Spark, streaming or in batch, and a peer in a process of its own.

Each says what it took by the wall clock and of the processor. On a machine that others use too, the second is the
better one to compare.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from race_inputs import BUCKETS, SCHEMA

from unerring.model import WorldError
from unerring.pipeline import Bounds, Level, SparkConfig, detect_available, detect_batch, levels_of, start
from unerring.rules import Rule

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CORES = 2
PER_BATCH = 4_000_000
TIMEOUT_S = 3600


def net(took_s: float, start_up_s: float) -> float:
    """Without the start-up; with it where there was so little to do that the difference is noise."""
    return took_s - start_up_s if took_s > start_up_s else took_s


@dataclass(frozen=True, slots=True)
class Cost:
    """What a job over so many events took, and what the same job takes over a few, which is its start-up."""

    events: int
    took_s: float
    start_up_s: float
    took_cpu_s: float
    start_up_cpu_s: float
    memory_mib: float

    @property
    def rate(self) -> float:
        """Events a second by the wall clock, net of the start-up."""
        return self.events / net(self.took_s, self.start_up_s)

    @property
    def cpu_us(self) -> float:
        """Microseconds of a processor for an event, net of the start-up."""
        return 1e6 * net(self.took_cpu_s, self.start_up_cpu_s) / self.events


# --- ours ---


@contextmanager
def session(folder: Path, memory: str = "1g") -> Iterator[SparkSession]:
    spark = start(SparkConfig(master=f"local[{CORES}]", memory=memory, log=str(folder / "spark.log")), "race")
    try:
        yield spark
    finally:
        spark.stop()


def level_of(folder: Path, which: str, rule_: Rule, use: str) -> Level:
    """The rule in a folder of its own whose log shares the events."""
    data = folder / f"{which}-{rule_.plan.name}-{use}"
    (data / "log").mkdir(parents=True)
    (data / "log" / SCHEMA.name).symlink_to(folder / which / "log" / SCHEMA.name)
    [level] = levels_of((rule_.plan,), (SCHEMA,), str(data), BUCKETS)
    return level


def streamed(spark: SparkSession, level: Level) -> None:
    detect_available(spark, level, Bounds(rows_per_batch=PER_BATCH))


def batched(spark: SparkSession, level: Level) -> None:
    detect_batch(spark, level, Bounds(rows_per_batch=PER_BATCH))


def cost_here(
    spark: SparkSession,
    play: Callable[[SparkSession, Level], None],
    few: Callable[[str], Level],
    full: Callable[[str], Level],
    events: int,
    rounds: int = 1,
) -> Cost:
    """The session is up; the few events show what a query costs before it does anything. The best of the rounds."""
    play(spark, few("warming"))  # Java compiles what it runs for the first time
    with Usage(psutil.Process()) as started:
        play(spark, few("start-up"))
    ran = []
    for number in range(rounds):
        with Usage(psutil.Process()) as usage:
            play(spark, full(f"round-{number}"))
        ran.append(usage)
    best = min(ran, key=lambda usage: usage.took_s)
    memory = max(usage.peak_mib for usage in ran)
    return Cost(events, best.took_s, started.took_s, best.cpu_s, started.cpu_s, memory)


# --- the peer's ---


def told_by(command: Sequence[str], peer: str) -> tuple[dict[str, Any], float]:
    """What a peer's process printed in its last line, and the most memory that it had."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with Usage(psutil.Process(process.pid)) as usage:
        try:
            said, error = process.communicate(timeout=TIMEOUT_S)
        finally:
            process.kill()
    return parsed(said, error, process.returncode, peer), usage.peak_mib


def parsed(said: str, error: str, code: int, peer: str) -> dict[str, Any]:
    lines, complaints = said.strip().splitlines(), error.strip().splitlines()
    if code or not lines:
        raise WorldError(f"{peer} ended with {code}: {complaints[-1] if complaints else 'it said nothing'}")
    try:
        told: dict[str, Any] = json.loads(lines[-1])
    except ValueError:
        raise WorldError(f"{peer} ended without its figures; its last line was {lines[-1]!r}") from None
    return told


def cost_there(told: dict[str, Any], events: int, memory_mib: float) -> Cost:
    names = ("took_s", "start_up_s", "took_cpu_s", "start_up_cpu_s")
    return Cost(events, *(float(told[name]) for name in names), memory_mib)


class Usage:
    """Of a process and all below it: the most memory at once, sampled; the processor's time; the wall clock's."""

    def __init__(self, process: psutil.Process) -> None:
        self.peak_mib = self.cpu_s = self.took_s = 0.0
        self._process = process
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Usage:
        self._cpu_before_s = self._cpu_s()
        self._began = time.perf_counter()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.took_s = time.perf_counter() - self._began
        self.cpu_s = self._cpu_s() - self._cpu_before_s
        self._done.set()
        self._thread.join()

    def _tree(self) -> list[psutil.Process]:
        try:
            return [self._process, *self._process.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def _cpu_s(self) -> float:
        """With what ended children took: their parent has it once it has waited for them."""
        total_s = 0.0
        for process in self._tree():
            try:
                total_s += sum(process.cpu_times()[:4])
            except psutil.NoSuchProcess:
                continue
        return total_s

    def _sample(self) -> None:
        while not self._done.wait(0.25):
            held = 0
            for process in self._tree():
                try:
                    held += process.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
            self.peak_mib = max(self.peak_mib, held / 2**20)


def figure(name: str, value: float, unit: str, goal: str | None = None, met: bool | None = None) -> dict[str, Any]:
    return {"bench": "pipeline", "figure": name, "value": value, "unit": unit, "goal": goal, "met": met}


def figures_of(workload: str, side: str, cost: Cost) -> Iterator[dict[str, Any]]:
    yield figure(f"{workload}.{side}.rate", cost.rate, "events/s")
    yield figure(f"{workload}.{side}.took", cost.took_s, "s")
    yield figure(f"{workload}.{side}.start_up", cost.start_up_s, "s")
    yield figure(f"{workload}.{side}.cpu", cost.cpu_us, "µs/event")
    yield figure(f"{workload}.{side}.peak_memory", cost.memory_mib, "MiB")
