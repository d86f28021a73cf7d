"""Detect, streaming: one query per level. Tasks run their bucket's share and stage what it gave; the driver seals.

Exactly once, by three facts. Spark runs a micro-batch again with the interval and the state that it had before. A
share's outputs follow from interval and state alone. And sealing the same interval a second time finds it sealed.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from unerring.log import Chain
from unerring.model import RuleError, WorldError
from unerring.pipeline.intervals import Bounds, Intervals, read_spans
from unerring.pipeline.level import Level
from unerring.pipeline.savepoints import share_at
from unerring.pipeline.sealing import check_whole, numbered, seal_interval
from unerring.pipeline.session import own_sentence, sentence_of
from unerring.pipeline.share import Share
from unerring.pipeline.staging import stage, unstage
from unerring.pipeline.versions import enter, start_of

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.state import GroupState

STAGED: Final = "bucket int, from_us long, through_us long, stream string, outputs binary, keys long, rows long"
STATE: Final = "share binary"
RESTARTS_MAX: Final = 3
"""How often a query that Spark could not run is started again (a Python worker that took too long to start, say)."""


@dataclass
class Sealed:
    """What a micro-batch added: for progress on screen and metrics."""

    batch: int
    through_us: int
    situations: dict[str, int]
    keys: int
    """Keys that have state."""
    rows: int
    """Events that the rules were fed, those of several rules counted once."""


def detect(
    spark: SparkSession,
    level: Level,
    bounds: Bounds | None = None,
    *,
    once: bool = False,
    told: Callable[[Sealed], None] = lambda sealed: None,
) -> StreamingQuery:
    """Start a level's query. `once`: take what is there now, then end. `told` hears of every sealed interval."""
    enter(level)
    shutil.rmtree(level.staging, ignore_errors=True)
    source = Intervals.of(level, bounds or Bounds(), spread(level.buckets))
    spark.dataSource.register(source)
    spark.conf.set("spark.sql.shuffle.partitions", str(level.buckets))
    from pyspark.sql.streaming.state import GroupStateTimeout

    staged = (
        spark.readStream.format(source.name())
        .load()
        .groupBy("slot")
        .applyInPandasWithState(run_share(level), STAGED, STATE, "update", GroupStateTimeout.NoTimeout)
    )
    writer = staged.writeStream.queryName(f"level {level.number}").outputMode("update")
    writer = writer.option("checkpointLocation", str(level.checkpoint / "spark"))
    writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime="0 seconds")
    return writer.foreachBatch(seal_batch(level, told)).start()


def detect_available(
    spark: SparkSession,
    level: Level,
    bounds: Bounds | None = None,
    *,
    told: Callable[[Sealed], None] = lambda sealed: None,
    restarts_max: int = RESTARTS_MAX,
) -> None:
    """Run a level over what its log holds now, to the end. What Spark itself stumbles over is tried again."""
    for left in range(restarts_max, -1, -1):
        query = detect(spark, level, bounds, once=True, told=told)
        try:
            query.awaitTermination()
            return
        except Exception as error:  # a StreamingQueryException, or py4j's own when the JVM is gone
            if own_sentence(error) is not None or left == 0:
                raise WorldError(f"level {level.number} stopped: {sentence_of(error)}") from error


def run_share(level: Level) -> Callable[[Any, Iterable[pd.DataFrame], GroupState], Iterator[pd.DataFrame]]:
    """The task's function: restore the bucket's share, advance it, stage its outputs, keep its state."""

    def run(key: Any, frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        import pandas as pd

        rows: list[Any] = [row for frame in frames for row in frame.itertuples(index=False)]
        # Spark does not promise the order of rows in a call.
        for row in sorted(rows, key=lambda row: int(row.from_us)):
            bucket, from_us, through_us = int(row.bucket), int(row.from_us), int(row.through_us)
            share = _share(level, bucket, from_us, state.get[0] if state.exists else None)
            outputs = share.advance(through_us, read_spans(bytes(row.spans)))
            state.update((share.snapshot(),))
            _keep(share)
            yield pd.DataFrame(
                [
                    (bucket, from_us, through_us, stream, stage(table, level.staging), share.keys, share.rows)
                    for stream, table in outputs.items()
                ],
                columns=["bucket", "from_us", "through_us", "stream", "outputs", "keys", "rows"],
            )

    return run


_KEPT: dict[tuple[str, str, int], Share] = {}
"""Shares that this worker process ran last. One is used again only when it stands exactly where the state does."""


def _share(level: Level, bucket: int, from_us: int, state: bytes | None) -> Share:
    kept = _KEPT.pop((level.data, level.version, bucket), None)
    if kept is not None and kept.through_us == from_us and state is not None:
        return kept
    if state is None:
        return share_at(level, bucket, from_us)
    share = Share(level, bucket)
    share.restore(bytes(state))
    return share


def _keep(share: Share) -> None:
    _KEPT[share.level.data, share.level.version, share.bucket] = share


def seal_batch(level: Level, told: Callable[[Sealed], None]) -> Callable[[DataFrame, int], None]:
    """The driver's function: collect what all buckets staged, number it, seal it in every output chain."""
    chains = output_chains(level)
    rules = {schema.name: plan.version for plan in level.plans for schema in plan.outputs}

    def seal(frame: DataFrame, batch: int) -> None:
        rows = frame.collect()
        if not rows:
            return
        found = sorted({(row.bucket, row.from_us, row.through_us) for row in rows})
        _, through_us = check_whole(found, level.buckets, batch)
        added: dict[str, int] = {}
        for name, chain in chains.items():
            staged = [unstage(bytes(row.outputs)) for row in rows if row.stream == name]
            table = numbered(staged) if any(len(part) for part in staged) else None
            added[name] = take_over(level, chain, table, through_us, rules[name])
        sizes = {row.bucket: (row.keys, row.rows) for row in rows}
        keys, events = (sum(column) for column in zip(*sizes.values(), strict=True))
        told(Sealed(batch, through_us, added, keys, events))

    return seal


def take_over(level: Level, chain: Chain, table: Any, through_us: int, rule: str) -> int:
    """Seal an interval, unless an older version of the rules is still responsible for it."""
    start_us = start_of(level)
    if through_us <= start_us:
        return 0
    if chain.refresh() < start_us:
        raise RuleError(
            f"stream {chain.name}: this version of its rules takes over at {start_us}, but the one before has only "
            f"sealed through {chain.through_us}; let it run until then"
        )
    return seal_interval(chain, table, through_us, rule)


def output_chains(level: Level) -> dict[str, Chain]:
    log = level.log
    return {schema.name: log.create(schema, level.buckets) for schema in level.outputs}


def spread(buckets: int) -> tuple[int, ...]:
    """For each bucket a number that Spark's hash partitioning sends to a partition of its own."""
    slots: dict[int, int] = {}
    number = 0
    while len(slots) < buckets:
        slots.setdefault(_murmur3(number) % buckets, number)
        number += 1
    return tuple(slots[partition] for partition in range(buckets))


def _murmur3(value: int) -> int:
    """Spark's hash of an int, seed 42, as a signed number."""
    mask = 0xFFFFFFFF
    mixed = (value * 0xCC9E2D51) & mask
    mixed = ((mixed << 15 | mixed >> 17) * 0x1B873593) & mask
    state = 42 ^ mixed
    state = ((state << 13 | state >> 19) & mask) * 5 + 0xE6546B64 & mask
    state ^= 4
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        state = (state ^ state >> shift) * factor & mask
    return state - (1 << 32) if state >> 31 else state
