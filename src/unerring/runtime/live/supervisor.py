"""The supervisor of a host: keeps the membership record, starts its processes, and starts again what died.

It is not needed for events to flow: while it is away nobody joins and nobody is evicted, and that is all. One that is
started again finds the processes that are still there.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from unerring.correlation.record import Member, Standing, node_of
from unerring.model import CallerError, DiskError, protect_json, verified_json
from unerring.runtime import happenings
from unerring.runtime.happenings import What
from unerring.runtime.live import processes
from unerring.runtime.live.cluster import Cluster
from unerring.runtime.live.control import Control
from unerring.runtime.live.keeping import Keeping
from unerring.runtime.live.processes import Process
from unerring.runtime.restarts import EXIT_FINAL, GivenUp, Restarts, RestartsConfig, last_words

COMMAND_S = 60.0
"""How long an operator's command may take."""
EVICTION_S = 5.0
WANTED = "wanted.json"


class _Wanted(msgspec.Struct):
    """Which processes are to run, if not the founding ones; kept on disk."""

    added: list[str] = []
    removed: list[str] = []


class Supervisor:
    """`command(name)` is how to start that process. `host`: which part of the cluster is ours; all without a list."""

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        command: Callable[[str], Sequence[str]],
        host: str = "",
        say: Callable[[str], Any] = lambda text: None,
        config: RestartsConfig | None = None,
    ) -> None:
        self.cluster = cluster
        self.folder = folder
        self.command = command
        self.host = host
        self.keeping = Keeping(cluster, folder, host)
        self.processes: dict[str, Process] = {}
        self.restarts = 0
        self._say = say
        self._config = config
        self._tries: dict[str, Restarts] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._stopping = asyncio.Event()
        self._wanted = self._read_wanted()

    @property
    def wanted(self) -> list[str]:
        """The processes of this host that are to run."""
        names = [name for name in self.cluster.founding if name not in self._wanted.removed] + self._wanted.added
        return [name for name in names if name in self.cluster.on(self.host)]

    async def run(self) -> None:
        """Until `stop`."""
        keeps = not self.cluster.hosts or self.cluster.hosts.get(self.keeping.name, self.host) == self.host
        keeping = asyncio.create_task(self.keeping.run() if keeps else asyncio.Event().wait())
        stopping = asyncio.create_task(self._stopping.wait())
        for name in self.wanted:
            self._begin(name)
        control = Control(self.folder, self._answer)
        await control.open()
        try:
            await asyncio.wait([keeping, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            await control.close()
            for task in self._running.values():
                task.cancel()
            await asyncio.gather(*self._running.values(), return_exceptions=True)
            await asyncio.gather(*(process.end() for process in self.processes.values()))
            with contextlib.suppress(OSError):
                for name in self.processes:
                    happenings.note(self.folder, name, What.ENDED, "with the run")
            self.keeping.stop()
            stopping.cancel()
            if not keeps:
                keeping.cancel()
            await asyncio.gather(keeping, stopping, return_exceptions=True)
        ended: list[asyncio.Task[Any]] = [keeping, *self._running.values()]
        for one in ended:
            if one.done() and not one.cancelled() and (failure := one.exception()) is not None:
                raise _in_words(failure, self.folder)

    def stop(self) -> None:
        self._stopping.set()

    def _begin(self, name: str) -> None:
        self._running[name] = task = asyncio.create_task(self._keep(name))
        task.add_done_callback(self._no_longer_kept)

    def _no_longer_kept(self, task: asyncio.Task[None]) -> None:
        """A process that cannot be looked after (a full disk) ends the run: it must not be missing unnoticed."""
        if not task.cancelled() and task.exception() is not None:
            self._stopping.set()

    async def _keep(self, name: str) -> None:
        """One process, again and again; the pause grows while it dies young."""
        tries = self._tries[name] = Restarts(self._config)
        loop = asyncio.get_running_loop()
        process = processes.find(self.folder, name)
        while True:
            found = process is not None
            process = self.processes[name] = process or await self._start(name)
            if not found:
                happenings.note(self.folder, name, What.STARTED, f"as process {process.pid}")
            began_s = loop.time()
            await process.wait()
            happenings.note(self.folder, name, What.DIED, f"process {process.pid} {process.ending}".rstrip())
            self.restarts += 1
            pause_s = tries.failed(loop.time() - began_s)
            if process.code == EXIT_FINAL:
                tries.give_up()
            if tries.used_up:
                self._check_hope(name)
            await asyncio.sleep(pause_s)
            process = None

    def _check_hope(self, name: str) -> None:
        """One of several replicas may keep failing. When all of a node do, nobody waits for it: the run ends."""
        words = last_words(log := processes.log_of(self.folder, name))
        own = [other for other in self.wanted if node_of(other) == node_of(name)]
        elsewhere = [
            other for other in self.cluster.founding if node_of(other) == node_of(name) and other not in self.wanted
        ]
        if not elsewhere and all(other in self._tries and self._tries[other].used_up for other in own):
            raise GivenUp(f"{' and '.join(own)} cannot go on: {words} (see {log})")
        self._say(f"{name} keeps ending: {words}")

    async def _start(self, name: str) -> Process:
        starting = asyncio.create_task(processes.start(self.folder, name, self.command(name)))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            self.processes[name] = await starting  # It runs already: it is ended with the others.
            raise

    # ---- an operator's commands --------------------------------------------------------------------------------

    async def _answer(self, command: str, subject: str) -> str:
        async with asyncio.timeout(COMMAND_S):
            match command:
                case "add":
                    return await self.add(subject)
                case "remove":
                    return await self.remove(subject)
                case "replace":
                    added = await self.add(node_of(subject))
                    return f"{added}; {await self.remove(subject)}"
                case "evict":
                    return await self.evict(subject)
        raise CallerError(f"there is no command {command!r}; use add, remove, replace or evict")

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
        self._begin(name)
        while not self._stands(name, Standing.CAUGHT_UP):
            await asyncio.sleep(processes.LOOK_S)
        return f"{name} is added and caught up"

    async def remove(self, replica: str) -> str:
        """Take a replica out of the record, for good, and end its process."""
        self._check_member(replica)
        if replica not in self.wanted:
            raise CallerError(f"{replica} is not supervised here; give the command on its own host")
        said = await self.evict(replica)
        self._want(replica, False)
        task = self._running.pop(replica)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await self.processes.pop(replica).end()
        # It may have come back meanwhile, as evicted replicas do.
        if not self._stands(replica, Standing.GONE):
            await self.evict(replica)
        return f"{said}; its process is ended"

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
        (self.folder / WANTED).write_bytes(protect_json(self._wanted))

    def _read_wanted(self) -> _Wanted:
        path = self.folder / WANTED
        return verified_json(path.read_bytes(), _Wanted, str(path)) if path.exists() else _Wanted()


def _in_words(failure: BaseException, folder: Path) -> BaseException:
    if isinstance(failure, OSError):
        return DiskError(f"{folder} cannot be written ({failure}); mend the disk and start the run again")
    return failure
