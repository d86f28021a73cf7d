"""Every scenario on thousands of seeds, all its mutants, and every rare state that it must reach."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from unerring.simulation import names

SEEDS = int(os.environ.get("UNERRING_CAMPAIGN_SEEDS", "2000"))


@pytest.mark.fixed_seeds
@pytest.mark.parametrize("name", names())
def test_thousands_of_seeds(name: str) -> None:
    command = [sys.executable, "-m", "unerring", "simulate", name, "--seeds", str(SEEDS), "--mutants", "--strict"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, done.stdout
