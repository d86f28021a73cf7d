"""Runs on a store, in processes of their own: killed with everything that belongs to them, their scratch removed."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from tests.app.store_app import app
from tests.pipeline.driver import ROWS
from unerring.app.place import Place
from unerring.pipeline.level import Level

ROOT = Path(__file__).parents[2]
APP = "tests.app.store_app:app"
FIRST_LOOK_S = 0.05
PATIENCE_S = 400.0


def level_at(place: Place) -> Level:
    [level] = app.levels(place)
    return level


def sealed_objects(place: Place) -> dict[str, bytes]:
    """What is sealed of the outputs, byte by byte."""
    store = place.log.store
    return {
        f"{schema.name}/{name}": store.read(f"{schema.name}/segments/{name}") or b""
        for schema in app.outputs
        for name in store.names(f"{schema.name}/segments")
    }


def sealed_segments(place: Place) -> int:
    """How many segments of the first output are sealed, found by their names alone."""
    log = place.log
    if log.declaration(app.outputs[0].name) is None:
        return 0
    chain = log.chain(app.outputs[0].name)
    return len(chain.spans(chain.base.from_us, chain.refresh()))


class StoreRun:
    """`unerring run` on a store, with a scratch folder that can be lost."""

    def __init__(self, place: Place, *options: str, wrapped: Sequence[str] = ()) -> None:
        self.place = place
        place.scratch.mkdir(parents=True)
        self._log = (place.scratch.parent / f"{place.scratch.name}.log").open("ab")
        command = [*wrapped, sys.executable, "-m", "unerring", "run", APP, "--data", place.address]
        command += ["--scratch", str(place.scratch), "--rows", str(ROWS), "--memory", "700m", *options]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdout=self._log, stderr=subprocess.STDOUT, start_new_session=True
        )

    def until(self, reached: Callable[[], bool]) -> bool:
        """Wait for a moment; whether it came before the run ended."""
        while not reached():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(FIRST_LOOK_S)
                return False
        return True

    def end(self) -> int:
        """Wait for the end."""
        try:
            return self.process.wait(PATIENCE_S)
        finally:
            self.kill()

    def kill(self) -> None:
        """Everything that belongs to the run, at once."""
        with contextlib.suppress(psutil.NoSuchProcess):
            own = psutil.Process(self.process.pid)
            for one in [*own.children(recursive=True), own]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
        self.process.wait()
        self._log.close()

    def pids(self) -> list[int]:
        """The run's own process and all that it started."""
        try:
            own = psutil.Process(self.process.pid)
            return [own.pid, *(one.pid for one in own.children(recursive=True))]
        except psutil.NoSuchProcess:
            return []

    def command_lines(self) -> list[str]:
        """Of the run and all that it started, as a process list shows them."""
        own = psutil.Process(self.process.pid)
        lines = []
        for one in [own, *own.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                lines.append(" ".join(one.cmdline()))
        return lines

    def lose_the_host(self) -> None:
        self.kill()
        shutil.rmtree(self.place.scratch)

    @property
    def output(self) -> str:
        return Path(self._log.name).read_text()
