"""What Spark's own monitoring shows of a run: jobs with names, numbers in a query's progress and in Spark's metrics."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from pyspark.errors import StreamingQueryException

from unerring.app import App
from unerring.app.spark_engine import SparkEngine
from unerring.pipeline.monitoring import GROUP, named_jobs
from unerring.pipeline.session import SparkConfig
from unerring.pipeline.streaming import RESTARTS_MAX, detect_stream
from unerring.rules.workloads import W1, W3, Typed

from .kills import prepare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from unerring.pipeline.level import Level

pytestmark = pytest.mark.xdist_group("spark")
EVENTS = 600


def asked(spark: SparkSession, what: str) -> Any:
    return (
        httpx.get(f"{spark.sparkContext.uiWebUrl}/{what}", follow_redirects=True, timeout=120).raise_for_status().json()
    )


def jobs(spark: SparkSession) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = asked(spark, f"api/v1/applications/{spark.sparkContext.applicationId}/jobs")
    return found


def gauges(spark: SparkSession) -> dict[str, int]:
    """What Spark's metrics system has of the first level, by its short name."""
    known = asked(spark, "metrics/json/")["gauges"]
    return {name.rpartition(".")[2]: known[name]["value"] for name in known if ".unerring.level-1." in name}


def finished(spark: SparkSession, level: Level) -> StreamingQuery:
    """A query over what the log holds. On a busy machine Spark may give a Python process up before it has started."""
    for left in range(RESTARTS_MAX, -1, -1):
        query = detect_stream(spark, level, once=True)
        try:
            query.awaitTermination()
            return query
        except StreamingQueryException:
            if not left:
                raise
    raise AssertionError


def test_a_query_s_progress_has_its_numbers(spark: SparkSession, tmp_path: Path) -> None:
    level = prepare(tmp_path, 7, EVENTS)
    query = finished(spark, level)
    assert query.name == "level 1: W1, W2, W3"
    observed = [
        progress.observedMetrics["unerring"].asDict() for progress in query.recentProgress if progress.numInputRows
    ]
    assert sum(one["rows_read"] for one in observed) == EVENTS
    outputs = {schema.name: level.log.chain(schema.name) for schema in level.outputs}
    assert sum(one["rows_out"] for one in observed) == sum(
        chain.count(0, chain.through_us) for chain in outputs.values()
    )
    last = observed[-1]
    assert last["state_keys"] > 0
    assert last["state_bytes"] > 0
    end_us = level.chains()[Typed.__name__].through_us
    assert (last["watermark_us"], last["lag_us"]) == (end_us, 0)
    assert f'"through_us": {end_us}' in query.recentProgress[-1].sources[0].latestOffset
    shown = [job for job in jobs(spark) if job.get("jobGroup") == str(query.runId)]
    assert shown
    assert all("level 1: W1, W2, W3" in job["description"] for job in shown)


def test_resident_tasks_have_names_and_numbers_while_they_run(spark: SparkSession, tmp_path: Path) -> None:
    level = prepare(tmp_path, 7, EVENTS)
    app = App("shown", rules=[W1, W3], buckets=level.buckets)
    engine = SparkEngine(app, tmp_path, SparkConfig(), resident=True)
    engine.start(lambda text: None)
    try:
        end_us = level.chains()[Typed.__name__].through_us
        pause = threading.Event()
        while gauges(spark)["watermark_us"] != end_us:
            engine.check()
            pause.wait(0.05)
        now = gauges(spark)
        assert (now["rows_read"], now["lag_us"]) == (EVENTS, 0)
        assert now["rows_out"] == sum(engine.views[0].situations.values()) > 0
        assert now["state_keys"] > 0
        resident = [job for job in jobs(spark) if str(job.get("jobGroup")).startswith("unerring shown: task")]
        assert {job["status"] for job in resident} == {"RUNNING"}
        assert all("W1, W3" in job["description"] for job in resident)
    finally:
        engine.stop()


def test_a_batch_names_its_jobs_and_leaves_the_user_s_names_alone(spark: SparkSession) -> None:
    context = spark.sparkContext
    with named_jobs(spark, "compact Typed"):
        spark.range(1).collect()
    assert (jobs(spark)[0]["description"], jobs(spark)[0]["jobGroup"]) == ("compact Typed", "compact Typed")
    assert context.getLocalProperty(GROUP) is None
    context.setJobGroup("mine", "what I do")
    try:
        with named_jobs(spark, "compact Typed"):
            assert context.getLocalProperty(GROUP) == "mine"
        assert context.getLocalProperty(GROUP) == "mine"
    finally:
        context.setLocalProperty(GROUP, None)  # type: ignore[arg-type]
        context.setJobDescription(None)  # type: ignore[arg-type]
