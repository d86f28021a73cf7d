"""Process nodes: the machine of all instances, driven by this node's loop, disk and links. Embedded mode is a node
without links: one process, one replica, the same code.

    async with Embedded([order], "orders.db") as engine:
        result = await engine.run("order", "order-17", item="bolt")
"""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from unerring.model import CallerError, Codec, Effects, Machine, NetworkError, ProcessError, StableStorage
from unerring.processes.build import Process
from unerring.processes.config import ClusterBounds, ProcessesConfig
from unerring.processes.execution import UNKEPT, values_of
from unerring.processes.graph import Vertex
from unerring.processes.grouping import Grouping
from unerring.processes.history import told_history
from unerring.processes.messages import (
    AGAIN,
    CANCEL,
    FINAL,
    MOVE,
    PARK,
    RESUME,
    Mail,
    Publish,
    Start,
    Started,
    State,
    Status,
    Stored,
    codec,
)
from unerring.processes.moving import moved
from unerring.processes.node import HISTORY, ProcessNode, family
from unerring.processes.replica import Ended
from unerring.processes.replica_steers import key_of
from unerring.processes.starting import check_message_id
from unerring.processes.steering import back
from unerring.runtime.greeting import Identity
from unerring.runtime.links import Links, LinksConfig
from unerring.runtime.loop import Driver, DriverConfig
from unerring.runtime.reports import Reports
from unerring.runtime.services.clients import LocalService, Service, ServiceCarrier
from unerring.runtime.storage import SqliteStorage
from unerring.runtime.timers import monotonic_us

MACHINE = "processes"
"""The name of this machine on a node's links."""


class _Wish(msgspec.Struct, frozen=True):
    """What the application of this very node wants: comes through the inbox like any message."""

    method: str
    arguments: tuple[Any, ...]


class _Machine:
    """A `ProcessNode` that also takes the wishes of its own application."""

    def __init__(self, node: ProcessNode) -> None:
        self.node = node

    def start(self, now: int) -> Effects:
        return self.node.start(now)

    def timer(self, name: str, now: int) -> Effects:
        return self.node.timer(name, now)

    def handle(self, sender: str, message: Any, now: int) -> Effects:
        if isinstance(message, _Wish):
            effects: Effects = getattr(self.node, message.method)(*message.arguments, now)
            return effects
        return self.node.handle(sender, message, now)


class RunningNode:
    """One process node of a cluster, or the only one (`peers` empty: f must be 0)."""

    def __init__(
        self,
        name: str,
        processes: Sequence[Process],
        storage: StableStorage | str | Path,
        services: Mapping[str, Service] | None = None,
        *,
        peers: Mapping[str, str] | None = None,
        listen_on: str = "",
        incarnation: int | None = None,
        bounds: ClusterBounds | None = None,
        config: ProcessesConfig | None = None,
        grouping: Grouping | None = None,
        links_config: LinksConfig | None = None,
        reports: Reports | None = None,
    ) -> None:
        self.name = name
        self.processes = family(processes)
        """All versions that this node serves, and all children; of each process the current version last."""
        self.bounds = bounds or ClusterBounds(f=0 if not peers else len(peers) // 2)
        self.reports = reports or Reports()
        self._own = SqliteStorage(storage) if isinstance(storage, str | Path) else None
        self._storage: StableStorage = self._own if isinstance(storage, str | Path) and self._own else storage  # type: ignore[assignment]
        self._peers = dict(peers or {})
        self._listen_on = listen_on
        self._incarnation = incarnation if incarnation is not None else time.time_ns() // 1000
        self._config = config or ProcessesConfig()
        self._grouping = grouping or Grouping()
        self._links_config = links_config
        functions = {name: f for process in self.processes for name, f in process.functions.items()}
        for process in self.processes:
            functions |= {f"{process.graph.version}:{name}": f for name, f in process.functions.items()}
        self._services: dict[str, Service] = {"local": LocalService(functions), **(services or {})}
        self._ended: dict[str, list[asyncio.Future[Ended]]] = {}
        self._started: dict[str, list[asyncio.Future[Started]]] = {}
        self._stored: dict[str, list[asyncio.Future[Stored]]] = {}
        self._over: dict[str, Ended] = {}
        """Ends that were delivered, so that they are on disk: what the machine knows may be ahead of it."""
        self._over_before: frozenset[str] = frozenset()
        """Those that were on disk when the node was opened."""
        self._links: Links | None = None
        self._driving: asyncio.Task[Any] | None = None

    async def open(self) -> str:
        """Start. The answer is the address this node listens on; empty without peers."""
        address = ""
        links = None
        wire: Codec = codec(2 * self.bounds.state_bytes_max + (1 << 20))
        me = f"{self.name}/{MACHINE}"
        if self._peers or self._listen_on:
            shape = LinksConfig(frame_bytes_max=wire.bytes_max + 4096)
            cluster = self.bounds.fingerprint() + self._grouping.fingerprint()
            self._links = Links(
                Identity(self.name, self._incarnation, cluster), wire, self._links_config or shape, self.reports
            )
            address = await self._links.open(self._listen_on or "127.0.0.1:0")
            links = self._links.post(MACHINE)
        nodes = tuple(f"{node}/{MACHINE}" for node in sorted([self.name, *self._peers]))
        now = monotonic_us()
        self.node = ProcessNode(
            me,
            nodes,
            self.processes,
            self._storage.load(),
            random.Random(),
            now,
            self.bounds,
            self._config,
            self._grouping,
            time.time_ns() // 1000 - now,
        )
        self._over_before = frozenset(self.node.finished)
        self._carrier = ServiceCarrier(me, self._services, links, self.reports)
        machine: Machine = _Machine(self.node)
        self.driver = Driver(
            machine,
            self._carrier,
            storage=self._storage,
            deliver=self._on_deliver,
            reports=self.reports,
            config=DriverConfig(sync_inline=True),  # whatever follows a sync waits for it anyway
            before_sync=self._links.flush if self._links is not None else None,
        )
        self._carrier.offer = self.driver.offer
        if self._links is not None:
            self.driver.on_congestion = self._links.hold
            self.driver.on_fault = self._links.blame
            self._links.attach(MACHINE, self.driver.offer)
            for peer, at in self._peers.items():
                if at:
                    self._links.join(peer, at)
        self._driving = asyncio.create_task(self.driver.run())
        return address

    def join(self, peer: str, address: str) -> None:
        """Tell where another node of the cluster is."""
        if self._links is None:
            raise ProcessError(f"{self.name} is not open, or has no peers; open it before it joins {peer}")
        self._links.join(peer, address)

    async def close(self) -> None:
        """Stop in order: what was promised is on disk."""
        if self._driving is not None:
            self.driver.stop("closed")
            await asyncio.gather(self._driving, return_exceptions=True)
        await self._carrier.close()
        if self._links is not None:
            await self._links.close()
        if self._own is not None:
            self._own.close()

    async def wait(self, stopping: asyncio.Event) -> None:
        """Until `stopping` is set. Raises what ended the node before that, a failed disk for example."""
        waiting = asyncio.create_task(stopping.wait())
        driving = self._driving
        if driving is None:
            raise ProcessError(f"node {self.name} is not open")
        try:
            await asyncio.wait((waiting, driving), return_when=asyncio.FIRST_COMPLETED)
            if driving.done():
                driving.result()
        finally:
            waiting.cancel()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _on_deliver(self, what: Any) -> None:
        waiting: list[asyncio.Future[Any]] = []
        if isinstance(what, Ended):
            self._over[what.instance] = what
            while len(self._over) > self._config.finished_max:
                del self._over[next(iter(self._over))]
            waiting = [*self._ended.pop(what.instance, [])]
        elif isinstance(what, Started):
            waiting = [*self._started.pop(what.instance, [])]
        elif isinstance(what, Stored):
            waiting = [*self._stored.pop(what.id, [])]
        for each in waiting:
            if not each.done():
                each.set_result(what)

    # ---- what an application does ------------------------------------------------------------------------------

    async def start(self, process: str, instance: str, /, **given: Any) -> None:
        """Start an instance: when this returns it exists on a majority. The same id and input again is the same start;
        the same id with another process or input is refused with a ProcessError."""
        start = Start(instance, process, msgspec.to_builtins(given))
        self.node.initial(start, 0)  # says at once what is wrong with it
        answer = self._expect(self._started, instance)
        await self.driver.put(self.node.me, _Wish("begin", (start,)))
        started = await self._come(answer, f"the start of {instance} was on disk")
        if not started.same:
            raise ProcessError(
                f"{instance!r} was started before with another process or other input; give this one an id of its own"
            )

    def _expect(self, waiting: dict[str, list[asyncio.Future[Any]]], instance: str) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        waiting.setdefault(instance, []).append(future)
        return future

    async def _come(self, waiting: asyncio.Future[Any], what: str) -> Any:
        driving = self._driving
        if driving is None:
            raise ProcessError(f"node {self.name} is not open")
        await asyncio.wait((waiting, driving), return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            raise NetworkError(f"node {self.name} stopped before {what}; start it again")
        return waiting.result()

    async def result(self, instance: str) -> dict[str, Any]:
        """Wait for the end of an instance; its variables. ProcessError when it was cancelled, failed or parked."""
        if instance in self._over_before and instance in self.node.finished:
            outline = self.node.finished[instance]
            status, reason, variables = outline.status, outline.reason, outline.variables
        else:
            ended = self._over.get(instance)
            if ended is None:
                self._check_known(instance)
                ended = await self._come(self._expect(self._ended, instance), f"{instance} came to its end")
            status, reason, variables = ended.state.status, ended.state.reason, ended.state.variables
        if status != FINAL[0]:
            raise ProcessError(f"{instance} was {status}: {reason}")
        return dict(variables)

    async def run(self, process: str, instance: str, /, **given: Any) -> dict[str, Any]:
        """Start and wait."""
        await self.start(process, instance, **given)
        return await self.result(instance)

    async def signal(self, instance: str, channel: str, payload: Any, id: str = "", answers: str = "") -> None:
        """A message for a receive action. The same id is the same message. `answers`: the interaction id of the request
        that it answers; it is received only if that request counts. When this returns, f+1 replicas have it."""
        if channel.startswith("!"):
            raise CallerError(
                f"{channel!r} is no channel for signals; operators use cancel(), park(), resume() and so on"
            )
        check_message_id(id)
        if answers and not answers.startswith(f"{instance}/"):
            raise ProcessError(f"{answers!r} is no interaction of {instance}; give the Idempotency-Key that it answers")
        if id and self._has_consumed(instance, id):
            return  # whoever did not hear that it came sends it again
        self.check_open(instance, "signalled")
        told = self._message(payload)
        self.check_signal(instance, channel, told)
        await self._post(instance, Mail(id or uuid.uuid4().hex, channel, told, answers))

    async def publish(self, channel: str, key: Any, payload: Any, id: str = "") -> None:
        """A message for every instance that waits, now or within an hour, for this key on this channel; each gets it
        once. When this returns, so many nodes have it that it is not lost."""
        check_message_id(id)
        told = self._message(payload)
        self._check_published(channel, told)
        message = Publish(id or uuid.uuid4().hex, channel, key_of(msgspec.to_builtins(key)), told)
        stored = self._expect(self._stored, message.id)
        await self.driver.put(self.node.me, _Wish("publish", (message,)))
        await self._come(stored, f"message {message.id} was on disk")

    async def cancel(self, instance: str) -> None:
        """Ask that the instance is undone. It may have ended, or be past what can be undone: see `result`."""
        self._check_known(instance)
        await self._post(instance, Mail(f"cancel-{instance}", CANCEL, None))

    async def park(self, instance: str, why: str = "") -> None:
        """Do not go on after the present group, until `resume`."""
        self.check_open(instance, "parked")
        await self._post(instance, Mail(f"park-{uuid.uuid4().hex}", PARK, why or "by an operator"))

    async def resume(self, instance: str) -> None:
        """Go on with what was parked, or held because it failed."""
        self.check_open(instance, "resumed")
        await self._post(instance, Mail(f"resume-{uuid.uuid4().hex}", RESUME, None))

    async def retry(self, instance: str, step: str = "") -> None:
        """Something was mended: what could not be undone is asked for again now, and what is held tries again. With a
        step, go back: undo everything from that step on, in reverse order, and go on from there."""
        known = self.node.query(instance)
        if step:
            state = self._state(instance)
            process = self._version(state.process, state.version)
            back(process, state, step)
        if step or known["status"] == "held":
            await self._post(instance, Mail(f"again-{uuid.uuid4().hex}", AGAIN, step or None))
        else:
            await self.driver.put(self.node.me, _Wish("retry", (instance,)))

    async def move(self, instance: str, version: str = "") -> str:
        """Move a running instance to another version, by default the current one. Says why if it cannot be, as far as
        is known now; the move itself is checked again when it is decided. The answer is the version."""
        state = self._state(instance)
        old = self._version(state.process, state.version)
        new = self._version(state.process, version) if version else self.node.processes[state.process]
        if new.graph.version == state.version:
            raise ProcessError(f"{instance} is of version {state.version} already")
        if state.status != Status.RUNNING:
            raise ProcessError(f"{instance} is {state.status}; only what is running can be moved")
        moved(old.graph, new, state, 0, 0)
        await self._post(instance, Mail(f"move-{uuid.uuid4().hex}", MOVE, new.graph.version))
        return new.graph.version

    def ask(self, instance: str, query: str) -> Any:
        """What a query of the process says of the instance's last decided state that this node knows."""
        if instance in self.node.finished:
            done = self.node.finished[instance]
            return self._version(done.process, done.version).answer(query, done.variables)
        state = self._state(instance)
        return self._version(state.process, state.version).answer(query, state.variables)

    def _state(self, instance: str) -> State:
        self.node.query(instance)  # says what is wrong if it is unknown
        replica = self.node.instances.get(instance)
        if replica is None:
            raise ProcessError(f"{instance} has ended ({self.node.finished[instance].status})")
        if replica.decided is None:
            raise NetworkError(f"this node does not know yet how far {instance} is; ask again, or another node")
        return replica.decided[1]

    def _version(self, process: str, version: str) -> Process:
        found = self.node.shared.processes.get(f"{process}@{version}")
        if found is None:
            has = ", ".join(p.graph.version for p in self.processes if p.name == process) or "none"
            raise ProcessError(
                f"version {version} of process {process} is not deployed on {self.name}, which has {has}; deploy it "
                "again"
            )
        return found

    # ---- what is said before it is too late ------------------------------------------------------------------------

    def _check_known(self, instance: str) -> None:
        """A node that is alone knows all instances; one of several may not have heard of one yet."""
        if not self._peers and not self.node.knows(instance):
            self.node.query(instance)

    def check_open(self, instance: str, verb: str) -> None:
        """ProcessError if it has ended."""
        self._check_known(instance)
        done = self.node.finished.get(instance)
        if done is not None:
            raise ProcessError(f"{instance} has ended ({done.status}); it can no longer be {verb}")

    def check_signal(self, instance: str, channel: str, payload: Any) -> None:
        """A signal that no receive of the process waits for would lie there for ever, and one that cannot be used would
        let the process fail."""
        replica = self.node.instances.get(instance)
        state = replica.decided[1] if replica is not None and replica.decided is not None else None
        process = self.node.shared.processes.get(f"{state.process}@{state.version}") if state is not None else None
        if process is None:
            return
        receives = [vertex for vertex in process.graph.vertices if vertex.channel]
        if channel not in [vertex.channel for vertex in receives]:
            has = ", ".join(vertex.channel for vertex in receives) or "none"
            raise ProcessError(f"process {process.name} receives nothing on channel {channel!r}; it has {has}")
        _check_fits([(process, vertex) for vertex in receives if vertex.channel == channel], payload)

    def _check_published(self, channel: str, payload: Any) -> None:
        receives = [(p, v) for p in self.processes for v in p.graph.vertices if v.channel and v.key]
        if channel not in [vertex.channel for _, vertex in receives]:
            has = ", ".join(dict.fromkeys(vertex.channel for _, vertex in receives)) or "none"
            raise ProcessError(
                f"no process of this node receives messages with a key on channel {channel!r}; there are {has}"
            )
        _check_fits([(process, vertex) for process, vertex in receives if vertex.channel == channel], payload)

    def _message(self, payload: Any) -> Any:
        try:
            told = msgspec.to_builtins(payload)
            size, most = len(msgspec.msgpack.encode(told)), self.bounds.state_bytes_max // 2
        except UNKEPT as error:
            raise ProcessError(f"the message holds a value that cannot be kept: {error}") from None
        if size > most:
            raise ProcessError(f"the message has {size} bytes, {most} is the most; send where to find the rest")
        return told

    async def _post(self, instance: str, mail: Mail) -> None:
        stored = self._expect(self._stored, mail.id)
        await self.driver.put(self.node.me, _Wish("post", (instance, mail)))
        await self._come(stored, f"message {mail.id} was on disk")

    def query(self, instance: str) -> dict[str, Any]:
        """What this node knows of an instance now."""
        return self.node.query(instance)

    def history(self, instance: str) -> dict[str, Any]:
        """All groups and actions of an instance so far: views, masters, ids of interactions, times."""
        replica = self.node.instances.get(instance)
        if replica is not None and replica.decided is not None:
            return told_history(replica.decided[1])
        return told_history(self._last_state(instance))

    def _last_state(self, instance: str) -> State:
        """Of an instance that has ended."""
        if instance in self._over:
            return self._over[instance].state
        data = self._storage.load(f"{instance}|{HISTORY}").get(f"{instance}|{HISTORY}")
        if data is None:
            raise ProcessError(f"this node has no history of {instance!r}; ask one of its replicas")
        return msgspec.msgpack.decode(data, type=State)

    def _has_consumed(self, instance: str, id: str) -> bool:
        if instance not in self._over and instance not in self._over_before:
            return False
        return id in self._last_state(instance).consumed


def _check_fits(receives: list[tuple[Process, Vertex]], payload: Any) -> None:
    """ProcessError if none of these receives can use it."""
    trouble: ProcessError | None = None
    for process, vertex in receives:
        try:
            values_of(process, vertex, payload)
            return
        except ProcessError as error:
            trouble = error
    if trouble is not None:
        raise trouble


class Embedded(RunningNode):
    """One process, one replica, SQLite, no cluster."""

    def __init__(
        self, processes: Sequence[Process], path: str | Path, services: Mapping[str, Service] | None = None, **more: Any
    ) -> None:
        super().__init__("embedded", processes, path, services, **more)
