"""The papers' claims on a small sweep: fewer facilities, shorter processes, few seeds; the same machines, checked."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from unerring.evaluation import EXPERIMENTS, Measured, experiment, run_one
from unerring.evaluation.channels import ChannelRun
from unerring.evaluation.claims import claims_of
from unerring.evaluation.correlation import FactoryRun, perfect
from unerring.evaluation.factory import EVENTS_PER_STEP, STEPS, TIERS, factory, primary_events
from unerring.evaluation.figures import draw
from unerring.evaluation.grids import encode
from unerring.evaluation.processes import ProcessRun
from unerring.evaluation.summary import Summary, fit, mean
from unerring.model import CallerError

pytestmark = pytest.mark.xdist_group("evaluation")  # its sweeps are made once

PLANT = (1, 3)
"""Tiers of a small factory: 8 correlation nodes."""


def sweep(name: str, runs: list[Any], seeds: range) -> Summary:
    rows = [run_one(name, encode(run), seed) for run in runs for seed in seeds]
    assert [row.error for row in rows if row.error] == []
    return Summary(experiment(name), rows)


# ---- correlation: section VI of the correlation paper


def test_the_factory_has_the_papers_size() -> None:
    """70 nodes, more than 40 000 primary events, about 13 000 situations."""
    assert sum(node.role.value == "correlation" for node in factory(0).nodes) == 70
    assert sum(TIERS) * STEPS * EVENTS_PER_STEP > 40_000
    assert primary_events(3, 5) == primary_events(3, 5) != primary_events(4, 5)
    assert 11_000 < sum(map(len, perfect(0, STEPS, TIERS).values())) < 15_500


@pytest.fixture(scope="session")
def plant() -> Summary:
    def run(f: int, p: float, **more: Any) -> FactoryRun:
        return FactoryRun(f, p, steps=20, tiers=PLANT, **more)

    # Few steps need many failures: the rates are higher than in the paper, and so is what they are compared with.
    runs = [run(f, p, setting="plain") for f in (1, 2, 3) for p in (0.0, 0.04)]
    runs += [run(3, 0.02, setting="plain")]
    runs += [run(3, 0.04, setting=setting) for setting in ("paper's lists", "ours, resending at once", "ours")]
    runs += [run(f, 0.1, durable=True) for f in (0, 2)]
    return sweep("correlation", runs, range(2))


def test_duplicates_grow_linearly_with_replicas_and_failures(plant: Summary) -> None:
    """Figures 5a and 6a."""
    by_f = plant.line("f", "duplicates", lambda run: (run.p_fail, run.setting) == (0.04, "plain"))
    by_p = plant.line("p_fail", "duplicates", lambda run: (run.f, run.setting) == (3, "plain"))
    assert by_f.slope > 0
    assert by_p.slope > 0
    assert by_f.r2 > 0.7
    assert by_p.r2 > 0.7


def test_a_new_leader_that_asks_first_sends_hardly_anything_twice(plant: Summary) -> None:
    """Better than the paper at the same guarantee."""
    plain, paper, ours = (
        plant.value("duplicates", lambda run, s=setting: (run.f, run.p_fail, run.setting) == (3, 0.04, s))
        for setting in ("plain", "paper's lists", "ours")
    )
    assert ours < paper / 2 < plain / 4


def test_event_messages_are_not_quadratic(plant: Summary) -> None:
    """Figure 4: the best case is a factor f + 1; all replicas sending would be its square."""
    sent = plant.series("f", "event_messages", lambda run: (run.p_fail, run.durable) == (0.0, False))
    assert fit([f for f, _ in sent], [one.value for _, one in sent]).r2 > 0.99
    assert sent[2][1].value < 2.2 * sent[0][1].value


def test_the_leader_count_is_close_to_one(plant: Summary) -> None:
    """Figure 7, and below 1 where nodes are very unreliable and alone."""
    for f in (1, 2, 3):
        count = plant.value("leader_count", lambda run, f=f: (run.f, run.p_fail, run.durable) == (f, 0.0, False))
        assert count == pytest.approx(1.0, abs=0.05)
    assert plant.value("leader_count", lambda run: (run.f, run.p_fail) == (0, 0.1)) < 0.97


def test_replicas_keep_the_latency_of_unreliable_nodes_low(plant: Summary) -> None:
    """Figure 8."""
    alone, three = (
        plant.value("latency_ms_mean", lambda run, f=f: (run.f, run.p_fail, run.durable) == (f, 0.1, True))
        for f in (0, 2)
    )
    assert three < alone / 1.5


# ---- processes: section VI of the process paper


@pytest.fixture(scope="session")
def executions() -> Summary:
    runs = [ProcessRun(1, "none", k) for k in (0, 1)]
    approaches = (
        "passive",
        "active",
        "cost model at 500 ms",
        "cost model at 10000 ms",
        "ours at 500 ms",
        "ours at 10000 ms",
    )
    runs += [ProcessRun(3, approach) for approach in approaches]
    runs += [ProcessRun(9, "passive"), ProcessRun(9, "active", actions=20), ProcessRun(3, "passive", 1)]
    runs += [ProcessRun(d, "passive", 0, "PlanetLab", actions=10) for d in (5, 11, 17)]
    return sweep("processes", runs, range(2))


def at(degree: int, approach: str, failures: int = 0) -> Any:
    return lambda run: (run.degree, run.approach, run.failures, run.network) == (degree, approach, failures, "EC2")


def test_passive_replication_costs_a_few_percent(executions: Summary) -> None:
    """Figure 7: about 5 % at degree 3, more at higher degrees."""
    three, nine = (executions.value("execution_percent", at(degree, "passive")) for degree in (3, 9))
    assert 102 < three < 108
    assert three < nine < 112


def test_the_cost_model_saves_a_third_and_more_than_half(executions: Summary) -> None:
    """Figure 8; and ours saves more at the same bound."""
    kinds = ("passive", "cost model at 500 ms", "cost model at 10000 ms", "ours at 500 ms", "ours at 10000 ms")
    plain, third, half, ours, ours_far = (executions.value("state_messages", at(3, kind)) for kind in kinds)
    assert 0.25 < 1 - third / plain < 0.45
    assert 0.5 < 1 - half / plain < 0.75
    assert ours < third
    assert ours_far < half


def test_active_replication_compensates_all_but_one_execution(executions: Summary) -> None:
    """Figure 7: 200 % at degree 3, 800 % at 9."""
    assert executions.value("compensation_percent", at(3, "active")) == pytest.approx(200)
    assert executions.value("compensation_percent", at(9, "active")) == pytest.approx(800)


def test_one_failure_makes_replication_worth_it(executions: Summary) -> None:
    assert executions.value("execution_percent", at(3, "passive", 1)) < executions.value(
        "execution_percent", at(1, "none", 1)
    )


def test_replication_takes_linearly_longer_with_the_degree(executions: Summary) -> None:
    """Figure 9: 80 to 120 ms on PlanetLab."""
    line = executions.line("degree", "replication_ms", lambda run: run.network == "PlanetLab")
    assert line.slope > 0
    assert line.r2 > 0.8
    assert 60 < line.intercept < 110


# ---- channels: the channel paper's section 3


@pytest.fixture(scope="session")
def channels() -> Summary:
    settings = ("paper", "ours", "registered")
    runs = [ChannelRun(n, loss, s, bursts=3) for s in settings for n in (1, 16) for loss in (0.0, 0.05, 0.1)]
    runs += [ChannelRun(16, 0.0, s, reorders=True, bursts=3) for s in ("paper", "ours")]
    return sweep("channels", runs, range(3))


def test_the_channels_claims_hold(channels: Summary) -> None:
    """Nothing is added without loss, two messages repair one, delay grows with loss, ours asks for less."""
    said = claims_of(channels)
    assert [claim for claim in said if claim.holds is False] == []
    assert sum(claim.holds is True for claim in said) >= 7


def test_a_push_costs_the_same_for_any_number_of_consumers(channels: Summary) -> None:
    for setting in ("paper", "ours"):
        counts = channels.series(
            "consumers",
            "messages_per_event",
            lambda run, s=setting: (run.loss, run.setting, run.reorders) == (0.0, s, False),
        )
        assert {one.value for _, one in counts} == {1.0}


# ---- what is made of it


def test_figures_and_tables(channels: Summary, tmp_path: Path) -> None:
    drawn = draw(channels, tmp_path)
    assert {path.suffix for path in drawn} == {".png", ".svg"}
    assert all(path.stat().st_size > 5_000 for path in drawn)
    head, *lines = channels.csv().splitlines()
    assert head.startswith("consumers,loss,setting,reorders,bursts,runs,events,events ±")
    assert len(lines) == len(channels.by_point)


def test_means_and_lines() -> None:
    one = mean([1.0, 2.0, 3.0, math.nan])
    assert (one.value, one.runs) == (2.0, 3)
    assert one.half == pytest.approx(4.30 / math.sqrt(3))
    line = fit([0.0, 1.0, 2.0], [1.0, 3.0, 5.0])
    assert (line.slope, line.intercept, line.r2) == (2.0, 1.0, 1.0)
    assert fit([0.0, 1.0, 2.0], [0.0, 1.0, 0.0]).r2 == pytest.approx(0.0)


def test_a_failing_run_is_a_row_with_its_replay_command() -> None:
    point = encode(ChannelRun(1, 0.0, "nonsense"))
    measured = run_one("channels", point, 7)
    assert "nonsense" in measured.error
    assert measured.replay == f"unerring evaluate channels --point '{point}' --seed 7"
    assert measured.row == {}


def test_a_point_that_is_none_is_refused() -> None:
    with pytest.raises(CallerError, match="is not a point of channels"):
        run_one("channels", '{"consumers": "many"}', 0)
    with pytest.raises(CallerError, match="choose one of correlation"):
        experiment("nothing")


class Ones(dict[str, float]):
    """Every measurement is 1."""

    def __missing__(self, what: str) -> float:
        return 1.0


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_grids_have_points_for_every_claim(name: str, full: bool) -> None:
    points = experiment(name).points(full)
    assert len(set(points)) == len(points)
    said = claims_of(Summary(experiment(name), [Measured(point, 0, 1.0, Ones()) for point in points]))
    assert [claim.sentence for claim in said if claim.holds is None] == []
