"""Every claim can fail, and be left open: each judge is given what it must refuse, and what runs that vary do not
decide, at the points of the grid that it reads."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import pytest

from unerring.evaluation import CLAIMS, EXPERIMENTS, Claim, Summary, experiment
from unerring.evaluation.claims import (
    NOT_COMPARABLE,
    NOT_DECIDED,
    NOT_MEASURED,
    NOT_REPRODUCED,
    OURS,
    PAPER,
    REPRODUCED,
    row_of,
)
from unerring.evaluation.fits import fits
from unerring.evaluation.grids import encode
from unerring.evaluation.intervals import of_means
from unerring.evaluation.judges import Less, Numbers, Shape, Within
from unerring.evaluation.summary import Mean, mean

JUDGED = [
    pytest.param(name, claim, column, id=f"{name}-{number}-{column}")
    for name in EXPERIMENTS
    for number, claim in enumerate(CLAIMS[name]())
    for column in claim.columns
]


SEEDS = range(400, 412)


def swept(name: str) -> Summary:
    """A summary with every point of the reduced grid; what is measured there is put in later."""
    made = Summary(experiment(name))
    for run, point in zip(made.experiment.reduced, made.experiment.points(), strict=True):
        made.runs[point] = run
        made.means[point] = axes(run)
    return made


def axes(run: Any) -> dict[str, Mean]:
    """What is measured and serves as an axis."""
    return {
        "crashed": exactly(getattr(run, "failures", 0)),
        "links_failed": exactly(4 * (getattr(run, "f", 0) + 1) ** 2),
    }


def exactly(number: float) -> Mean:
    """The same in all runs, but for a millionth that comes with the seed."""
    return mean({seed: number * (1 + 1e-6 * (seed % 3 - 1)) for seed in SEEDS})


def noisy(number: float, cell: int, part: float) -> Mean:
    """A mean of runs that vary: each by itself, by a part of the number."""
    draw = Random(f"cell {cell}")
    drawn = [draw.gauss() for _ in SEEDS]
    middle = sum(drawn) / len(drawn)
    return mean({seed: number + part * abs(number) * (one - middle) for seed, one in zip(SEEDS, drawn, strict=True)})


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


def verdict(name: str, claim: Claim, column: str, numbers: Sequence[float], part: float = 0.0) -> str:
    """Of one column, where the runs of each cell vary by a part of their mean."""
    summary = swept(name)
    at = places(summary, claim, column)
    assert len(at) == len(numbers)
    for cell, ((point, what, _), number) in enumerate(zip(at, numbers, strict=True)):
        summary.means[point][what] = noisy(number, cell, part) if part else exactly(number)
    alone = Claim(claim.place, claim.says, claim.how, claim.judge, {column: claim.columns[column]})
    row = row_of(alone, summary)
    assert row.verdict != NOT_MEASURED
    return row.verdict


def bent(name: str, claim: Claim, column: str) -> Iterator[tuple[str, Sequence[float]]]:
    xs = [x for _, _, x in places(swept(name), claim, column)]
    yield from claim.judge.refuses(xs)


@pytest.mark.parametrize(("name", "claim", "column"), JUDGED)
def test_a_claim_holds_of_what_it_says_and_of_nothing_else(name: str, claim: Claim, column: str) -> None:
    """A square or a root for a line, a value 20 % off, an order turned round, a jump that is none."""
    xs = [x for _, _, x in places(swept(name), claim, column)]
    assert len(xs) >= claim.judge.least
    assert verdict(name, claim, column, claim.judge.accepts(xs)) == REPRODUCED
    tried = list(bent(name, claim, column))
    assert len(tried) >= 2
    wrong = {what: verdict(name, claim, column, numbers) for what, numbers in tried}
    assert set(wrong.values()) == {NOT_REPRODUCED}, wrong


@pytest.mark.parametrize(("name", "claim", "column"), JUDGED)
def test_runs_that_vary_decide_nothing_at_the_border(name: str, claim: Claim, column: str) -> None:
    """Neither that it holds nor that it does not: the end of a band, no difference, between two shapes."""
    xs = [x for _, _, x in places(swept(name), claim, column)]
    assert verdict(name, claim, column, claim.judge.border(xs), part=0.03) == NOT_DECIDED


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_what_cannot_be_compared_says_why(name: str) -> None:
    for claim in CLAIMS[name]():
        assert bool(claim.columns) == (claim.judge is not None)
        if claim.judge is None:
            assert row_of(claim, swept(name)).verdict == claim.verdict
            assert claim.verdict in (NOT_COMPARABLE, NOT_MEASURED)
            assert len(claim.how) > 20
        assert set(claim.columns) <= {OURS, PAPER}


def test_what_was_not_measured_is_not_judged() -> None:
    empty = Summary(experiment("channels"))
    rows = [row_of(claim, empty) for claim in CLAIMS["channels"]() if claim.judge is not None]
    assert {row.verdict for row in rows} == {NOT_MEASURED}


def test_less_than_the_papers_rules_is_better_and_more_is_not() -> None:
    claim = next(claim for claim in CLAIMS["correlation"]() if claim.place == "Figure 5a")
    tried = ((0.0, 0.0, "better"), (0.5, 0.0, "better"), (1.5, 0.0, "not reproduced"), (0.79, 0.3, "not reproduced"))
    for factor, noise, expected in tried:
        summary = swept("correlation")
        for column, level in ((OURS, 100 * factor), (PAPER, 100.0)):
            for point, what, _ in places(summary, claim, column):
                # The same at all points, so that it is a constant with any draw of the seeds.
                summary.means[point][what] = noisy(level, len(column), noise)
        assert row_of(claim, summary).verdict == expected


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_full_grid_answers_every_claim_too(name: str) -> None:
    """Each cell is one point there, and no curve loses one; it may have more."""
    full = Summary(experiment(name))
    for run in full.experiment.full:
        point = encode(run)
        full.runs[point], full.means[point] = run, axes(run)
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
        summary.means[point][what] = exactly(100 + x)
    del summary.runs[at[0][0]]
    assert row_of(claim, summary).verdicts[OURS] == NOT_MEASURED


def cells(*values: Sequence[float]) -> Numbers:
    """Each with the same seeds."""
    return [(float(at), mean(dict(enumerate(one)))) for at, one in enumerate(values)]


def test_what_both_have_of_a_seed_is_no_difference() -> None:
    """The intervals of the two means overlap by far, and that of their difference is far from zero."""
    one, other = [10.0, 50.0, 90.0, 130.0], [13.0, 52.0, 94.0, 133.0]
    less = Less(("one", "other"))
    assert less(cells(one, other))[1] is True
    assert less(cells(other, one))[1] is False
    apart = [(0.0, mean(dict(enumerate(one)))), (1.0, mean(dict(enumerate(other, start=100))))]
    assert less(apart)[1] is None  # Other seeds: what varies from seed to seed counts.


def test_an_interval_of_a_difference_is_the_paired_one() -> None:
    one, other = [10.0, 50.0, 90.0, 130.0], [13.0, 52.0, 94.0, 133.0]
    made = of_means([dict(enumerate(one)), dict(enumerate(other))], lambda ys: ys[1] - ys[0])
    known = mean({0: 3.0, 1: 2.0, 2: 4.0, 3: 3.0})
    assert (made.value, made.half) == (pytest.approx(known.value), pytest.approx(known.half))


@pytest.mark.parametrize(
    ("values", "expected"),
    [([99.0, 100.0, 101.0], True), ([108.0, 114.0, 117.0], None), ([120.0, 121.0, 122.0], False), ([100.0], None)],
)
def test_a_value_is_within_a_band_with_its_whole_interval(values: list[float], expected: bool | None) -> None:
    """One run has no interval, and decides nothing."""
    assert Within(85.0, 115.0)(cells(values))[1] is expected


def test_two_shapes_that_cannot_be_told_apart_are_not_decided() -> None:
    """Twelve runs of a line; in the second they vary by more than a line differs from a square."""
    for part, expected in ((0.02, True), (1.0, None)):
        curve = [(float(x), noisy(10.0 * x, x, part)) for x in range(6)]
        assert Shape()(curve)[1] is expected
