"""A Spark session that the user brought keeps its settings, whatever is run in it, and the results are the same."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import unerring
from unerring.app import App
from unerring.app.spark_engine import SparkEngine
from unerring.matching.oracle import run, run_tree
from unerring.pipeline import ingest, session
from unerring.pipeline.batch import detect_batch
from unerring.pipeline.level import levels_of
from unerring.pipeline.session import OWN, SparkConfig, settings, start
from unerring.pipeline.streaming import detect_available
from unerring.rules.tree import ranks_of
from unerring.rules.workloads import W1, Typed

from .kills import prepare
from .test_frames import PAIRS, SQL, frame_of
from .test_shuffling import END_US, PLANS
from .worlds import OTHER, TYPED, random_events, sealed, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")
THEIRS = {
    OWN: "false",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.session.timeZone": "Europe/Berlin",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "777",
    "spark.sql.execution.pyspark.udf.idleTimeoutSeconds": "600",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "1",
}


class Unchanged:
    """A session of somebody else's, whose settings are compared after everything that is done in it."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._before = self._now()

    def _now(self) -> tuple[dict[str, str], dict[str, str]]:
        all_of: Any = self.spark.conf.getAll
        return dict(all_of), dict(self.spark.sparkContext.getConf().getAll())

    def check(self) -> None:
        assert self._now() == self._before


@pytest.fixture
def brought(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Unchanged:
    theirs = spark.newSession()
    for name, value in THEIRS.items():
        theirs.conf.set(name, value)
    monkeypatch.setattr(session, "_existing", lambda: theirs)
    return Unchanged(theirs)


def test_a_session_is_joined_as_it_is(brought: Unchanged) -> None:
    joined = start(SparkConfig(master="local[7]", more=(("spark.sql.shuffle.partitions", "99"),)))
    assert joined._jsparkSession.equals(brought.spark._jsparkSession)
    with settings(joined, {"spark.sql.shuffle.partitions": "98"}):
        brought.check()
    brought.check()


def test_functions_on_dataframes(brought: Unchanged, tmp_path: Path) -> None:
    spark = brought.spark
    events = random_events(4, 150, 6)
    frame = frame_of(spark, events)
    assert unerring.detect(frame, PAIRS).count() == len(run(PAIRS, events, {"Typed": 0})) > 0
    brought.check()
    frame.createOrReplaceTempView("ticks")
    unerring.match(spark, SQL).collect()
    brought.check()
    taken = ingest(frame, stream="Ticks", key="key", time="time", data=tmp_path / "run", source="once")
    assert taken.added == len(events)
    brought.check()
    log = spark.read.format("unerring").option("stream", "Ticks").load(str(tmp_path / "run"))
    assert log.count() == len(events)
    brought.check()


def test_streams_of_dataframes(brought: Unchanged, tmp_path: Path) -> None:
    spark = brought.spark
    events = random_events(4, 150, 6)
    frame_of(spark, events).write.parquet(str(tmp_path / "in"))
    arriving = spark.readStream.schema("time timestamp, key long, type string, v double").parquet(str(tmp_path / "in"))
    query = ingest(arriving, stream="Ticks", key="key", time="time", data=tmp_path / "run", once=True)
    query.awaitTermination()
    brought.check()
    with pytest.warns(UserWarning, match="a micro-batch writes what changed"):
        found = unerring.detect(arriving, PAIRS, lateness="0 seconds", buckets=2)
    query = found.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start()
    try:
        query.processAllAvailable()
        brought.check()
    finally:
        query.stop()
    brought.check()


@pytest.mark.parametrize("batch", [True, False], ids=["batch", "micro-batches"])
def test_a_level_that_shuffles(brought: Unchanged, tmp_path: Path, batch: bool) -> None:
    """With adaptive execution, which might put small partitions together."""
    [level] = levels_of(PLANS, (TYPED, OTHER), str(tmp_path), 3)
    events = {schema.name: random_events(3, 90, 6, schema) for schema in (TYPED, OTHER)}
    for schema in (TYPED, OTHER):
        write(level.log.create(schema, 2), events[schema.name], [20, 70, 90, 200], END_US)
    (detect_batch if batch else detect_available)(brought.spark, level)
    brought.check()
    every = [event for some in events.values() for event in some]
    wanted = run_tree(PLANS, every, ranks_of(PLANS, (TYPED, OTHER)), END_US)
    assert sealed(tmp_path, "ByType") == [event for event in wanted if event.stream == "ByType"] != []


@pytest.mark.parametrize("resident", [False, True], ids=["micro-batches", "resident"])
def test_a_run(brought: Unchanged, tmp_path: Path, resident: bool) -> None:
    level = prepare(tmp_path, 7, 600)
    end_us = level.chains()[Typed.__name__].through_us
    engine = SparkEngine(App("theirs", rules=[W1], buckets=level.buckets), tmp_path, SparkConfig(), resident=resident)
    engine.start(lambda text: None)
    pause = threading.Event()
    try:
        while engine.views[0].through_us != end_us:
            engine.check()
            brought.check()
            pause.wait(0.05)
    finally:
        engine.stop()
    brought.check()
    assert brought.spark.range(1).count() == 1
