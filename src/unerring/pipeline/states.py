"""The states of a level's partitions, on the run's store: for each partition and time one object, created once.

A state follows from the log alone, so whoever computes it may keep it, and whoever comes late finds it there. Most
objects hold what changed since the object before (a delta); now and then one is whole (a base). Each says inside on
which it rests, from the base on, so that restoring reads by name and asks no listing. A zombie task cannot put a stale
state in the place of a newer one: every state has its own time in its name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from unerring.log import Store, join, store_at
from unerring.model import TIME_MIN, LogError, protect, verified
from unerring.pipeline.level import Level
from unerring.pipeline.partition import Kept, Partition, PartitionState, encoded, read_state, trail_of

STATES: Final = "states"
SAVEPOINTS: Final = "savepoints"
_BEGAN: Final = "began"
TIMES_KEPT: Final = 8
"""States of so many intervals' ends stay: of the last ones, some may not be sealed yet."""
DELTAS_MAX: Final = 96
"""After so many deltas a base is written: restoring reads one base and at most so many deltas."""
SMALL_BYTES: Final = 64 << 10
"""A state below this is always written whole: a delta would save nothing."""


class States:
    """A level's states in one folder of the run's store."""

    def __init__(self, level: Level, folder: str = STATES) -> None:
        self._level = level
        self._followed = folder == STATES
        """Savepoints are dropped by others: nothing rests on them."""
        self._store: Store = store_at(join(level.address, f"{folder}/level-{level.label}-{level.version}"))

    @property
    def folder(self) -> str:
        return self._store.locate("")

    def names(self) -> list[str]:
        """All that is in the folder."""
        return self._store.names("")

    # --- where the level began ---

    def begin(self, from_us: int) -> None:
        """Note where the level began, with nothing behind it: the first note counts."""
        self._store.create(_BEGAN, protect(str(from_us).encode()))

    def began(self) -> int | None:
        """Where the level began; None before it did."""
        noted = self._store.read(_BEGAN)
        if noted is None:
            return None
        where = self._store.locate(_BEGAN)
        try:
            return int(verified(noted, where))
        except ValueError:
            raise LogError(f"{where} is damaged: it holds no time; restore it from a copy") from None

    # --- which there are ---

    def times(self) -> list[int]:
        """The times, in order, for which every partition has a state, whatever the number of partitions was."""
        return sorted({time_us for time_us, _ in self._whole()})

    def newest(self, at_most_us: int) -> int | None:
        """The latest of them at or before a time of which everything is there that the states rest on."""
        names = set(self._store.names(""))
        for time_us, count in sorted(self._whole(names), reverse=True):
            if time_us <= at_most_us and all(self._rests(time_us, n, count, names) for n in range(count)):
                return time_us
        return None

    def _whole(self, names: set[str] | None = None) -> list[tuple[int, int]]:
        """Times with a state of every partition, with the number of partitions."""
        counted: dict[tuple[int, int], int] = {}
        for name in self._store.names("") if names is None else names:
            parsed = _parsed(name)
            if parsed is not None:
                counted[parsed[0], parsed[2]] = counted.get((parsed[0], parsed[2]), 0) + 1
        return [place for place, count in counted.items() if count == place[1]]

    def _rests(self, time_us: int, bucket: int, count: int, names: set[str]) -> bool:
        """Whether all that a state rests on is there. A listing may lag: then an older state is taken."""
        state = self._read(time_us, bucket, count)
        return state is not None and all(_name(before_us, bucket, count) in names for before_us in state.trail)

    # --- to keep one ---

    def keep(self, partition: Partition) -> None:
        """A partition's state where it stands now: what changed since the one kept before, or all of it."""
        before = partition.kept
        if before is None or wants_whole(before):
            whole = self._created(partition, partition.state())
            partition.kept = Kept((*whole.trail, whole.through_us), whole.size, 0)
            if whole.size >= SMALL_BYTES:
                partition.mark()
        else:
            delta = self._created(partition, partition.delta(before.trail))
            trail = (*delta.trail, delta.through_us)
            partition.kept = Kept(trail, before.whole_bytes, before.delta_bytes + delta.size)

    def keep_whole(self, partition: Partition) -> None:
        """All of a partition's state where it stands now, beside what else is kept of it."""
        self._created(partition, partition.state())

    def _created(self, partition: Partition, state: PartitionState) -> PartitionState:
        """What the store has of this time: this state, or the one of somebody who was first."""
        if self._store.create(self._name(partition), encoded(state, self._level)):
            return state
        found = self._read(partition.through_us, partition.bucket, self._level.buckets)
        return self._agreed(partition, state, found)

    def _agreed(self, partition: Partition, state: PartitionState, found: PartitionState | None) -> PartitionState:
        """Somebody else kept the state of this time: what follows rests on that one."""
        if found is None:
            raise LogError(f"{self._store.locate(self._name(partition))} disappeared while it was in use; start again")
        if not found.trail and not state.trail and found.engines != state.engines:
            raise LogError(
                f"{self._store.locate(self._name(partition))} is another state than this driver computed from the same "
                "log; compare the releases and rules of the drivers, and remove the run's states to begin with the log"
            )
        return found

    # --- to take one up ---

    def partition_at(self, bucket: int, from_us: int) -> Partition | None:
        """A partition as it stood at a time; None if nothing was kept then. States of another number of partitions are
        split or merged."""
        state = self._read(from_us, bucket, self._level.buckets)
        partition = Partition(self._level, bucket)
        if state is not None:
            trail = self._trail(state)
            partition.restore([trail], from_us)
            self._follow(partition, trail)
            return partition
        others = [self._there(from_us, *part) for part in self._parts(bucket, from_us)]
        if not others:
            return None
        partition.restore([self._trail(state) for state in others], from_us)
        return partition

    def all_at(self, time_us: int) -> list[PartitionState]:
        """The states of all partitions at a time. For savepoints, which are all whole."""
        counts = [count for at_us, count in self._whole() if at_us == time_us]
        if not counts:
            raise missing(self._level, time_us, self.locate(time_us, 0))
        return [self._there(time_us, bucket, counts[0]) for bucket in range(counts[0])]

    def _parts(self, bucket: int, at_us: int) -> list[tuple[int, int]]:
        """Partitions of another number of them that had some of this one's keys and have a state at a time."""
        own = self._level.buckets
        for count in [count for time_us, count in self._whole() if time_us == at_us]:
            return [
                (n, count) for n in range(count) if n * own < (bucket + 1) * count and bucket * count < (n + 1) * own
            ]
        return []

    def _follow(self, partition: Partition, trail: list[PartitionState]) -> None:
        """What is kept of the partition next may rest on what it was restored from."""
        whole, *deltas = trail
        times = tuple(state.through_us for state in trail)
        if whole.size >= SMALL_BYTES and self._followed:
            partition.kept = Kept(times, whole.size, sum(delta.size for delta in deltas))
            partition.mark()

    def _trail(self, state: PartitionState) -> list[PartitionState]:
        """A state and all that it rests on, the base first."""
        return [*(self._there(time_us, state.bucket, state.buckets) for time_us in state.trail), state]

    def _there(self, time_us: int, bucket: int, count: int) -> PartitionState:
        state = self._read(time_us, bucket, count)
        if state is None:
            raise missing(self._level, time_us, self._store.locate(_name(time_us, bucket, count)))
        return state

    def _read(self, time_us: int, bucket: int, count: int) -> PartitionState | None:
        name = _name(time_us, bucket, count)
        data = self._store.read(name)
        if data is None:
            return None
        return read_state(data, self._level, bucket, count, time_us, self._store.locate(name))

    # --- to let go ---

    def drop_before(self, through_us: int) -> None:
        """Remove what no state of the last few times at or before a committed one rests on."""
        names = self._store.names("")
        times = sorted(time_us for time_us, count in self._whole(set(names)) if time_us <= through_us)
        if len(times) <= TIMES_KEPT:
            return
        oldest_us = times[-TIMES_KEPT]
        needed_us: dict[tuple[int, int], int] = {}
        for name in names:
            time_us, bucket, count = _parsed(name) or (TIME_MIN, -1, 0)
            if time_us == oldest_us:
                state = self._read(time_us, bucket, count)
                if state is not None:
                    needed_us[bucket, count] = min((*state.trail, time_us))
        for name in names:
            time_us, bucket, count = _parsed(name) or (oldest_us, -1, 0)
            if time_us < needed_us.get((bucket, count), oldest_us):
                self._store.delete(name)

    def drop_all_before(self, time_us: int, but_us: int | None = None) -> None:
        """Remove all states of earlier times, but for one of them. For savepoints, which are all whole."""
        for name in self._store.names(""):
            at_us = (_parsed(name) or (time_us, 0, 0))[0]
            if at_us < time_us and at_us != but_us:
                self._store.delete(name)

    def _name(self, partition: Partition) -> str:
        return _name(partition.through_us, partition.bucket, self._level.buckets)

    def locate(self, time_us: int, bucket: int) -> str:
        """Where a state is, or would be."""
        return self._store.locate(_name(time_us, bucket, self._level.buckets))


def needed_by(states: Store, has_savepoint: bool) -> Iterator[str]:
    """For who looks at a level's folder and knows nothing of the level: a sentence for each object that the newest
    states rest on and that is missing, and for a level of which nothing says where it began."""
    names = set(states.names(""))
    if _BEGAN not in names and names and not has_savepoint:
        yield f"{states.locate(_BEGAN)} is missing: it says where the level of the states beside it began"
    counted = Counter((parsed[0], parsed[2]) for parsed in map(_parsed, names) if parsed is not None)
    time_us, count = max((place for place, there in counted.items() if there == place[1]), default=(TIME_MIN, 0))
    for bucket in range(count):
        name = _name(time_us, bucket, count)
        data = states.read(name)
        for before_us in () if data is None else trail_of(data, (time_us, bucket, count), states.locate(name)):
            below = _name(before_us, bucket, count)
            if below not in names:
                yield f"{states.locate(below)} is missing: {states.locate(name)} rests on it"


def partition_at(level: Level, bucket: int, from_us: int) -> Partition:
    """A partition as it stands at a time: from its state there or a savepoint; with nothing behind it only where the
    level began."""
    states = States(level)
    partition = states.partition_at(bucket, from_us) or States(level, SAVEPOINTS).partition_at(bucket, from_us)
    if partition is None:
        if states.began() != from_us:
            raise missing(level, from_us, states.locate(from_us, bucket))
        partition = Partition(level, bucket)
        partition.begin(from_us)
    return partition


def wants_whole(kept: Kept) -> bool:
    """Whether it is time for a whole state: deltas may neither become many nor more than what they change."""
    many = len(kept.trail) > DELTAS_MAX or kept.delta_bytes > kept.whole_bytes
    return many or kept.whole_bytes < SMALL_BYTES


def missing(level: Level, time_us: int, where: str) -> LogError:
    return LogError(
        f"{where} is missing: the state of level {level.label} at {time_us}; restore it from a copy, or remove the "
        "run's states, and the level begins again with the log"
    )


def _name(time_us: int, bucket: int, count: int) -> str:
    return f"{time_us - TIME_MIN:019d}.{bucket}of{count}"


def _parsed(name: str) -> tuple[int, int, int] | None:
    """Time, partition and number of partitions; None for another object."""
    time, _, rest = name.partition(".")
    bucket, _, count = rest.partition("of")
    if not (time.isdigit() and bucket.isdigit() and count.isdigit()):
        return None
    return int(time) + TIME_MIN, int(bucket), int(count)
