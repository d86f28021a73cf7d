"""One thread compiles rules beside the streams of a process, one after the other."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from functools import cache


@cache
def _queue() -> queue.SimpleQueue[Callable[[], None]]:
    """The queue of compilations. One thread: two compilations at a time would take turns anyway. Bounded by the number
    of rules, since each asks once; a daemon, so that a process that stops does not wait for the compiler."""
    waiting: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def compile_for_ever() -> None:
        while True:
            waiting.get()()

    threading.Thread(target=compile_for_ever, name="unerring-compiler", daemon=True).start()
    return waiting


def submit(work: Callable[[], None]) -> None:
    """Do it beside the streams, after what was asked for earlier. `work` reports its own failures."""
    _queue().put(work)
