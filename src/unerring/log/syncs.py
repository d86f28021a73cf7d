"""How long this process waits for its disk: each sync, of segments and of databases, is timed where it is done."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from unerring.model import Histogram

RECENT_S: Final = 60.0
RECENT_MAX: Final = 500


class SyncsSeen(msgspec.Struct):
    """The syncs of one process."""

    all: Histogram = msgspec.field(default_factory=Histogram)
    recent: Histogram = msgspec.field(default_factory=Histogram)
    """Those of the last minute, or the last 500 of them."""
    hangs_s: float = 0.0
    """How long the oldest one that has not ended takes by now."""


class Syncs:
    """Any thread may sync, and look."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._all = Histogram()
        self._recent: deque[tuple[float, float]] = deque(maxlen=RECENT_MAX)
        self._under_way: dict[object, float] = {}
        self._lock = threading.Lock()

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Time what is done inside; one that fails has taken its time, too."""
        mark, began_s = object(), self._clock()
        with self._lock:
            self._under_way[mark] = began_s
        try:
            yield
        finally:
            ended_s = self._clock()
            with self._lock:
                del self._under_way[mark]
                self._all.add(ended_s - began_s)
                self._recent.append((ended_s, ended_s - began_s))

    def look(self) -> SyncsSeen:
        now_s = self._clock()
        recent = Histogram()
        with self._lock:
            for ended_s, took_s in self._recent:
                if ended_s > now_s - RECENT_S:
                    recent.add(took_s)
            hangs_s = now_s - min(self._under_way.values(), default=now_s)
            every = Histogram(list(self._all.counts), self._all.sum_s, self._all.max_s)
        return SyncsSeen(every, recent, hangs_s)


disk_syncs: Final = Syncs()
"""Those of this process."""
