"""`unerring upgrade` as a user enters it, beside a live run that goes on in another process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.app.live_tree import feed, readings
from tests.app.tree_app import Reading
from unerring.app.place import place_of
from unerring.app.status import RunStatus
from unerring.log import LogWriter
from unerring.model import schema_of
from unerring.pipeline import current

PLANT = """
from tests.app.tree_app import Rate, Reading
from unerring.app import App

app = App("plant", rules=[Rate], streams=[Reading], buckets=1)
"""
WIDER = """
from tests.app.tree_app import Reading, WiderRate
from unerring.app import App

app = App("plant", rules=[WiderRate], streams=[Reading], buckets=1)
"""
PATIENCE_S = 300.0
ROOT = Path(__file__).parent.parent.parent
UNERRING = [sys.executable, "-m", "unerring"]


class Beside:
    """A live run of `plant:app`, and commands that see other modules than it does."""

    def __init__(self, folder: Path, plant: str = PLANT, wider: str = WIDER) -> None:
        self.home, self.data, self.other = folder / "home", folder / "data", folder / "other"
        for at, module, text in ((self.home, "plant", plant), (self.other, "wider", wider)):
            at.mkdir()
            (at / f"{module}.py").write_text(text)
        self.place = place_of(self.data)
        self.writer = LogWriter(self.place.log, schema_of(Reading), None, 1)
        self.events = iter(readings(30_000))
        self.log = folder / "run.log"
        self._pause = threading.Event()

    def start(self, app: str) -> None:
        command = [*UNERRING, "run", app, "--engine", "live", "--f", "0", "--data", str(self.data)]
        with self.log.open("ab") as log:
            self.run = subprocess.Popen(command, cwd=self.home, env=self._env, stdout=log, stderr=log)

    def stop(self) -> None:
        self.run.send_signal(signal.SIGINT)
        self.run.wait(PATIENCE_S)

    @property
    def _env(self) -> dict[str, str]:
        return {**os.environ, "COLUMNS": "1000", "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}

    def feed_until(self, condition: Callable[[], bool]) -> None:
        """Time goes by in the log, until something is so."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline_s, self.said()
            assert self.run.poll() is None, self.said()
            feed(self.writer, list(islice(self.events, 4)))
            self._pause.wait(0.028)

    def enter(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [*UNERRING, "upgrade", *words]
        return subprocess.run(command, cwd=self.other, env=self._env, capture_output=True, text=True, check=False)

    def said(self) -> str:
        return self.log.read_text()

    def through_us(self) -> int:
        """How far situations are sealed."""
        return self.place.log.chain("Rate").refresh()

    def problems(self) -> list[str]:
        told: list[dict[str, Any]] = RunStatus(self.data).look()["health"]["problems"]
        return [one["says"] for one in told if one["kind"] == "part"]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Beside]:
    yield from going_on(Beside(tmp_path))


def going_on(run: Beside) -> Iterator[Beside]:
    run.start("plant:app")
    try:
        run.feed_until(lambda: run.place.log.declaration("Rate") is not None and run.through_us() > 0)
        yield run
    finally:
        run.stop()


@pytest.mark.timeout(900)
def test_a_module_that_the_run_cannot_load_lets_the_old_rules_go_on(run: Beside) -> None:
    agreed = run.enter("wider:app", str(run.data), "--json")
    assert json.loads(agreed.stdout) == {"upgrade": 1, "at_us": None, "done": False}
    run.feed_until(lambda: bool(run.problems()))
    (says,) = run.problems()
    assert says.startswith("upgrade waits: the rules of wider:app cannot take over here: there is no module 'wider'")
    assert "Correct that on this host; it is tried every 5 s, and the rules that run go on" in says
    reached_us = run.through_us()
    (run.home / "wider.py").write_text("half = \n")
    run.feed_until(lambda: "wider could not be loaded: SyntaxError" in run.said())
    run.feed_until(lambda: run.through_us() > reached_us)
    (run.home / "wider.py").write_text(PLANT)
    run.feed_until(lambda: "wider:app has other rules than those that were agreed" in run.said())
    assert current(run.place.log).app == "plant:app"  # type: ignore[union-attr]
    (run.home / "wider.py").write_text(WIDER)
    run.feed_until(lambda: "the rules of wider:app take over\n" in run.said())
    run.feed_until(lambda: current(run.place.log).app == "wider:app")  # type: ignore[union-attr]
    assert run.said().count("there is no module 'wider'") == 1
    assert run.said().count("upgrade goes on") == 1
    run.feed_until(lambda: not run.problems())
