"""Sweeps on Spark: each run once, whatever was there before; a failing seed does not sink the job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from unerring.evaluation import run_one
from unerring.evaluation.channels import ChannelRun
from unerring.evaluation.grids import encode
from unerring.evaluation.sweeps import Sweep
from unerring.model import CallerError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")

POINTS = [encode(ChannelRun(2, loss, bursts=1)) for loss in (0.0, 0.1)]
TASKS = [(point, seed) for seed in range(4) for point in POINTS]
BROKEN = encode(ChannelRun(2, 0.0, "nonsense"))


def test_a_sweep_that_was_stopped_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    first = Sweep(spark, "channels", tmp_path).run(TASKS)
    begun, once = next(first), next(first)
    assert (begun.done, begun.total) == (0, 8)
    assert 0 < once.done < 8
    first.close()  # as a kill between two waves would; a wave that was under way is run again
    later = list(Sweep(spark, "channels", tmp_path).run(TASKS))
    assert later[0].done == once.done
    assert later[0].left_s > 0
    assert (later[-1].done, later[-1].left_s) == (8, 0.0)
    results = Sweep(spark, "channels", tmp_path).results()
    assert [(row.point, row.seed) for row in results] == [(p, s) for p in sorted(POINTS) for s in range(4)]
    for row in results:  # the same seed is the same run, on Spark or not
        assert row.row == run_one("channels", row.point, row.seed).row


def test_a_failing_seed_is_a_row(spark: SparkSession, tmp_path: Path) -> None:
    progress = list(Sweep(spark, "channels", tmp_path).run([(BROKEN, 0), (POINTS[0], 0)]))
    assert (progress[-1].done, progress[-1].failed) == (2, 1)
    failed = [row for row in Sweep(spark, "channels", tmp_path).results() if row.error]
    assert [row.replay for row in failed] == [f"unerring evaluate channels --point '{BROKEN}' --seed 0"]


def test_results_of_other_code_are_not_mixed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    list(Sweep(spark, "channels", tmp_path).run(TASKS[:1]))
    monkeypatch.setattr("unerring.evaluation.sweeps.code_digest", lambda: "other")
    with pytest.raises(CallerError, match="other code"):
        Sweep(spark, "channels", tmp_path)
    assert Sweep(spark, "channels", tmp_path, fresh=True).results() == []
