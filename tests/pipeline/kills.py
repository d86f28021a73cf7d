"""Killing drivers, JVMs, executors and Python workers at chosen moments, and starting them again until all is done."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil

from unerring.pipeline.intervals import next_end
from unerring.pipeline.level import Level
from unerring.pipeline.share import Share
from unerring.pipeline.versions import enter

from .driver import ROWS, level_in
from .worlds import Typed, advance, random_events, write

TESTS = Path(__file__).parent.parent
POLL_S = 0.001
Window = Callable[[Path, int], bool]
"""Whether the moment has come, in a run's folder, for the micro-batch of this number."""


def prepare(data: Path, seed: int, events: int = 2000) -> Level:
    """A log to be run over, cut so that it takes five micro-batches or so."""
    level = level_in(data)
    drawn = random_events(seed, events, 30)
    chain = level.log.create(level.inputs[0], level.buckets)
    last = drawn[-1].stamp.time
    scaled = [(event.stamp.time * 20_000_000) // last for event in drawn]
    moved = [
        type(e)(Typed.__name__, type(e.stamp)(i + t), e.key, e.payload)
        for i, (e, t) in enumerate(zip(drawn, scaled, strict=True))
    ]
    cuts = [moved[at].stamp.time for at in range(ROWS - 1, events, ROWS)]
    write(chain, moved, cuts)
    return level


def undisturbed(data: Path, seed: int) -> dict[str, bytes]:
    """What a run without failures seals, byte by byte: the same intervals, in this process."""
    level = prepare(data, seed)
    enter(level)
    shares = [Share(level, bucket) for bucket in range(level.buckets)]
    end = level.chains()[level.inputs[0].name].through_us
    while shares[0].through_us < end:
        advance(level, shares, next_end(level.chains(), shares[0].through_us, end, ROWS))
    return sealed_bytes(level)


def sealed_bytes(level: Level) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for schema in level.outputs:
        for path in sorted((Path(level.data) / "log" / schema.name / "segments").glob("*.parquet")):
            found[f"{schema.name}/{path.name}"] = path.read_bytes()
    return found


# Windows: what is on disk says where a micro-batch stands.


def offset_logged(data: Path, batch: int) -> bool:
    return any(data.glob(f"checkpoints/*/spark/offsets/{batch}"))


def state_written(data: Path, batch: int) -> bool:
    return any(data.glob(f"checkpoints/*/spark/state/0/0/{batch + 1}*"))


def sealing(data: Path, batch: int) -> bool:
    return _segments(data) > batch * 3 or any(data.glob("log/W?/segments/.tmp/*"))


def half_sealed(data: Path, batch: int) -> bool:
    return _segments(data) > batch * 3


def committed(data: Path, batch: int) -> bool:
    return any(data.glob(f"checkpoints/*/spark/commits/{batch}"))


WINDOWS: dict[str, Window] = {
    "after the offset log": offset_logged,
    "after the state": state_written,
    "in sealing": sealing,
    "between two streams' seals": half_sealed,
    "after the commit log": committed,
}


def _segments(data: Path) -> int:
    return len(list(data.glob("log/W?/segments/*.parquet")))


# Victims


def driver_python(process: psutil.Process) -> psutil.Process | None:
    return process


def driver_jvm(process: psutil.Process) -> psutil.Process | None:
    return next((child for child in process.children() if "java" in child.name()), None)


def executor(process: psutil.Process) -> psutil.Process | None:
    for child in process.children(recursive=True):
        if "java" in child.name() and "CoarseGrainedExecutorBackend" in " ".join(child.cmdline()):
            return child
    return None


def python_worker(process: psutil.Process) -> psutil.Process | None:
    for child in process.children(recursive=True):
        if "pyspark.daemon" in " ".join(child.cmdline()):
            return child
    return None


VICTIMS: dict[str, Callable[[psutil.Process], psutil.Process | None]] = {
    "driver's Python": driver_python,
    "driver's JVM": driver_jvm,
    "executor": executor,
    "Python workers": python_worker,
}


class Driver:
    """A driver process and everything below it; ended for good at the end of a `with`."""

    def __init__(self, data: Path, master: str) -> None:
        self.data = data
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}
        command = [sys.executable, "-m", "pipeline.driver", str(data), master]
        with (data / "driver.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
        self.tree = psutil.Process(self.process.pid)

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *error: object) -> None:
        for process in [*self._below(), self.tree]:
            _signal(process, signal.SIGKILL)
        self.process.wait()

    def wait(self, timeout_s: float = 400) -> int:
        return self.process.wait(timeout_s)

    def kill_at(self, window: Window, batch: int, victim: str, number: int = signal.SIGKILL) -> bool:
        """Wait for the window, then send the victim a signal; False if the driver ended before."""
        while self.process.poll() is None:
            if window(self.data, batch):
                try:
                    found = VICTIMS[victim](self.tree)
                except psutil.NoSuchProcess:
                    found = None
                if found is not None:
                    _signal(found, number)
                    return True
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(POLL_S)
        return False

    def _below(self) -> list[psutil.Process]:
        try:
            return self.tree.children(recursive=True)
        except psutil.NoSuchProcess:
            return []


def _signal(process: psutil.Process, number: int) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return


def run_to_the_end(data: Path, master: str, tries: int = 4) -> None:
    """Start drivers until one comes to the end."""
    for _ in range(tries):
        with Driver(data, master) as driver:
            if driver.wait() == 0:
                return
    raise AssertionError((data / "driver.log").read_text()[-4000:])
