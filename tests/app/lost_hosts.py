"""Hosts on one machine, each with loopback addresses and a folder of its own, of which one is lost."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.app.live_tree import complete, feed, read_status, violations
from tests.app.tree_app import Reading, app
from unerring.log import EventLog, LogWriter
from unerring.model import Event, schema_of
from unerring.runtime.live import cluster as clusters
from unerring.runtime.os_processes import find

ADDRESS = "tests.app.tree_app:app"
STREAMS = [schema.name for schema in app.outputs]
PATIENCE_S = 400.0


class LostHosts:
    """`unerring run` on hosts a, b and c, with f = 1. The log and the record are on a."""

    def __init__(self, folder: Path, events: list[Event], *options: str) -> None:
        self.folder = folder
        self.events = events
        draw = random.SystemRandom()  # Ports are the same on all hosts, so addresses must be this run's own.
        net = f"127.{draw.randrange(1, 255)}.{draw.randrange(255)}"
        self.options = [*options, *(f"--host={host}={net}.{number}" for number, host in enumerate("abc", 1))]
        self.runs: dict[str, subprocess.Popen[bytes]] = {}
        self._pause = threading.Event()

    def data(self, host: str) -> Path:
        return self.folder / host

    def start(self, host: str) -> None:
        command = [sys.executable, "-m", "unerring", "run", ADDRESS, "--engine", "live", "--f", "1", *self.options]
        with (self.folder / f"{host}.log").open("ab") as log:
            self.runs[host] = subprocess.Popen(
                [*command, "--here", host, "--data", str(self.data(host))], stdout=log, stderr=log
            )

    def lose(self, host: str) -> float:
        """Without a word: the supervisor, and all that it started. When that was."""
        self.runs[host].kill()
        self.runs[host].wait()
        live = self.data(host) / "live"
        for path in (live / "pids").iterdir():
            process = find(live, path.name)
            if process is not None:
                os.kill(process.pid, signal.SIGKILL)
        del self.runs[host]
        return time.monotonic()

    def members(self) -> dict[str, Any]:
        """By name, what the record of the first host says."""
        record: dict[str, Any] = read_status(self.data("a"), "membership").get("record", {})
        return dict(record.get("members", {}))

    def whole(self) -> bool:
        """Whether every rule has two replicas that are caught up, on hosts that are there."""
        hosts = self.cluster.hosts
        counted = [n for n, m in self.members().items() if m["standing"] == "caught_up" and hosts[n] in self.runs]
        left = [n for n, m in self.members().items() if m["standing"] != "gone" and hosts[n] not in self.runs]
        return not left and all(sum(name.startswith(f"{node}/") for name in counted) >= 2 for node in STREAMS)

    def until(self, condition: Callable[[], bool]) -> float:
        """When it was so."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline_s, self.members()
            for host, run in self.runs.items():
                assert run.poll() is None, (self.folder / f"{host}.log").read_text()
            self._pause.wait(0.05)
        return time.monotonic()

    def begin(self) -> None:
        for host in "abc":
            self.start(host)
        self.until(lambda: (self.data("a") / "live" / clusters.FILE).exists())
        self.cluster = clusters.read(self.data("a") / "live")
        self.writer = LogWriter(EventLog(self.data("a") / "log"), schema_of(Reading), None, app.buckets)
        self.until(lambda: self.whole() and all(m["token"] for n, m in self.members().items() if n[0].isupper()))

    def feed(self, first: int, last: int) -> None:
        feed(self.writer, self.events[first:last])

    def end(self) -> None:
        self.writer.end(0)
        self.writer.seal()
        self.until(lambda: complete(self.data("a"), STREAMS))

    def violations(self) -> list[Any]:
        return violations(self.data("a"), app, self.events)

    def stop(self) -> None:
        for run in self.runs.values():
            run.send_signal(signal.SIGINT)
        for run in self.runs.values():
            run.wait(PATIENCE_S)


@contextlib.contextmanager
def lost_hosts(folder: Path, events: list[Event], *options: str) -> Iterator[LostHosts]:
    hosts = LostHosts(folder, events, *options)
    try:
        hosts.begin()
        yield hosts
    finally:
        hosts.stop()
