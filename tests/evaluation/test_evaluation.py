"""The papers' claims on a small sweep: fewer facilities, shorter processes, few seeds; the same machines, checked."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from unerring.evaluation import EXPERIMENTS, Measured, experiment, renew, run_one, seconds_of
from unerring.evaluation.channels import ChannelRun
from unerring.evaluation.correlation import FactoryRun, perfect
from unerring.evaluation.factory import EVENTS_PER_STEP, STEPS, TIERS, factory, primary_events
from unerring.evaluation.figures import draw
from unerring.evaluation.fits import fit
from unerring.evaluation.grids import encode
from unerring.evaluation.page import FIRST, LAST, data_of, render
from unerring.evaluation.processes import ProcessRun
from unerring.evaluation.summary import Summary, like, mean
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
    def run(f: int, p: float = 0.0, **more: Any) -> FactoryRun:
        return FactoryRun(f, p, steps=20, tiers=PLANT, **more)

    runs = [run(f) for f in (0, 1, 2)]
    runs += [run(f, setting="worst case") for f in (1, 2, 3)]
    runs += [run(2, 0.04, setting=setting, links=True) for setting in ("ours", "paper")]
    runs += [run(2, 0.04, links=True, news=news) for news in ("late", "lost")]
    runs += [run(f, 0.1, durable=True) for f in (0, 2)]
    return sweep("correlation", runs, range(2))


def test_links_fail_as_replicas_do_and_all_is_counted(plant: Summary) -> None:
    """Section VI: node and link failure. What was drawn and did not happen is counted too."""
    there = like(p_fail=0.04, setting="ours", news="soon")
    assert plant.value("failures", there) > 0
    assert plant.value("links_failed", there) > plant.value("failures", there)
    assert plant.value("refused", there) >= 0


def test_a_link_that_fails_makes_a_second_leader(plant: Summary) -> None:
    """Section VI: several leaders where a replica wrongly takes the leader for dead; correct all the same."""
    assert plant.value("crowded", like(f=2, p_fail=0.0, setting="ours")) == 0.0
    for news in ("soon", "late", "lost"):
        assert plant.value("crowded", like(p_fail=0.04, setting="ours", news=news)) > 0.0


def test_the_worst_case_is_quadratic(plant: Summary) -> None:
    """Figure 4b: all replicas send to all replicas."""
    twice = [one.value for _, one in plant.series("f", "duplicates", like(setting="worst case"))]
    assert 0 < twice[1] - twice[0] < twice[2] - twice[1]
    assert all(one.value == 0.0 for _, one in plant.series("f", "duplicates", like(setting="ours", p_fail=0.0)))


def test_event_messages_are_not_quadratic(plant: Summary) -> None:
    """Figure 4a: the best case is a factor f + 1."""
    sent = plant.series("f", "event_messages", like(setting="ours", p_fail=0.0))
    assert fit([f for f, _ in sent], [one.value for _, one in sent]).r2 > 0.99
    assert sent[2][1].value < 3.2 * sent[0][1].value


def test_unreliable_nodes_that_are_alone_lead_less_and_wait_longer(plant: Summary) -> None:
    """Figures 7 and 8."""
    alone, three = (like(f=f, p_fail=0.1, durable=True) for f in (0, 2))
    assert plant.value("leader_count", alone) < 0.97
    assert plant.value("latency_ms_mean", three) < plant.value("latency_ms_mean", alone) / 1.5


# ---- processes: section VI of the process paper


@pytest.fixture(scope="session")
def executions() -> Summary:
    runs = [ProcessRun(1, "none", k) for k in (0, 1, 10)]
    kinds = (
        "passive",
        "active",
        "cost model at 500 ms",
        "cost model at 10000 ms",
        "ours at 500 ms",
        "ours at 10000 ms",
    )
    runs += [ProcessRun(3, kind) for kind in kinds]
    runs += [ProcessRun(9, "passive"), ProcessRun(9, "active", actions=20), ProcessRun(3, "passive", 1)]
    runs += [ProcessRun(3, "passive", 10), ProcessRun(3, "passive", links=5)]
    runs += [ProcessRun(d, "passive", 0, "PlanetLab", actions=10, rules="paper") for d in (5, 11, 17)]
    return sweep("processes", runs, range(2))


def at(degree: int, approach: str, failures: int = 0) -> Any:
    return like(degree=degree, approach=approach, failures=failures, network="EC2", links=0)


def test_every_failure_that_is_drawn_happens(executions: Summary) -> None:
    """Figure 10's axis: none is lost because it would hit a node that is down."""
    for degree, approach in ((1, "none"), (3, "passive")):
        assert executions.value("crashed", at(degree, approach, 10)) == 10
    assert executions.value("links_failed", like(links=5)) == 5


def test_passive_replication_costs_a_few_percent(executions: Summary) -> None:
    three, nine = (executions.value("execution_percent", at(degree, "passive")) for degree in (3, 9))
    assert 102 < three < 108
    assert three < nine < 112


def test_ours_saves_more_messages_at_the_same_bound(executions: Summary) -> None:
    kinds = ("cost model at 500 ms", "cost model at 10000 ms", "ours at 500 ms", "ours at 10000 ms")
    third, half, ours, ours_far = (executions.value("state_messages", at(3, kind)) for kind in kinds)
    assert ours < third
    assert ours_far < half


def test_active_replication_compensates_all_but_one_execution(executions: Summary) -> None:
    """Figure 7: 200 % at degree 3, 800 % at 9."""
    assert executions.value("compensation_percent", at(3, "active")) == pytest.approx(200)
    assert executions.value("compensation_percent", at(9, "active")) == pytest.approx(800)


def test_one_failure_makes_replication_worth_it(executions: Summary) -> None:
    replicated, alone = (executions.value("execution_percent", at(d, a, 1)) for d, a in ((3, "passive"), (1, "none")))
    assert replicated < alone


# ---- channels: the channel paper's section 3


@pytest.fixture(scope="session")
def channels() -> Summary:
    settings = ("paper", "ours", "registered")
    runs = [ChannelRun(n, loss, s, bursts=3) for s in settings for n in (1, 16) for loss in (0.0, 0.05, 0.1)]
    runs += [ChannelRun(16, 0.0, s, reorders=True, bursts=3) for s in ("paper", "ours")]
    return sweep("channels", runs, range(3))


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
    assert head.startswith("point,runs,seeds,events,events ±,events by seed")
    assert len(lines) == len(channels.means)
    again = Summary.from_csv(channels.experiment, channels.csv())
    assert again.csv() == channels.csv()
    assert (again.count, again.seeds) == (channels.count, channels.seeds)
    where = like(consumers=16, loss=0.05, setting="ours", reorders=False)
    one, other = (summary.cell("delay_ms_mean", where).by_seed for summary in (channels, again))
    assert dict(other) == pytest.approx(dict(one), rel=1e-5)


def test_a_table_keeps_which_seed_measured_what() -> None:
    """Seeds with a gap, one without this measurement, and a number that is the same in all."""
    point = encode(ChannelRun(1))
    rows = [Measured(point, seed, 0.1, {"a": at, "b": 7.0}) for seed, at in ((3, 1.5), (4, math.nan), (9, 2.5))]
    made = Summary(experiment("channels"), [*rows, Measured(point, 5, 0.1, {}, "it failed")])
    again = Summary.from_csv(made.experiment, made.csv())
    assert again.seeds[point] == (3, 4, 9)
    assert again.means[point]["a"].by_seed == {3: 1.5, 9: 2.5}
    assert again.means[point]["b"].by_seed == {3: 7.0, 4: 7.0, 9: 7.0}
    assert again.csv() == made.csv()


def test_means_and_lines() -> None:
    one = mean({7: 1.0, 8: 2.0, 9: 3.0, 10: math.nan})
    assert (one.value, one.runs) == (2.0, 3)
    assert one.half == pytest.approx(4.303 / math.sqrt(3))
    line = fit([0.0, 1.0, 2.0], [1.0, 3.0, 5.0])
    assert (line.slope, line.intercept, line.r2) == (2.0, 1.0, 1.0)
    assert fit([0.0, 1.0, 2.0], [0.0, 1.0, 0.0]).r2 == pytest.approx(0.0)


@pytest.mark.parametrize(("runs", "t"), [(2, 12.706), (19, 2.101), (20, 2.093), (21, 2.086), (61, 2.000), (501, 1.965)])
def test_an_interval_is_as_wide_as_students_t_says(runs: int, t: float) -> None:
    """Tables of the distribution at 97.5 %; twenty runs are what `--reduced` and `--full` make."""
    made = mean({n: float(n) for n in range(runs)})
    deviation = math.sqrt(sum((n - made.value) ** 2 for n in range(runs)) / (runs - 1))
    assert made.half == pytest.approx(t * deviation / math.sqrt(runs), rel=3e-4)


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


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_grids_have_no_point_twice(name: str, full: bool) -> None:
    evaluation = experiment(name)
    points = evaluation.points(full)
    assert len(set(points)) == len(points)
    tasks = evaluation.tasks(2, full, first=7)
    assert sorted(tasks) == sorted((point, seed) for point in points for seed in (7, 8))
    assert all(seconds_of(evaluation.decode(point)) > 0 for point in points)


def test_twenty_runs_of_the_reduced_grid_fit_into_an_evening() -> None:
    """`--reduced`: about 90 minutes of a core for all three papers, against days for `--full`."""
    minutes = sum(seconds_of(run) for name in EXPERIMENTS for run in experiment(name).reduced) * 20 / 60
    assert 60 < minutes < 100


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_page_says_what_was_measured(name: str) -> None:
    """docs/evaluation.md is made of the claims and of the table beside it."""
    page = Path(__file__).parents[2] / "docs" / "evaluation.md"
    kept = Summary.from_csv(experiment(name), data_of(page, name).read_text())
    begun, ended = FIRST.format(name, name), LAST.format(name)
    shown = page.read_text().partition(begun)[2].partition(ended)[0]
    assert shown.strip() == render(kept).strip(), f"enter: unerring evaluate {name} --page docs/evaluation.md"


def test_a_page_is_renewed_with_its_table(channels: Summary, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    begun, ended = FIRST.format("channels", "channels"), LAST.format("channels")
    page.write_text(f"before\n{begun}\nold\n{ended}\nafter\n")
    renew(page, channels)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text
    assert "Section 3.2" in text
    assert data_of(page, "channels").read_text() == channels.csv()
    page.write_text("nothing")
    with pytest.raises(CallerError, match="no place for the claims"):
        renew(page, channels)


def test_a_page_gets_the_figures_that_it_shows(channels: Summary, tmp_path: Path) -> None:
    """PNG and SVG, each if the page names it; no others."""
    page, drawn = tmp_path / "docs" / "page.md", draw(channels, tmp_path / "figures")
    page.parent.mkdir()
    begun, ended = FIRST.format("channels", "channels"), LAST.format("channels")
    shown = ["evaluation-delay-ms-mean-by-loss.png", "evaluation-messages-by-consumers.svg"]
    page.write_text(f"{begun}\n{ended}\n![a](images/{shown[0]}) [b](images/{shown[1]})\n")
    renew(page, channels, drawn)
    assert sorted(path.name for path in (page.parent / "images").iterdir()) == shown
    for name in shown:
        drawn_as = tmp_path / "figures" / name.removeprefix("evaluation-")
        assert (page.parent / "images" / name).read_bytes() == drawn_as.read_bytes()


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_pictures_of_the_page_are_of_its_tables(name: str, tmp_path: Path) -> None:
    """Each that the page shows was drawn from docs/data; drawn again, the SVG has the same lines."""
    docs = Path(__file__).parents[2] / "docs"
    drawn = draw(Summary.from_csv(experiment(name), data_of(docs / "evaluation.md", name).read_text()), tmp_path)
    text = (docs / "evaluation.md").read_text()
    shown = [path for path in drawn if f"images/evaluation-{path.name}" in text]
    assert {path.suffix for path in shown} == {".png", ".svg"}
    for path in shown:
        kept = docs / "images" / f"evaluation-{path.name}"
        if path.suffix == ".svg":
            assert kept.read_text() == path.read_text(), f"enter: unerring evaluate {name} --page docs/evaluation.md"
        assert kept.stat().st_size > 5_000
