"""Micro-batches of a run on Spark, one line each in the run's folder: rate, lag and state over time."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from unerring.pipeline.level import Level

FILE: Final = "batches.jsonl"
BEFORE: Final = "batches.before.jsonl"
BYTES_MAX: Final = 8 << 20
"""A file that has grown so large becomes the one before, and that one is gone."""
KEPT_MAX: Final = 600
"""So many of each level and driver are held."""
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
    """None where Spark's own store keeps the state."""


def note(data: Path, batch: Batch) -> None:
    """Append one line; for people, so what cannot be written is left out."""
    with contextlib.suppress(OSError):
        with (data / FILE).open("ab") as file:
            file.write(msgspec.json.encode(batch) + b"\n")
            grown = file.tell() > BYTES_MAX
        if grown:
            os.replace(data / FILE, data / BEFORE)


def now_us() -> int:
    return time.time_ns() // 1000


def state_bytes(level: Level, through_us: int) -> int | None:
    """What a level's state files of one time hold together."""
    from unerring.pipeline.states import size_at

    return size_at(level, through_us)


class Batches:
    """Reads them, and later only what was added. `events` and `count` are of all, whatever is kept."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._offset = 0
        self._inode = 0
        self.kept: dict[tuple[int, str], list[Batch]] = {}
        """By level and driver, the last ones."""
        self.events: dict[tuple[int, str], int] = {}
        self.count: dict[tuple[int, str], int] = {}
        with contextlib.suppress(OSError):
            self._take((data / BEFORE).read_bytes())

    def look(self) -> None:
        with contextlib.suppress(OSError), (self._data / FILE).open("rb") as file:
            if os.fstat(file.fileno()).st_ino != self._inode:
                self._inode, self._offset = os.fstat(file.fileno()).st_ino, 0
            file.seek(self._offset)
            added = file.read()
            whole = added.rfind(b"\n") + 1
            self._offset += whole
            self._take(added[:whole])

    def _take(self, lines: bytes) -> None:
        for line in lines.splitlines():
            try:
                batch = msgspec.json.decode(line, type=Batch)
            except msgspec.DecodeError:
                continue
            whose = (batch.level, batch.driver)
            kept = self.kept.setdefault(whose, [])
            kept.append(batch)
            del kept[:-KEPT_MAX]
            self.events[whose] = self.events.get(whose, 0) + batch.events
            self.count[whose] = self.count.get(whose, 0) + 1
