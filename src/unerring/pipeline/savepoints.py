"""Savepoints: a level's state at one time, kept aside. A query may start there instead of at the beginning of the log.

A backfill in batch ends with one, so that live detection goes on from it without a seam; retention makes one before it
removes the segments that led to it, so that an audit still has where to start from.
"""

from __future__ import annotations

from typing import Final

from unerring.log import Store, join, store_at
from unerring.model import TIME_MIN
from unerring.pipeline.level import Level
from unerring.pipeline.partition import Partition

_FOLDER: Final = "savepoints"


def keep(level: Level, through_us: int, bucket: int, state: bytes) -> None:
    """One bucket's state. States follow from the inputs, so the first one kept is as good as any."""
    _store(level).create(f"{_name(through_us)}/{bucket}", state)


def find(level: Level, at_most_us: int | None = None) -> int | None:
    """The latest time, at or before the given one, for which every bucket's state is there."""
    store = _store(level)
    wanted = {str(bucket) for bucket in range(level.buckets)}
    for name in reversed(store.names("")):
        time_us = int(name) + TIME_MIN
        if (at_most_us is None or time_us <= at_most_us) and wanted <= set(store.names(name)):
            return time_us
    return None


def partition_at(level: Level, bucket: int, from_us: int) -> Partition:
    """A bucket's partition as it stands at a time: from a savepoint if there is one, else with nothing behind it."""
    partition = Partition(level, bucket)
    store, name = _store(level), f"{_name(from_us)}/{bucket}"
    state = store.read(name)
    if state is None:
        partition.begin(from_us)
    else:
        partition.restore(state, from_us, store.locate(name))
    return partition


def drop_before(level: Level, time_us: int) -> None:
    """Remove older savepoints: nothing starts from them any more."""
    store = _store(level)
    for name in store.names(""):
        if int(name) + TIME_MIN < time_us:
            for bucket in store.names(name):
                store.delete(f"{name}/{bucket}")


def _store(level: Level) -> Store:
    return store_at(join(level.address, f"{_FOLDER}/{level.name}"))


def _name(time_us: int) -> str:
    return f"{time_us - TIME_MIN:019d}"


def times(level: Level) -> list[int]:
    """All times for which every bucket's state is there, in order."""
    store = _store(level)
    wanted = {str(bucket) for bucket in range(level.buckets)}
    return [int(name) + TIME_MIN for name in store.names("") if wanted <= set(store.names(name))]


def borrow(level: Level, time_us: int, lender: Level) -> None:
    """Take over the state that another run of the same rules kept at a time."""
    own, other = _store(level), _store(lender)
    for bucket in range(level.buckets):
        name = f"{_name(time_us)}/{bucket}"
        state = other.read(name)
        if state is not None:
            own.create(name, state)
