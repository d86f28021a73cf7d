"""On Spark, streaming and batch: the oracle's events and stamps, however the log and the batches are cut."""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from unerring.app import App
from unerring.log import Spread
from unerring.matching.oracle import run_tree
from unerring.model import TIME_MAX, CallerError, ConfigError, Event, StreamSchema, WorldError
from unerring.pipeline import jvm, savepoints
from unerring.pipeline.batch import detect_batch
from unerring.pipeline.checkpoints import folder_of
from unerring.pipeline.intervals import Bounds, spans_of
from unerring.pipeline.level import Level, levels_of
from unerring.pipeline.retention import retain
from unerring.pipeline.states import partition_at
from unerring.pipeline.streaming import Sealed, detect_available, detect_stream
from unerring.rules import Plan
from unerring.rules.tree import ranks_of

from .worlds import OTHER, TYPED, missing, pair, random_events, sealed, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOWER = pair("Pairs", TYPED, "A", "B", 40)
PLANS: tuple[Plan, ...] = (
    LOWER,
    missing("Misses", TYPED, "A", "B", 15),
    pair("Others", OTHER, "C", "D", 60),
    pair("Upper", LOWER.output, "B", "B", 200),
)
SOURCES: tuple[StreamSchema, ...] = (TYPED, OTHER)
END_US = 700


def prepare(data: Path, seed: int, buckets: int = 2) -> tuple[tuple[Level, ...], dict[str, list[Event]]]:
    """A log of random events, randomly cut."""
    rng = random.Random(seed)
    events = {TYPED.name: random_events(seed, 80, 5), OTHER.name: random_events(seed + 1, 60, 4, OTHER)}
    levels = levels_of(PLANS, SOURCES, str(data), buckets)
    for schema in SOURCES:
        cuts = [rng.randrange(1, END_US) for _ in range(rng.randrange(1, 6))]
        write(levels[0].log.create(schema, buckets), events[schema.name], cuts, END_US)
    return levels, events


def perfect(events: dict[str, list[Event]], through: int = END_US) -> dict[str, list[Event]]:
    every = [event for some in events.values() for event in some]
    found = run_tree(PLANS, every, ranks_of(PLANS, SOURCES), through)
    return {plan.name: [event for event in found if event.stream == plan.name] for plan in PLANS}


def run(spark: SparkSession, level: Level, rows: int, told: list[Sealed] | None = None) -> None:
    detect_available(spark, level, Bounds(rows_per_batch=rows), on_sealed=[].append if told is None else told.append)


def test_nobody_elses_machine_can_connect_to_spark(spark: SparkSession) -> None:
    """The sockets that listen, of the JVM and of everything that this process and it have started."""
    spark.range(1).mapInArrow(lambda batches: batches, "id long").collect()  # a Python worker, too
    started = jvm.of(spark)
    assert started is not None
    process = psutil.Process(started.pid)
    family = [psutil.Process(), process, *process.children(recursive=True)]
    listening = [
        connection.laddr.ip.removeprefix("::ffff:")
        for one in family
        for connection in one.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert len(listening) >= 2, "the driver and its block manager"
    assert set(listening) <= {"127.0.0.1", "::1"}
    assert os.environ["SPARK_LOCAL_IP"] == "127.0.0.1", "Spark's web page would bind to this"


def test_python_workers_import_the_same_copy_of_the_package(spark: SparkSession) -> None:
    def where(_: int) -> str:
        import unerring

        return str(unerring.__file__)

    import unerring

    assert spark.sparkContext.parallelize([0]).map(where).collect() == [unerring.__file__]


def test_spark_finds_the_same_buckets(spark: SparkSession) -> None:
    rows = [(k, f"machine-{k}", k / 3, k % 2 == 0) for k in range(50)]
    frame = spark.createDataFrame(rows, "a long, b string, c double, d boolean")
    modulo = frame.selectExpr("pmod(xxhash64(a, b, c, d), 7) AS bucket", "xxhash64(b) AS other").collect()
    assert [row.bucket for row in modulo] == [Spread(7, ranges=False).of(row) for row in rows]
    assert [(row.other % 2**64) * 7 >> 64 for row in modulo] == [Spread(7).of((row[1],)) for row in rows]


@pytest.fixture(scope="module")
def streamed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[Event]]]:
    """A query tree of two levels that has run over a log in a few micro-batches."""
    data = tmp_path_factory.mktemp("streamed")
    levels, events = prepare(data, 1)
    for level in levels:
        run(spark, level, 60)
    return data, events


Streamed = tuple[Path, dict[str, list[Event]]]


def test_streaming_gives_the_oracles_events_level_over_level(spark: SparkSession, streamed: Streamed) -> None:
    data, events = streamed
    wanted = perfect(events)
    assert all(wanted.values()), "the draw must make every rule speak"
    for name, found in wanted.items():
        assert sealed(data, name) == found
    assert spark.read.parquet(str(data / "log" / "Pairs" / "segments")).count() == len(wanted["Pairs"])


def test_an_application_reads_situations_from_where_it_stopped(streamed: Streamed) -> None:
    data, events = streamed
    app = App("trial", rules=PLANS, streams=[TYPED, OTHER], buckets=2)
    wanted = perfect(events)["Misses"]
    found: list[Event] = []
    for situation in app.situations("Misses", data=data, follow=False):
        found.append(situation)
        if len(found) == 3:
            break
    # The third was being handled when the loop ended: it comes again, with the same id.
    rest = list(app.situations("Misses", data=data, follow=False))
    assert found[:2] + rest == wanted
    assert list(app.situations("Misses", data=data, follow=False)) == []
    assert list(app.situations("Misses", data=data, reader="other", follow=False)) == wanted
    kept_by_the_application = wanted[4].stamp
    again = app.situations("Misses", data=data, reader="own", follow=False).after(kept_by_the_application)
    assert list(again) == wanted[5:]


def test_another_number_of_buckets_is_refused(spark: SparkSession, streamed: Streamed) -> None:
    other = levels_of(PLANS, SOURCES, str(streamed[0]), 3)[0]
    with pytest.raises(ConfigError, match="3 buckets"):
        detect_stream(spark, other)


def test_batch_then_live_goes_on_without_a_seam(spark: SparkSession, tmp_path: Path) -> None:
    levels, events = prepare(tmp_path, 3)
    level = levels[0]
    told: list[Sealed] = []
    assert detect_batch(spark, level, Bounds(rows_per_batch=30), through_us=300, on_sealed=told.append) == 300
    assert len(told) > 1
    for plan in level.plans:
        assert sealed(tmp_path, plan.name) == perfect(events, 300)[plan.name]
    run(spark, level, 1000)
    for plan in level.plans:
        assert sealed(tmp_path, plan.name) == perfect(events)[plan.name]
    later = [event for event in random_events(3, 160, 5) if event.stamp.time > END_US]
    write(level.log.chain(TYPED.name), later, [END_US + 50], 2000)
    write(level.log.chain(OTHER.name), [], [], TIME_MAX)
    told.clear()
    elsewhere = replace(level, scratch=str(tmp_path / "elsewhere"))
    run(spark, elsewhere, 1000, told)
    assert sum(one.rows for one in told) == len(later), "only the rest was computed"
    events[TYPED.name] += later
    wanted = perfect(events, 2000)
    for plan in level.plans:
        assert sealed(tmp_path, plan.name) == wanted[plan.name]
    forget(spark, level, tmp_path, wanted)


def forget(spark: SparkSession, level: Level, data: Path, wanted: dict[str, list[Event]]) -> None:
    """Retention lets the past go and leaves a savepoint: whoever starts anew from it finds what comes after."""
    with pytest.raises(CallerError, match="has only been detected through 2000"):
        retain(spark, (level,), 3000)
    removed = retain(spark, (level,), END_US)
    assert removed[TYPED.name] > 0
    base = level.log.chain(TYPED.name).base.from_us
    assert 0 < base <= END_US
    for plan in level.plans:
        kept = level.log.chain(plan.name).base.from_us
        assert sealed(data, plan.name) == [event for event in wanted[plan.name] if event.stamp.time > kept]
    partitions = [partition_at(level, bucket, END_US) for bucket in range(level.buckets)]
    spans = spans_of(level.chains(), END_US, 2000)
    found = [partition.advance(2000, spans) for partition in partitions]
    for plan in level.plans:
        times = sorted(time for outputs in found for time in outputs[plan.name].column("time").to_pylist())
        assert times == [event.stamp.time for event in wanted[plan.name] if event.stamp.time > END_US]


def test_a_lost_or_overtaken_checkpoint_costs_time_never_events(spark: SparkSession, tmp_path: Path) -> None:
    plans = (LOWER, missing("Misses", TYPED, "A", "B", 15))
    [level] = levels_of(plans, (TYPED,), str(tmp_path), 2)
    events = random_events(11, 160, 5)
    chain = level.log.create(TYPED, 2)
    ends = [100, 200, 300, 400, 500]
    assert events[-1].stamp.time > ends[-1]
    kept = {plan.name: 0 for plan in plans}

    def go_on(until: int) -> None:
        """What is found must be perfect, but for what retention removed."""
        write(chain, [event for event in events if event.stamp.time <= until], [until - 50], until)
        detect_available(spark, level)
        for plan in plans:
            wanted = run_tree((plan,), events, dict(level.ranks), until)
            kept[plan.name] = max(kept[plan.name], level.log.chain(plan.name).base.from_us)
            assert sealed(tmp_path, plan.name) == [e for e in wanted if e.stamp.time > kept[plan.name]]

    go_on(100)

    def fail(sealed: Sealed) -> None:
        raise RuntimeError("the driver ended here")

    write(chain, [event for event in events if event.stamp.time <= 200], [150], 200)
    with pytest.raises(RuntimeError, match="ended here"):
        detect_batch(spark, level, Bounds(rows_per_batch=1), on_sealed=fail)
    assert savepoints.find(level) == 200 > level.sealed_us(), "a savepoint of outputs that nobody has sealed"
    shutil.rmtree(folder_of(level))
    go_on(300)
    # Sealed, but not committed when the driver ended; then retention removed what Spark would read again.
    [last] = sorted((folder_of(level) / "commits").glob("[0-9]*"))[-1:]
    last.unlink()
    assert retain(spark, (level,), 300)[TYPED.name]
    go_on(400)
    assert retain(spark, (level,), 350)[TYPED.name]
    shutil.rmtree(folder_of(level))
    go_on(500)


def test_a_damaged_segment_stops_with_a_sentence_and_the_run_resumes(spark: SparkSession, tmp_path: Path) -> None:
    levels, events = prepare(tmp_path, 7)
    level = levels[0]
    victim = sorted((tmp_path / "log" / TYPED.name / "segments").glob("*.parquet"))[0]
    whole = victim.read_bytes()
    victim.write_bytes(whole[:100])
    with pytest.raises(WorldError, match=f"level 1 stopped: {victim} is not a whole Parquet file"):
        run(spark, level, 1000)
    victim.write_bytes(whole)
    run(spark, level, 1000)
    wanted = perfect(events)
    for plan in level.plans:
        assert sealed(tmp_path, plan.name) == wanted[plan.name]
