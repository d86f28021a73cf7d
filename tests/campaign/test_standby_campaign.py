"""Drivers of Spark killed, stopped and started again, many times: what is sealed is what an undisturbed run seals."""

from __future__ import annotations

import asyncio
import importlib
import os
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from unerring.correlation import CorrelationConfig
from unerring.log import Chain, EventLog, events_of
from unerring.model import TIME_MAX, TIME_MIN

ROWS = 100
PATIENCE_S = 1500.0
"""For a driver to come back; Spark gives up on its own workers when a machine is very busy, and is started again."""
DRIVERS = ("spark/0", "spark/1")


def _pipeline(module: str) -> ModuleType:
    """The pipeline tests' own means, as a package of the repository's tests."""
    root = Path(__file__).parent.parent.parent
    for path in (root, root / "tests"):
        if str(path) not in sys.path:
            sys.path.append(str(path))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
    return importlib.import_module(f"tests.pipeline.{module}")


kills = _pipeline("kills")
runs = _pipeline("standby_runs")


def _segments(data: Path) -> list[Path]:
    return sorted((data / "log" / "Typed" / "segments").glob("*.parquet"))


def _pieces(prepared: Path, run: Path, count: int) -> Iterator[None]:
    """Let a prepared log grow in the run's folder, by some segments at a time."""
    left = _segments(prepared)
    target = run / "log" / "Typed" / "segments"
    target.mkdir(parents=True, exist_ok=True)
    size = -(-len(left) // count)
    for first in range(0, len(left), size):
        for path in left[first : first + size]:
            os.link(path, target / path.name)
        yield


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", [1, 2])
def test_the_sealed_bytes_are_those_of_an_undisturbed_run(java: Path, tmp_path: Path, seed: int) -> None:
    """Ten kills of drivers, leading or not, of their Python and their JVM, and sleeps of either."""
    failures = 10
    events = ROWS * 6 * failures
    wanted = kills.undisturbed(tmp_path / "perfect", seed, events, ROWS)
    kills.prepare(tmp_path / "prepared", seed, events, ROWS)
    run = runs.StandbyRun(tmp_path / "run", "tests.pipeline.standby_app:app", [], ("W1", "W2", "W3"), ROWS)
    [level] = run.app.levels(run.data)
    draw = random.Random(seed)

    async def play() -> None:
        for number, _ in enumerate(_pieces(tmp_path / "prepared", run.data, failures)):
            await run.until(run.both_stand, PATIENCE_S)
            leader = run.leader()
            other = next(name for name in DRIVERS if name != leader)
            victim = leader if number % 3 else other
            part = "Python" if number % 2 else "JVM"
            if draw.random() < 0.2:
                _sleep(run, victim, part, draw.uniform(0.5, 4))
            else:
                run.kill(victim, part)
        await run.until(lambda: kills.sealed_bytes(level).keys() == wanted.keys(), PATIENCE_S)

    asyncio.run(run.supervised(play()))
    assert kills.sealed_bytes(level) == wanted


@pytest.mark.timeout(7200)
def test_both_drivers_change_their_partitions_at_the_agreed_time(java: Path, tmp_path: Path) -> None:
    """Rescaled while they run, and the leader is killed right after."""
    rescaling = importlib.import_module("unerring.pipeline.rescaling")
    events = ROWS * 12
    kills.undisturbed(tmp_path / "perfect", 5, events, ROWS)
    kills.prepare(tmp_path / "prepared", 5, events, ROWS)
    run = runs.StandbyRun(tmp_path / "run", "tests.pipeline.standby_app:app", [], ("W1", "W2", "W3"), ROWS)
    ends = [chain_of(tmp_path / "prepared", "Typed").through_us]

    async def play() -> None:
        for number, _ in enumerate(_pieces(tmp_path / "prepared", run.data, 4)):
            await run.until(run.both_stand, PATIENCE_S)
            if number == 2:
                await run.until(lambda: all(run.log(name).refresh() > TIME_MIN for name in run.streams), PATIENCE_S)
                sealed_us = max(run.log(name).refresh() for name in run.streams)
                rescaling.rescale(run.app.levels(run.data), 5, sealed_us + 1)
                run.kill(run.leader())
        await run.until(lambda: all(run.log(name).refresh() == ends[0] for name in run.streams), PATIENCE_S)

    asyncio.run(run.supervised(play()))
    assert [level.buckets for level in run.app.levels(run.data)] == [5]
    for name in run.streams:
        rows = [chain_of(data, name).read(TIME_MIN, ends[0]) for data in (tmp_path / "perfect", run.data)]
        assert len(rows[0])
        assert rows[0].equals(rows[1]), name


def chain_of(data: Path, stream: str) -> Chain:
    chain = EventLog(data / "log").chain(stream)
    chain.refresh()
    return chain


@pytest.mark.timeout(7200)
def test_a_mixed_tree_is_perfect_though_drivers_and_replicas_die(java: Path, tmp_path: Path) -> None:
    """Rate and Peaks on Spark, Steps live between them; somebody of each node is killed before every piece."""
    live_tree = importlib.import_module("tests.app.live_tree")
    pieces = 8
    events = live_tree.readings(100 * pieces)
    run = runs.StandbyRun(tmp_path, "tests.app.tree_app:app", events, ("Rate", "Peaks"), rows=1000)
    draw = random.Random(3)

    async def play() -> None:
        for number in range(pieces):
            await run.until(lambda: run.both_stand() and all(run.healthy(name) for name in run.replicas), PATIENCE_S)
            run.kill(draw.choice([run.leader(), *DRIVERS]), draw.choice(["Python", "JVM"]))
            steps = run.supervisor.processes[f"Steps/{draw.randrange(2)}"].pid
            run.killed.add(steps)
            os.kill(steps, signal.SIGKILL)
            run.feed(events[100 * number : 100 * (number + 1)])
        run.end()
        await run.until(run.sealed, PATIENCE_S)

    asyncio.run(run.supervised(play()))
    assert run.violations() == []


@pytest.mark.timeout(7200)
def test_a_mixed_run_that_was_stopped_as_a_whole_goes_on(java: Path, tmp_path: Path) -> None:
    """Drivers go on from their checkpoints; live replicas, which were in memory, begin again with the log."""
    generations = importlib.import_module("unerring.app.generations")
    live_tree = importlib.import_module("tests.app.live_tree")
    events = live_tree.readings(300)
    run = runs.StandbyRun(tmp_path, "tests.app.tree_app:app", events, ("Rate", "Peaks"), rows=1000)

    async def play(first: int, end: bool) -> None:
        await run.until(run.both_stand, PATIENCE_S)
        run.feed(events[first : first + 150])
        if end:
            run.end()
            await run.until(run.sealed, PATIENCE_S)
        else:
            await run.until(
                lambda: run.status("Steps/0").get("through", 0) > events[first + 100].stamp.time, PATIENCE_S
            )

    asyncio.run(run.supervised(play(0, end=False)))
    before = run.cluster.generation
    run.cluster = generations.begin_anew(run.cluster, tmp_path)
    assert run.cluster.generation == before + 1
    run.supervisor = run.new_supervisor()
    asyncio.run(run.supervised(play(150, end=True)))
    assert run.violations() == []


@pytest.mark.timeout(7200)
def test_a_mixed_run_whose_log_was_cut_goes_on_when_it_was_stopped_as_a_whole(java: Path, tmp_path: Path) -> None:
    """Rate on Spark is handed to Steps, which is in memory and begins again at the cut."""
    generations = importlib.import_module("unerring.app.generations")
    needs = importlib.import_module("unerring.app.live_needs")
    retention = importlib.import_module("unerring.pipeline.retention")
    live_tree = importlib.import_module("tests.app.live_tree")
    events = live_tree.readings(300)
    config = CorrelationConfig(bound_ahead_us=0, durable_snapshot_events=20)
    run = runs.StandbyRun(tmp_path, "tests.app.tree_app:app", events, ("Rate", "Peaks"), rows=1000, config=config)

    async def play(first: int, end: bool) -> None:
        await run.until(run.both_stand, PATIENCE_S)
        for start in range(first, first + 150, 30):
            run.feed(events[start : start + 30])
            reached_us = events[start + 29].stamp.time
            await run.until(lambda: all(run.log(name).refresh() >= reached_us for name in run.streams), PATIENCE_S)  # noqa: B023
        if end:
            run.end()
            await run.until(run.sealed, PATIENCE_S)

    asyncio.run(run.supervised(play(0, end=False)))
    assert needs.needs_of(tmp_path).after["Rate"] > events[0].stamp.time, "the drivers have let go of what Steps has"
    levels = needs.retained_levels(run.app, tmp_path)
    assert len(levels) == 3
    before_us = min(run.log(stream).refresh() for stream in run.streams)
    assert retention.cut_here(levels, before_us, needs.needs_of(tmp_path))["Rate"]
    run.cluster = generations.begin_anew(run.cluster, tmp_path)
    assert run.cluster.begins_us == before_us
    run.supervisor = run.new_supervisor()
    asyncio.run(run.supervised(play(150, end=True)))
    perfect = live_tree.perfect_run(run.app, events)
    for stream in run.streams:
        chain = run.log(stream)
        base_us = chain.base.from_us
        wanted = [event for event in perfect if event.stream == stream and event.stamp.time > base_us]
        assert list(events_of(chain.read(base_us, TIME_MAX), chain.schema)) == wanted


def _sleep(run: Any, victim: str, part: str, for_s: float) -> None:
    told = run.status(victim)
    pid = told["pid"] if part == "Python" else told["driver"]["jvm"]
    os.kill(pid, signal.SIGSTOP)

    def wake() -> None:
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            return

    asyncio.get_running_loop().call_later(for_s, wake)
