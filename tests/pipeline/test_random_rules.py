"""Random rules on random streams, spread over buckets and cut into intervals: the oracle's events and stamps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from unerring.matching.oracle import run
from unerring.model import TIME_MAX, Event, RuleError
from unerring.pipeline.batch import detect_batch
from unerring.pipeline.intervals import Bounds, next_end
from unerring.pipeline.level import Level, levels_of
from unerring.pipeline.partition import Partition
from unerring.pipeline.streaming import detect_available
from unerring.rules import Plan

from .factory_worlds import factory_log
from .random_rules import RANKS, S, T, cases, pair, stream_events, texts, write_log
from .worlds import advance, sealed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("first", range(0, 120, 30))
def test_partitions_of_any_spread_and_cut_agree_with_the_oracle(tmp_path: Path, first: int) -> None:
    spoke = 0
    for case in cases(tmp_path, range(first, first + 30), lambda seed: seed % 2 == 1):
        level = case.level
        partitions = [Partition(level, bucket) for bucket in range(level.buckets)]
        rows = case.random.choice((1, 3, 100))
        while partitions[0].through_us < case.through_us:
            advance(level, partitions, next_end(level.chains(), partitions[0].through_us, case.through_us, rows))
        case.check()
        spoke += bool(case.wanted)
    assert spoke > 5


def many_rules(seeds: range, events: list[Event]) -> tuple[tuple[Plan, ...], dict[str, list[Event]]]:
    """Rules that may stand side by side, and what each must find."""
    plans: list[Plan] = []
    wanted: dict[str, list[Event]] = {}
    for seed in seeds:
        plan: Plan = replace(pair(seed).plan, name=f"R{seed}")
        if len(plan.outputs) > 1:
            continue
        try:
            wanted[plan.name] = run(plan, [e for e in events if e.stream in names_of(plan)], RANKS, TIME_MAX)
        except RuleError:
            continue
        plans.append(plan)
    return tuple(plans), wanted


def names_of(plan: Plan) -> set[str]:
    return {source.schema.name for source in plan.inputs}


def detect_all(spark: SparkSession, level: Level, kind: str, rows: int) -> None:
    if kind == "batch":
        assert detect_batch(spark, level, Bounds(rows_per_batch=rows)) == TIME_MAX
    else:
        detect_available(spark, level, Bounds(rows_per_batch=rows, rows_at_once=rows // 3 + 1))


def agree_on_random_rules(spark: SparkSession, data: Path, kind: str, seed: int, rules: int, rows: int) -> None:
    """Random rules side by side, over randomly cut logs, in micro-batches of so many rows: the oracle's events."""
    random = Random(seed)
    events = stream_events(random, 60)
    plans, wanted = many_rules(range(seed, seed + rules), events)
    [level] = levels_of(plans, (T, S), str(data), random.choice((1, 2, 3)))
    write_log(level, events, random, TIME_MAX)
    detect_all(spark, level, kind, rows)
    assert sum(map(bool, wanted.values())) > rules // 4
    for name, mine in wanted.items():
        assert texts(sealed(data, name)) == texts(mine), f"{name}, seed {seed}"


@pytest.mark.parametrize("kind", ["streaming", "batch"])
def test_many_random_rules_at_once_on_spark(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    agree_on_random_rules(spark, tmp_path, kind, 1000, 40, 30)


def test_the_papers_situations_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Situations A and B of the correlation paper (section II) and what stands above them, with users' operators."""
    levels, wanted = factory_log(tmp_path, seed=3, events=600, buckets=2)
    for level in levels:
        detect_all(spark, level, "streaming", 400)
    assert all(wanted.values()), "the plant must make every rule speak"
    for name, mine in wanted.items():
        assert texts(sealed(tmp_path, name)) == texts(mine), name
