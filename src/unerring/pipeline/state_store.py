"""The other form of a level's query: intervals as rows, grouped by bucket, each share's state in Spark's own store.

RocksDB with changelog checkpoints of format 2 (format 1 lets a zombie task's stale state win). For those who want all
of a query's state in Spark's checkpoint; it costs a shuffle and a state store commit in every micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from unerring.model import LogError
from unerring.pipeline.intervals import Bounds, Intervals, read_spans
from unerring.pipeline.level import Level
from unerring.pipeline.savepoints import share_at
from unerring.pipeline.share import Share
from unerring.pipeline.staging import STAGED, stage
from unerring.pipeline.states import States

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.state import GroupState

STATE: Final = "share binary"


def staged_with_state_store(spark: SparkSession, level: Level, bounds: Bounds) -> DataFrame:
    """What the buckets' tasks answer, micro-batch by micro-batch."""
    from pyspark.sql.streaming.state import GroupStateTimeout

    source = Intervals.of(level, bounds, spread(level.buckets))
    spark.dataSource.register(source)
    return (
        spark.readStream.format(source.name())
        .load()
        .groupBy("slot")
        .applyInPandasWithState(run_share(level), STAGED, STATE, "update", GroupStateTimeout.NoTimeout)
    )


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
        if States(level).started() != from_us:
            raise LogError(
                f"{level.checkpoint}: Spark's store has no state of bucket {bucket} of level {level.number} at "
                f"{from_us}; remove that folder, and the level continues from a savepoint or the log"
            )
        return share_at(level, bucket, from_us)
    share = Share(level, bucket)
    share.restore(bytes(state), from_us, f"{level.checkpoint}: what Spark's store has for bucket {bucket}")
    return share


def _keep(share: Share) -> None:
    _KEPT[share.level.data, share.level.version, share.bucket] = share


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
