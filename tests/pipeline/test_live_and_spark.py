"""Two engines, one meaning: the live engine's situations are Spark's, stamps included, and the audit finds nothing."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.app.live_tree import LiveRun, LiveTree, readings
from unerring.app.auditing import Audit
from unerring.app.live_needs import needed_after
from unerring.log import EventLog
from unerring.model import TIME_MAX, TIME_MIN
from unerring.pipeline.intervals import Bounds
from unerring.pipeline.retention import retain
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
    asyncio.run(_play(run, 0, 160))
    needed = needed_after(tmp_path)
    assert needed["Reading"] > run.events[80].stamp.time, "the source has let go of what its receivers have"
    before_us = min(run.log(stream).refresh() for stream in run.streams)
    for after_us in (run.events[60].stamp.time, needed["Reading"]):
        assert retain(spark, run.app.levels(tmp_path), before_us, {"Reading": after_us})["Reading"]
        assert TIME_MIN < run.log("Reading").base.from_us <= after_us < before_us
    asyncio.run(_play(run, 160, 240, end=True))
    report = Audit(run.app, tmp_path).run(spark, lambda _: None)
    assert not report.wrong, report
    assert any("retention removed events up to" in note for rule in report.rules for note in rule.notes)
    assert all(rule.perfect for rule in report.rules), "something is left to judge"


async def _play(run: LiveRun, first: int, last: int, end: bool = False) -> None:
    run.supervisor = run.new_supervisor()
    running = asyncio.create_task(run.supervisor.run())
    try:
        for start in range(first, last, 40):
            run.feed(run.events[start : min(start + 40, last)])
            await asyncio.sleep(0.3)
        if end:
            run.end()
            await run.until(run.sealed)
        else:
            reached_us = run.events[last - 1].stamp.time
            await run.until(lambda: all(run.log(stream).refresh() >= reached_us for stream in run.streams))
            await run.until(lambda: run.status("source_Reading/0")["outputs"]["Reading"]["queued"] == 0)
            empty_s = time.time()  # A source writes once a second where its queue begins.
            await run.until(lambda: run.status("source_Reading/0")["at"] > empty_s + 2)
    finally:
        run.supervisor.stop()
        await running
