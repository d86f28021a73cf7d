"""Live runs on real processes: fed piece by piece, failed in between, and compared with the reference system."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.app.tree_app import Reading
from unerring import event_of
from unerring.app import live, live_cluster, load
from unerring.app.live_sealer import live_situations
from unerring.audit.strong_reliability import check_strong_reliability
from unerring.correlation import Role
from unerring.log import Chain, EventLog, LogWriter
from unerring.matching.tree import QueryTree
from unerring.model import TIME_MAX, Event, LogError, Stamp, schema_of, verified_json
from unerring.runtime.live import LiveSupervisor
from unerring.runtime.os_processes import dotted

APART_US = 7000


def readings(count: int) -> list[Event]:
    return [event_of(Reading(machine=n % 3, celsius=n), n * APART_US) for n in range(1, count + 1)]


class LiveRun:
    """One run of an app over the stream Reading, or another one, supervised by the test itself."""

    def __init__(self, data: Path, address: str, events: list[Event], **options: Any) -> None:
        self.data = data
        self.app = load(address)
        self.events = events
        self.streams = [schema.name for schema in self.app.outputs]
        stream = options.pop("stream", "Reading")
        self.schema = next(schema for schema in self.app.streams if schema.name == stream)
        self.writer = LogWriter(EventLog(data / "log"), self.schema, None, self.app.buckets)
        self.cluster = live_cluster.make_cluster(address, options.pop("f", 1), data, **options)
        self.supervisor = self.new_supervisor()

    def new_supervisor(self) -> LiveSupervisor:
        return LiveSupervisor(self.cluster, self.data / "live", lambda name: live.command(self.data, name))

    @property
    def replicas(self) -> list[str]:
        return [name for node in self.streams for name in self.cluster.topology.node(node).replicas]

    def status(self, name: str) -> dict[str, Any]:
        return read_status(self.data, name)

    def healthy(self, name: str) -> bool:
        process = self.supervisor.processes.get(name)
        told = self.status(name)
        alive = process is not None and process.alive and told.get("pid") == process.pid
        return alive and told.get("phase") == "MEMBER"

    async def until(self, condition: Callable[[], bool], within_s: float = 120) -> None:
        deadline = asyncio.get_running_loop().time() + within_s
        while not condition():
            assert asyncio.get_running_loop().time() < deadline, {
                name: self.status(name) for name in (*self.replicas, "situations/0")
            }
            await asyncio.sleep(0.02)

    def feed(self, events: list[Event]) -> None:
        feed(self.writer, events)

    async def play(self, first: int, last: int, end: bool = False) -> None:
        """Start everything, publish some events, and stop when their situations are sealed and sources know it."""
        self.supervisor = self.new_supervisor()
        running = asyncio.create_task(self.supervisor.run())
        try:
            for start in range(first, last, 40):
                self.feed(self.events[start : min(start + 40, last)])
                await asyncio.sleep(0.3)
            if end:
                self.end()
                await self.until(self.sealed)
            else:
                reached_us = self.events[last - 1].stamp.time
                await self.until(lambda: all(self.log(stream).refresh() >= reached_us for stream in self.streams))
                await self.until(lambda: self.status("source_Reading/0")["outputs"]["Reading"]["queued"] == 0)
                empty_s = time.time()  # A source writes once a second where its queue begins.
                await self.until(lambda: self.status("source_Reading/0")["at"] > empty_s + 2)
        finally:
            self.supervisor.stop()
            await running

    def end(self) -> None:
        self.writer.end(0)
        self.writer.seal()

    def complete(self) -> bool:
        return complete(self.data, self.streams)

    def log(self, stream: str) -> Chain:
        return EventLog(self.data / "log").chain(stream)

    def sealed(self) -> bool:
        return all(self.log(stream).refresh() == TIME_MAX for stream in self.streams)

    def violations(self) -> list[Any]:
        return violations(self.data, self.app, self.events)


class ShardedRun(LiveRun):
    """Rules with shards over twelve machines, four of which say something at a time."""

    def __init__(
        self, data: Path, events: int, shards: dict[str, int], f: int, address: str = "tests.app.shard_app:app"
    ) -> None:
        stamps = [Stamp(APART_US * (1 + n // 4), n % 4) for n in range(events)]
        payloads = [{"machine": n * 5 % 12, "celsius": n} for n in range(events)]
        drawn = [Event("Reading", s, (p["machine"],), p) for s, p in zip(stamps, payloads, strict=True)]
        self.f = f
        super().__init__(data, address, drawn, f=f, shards=shards)

    @property
    def replicas(self) -> list[str]:
        return [r for node in self.cluster.topology.nodes if node.role is Role.CORRELATION for r in node.replicas]

    def feed(self, events: list[Event]) -> None:
        for event in events:
            sequence = event.payload["celsius"]
            self.writer.append("0123456789abcdef", (0, sequence), event.stamp, event.payload, 0)
        self.writer.advance(events[-1].stamp.time, 0)
        self.writer.seal()

    def spread(self, shards: dict[str, int]) -> None:
        """Another number of shards from now on."""
        self.cluster = live_cluster.make_cluster("tests.app.shard_app:app", self.f, self.data, shards=shards)

    async def run(self, first: int, last: int, kill: str = "") -> None:
        """Feed some events, and kill a replica after half of them; done when all that they decide is sealed."""
        self.supervisor = self.new_supervisor()
        running = asyncio.create_task(self.supervisor.run())
        half = first + (last - first) // 8 * 4
        try:
            self.feed(self.events[first:half])
            if kill:
                await self.until(lambda: all(map(self.healthy, self.replicas)))
                await self.until(lambda: self.log("Total").refresh() >= self.events[first].stamp.time)
                os.kill(self.supervisor.processes[kill].pid, signal.SIGKILL)
            self.feed(self.events[half:last])
            if last == len(self.events):
                self.end()
            reached_us = TIME_MAX if last == len(self.events) else self.events[last - 1].stamp.time
            await self.until(lambda: all(self.log(stream).refresh() >= reached_us for stream in self.streams))
        finally:
            self.supervisor.stop()
            await running


class LiveTree(LiveRun):
    """The three-level tree with f = 1, whose replicas are killed and stopped while it works."""

    def __init__(self, data: Path, events: int, seed: int = 0, **options: Any) -> None:
        super().__init__(data, "tests.app.tree_app:app", readings(events), **options)
        self.draw = random.Random(seed)
        self.kills = 0
        self.stops = 0
        self.killed: set[int] = set()
        """Whom nobody may count on, though their last status says otherwise."""

    def healthy(self, name: str) -> bool:
        return super().healthy(name) and self.status(name)["pid"] not in self.killed

    async def run(self, failures: int) -> None:
        running = asyncio.create_task(self.supervisor.run())
        try:
            await self.until(lambda: all(self.healthy(name) for name in self.replicas))
            pieces = max(1, failures)
            size = -(-len(self.events) // pieces)
            for piece in range(pieces):
                self.feed(self.events[piece * size : (piece + 1) * size])
                if piece < failures:
                    await self.fail_one()
            self.end()
            await self.until(self.complete)
            await self.until(self.sealed)
        finally:
            self.supervisor.stop()
            await running

    async def fail_one(self) -> None:
        """f = 1: one replica of a node at a time, once the other one is caught up again."""
        victim = self.draw.choice(self.replicas)
        peer = f"{victim[:-1]}{1 - int(victim[-1])}"
        await self.until(lambda: self.healthy(victim) and self.healthy(peer))
        process = self.supervisor.processes[victim]
        if self.draw.random() < 0.3:
            self.stops += 1
            os.kill(process.pid, signal.SIGSTOP)
            asyncio.get_running_loop().call_later(self.draw.random(), go_on, process.pid)
        else:
            self.kills += 1
            self.killed.add(process.pid)
            os.kill(process.pid, signal.SIGKILL)


def read_status(data: Path, name: str) -> dict[str, Any]:
    try:
        told = (data / "live" / "status" / f"{dotted(name)}.json").read_bytes()
        return verified_json(told, dict[str, Any], name)
    except (OSError, LogError):
        return {}


def feed(writer: LogWriter, events: list[Event]) -> None:
    for event in events:
        sequence = event.stamp.time // APART_US - 1  # Consecutive, or an audit asks where the others are.
        writer.append("0123456789abcdef", (0, sequence), event.stamp, event.payload, 0)
    if events:
        writer.advance(events[-1].stamp.time, 0)
    writer.seal()


def complete(data: Path, streams: list[str]) -> bool:
    inputs = read_status(data, "situations/0").get("inputs", {})
    return bool(inputs) and all(inputs[stream]["watermark"] == TIME_MAX for stream in streams)


def perfect_run(app: Any, events: list[Event]) -> list[Event]:
    """The reference system: the same rules in one process, without failures."""
    tree = QueryTree(app.plans, app.ranks)
    for event in events:
        tree.push(event)
    tree.advance(schema_of(Reading).name, TIME_MAX)
    return tree.run()


def violations(data: Path, app: Any, events: list[Event]) -> list[Any]:
    """What differs from the reference system."""
    perfect = perfect_run(app, events)
    found = []
    for schema in app.outputs:
        wanted = [event for event in perfect if event.stream == schema.name]
        assert wanted
        found += check_strong_reliability(live_situations(data, schema.name), wanted, complete=True)
    return found


def go_on(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        return
