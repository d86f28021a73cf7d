"""All processes of a run on this host stand still for a moment, and go on whatever becomes of whoever stopped them.

What they have on disk then is what a power failure at that moment would leave, and of the same moment for all of them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from unerring.model import WorldError
from unerring.runtime.os_processes import Process

_STOPS_S: Final = 5.0
_LOOK_S: Final = 0.002
_GUARD: Final = """
import os, select, signal, sys
within_s, pids = float(sys.argv[1]), [int(pid) for pid in sys.argv[2:]]
select.select([0], [], [], within_s)
for pid in pids:
    try:
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        pass
"""
"""Lets all go on when its input ends, as it does when its parent dies, or after some time."""


def family(processes: Sequence[Process]) -> list[Process]:
    """Processes with all that they have started, parents first; none of them twice."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
            children.setdefault(int(parent), []).append(int(entry.name))
    found: dict[int, Process] = {}
    waiting = [process.pid for process in processes if process.alive]
    while waiting:
        pid = waiting.pop(0)
        if pid not in found and pid != os.getpid():
            found[pid] = Process(pid, None)
            waiting += children.get(pid, [])
    return [process for process in found.values() if process.alive]


@contextlib.contextmanager
def paused(processes: Sequence[Process], within_s: float) -> Iterator[None]:
    """Nothing of these moves inside; a WorldError if that took longer than `within_s`: they moved at its end."""
    if not processes:
        yield
        return
    pids = [str(process.pid) for process in processes]
    guard = subprocess.Popen([sys.executable, "-I", "-S", "-c", _GUARD, str(within_s), *pids], stdin=subprocess.PIPE)
    began_s = time.monotonic()
    try:
        for process in processes:
            process.signal(signal.SIGSTOP)
        for process in processes:
            _wait_until_still(process, began_s + min(_STOPS_S, within_s))
        yield
        took_s = time.monotonic() - began_s
    finally:
        for process in reversed(processes):
            process.signal(signal.SIGCONT)
        if guard.stdin is not None:
            guard.stdin.close()
        guard.wait()
    if took_s >= within_s:
        raise WorldError(
            f"the run would have stood still for more than {within_s:.0f} s, which was the most; stop it first"
        )


def _wait_until_still(process: Process, until_s: float) -> None:
    """A signal is not obeyed at once, and not by all threads at the same time."""
    while any(state not in "TtZX" for state in _states(process.pid)):
        if time.monotonic() >= until_s:
            raise WorldError(f"process {process.pid} of the run does not stand still; stop the run first")
        time.sleep(_LOOK_S)


def _states(pid: int) -> Iterator[str]:
    for thread in Path(f"/proc/{pid}/task").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            yield (thread / "stat").read_text().rpartition(")")[2].split()[0]
