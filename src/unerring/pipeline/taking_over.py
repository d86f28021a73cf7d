"""The moment at which an edition takes over: its levels get the states that they go on from.

A rule that is kept goes on from its state at that time, in whichever level it was. A rule that is new has read the log
as far back as it looks, beside the old ones. Both are put together to one state for each partition of a new level, as a
savepoint at the agreed time; what the old rules sealed up to it stays. All of this follows from the log and from what
was agreed, and is created if absent: who is killed in between, or does it twice, changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from unerring.audit import moment
from unerring.log import EventLog
from unerring.model import TIME_MIN, LogError
from unerring.pipeline import savepoints
from unerring.pipeline.agreements import Agreement, Done, Proposal, create
from unerring.pipeline.beginnings import beginning
from unerring.pipeline.editions import Edition, changes_of
from unerring.pipeline.intervals import Bounds, next_end, spans_of
from unerring.pipeline.level import Level
from unerring.pipeline.partition import FORMAT, Partition, PartitionState
from unerring.pipeline.states import partition_at
from unerring.pipeline.warming import warming_from

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Heritage:
    """Where the rules of a new level come from."""

    level: Level
    at_us: int
    kept: tuple[tuple[Level, int], ...]
    """The old levels that have some of its rules, each with a time at or before the agreed one at which it has a
    state."""
    fresh: tuple[str, ...]
    """The rules that are new…"""
    from_us: int
    """…and the time after which they read."""


def going_on(old: Sequence[Level], new: Sequence[Level]) -> list[Level]:
    """The levels of the new edition that are the old one's, too."""
    known = {(level.label, level.version) for level in old}
    return [level for level in new if (level.label, level.version) in known]


def changed_levels(old: Sequence[Level], new: Sequence[Level]) -> list[Level]:
    """The levels of the new edition that do not just go on."""
    return [level for level in new if level not in going_on(old, new)]


def waits_for(agreed: Agreement, old: Sequence[Level], new: Sequence[Level]) -> str:
    """What has still to be sealed up to the agreed time before the new edition can take over; empty: nothing."""
    made = {schema.name for level in (*old, *new) for schema in level.outputs}
    for level in old:
        if level.sealed_us() < agreed.at_us:
            return f"level {level.label} of the old rules has sealed through {moment(level.sealed_us())}"
    log = new[0].log
    for name in sorted({schema.name for level in changed_levels(old, new) for schema in level.inputs} - made):
        if not _is_new(log, name) and log.chain(name).through_us < agreed.at_us:
            return f"stream {name}, which new rules read, ends at {moment(log.chain(name).through_us)}"
    return ""


def _is_new(log: EventLog, stream: str) -> bool:
    """Whether a stream has nothing yet."""
    return log.declaration(stream) is None or log.chain(stream).through_us == TIME_MIN


def take_over(
    spark: SparkSession | None,
    proposed: Proposal,
    agreed: Agreement,
    old: Sequence[Level],
    new: Sequence[Level],
    editions: tuple[Edition, Edition],
) -> None:
    """Let the new edition go on where the old one ended. Without Spark, in this process."""
    log = old[0].log
    begin_streams(agreed.at_us, editions, new)
    for level in changed_levels(old, new):
        hand_on(spark, heritage_of(level, agreed.at_us, old, editions, proposed.from_beginning))
    create(log, Done(agreed.number))


def keep_states(spark: SparkSession | None, level: Level, at_us: int) -> None:
    """Keep the states of a level at a time that its log has reached, whether or not Spark ran it so far."""
    hand_on(spark, Heritage(level, at_us, ((level, beginning(level, at_most_us=at_us)),), (), at_us))


def hand_on(spark: SparkSession | None, heritage: Heritage) -> None:
    """Keep the states that a new level goes on from, unless they are there."""
    level = heritage.level
    if heritage.at_us in savepoints.times(level):
        return
    if spark is None:
        for bucket in range(level.buckets):
            inherit(heritage, bucket)
    else:
        spark.range(0, level.buckets, 1, level.buckets).mapInArrow(_task(heritage), "bucket int").collect()


def begin_streams(at_us: int, editions: tuple[Edition, Edition], new: Sequence[Level]) -> None:
    """A stream that comes with the new edition begins at the agreed time."""
    old, edition = editions
    log = new[0].log
    come = [schema for schema in edition.outputs.values() if schema.name not in old.outputs]
    come += [schema for schema in edition.sources if _is_new(log, schema.name)]
    for schema in come:
        level = next((level for level in new if schema in level.outputs), new[0])
        chain = log.create(schema, level.buckets, level.spread)
        if chain.through_us < at_us:
            chain.seal(at_us, chain.read(at_us, at_us))


def heritage_of(
    level: Level, at_us: int, old: Sequence[Level], editions: tuple[Edition, Edition], from_beginning: bool
) -> Heritage:
    changes = changes_of(*editions)
    own = [plan.name for plan in level.plans]
    heirs = [one for one in old if one.only([name for name in own if name in changes.kept]) is not None]
    for one in heirs:
        if not one.ranges:
            raise LogError(
                f"level {one.label} of {one.address} has partitions of an earlier release, whose state cannot be "
                "handed on; change that with `unerring rescale`, then upgrade"
            )
    fresh = tuple(name for name in own if name in changes.fresh)
    plans = [plan for plan in level.plans if plan.name in fresh]
    from_us = warming_from(plans, level.log, at_us, from_beginning)
    return Heritage(level, at_us, tuple((one, beginning(one, at_most_us=at_us)) for one in heirs), fresh, from_us)


def inherit(heritage: Heritage, bucket: int) -> None:
    """Keep the state that a partition of a new level goes on from."""
    level, at_us = heritage.level, heritage.at_us
    engines: dict[str, bytes] = {}
    for one, from_us in heritage.kept:
        partition = partition_at(replace(one, buckets=level.buckets), bucket, from_us)
        engines |= _engines(partition, at_us)
    fresh = level.only(heritage.fresh)
    if fresh is not None:
        partition = Partition(fresh, bucket)
        partition.begin(heritage.from_us)
        engines |= _engines(partition, at_us)
    own = tuple(engines[plan.name] for plan in level.plans)
    whole = Partition(level, bucket)
    whole.restore([[PartitionState(FORMAT, level.version, bucket, level.buckets, at_us, (), own)]], at_us)
    savepoints.keep(whole)


def _engines(partition: Partition, at_us: int) -> dict[str, bytes]:
    """The states of a partition's rules at a time; what they find until then is known already."""
    chains = partition.level.chains()
    while partition.through_us < at_us:
        end_us = next_end(chains, partition.through_us, at_us, Bounds().rows_at_once)
        partition.advance(end_us, spans_of(chains, partition.through_us, end_us))
    names = [plan.name for plan in partition.level.plans]
    return dict(zip(names, partition.state().engines, strict=True))


def state_of(level: Level, from_us: int, through_us: int) -> bytes:
    """The state of a level's only rule at a time, if it reads all keys from another time on."""
    partition = Partition(level, 0)
    partition.begin(from_us)
    return _engines(partition, through_us)[level.plans[0].name]


def _task(heritage: Heritage) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            for bucket in batch.column(0).to_pylist():
                inherit(heritage, bucket)
                yield pa.RecordBatch.from_arrays([pa.array([bucket], pa.int32())], names=["bucket"])

    return run
