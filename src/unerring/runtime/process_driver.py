"""Runs a process node: the machine of all instances, on this node's loop, disk, links and services."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from unerring.log import LocalStore, Store
from unerring.model import Codec, Effects, NetworkError, ProcessError, Right, StableStorage, Vanished
from unerring.processes import (
    HISTORY,
    ClusterBounds,
    Grouping,
    Process,
    ProcessesConfig,
    ProcessNode,
    codec,
    large_variables,
)
from unerring.runtime.greeting import Identity
from unerring.runtime.large import LargeValues
from unerring.runtime.links import Links, LinksConfig
from unerring.runtime.loop import Driver, DriverConfig
from unerring.runtime.reports import Reports
from unerring.runtime.services.asked import ServiceSeen
from unerring.runtime.services.clients import LocalService, Service, ServiceCarrier
from unerring.runtime.starts import start_us
from unerring.runtime.storage import SqliteStorage
from unerring.runtime.timers import monotonic_us

MACHINE: Final = "processes"
"""The name of this machine on a node's links."""


class _Command(msgspec.Struct, frozen=True):
    """A command of this node's own application: it comes through the inbox like any message."""

    method: str
    arguments: tuple[Any, ...]


class _Machine:
    """A `ProcessNode` that also takes commands of its own application."""

    def __init__(self, node: ProcessNode) -> None:
        self._node = node
        self.start = node.start
        self.timer = node.timer

    def handle(self, sender: str, message: Any, now: int) -> Effects:
        if isinstance(message, _Command):
            effects: Effects = getattr(self._node, message.method)(*message.arguments, now)
            return effects
        return self._node.handle(sender, message, now)


def _large_values(
    name: str, processes: Sequence[Process], storage: StableStorage | str | Path, store: Store | None
) -> LargeValues | None:
    """For processes that have some: in the store that was given, or beside this node's database."""
    large = [process.name for process in processes if large_variables(process)]
    if not large:
        return None
    if store is None and not isinstance(storage, str | Path):
        raise ProcessError(f"{large[0]} has large values, and {name} no store for them; give it one with large=")
    return LargeValues(store or LocalStore(Path(str(storage)).parent), processes)


class NodeDriver:
    """One process node of a cluster, or the only one. `deliver` gets what its machine delivers."""

    def __init__(
        self,
        name: str,
        processes: Sequence[Process],
        storage: StableStorage | str | Path,
        services: Mapping[str, Service],
        peers: Mapping[str, str],
        bounds: ClusterBounds,
        config: ProcessesConfig,
        grouping: Grouping,
        listen_on: str,
        incarnation: int | None,
        links_config: LinksConfig | None,
        reports: Reports,
        deliver: Callable[[Any], None],
        large: Store | None = None,
    ) -> None:
        self.name = name
        self.peers = dict(peers)
        self.bounds = bounds
        self.config = config
        self.reports = reports
        self.links: Links | None = None
        self._processes = processes
        self._own_storage: SqliteStorage | None = None
        self.large = _large_values(name, processes, storage, large)
        if isinstance(storage, str | Path):
            storage = self._own_storage = SqliteStorage(storage)
        self.storage = storage
        self._deliver = deliver
        self._listen_on = listen_on
        self._incarnation = incarnation
        self._grouping = grouping
        self._links_config = links_config
        functions = {name: f for process in processes for name, f in process.functions.items()}
        for process in processes:
            functions |= {f"{process.graph.version}:{name}": f for name, f in process.functions.items()}
        self.services: dict[str, Service] = {"local": LocalService(functions), **services}
        self._driving: asyncio.Task[Any] | None = None

    async def open(self) -> str:
        """Start. The answer is the address this node listens on; empty without peers."""
        address = ""
        wire: Codec = codec(2 * self.bounds.state_bytes_max + (1 << 20))
        if self.peers or self._listen_on:
            shape = self._links_config or LinksConfig(frame_bytes_max=wire.bytes_max + 4096)
            cluster = self.bounds.fingerprint() + self._grouping.fingerprint()
            identity = Identity(self.name, self._start_us(shape), cluster)
            self.links = Links(identity, wire, shape, self.reports, self._right_of)
            address = await self.links.open(self._listen_on or "127.0.0.1:0")
        me = f"{self.name}/{MACHINE}"
        now = monotonic_us()
        self.node = ProcessNode(
            me,
            tuple(f"{node}/{MACHINE}" for node in sorted([self.name, *self.peers])),
            self._processes,
            self.storage.load(without=f"|{HISTORY}"),
            random.Random(),
            now,
            self.bounds,
            self.config,
            self._grouping,
            time.time_ns() // 1000 - now,
            asks_first=True,
        )
        post = self.links.post(MACHINE) if self.links is not None else None
        self._carrier = ServiceCarrier(me, self.services, post, self.reports, large=self.large)
        self._driver = Driver(
            _Machine(self.node),
            self._carrier,
            storage=self.storage,
            deliver=self._deliver,
            reports=self.reports,
            config=DriverConfig(sync_inline=True),  # whatever follows a sync waits for it anyway
            before_sync=self.links.flush if self.links is not None else None,
        )
        self._carrier.offer = self._driver.offer
        if self.links is not None:
            self._driver.on_congestion = self.links.hold
            self._driver.on_fault = self.links.blame
            self.links.on_vanished = lambda node: self._driver.offer(node, Vanished(node))
            self.links.attach(MACHINE, self._driver.offer)
            for peer, at in self.peers.items():
                if at:
                    self.links.join(peer, at)
        self._driving = asyncio.create_task(self._driver.run())
        return address

    def _start_us(self, shape: LinksConfig) -> int:
        """What tells this process from those that had its name before."""
        if self._incarnation is not None:
            return self._incarnation
        if not isinstance(self.storage, SqliteStorage):
            return time.time_ns() // 1000
        return start_us(self.storage.path.parent, self.name, shape.incarnation_ahead_us_max)

    def _right_of(self, node: str) -> tuple[str, ...] | None:
        return (Right.NODE, node) if node in self.peers else None

    def join(self, peer: str, address: str) -> None:
        """Tell where another node of the cluster is."""
        if self.links is None:
            raise ProcessError(f"{self.name} is not open, or has no peers; open it before it joins {peer}")
        self.links.join(peer, address)

    async def close(self) -> None:
        """Stop in order: what was promised is on disk."""
        if self._driving is not None:
            self._driver.stop("closed")
            await asyncio.gather(self._driving, return_exceptions=True)
        await self._carrier.close()
        if self.links is not None:
            await self.links.close()
        if self._own_storage is not None:
            self._own_storage.close()

    def services_seen(self) -> list[ServiceSeen]:
        """Each service that was asked, as this node has seen it."""
        return [asked.seen for asked in self._carrier.asked.values() if asked.seen.asked]

    async def do(self, method: str, *arguments: Any) -> None:
        """Have the machine do something, in its turn."""
        await self._driver.put(self.node.me, _Command(method, arguments))

    async def wait(self, stopping: asyncio.Event) -> None:
        """Until `stopping` is set. Raises what ended the node before that, a failed disk for example."""
        waiting = asyncio.create_task(stopping.wait())
        try:
            await self._or_end(waiting)
        finally:
            waiting.cancel()
        if self._driving is not None and self._driving.done():
            self._driving.result()

    async def answer(self, waiting: asyncio.Future[Any], what: str) -> Any:
        """Wait for the answer, unless the node stops before."""
        await self._or_end(waiting)
        if not waiting.done():
            raise NetworkError(f"node {self.name} stopped before {what}; start it again")
        return waiting.result()

    async def _or_end(self, waiting: asyncio.Future[Any]) -> None:
        if self._driving is None:
            raise ProcessError(f"node {self.name} is not open")
        await asyncio.wait((waiting, self._driving), return_when=asyncio.FIRST_COMPLETED)
