"""Processes that stand still together, and always go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from unerring.model import WorldError
from unerring.runtime import Process, family, paused

WRITER = """
import subprocess, sys, threading
child = subprocess.Popen([sys.executable, "-c", sys.argv[2], sys.argv[1] + "/child", ""]) if sys.argv[2] else None
n = 0
while True:
    n += 1
    open(sys.argv[1] + ("/parent" if child else ""), "w").write(str(n))
    threading.Event().wait(0.001)
"""
PAUSER = """
import sys
from unerring.runtime import Process, family, paused
with paused(family([Process(int(sys.argv[1]), None)]), 60):
    print("still", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that counts in a file, and has a child that counts in another one."""
    (tmp_path / "counts").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path / "counts"), WRITER.replace('"/parent" if child else ""', '""')],
        start_new_session=True,
    )
    until_moving(tmp_path)
    yield process
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def counts(tmp_path: Path) -> tuple[str, ...]:
    return tuple(
        path.read_text() if path.exists() else "" for path in (tmp_path / "counts" / n for n in ("parent", "child"))
    )


def until_moving(tmp_path: Path) -> None:
    """Both count on, from where they are."""
    before = counts(tmp_path)
    end_s = time.monotonic() + 60
    while any(one == two or not two for one, two in zip(before, counts(tmp_path), strict=True)):
        assert time.monotonic() < end_s, counts(tmp_path)
        threading.Event().wait(0.005)


def states(pids: list[int]) -> set[str]:
    return {Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in pids}


def test_a_process_and_its_children_stand_still_and_go_on(tmp_path: Path, parent: subprocess.Popen[bytes]) -> None:
    both = family([Process(parent.pid, None)])
    assert both[0].pid == parent.pid
    assert len(both) == 2
    with paused(both, 30):
        assert states([process.pid for process in both]) == {"T"}
        before = counts(tmp_path)
        assert counts(tmp_path) == before
    until_moving(tmp_path)


def test_they_go_on_when_whoever_stopped_them_is_killed(tmp_path: Path, parent: subprocess.Popen[bytes]) -> None:
    pauser = subprocess.Popen(
        [sys.executable, "-c", PAUSER, str(parent.pid)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert pauser.stdout is not None
    assert pauser.stdin is not None
    assert pauser.stdout.readline() == b"still\n"
    assert states([parent.pid]) == {"T"}
    pauser.kill()
    pauser.wait()
    pauser.stdin.close()
    pauser.stdout.close()
    until_moving(tmp_path)


def test_a_pause_that_takes_too_long_ends_and_is_an_error(tmp_path: Path, parent: subprocess.Popen[bytes]) -> None:
    with pytest.raises(WorldError, match="stop it first"), paused(family([Process(parent.pid, None)]), 0.5):
        until_moving(tmp_path)  # the guard let them go on
    until_moving(tmp_path)


def test_nobody_to_stop_is_no_pause() -> None:
    with paused([], 0):
        pass
