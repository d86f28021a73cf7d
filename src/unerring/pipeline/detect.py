"""Detect, streaming: one query per level. Tasks run their bucket's share and stage what it gave; the driver seals.

Exactly once, by three facts. Spark runs a micro-batch again with the interval and the state that it had before. A
share's outputs follow from interval and state alone. And sealing the same interval a second time finds it sealed.

A share's state between two micro-batches is a file beside the checkpoint (`work`) or stands in Spark's own state store
(`state_store`). The first is the faster one; both give the same sealed bytes.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from unerring.log import Chain
from unerring.log.sealing import agree_on, seal_interval
from unerring.model import ConfigError, RuleError, WorldError
from unerring.pipeline.beginnings import settle
from unerring.pipeline.intervals import Bounds
from unerring.pipeline.level import Level
from unerring.pipeline.sealing import check_whole, numbered
from unerring.pipeline.session import own_sentence, sentence_of, settings
from unerring.pipeline.staging import unstage
from unerring.pipeline.versions import enter, start_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

RESTARTS_MAX: Final = 3
"""How often a query that Spark could not run is started again (a Python worker that took too long to start, say)."""


class StateIn(StrEnum):
    """Where the states of shares are kept between micro-batches."""

    FILES = "files"
    ROCKSDB = "rocksdb"


SETTINGS: Final = {
    # A micro-batch has a row for each bucket and stream in the JVM: compiling code for them takes longer than they do.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


Turn = Callable[[dict[str, Chain], int], bool]
"""Waits until an interval that ends at this time may be sealed. False: another driver has sealed all of it."""


def at_once(chains: dict[str, Chain], through_us: int) -> bool:
    """A driver that is the only one."""
    return True


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
    state: StateIn = StateIn.FILES,
    turn: Turn = at_once,
) -> StreamingQuery:
    """Start a level's query. `once`: take what is there now, then end. `told` hears of every sealed interval.
    `turn` waits, before an interval is sealed, until it is this driver's to seal."""
    enter(level)
    shutil.rmtree(level.staging, ignore_errors=True)
    checkpoint = _checkpoint(level, state)
    bounds = bounds or Bounds()
    settle(level, state, bounds.start_us)
    wanted = {**SETTINGS, "spark.sql.shuffle.partitions": str(level.buckets)}
    with settings(spark, wanted):
        writer = _staged(spark, level, bounds, state).writeStream.queryName(f"level {level.number}")
        writer = writer.outputMode("update").option("checkpointLocation", checkpoint)
        writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime="0 seconds")
        try:
            return writer.foreachBatch(seal_batch(level, told, turn)).start()
        except Exception as error:  # py4j's: Spark cannot read its own checkpoint, say
            raise WorldError(
                f"level {level.number} did not start from {checkpoint}: {sentence_of(error)}; if that folder is "
                "damaged, remove it, and the level continues from a state, a savepoint or the log"
            ) from error


def _staged(spark: SparkSession, level: Level, bounds: Bounds, state: StateIn) -> DataFrame:
    """What the buckets' tasks answer, micro-batch by micro-batch."""
    if state is StateIn.ROCKSDB:
        from unerring.pipeline.state_store import staged_with_state_store

        return staged_with_state_store(spark, level, bounds)
    from unerring.pipeline.work import Work

    source = Work.of(level, bounds)
    spark.dataSource.register(source)
    return spark.readStream.format(source.name()).load()


def _checkpoint(level: Level, state: StateIn) -> str:
    """Spark's checkpoint; a level's state is in one place only."""
    for other in StateIn:
        if other is not state and (level.checkpoint / other).exists():
            raise ConfigError(
                f"{level.data} keeps the state of level {level.number} in {other}, not in {state}; continue with "
                f"--state {other}, or use a new --data folder"
            )
    return str(level.checkpoint / state)


def detect_available(
    spark: SparkSession,
    level: Level,
    bounds: Bounds | None = None,
    *,
    told: Callable[[Sealed], None] = lambda sealed: None,
    state: StateIn = StateIn.FILES,
    restarts_max: int = RESTARTS_MAX,
) -> None:
    """Run a level over what its log holds now, to the end. What Spark itself stumbles over is tried again."""
    for left in range(restarts_max, -1, -1):
        query = detect(spark, level, bounds, once=True, told=told, state=state)
        try:
            query.awaitTermination()
            return
        except Exception as error:  # a StreamingQueryException, or py4j's own when the JVM is gone
            if own_sentence(error) is not None or left == 0:
                raise WorldError(f"level {level.number} stopped: {sentence_of(error)}") from error


def seal_batch(level: Level, told: Callable[[Sealed], None], turn: Turn = at_once) -> Callable[[DataFrame, int], None]:
    """The driver's function: collect what all buckets staged, number it, seal it in every output chain."""
    chains = output_chains(level)
    rules = {schema.name: plan.version for plan in level.plans for schema in plan.outputs}

    def seal(frame: DataFrame, batch: int) -> None:
        rows = frame.collect()
        if not rows:
            return
        found = sorted({(row.bucket, row.from_us, row.through_us) for row in rows})
        from_us, through_us = check_whole(found, level.buckets, batch)
        ours = turn(chains, through_us)
        added: dict[str, int] = {}
        for name, chain in chains.items():
            staged = [unstage(bytes(row.outputs)) for row in rows if row.stream == name]
            table = numbered(staged) if any(len(part) for part in staged) else None
            if not ours:
                agree_on(chain, max(from_us, start_of(level)), through_us, table)
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
