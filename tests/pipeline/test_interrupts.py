"""A run on Spark is asked to end, as a terminal, `timeout` or systemd does it: in order, and nothing stays behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

APP = """
from unerring import App
from unerring.rules.workloads import W1
app = App("trial", rules=[W1], buckets=1)
"""


class Running:
    """`unerring run` in a process group of its own."""

    def __init__(self, folder: Path) -> None:
        (folder / "trial_app.py").write_text(APP)
        self.told = folder / "told.txt"
        command = [sys.executable, "-m", "unerring", "run", "trial_app:app", "--data", "run", "--master", "local[1]"]
        with self.told.open("wb") as out:
            self.process = subprocess.Popen(
                [*command, "--memory", "512m"], cwd=folder, stdout=out, stderr=out, start_new_session=True
            )
        self.family = psutil.Process(self.process.pid)

    def wait(self, condition: Callable[[], bool]) -> None:
        pause = threading.Event()
        for _ in range(6000):
            if condition():
                return
            assert self.process.poll() is None, self.told.read_text()
            pause.wait(0.02)
        raise AssertionError(f"it did not come to that: {self.told.read_text()}")

    def has_jvm(self) -> bool:
        """Spark's own: before it there are short ones that say their version and make its command line."""
        for child in self.family.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                command = child.cmdline()
                if "org.apache.spark.deploy.SparkSubmit" in command and "java" in command[0]:
                    return "org.apache.spark.launcher.Main" not in command
        return False

    def end(self, number: signal.Signals) -> tuple[int, str]:
        """Send a signal to the whole group; the exit code and what was said, once nothing of it is left."""
        started = self.family.children(recursive=True)
        os.killpg(self.process.pid, number)
        code = self.process.wait(600)
        _, left = psutil.wait_procs(started, 60)
        assert not left
        return code, self.told.read_text()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_while_spark_starts(java: Path, tmp_path: Path, number: signal.Signals, code: int) -> None:
    run = Running(tmp_path)
    run.wait(run.has_jvm)
    ended, told = run.end(number)
    assert ended == code
    assert "interrupted while starting" in told
    assert "stopped:" not in told
    assert "Traceback" not in told


def test_a_signal_to_the_whole_group_stops_a_run_in_order(java: Path, tmp_path: Path) -> None:
    run = Running(tmp_path)
    run.wait(lambda: "trial runs in run" in run.told.read_text())
    ended, told = run.end(signal.SIGTERM)
    assert ended == 0
    assert "stopped: 0 events" in told
    assert "Traceback" not in told
    assert "py4j" not in told.lower()
    assert len(told.splitlines()) < 10
