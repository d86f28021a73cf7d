"""Compaction of whole streams as a Spark job."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from tests.log.worlds import BURST, READING, table
from unerring.log import CompactionConfig, EventLog
from unerring.model import TIME_MIN
from unerring.pipeline import compact_log


def test_tasks_merge_all_streams_and_readers_see_the_same(spark: SparkSession, tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    for schema in (BURST, READING):
        chain = log.create(schema, buckets=2)
        for end in range(10, 610, 10):
            chain.seal(end, table([end - 1, end], schema), producers={"p": (0, end)})
    before = {name: log.chain(name).read(TIME_MIN, 600) for name in ("Burst", "Reading")}
    spans = log.chain("Burst").spans(100, 300)
    done = compact_log(spark, str(tmp_path), config=CompactionConfig(segments_max=16, rows_max=100))
    assert {name: one.objects_before for name, one in done.items()} == {"Burst": 60, "Reading": 60}
    assert all(one.objects <= 4 for one in done.values())
    for name, rows in before.items():
        chain = log.chain(name)
        chain.check()
        assert chain.read(TIME_MIN, 600).equals(rows)
        assert chain.producers() == {"p": (0, 600)}
    assert log.known_chain("Burst", spans).read(100, 300).equals(log.chain("Burst").read(100, 300))
    assert compact_log(spark, str(tmp_path))["Burst"].objects <= 4
