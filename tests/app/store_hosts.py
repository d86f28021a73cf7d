"""Three hosts with loopback addresses and scratch folders of their own, around one S3 server; any of them is lost."""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import psutil

from tests.app.live_tree import feed, perfect_run, read_status
from tests.app.tree_app import Reading
from tests.releases import importing
from unerring.app import load, place_of
from unerring.audit.strong_reliability import check_strong_reliability
from unerring.log import LogWriter, events_of
from unerring.model import TIME_MAX, Event, schema_of
from unerring.runtime.live import cluster as clusters

ADDRESS = "tests.app.tree_app:low"
PATIENCE_S = 400.0

H = TypeVar("H", bound="StoreHosts")


class StoreHosts:
    """`unerring run` on hosts a, b and c, with f = 1. Nobody has the log."""

    def __init__(self, folder: Path, store: str, events: list[Event], *options: str, address: str = ADDRESS) -> None:
        self.folder = folder
        self.address, self.app = address, load(address)
        self.streams = [schema.name for schema in self.app.outputs]
        self.place = place_of(store, folder / "observer")
        self.events = events
        draw = random.SystemRandom()  # Ports are the same on all hosts, so addresses must be this run's own.
        net = f"127.{draw.randrange(1, 255)}.{draw.randrange(255)}"
        self.options = [*options, *(f"--host={host}={net}.{number}" for number, host in enumerate("abc", 1))]
        self.runs: dict[str, subprocess.Popen[bytes]] = {}
        self.sources: dict[str, Path] = {}
        """By host, where the package is imported from, if it has another release."""
        self._pause = threading.Event()

    def scratch(self, host: str) -> Path:
        return self.folder / host

    def start(self, host: str) -> None:
        command = [sys.executable, "-m", "unerring", "run", self.address, "--engine", "live", "--f", "1", *self.options]
        command += ["--here", host, "--data", self.place.address, "--scratch", str(self.scratch(host))]
        environment = importing(self.sources[host]) if host in self.sources else None
        with (self.folder / f"{host}.log").open("ab") as log:
            self.runs[host] = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def take_down(self, host: str) -> None:
        """In order, as an operator does; its disk stays."""
        run = self.runs.pop(host)
        run.send_signal(signal.SIGINT)
        run.wait(PATIENCE_S)

    def lose(self, host: str) -> float:
        """Without a word: the supervisor, all that it started, and its disk. When that was."""
        run = self.runs.pop(host)
        own = psutil.Process(run.pid)
        for one in [own, *own.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        run.wait()
        lost_s = time.monotonic()
        shutil.rmtree(self.scratch(host))
        return lost_s

    def members(self, host: str) -> dict[str, Any]:
        """By name, what the record says that a host's keeper read last."""
        record: dict[str, Any] = read_status(self.scratch(host), f"membership/{host}").get("record", {})
        return dict(record.get("members", {}))

    def until(self, condition: Callable[[], bool]) -> float:
        """When it was so."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline_s, {host: self.members(host) for host in self.runs}
            for host, run in self.runs.items():
                assert run.poll() is None, (self.folder / f"{host}.log").read_text()
            self._pause.wait(0.05)
        return time.monotonic()

    def begin(self) -> None:
        self.writer = LogWriter(self.place.log, schema_of(Reading), None, self.app.buckets)
        for host in "abc":
            self.start(host)
        self.until(lambda: all(self.has_begun(host) for host in "abc"))

    def has_begun(self, host: str) -> bool:
        """Whether all processes of a host, as it sees them, have entered the record."""
        members = self.members(host)
        return bool(members) and all(member["token"] for member in members.values())

    def on(self, host: str) -> dict[str, Any]:
        """The members that are on a host."""
        placed = clusters.read(self.scratch(host) / "live").hosts
        return {name: member for name, member in self.members(host).items() if placed[name] == host}

    def is_back(self, host: str, before: dict[str, Any]) -> bool:
        """Whether all that were on a host before have started again and caught up."""
        now = self.on(host)
        return all(
            now[name]["standing"] == "caught_up" and now[name]["incarnation"] > member["incarnation"]
            for name, member in before.items()
        )

    def feed(self, first: int, last: int) -> None:
        feed(self.writer, self.events[first:last])

    def reached(self, through_us: int) -> bool:
        return all(self.place.log.chain(stream).refresh() >= through_us for stream in self.streams)

    def end(self) -> None:
        self.writer.end(0)
        self.writer.seal()
        self.until(lambda: self.reached(TIME_MAX))

    def violations(self) -> list[Any]:
        """What differs between the log and the reference system."""
        found = []
        perfect = perfect_run(self.app, self.events)
        for stream in self.streams:
            chain = self.place.log.chain(stream)
            sealed = list(events_of(chain.read(chain.base.from_us, chain.refresh()), chain.schema))
            wanted = [event for event in perfect if event.stream == stream]
            assert wanted
            found += check_strong_reliability(sealed, wanted, complete=True)
        return found

    def stop(self) -> None:
        for run in self.runs.values():
            run.send_signal(signal.SIGINT)
        for run in self.runs.values():
            run.wait(PATIENCE_S)


@contextlib.contextmanager
def begun(hosts: H) -> Iterator[H]:
    """While they run."""
    try:
        hosts.begin()
        yield hosts
    finally:
        hosts.stop()


@contextlib.contextmanager
def store_hosts(
    folder: Path, store: str, events: list[Event], *options: str, sources: dict[str, Path] | None = None
) -> Iterator[StoreHosts]:
    hosts = StoreHosts(folder, store, events, *options)
    hosts.sources = sources or {}
    with begun(hosts):
        yield hosts
