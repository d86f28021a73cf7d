"""The live engine on real processes: replicas are killed and stopped, and what is delivered is perfect all the same."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.app.live_tree import LiveTree


@pytest.mark.timeout(300)
def test_replicas_are_killed_and_nothing_is_wrong(tmp_path: Path) -> None:
    tree = LiveTree(tmp_path, events=300, seed=3)
    asyncio.run(tree.run(failures=4))
    assert tree.violations() == []
    assert tree.kills > 0


def test_status_of_a_folder_without_a_run_is_a_sentence(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "unerring", "status", "--data", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "is not a run's folder" in done.stderr


@pytest.mark.timeout(300)
def test_the_command_runs_and_status_shows_a_leader_of_every_rule(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "unerring"]
    run = subprocess.Popen(
        [*command, "run", "tests.app.tree_app:app", "--engine", "live", "--f", "1", "--data", str(tmp_path)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        leaders: set[str] = set()
        while leaders != {"Rate", "Steps", "Peaks"}:
            assert run.poll() is None
            status = [*command, "status", "--json", "--data", str(tmp_path)]
            told = subprocess.run(status, capture_output=True, text=True, check=False).stdout
            entries = msgspec.json.decode(told)["live"]["processes"] if told else []
            leaders = {entry["name"].partition("/")[0] for entry in entries if entry.get("leads")}
    finally:
        run.send_signal(signal.SIGINT)
        assert run.wait(600) == 0
