"""Micro-batches of a run on Spark, one line each in the run's folder: rate, lag and state over time."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from unerring.model import TIME_MAX
from unerring.runtime import lines

if TYPE_CHECKING:
    from unerring.log import Chain

FILE: Final = "batches.jsonl"
KEPT_MAX: Final = 600
"""How many batches of each level and driver are held."""
DRIVER: Final = "spark"
"""The name of a run's only driver."""


class Batch(msgspec.Struct, frozen=True):
    """One sealed micro-batch of one level."""

    at_us: int
    """Wall time of its end."""
    driver: str
    level: int
    rules: tuple[str, ...]
    batch: int
    took_s: float
    """Since the one before it ended."""
    events: int
    situations: dict[str, int]
    through_us: int
    """Event time."""
    lag_s: float
    """How far that is behind the log of its inputs."""
    keys: int
    state_bytes: int | None = None
    """What is on the store of it."""
    unkeyed: bool = False
    """Whether the rules are those of the level that have no key, which have a query of their own."""


def note(data: Path, batch: Batch) -> None:
    """Append one line."""
    lines.append(data / FILE, batch)


def now_us() -> int:
    return time.time_ns() // 1000


def reached_us(chain: Chain, after_us: int) -> int:
    """How far a stream goes beyond a time. One that has ended is known for ever; its events end where its last segment
    begins, or in it."""
    through_us = chain.refresh()
    if through_us < TIME_MAX:
        return through_us
    beyond = chain.spans(after_us, TIME_MAX)
    return max(after_us, beyond[-1].from_us) if beyond else after_us


class Whose(NamedTuple):
    """A level, by its number and whether its rules have no key, and a driver of it."""

    number: int
    unkeyed: bool
    driver: str


class Batches:
    """Reads them, and later only what was added. `events` and `count` are of all, whatever is kept."""

    def __init__(self, data: Path) -> None:
        self._follower = lines.Follower(data / FILE, Batch)
        self.kept: dict[Whose, list[Batch]] = {}
        """The last ones."""
        self.events: dict[Whose, int] = {}
        self.count: dict[Whose, int] = {}

    @property
    def damaged(self) -> str:
        """A sentence, once a damaged line was passed over."""
        return self._follower.damaged

    def look(self) -> None:
        for batch in self._follower.added():
            whose = Whose(batch.level, batch.unkeyed, batch.driver)
            kept = self.kept.setdefault(whose, [])
            kept.append(batch)
            del kept[:-KEPT_MAX]
            self.events[whose] = self.events.get(whose, 0) + batch.events
            self.count[whose] = self.count.get(whose, 0) + 1
