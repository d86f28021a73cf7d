"""Kill -9 at random moments, zombies beside it, and then the audit of the target. The long form is in campaign/."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.sinks.places import RealPlace
from tests.sinks.service import Service, keys_of
from tests.sinks.world import SCHEMA, wrong_in
from unerring.log import EventLog, LocalStore
from unerring.sinks import known

ROOT = Path(__file__).parent.parent.parent
KILLS = {"postgresql": 6, "delta": 6, "kafka": 6, "iceberg": 3, "webhook": 6}
"""By sink; more than 20 together. A commit of Iceberg takes ten times as long as the others'."""
KILL_S = 60
"""A kill and what is tried around it may take so long beside other work."""


def kill_drivers(url: str, folder: Path, name: str, kills: int, seed: int) -> dict[str, float]:
    """Seal situations and kill drivers that deliver them; the last one may finish."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.sinks.killed", url, folder, name, str(kills), str(seed)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=300 + KILL_S * kills,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    figures: dict[str, float] = json.loads(done.stdout)
    assert figures["killed"] == kills
    return figures


def killed(place: RealPlace, folder: Path, kills: int, seed: int) -> dict[str, float]:
    """Kill drivers of a sink; nothing is missing, double, false or out of order in the target afterwards."""
    name = f"killed{seed}"
    figures = kill_drivers(place.url(name), folder, name, kills, seed)
    record = known(LocalStore(folder), name)
    assert record is not None
    target = place.open(name, record)
    try:
        assert wrong_in(target, EventLog(folder / "log").chain(SCHEMA.name)) == {}
    finally:
        target.close()
    return figures


def killed_webhook(folder: Path, kills: int, seed: int) -> dict[str, float]:
    """Kill drivers that post to a service: it has everything, in order, if it drops the keys that it has already."""
    service = Service()
    try:
        figures = kill_drivers(service.url, folder, f"killed{seed}", kills, seed)
    finally:
        service.end()
    assert list(dict.fromkeys(service.keys())) == keys_of(EventLog(folder / "log").chain(SCHEMA.name))
    return figures | {"again": len(service.taken) - len(set(service.keys()))}


def test_drivers_that_are_killed_lose_and_double_nothing(real_place: RealPlace, tmp_path: Path) -> None:
    killed(real_place, tmp_path, KILLS[real_place.kind], seed=1)


def test_a_service_gets_everything_from_drivers_that_are_killed(tmp_path: Path) -> None:
    killed_webhook(tmp_path, KILLS["webhook"], seed=1)
