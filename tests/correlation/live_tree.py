"""A live run of the three-level tree on real processes, whose replicas are killed and stopped while it works."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from pathlib import Path
from typing import Any

import msgspec

from tests.correlation.tree_app import Peaks, Rate, Reading, Steps, app
from unerring import event_of, run_on
from unerring.app import live
from unerring.app.live_top import situations
from unerring.audit.strong_reliability import check_strong_reliability
from unerring.log import EventLog, LogWriter
from unerring.model import TIME_MAX, Event, schema_of
from unerring.runtime.live import Supervisor

STREAMS = ("Rate", "Steps", "Peaks")
REPLICAS = [f"{node}/{number}" for node in STREAMS for number in (0, 1)]


def readings(count: int) -> list[Event]:
    return [event_of(Reading(machine=n % 3, celsius=n), n * 7000) for n in range(1, count + 1)]


class LiveTree:
    """Feeds the log piece by piece, fails replicas in between, and waits for the end."""

    def __init__(self, data: Path, events: int, seed: int = 0) -> None:
        self.data = data
        self.events = readings(events)
        self.draw = random.Random(seed)
        self.writer = LogWriter(EventLog(data / "log"), schema_of(Reading), None, app.buckets)
        cluster = live.make_cluster("tests.correlation.tree_app:app", 1, data)
        self.supervisor = Supervisor(cluster, data / "live", lambda name: live.command(data, name))
        self.kills = 0
        self.stops = 0
        self.killed: set[int] = set()
        """Whom nobody may count on, though their last status says otherwise."""

    def status(self, name: str) -> dict[str, Any]:
        path = self.data / "live" / "status" / f"{name.replace('/', '.')}.json"
        try:
            told: dict[str, Any] = msgspec.json.decode(path.read_bytes())
        except (OSError, msgspec.DecodeError):
            return {}
        return told

    def healthy(self, name: str) -> bool:
        process = self.supervisor.processes.get(name)
        told = self.status(name)
        alive = process is not None and process.alive and told.get("pid") == process.pid
        return alive and told.get("phase") == "MEMBER" and told["pid"] not in self.killed

    async def until(self, condition: Any, within_s: float = 120) -> None:
        deadline = asyncio.get_running_loop().time() + within_s
        while not condition():
            assert asyncio.get_running_loop().time() < deadline, {
                n: self.status(n) for n in (*REPLICAS, "situations/0")
            }
            await asyncio.sleep(0.02)

    async def run(self, failures: int) -> None:
        running = asyncio.create_task(self.supervisor.run())
        try:
            await self.until(lambda: all(self.healthy(name) for name in REPLICAS))
            pieces = max(1, failures)
            size = -(-len(self.events) // pieces)
            for piece in range(pieces):
                self.feed(self.events[piece * size : (piece + 1) * size])
                if piece < failures:
                    await self.fail_one()
            self.writer.end(0)
            self.writer.seal()
            await self.until(self.complete)
        finally:
            self.supervisor.stop()
            await running

    def feed(self, events: list[Event]) -> None:
        for event in events:
            self.writer.append("p", (0, event.stamp.time), event.stamp, event.payload, 0)
        self.writer.seal()

    async def fail_one(self) -> None:
        """f = 1: one replica of a node at a time, once the other one is caught up again."""
        victim = self.draw.choice(REPLICAS)
        fellow = f"{victim[:-1]}{1 - int(victim[-1])}"
        await self.until(lambda: self.healthy(victim) and self.healthy(fellow))
        process = self.supervisor.processes[victim]
        if self.draw.random() < 0.3:
            self.stops += 1
            os.kill(process.pid, signal.SIGSTOP)
            asyncio.get_running_loop().call_later(self.draw.random(), _go_on, process.pid)
        else:
            self.kills += 1
            self.killed.add(process.pid)
            os.kill(process.pid, signal.SIGKILL)

    def complete(self) -> bool:
        inputs = self.status("situations/0").get("inputs", {})
        return bool(inputs) and all(inputs[stream]["progress"] == TIME_MAX for stream in STREAMS)

    def violations(self) -> list[Any]:
        """Against the reference system: the same rules in one process, without failures."""
        perfect = run_on([Rate, Steps, Peaks], self.events)
        found = []
        for stream in STREAMS:
            wanted = [event for event in perfect if event.stream == stream]
            assert wanted
            found += check_strong_reliability(situations(self.data, stream), wanted, complete=True)
        return found


def _go_on(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        return
