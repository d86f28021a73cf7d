"""A long history in batch: all cores have something to do, and whoever goes on from the end merges the states."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from unerring.matching.oracle import run_tree
from unerring.pipeline import batch
from unerring.pipeline.batch import detect_batch
from unerring.pipeline.intervals import Bounds
from unerring.pipeline.level import levels_of
from unerring.pipeline.spreading import finer
from unerring.pipeline.streaming import detect_available
from unerring.rules.tree import ranks_of

from .worlds import OTHER, TYPED, missing, pair, random_events, sealed, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLANS = (pair("Pairs", TYPED, "A", "B", 40), missing("Misses", OTHER, "A", "B", 15))
END_US = 700


def test_partitions_are_divided_until_every_task_has_one(tmp_path: Path) -> None:
    [level] = levels_of(PLANS, (TYPED, OTHER), str(tmp_path), 3)
    assert [finer(level, tasks).buckets for tasks in (1, 3, 4, 6, 7, 16)] == [3, 3, 6, 6, 9, 18]
    assert finer(level, 8).version == level.version
    assert finer(level, 10**6).buckets <= 4096


@pytest.mark.parametrize("buckets", [1, 2])
def test_a_history_in_finer_partitions_than_the_run_has(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, buckets: int
) -> None:
    divided: list[int] = []

    def noted(*given: object) -> object:
        made = finer(*given)  # type: ignore[arg-type]
        divided.append(made.buckets)
        return made

    monkeypatch.setattr(batch, "ROWS_FINER_MIN", 1)
    monkeypatch.setattr(batch, "_worth_from", lambda level: 0)
    monkeypatch.setattr(batch, "finer", lambda level, tasks: noted(level, 5))
    events = {TYPED.name: random_events(5, 90, 5), OTHER.name: random_events(6, 80, 4, OTHER)}
    [level] = levels_of(PLANS, (TYPED, OTHER), str(tmp_path), buckets)
    for schema in (TYPED, OTHER):
        write(level.log.create(schema, buckets), events[schema.name], [50, 120, 300], END_US)
    assert detect_batch(spark, level, Bounds(rows_per_batch=40, rows_at_once=15), through_us=200) == 200
    assert divided == [5 if buckets == 1 else 6]
    detect_available(spark, level, Bounds(rows_per_batch=60))
    every = [event for some in events.values() for event in some]
    wanted = run_tree(PLANS, every, ranks_of(PLANS, (TYPED, OTHER)), END_US)
    for plan in PLANS:
        mine = [event for event in wanted if event.stream == plan.name]
        assert mine, "the draw must make every rule speak"
        assert sealed(tmp_path, plan.name) == mine
