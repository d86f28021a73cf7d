"""Every claim can fail: each judge is given what it must refuse, at the points of the grid that it reads."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from unerring.evaluation import CLAIMS, EXPERIMENTS, Claim, Summary, experiment
from unerring.evaluation.claims import NOT_COMPARABLE, NOT_MEASURED, OURS, PAPER, row_of
from unerring.evaluation.fits import fits
from unerring.evaluation.grids import encode
from unerring.evaluation.summary import Mean

JUDGED = [
    pytest.param(name, claim, column, id=f"{name}-{number}-{column}")
    for name in EXPERIMENTS
    for number, claim in enumerate(CLAIMS[name]())
    for column in claim.columns
]


def swept(name: str) -> Summary:
    """A summary with every point of the reduced grid; what is measured there is put in later."""
    made = Summary(experiment(name))
    for run, point in zip(made.experiment.reduced, made.experiment.points(), strict=True):
        made.runs[point] = run
        made.means[point] = {"crashed": Mean(getattr(run, "failures", 0), 0.0, 4)}
    return made


def places(summary: Summary, claim: Claim, column: str) -> list[tuple[str, str, float]]:
    """Which points a column reads, which measurement of each, and where on the axis it is; in the judge's order."""
    found: list[tuple[str, str, float]] = []
    for query in claim.columns[column]:
        taken = []
        for point, run in summary.runs.items():
            if query.where(run):
                x: Any = 0.0
                if query.x:
                    x = getattr(run, query.x) if hasattr(run, query.x) else summary.means[point][query.x].value
                taken.append((point, query.what, float(x)))
        assert len(taken) == 1 or query.x, f"{claim.says}: {len(taken)} points of the reduced grid answer it"
        found += sorted(taken, key=lambda one: one[2])
    return found


def verdict(name: str, claim: Claim, column: str, numbers: Sequence[float]) -> bool:
    summary = swept(name)
    at = places(summary, claim, column)
    assert len(at) == len(numbers)
    for (point, what, _), number in zip(at, numbers, strict=True):
        summary.means[point][what] = Mean(number, 0.01, 4)
    alone = Claim(claim.place, claim.says, claim.how, claim.judge, {column: claim.columns[column]})
    row = row_of(alone, summary)
    assert row.verdict != NOT_MEASURED
    return row.verdict == "reproduced"


def bent(name: str, claim: Claim, column: str) -> Iterator[tuple[str, Sequence[float]]]:
    xs = [x for _, _, x in places(swept(name), claim, column)]
    yield from claim.judge.refuses(xs)


@pytest.mark.parametrize(("name", "claim", "column"), JUDGED)
def test_a_claim_holds_of_what_it_says_and_of_nothing_else(name: str, claim: Claim, column: str) -> None:
    """A square or a root for a line, a value 20 % off, an order turned round, a jump that is none."""
    xs = [x for _, _, x in places(swept(name), claim, column)]
    assert len(xs) >= claim.judge.least
    assert verdict(name, claim, column, claim.judge.accepts(xs))
    tried = list(bent(name, claim, column))
    assert len(tried) >= 2
    assert [what for what, numbers in tried if verdict(name, claim, column, numbers)] == []


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_what_cannot_be_compared_says_why(name: str) -> None:
    for claim in CLAIMS[name]():
        assert bool(claim.columns) == (claim.judge is not None)
        if claim.judge is None:
            assert row_of(claim, swept(name)).verdict == NOT_COMPARABLE
            assert len(claim.how) > 20
        assert set(claim.columns) <= {OURS, PAPER}


def test_what_was_not_measured_is_not_judged() -> None:
    empty = Summary(experiment("channels"))
    rows = [row_of(claim, empty) for claim in CLAIMS["channels"]() if claim.judge is not None]
    assert {row.verdict for row in rows} == {NOT_MEASURED}


def test_less_than_the_papers_rules_is_better_and_more_is_not() -> None:
    claim = next(claim for claim in CLAIMS["correlation"]() if claim.place == "Figure 5a")
    for part, expected in ((0.0, "better"), (0.5, "better"), (1.5, "not reproduced")):
        summary = swept("correlation")
        for column, factor in ((OURS, part), (PAPER, 1.0)):
            for point, what, _ in places(summary, claim, column):
                summary.means[point][what] = Mean(100 * factor, 1.0, 4)
        assert row_of(claim, summary).verdict == expected


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_full_grid_answers_every_claim_too(name: str) -> None:
    """Each cell is one point there, and no curve loses one; it may have more."""
    full = Summary(experiment(name))
    for run in full.experiment.full:
        point = encode(run)
        full.runs[point], full.means[point] = run, {"crashed": Mean(getattr(run, "failures", 0), 0.0, 4)}
    for claim in CLAIMS[name]():
        for column in claim.columns:
            assert len(places(full, claim, column)) >= len(places(swept(name), claim, column)), claim.says


@pytest.mark.parametrize(
    ("shape", "of"),
    [("constant", lambda x: 7.0), ("root", math.sqrt), ("linear", lambda x: 2 * x), ("quadratic", lambda x: x * x)],
)
def test_the_best_of_four_shapes(shape: str, of: Any) -> None:
    xs = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    made = fits(xs, [of(x) + 0.01 * (-1) ** n for n, x in enumerate(xs)])
    assert made.best == shape
    assert f"{shape} " in made.text()


def test_a_curve_of_five_points_is_no_curve() -> None:
    claim = next(claim for claim in CLAIMS["correlation"]() if claim.place == "Figure 6a")
    summary = swept("correlation")
    at = places(summary, claim, OURS)
    for point, what, x in at:
        summary.means[point][what] = Mean(100 + x, 0.0, 4)
    del summary.runs[at[0][0]]
    assert row_of(claim, summary).verdicts[OURS] == NOT_MEASURED
