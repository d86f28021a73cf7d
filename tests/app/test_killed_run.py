"""`unerring run` killed with -9: the next run adopts or ends what is left, and "stopped" means that nothing runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from unerring.app.status import RunStatus
from unerring.runtime.os_processes import Process, end_all, find, marked

ROOT = Path(__file__).parent.parent.parent
APP = """
import msgspec
from tests.app.tree_app import Rate, Reading
from unerring import App, Process, Service

class Order(msgspec.Struct):
    n: int = 0
    truck: int = 0

order = Process("order", state=Order, services=[Service("stock")])

@order.action(service="stock", writes="truck", write=True)
async def dispatch(n: int) -> int: ...

order.flow(dispatch)
app = App("tree", rules=[Rate], streams=[Reading], buckets=1, processes=[order], services={"stock": "http://127.0.0.1:9"})
"""
LIVE = ("source_Reading/0", "Rate/0", "situations/0")


def until(condition: Callable[[], bool], run: subprocess.Popen[str]) -> None:
    end_s = time.monotonic() + 120
    while not condition():
        assert run.poll() is None, run.communicate()
        assert time.monotonic() < end_s
        threading.Event().wait(0.02)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "killed_app.py").write_text(APP)
    return tmp_path


def begin(folder: Path) -> subprocess.Popen[str]:
    paths = os.pathsep.join([str(folder), str(ROOT), str(ROOT / "src")])
    return subprocess.Popen(
        [sys.executable, "-m", "unerring", "run", "killed_app:app", "--engine", "live", "--f", "0", "--data", "run"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def processes_of(data: Path) -> dict[str, Process]:
    named = [(data / "processes", "n0"), *((data / "live", name) for name in LIVE)]
    found = {name: find(where, name) for where, name in named}
    return {name: process for name, process in found.items() if process is not None}


def answers(data: Path) -> bool:
    return len(processes_of(data)) == 4 and (data / "processes" / "n0.sock").exists()


def test_a_run_after_one_that_was_killed_leaves_nobody_behind(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = folder / "run"
    first = begin(folder)
    until(lambda: answers(data), first)
    refused = begin(folder)
    assert refused.wait(600) == 2, "one run is enough"
    assert "belongs to another run: process" in refused.communicate()[1]
    first.kill()
    first.communicate()
    left = processes_of(data)
    assert sorted(left) == sorted(["n0", *LIVE]), "they outlive their supervisor"
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    notes = RunStatus(data).look()["run"]["notes"]
    assert any(f"the run's own process {first.pid} is gone, and 4 processes of it are left" in note for note in notes)

    second = begin(folder)
    until(lambda: not left["n0"].alive and answers(data), second)
    assert all(left[name].alive for name in LIVE), "replicas are adopted: their memory is worth keeping"
    now = processes_of(data)
    second.send_signal(signal.SIGTERM)
    said = second.communicate(timeout=600)
    assert second.returncode == 0, said
    assert "ending the process nodes that a killed run left behind: 1" in said[1].replace("\n", " ")
    assert "ended with code" not in said[1]
    assert "stopped" in said[1]
    assert not any(process.alive for process in (*left.values(), *now.values()))


def test_processes_are_found_by_their_mark_and_ended_even_if_they_will_not(tmp_path: Path) -> None:
    stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); signal.pause()"
    marks = [f"{tmp_path} n0", f"{tmp_path} n1", f"{tmp_path}-other n0"]
    children = [
        subprocess.Popen(
            [sys.executable, "-c", stubborn], env={**os.environ, "MARK": mark}, stdout=subprocess.PIPE, text=True
        )
        for mark in marks
    ]
    try:
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "up\n"
        found = marked(f"MARK={tmp_path} ")
        assert sorted(process.pid for process in found) == sorted(child.pid for child in children[:2])
        end_all(found, within_s=0)
        assert [child.wait(600) for child in children[:2]] == [-signal.SIGKILL, -signal.SIGKILL]
        assert children[2].poll() is None
    finally:
        for child in children:
            child.kill()
            child.communicate()
