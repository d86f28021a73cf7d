"""Killing drivers, JVMs, executors and Python workers at chosen moments, and starting them again until all is done."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil

from unerring.log import segment_name
from unerring.model import TIME_MIN
from unerring.pipeline.intervals import next_end
from unerring.pipeline.level import Level
from unerring.pipeline.partition import Partition
from unerring.pipeline.versions import enter

from .driver import ROWS, level_in
from .worlds import Typed, advance, random_events, write

TESTS = Path(__file__).parent.parent
POLL_S = 0.003
Window = Callable[[Path, int], bool]
"""Whether the moment has come, in a run's folder, for the micro-batch of this number."""


def prepare(data: Path, seed: int, events: int = 2000, rows: int = ROWS) -> Level:
    """A log to be run over, cut so that every micro-batch takes `rows` events: five of them, unless told otherwise."""
    return prepare_level(level_in(data), seed, events, rows)


def prepare_level(level: Level, seed: int, events: int = 2000, rows: int = ROWS) -> Level:
    """The same for a level in any place."""
    drawn = random_events(seed, events, 30)
    chain = level.log.create(level.inputs[0], level.buckets)
    last = drawn[-1].stamp.time
    scaled = [(event.stamp.time * 20_000_000) // last for event in drawn]
    moved = [
        type(e)(Typed.__name__, type(e.stamp)(i + t), e.key, e.payload)
        for i, (e, t) in enumerate(zip(drawn, scaled, strict=True))
    ]
    cuts = [moved[at].stamp.time for at in range(rows - 1, events, rows)]
    write(chain, moved, cuts)
    return level


def undisturbed(data: Path, seed: int, events: int = 2000, rows: int = ROWS) -> dict[str, bytes]:
    """What a run without failures seals, byte by byte: the same intervals, in this process."""
    level = prepare(data, seed, events, rows)
    enter(level)
    partitions = [Partition(level, bucket) for bucket in range(level.buckets)]
    end = level.chains()[level.inputs[0].name].through_us
    while partitions[0].through_us < end:
        advance(level, partitions, next_end(level.chains(), partitions[0].through_us, end, rows))
    return sealed_bytes(level)


def sealed_bytes(level: Level) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for schema in level.outputs:
        for path in sorted((Path(level.address) / "log" / schema.name / "segments").glob("*.parquet")):
            found[f"{schema.name}/{path.name}"] = path.read_bytes()
    return found


# Windows: what is on disk says where a micro-batch stands.


def offset_logged(data: Path, batch: int) -> bool:
    return any(data.glob(f"checkpoints/*/*/offsets/{batch}"))


def state_written(data: Path, batch: int) -> bool:
    through_us = _offset(data, batch)
    return through_us is not None and any(data.glob(f"states/*/{through_us - TIME_MIN:019d}.*"))


def sealing(data: Path, batch: int) -> bool:
    return half_sealed(data, batch) or any(data.glob("log/W?/segments/.tmp/*"))


def half_sealed(data: Path, batch: int) -> bool:
    from_us = _offset(data, batch - 1)
    return from_us is not None and any(data.glob(f"log/W?/segments/{segment_name(from_us)}"))


def committed(data: Path, batch: int) -> bool:
    return any(data.glob(f"checkpoints/*/*/commits/{batch}"))


def sealed_count(data: Path, count: int) -> bool:
    """Whether so many intervals are sealed: a window for drivers without micro-batches."""
    return count_sealed(data) >= count


def count_sealed(data: Path) -> int:
    return sum(1 for _ in (data / "log" / "W3" / "segments").glob("*.parquet"))


WINDOWS: dict[str, Window] = {
    "after the offset log": offset_logged,
    "after the state": state_written,
    "in sealing": sealing,
    "between two streams' seals": half_sealed,
    "after the commit log": committed,
}


def _offset(data: Path, batch: int) -> int | None:
    """The end of a micro-batch; None if it is not planned yet. Before the first one is where the query began."""
    for path in data.glob("checkpoints/*/begun" if batch < 0 else f"checkpoints/*/*/offsets/{batch}"):
        try:
            last = path.read_text().splitlines()[-1]
            return int(last if batch < 0 else json.loads(last)["through_us"])
        except (OSError, ValueError, IndexError):
            return None  # it is being written
    return None


# Victims


def driver_python(process: psutil.Process) -> psutil.Process | None:
    return process


def driver_jvm(process: psutil.Process) -> psutil.Process | None:
    return next((child for child in process.children() if "java" in child.name()), None)


def executor(process: psutil.Process) -> psutil.Process | None:
    return next(_executors(process), None)


def executors(process: psutil.Process) -> set[int]:
    """The numbers of those that there are."""
    try:
        return {child.pid for child in _executors(process)}
    except psutil.NoSuchProcess:
        return set()


def _executors(process: psutil.Process) -> Iterator[psutil.Process]:
    for child in process.children(recursive=True):
        if "java" in child.name() and "CoarseGrainedExecutorBackend" in " ".join(child.cmdline()):
            yield child


def python_worker(process: psutil.Process) -> psutil.Process | None:
    for child in process.children(recursive=True):
        if "unerring.pipeline.daemon" in " ".join(child.cmdline()):
            return next(iter(child.children()), child)
    return None


def source(process: psutil.Process) -> psutil.Process | None:
    """The Python process beside the driver that cuts time into intervals."""
    for child in process.children(recursive=True):
        if "python_streaming_source_runner" in " ".join(child.cmdline()):
            return child
    return None


VICTIMS: dict[str, Callable[[psutil.Process], psutil.Process | None]] = {
    "driver's Python": driver_python,
    "driver's JVM": driver_jvm,
    "executor": executor,
    "Python workers": python_worker,
    "source's Python": source,
}


class Driver:
    """A driver process and everything below it; ended for good at the end of a `with`."""

    def __init__(
        self,
        data: Path,
        master: str,
        rows: int = ROWS,
        resident: bool = False,
        settings: Sequence[str] = (),
        module: str = "pipeline.driver",
    ) -> None:
        self.data = data
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}
        command = [
            sys.executable,
            "-m",
            module,
            str(data),
            master,
            str(rows),
            *(["resident"] if resident else []),
            *settings,
        ]
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
        return self._strike(window, batch, victim, number) is not None

    def stop_at(self, window: Window, batch: int, victim: str) -> psutil.Process | None:
        """Wait for the window, then put the victim to sleep; it is the caller's to wake."""
        return self._strike(window, batch, victim, signal.SIGSTOP)

    def reach(self, window: Window, batch: int) -> bool:
        """Wait for the window; False if the driver ended before."""
        return self._strike(window, batch, "driver's Python", 0) is not None

    def _strike(self, window: Window, batch: int, victim: str, number: int) -> psutil.Process | None:
        while self.process.poll() is None:
            if window(self.data, batch):
                try:
                    found = VICTIMS[victim](self.tree)
                except psutil.NoSuchProcess:
                    found = None
                if found is not None:
                    _signal(found, number)
                    return found
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(POLL_S)
        return None

    def _below(self) -> list[psutil.Process]:
        try:
            return self.tree.children(recursive=True)
        except psutil.NoSuchProcess:
            return []


def storm(data: Path, master: str, blows: Sequence[tuple[str, str]], rows: int) -> list[tuple[str, str]]:
    """Kill victim after victim, each in its window of some micro-batch, in one folder; then run to the end.

    Executors and Python workers are killed under a driver that goes on; a driver that is gone is started again. What
    was hit is returned: fewer than were asked for if the log came to its end first.
    """
    hit: list[tuple[str, str]] = []
    left = list(blows)
    while left:
        # Spark's checkpoint is disposable: each driver numbers its micro-batches from 0.
        shutil.rmtree(data / "checkpoints", ignore_errors=True)
        with Driver(data, master, rows) as driver:
            while left and driver.kill_at(WINDOWS[left[0][1]], _begun(data), left[0][0]):
                hit.append(left.pop(0))
                if hit[-1][0].startswith("driver's"):
                    break
            else:
                if driver.wait() == 0:
                    return hit
    run_to_the_end(data, master, rows=rows)
    return hit


def _begun(data: Path) -> int:
    """The micro-batch that no driver has begun yet."""
    return max((int(path.name) for path in data.glob("checkpoints/*/*/offsets/[0-9]*")), default=-1) + 1


def _signal(process: psutil.Process, number: int) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return


def wake(process: psutil.Process) -> None:
    """One that was put to sleep, if it is still there."""
    _signal(process, signal.SIGCONT)


def run_to_the_end(data: Path, master: str, tries: int = 4, rows: int = ROWS, resident: bool = False) -> None:
    """Start drivers until one comes to the end."""
    for _ in range(tries):
        with Driver(data, master, rows, resident) as driver:
            if driver.wait() == 0:
                return
    raise AssertionError((data / "driver.log").read_text()[-4000:])
