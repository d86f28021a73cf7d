"""Real processes under load whose clocks leap by an hour and whose disks fail, fill up, are slow, and lie.

A lie alone is tried here: a sync that does nothing, and no power that fails. What a lying disk then loses, a node
cannot know of (docs/limits.md), and it is not promised that others notice.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.app.live_tree import LiveTree
from tests.campaign.test_correlation_campaign import audit
from tests.faults import HOUR_S, Faults
from tests.processes.cluster import Cluster, pass_time
from unerring.app import live
from unerring.model import Event
from unerring.runtime.live import LiveSupervisor
from unerring.runtime.os_processes import dotted

BATCHES = 6
BLOWS = 10
TREES = 2
TREE_BLOWS = 25
TREE_EVENTS = 2000
AHEAD_S_MAX = 3 * HOUR_S
"""Of a wall clock. A node whose clock is a day ahead is told to set it (docs/operations.md)."""


def leap(faults: Faults, draw: random.Random) -> None:
    """The wall clock an hour ahead or back, or the monotonic clock ahead, or both."""
    kind = draw.choice(("wall", "wall", "elapsed", "both"))
    way = draw.choice((1, -1)) if abs(faults.wall_s) < AHEAD_S_MAX else -faults.wall_s / abs(faults.wall_s)
    faults.leap(way * HOUR_S * (kind != "elapsed"), HOUR_S * (kind != "wall"))


class Struck:
    """Nodes of processes under load, one of which at a time is struck."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster = cluster
        self.draw = random.Random(seed)
        self.number = 0

    def load(self) -> None:
        for _ in range(self.draw.randint(1, 3)):
            if self.cluster.open() < 6:
                self.cluster.want(f"p{self.number}", self.number)
                self.number += 1

    def batch(self, blows: int) -> None:
        for _ in range(blows):
            self.load()
            self.cluster.wait_awake(self.cluster.names)
            pass_time(self.draw.random() * 0.4)
            self.strike(self.draw.choice(("leap", "leap", "leap", "fail", "full", "slow", "lie", "kill", "pause")))
        self.cluster.wait_settled(300)
        assert self.cluster.check() == []

    def strike(self, kind: str) -> None:
        cluster, draw = self.cluster, self.draw
        victim = cluster.master() or draw.choice(cluster.names)
        if draw.random() < 0.3:
            victim = draw.choice(cluster.names)
        faults = cluster.faults[victim]
        match kind:
            case "leap":
                if draw.random() < 0.15:
                    victim = "service"
                leap(cluster.faults[victim], draw)
                if draw.random() < 0.4:  # what begins with a wrong clock, or with one that was set right
                    self.kill(victim)
            case "fail" | "full":
                faults.fail_syncs() if kind == "fail" else faults.fill()
                cluster.want(f"p{self.number}", self.number)  # or it may have nothing to write
                self.number += 1
                assert "this replica must stop" in cluster.wait_ended(victim, 120)
                faults.mend()
                cluster.start(victim)
            case "slow" | "lie":
                before = faults.disk_felt
                faults.slow_syncs(draw.random() * 0.5) if kind == "slow" else faults.lie()
                cluster.want(f"p{self.number}", self.number)
                self.number += 1
                cluster.wait_until(lambda: faults.disk_felt > before, 120)
                pass_time(draw.random() * 2)
                faults.mend()
            case "kill":
                self.kill(victim)
            case "pause":
                cluster.pause(victim, stopped=True)
                pass_time(draw.random() * 0.8)
                cluster.pause(victim, stopped=False)

    def kill(self, victim: str) -> None:
        self.cluster.kill(victim)
        pass_time(self.draw.random() * 0.8)
        self.cluster.start(victim)


@pytest.mark.timeout(1800)
def test_processes_on_wrong_clocks_and_bad_disks(seed: int, blows: Counter[str], faulty: Path, tmp_path: Path) -> None:
    with Cluster(tmp_path, struck=blows, faulty=faulty) as cluster:
        struck = Struck(cluster, seed)
        for _ in range(BATCHES):
            struck.batch(BLOWS)
        assert all(faults.clocks_read for faults in cluster.faults.values() if faults.is_wrong)


class StruckTree(LiveTree):
    """The three-level tree, f = 1, whose replicas, source and application are struck, one at a time."""

    def __init__(self, data: Path, seed: int, durable: bool, faulty: Path, struck: Counter[str]) -> None:
        self._faulty = faulty
        self._struck = struck
        self.faults: dict[str, Faults] = {}
        self.durable = durable
        super().__init__(data, TREE_EVENTS, seed, durable=durable)

    def new_supervisor(self) -> LiveSupervisor:
        return LiveSupervisor(self.cluster, self.data / "live", self._command)

    def _command(self, name: str) -> list[str]:
        if name not in self.faults:
            folder = self.data / "live"
            # The application seals into the log, so all that it writes is on its disk.
            below = self.data if name == "situations/0" else folder / f"{dotted(name)}.db"
            self.faults[name] = Faults(self._faulty, folder / f"{dotted(name)}.faults", below, self._struck)
        variables = [f"{name}={value}" for name, value in self.faults[name].environment.items()]
        return ["env", *variables, *live.command(self.data, name)]

    @property
    def others(self) -> list[str]:
        return ["source_Reading/0", "situations/0"]

    def ready(self, name: str) -> bool:
        """Whether it may be struck."""
        if name in self.replicas:
            return self.healthy(name) and self.healthy(f"{name[:-1]}{1 - int(name[-1])}")
        process = self.supervisor.processes.get(name)
        if process is None or not process.alive or process.pid in self.killed:
            return False
        return bool(self.status(name).get("pid") == process.pid)

    async def run(self, failures: int) -> None:
        running = asyncio.create_task(self.supervisor.run())
        try:
            await self.until(lambda: all(map(self.ready, [*self.replicas, *self.others])))
            size = -(-len(self.events) // failures)
            for piece in range(failures):
                await self.strike(self.events[piece * size : (piece + 1) * size])
            self.end()
            await self.until(self.complete, 300)
            await self.until(self.sealed, 300)
        finally:
            self.supervisor.stop()
            await running

    async def strike(self, events: list[Event]) -> None:
        """Strike, and feed."""
        kind = self.draw.choice(("leap", "leap", "leap", "fail", "full", "slow", "lie", "kill"))
        with_clocks = [*self.replicas, *self.others]
        with_disks = with_clocks if self.durable else self.others
        victim = self.draw.choice(with_clocks if kind in ("leap", "kill") else with_disks)
        await self.until(lambda: self.ready(victim), 300)
        faults, process = self.faults[victim], self.supervisor.processes[victim]
        before = faults.disk_felt
        match kind:
            case "leap":
                leap(faults, self.draw)
            case "fail" | "full":
                faults.fail_syncs() if kind == "fail" else faults.fill()
            case "slow":
                faults.slow_syncs(self.draw.random() * 0.5)
            case "lie":
                faults.lie()
        self.feed(events)
        if kind == "kill" or (kind == "leap" and self.draw.random() < 0.4):
            self._struck["kill -9"] += 1
            self.killed.add(process.pid)
            os.kill(process.pid, signal.SIGKILL)
        elif kind in ("fail", "full"):
            await self.until(lambda: not process.alive)
            self.killed.add(process.pid)
            words = (self.data / "live" / "logs" / f"{dotted(victim)}.log").read_text()
            assert "this replica must stop" in words or "cannot be written" in words, (victim, words)
            faults.mend()
        elif kind in ("slow", "lie"):
            await self.until(lambda: faults.disk_felt > before)
            await asyncio.sleep(self.draw.random() * 2)
            faults.mend()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("durable", [False, True], ids=["in memory", "durable"])
def test_a_tree_on_wrong_clocks_and_bad_disks(
    durable: bool, seed: int, blows: Counter[str], faulty: Path, tmp_path: Path
) -> None:
    for batch in range(TREES):
        tree = StruckTree(tmp_path / str(batch), 1000 * batch + seed, durable, faulty, blows)
        asyncio.run(tree.run(failures=TREE_BLOWS))
        assert tree.violations() == []
        assert all(faults.clocks_read for faults in tree.faults.values() if faults.is_wrong)
        audit(tree.data)
