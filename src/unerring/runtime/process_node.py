"""Process nodes as an application uses them. Embedded mode is a node without links: one process, one replica, the same
code.

    async with Embedded([order], "orders.db") as engine:
        result = await engine.run("order", "order-17", item="bolt")
"""

from __future__ import annotations

import asyncio
import uuid
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from unerring.log import Store
from unerring.model import CallerError, InstanceFailed, NetworkError, ProcessError, StableStorage, UnerringError
from unerring.processes import (
    AGAIN,
    CANCEL,
    HISTORY,
    HOLD,
    LOCAL,
    MOVE,
    RESUME,
    UNKEPT,
    ClusterBounds,
    Ended,
    Forgotten,
    Grouping,
    Kept,
    Mail,
    Process,
    ProcessesConfig,
    ProcessNode,
    Publish,
    Start,
    Started,
    State,
    Status,
    Stored,
    TakesPart,
    Vertex,
    back,
    check_message_id,
    family,
    history_of,
    key_of,
    moved,
    values_of,
)
from unerring.runtime.links import LinksConfig
from unerring.runtime.pages import LOOKED_AT_AT_ONCE, Wanted, page
from unerring.runtime.process_driver import MACHINE, NodeDriver
from unerring.runtime.reports import Reports
from unerring.runtime.services.clients import HttpService, Service
from unerring.runtime.timers import monotonic_us
from unerring.runtime.where import equalities, where

Waiting = dict[str, list[asyncio.Future[Any]]]


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
        large: Store | None = None,
    ) -> None:
        """`large`: where large values are, for all nodes; by default in the folder of this node's database."""
        self.name = name
        self.processes = family(processes)
        """All versions that this node serves, and all children; of each process the current version last."""
        self.reports = reports or Reports()
        self.driver = NodeDriver(
            name,
            self.processes,
            storage,
            services or {},
            peers or {},
            bounds or ClusterBounds(f=len(peers or {}) // 2),
            config or ProcessesConfig(),
            grouping or Grouping(),
            listen_on,
            incarnation,
            links_config,
            self.reports,
            self._on_deliver,
            large,
        )
        self._removing: set[asyncio.Task[None]] = set()
        self._ended: Waiting = {}
        self._started: Waiting = {}
        self._stored: Waiting = {}
        self._over: dict[str, Ended] = {}
        """Ends that were delivered, so that they are on disk: what the machine knows may be ahead of it. Their last
        states are here until those are on disk too."""
        self._present = asyncio.Event()
        self._kept: set[str] = set()
        """The ended instances whose outcome and history are on disk."""

    async def open(self) -> str:
        """Start the node; return the address that it listens on, empty without peers."""
        address = await self.driver.open()
        self._kept = set(self.node.finished)
        if not self.absent:
            self._present.set()
        return address

    @property
    def node(self) -> ProcessNode:
        """The machine of this node."""
        return self.driver.node

    @property
    def absent(self) -> str:
        """Why this node takes no part yet, and whom it waits for; empty: it takes part."""
        return self.node.rejoin.why_absent

    def join(self, peer: str, address: str) -> None:
        """Name the address of another node of the cluster."""
        self.driver.join(peer, address)

    async def wait(self, stopping: asyncio.Event) -> None:
        """Until `stopping` is set. Raises what ended the node before that, a failed disk for example."""
        await self.driver.wait(stopping)

    async def close(self) -> None:
        """Stop in order, with everything on disk."""
        await self.driver.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _on_deliver(self, what: Any) -> None:
        waiting: list[asyncio.Future[Any]] = []
        if isinstance(what, Forgotten):
            self._kept.discard(what.instance)
            if self.driver.large is not None:
                removing = asyncio.get_running_loop().create_task(self._remove(what.instance))
                self._removing.add(removing)
                removing.add_done_callback(self._removing.discard)
        elif isinstance(what, Ended):
            self._over[what.instance] = what
            waiting = [*self._ended.pop(what.instance, [])]
        elif isinstance(what, Kept):
            self._kept.add(what.instance)
            self._over.pop(what.instance, None)
        elif isinstance(what, Started):
            waiting = [*self._started.pop(what.instance, [])]
        elif isinstance(what, Stored):
            waiting = [*self._stored.pop(what.id, [])]
        elif isinstance(what, TakesPart):
            self._present.set()
        for each in waiting:
            if not each.done():
                each.set_result(what)

    async def _remove(self, instance: str) -> None:
        """The large values of an instance that is kept no longer."""
        if self.driver.large is not None:
            try:
                await asyncio.to_thread(self.driver.large.remove, instance)
            except UnerringError as error:
                self.reports.note("process.large_not_removed", f"{instance}: {error}")

    async def present(self, within_s: float) -> None:
        """Wait until this node takes part. NetworkError: it does not, because its disk is empty and the others have not
        told it yet what they know."""
        if self._present.is_set():
            return
        try:
            await asyncio.wait_for(self._present.wait(), within_s)
        except TimeoutError:
            raise NetworkError(self.absent) from None

    async def forget_node(self, name: str) -> None:
        """Say that a node lost its disk for good: what it did at services that cannot cancel, and nobody knows, counts
        as settled. ProcessError if it runs with its disk."""
        address = f"{name}/{MACHINE}"
        self.node.check_forget(address, monotonic_us())
        await self.driver.do("forget_node", address)

    # ---- what an application does ------------------------------------------------------------------------------

    async def start(self, process: str, instance: str, /, **given: Any) -> None:
        """Start an instance. When this returns it exists on a majority. The same id and input again is the same start;
        the same id with another process or input is refused with a ProcessError."""
        given = msgspec.to_builtins(given)
        if self.driver.large is not None:
            given = await asyncio.to_thread(self.driver.large.given, process, instance, given)
        start = Start(instance, process, given)
        self.node.check_start(start)  # says at once what is wrong with it
        answer = self._expect(self._started, instance)
        await self.driver.do("begin", start)
        started = await self.driver.answer(answer, f"the start of {instance} was on disk")
        if not started.same:
            raise ProcessError(
                f"{instance!r} was started before with another process or other input; give this one an id of its own"
            )

    def _expect(self, waiting: Waiting, id: str) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        waiting.setdefault(id, []).append(future)
        return future

    async def result(self, instance: str) -> dict[str, Any]:
        """Wait for the end of an instance; its variables. InstanceFailed if it did not complete."""
        if instance in self._kept and instance in self.node.finished:
            outline = self.node.finished[instance]
            status, reason, variables = outline.status, outline.reason, outline.variables
        else:
            ended = self._over.get(instance)
            if ended is None:
                self._check_known(instance)
                ended = await self.driver.answer(self._expect(self._ended, instance), f"{instance} came to its end")
            status, reason, variables = ended.state.status, ended.state.reason, ended.state.variables
        if status != Status.COMPLETED:
            raise InstanceFailed(instance, status, reason)
        return dict(variables)

    async def value(self, instance: str, variable: str) -> Any:
        """The value of a large variable, as of the last state that this node knows. ProcessError if it vanished."""
        variables = self.node.query(instance)["variables"]
        if self.driver.large is None or variable not in variables:
            raise ProcessError(f"{instance} has no large value {variable!r}; it has {', '.join(variables) or 'none'}")
        return await asyncio.to_thread(self.driver.large.value, instance, variables[variable])

    async def run(self, process: str, instance: str, /, **given: Any) -> dict[str, Any]:
        """Start an instance and wait for its end; its variables."""
        await self.start(process, instance, **given)
        return await self.result(instance)

    async def signal(self, instance: str, channel: str, payload: Any, id: str = "", answers: str = "") -> None:
        """Send a message to a receive action. The same id is the same message. `answers`: the interaction id of the
        request that it answers; it is received only if that request counts. When this returns, f+1 replicas have it."""
        if channel.startswith("!"):
            raise CallerError(
                f"invalid channel {channel!r}: the channel of a signal cannot begin with '!'; operators use cancel(), "
                "hold(), resume() and so on"
            )
        check_message_id(id)
        if answers and not answers.startswith(f"{instance}/"):
            raise ProcessError(
                f"{answers!r} is not an interaction of {instance}; give the Idempotency-Key of the request that "
                "it answers"
            )
        if id and self._has_consumed(instance, id):
            return  # whoever did not hear that it came sends it again
        self.check_open(instance, "signalled")
        value = self._message(payload)
        self._check_signal(instance, channel, value)
        await self._post(instance, Mail(id or uuid.uuid4().hex, channel, value, answers))

    async def publish(self, channel: str, key: Any, payload: Any, id: str = "") -> None:
        """Send a message to every instance that waits, now or within an hour, for this key on this channel; each gets
        it once. When this returns, enough nodes have it that it is not lost."""
        check_message_id(id)
        value = self._message(payload)
        self._check_published(channel, value)
        message = Publish(id or uuid.uuid4().hex, channel, key_of(msgspec.to_builtins(key)), value)
        stored = self._expect(self._stored, message.id)
        await self.driver.do("publish", message)
        await self.driver.answer(stored, f"message {message.id} was on disk")

    async def cancel(self, instance: str) -> None:
        """Undo an instance. It may have ended, or be past what can be undone: see `result`."""
        self._check_known(instance)
        await self._post(instance, Mail(f"cancel-{instance}", CANCEL, None))

    async def hold(self, instance: str, why: str = "") -> None:
        """Hold an instance after its present group, until `resume`."""
        self.check_open(instance, "held")
        await self._post(instance, Mail(f"hold-{uuid.uuid4().hex}", HOLD, why or "by an operator"))

    async def park(self, instance: str, why: str = "") -> None:
        """The old name of `hold`."""
        warnings.warn("RunningNode.park is now hold", DeprecationWarning, stacklevel=2)
        await self.hold(instance, why)

    async def resume(self, instance: str) -> None:
        """Let a held instance continue."""
        self.check_open(instance, "resumed")
        await self._post(instance, Mail(f"resume-{uuid.uuid4().hex}", RESUME, None))

    async def retry(self, instance: str, step: str = "") -> None:
        """Try again at once what could not be undone, or is held. With a step, undo everything from that step on, in
        reverse order, and continue from there."""
        known = self.node.query(instance)
        if step:
            state = self._state(instance)
            process = self._version(state.process, state.version)
            back(process, state, step)
        if step or known["status"] == "held":
            await self._post(instance, Mail(f"again-{uuid.uuid4().hex}", AGAIN, step or None))
        else:
            await self.driver.do("retry", instance)

    async def move(self, instance: str, version: str = "") -> str:
        """Move a running instance to another version, by default the current one; return the version. Raises if it
        cannot be moved, as far as is known now; the move is checked again when it is decided."""
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

    async def steer_service(self, service: str, what: str, why: str = "") -> dict[str, Any]:
        """`pause`, `resume` or `show` the gate of a service's filter, for all instances of all nodes."""
        known = self.driver.services.get(service)
        if known is None:
            has = ", ".join(name for name in self.driver.services if name != LOCAL) or "none"
            raise ProcessError(f"{self.name} has no service {service!r}; it has {has}")
        if not isinstance(known, HttpService):
            raise ProcessError(f"{service} has no filter that could be paused; hold the instances instead")
        return await known.steer(what, why)

    def ask(self, instance: str, query: str) -> Any:
        """Ask a query of the process about the last decided state of an instance that this node knows."""
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
        deployed = self.node.shared.processes.get(f"{process}@{version}")
        if deployed is None:
            has = ", ".join(p.graph.version for p in self.processes if p.name == process) or "none"
            raise ProcessError(
                f"version {version} of process {process} is not deployed on {self.name}, which has {has}; deploy it "
                "again"
            )
        return deployed

    # ---- what is reported before it is too late ---------------------------------------------------------------------

    def _check_known(self, instance: str) -> None:
        """A node that is alone knows all instances; one of several may not have heard of one yet."""
        if not self.driver.peers and not self.node.knows(instance):
            self.node.query(instance)

    def check_open(self, instance: str, verb: str) -> None:
        """ProcessError if it has ended."""
        self._check_known(instance)
        done = self.node.finished.get(instance)
        if done is not None:
            raise ProcessError(f"{instance} has ended ({done.status}); it can no longer be {verb}")

    def _check_signal(self, instance: str, channel: str, payload: Any) -> None:
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
            value = msgspec.to_builtins(payload)
            size, most = len(msgspec.msgpack.encode(value)), self.driver.bounds.state_bytes_max // 2
        except UNKEPT as error:
            raise ProcessError(f"the message has a value that cannot be stored: {error}") from None
        if size > most:
            raise ProcessError(
                f"the message has {size} bytes, which exceeds the limit of {most} bytes; send a reference instead"
            )
        return value

    async def _post(self, instance: str, mail: Mail) -> None:
        stored = self._expect(self._stored, mail.id)
        await self.driver.do("post", instance, mail)
        await self.driver.answer(stored, f"message {mail.id} was on disk")

    def query(self, instance: str) -> dict[str, Any]:
        """This node's present knowledge of an instance."""
        return self.node.query(instance)

    async def list(self, condition: str = "") -> list[dict[str, Any]]:
        """The instances that this node knows, for which a condition like `status = 'failed'` holds."""
        listing = self.node.listing
        holds = where(condition, listing.attributes)
        rows: list[dict[str, Any]] = []
        for number, (instance, field) in enumerate(listing.fields(equalities(condition)), 1):
            if holds(field) and (row := listing.row(instance)) is not None:
                rows.append(row)
            if number % LOOKED_AT_AT_ONCE == 0:
                await asyncio.sleep(0)
        return rows

    async def page(self, wanted: Wanted) -> dict[str, Any]:
        """Some of them, so that an answer stays small however many there are; see pages.py."""
        return await page(self.node.listing, wanted)

    def history(self, instance: str) -> dict[str, Any]:
        """All groups and actions of an instance so far: views, masters, ids of interactions, times."""
        replica = self.node.instances.get(instance)
        if replica is not None and replica.decided is not None:
            return history_of(replica.decided[1])
        return history_of(self._last_state(instance))

    def _last_state(self, instance: str) -> State:
        """The last state of an instance that has ended."""
        if instance in self._over:
            return self._over[instance].state
        data = self.driver.storage.load(f"{instance}|{HISTORY}").get(f"{instance}|{HISTORY}")
        if data is None:
            raise ProcessError(f"this node has no history of {instance!r}; ask one of its replicas")
        return msgspec.msgpack.decode(data, type=State)

    def _has_consumed(self, instance: str, id: str) -> bool:
        if instance not in self._over and instance not in self._kept:
            return False
        try:
            return id in self._last_state(instance).consumed
        except ProcessError:
            return False  # its history went with a lost disk


def _check_fits(receives: list[tuple[Process, Vertex]], payload: Any) -> None:
    """ProcessError if none of these receives can use it."""
    trouble: ProcessError | None = None
    for process, vertex in receives:
        try:
            values_of(process, vertex, payload, {})
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
