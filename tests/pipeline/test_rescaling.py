"""Rescaling: whatever the rules, the cuts and the numbers of partitions, stamps and results do not change."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from unerring.app import App, spark_engine
from unerring.app.spark_engine import SparkEngine
from unerring.log import EventLog, Spread
from unerring.log.eventlog import Declaration
from unerring.matching.oracle import run_tree
from unerring.model import TIME_MAX, TIME_MIN, CallerError, ConfigError, Event, protect_json
from unerring.pipeline import SparkConfig
from unerring.pipeline.batch import detect_batch
from unerring.pipeline.intervals import Bounds, next_end
from unerring.pipeline.level import Level, levels_of
from unerring.pipeline.partition import Partition
from unerring.pipeline.rescaling import rescale, successor
from unerring.pipeline.states import States, partition_at
from unerring.pipeline.streaming import detect_available
from unerring.pipeline.versions import as_agreed, end_of, enter, start_of, versions_of, write as write_version
from unerring.rules.tree import ranks_of

from .random_rules import cases
from .worlds import TYPED, advance, missing, pair, random_events, sealed, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOWER = pair("Pairs", TYPED, "A", "B", 40)
PLANS = (LOWER, missing("Misses", TYPED, "A", "B", 15), pair("Upper", LOWER.output, "B", "B", 200))
END_US = 700
LOOK_S = 0.2
"""How often a streaming query looks: its looks are most of what it costs."""


def partitions_of(level: Level, at_us: int) -> list[Partition]:
    return [partition_at(level, bucket, at_us) for bucket in range(level.buckets)]


@pytest.mark.parametrize("first", [0, *(pytest.param(n, marks=pytest.mark.long) for n in (40, 80))])
def test_random_rules_that_are_rescaled_agree_with_the_oracle(tmp_path: Path, first: int) -> None:
    """At random boundaries to random numbers of partitions, with the states that were kept there."""
    spoke = changed = 0
    for case in cases(tmp_path, range(first, first + 40), lambda seed: seed % 3 == 0):
        level, random = case.level, case.random
        States(level).begin(TIME_MIN)
        partitions = partitions_of(level, TIME_MIN)
        while partitions[0].through_us < case.through_us:
            end_us = next_end(level.chains(), partitions[0].through_us, case.through_us, random.choice((1, 3, 9)))
            advance(level, partitions, end_us)
            for partition in partitions:
                States(level).keep(partition)
            buckets = random.choice((1, 2, 3, 4, 7))
            wanted = buckets != level.buckets and random.random() < 0.7 and end_us < case.through_us
            if wanted and not level.unkeyed:
                assert rescale([level], buckets) == {1: end_us}
                following = successor(level)
                assert following == as_agreed(level)
                assert following is not None
                assert following.spread == Spread(buckets)
                level, changed = following, changed + 1
                partitions = partitions_of(level, end_us)
        case.check()
        spoke += bool(case.wanted)
    assert spoke > 10
    assert changed > 10


def begun(data: Path, buckets: int = 2, through_us: int = 100) -> Level:
    [level, *_] = levels_of(PLANS, (TYPED,), str(data), buckets)
    enter(level)
    write(level.log.create(TYPED, buckets), random_events(3, 80, 5), [50], END_US)
    for schema in level.outputs:
        chain = level.log.create(schema, buckets)
        if through_us > TIME_MIN:
            chain.seal(through_us, chain.read(through_us, through_us))
    return level


def test_what_cannot_be_rescaled_is_refused_with_a_sentence(tmp_path: Path) -> None:
    [never, *_] = levels_of(PLANS, (TYPED,), str(tmp_path / "never"), 2)
    with pytest.raises(CallerError, match=r"never has not begun, .* App\(\.\.\., buckets=4\)"):
        rescale([never], 4)
    level = begun(tmp_path / "run")
    for wrong in (0, -1, 4097):
        with pytest.raises(CallerError, match=f"{wrong} buckets; choose between 1 and 4096"):
            rescale([level], wrong)
    with pytest.raises(CallerError, match=r"run has 2 buckets already"):
        rescale([level], 2)
    with pytest.raises(CallerError, match=r"has sealed through 100, so it cannot change at 99; choose a later time"):
        rescale([level], 4, 99)
    other = replace(level, plans=level.plans[:1])
    with pytest.raises(CallerError, match="has other rules on level 1"):
        rescale([other], 4)
    with pytest.raises(CallerError, match="has sealed nothing yet"):
        rescale([begun(tmp_path / "nothing", through_us=TIME_MIN)], 4)
    assert rescale([level], 4, 300) == {1: 300}
    with pytest.raises(
        CallerError, match=r"a change to 4 buckets is under way .* sealed through 100 and changes at 300"
    ):
        rescale([level], 8)


def test_a_change_counts_from_its_time_on(tmp_path: Path) -> None:
    level = begun(tmp_path)
    assert (end_of(level), start_of(level)) == (TIME_MAX, TIME_MIN)
    rescale([level], 5, 300)
    assert level.log.chain(TYPED.name).spread == Spread(5), "new segments are written so at once"
    assert (end_of(level), successor(level), as_agreed(level)) == (300, None, level)
    for schema in level.outputs:
        chain = level.log.chain(schema.name)
        chain.seal(320, chain.read(320, 320))
    following = successor(level)
    assert following is not None
    assert (following.buckets, following.version) == (5, level.version)
    assert (end_of(following), start_of(following), as_agreed(level)) == (TIME_MAX, TIME_MIN, following)
    enter(following)
    with pytest.raises(
        ConfigError, match="has 5 buckets on level 1, not 3 buckets; change that with `unerring rescale"
    ):
        enter(replace(level, buckets=3))
    assert [(known.after_us, known.buckets) for known in versions_of(level)] == [(TIME_MIN, 2), (300, 5)]


def as_by_an_earlier_release(data: Path) -> Level:
    """A folder whose streams and partitions are by the hash modulo three."""
    [level, *_] = levels_of(PLANS[:2], (TYPED,), str(data), 3)
    level = replace(level, ranges=False)
    for schema in (TYPED, *level.outputs):
        level.log.store.create(f"{schema.name}/stream.json", protect_json(Declaration(schema, 3)))
    write_version(level, TIME_MIN)
    return level


def test_a_folder_of_an_earlier_release_goes_on_and_can_be_rescaled(spark: SparkSession, tmp_path: Path) -> None:
    old = as_by_an_earlier_release(tmp_path)
    events = random_events(9, 90, 6)
    write(EventLog(tmp_path / "log").chain(TYPED.name), events[:50], [30], events[49].stamp.time)
    level = as_agreed(replace(old, buckets=8, ranges=True))
    assert (level, level.version) == (old, old.version)
    detect_available(spark, level, Bounds(rows_per_batch=20))
    assert rescale([level], 2) == {1: events[49].stamp.time}
    level = as_agreed(level)
    assert level.spread == Spread(2)
    write(EventLog(tmp_path / "log").chain(TYPED.name), events, [], END_US)
    detect_batch(spark, level)
    wanted = run_tree(PLANS[:2], events, ranks_of(PLANS[:2], (TYPED,)), END_US)
    for plan in PLANS[:2]:
        assert sealed(tmp_path, plan.name) == [event for event in wanted if event.stream == plan.name]


def test_a_run_on_spark_that_is_rescaled_in_the_middle_agrees_with_the_oracle(
    spark: SparkSession, tmp_path: Path
) -> None:
    events = random_events(4, 200, 9)
    middle_us, last_us = events[90].stamp.time, events[-1].stamp.time
    levels = levels_of(PLANS, (TYPED,), str(tmp_path), 2)
    write(levels[0].log.create(TYPED, 2), events[:91], [100], middle_us)
    for level in levels:
        detect_available(spark, level, Bounds(rows_per_batch=30))
    assert rescale(levels, 5) == {1: middle_us, 2: middle_us}
    levels = tuple(map(as_agreed, levels))
    assert [level.buckets for level in levels] == [5, 5]
    write(levels[0].log.chain(TYPED.name), events, [middle_us + 60], last_us)
    for level in levels:
        detect_available(spark, level, Bounds(rows_per_batch=30))
    check_rescaled(tmp_path, events, middle_us)


def until(condition: Callable[[], bool], engine: SparkEngine) -> None:
    """Wait, as a run does: looking after its engine."""
    end_s = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end_s, "the run does not get there"
        engine.check()
        threading.Event().wait(0.1)


@pytest.mark.parametrize("resident", [False, True], ids=["micro-batches", "resident"])
def test_a_run_that_is_going_on_changes_its_partitions_at_the_agreed_time(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resident: bool
) -> None:
    monkeypatch.setattr(spark_engine, "RESCALED_LOOK_S", 0.2)
    app = App("rescaled", rules=PLANS, streams=[TYPED], buckets=2)
    events = random_events(4, 200, 9)
    early_us, agreed_us, last_us = (events[at].stamp.time for at in (50, 90, -1))
    config, bounds = SparkConfig(master="local[2]"), Bounds(look_s=0.0 if resident else LOOK_S)
    engine = SparkEngine(app, tmp_path, config, bounds, resident=resident)
    engine.start(lambda text: None)
    try:
        log = app.levels(tmp_path)[0].log
        write(log.chain(TYPED.name), events[:51], [60], early_us)
        until(lambda: all(log.chain(plan.name).through_us == early_us for plan in PLANS), engine)
        assert rescale(app.levels(tmp_path), 5, agreed_us) == {1: agreed_us, 2: agreed_us}
        assert [view.level.buckets for view in engine.views] == [2, 2]
        write(log.chain(TYPED.name), events, [agreed_us - 20, agreed_us + 30], last_us)
        until(lambda: all(log.chain(plan.name).through_us == last_us for plan in PLANS), engine)
        assert [view.level.buckets for view in engine.views] == [5, 5]
    finally:
        engine.stop()
    check_rescaled(tmp_path, events, agreed_us)


def test_a_run_that_ends_changes_its_partitions_at_the_agreed_time(spark: SparkSession, tmp_path: Path) -> None:
    app = App("rescaled", rules=PLANS, streams=[TYPED], buckets=2)
    events = random_events(4, 200, 9)
    early_us, agreed_us, last_us = (events[at].stamp.time for at in (50, 90, -1))
    for part, cuts, end_us in ((events[:51], [60], early_us), (events, [agreed_us - 20, agreed_us + 30], last_us)):
        engine = SparkEngine(app, tmp_path, SparkConfig(master="local[2]"), resident=True)
        write(engine.place.log.create(TYPED, 2), part, cuts, end_us)
        engine.run_once(lambda text: None)
        engine.stop()
        if end_us == early_us:
            assert rescale(app.levels(tmp_path), 5, agreed_us) == {1: agreed_us, 2: agreed_us}
    assert [view.level.buckets for view in engine.views] == [5, 5]
    check_rescaled(tmp_path, events, agreed_us)


def check_rescaled(data: Path, events: list[Event], agreed_us: int) -> None:
    last_us = events[-1].stamp.time
    wanted = run_tree(PLANS, events, ranks_of(PLANS, (TYPED,)), last_us)
    for plan in PLANS:
        assert sealed(data, plan.name) == [event for event in wanted if event.stream == plan.name]
        chain = EventLog(data / "log").chain(plan.name)
        ends = [span.through_us for span in chain.spans(TIME_MIN, last_us) if chain.footer(span).buckets == 2]
        assert max(ends) == agreed_us, "up to there in two partitions, and after it in five"
