"""How repairs are paced and merged, so that they cannot starve live traffic."""

from __future__ import annotations

from unerring.channels.config import ProducerConfig
from unerring.channels.messages import Range
from unerring.model import SECOND_US, Address

_WATCHED_MAX = 256


class RepairPace:
    """A bucket of bytes that fills at a fixed rate and holds one second of it."""

    def __init__(self, config: ProducerConfig) -> None:
        self._bytes_per_s = config.repair_bytes_per_s
        self._bytes = float(config.repair_bytes_per_s)
        self._filled_us: int | None = None

    def budget(self, most: int, now: int) -> int:
        """How many bytes may go out now; at least one, which is one event."""
        if self._filled_us is not None:
            gained = (now - self._filled_us) * self._bytes_per_s / SECOND_US
            self._bytes = min(self._bytes + gained, float(self._bytes_per_s))
        self._filled_us = now
        return max(min(most, int(self._bytes)), 1)

    def spend(self, size: int) -> None:
        self._bytes = max(self._bytes - size, 0.0)


class MergedRepairs:
    """Recent requests by range. A range that many lack is pushed to all, once in a window."""

    def __init__(self, config: ProducerConfig) -> None:
        self._consumers_min = config.merge_consumers_min
        self._window_us = config.merge_window_us
        self._asked: dict[Range, tuple[int, list[Address]]] = {}  # oldest first
        self._pushed: dict[Range, int] = {}

    def ask(self, missing: Range, consumer: Address, now: int) -> str:
        """How to answer: "one" (only who asked), "all" (push), or "done" (pushed a moment ago)."""
        self._forget(now)
        if missing in self._pushed:
            return "done"
        _, consumers = self._asked.setdefault(missing, (now, []))
        if consumer not in consumers:
            consumers.append(consumer)
        if len(consumers) < self._consumers_min:
            return "one"
        del self._asked[missing]
        self._pushed[missing] = now
        return "all"

    def _forget(self, now: int) -> None:
        while self._asked:
            missing, (since, _) = next(iter(self._asked.items()))
            if now - since <= self._window_us and len(self._asked) <= _WATCHED_MAX:
                break
            del self._asked[missing]
        while self._pushed:
            missing, since = next(iter(self._pushed.items()))
            if now - since <= self._window_us and len(self._pushed) <= _WATCHED_MAX:
                break
            del self._pushed[missing]
