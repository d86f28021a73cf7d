"""Operating-system processes that outlive their supervisor: started, found again, ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from unerring.log import open_private, private_folder, write_private
from unerring.model import LogError, protect_line, verified_line
from unerring.runtime.logs import LOG_FILE, turn_before_start

LOOK_S = 0.1
PATIENCE_S = 30.0
"""The patience with a process that was asked to end: an application seals what it has first."""


class Process:
    """One process: a child of ours, or one that an earlier supervisor started and that is still there."""

    def __init__(self, pid: int, child: asyncio.subprocess.Process | None) -> None:
        self.pid = pid
        self._child = child
        self._began = began_at(pid)

    @property
    def alive(self) -> bool:
        if self._child is not None:
            return self._child.returncode is None
        return self._began is not None and began_at(self.pid) == self._began

    @property
    def code(self) -> int | None:
        """Its exit code, if it is known."""
        return None if self._child is None else self._child.returncode

    @property
    def ending(self) -> str:
        """How it ended, if that is known."""
        return "" if self.code is None else how_it_ended(self.code)

    async def wait(self) -> None:
        if self._child is not None:
            await self._child.wait()
            return
        while self.alive:
            await asyncio.sleep(LOOK_S)

    def signal(self, number: int) -> None:
        if self.alive:
            with contextlib.suppress(ProcessLookupError):  # it ended just now
                os.kill(self.pid, number)

    async def end(self) -> None:
        """Ask; after a while, insist."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self.wait(), PATIENCE_S)
        except TimeoutError:
            self.signal(signal.SIGKILL)
            await self.wait()


async def start(folder: Path, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> Process:
    """Start a process, its words into a log file, its number into a file of its own."""
    for path in (log.parent, folder / "pids"):
        private_folder(path)
    turn_before_start(log)
    with open_private(log, "ab") as words:
        child = await asyncio.create_subprocess_exec(
            *command,
            stdout=words,
            stderr=words,
            env={**os.environ, LOG_FILE: str(log), **environment},
            start_new_session=True,
        )
    try:
        write_number(folder / "pids" / dotted(name), child.pid)
    except OSError:  # Nobody would find it again.
        child.kill()
        await child.wait()
        raise
    return Process(child.pid, child)


def log_of(folder: Path, name: str) -> Path:
    """The log file of a process."""
    return folder / "logs" / f"{dotted(name)}.log"


def own_number(folder: Path, name: str) -> None:
    """Write down which process this one is, so that it can be found under a name."""
    private_folder(folder / "pids")
    write_number(folder / "pids" / dotted(name), os.getpid())


def write_number(path: Path, pid: int) -> None:
    """A process's number and when it began, which tells it from another of the same number."""
    write_private(path, protect_line(f"{pid} {began_at(pid)}".encode()))


def find(folder: Path, name: str) -> Process | None:
    """The process that an earlier supervisor started under this name, if it is still there."""
    path = folder / "pids" / dotted(name)
    try:
        line = path.read_bytes()
        old = line.count(b" ") == 1  # of a release that gave it no digest
        pid, began = (line if old else verified_line(line, str(path))).decode().split()
    except (OSError, ValueError, LogError):
        return None
    return Process(int(pid), None) if began_at(int(pid)) == began else None


def find_all(folder: Path) -> list[Process]:
    """All processes that have their numbers in a folder, and are still there."""
    known = [find(folder, path.name) for path in sorted((folder / "pids").glob("*"))]
    return [process for process in known if process is not None]


def marked(mark: str) -> list[Process]:
    """Processes with a variable of their environment that begins like this, but us: whoever started them, and whatever
    became of the files that named them."""
    processes = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # it is somebody else's, or gone
        if any(variable.startswith(mark.encode()) for variable in variables) and int(entry.name) != os.getpid():
            processes.append(Process(int(entry.name), None))
    return [process for process in processes if process.alive]


def end_all(processes: Sequence[Process], within_s: float) -> None:
    """Ask all to end, and wait; after a while, insist."""
    end_s = time.monotonic() + within_s
    for number in (signal.SIGCONT, signal.SIGTERM):
        for process in processes:
            process.signal(number)
    while any(process.alive for process in processes):
        if time.monotonic() >= end_s:
            for process in processes:
                process.signal(signal.SIGKILL)
        time.sleep(LOOK_S / 4)


def how_it_ended(code: int) -> str:
    """A process's exit code in words."""
    if code >= 0:
        return f"ended with code {code}"
    try:
        return f"ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"ended by signal {-code}"


def began_at(pid: int) -> str | None:
    """When a process began, in ticks since the machine did: a number given again is not taken for the old one."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def dotted(name: str) -> str:
    """A process's name where '/' cannot stand: in a file's name, as a node of the links."""
    return name.replace("/", ".")
