"""Retention: removes old segments, by a call or an app's rule, and leaves what an audit and a new query start from.

What is left is a savepoint of every level at the cut, or before it, and the chains from there on. A stream is cut only
where nobody needs what is before: no level's savepoint, no reader's position, no running query.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from unerring.log import Chain, Retention, cut, cut_at
from unerring.model import TIME_MIN, CallerError
from unerring.pipeline import savepoints
from unerring.pipeline.agreements import pending
from unerring.pipeline.batch import detect_batch
from unerring.pipeline.intervals import Bounds, next_end, spans_of
from unerring.pipeline.level import Level
from unerring.pipeline.partition import Partition
from unerring.pipeline.states import States, missing, partition_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Needs(NamedTuple):
    """Who else may ask for the past of a run, besides its rules and readers."""

    after: Mapping[str, int] = {}
    """Streams of which somebody may ask for what comes after a time."""
    state_us: int = TIME_MIN
    """The time of a savepoint from which somebody may begin again."""


_NOBODY: Final = Needs()


def retain_here(levels: tuple[Level, ...], retention: Retention, needs: Needs) -> dict[str, int]:
    """Remove what a rule of retention lets go, in this process and without Spark; how many segments went, by stream."""
    log = levels[0].log
    streams = {schema.name for level in levels for schema in (*level.inputs, *level.outputs)}
    chains = {name: log.chain(name) for name in sorted(streams) if log.declaration(name) is not None}
    # Nothing is let go that a rule has yet to read.
    sealed_us = min((level.sealed_us() for level in levels), default=TIME_MIN)
    before_us = min(cut_at(chains, retention), sealed_us)
    if not any(_holds(chain, before_us) for chain in chains.values()):
        return {}
    return cut_here(levels, before_us, needs)


def cut_here(levels: tuple[Level, ...], before_us: int, needs: Needs) -> dict[str, int]:
    """Remove what lies before a time, as `retain` does, in this process and without Spark. The states at the cut are
    computed from the ones of the last cut."""
    for level in levels:
        _check_reached(level, before_us)
    saved = {level.name: _save(level, before_us) for level in levels}
    return _cut_all(levels, before_us, saved, needs)


def _holds(chain: Chain, before_us: int) -> bool:
    """Whether a whole object of a chain lies before a time."""
    from_us = chain.base.from_us
    return from_us < before_us and any(span.through_us <= before_us for span in chain.spans(from_us, before_us))


def _save(level: Level, before_us: int) -> int:
    """A savepoint of every bucket at a time; that time."""
    chains = level.chains()
    base_us = max(chain.base.from_us for chain in chains.values())
    known = [
        time_us for time_us in (*States(level).times(), *savepoints.times(level)) if base_us <= time_us <= before_us
    ]
    from_us = max(known, default=base_us)
    partitions = [_partition_at(level, bucket, from_us, bool(known)) for bucket in range(level.buckets)]
    while from_us < before_us:
        end_us = next_end(chains, from_us, before_us, Bounds().rows_at_once)
        spans = spans_of(chains, from_us, end_us)
        for partition in partitions:
            partition.advance(end_us, spans)
        from_us = end_us
    for partition in partitions:
        savepoints.keep(partition)
    return before_us


def _partition_at(level: Level, bucket: int, from_us: int, known: bool) -> Partition:
    if known:
        return partition_at(level, bucket, from_us)
    if from_us > TIME_MIN:  # never with an empty state in the place of one that is missing
        raise missing(level, from_us, States(level).locate(from_us, bucket))
    partition = Partition(level, bucket)
    partition.begin(from_us)
    return partition


def retain(spark: SparkSession, levels: tuple[Level, ...], before_us: int, needs: Needs = _NOBODY) -> dict[str, int]:
    """Remove what lies before a time; how many segments went, by stream. The levels must have sealed through that time:
    it is their past that is let go."""
    saved: dict[str, int] = {}
    for level in levels:
        _check_reached(level, before_us)
        saved[level.name] = detect_batch(spark, level, through_us=before_us)
    return _cut_all(levels, before_us, saved, needs)


def _check_reached(level: Level, before_us: int) -> None:
    for schema in level.outputs:
        reached = level.log.chain(schema.name).through_us
        if reached < before_us:
            raise CallerError(
                f"stream {schema.name} has only been detected through {reached}; let the run get past {before_us} "
                "before its inputs are removed"
            )


def _cut_all(levels: tuple[Level, ...], before_us: int, saved: Mapping[str, int], needs: Needs) -> dict[str, int]:
    """Cut every stream where nobody needs what is before."""
    under_way = pending(levels[0].log)
    if under_way is not None:
        raise CallerError(
            f"an upgrade of {levels[0].address} to {under_way.app} is under way, and its rules may need what is old; "
            "let it happen first"
        )
    needed: dict[str, int] = {}
    for level in levels:
        for schema in level.inputs:
            needed[schema.name] = min(needed.get(schema.name, before_us), saved[level.name])
        for schema in level.outputs:
            needed.setdefault(schema.name, before_us)
    log = levels[0].log
    after = needs.after
    removed = {name: cut(log.chain(name), min(time_us, after.get(name, time_us))) for name, time_us in needed.items()}
    for level in levels:
        savepoints.drop_before(level, saved[level.name], needs.state_us)
    return removed
