"""Two gears, one meaning: the live gear's situations are Spark's, stamps included, and the audit finds nothing."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.correlation.live_tree import LiveTree
from unerring.app.auditing import Audit
from unerring.log import EventLog
from unerring.model import TIME_MAX
from unerring.pipeline.detect import detect_available
from unerring.pipeline.intervals import Bounds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.timeout(600)
def test_both_gears_seal_the_same_situations_and_the_audit_is_content(spark: SparkSession, tmp_path: Path) -> None:
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
    assert [(rule.stream, rule.gear) for rule in report.rules] == [(stream, "live") for stream in tree.streams]
    assert all(rule.delivered for rule in report.rules)
