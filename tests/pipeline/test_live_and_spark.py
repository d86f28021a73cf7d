"""Two engines, one meaning: the live engine's situations are Spark's, stamps included, and the audit finds nothing."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.app.live_tree import LiveRun, LiveTree, readings
from unerring.app.auditing import Audit
from unerring.app.live_needs import needs_of
from unerring.log import EventLog
from unerring.model import TIME_MAX, TIME_MIN
from unerring.pipeline.intervals import Bounds
from unerring.pipeline.retention import Needs, retain
from unerring.pipeline.streaming import detect_available

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.timeout(600)
def test_both_engines_seal_the_same_situations_and_the_audit_is_content(spark: SparkSession, tmp_path: Path) -> None:
    tree = LiveTree(tmp_path / "live", events=120, seed=5)
    asyncio.run(tree.run(failures=1))
    batch = tmp_path / "spark"
    shutil.copytree(tmp_path / "live" / "log" / "Reading", batch / "log" / "Reading")
    for level in tree.app.levels(batch):
        detect_available(spark, level, Bounds())
    for stream in tree.streams:
        live, from_spark = (EventLog(folder / "log").chain(stream) for folder in (tmp_path / "live", batch))
        assert live.refresh() == from_spark.refresh() == TIME_MAX
        told, wanted = (chain.read(chain.base.from_us, TIME_MAX) for chain in (live, from_spark))
        assert len(told)
        assert told.equals(wanted)
    report = Audit(tree.app, tmp_path / "live").run(spark, lambda _: None)
    assert not report.wrong, report
    assert [(rule.stream, rule.engine) for rule in report.rules] == [(stream, "live") for stream in tree.streams]
    assert all(rule.delivered for rule in report.rules)


@pytest.mark.timeout(600)
def test_a_log_that_durable_replicas_read_is_cut_and_they_go_on(spark: SparkSession, tmp_path: Path) -> None:
    run = LiveRun(tmp_path, "tests.app.tree_app:app", readings(240), durable=True)
    asyncio.run(run.play(0, 160))
    needed = needs_of(tmp_path).after
    assert needed["Reading"] > run.events[80].stamp.time, "the source has let go of what its receivers have"
    before_us = min(run.log(stream).refresh() for stream in run.streams)
    for after_us in (run.events[60].stamp.time, needed["Reading"]):
        assert retain(spark, run.app.levels(tmp_path), before_us, Needs({"Reading": after_us}))["Reading"]
        assert TIME_MIN < run.log("Reading").base.from_us <= after_us < before_us
    asyncio.run(run.play(160, 240, end=True))
    report = Audit(run.app, tmp_path).run(spark, lambda _: None)
    assert not report.wrong, report
    assert any("retention removed events up to" in note for rule in report.rules for note in rule.notes)
    assert all(rule.perfect for rule in report.rules), "something is left to judge"
