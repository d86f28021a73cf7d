"""The states of a level's partitions between micro-batches: one file for each bucket and time, created once.

A state follows from the log alone, so whoever computes it writes the same bytes, and whoever comes late finds them
there. A zombie task cannot put a stale state in the place of a newer one: every state has its own time in its name.
"""

from __future__ import annotations

from typing import Final

from unerring.log import LocalStore
from unerring.model import TIME_MIN, LogError, protect, verified
from unerring.pipeline import savepoints
from unerring.pipeline.level import Level
from unerring.pipeline.partition import Partition

_FOLDER: Final = "states"
_START: Final = "start"
TIMES_KEPT: Final = 8
"""States of so many intervals' ends stay: Spark asks for the last one or two again after a crash."""


def size_at(level: Level, through_us: int) -> int | None:
    """How many bytes the states of all buckets have that stand at a time; None where they are not in files."""
    paths = [level.checkpoint / _FOLDER / _name(through_us, bucket) for bucket in range(level.buckets)]
    sizes = [path.stat().st_size for path in paths if path.exists()]
    return sum(sizes) if sizes else None


class States:
    """A level's states in its checkpoint."""

    def __init__(self, level: Level) -> None:
        self._level = level
        self._store = LocalStore(level.checkpoint / _FOLDER)

    def begin(self, from_us: int) -> None:
        """Note where the level's query starts."""
        self._store.replace(_START, protect(str(from_us).encode()))

    def started(self) -> int | None:
        """Where the level's query started; None before it did."""
        started = self._store.read(_START)
        if started is None:
            return None
        if started.removeprefix(b"-").isdigit():  # an older release wrote it
            return int(started)
        return int(verified(started, self._store.locate(_START), "remove the level's checkpoint, and it begins again"))

    def begins_at(self) -> int:
        """Where the level's query starts, which was noted before it did."""
        started = self.started()
        if started is None:
            raise LogError(f"{self._store.locate(_START)} is missing: it says where the query starts; restart the run")
        return started

    def newest(self, at_most_us: int) -> int | None:
        """The latest time, at or before the given one, at which there is a state of every bucket."""
        counts: dict[str, int] = {}
        for name in self._store.names(""):
            time, _, bucket = name.partition(".")
            if bucket and int(time) + TIME_MIN <= at_most_us:
                counts[time] = counts.get(time, 0) + 1
        whole = [int(time) + TIME_MIN for time, count in counts.items() if count == self._level.buckets]
        return max(whole, default=None)

    def keep(self, partition: Partition) -> None:
        """A partition's state where it stands now."""
        self._store.create(_name(partition.through_us, partition.bucket), partition.snapshot())

    def partition_at(self, bucket: int, from_us: int) -> Partition:
        """A bucket's partition as it stood at a time: where the query started, or at an interval's end."""
        state = self._store.read(_name(from_us, bucket))
        if state is not None:
            partition = Partition(self._level, bucket)
            partition.restore(state, from_us, self._store.locate(_name(from_us, bucket)))
            return partition
        if self.started() != from_us:
            raise LogError(
                f"{self._store.locate(_name(from_us, bucket))} is missing: the state of level {self._level.number} at "
                f"{from_us}; restore it from a copy, or let a new --data folder begin with this log"
            )
        return savepoints.partition_at(self._level, bucket, from_us)

    def drop_before(self, through_us: int) -> None:
        """Remove the states of earlier times than a committed one, all but the last few."""
        names = [name for name in self._store.names("") if name != _START]
        times = sorted({name.partition(".")[0] for name in names if name < _name(through_us, 0)})
        gone = set(times[:-TIMES_KEPT])
        for name in names:
            if name.partition(".")[0] in gone:
                self._store.delete(name)


def _name(time_us: int, bucket: int) -> str:
    return f"{time_us - TIME_MIN:019d}.{bucket}"
