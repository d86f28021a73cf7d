"""Rules without a key: one partition, and a query of their own beside those of the rules that have keys."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from unerring.log import EventLog
from unerring.matching.oracle import run_tree
from unerring.model import TIME_MIN, CallerError, ConfigError
from unerring.pipeline.batch import detect_batch
from unerring.pipeline.intervals import Bounds
from unerring.pipeline.level import Level, levels_of
from unerring.pipeline.rescaling import rescale
from unerring.pipeline.versions import agreed_levels, enter
from unerring.rules.expressions import literal
from unerring.rules.plan import Input, Measure, PatternPlan
from unerring.rules.tree import ranks_of

from .worlds import TYPED, pair, random_events, run_over, sealed, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

END_US, MIDDLE_US = 900, 400
EVENTS = random_events(6, 150, 9)
EARLY = [event for event in EVENTS if event.stamp.time <= MIDDLE_US]


def unkeyed(plan: PatternPlan) -> PatternPlan:
    """The same rule over all keys together."""
    measures = (Measure("key", literal(0)), *plan.measures[1:])
    return replace(plan, inputs=tuple(Input(source.schema, ()) for source in plan.inputs), measures=measures)


KEYED = pair("Keyed", TYPED, "A", "B", 40)
ALL = unkeyed(pair("All", TYPED, "A", "B", 40))
ABOVE = replace(pair("Above", ALL.output, "B", "B", 200), inputs=(Input(ALL.output, ("key",)),))
ABOVE_ALL = unkeyed(pair("AboveAll", KEYED.output, "B", "B", 200))
PLANS = (ALL, KEYED, ABOVE, ABOVE_ALL)


def levels_in(data: Path, buckets: int = 3) -> tuple[Level, ...]:
    return agreed_levels(PLANS, (TYPED,), str(data), buckets)


def check(data: Path) -> None:
    wanted = run_tree(PLANS, EVENTS, ranks_of(PLANS, (TYPED,)), END_US)
    for plan in PLANS:
        mine = [event for event in wanted if event.stream == plan.name]
        assert mine
        assert sealed(data, plan.name) == mine


def test_they_have_a_level_of_their_own(tmp_path: Path) -> None:
    levels = levels_in(tmp_path)
    assert [(level.label, [plan.name for plan in level.plans], level.buckets) for level in levels] == [
        ("1", ["Keyed"], 3),
        ("1-unkeyed", ["All"], 1),
        ("2", ["Above"], 3),
        ("2-unkeyed", ["AboveAll"], 1),
    ]
    assert len({level.name for level in levels}) == 4
    [alone] = levels_of((ALL,), (TYPED,), str(tmp_path), 3)
    assert (alone.label, alone.buckets) == ("1-unkeyed", 1)


def test_rules_with_a_key_do_not_wait_for_them(spark: SparkSession, tmp_path: Path) -> None:
    keyed, alone, above, above_all = levels_in(tmp_path)
    write(keyed.log.create(TYPED, 3), EVENTS, [100, 400], END_US)
    run_over(spark, (keyed, above_all), Bounds(rows_per_batch=40))
    assert (above_all.sealed_us(), alone.sealed_us()) == (END_US, TIME_MIN)
    run_over(spark, (alone, above), Bounds(rows_per_batch=40))
    check(tmp_path)
    assert levels_in(tmp_path) == (keyed, alone, above, above_all)


def test_a_folder_of_an_earlier_release_has_them_on_the_level_of_the_others(
    spark: SparkSession, tmp_path: Path
) -> None:
    mixed = levels_of(PLANS, (TYPED,), str(tmp_path), 3, mixed=frozenset((1, 2)))
    assert [(level.label, len(level.plans), level.buckets) for level in mixed] == [("1", 2, 3), ("2", 2, 3)]
    write(mixed[0].log.create(TYPED, 3), EARLY, [100], MIDDLE_US)
    for level in mixed:
        detect_batch(spark, level)
    assert levels_in(tmp_path, 5) == mixed
    write(mixed[0].log.chain(TYPED.name), EVENTS, [], END_US)
    for level in levels_in(tmp_path):
        detect_batch(spark, level)
    check(tmp_path)


def test_rescaling_leaves_them_in_one_partition(spark: SparkSession, tmp_path: Path) -> None:
    levels = levels_in(tmp_path)
    write(levels[0].log.create(TYPED, 3), EARLY, [100], MIDDLE_US)
    for level in levels:
        detect_batch(spark, level)
    assert rescale(levels, 5) == {1: MIDDLE_US, 2: MIDDLE_US}
    assert [level.buckets for level in levels_in(tmp_path)] == [5, 1, 5, 1]
    write(EventLog(tmp_path / "log").chain(TYPED.name), EVENTS, [], END_US)
    for level in levels_in(tmp_path):
        detect_batch(spark, level)
    check(tmp_path)


def test_where_no_rule_has_a_key_there_is_nothing_to_rescale(tmp_path: Path) -> None:
    with pytest.raises(CallerError, match=r"no rule of .* has a key, so each runs in one partition"):
        rescale(levels_of((ALL,), (TYPED,), str(tmp_path), 3), 5)


def test_other_rules_without_a_key_are_refused_as_others_are(tmp_path: Path) -> None:
    for level in levels_in(tmp_path):
        enter(level)
    other = unkeyed(pair("All", TYPED, "A", "B", 41))
    [_, changed] = agreed_levels((KEYED, other), (TYPED,), str(tmp_path), 3)
    with pytest.raises(ConfigError, match="was made by other rules on level 1-unkeyed"):
        enter(changed)
