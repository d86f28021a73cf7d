"""A log that several sealers extend, for scenarios: each reads its end, and some time later creates the next segment.

A segment is named by where it starts, and created only if it is absent. Who is later reads the other's and goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from unerring.model import MILLISECOND_US, TIME_MIN, Event

LATE_US = (0, 0, 1, 20, 300)


class SealedLog:
    """One stream's chain of segments."""

    def __init__(self) -> None:
        self._segments: dict[int, tuple[int, list[Event]]] = {}
        self._followed = TIME_MIN

    @property
    def through(self) -> int:
        """The chain's end, by following it from where it was last: a segment that is there stays."""
        while self._followed in self._segments:
            self._followed = self._segments[self._followed][0]
        return self._followed

    def events(self) -> list[Event]:
        """All that is sealed, in order."""
        found: list[Event] = []
        at = TIME_MIN
        while at in self._segments:
            at, events = self._segments[at]
            found += events
        return found

    def create(self, start: int, through: int, events: Sequence[Event]) -> bool:
        """Create a segment, if it is absent."""
        if start in self._segments:
            return False
        self._segments[start] = through, list(events)
        return True


class Sealing:
    """Sealers of one log, with their delays. `at` has something done later."""

    def __init__(self, at: Callable[[int, Callable[[], None]], None], seed: str) -> None:
        self._at = at
        self._draw = Random(seed)
        self.logs: dict[str, SealedLog] = {}
        self.lost = 0
        """How often a sealer found that another one was first."""

    def log(self, stream: str) -> SealedLog:
        return self.logs.setdefault(stream, SealedLog())

    def seal(self, stream: str, safe: int, events: Sequence[Event], now: int) -> None:
        """Begin to seal up to a time; whoever asked may be dead when it is done."""
        start = self.log(stream).through
        if safe > start:
            rest = [event for event in events if start < event.stamp.time <= safe]
            late_us = self._draw.choice(LATE_US) * MILLISECOND_US
            self._at(now + late_us, lambda: self._create(stream, start, safe, rest))

    def _create(self, stream: str, start: int, safe: int, events: Sequence[Event]) -> None:
        if not self.log(stream).create(start, safe, events):
            self.lost += 1


class Appending(Sealing):
    """A sealer that extends the log wherever it ends by now."""

    def _create(self, stream: str, start: int, safe: int, events: Sequence[Event]) -> None:
        end = self.log(stream).through
        super()._create(stream, end, max(safe, end + 1), events)
