"""The factory for hours, with a failure every twenty seconds: what it takes must not grow, and nothing may be wrong.

UNERRING_SOAK_S says how long (600 s), UNERRING_SOAK_RATE how many events a second (250: what two cores that also do
other things keep up with; they do not with 2 000). Whatever is killed is started again by the run itself. Samples go to
`samples.csv` in the test's folder; the slopes are printed. What compaction replaced lies there for an hour, so that the
size of the log on the disk is judged only in a soak that is long beside that.
"""

from __future__ import annotations

import csv
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from unerring.app import place_of
from unerring.log import Chain
from unerring.log.index import GRACE_S
from unerring.model import TIME_MAX

ROOT = Path(__file__).parents[2]
SECONDS = float(os.environ.get("UNERRING_SOAK_S", "600"))
RATE = int(os.environ.get("UNERRING_SOAK_RATE", "250"))
FAILURE_S = 20.0
SAMPLE_S = 10.0
WARM = 0.3
"""The part of the time in which caches, pools and the log's retention fill up."""
GROWTH_MAX = 0.25
"""How much more the last third may take than the one after warming up: short soaks fluctuate."""
SETTLE_S = 600.0
SERVICES = ("storage", "parts", "trucks", "notes")
NAMES = ("rss_mib", "threads", "descriptors", "processes", "disk_mib", "behind_s")


class Soak:
    """The plant, its services and a live run, watched from outside."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run = folder / "run"
        self.samples: list[dict[str, float]] = []
        self._parts: dict[str, subprocess.Popen[str]] = {}
        self._ended: list[subprocess.Popen[str]] = []
        self._listening: list[threading.Thread] = []
        self._pause = threading.Event()
        self.environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*self.paths(), *filter(None, sys.path)])}

    @staticmethod
    def paths() -> list[str]:
        return [str(ROOT), str(ROOT / "examples")]

    def start(self, events: int, seed: int) -> None:
        self.environment["FACTORY_SERVICES"] = self._part(
            "services", "-m", "factory.services", self.folder / "services"
        )
        plant = ["--seed", seed, "--events", events, "--rate", RATE]
        channels = self._part("plant", "-m", "factory.producer", self.folder / "plant", *plant)
        self.environment["FACTORY_CHANNELS"] = channels
        command = ["-m", "unerring", "run", "tests.app.soak_app:app", "--engine", "live", "--f", 1, "--data", self.run]
        self._part("run", *command, heard=False)

    def _part(self, name: str, *arguments: object, heard: bool = True) -> str:
        """Start it; what it says first."""
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *map(str, arguments)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if heard else log,
                stderr=log,
                text=True,
                env=self.environment,
                cwd=ROOT,
                start_new_session=True,
            )
        self._parts[name] = process
        if not heard or process.stdout is None:
            return ""
        told = process.stdout.readline().strip()
        self._listening.append(threading.Thread(target=process.stdout.read, daemon=True))
        self._listening[-1].start()
        return told

    def stop(self) -> None:
        for name in ("run", "plant", "services"):
            process = self._parts.pop(name, None)
            if process is None:
                continue
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(120)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            self._ended.append(process)
        for thread in self._listening:
            thread.join()
        for process in self._ended:
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()

    def until(self, condition: Callable[[], bool], within_s: float, what: str) -> None:
        end_s = time.monotonic() + within_s
        while not condition():
            assert time.monotonic() < end_s, f"{what} did not come within {within_s:.0f} s"
            for name, process in self._parts.items():
                assert process.poll() is None, f"{name} ended: {(self.folder / f'{name}.log').read_text()[-2000:]}"
            self._pause.wait(0.5)

    def running(self) -> list[psutil.Process]:
        """The processes of the run: its supervisor first."""
        own = psutil.Process(self._parts["run"].pid)
        return [own, *own.children(recursive=True)]

    def victims(self) -> list[psutil.Process]:
        """What the run starts again: everything but the supervisor and processes that have just begun."""
        now_s = time.time()
        return [one for one in self.running()[1:] if now_s - one.create_time() > FAILURE_S]

    def chain(self, stream: str) -> Chain | None:
        log = place_of(self.run).log
        return log.chain(stream) if log.declaration(stream) is not None else None

    def through(self, stream: str) -> int:
        chain = self.chain(stream)
        return 0 if chain is None else chain.refresh()

    def sample(self, began_s: float) -> None:
        totals = dict.fromkeys(NAMES, 0.0)
        for one in self.running():
            with suppress(psutil.Error):
                totals["rss_mib"] += one.memory_info().rss / 2**20
                totals["threads"] += one.num_threads()
                totals["descriptors"] += one.num_fds()
                totals["processes"] += 1
        totals["disk_mib"] = sum(size_of(path) for path in self.run.rglob("*")) / 2**20
        before_s = time.monotonic()
        published_us = self.through("Produced")
        with suppress(AssertionError):
            self.until(lambda: self.through("ProductionRate") >= published_us, FAILURE_S, "a situation")
        totals["behind_s"] = time.monotonic() - before_s
        self.samples.append({"at_s": time.monotonic() - began_s, **totals})

    def write(self) -> None:
        with (self.folder / "samples.csv").open("w") as file:
            table = csv.DictWriter(file, ["at_s", *NAMES])
            table.writeheader()
            table.writerows(self.samples)

    def warm(self, name: str, from_part: float, to_part: float) -> list[float]:
        last_s = self.samples[-1]["at_s"]
        return [one[name] for one in self.samples if from_part * last_s <= one["at_s"] <= to_part * last_s]

    def slope_per_h(self, name: str) -> float:
        """Of the straight line through what came after warming up."""
        warm = [one for one in self.samples if one["at_s"] >= WARM * self.samples[-1]["at_s"]]
        return 3600 * statistics.linear_regression([one["at_s"] for one in warm], [one[name] for one in warm]).slope


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() and not path.is_symlink() else 0
    except OSError:
        return 0  # gone meanwhile


@contextmanager
def soaking(folder: Path, seed: int) -> Iterator[Soak]:
    soak = Soak(folder)
    try:
        soak.start(round(RATE * SECONDS), seed)
        yield soak
    finally:
        soak.stop()


@pytest.mark.timeout(SECONDS + 4 * SETTLE_S)
def test_nothing_grows_and_nothing_is_wrong(
    seed: int, blows: Counter[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draw = random.Random(seed)
    with soaking(tmp_path, seed) as soak:
        soak.until(lambda: soak.through("ProductionRate") > 0, SETTLE_S, "the first situation")
        began_s = time.monotonic()
        failure_s, sample_s = began_s + FAILURE_S, began_s
        while (now_s := time.monotonic()) < began_s + SECONDS:
            if now_s >= failure_s:
                failure_s += FAILURE_S
                if victims := soak.victims():
                    with suppress(psutil.NoSuchProcess):
                        draw.choice(victims).kill()
                        blows["kill -9"] += 1
            if now_s >= sample_s:
                sample_s = max(sample_s + SAMPLE_S, now_s)
                soak.sample(began_s)
                soak.write()
            soak._pause.wait(0.5)
        soak.until(lambda: soak.through("Shortage") >= TIME_MAX, SETTLE_S + SECONDS, "the end of the day")
        instances = tmp_path / "run" / "processes"
        soak.until(lambda: not open_instances(instances), SETTLE_S, "the end of all processes")
    with capsys.disabled():
        print(f"\n{SECONDS / 3600:.2f} h, {RATE} events a second, {blows['kill -9']} kills")
        for name in NAMES:
            settled = statistics.mean(soak.warm(name, WARM, 1.0))
            print(f"{name}: {settled:.1f} on average, slope {soak.slope_per_h(name):+.2f} an hour")
    for name in ("rss_mib", "threads", "descriptors", *(["disk_mib"] if WARM * SECONDS > GRACE_S else [])):
        early, late = soak.warm(name, WARM, 0.65), soak.warm(name, 0.65, 1.0)
        assert statistics.mean(late) <= (1 + GROWTH_MAX) * statistics.mean(early), f"{name} grows: see samples.csv"
    journals = [f"--journal={tmp_path / 'services' / service}.sqlite" for service in SERVICES]
    command = [sys.executable, "-m", "unerring", "audit", str(soak.run), *journals]
    done = subprocess.run(command, capture_output=True, text=True, env=soak.environment, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def open_instances(folder: Path) -> int:
    """Instances that some node has not ended, as far as they say themselves."""
    from unerring.runtime import Command, ask_node, node_sockets

    return sum(
        "ended_us" not in outline
        for path in node_sockets(folder)
        for outline in ask_node(path, Command("list"), within_s=30.0)
    )
