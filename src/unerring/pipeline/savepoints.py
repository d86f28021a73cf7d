"""Savepoints: states that are kept until somebody drops them, all whole. A query may start there instead of at the
beginning of the log.

A backfill in batch ends with one, so that live detection goes on from it without a seam; retention makes one before it
removes the segments that led to it, so that an audit still has where to start from.
"""

from __future__ import annotations

from collections.abc import Sequence

from unerring.model import TIME_MAX
from unerring.pipeline.level import Level
from unerring.pipeline.partition import Partition
from unerring.pipeline.states import SAVEPOINTS, States, partition_at


def keep(partition: Partition) -> None:
    """A partition's state where it stands."""
    States(partition.level, SAVEPOINTS).keep_whole(partition)


def take(level: Level, time_us: int) -> None:
    """Make a savepoint of the states of a time, unless there is one. Where a level began there is none to keep."""
    if time_us not in times(level) and time_us != States(level).began():
        for bucket in range(level.buckets):
            keep(partition_at(level, bucket, time_us))


def find(level: Level, at_most_us: int = TIME_MAX) -> int | None:
    """The latest time, at or before the given one, for which every partition's state is there."""
    return max((time_us for time_us in times(level) if time_us <= at_most_us), default=None)


def drop_before(level: Level, time_us: int, but_us: int | None = None) -> None:
    """Remove older savepoints, but for one: nothing else starts from them any more."""
    States(level, SAVEPOINTS).drop_all_before(time_us, but_us)


def times(level: Level) -> list[int]:
    """All times for which every partition's state is there, in order."""
    return States(level, SAVEPOINTS).times()


def states_of(levels: Sequence[Level], rule: str, time_us: int) -> list[bytes]:
    """The states of a rule at a time for which there is a savepoint, one of each partition."""
    level, number = next(
        (level, number) for level in levels for number, plan in enumerate(level.plans) if plan.name == rule
    )
    return [state.engines[number] for state in States(level, SAVEPOINTS).all_at(time_us)]


def of_older_release(level: Level) -> bool:
    """Whether an earlier release made savepoints: it had a folder for each time."""
    return any(name.isdigit() for name in States(level, SAVEPOINTS).names())


def borrow(level: Level, time_us: int, lender: Level) -> None:
    """Take over the state that another run of the same rules kept at a time."""
    for bucket in range(level.buckets):
        partition = States(lender, SAVEPOINTS).partition_at(bucket, time_us)
        if partition is not None:
            States(level, SAVEPOINTS).keep_whole(partition)
