"""A machine's named timers, and the clock that they are set by."""

from __future__ import annotations

import heapq
import time


def monotonic_us() -> int:
    """The `now` that machines are given."""
    return time.monotonic_ns() // 1000


class Timers:
    """Timers in order of time; of two at one time, the first set comes first. It has no clock: `due` takes the time."""

    def __init__(self) -> None:
        self._set: dict[str, tuple[int, int]] = {}
        self._queue: list[tuple[int, int, str]] = []
        self._order = 0

    def set(self, name: str, at_us: int) -> None:
        self._order += 1
        self._set[name] = at_us, self._order
        heapq.heappush(self._queue, (at_us, self._order, name))
        if len(self._queue) > 64 and len(self._queue) > 4 * len(self._set):
            self._queue = [(at_us, order, name) for name, (at_us, order) in self._set.items()]
            heapq.heapify(self._queue)

    def cancel(self, name: str) -> None:
        self._set.pop(name, None)

    def clear(self) -> None:
        self._set.clear()
        self._queue.clear()

    def next_us(self) -> int | None:
        """When the next one comes."""
        while self._queue:
            at_us, order, name = self._queue[0]
            if self._set.get(name) == (at_us, order):
                return at_us
            heapq.heappop(self._queue)  # replaced or cancelled
        return None

    def due(self, now_us: int) -> str | None:
        """Take the next one that has come."""
        at_us = self.next_us()
        if at_us is None or at_us > now_us:
            return None
        _, _, name = heapq.heappop(self._queue)
        del self._set[name]
        return name
