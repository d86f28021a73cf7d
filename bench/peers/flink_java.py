"""W1, W2 and W3 on Apache Flink's Java CEP (FlinkCep.java) and on our pipeline, in one run, on the same events.

Flink's side is as its experts would write it: the DataStream API with POJOs that its own serializers write, object
reuse, the hashmap backend, as many tasks as cores, events from a compact binary file, no web interface. Java is warm:
a first job over all events ran in the same process. Its headline figure has no checkpoints and a plain file for each
task, which is less than our side does: that one saves states and seals its output exactly once. The same with
checkpoints and Flink's exactly-once file sink is measured beside it.

Both are taken net of their start-up, the time that the same job takes over a few events in the same process; both over
the same events with nothing subtracted (`whole`); and by processor time. Before all that, the matches must be equal.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from race_inputs import Drawn, draw, write_binary, write_log
from race_matches import must_be_equal, of_binary, of_chain
from race_sides import (
    CORES,
    Cost,
    Usage,
    cost_here,
    cost_there,
    figure,
    figures_of,
    level_of,
    session,
    streamed,
    told_by,
)

from unerring.model import CallerError, WorldError
from unerring.rules import W1, W2, W3, Rule

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent
RULES: dict[str, Rule] = {"W1": W1, "W2": W2, "W3": W3}
EVENTS, FLINK_EVENTS, FEW = 20_000_000, 4_000_000, 2_000
CHECKPOINT_MS = 5_000
GOAL = 5
JAVA = ["-Xmx2g", "-XX:+UseParallelGC", "--add-opens=java.base/java.util=ALL-UNNAMED"]


def race(_peer: str, quick: bool = False) -> Iterator[dict[str, Any]]:
    """Every figure of the race."""
    jars = _jars()
    events, flink_events = (200_000, 200_000) if quick else (EVENTS, FLINK_EVENTS)
    with tempfile.TemporaryDirectory(prefix="unerring-race-") as name:
        folder = Path(name)
        drawn = draw(events)
        for size, where in ((events, "all"), (flink_events, "some"), (FEW, "few")):
            write_log(folder / where / "log", drawn, size)
        write_binary(folder / "binary", drawn, flink_events)
        write_binary(folder / "binary-few", drawn, FEW)
        classes = compiled(folder / "classes", jars)
        peers = {
            workload: tuple(_on_flink(folder, classes, workload, flink_events, every) for every in (0, CHECKPOINT_MS))
            for workload in RULES
        }
        with session(folder) as spark:  # only now: an idle JVM, too, takes memory and time
            for workload, theirs in peers.items():
                yield from _against(spark, folder, workload, drawn, theirs, events)


def _jars() -> Path:
    """Those that the wheel of apache-flink brings: its CEP library is among them."""
    found = sorted((HERE / "flink").glob("lib/python*/site-packages/pyflink/lib"))
    if not found:
        raise CallerError("Flink is not installed; run `make peers` (it needs its own environment, about 600 MB)")
    return found[0]


def compiled(classes: Path, jars: Path) -> str:
    """FlinkCep.java, compiled on the spot; the class path to run it with."""
    compiler = shutil.which("javac")
    if compiler is None:
        raise CallerError("Flink's Java side must be compiled, and there is no javac; install a JDK (17 or later)")
    command = [compiler, "-cp", f"{jars}/*", "-d", str(classes), str(HERE / "FlinkCep.java")]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise WorldError(f"bench/peers/FlinkCep.java does not compile: {done.stderr.strip()}")
    return f"{classes}:{jars}/*"


def _on_flink(folder: Path, class_path: str, workload: str, events: int, checkpoint_ms: int) -> Cost:
    """One process: all events until Java is warm, a few for the start-up, then all."""
    results = _results(folder, workload, checkpoint_ms)
    results.mkdir()
    inputs = [str(folder / "binary"), str(folder / "binary-few"), str(results)]
    command = ["java", *JAVA, "-cp", class_path, "FlinkCep", workload, str(CORES), *inputs, str(checkpoint_ms)]
    told, memory_mib = told_by(command, f"Flink, {workload}")
    return cost_there(told, events, memory_mib)


def _results(folder: Path, workload: str, checkpoint_ms: int) -> Path:
    return folder / f"flink-{workload}-{checkpoint_ms}"


def _against(
    spark: SparkSession, folder: Path, workload: str, drawn: Drawn, theirs: tuple[Cost, ...], events: int
) -> Iterator[dict[str, Any]]:
    rule_, (fastest, safe) = RULES[workload], theirs
    few, full = partial(level_of, folder, "few", rule_), partial(level_of, folder, "all", rule_)
    ours = cost_here(spark, streamed, few, full, events, rounds=2)  # the first one warms, as Flink's does
    level = level_of(folder, "some", rule_, "compared")
    with Usage(psutil.Process()) as same:
        streamed(spark, level)
    found = of_chain(level.log.chain(workload))
    # At the end of its input Flink lets all time pass, so that what is still open is told as an absence too.
    last_ms = int(drawn["ms"][fastest.events - 1])
    for checkpoint_ms in (0, CHECKPOINT_MS):
        told = of_binary(_results(folder, workload, checkpoint_ms) / "took" / "matches").ended_by(last_ms)
        count = must_be_equal(workload, found, told, "Flink")
    yield figure(f"{workload}.matches_compared", count, "matches")
    yield from figures(workload, ours, fastest, safe, same.took_s)


def figures(workload: str, ours: Cost, theirs: Cost, safe: Cost, same_s: float) -> Iterator[dict[str, Any]]:
    ratio = ours.rate / theirs.rate
    yield figure(f"{workload}.flink_java_ratio", ratio, "ratio", f"≥ {GOAL}", ratio >= GOAL)
    yield figure(f"{workload}.flink_java_ratio.exactly_once", ours.rate / safe.rate, "ratio")
    yield figure(f"{workload}.flink_java_ratio.cpu", theirs.cpu_us / ours.cpu_us, "ratio")
    yield figure(f"{workload}.flink_java_ratio.whole", theirs.took_s / same_s, "ratio")
    yield figure(f"{workload}.memory_ratio", ours.memory_mib / theirs.memory_mib, "ratio")
    yield from figures_of(workload, "ours", ours)
    yield from figures_of(workload, "flink_java", theirs)
    yield from figures_of(workload, "flink_java_exactly_once", safe)
