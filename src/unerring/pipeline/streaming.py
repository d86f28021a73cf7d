"""Detect, streaming: one query per level. Tasks run their bucket's partition and stage what it gave; the driver seals.

Exactly once, by three facts. Spark runs a micro-batch again with the interval and the state that it had before. A
partition's outputs follow from interval and state alone. And sealing the same interval a second time finds it sealed.

A partition's state between two micro-batches is on the run's store (see `states`), and so Spark's checkpoint, which is
in the host's scratch folder, may be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from unerring.log import Chain, PartRows, agree_on, seal_interval
from unerring.model import CallerError, RuleError, WorldError
from unerring.pipeline import shuffling
from unerring.pipeline.answers import STAGED, outputs_of
from unerring.pipeline.beginnings import settle
from unerring.pipeline.checkpoints import folder_of
from unerring.pipeline.connecting import is_connect
from unerring.pipeline.intervals import Bounds
from unerring.pipeline.level import Level
from unerring.pipeline.sealing import check_whole
from unerring.pipeline.session import own_sentence, own_settings, sentence_of, settings
from unerring.pipeline.shuffling import by_partition
from unerring.pipeline.spreading import shuffled_lanes
from unerring.pipeline.versions import enter, start_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

RESTARTS_MAX: Final = 12
"""How often a query that Spark could not run is started again. Spark gives a Python process ten seconds to start, which
on a very busy machine is not enough; a new JVM would take more of it than another try does."""


NAMED_MAX: Final = 120
"""So many characters of rules' names are in a query's name."""
SETTINGS: Final = {
    # A micro-batch has a row for each bucket and stream in the JVM: compiling code for them takes longer than they do.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


OBSERVED: Final = "unerring"
MEASURED: Final = (
    "sum(rows) AS rows_read",
    "sum(found) AS rows_out",
    "sum(keys) AS state_keys",
    "sum(state_bytes) AS state_bytes",
    "max(through_us) AS watermark_us",
    "max(behind_us) AS lag_us",
)
"""What a query's progress has of each micro-batch, under `observedMetrics`. Where events are shuffled first, a second
job runs the partitions, whose numbers Spark does not take into the query's progress."""


MaySeal = Callable[[dict[str, Chain], int], bool]
"""Waits until an interval that ends at this time may be sealed. False: another driver has sealed all of it."""


def seal_at_once(chains: dict[str, Chain], through_us: int) -> bool:
    """A driver that is the only one."""
    return True


@dataclass
class Sealed:
    """The result of a micro-batch, for the screen and metrics."""

    batch: int
    through_us: int
    situations: dict[str, int]
    keys: int
    """Keys that have state."""
    rows: int
    """Events that the rules were fed, those of several rules counted once."""
    state_bytes: int | None = None
    """What is on the store of all partitions' states; None where none are kept before the end."""


def detect_stream(
    spark: SparkSession,
    level: Level,
    bounds: Bounds | None = None,
    *,
    once: bool = False,
    on_sealed: Callable[[Sealed], None] = lambda sealed: None,
    may_seal: MaySeal = seal_at_once,
) -> StreamingQuery:
    """Start a level's query. `once`: take what is there now, then end. `on_sealed` hears of every sealed
    interval. `may_seal` waits, before an interval is sealed, until it is this driver's to seal."""
    if is_connect(spark):
        raise CallerError(
            "micro-batches are sealed by Spark's driver, which over Spark Connect is not this process; run rules there "
            "by resident tasks (without --micro-batches)"
        )
    enter(level)
    bounds = bounds or Bounds()
    bounds = replace(bounds, start_us=settle(level, bounds.start_us))
    checkpoint = folder_of(level).absolute().as_uri()  # of this host, whatever file system the cluster has
    with settings(spark, {**SETTINGS, **shuffling.SETTINGS}):
        writer = _staged(spark, level, bounds).writeStream.queryName(query_name(level))
        writer = writer.outputMode("update").option("checkpointLocation", checkpoint)
        writer = (
            writer.trigger(availableNow=True)
            if once
            else writer.trigger(processingTime=f"{round(bounds.look_s * 1000)} milliseconds")
        )
        try:
            return writer.foreachBatch(seal_batch(level, on_sealed, may_seal)).start()
        except Exception as error:  # py4j's: Spark cannot read its own checkpoint, say
            raise WorldError(
                f"level {level.label} did not start from {checkpoint}: {sentence_of(error)}; if that folder is "
                "damaged, remove it, and the level continues from its states on the store"
            ) from error


def query_name(level: Level) -> str:
    """What Spark calls a level's query, and its jobs."""
    rules = ", ".join(plan.name for plan in level.plans)
    return f"level {level.label}: {rules if len(rules) <= NAMED_MAX else f'{len(level.plans)} rules'}"


def _staged(spark: SparkSession, level: Level, bounds: Bounds) -> DataFrame:
    """The answers of the buckets' tasks, micro-batch by micro-batch."""
    from pyspark.sql.functions import expr

    from unerring.pipeline.work import Work  # it imports Spark, which not every user of this module has

    source = Work.of(level, bounds)
    spark.dataSource.register(source)
    staged = spark.readStream.format(source.name()).load()
    return staged if shuffled_lanes(level) else staged.observe(OBSERVED, *map(expr, MEASURED))


def detect_available(
    spark: SparkSession,
    level: Level,
    bounds: Bounds | None = None,
    *,
    on_sealed: Callable[[Sealed], None] = lambda sealed: None,
    restarts_max: int = RESTARTS_MAX,
) -> None:
    """Run a level over what its log holds now, to the end. What Spark itself stumbles over is tried again."""
    for left in range(restarts_max, -1, -1):
        query = detect_stream(spark, level, bounds, once=True, on_sealed=on_sealed)
        try:
            query.awaitTermination()
            return
        except Exception as error:  # a StreamingQueryException, or py4j's own when the JVM is gone
            if own_sentence(error) is not None or left == 0:
                raise WorldError(f"level {level.label} stopped: {sentence_of(error)}") from error


def seal_batch(
    level: Level, on_sealed: Callable[[Sealed], None], may_seal: MaySeal = seal_at_once
) -> Callable[[DataFrame, int], None]:
    """The driver's function: collect what all buckets staged, number it, seal it in every output chain."""
    outputs = outputs_in(level)
    shuffled = bool(shuffled_lanes(level))

    def seal(frame: DataFrame, batch: int) -> None:
        own_settings(frame, {**SETTINGS, **shuffling.SETTINGS})
        if shuffled:
            from unerring.pipeline.work import run_shuffled

            frame = by_partition(frame, level).mapInArrow(run_shuffled(level), STAGED)
        rows = frame.collect()
        if not rows:
            return
        answers = sorted({(row.bucket, row.from_us, row.through_us) for row in rows})
        from_us, through_us = check_whole(answers, level.buckets, batch)
        found = [(row.stream, bytes(row.outputs)) for row in rows]
        tables = numbered_by_stream(outputs.chains, found, from_us, through_us)
        added = seal_numbered(outputs, tables, from_us, through_us, may_seal)
        keys, events, state_bytes = (sum(row[name] for row in rows) for name in ("keys", "rows", "state_bytes"))
        on_sealed(Sealed(batch, through_us, added, keys, events, state_bytes))

    return seal


def seal_numbered(
    outputs: Outputs,
    tables: dict[str, pa.Table | PartRows | None],
    from_us: int,
    through_us: int,
    may_seal: MaySeal,
) -> dict[str, int]:
    """Seal what all partitions found in an interval; how many events that added to each stream."""
    if not may_seal(outputs.chains, through_us):
        for name, chain in outputs.chains.items():
            agree_on(chain, max(from_us, outputs.start_us), through_us, tables[name])
    return seal_outputs(outputs, tables, through_us)


def numbered_by_stream(
    chains: dict[str, Chain], found: Iterable[tuple[str, bytes]], from_us: int, through_us: int
) -> dict[str, pa.Table | PartRows | None]:
    """The answers for one interval, each with its stream, as numbered outputs of each stream; None: no event."""
    answers: dict[str, list[bytes]] = {name: [] for name in chains}
    for stream, outputs in found:
        answers[stream].append(outputs)
    return {name: outputs_of(chain, answers[name], from_us, through_us) for name, chain in chains.items()}


def seal_outputs(outputs: Outputs, tables: dict[str, pa.Table | PartRows | None], through_us: int) -> dict[str, int]:
    """Seal an interval in every output chain, except where an older version of the rules is still responsible for it;
    how many events that added to each."""
    chains, start_us = outputs.chains, outputs.start_us
    if through_us <= start_us:
        return dict.fromkeys(chains, 0)
    for chain in chains.values():
        if chain.through_us < start_us and chain.refresh() < start_us:
            raise RuleError(
                f"stream {chain.name}: this version of its rules takes over at {start_us}, but the one before has only "
                f"sealed through {chain.through_us}; let it run until then"
            )
    return {name: seal_interval(chain, tables[name], through_us, outputs.rules[name]) for name, chain in chains.items()}


@dataclass(frozen=True)
class Outputs:
    """What a level makes, for whoever seals it."""

    chains: dict[str, Chain]
    rules: dict[str, str]
    """The version of the rule that makes each stream."""
    start_us: int
    """The time after which these versions count."""


def outputs_in(level: Level) -> Outputs:
    """The output streams, as they stand."""
    rules = {schema.name: plan.version for plan in level.plans for schema in plan.outputs}
    return Outputs(output_chains(level), rules, start_of(level))


def output_chains(level: Level) -> dict[str, Chain]:
    """The output streams' chains. Their segments are bucketed as the level is divided, as those are that its tasks
    write."""
    log = level.log
    return {schema.name: log.create(schema, level.buckets, level.spread) for schema in level.outputs}
