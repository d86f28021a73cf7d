"""Compiled rules in a running system: one thread compiles beside the streams, and machine code is kept in a folder."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path

from unerring.matching.engine import Engine
from unerring.rules.plan import Plan


def cache_folder() -> Path:
    """Where machine code is kept: it can be deleted at any time."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "unerring" / "kernel"


@cache
def _asked() -> queue.SimpleQueue[Callable[[], None]]:
    """What is to be compiled. One thread: two compilations at a time would take turns anyway. Bounded by the number
    of rules, since each asks once; a daemon, so that a process that is told to stop does not wait for the compiler."""
    asked: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def compile_for_ever() -> None:
        while True:
            asked.get()()

    threading.Thread(target=compile_for_ever, name="unerring-compiler", daemon=True).start()
    return asked


def submit(work: Callable[[], None]) -> None:
    """Do it beside the streams, after what was asked for earlier. `work` tells its own failures."""
    _asked().put(work)


def compiled_engine(plan: Plan, folder: Path | None = None) -> Engine:
    """An engine for a plan that compiles: it answers at once, and faster as soon as the compiler is done."""
    from unerring.matching.kernel import KernelEngine

    return KernelEngine(plan, cache=folder or cache_folder(), submit=submit)


def live_engine(plan: Plan) -> Engine:
    """The engine of a stream that must not stall: interpreted until compiled, or for good where a plan does not."""
    from unerring.matching.choice import why_interpreted
    from unerring.matching.interpreter import Interpreter

    return compiled_engine(plan) if why_interpreted(plan) is None else Interpreter(plan)
