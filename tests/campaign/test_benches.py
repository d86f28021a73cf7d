"""Every benchmark runs, in its small version: what it reads of statuses and machines is still called that."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from unerring.cli.bench import _names


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", _names())
def test_the_small_version_gives_figures(name: str) -> None:
    command = [sys.executable, "-m", "unerring", "bench", name, "--quick", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500, check=False)
    assert done.returncode == 0, done.stderr
    figures = [msgspec.json.decode(line) for line in done.stdout.splitlines()]
    assert figures
    assert all(figure["bench"] == name for figure in figures)
