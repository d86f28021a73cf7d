"""Kill -9 at random moments, zombies beside it, and then the audit of the target. The long form is in campaign/."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.sinks.places import RealPlace
from tests.sinks.world import SCHEMA, wrong_in
from unerring.log import EventLog, LocalStore
from unerring.sinks import known

ROOT = Path(__file__).parent.parent.parent
KILLS = {"postgresql": 6, "delta": 6, "kafka": 6, "iceberg": 3}
"""By sink; more than 20 together. A commit of Iceberg takes ten times as long as the others'."""


def killed(place: RealPlace, folder: Path, kills: int, seed: int) -> dict[str, float]:
    """Kill drivers of a sink; nothing is missing, double, false or out of order in the target afterwards."""
    name = f"killed{seed}"
    done = subprocess.run(
        [sys.executable, "-m", "tests.sinks.killed", place.url(name), folder, name, str(kills), str(seed)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=1500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    record = known(LocalStore(folder), name)
    assert record is not None
    target = place.open(name, record)
    try:
        assert wrong_in(target, EventLog(folder / "log").chain(SCHEMA.name)) == {}
    finally:
        target.close()
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def test_drivers_that_are_killed_lose_and_double_nothing(real_place: RealPlace, tmp_path: Path) -> None:
    kills = KILLS[real_place.kind]
    assert killed(real_place, tmp_path, kills, seed=1)["killed"] == kills
