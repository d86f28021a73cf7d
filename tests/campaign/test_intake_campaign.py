"""Intake under kills: of a driver at every change of the store, and of every part of a Spark job, in every window."""

from __future__ import annotations

import importlib
import signal
import sys
from pathlib import Path
from types import ModuleType

import pytest

from unerring.log import EventLog, Quarantine


def _beside(name: str) -> ModuleType:
    """A module of the other tests, which are packages beside this folder."""
    tests = Path(__file__).parent.parent
    if str(tests) not in sys.path:
        sys.path.append(str(tests))
    return importlib.import_module(name)


core = _beside("log.test_intake")
kills = _beside("pipeline.intake_kills")
drivers = _beside("pipeline.kills")
LOCAL = "local[2,4]"
CLUSTER = "local-cluster[2,1,1024]"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("number", range(12))
def test_kills_at_every_change_of_the_store(seed: int, number: int) -> None:
    assert core.kill_at_changes(12 * seed + number, stride=1) > 20


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("master", [LOCAL, CLUSTER])
def test_kills_of_every_part_in_every_window(java: Path, tmp_path: Path, master: str) -> None:
    wanted, kept_out = kills.undisturbed(kills.prepare(tmp_path, 3, 16))
    victims = ["driver's JVM", "driver's Python", *(["executor"] if master == CLUSTER else [])]
    blows = [(victim, window, 2 + 3 * at) for at, window in enumerate(kills.WINDOWS) for victim in victims]
    hit = kills.storm(tmp_path, master, blows)
    assert len(hit) * 2 >= len(blows), "the windows must be hit"
    assert kills.sealed_bytes(tmp_path) == wanted
    assert Quarantine(EventLog(tmp_path / "log").store, "Reading").counts() == kept_out


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("window", list(kills.WINDOWS))
def test_a_zombie_driver_that_wakes_later_changes_nothing(java: Path, tmp_path: Path, window: str) -> None:
    """Another driver, with the same checkpoint, does everything while this one sleeps."""
    wanted, kept_out = kills.undisturbed(kills.prepare(tmp_path, 4, 6))
    with drivers.Driver(tmp_path, LOCAL, 1, module=kills.MODULE) as zombie:
        assert zombie.kill_at(kills.WINDOWS[window], 2, "driver's Python", signal.SIGSTOP), "the window must be hit"
        kills.run_to_the_end(tmp_path, LOCAL)
        drivers.wake(zombie.tree)
        zombie.wait()
    assert kills.sealed_bytes(tmp_path) == wanted
    assert Quarantine(EventLog(tmp_path / "log").store, "Reading").counts() == kept_out
