"""Hot standby on Spark: how long situations stay away when the leading driver is killed, beside a plain restart.

W1 over a log that grows by a thousand events a second, sealed ten times a second. Failover: two drivers, kill -9 of the
one that leads, of its Python and of its JVM in turns; from the kill to the moment at which a situation can be read that
was decided by an event written after it. Restart: `unerring run` with one driver, killed likewise and started again at
once, from its checkpoint; until the same.
"""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).parent))
os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])

import live_w1
from unerring.log import EventLog, LogWriter
from unerring.model import LogError, Stamp, schema_of, verified_json
from unerring.rules import Typed
from unerring.runtime import dotted

RATE = 1000
SEAL_S = 0.1
LOOK_S = 0.005
PATIENCE_S = 240.0
STEADY = 3
"""So many situations' segments in quick succession mean that it runs."""
PARTS = ("Python", "JVM")


def run(quick: bool = False) -> Iterator[dict[str, Any]]:
    kills, restarts = (1, 1) if quick else (10, 3)
    with tempfile.TemporaryDirectory() as folder:
        failovers = _failovers(Path(folder), kills)
    with tempfile.TemporaryDirectory() as folder:
        restarted = _restarts(Path(folder), restarts)
    yield _figure("failover.kills", kills, "kills")
    for part in PARTS if not quick else ():
        yield _figure(f"failover.{part.lower()}.p50_s", statistics.median(s for p, s in failovers if p == part), "s")
    times = [seconds for _, seconds in failovers]
    yield _figure("failover.p50_s", statistics.median(times), "s", 0.5)
    yield _figure("failover.p99_s", float(np.percentile(times, 99)), "s")
    yield _figure("restart.p50_s", statistics.median(restarted), "s")
    yield _figure("speedup", statistics.median(restarted) / statistics.median(times), "ratio", 10.0, at_least=True)


def _figure(name: str, value: float, unit: str, goal: float | None = None, at_least: bool = False) -> dict[str, Any]:
    met = None if goal is None else (value >= goal if at_least else value <= goal)
    return {"bench": "standby", "figure": name, "value": round(value, 5), "unit": unit, "goal": goal, "met": met}


class _Writer:
    """Writes the log in a thread: A, B, A, B, two of a key at a time, each with the moment it was written in `v`."""

    def __init__(self, data: Path) -> None:
        self._writer = LogWriter(EventLog(data / "log"), schema_of(Typed), None, live_w1.app.buckets)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> _Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def _write(self) -> None:
        began_s, number = time.monotonic(), 0
        while not self._ending.wait(SEAL_S):
            while number < (time.monotonic() - began_s) * RATE:
                payload = {"key": number // 2 % 1000, "type": "AB"[number % 2], "v": time.monotonic()}
                stamp = Stamp(1 + int(number * 1_000_000 / RATE))
                self._writer.append("0123456789abcdef", (0, number), stamp, payload, 0)
                number += 1
            self._writer.seal()


class _Situations:
    """What can be read of W1."""

    def __init__(self, data: Path) -> None:
        self._chain = EventLog(data / "log").create(live_w1.app.outputs[0], live_w1.app.buckets)

    def fresh(self) -> float:
        """When the event was written that decided the latest situation which came since this was asked last."""
        known_us = self._chain.through_us
        if self._chain.refresh() == known_us:
            return 0.0
        found = self._chain.read(known_us, self._chain.through_us).column("b_v")
        return float(found[-1].as_py()) if len(found) else 0.0

    def answered(self, since_s: float) -> float:
        """When a situation came that was decided after a moment."""
        _until(lambda: self.fresh() > since_s, "no situation came")
        return time.monotonic()

    def steady(self) -> None:
        """Until they come regularly, and not late."""
        in_time = 0
        deadline_s = time.monotonic() + PATIENCE_S
        while in_time < STEADY:
            asked_s = time.monotonic()
            if asked_s > deadline_s:
                raise TimeoutError("situations do not come regularly")
            in_time = in_time + 1 if self.answered(asked_s) - asked_s < 5 else 0


def _until(condition: Callable[[], bool], else_said: str) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise TimeoutError(else_said)
        time.sleep(LOOK_S)


@contextlib.contextmanager
def _running(data: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "unerring", "run", "live_w1:app", "--data", str(data), *options]
    data.mkdir(exist_ok=True)
    with (data / "screen.log").open("ab") as screen:
        process = subprocess.Popen(command, stdout=screen, stderr=screen, start_new_session=True)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


# ---- two drivers -----------------------------------------------------------------------------------------------


def _failovers(data: Path, kills: int) -> list[tuple[str, float]]:
    times: list[tuple[str, float]] = []
    with _running(data, "--engine", "spark", "--f", "1"), _Writer(data):
        situations = _Situations(data)
        for number in range(kills):
            _until(lambda: _leader(data) is not None, "no two drivers stand")
            situations.steady()
            _until(lambda: _leader(data) is not None, "no two drivers stand")
            leader = _leader(data) or {}
            part = PARTS[number % 2]
            killed_s = time.monotonic()
            os.kill(leader["pid"] if part == "Python" else leader["driver"]["jvm"], signal.SIGKILL)
            times.append((part, situations.answered(killed_s) - killed_s))
            sys.stderr.write(f"{leader['name']} {part} {times[-1][1]:.3f} s\n")
            _until(lambda pid=leader["pid"]: not psutil.pid_exists(pid), "a driver outlives its JVM")  # type: ignore[misc]
    return times


def _leader(data: Path) -> dict[str, Any] | None:
    """Who leads, if both drivers stand."""
    found = []
    for name in ("spark/0", "spark/1"):
        try:
            raw = (data / "live" / "status" / f"{dotted(name)}.json").read_bytes()
            told = verified_json(raw, dict[str, Any], name)
        except (OSError, LogError):
            return None
        if told.get("phase") != "MEMBER" or time.time() - told["at"] > 1 or not psutil.pid_exists(told["pid"]):
            return None
        found.append(told)
    return next((told for told in found if told.get("leads")), None)


# ---- one driver ------------------------------------------------------------------------------------------------


def _restarts(data: Path, restarts: int) -> list[float]:
    times: list[float] = []
    killed_s = 0.0
    with _Writer(data):
        situations = _Situations(data)
        for _ in range(restarts + 1):
            with _running(data, "--engine", "spark", "--memory", "1g") as process:
                if killed_s:
                    times.append(situations.answered(killed_s) - killed_s)
                    sys.stderr.write(f"restart {times[-1]:.3f} s\n")
                situations.steady()
                tree = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
                killed_s = time.monotonic()
                for one in tree:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        one.kill()
                process.wait()
    return times
