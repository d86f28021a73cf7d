"""Kills of every part of a running pipeline, in every window: the sealed bytes are those of an undisturbed run."""

from __future__ import annotations

import importlib
import random
import signal
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest


def _kills() -> ModuleType:
    """The pipeline tests' own means of killing, as a package beside this folder."""
    tests = Path(__file__).parent.parent
    if str(tests) not in sys.path:
        sys.path.append(str(tests))
    return importlib.import_module("pipeline.kills")


kills = _kills()
CLUSTER = "local-cluster[2,1,1024]"
LOCAL = "local[2,4]"
ROWS = 100
BLOWS = [
    (victim, window)
    for victims in (
        ("executor", "Python workers"),
        ("driver's JVM", "executor"),
        ("Python workers", "source's Python"),
        ("executor", "Python workers"),
        ("driver's Python", "Python workers"),
        ("executor", "source's Python"),
    )
    for window in kills.WINDOWS
    for victim in victims
]
"""Six rounds of five windows with two victims each: 60 kills, one after the other, in one folder."""


@pytest.mark.timeout(7200)
def test_sixty_kills_in_one_run_change_nothing(seed: int, blows: Counter[str], java: Path, tmp_path: Path) -> None:
    events = ROWS * 2 * len(BLOWS)
    wanted = kills.undisturbed(tmp_path / "perfect", seed, events, ROWS)
    level = kills.prepare(tmp_path / "killed", seed, events, ROWS)
    hit = kills.storm(Path(level.address), CLUSTER, BLOWS, ROWS)
    blows.update(f"kill -9 on Spark: {victim}" for victim, _ in hit)
    assert hit == BLOWS, "every window must be hit"
    assert kills.sealed_bytes(level) == wanted


@pytest.mark.timeout(900)
@pytest.mark.parametrize("window", list(kills.WINDOWS))
def test_an_executor_that_wakes_later_changes_nothing(java: Path, tmp_path: Path, window: str) -> None:
    """Asleep for longer than Spark waits for its heartbeats: its tasks run elsewhere, and then it wakes."""
    wanted = kills.undisturbed(tmp_path / "perfect", 6)
    level = kills.prepare(tmp_path / "asleep", 6)
    with kills.Driver(Path(level.address), CLUSTER) as driver:
        asleep = driver.stop_at(kills.WINDOWS[window], 1, "executor")
        assert asleep is not None, "the window must be hit"
        assert driver.reach(kills.committed, 3), "the others go on without it"
        asleep.send_signal(signal.SIGCONT)
        assert driver.wait() == 0
    assert kills.sealed_bytes(level) == wanted


@pytest.mark.timeout(900)
@pytest.mark.parametrize("window", list(kills.WINDOWS))
def test_a_zombie_driver_that_wakes_later_changes_nothing(java: Path, tmp_path: Path, window: str) -> None:
    wanted = kills.undisturbed(tmp_path / "perfect", 5)
    level = kills.prepare(tmp_path / "killed", 5)
    with kills.Driver(Path(level.address), LOCAL) as zombie:
        assert zombie.kill_at(kills.WINDOWS[window], 1, "driver's JVM", signal.SIGSTOP)
        kills.run_to_the_end(Path(level.address), LOCAL)
        assert kills.sealed_bytes(level) == wanted
        assert zombie.kill_at(lambda data, batch: True, 1, "driver's JVM", signal.SIGCONT)
        zombie.wait()
    assert kills.sealed_bytes(level) == wanted


RESIDENT_BLOWS = [
    *["Python workers", "executor", "Python workers", "asleep", "driver's JVM"] * 4,
    *["executor", "asleep", "Python workers", "driver's Python"] * 3,
    *["Python workers", "executor"] * 8,
]
"""48 in one folder, each some intervals after the one before."""
APART = 12
"""Intervals between two blows, at the least."""


@pytest.mark.timeout(7200)
def test_resident_tasks_executors_and_drivers_are_killed_and_nothing_changes(
    seed: int, blows: Counter[str], java: Path, tmp_path: Path
) -> None:
    intervals = 3 * APART * len(RESIDENT_BLOWS)
    rows, draw = 20, random.Random(seed)
    wanted = kills.undisturbed(tmp_path / "perfect", seed, rows * intervals, rows)
    level = kills.prepare(tmp_path / "killed", seed, rows * intervals, rows)
    data, left, sealed, asleep = Path(level.address), list(RESIDENT_BLOWS), 0, []
    while left:
        with kills.Driver(data, CLUSTER, rows, resident=True) as driver:
            while left:
                sealed = max(sealed, kills.count_sealed(data)) + draw.randrange(APART, 2 * APART)
                victim = left[0]
                if victim == "asleep":
                    struck = driver.stop_at(kills.sealed_count, sealed, "Python workers")
                    asleep = [*asleep, struck]
                else:
                    struck = driver.kill_at(kills.sealed_count, sealed, victim)
                assert struck, f"the log came to its end before {len(left)} of the blows"
                left.pop(0)
                blows["SIGSTOP on Spark" if victim == "asleep" else f"kill -9 on Spark: {victim}"] += 1
                if victim.startswith("driver's"):
                    break
                for one in asleep[:-1]:  # the last one sleeps on until the next blow
                    kills.wake(one)
            else:
                for one in asleep:
                    kills.wake(one)
                if driver.wait(1800) != 0:
                    kills.run_to_the_end(data, CLUSTER, rows=rows, resident=True)
    assert kills.sealed_bytes(level) == wanted


DECOMMISSIONING = ("spark.decommission.enabled=true", "spark.executor.decommission.forceKillTimeout=20s")


@pytest.mark.timeout(3600)
def test_executors_are_decommissioned_under_resident_tasks_and_nothing_changes(java: Path, tmp_path: Path) -> None:
    """Spark lets their tasks finish, which these do not, and ends the executors after a while."""
    rows, intervals = 20, 600
    wanted = kills.undisturbed(tmp_path / "perfect", 13, rows * intervals, rows)
    level = kills.prepare(tmp_path / "run", 13, rows * intervals, rows)
    data = Path(level.address)
    with kills.Driver(data, CLUSTER, rows, resident=True, settings=DECOMMISSIONING) as driver:
        for count in (50, 150):
            assert driver.kill_at(kills.sealed_count, count, "executor", signal.SIGPWR)
        assert driver.wait(1800) == 0
    assert kills.sealed_bytes(level) == wanted


GROWING = tuple(
    f"spark.dynamicAllocation.{setting}"
    for setting in (
        "enabled=true",
        "shuffleTracking.enabled=true",
        "minExecutors=1",
        "initialExecutors=1",
        "maxExecutors=2",
        "executorIdleTimeout=1s",
    )
)


@pytest.mark.timeout(3600)
def test_a_pool_grows_with_dynamic_allocation_and_keeps_its_executors(java: Path, tmp_path: Path) -> None:
    """It begins with one executor of one slot; the task that waits brings the second one, which is never idle. One
    that is killed is replaced."""
    rows, intervals = 20, 600
    wanted = kills.undisturbed(tmp_path / "perfect", 14, rows * intervals, rows)
    level = kills.prepare(tmp_path / "run", 14, rows * intervals, rows)
    data = Path(level.address)
    settings = (*GROWING, "spark.executor.cores=1")
    seen: set[int] = set()

    def grown(data: Path, count: int) -> bool:
        seen.update(kills.executors(driver.tree))
        return len(seen) >= count

    with kills.Driver(data, CLUSTER, rows, resident=True, settings=settings) as driver:
        assert driver.kill_at(grown, 2, "executor"), "no second executor came"
        assert driver.reach(grown, 3), "nobody replaced the one that was killed"
        assert driver.wait(1800) == 0
    assert "tasks: 2" in (data / "driver.log").read_text()
    assert kills.sealed_bytes(level) == wanted
