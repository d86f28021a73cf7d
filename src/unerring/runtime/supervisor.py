"""Keeps the processes of a folder running: starts them, starts again what died, ends them in order.

Processes outlive a supervisor that was killed. The next one finds those that are still there.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from unerring.model import ConfigError, DiskError
from unerring.runtime import os_processes as processes, timeline
from unerring.runtime.certificates import renew_all
from unerring.runtime.os_processes import Process
from unerring.runtime.restarts import EXIT_FINAL, GivenUp, Restarts, RestartsConfig, last_words
from unerring.runtime.timeline import What

RENEW_S: Final = 60.0
"""How often a supervisor looks whether a certificate is due."""


async def renewing(folder: str, ca: str, say: Callable[[str], Any]) -> None:
    """Renew the certificates of a folder's processes in time, for ever, if the CA's key is here. The processes take the
    new ones for their next connections."""
    trouble = ""
    while True:
        try:
            for name in await asyncio.to_thread(renew_all, folder, ca) if ca else ():
                say(f"the certificate of {name} was renewed")
        except ConfigError as error:
            if str(error) != trouble:
                trouble = str(error)
                say(trouble)
        await asyncio.sleep(RENEW_S)


class Supervisor:
    """`command(name)` is how to start that process. `stuck(name)`: the processes, one that keeps ending among them,
    without which the run cannot go on; none: others of its kind are there. `environment(name)` is added to ours."""

    def __init__(
        self,
        folder: Path,
        command: Callable[[str], Sequence[str]],
        stuck: Callable[[str], Sequence[str]],
        say: Callable[[str], Any] = lambda text: None,
        config: RestartsConfig | None = None,
        environment: Callable[[str], Mapping[str, str]] = lambda name: {},
        log_of: Callable[[Path, str], Path] = processes.log_of,
    ) -> None:
        self.folder = folder
        self.processes: dict[str, Process] = {}
        self.restarts = 0
        self.stopping = asyncio.Event()
        """Set by `stop`, or when a process cannot be kept."""
        self._command = command
        self._stuck = stuck
        self._say = say
        self._config = config
        self._environment = environment
        self._log_of = log_of
        self._tries: dict[str, Restarts] = {}
        self._kept: dict[str, asyncio.Task[None]] = {}

    def begin(self, name: str) -> None:
        """Keep one process running, from now on."""
        self._kept[name] = task = asyncio.create_task(self._keep(name))
        task.add_done_callback(self._no_longer_kept)

    async def end(self, name: str) -> None:
        """End one process for good."""
        task = self._kept.pop(name, None)
        if task is None:
            return  # somebody ends it already
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await self.processes.pop(name).end()

    def stop(self) -> None:
        self.stopping.set()

    async def end_all(self) -> None:
        """End all processes with the run."""
        for task in self._kept.values():
            task.cancel()
        await asyncio.gather(*self._kept.values(), return_exceptions=True)
        await asyncio.gather(*(process.end() for process in self.processes.values()))
        with contextlib.suppress(OSError):
            for name in self.processes:
                timeline.note(self.folder, name, What.ENDED, "with the run")

    def check(self) -> None:
        """Raise, as a sentence, why a process cannot be kept."""
        for task in self._kept.values():
            failure = task.exception() if task.done() and not task.cancelled() else None
            if isinstance(failure, OSError):
                raise DiskError(
                    f"{self.folder} cannot be written ({failure}); free space there, then start the run again"
                )
            if failure is not None:
                raise failure

    def used_up(self, name: str) -> bool:
        """Whether a process has ended as often in a row as it may."""
        return name in self._tries and self._tries[name].used_up

    def _no_longer_kept(self, task: asyncio.Task[None]) -> None:
        """A process that cannot be looked after (a full disk) ends the run: it must not be missing unnoticed."""
        if not task.cancelled() and task.exception() is not None:
            self.stopping.set()

    async def _keep(self, name: str) -> None:
        """One process, again and again; the pause grows while it dies young."""
        tries = self._tries[name] = Restarts(self._config)
        loop = asyncio.get_running_loop()
        process = processes.find(self.folder, name)
        while True:
            adopted = process is not None
            process = self.processes[name] = process or await self._start(name)
            if not adopted:
                timeline.note(self.folder, name, What.STARTED, f"as process {process.pid}")
            began_s = loop.time()
            await process.wait()
            timeline.note(self.folder, name, What.DIED, f"process {process.pid} {process.ending}".rstrip())
            self.restarts += 1
            pause_s = tries.failed(loop.time() - began_s)
            if process.code == EXIT_FINAL:
                tries.give_up()
            if tries.used_up:
                self._check_hope(name)
            await asyncio.sleep(pause_s)
            if not tries.used_up:
                self._say(
                    f"{name} {process.ending or 'ended'}; it is started again (see {self._log_of(self.folder, name)})"
                )
            process = None

    def _check_hope(self, name: str) -> None:
        words, log = last_words(self._log_of(self.folder, name)), self._log_of(self.folder, name)
        stuck = self._stuck(name)
        if stuck:
            raise GivenUp(f"{' and '.join(stuck)} cannot go on: {words} (see {log})")
        self._say(f"{name} keeps ending: {words} (see {log})")

    async def _start(self, name: str) -> Process:
        log = self._log_of(self.folder, name)
        starting = asyncio.create_task(
            processes.start(self.folder, name, self._command(name), log, self._environment(name))
        )
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            self.processes[name] = await starting  # It runs already: it is ended with the others.
            raise
