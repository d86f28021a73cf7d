"""Kills of every part of a running pipeline, in every window: the sealed bytes are those of an undisturbed run."""

from __future__ import annotations

import importlib
import signal
import sys
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

CASES = [
    (master, victim, window, batch)
    for master, victims in (
        (LOCAL, ("driver's Python", "driver's JVM", "Python workers")),
        (CLUSTER, tuple(kills.VICTIMS)),
    )
    for victim in victims
    for window in kills.WINDOWS
    for batch in (0, 2)
]
"""2 masters, 7 victims in all, 5 windows, 2 batches: 70 kills."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("master", "victim", "window", "batch"), CASES)
def test_a_kill_changes_nothing(java: Path, tmp_path: Path, master: str, victim: str, window: str, batch: int) -> None:
    seed = batch + len(victim)
    wanted = kills.undisturbed(tmp_path / "perfect", seed)
    level = kills.prepare(tmp_path / "killed", seed)
    with kills.Driver(Path(level.data), master) as driver:
        assert driver.kill_at(kills.WINDOWS[window], batch, victim), "the window must be hit"
        survived = driver.wait() == 0
    if not survived:
        kills.run_to_the_end(Path(level.data), master)
    assert kills.sealed_bytes(level) == wanted


@pytest.mark.timeout(900)
@pytest.mark.parametrize("window", list(kills.WINDOWS))
def test_a_zombie_driver_that_wakes_later_changes_nothing(java: Path, tmp_path: Path, window: str) -> None:
    wanted = kills.undisturbed(tmp_path / "perfect", 5)
    level = kills.prepare(tmp_path / "killed", 5)
    with kills.Driver(Path(level.data), LOCAL) as zombie:
        assert zombie.kill_at(kills.WINDOWS[window], 1, "driver's JVM", signal.SIGSTOP)
        kills.run_to_the_end(Path(level.data), LOCAL)
        assert kills.sealed_bytes(level) == wanted
        assert zombie.kill_at(lambda data, batch: True, 1, "driver's JVM", signal.SIGCONT)
        zombie.wait()
    assert kills.sealed_bytes(level) == wanted
