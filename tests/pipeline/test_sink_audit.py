"""The audit reaches the target: what a table holds is held against the perfect run."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable, write_deltalake

from unerring.app import App, place_of, sink_deliveries
from unerring.app.auditing import Audit
from unerring.audit import explained
from unerring.audit.report import PROMISES, RuleVerdict
from unerring.log import EventLog
from unerring.model import CallerError
from unerring.pipeline.batch import detect_batch
from unerring.pipeline.intervals import Bounds

from .worlds import TYPED, pair, random_events, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAIRS = pair("Pairs", TYPED, "A", "B", 40)

pytestmark = pytest.mark.xdist_group("spark")


@pytest.fixture(scope="module")
def delivered(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose situations were all delivered."""
    data = tmp_path_factory.mktemp("delivered")
    write(EventLog(data / "log").create(TYPED, 2), random_events(1, 120, 5), [150, 400, 600], 800)
    for level in app_to(data / "lake").levels(data):
        detect_batch(spark, level, Bounds(rows_per_batch=50))
    return data


def app_to(lake: Path) -> App:
    return App("trial", rules=[PAIRS], streams=[TYPED], buckets=2).deliver("Pairs", to=f"delta:{lake}")


@pytest.fixture
def data(delivered: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "run"
    shutil.copytree(delivered, copy)
    app = app_to(copy / "lake")
    [work] = sink_deliveries(place_of(copy), app.sinks, app, print)
    work.run(threading.Event(), follow=False)
    assert work.progress.delivered > 5
    return copy


def judged(spark: SparkSession, data: Path) -> RuleVerdict:
    report = Audit(app_to(data / "lake"), data, sinks=["Pairs"]).run(spark, rows=50)
    log, target = report.rules
    assert (log.engine, log.wrong) == ("spark", 0)
    assert target.engine == "sink Pairs"
    assert report.wrong == target.wrong
    assert (list(explained(report)) == ["Nothing is wrong."]) == (target.wrong == 0)
    return target


def counts(verdict: RuleVerdict) -> dict[str, int]:
    return {PROMISES[promise]: count for promise, count in verdict.counts.items()}


def test_a_table_is_equal_to_the_perfect_run(spark: SparkSession, data: Path) -> None:
    verdict = judged(spark, data)
    assert verdict.wrong == 0
    assert verdict.delivered == verdict.perfect > 5
    assert sum(verdict.bins_delivered) == sum(verdict.bins_perfect) == verdict.perfect


def test_what_somebody_did_to_the_table_is_found(spark: SparkSession, data: Path) -> None:
    table = DeltaTable(str(data / "lake"))
    rows = table.to_pyarrow_table().sort_by("time")
    first_us = rows.column("time")[0].value
    table.delete(f"cast(time as bigint) = {first_us}")
    twice = rows.slice(2, 1)
    write_deltalake(table, twice, mode="append")
    false = rows.slice(3, 1).set_column(1, rows.schema.field(1), [[99]])
    write_deltalake(table, false, mode="append")
    lost = sum(time.value == first_us for time in rows.column("time"))
    assert counts(judged(spark, data)) == {"false negatives": lost, "duplicates": 1, "false positives": 1}


def test_what_was_not_delivered_yet_is_still_to_come(spark: SparkSession, data: Path) -> None:
    app = app_to(data / "lake")
    [work] = sink_deliveries(place_of(data), app.sinks, app, print)
    work.rewind(400)
    verdict = judged(spark, data)
    assert counts(verdict) == {"still to come": verdict.perfect - verdict.delivered}
    assert 0 < verdict.delivered < verdict.perfect


def test_a_sink_that_the_run_does_not_know_is_a_mistake(data: Path) -> None:
    with pytest.raises(CallerError, match="has no sink 'none'; it has Pairs"):
        Audit(app_to(data / "lake"), data, sinks=["none"])
