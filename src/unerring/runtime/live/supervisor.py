"""The supervisor of a host: keeps the membership record, starts its processes, and starts again what died.

It is not needed for events to flow: while it is away nobody joins and nobody is evicted, and that is all. One that is
started again finds the processes that are still there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from unerring.correlation import Member, Standing, node_of
from unerring.log import write_private
from unerring.model import CallerError, protect_json, verified_json
from unerring.runtime import control, os_processes as processes
from unerring.runtime.control import Control
from unerring.runtime.live.cluster import Cluster
from unerring.runtime.live.healing import Healing
from unerring.runtime.live.keeping import Keeping
from unerring.runtime.os_processes import Process
from unerring.runtime.restarts import RestartsConfig
from unerring.runtime.supervisor import Supervisor, renewing

SOCKET = "control"
COMMAND_S = 60.0
"""How long an operator's command may take."""
ANSWER_S = COMMAND_S + 30.0
"""How long an operator waits for its answer."""
EVICTION_S = 5.0
HEAL_S = 0.5
"""How often a supervisor looks whether a node lacks a replica."""
WANTED = "wanted.json"


class _Wanted(msgspec.Struct):
    """Which processes are to run, if not the founding ones; kept on disk."""

    added: list[str] = []
    removed: list[str] = []


class Command(msgspec.Struct, frozen=True):
    """An operator's command to the supervisor."""

    command: str
    subject: str


def _change(asked: Command) -> str:
    return f"{asked.command} {asked.subject}"


class LiveSupervisor:
    """`command(name)` is how to start that process. `host`: which part of the cluster is ours; all without a list."""

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        command: Callable[[str], Sequence[str]],
        host: str = "",
        say: Callable[[str], Any] = lambda text: None,
        config: RestartsConfig | None = None,
        ca: str = "",
    ) -> None:
        """`ca`: the folder of the CA whose certificates are renewed while the run lasts."""
        self.cluster = cluster
        self.folder = folder
        self.host = host
        self.keeping = Keeping(cluster, folder, host)
        self._say = say
        self._ca = ca
        self._supervisor = Supervisor(folder, command, self._stuck, say, config)
        self._wanted = self._read_wanted()
        self._ending: list[asyncio.Task[None]] = []

    @property
    def wanted(self) -> list[str]:
        """The processes of this host that are to run."""
        names = [name for name in self.cluster.founding if name not in self._wanted.removed] + self._wanted.added
        return [name for name in names if name in self.cluster.on(self.host)]

    @property
    def processes(self) -> dict[str, Process]:
        return self._supervisor.processes

    @property
    def restarts(self) -> int:
        return self._supervisor.restarts

    async def run(self) -> None:
        """Until `stop`."""
        supervisor = self._supervisor
        keeps = not self.cluster.hosts or self.cluster.hosts.get(self.keeping.name, self.host) == self.host
        keeping = asyncio.create_task(self.keeping.run() if keeps else asyncio.Event().wait())
        stopping = asyncio.create_task(supervisor.stopping.wait())
        for name in self.wanted:
            supervisor.begin(name)
        commands = Control(
            self.folder / SOCKET, Command, self._carry_out, lambda asked: f"{asked.command} {asked.subject}"
        )
        await commands.open()
        beside = [
            asyncio.create_task(self._heal()),
            asyncio.create_task(renewing(self.cluster.tls, self._ca, self._say)),
        ]
        try:
            await asyncio.wait([keeping, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            await commands.close()
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            await supervisor.end_all()
            self.keeping.stop()
            stopping.cancel()
            if not keeps:
                keeping.cancel()
            await asyncio.gather(keeping, stopping, return_exceptions=True)
        if not keeping.cancelled():
            keeping.result()
        supervisor.check()

    def stop(self) -> None:
        self._supervisor.stop()

    def rearrange(self, cluster: Cluster) -> None:
        """Other nodes, with an upgrade: start those that came, end those that went."""
        self.cluster = self.keeping.cluster = cluster
        nodes = {node.name for node in cluster.topology.nodes}
        for name in self.wanted:
            if name not in self.processes:
                self._supervisor.begin(name)
        gone = [name for name in self.processes if node_of(name) not in nodes]
        self._ending = [task for task in self._ending if not task.done()]
        self._ending += [asyncio.create_task(self._supervisor.end(name)) for name in gone]

    def _stuck(self, name: str) -> list[str]:
        """One of several replicas may keep ending. When all of a node do, nobody waits for it; but the old rules go on
        without new ones."""
        if any(
            self.cluster.topology.is_coming(node) for node in self.cluster.topology.nodes if node.name == node_of(name)
        ):
            return []
        own = [other for other in self.wanted if node_of(other) == node_of(name)]
        elsewhere = [
            other for other in self.cluster.founding if node_of(other) == node_of(name) and other not in self.wanted
        ]
        return own if not elsewhere and all(map(self._supervisor.used_up, own)) else []

    # ---- replacing what is lost --------------------------------------------------------------------------------

    async def _heal(self) -> None:
        """Start a replica here in place of one that was evicted, where it is this host's turn."""
        healing, cluster = Healing(self.cluster, self.host), self.cluster
        while True:
            await asyncio.sleep(HEAL_S)
            if self.cluster is not cluster:
                healing, cluster = Healing(self.cluster, self.host), self.cluster
            now_s = asyncio.get_running_loop().time()
            for name in healing.due(self.keeping.record, self.wanted, now_s):
                self._want(name, True)
                self._supervisor.begin(name)
                self._say(f"{name} is started: a replica of {node_of(name)} is gone, and this host has a place for one")

    # ---- an operator's commands --------------------------------------------------------------------------------

    async def _carry_out(self, asked: Command) -> str:
        try:
            async with asyncio.timeout(COMMAND_S):
                match asked.command:
                    case "add":
                        return await self.add(asked.subject)
                    case "remove":
                        return await self.remove(asked.subject)
                    case "replace":
                        added = await self.add(node_of(asked.subject))
                        return f"{added}; {await self.remove(asked.subject)}"
                    case "evict":
                        return await self.evict(asked.subject)
        except TimeoutError:
            raise CallerError("it is not done yet; `unerring status` shows how far it is") from None
        raise CallerError(f"there is no command {asked.command!r}; use add, remove, replace or evict")

    async def add(self, node: str) -> str:
        """One more replica of a node; done when it is caught up."""
        self.cluster.topology.node(node)
        free = [name for name in self.cluster.spares(node) if name not in self._wanted.added]
        free += [name for name in self._wanted.removed if node_of(name) == node]
        here = [name for name in free if name in self.cluster.on(self.host)]
        if not here:
            where = ", ".join(sorted({self.cluster.hosts[name] for name in free})) if self.cluster.hosts else ""
            hint = f"; give the command on host {where}" if where else "; remove one first"
            raise CallerError(f"node {node} has no place for another replica here{hint}")
        name = here[0]
        self._want(name, True)
        self._supervisor.begin(name)
        while not self._stands(name, Standing.CAUGHT_UP):
            await asyncio.sleep(processes.LOOK_S)
        return f"{name} is added and caught up"

    async def remove(self, replica: str) -> str:
        """Take a replica out of the record, for good, and end its process."""
        self._check_member(replica)
        if replica not in self.wanted:
            raise CallerError(f"{replica} is not supervised here; give the command on its own host")
        eviction = await self.evict(replica)
        self._want(replica, False)
        await self._supervisor.end(replica)
        # It may have come back meanwhile, as evicted replicas do.
        if not self._stands(replica, Standing.GONE):
            await self.evict(replica)
        return f"{eviction}; its process is ended"

    async def evict(self, replica: str) -> str:
        """Only with the word of one that remains; an evicted replica that lives joins anew."""
        member = self._check_member(replica)
        self.keeping.evict(replica)
        deadline = asyncio.get_running_loop().time() + EVICTION_S
        while (now := self.keeping.record.members.get(replica)) == member:
            if asyncio.get_running_loop().time() > deadline:
                raise CallerError(
                    f"{replica} stays: no other caught-up replica of {node_of(replica)} confirmed that it remains"
                )
            await asyncio.sleep(processes.LOOK_S / 4)
        return f"incarnation {member.incarnation} of {replica} is evicted" if now is not None else ""

    def _check_member(self, replica: str) -> Member:
        member = self.keeping.record.members.get(replica)
        if member is None or member.standing is Standing.GONE:
            known = ", ".join(
                name for name, m in self.keeping.record.members.items() if m.standing is not Standing.GONE
            )
            raise CallerError(f"{replica} is not in the membership record; it has {known}")
        return member

    def _stands(self, replica: str, standing: Standing) -> bool:
        member = self.keeping.record.members.get(replica)
        return member is not None and member.standing is standing

    def _want(self, name: str, wanted: bool) -> None:
        for names in (self._wanted.added, self._wanted.removed):
            if name in names:
                names.remove(name)
        if wanted and name not in self.cluster.founding:
            self._wanted.added.append(name)
        if not wanted and name in self.cluster.founding:
            self._wanted.removed.append(name)
        write_private(self.folder / WANTED, protect_json(self._wanted))

    def _read_wanted(self) -> _Wanted:
        path = self.folder / WANTED
        return verified_json(path.read_bytes(), _Wanted, str(path)) if path.exists() else _Wanted()


def ask_supervisor(folder: Path, command: str, subject: str) -> str:
    """The operator's end: what the supervisor of a run's live folder answers."""
    if not (folder / SOCKET).exists():
        raise CallerError(f"nobody supervises a run in {folder}; start it with `unerring run`")
    answer: str = control.ask(folder / SOCKET, Command(command, subject), ANSWER_S)
    return answer
