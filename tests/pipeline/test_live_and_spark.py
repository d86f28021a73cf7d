"""Two engines, one meaning: the live engine's situations are Spark's, stamps included, and the audit finds nothing."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.app.gateways_app import LATENESS_US
from tests.app.live_tree import APART_US, LiveRun, LiveTree, ShardedRun, readings
from tests.app.tree_app import Reading
from unerring import event_of
from unerring.app.auditing import Audit
from unerring.app.live_needs import needs_of
from unerring.log import EventLog, Quarantine, Reason
from unerring.model import TIME_MAX, TIME_MIN, Event
from unerring.pipeline.retention import Needs, retain

from .worlds import run_over

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.timeout(600)
def test_both_engines_seal_the_same_situations_and_the_audit_is_content(spark: SparkSession, tmp_path: Path) -> None:
    tree = LiveTree(tmp_path / "live", events=120, seed=5)
    asyncio.run(tree.run(failures=1))
    check_engines(spark, tree, tmp_path / "spark")


def check_engines(spark: SparkSession, run: LiveRun, batch: Path) -> None:
    """Spark finds in the same sealed log what the live run did, and so does the audit."""
    shutil.copytree(run.data / "log" / "Reading", batch / "log" / "Reading")
    run_over(spark, run.app.levels(batch))
    for stream in run.streams:
        live, from_spark = (EventLog(folder / "log").chain(stream) for folder in (run.data, batch))
        assert live.refresh() == from_spark.refresh() == TIME_MAX
        told, wanted = (chain.read(chain.base.from_us, TIME_MAX) for chain in (live, from_spark))
        assert len(told)
        assert told.equals(wanted)
    report = Audit(run.app, run.data).run(spark, lambda _: None)
    assert not report.wrong, report
    assert [(rule.stream, rule.engine) for rule in report.rules] == [(stream, "live") for stream in run.streams]
    assert all(rule.delivered for rule in report.rules)


@pytest.mark.timeout(600)
def test_a_rule_seals_the_same_with_one_shard_and_with_three_of_which_a_replica_is_killed(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Shards above shards, a rule without a key above both; then another number of shards, after a stop."""
    whole = ShardedRun(tmp_path / "whole", 160, {}, f=0)
    asyncio.run(whole.run(0, 160))
    wide = ShardedRun(tmp_path / "wide", 160, {"Rate": 3, "Steps": 2}, f=1)
    asyncio.run(wide.run(0, 80, kill="Rate-s1/0"))
    wide.spread({"Rate": 2})
    asyncio.run(wide.run(80, 160))
    for stream in whole.streams:
        chains = [EventLog(run.data / "log").chain(stream) for run in (whole, wide)]
        one, three = (chain.read(chain.base.from_us, chain.refresh()) for chain in chains)
        assert len(one)
        assert one.equals(three)
        assert max(one.column("ordinal").to_pylist()) > 0, "several shards made something at one time"
    check_engines(spark, wide, tmp_path / "spark")


class Gateways(LiveRun):
    """Three producers of one stream, in turns: each out of order within the lateness, and behind the one before it."""

    COUNT = 3
    LATE = 100
    """The event that is later than that."""

    def __init__(self, data: Path, events: int) -> None:
        draw = Random(11)
        arrived = [self.event(number, draw) for number in range(events)]
        super().__init__(data, "tests.app.gateways_app:app", arrived, f=0)
        self.fed = 0

    def event(self, number: int, draw: Random) -> Event:
        step, gateway = divmod(number, self.COUNT)
        behind = draw.randrange(LATENESS_US) + (10 * LATENESS_US if number == self.LATE else 0)
        time_us = 100 * APART_US + step * APART_US - gateway * 2 * APART_US - behind
        reading = Reading(machine=draw.randrange(2), celsius=draw.randrange(100))
        return event_of(reading, time_us - time_us % 2000)  # so that some have one time

    def feed(self, events: list[Event]) -> None:
        for event in events:
            step, gateway = divmod(self.fed, self.COUNT)
            self.writer.append(f"gateway-{gateway}", (0, step), event.stamp, event.payload, 0)
            self.fed += 1
        self.writer.seal()

    def end(self) -> None:
        for gateway in range(self.COUNT):
            self.writer.end(0, f"gateway-{gateway}")
        self.writer.seal()


@pytest.mark.timeout(600)
def test_both_engines_and_the_audit_agree_on_late_events_of_many_producers(spark: SparkSession, tmp_path: Path) -> None:
    run = Gateways(tmp_path / "live", events=240)
    asyncio.run(run.play(0, 240, end=True))
    chain = run.log("Reading")
    rows = chain.read(chain.base.from_us, chain.refresh()).to_pylist()
    merged = [(row["time"], row["_producer"], row["_sequence"]) for row in rows]
    came = [(event.stamp.time, f"gateway-{at % 3}", at // 3) for at, event in enumerate(run.events)]
    late = came.pop(run.LATE)
    assert merged == sorted(came)
    assert merged != came
    assert any(row["ordinal"] for row in rows), "some have one time"
    assert len(chain.tail()) > 3, "it was sealed while they published"
    bad = Quarantine(chain.store, "Reading").events()
    assert [(event.reason, event.producer, event.sequence) for event in bad] == [(Reason.LATE, *late[1:])]
    check_engines(spark, run, tmp_path / "spark")


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
