"""The demonstration, as a person would start it."""

from __future__ import annotations

import json
import subprocess
import sys


def test_the_demo_ends_with_a_ledger_that_balances() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "unerring", "demo", "--fast", "--json", "--seed", "7"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    verdict = json.loads(ran.stdout)
    assert verdict["holds"] is True
    assert verdict["published"] > 500
    assert verdict["lost_in_transit"] > 0, "the networks did lose something"
    assert all("–? of epoch " in ranges for ranges in verdict["declared_lost"].values()), "the kill left an open end"
