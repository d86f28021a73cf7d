"""The supervisor: keeps the membership record, starts every process, and starts again what died.

It is not needed for events to flow: while it is away nobody joins and nobody is evicted, and that is all.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

from unerring.correlation import Membership
from unerring.correlation.messages import MEMBERSHIP
from unerring.runtime.live.cluster import Cluster
from unerring.runtime.live.hosting import Host
from unerring.runtime.storage import SqliteStorage

RESTART_S_MIN = 0.05
RESTART_S_MAX = 5.0
ENOUGH_S = 5.0
"""A process that ran this long is started again at once."""


class Supervisor:
    """`command(name)` is how to start that process."""

    def __init__(self, cluster: Cluster, folder: Path, command: Callable[[str], Sequence[str]]) -> None:
        self.cluster = cluster
        self.folder = folder
        self.command = command
        self.processes: dict[str, asyncio.subprocess.Process] = {}
        self.restarts = 0
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Until `stop`."""
        storage = SqliteStorage(self.folder / "membership.db")
        machine = Membership(storage.load(), self.cluster.topology, self.cluster.config, random.Random())
        host = Host(self.cluster, MEMBERSHIP, machine, storage)
        keeping = asyncio.create_task(host.run(self.folder / "status" / "membership.json"))
        running = [asyncio.create_task(self._keep(name)) for name in self.cluster.names]
        try:
            await asyncio.wait([keeping, asyncio.ensure_future(self._stopping.wait())], return_when="FIRST_COMPLETED")
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            await self._end_processes()
            host.driver.stop("the run ends")
            await asyncio.gather(keeping, return_exceptions=True)
            storage.close()

    def stop(self) -> None:
        self._stopping.set()

    async def _keep(self, name: str) -> None:
        """One process, again and again; the pause grows while it dies young."""
        pause_s = RESTART_S_MIN
        loop = asyncio.get_running_loop()
        while True:
            (self.folder / "logs").mkdir(parents=True, exist_ok=True)
            with (self.folder / "logs" / f"{name.replace('/', '.')}.log").open("ab") as log:
                process = await asyncio.create_subprocess_exec(*self.command(name), stdout=log, stderr=log)
            self.processes[name] = process
            began_s = loop.time()
            await process.wait()
            self.restarts += 1
            pause_s = RESTART_S_MIN if loop.time() - began_s > ENOUGH_S else min(2 * pause_s, RESTART_S_MAX)
            await asyncio.sleep(pause_s)

    async def _end_processes(self) -> None:
        for process in self.processes.values():
            if process.returncode is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in self.processes.values():
            try:
                await asyncio.wait_for(process.wait(), 5)
            except TimeoutError:
                process.kill()
                await process.wait()
