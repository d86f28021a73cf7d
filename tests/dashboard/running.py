"""A factory that runs: its producer, its services, `unerring run`, and the dashboard, each a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from tests.dashboard.plant import EXAMPLES
from unerring.app import ledgers
from unerring.app.status import RunStatus

ROOT = Path(__file__).parents[2]
PATIENCE_S = 600.0
TOKEN = "for-the-tests"


def until(condition: Callable[[], Any], why: str) -> Any:
    """Wait for a condition; what it said."""
    turn, deadline = threading.Event(), time.monotonic() + PATIENCE_S
    while True:
        told = condition()
        if told:
            return told
        assert time.monotonic() < deadline, f"never came true: {why}"
        turn.wait(0.1)


class Running:
    """Processes that are ended in the reverse order of their start."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "run"
        self.address = ""
        self._stack = ExitStack()
        self._looking: RunStatus | None = None
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(EXAMPLES), str(ROOT)]),
            "UNERRING_TOKEN": TOKEN,
        }

    def start(self, *command: str, name: str) -> subprocess.Popen[str]:
        log = self._stack.enter_context((self.folder / f"{name}.log").open("w"))
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=ROOT,
            env=self.environment,
        )
        self._stack.callback(_end, process)
        return process

    def first_line(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        assert line, f"it ended with code {process.wait()}; its words are in {self.folder}"
        return line

    def factory(self, events: int = 1500) -> None:
        """Run it; its press begins when the run is subscribed."""
        press = self.start("tests.dashboard.press", str(self.folder), str(events), name="press")
        self.environment["FACTORY_CHANNELS"] = self.first_line(press)
        services = self.start("factory.services", str(self.folder / "services"), name="services")
        self.environment["FACTORY_SERVICES"] = self.first_line(services)
        app = ("tests.dashboard.small:app", "--engine", "live", "--f", "1", "--data", str(self.data))
        self.start("unerring", "run", *app, name="run")
        until(lambda: ledgers.read(self.data).accounts, "the run is subscribed")
        assert press.stdin is not None
        press.stdin.write("go\n")
        press.stdin.flush()

    def dashboard(self) -> str:
        """Its address."""
        serving = self.start("unerring", "dashboard", str(self.data), "--public", "--port", "0", name="dashboard")
        return self.first_line(serving).split()[0]

    def look(self) -> dict[str, Any]:
        """The status document, without a process for it."""
        if self._looking is None:
            self._looking = RunStatus(self.data)
        return self._looking.look()

    def status(self) -> dict[str, Any]:
        """What `unerring status --json` says."""
        command = [sys.executable, "-m", "unerring", "status", str(self.data), "--json"]
        done = subprocess.run(command, capture_output=True, cwd=ROOT, env=self.environment, check=False)
        assert done.returncode == 0, done.stderr.decode()
        told: dict[str, Any] = msgspec.json.decode(done.stdout)
        return told

    def close(self) -> None:
        self._stack.close()


def _end(process: subprocess.Popen[str]) -> None:
    if process.stdin is not None:
        process.stdin.close()
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(600)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
