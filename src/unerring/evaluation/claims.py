"""Claims as data: what a paper says, which measurements answer it, and a judge that can say yes and no.

A claim has a judge and, for each column, the measurements that the judge is given. The column *ours* has the product's
settings; *paper* the paper's own lists and rules, where they differ. Every judge knows measurements that it must accept
and such that it must refuse (`accepts`, `refuses`): a test puts both into a sweep's results, for every claim.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, Protocol

import msgspec

from unerring.evaluation.fits import POINTS_MIN, SHAPES, fits
from unerring.evaluation.summary import Mean, Summary

OURS: Final = "ours"
PAPER: Final = "paper"
REPRODUCED: Final = "reproduced"
BETTER: Final = "better"
NOT_REPRODUCED: Final = "not reproduced"
NOT_COMPARABLE: Final = "not comparable"
NOT_MEASURED: Final = "not measured"

Numbers = Sequence[tuple[float, Mean]]
"""Where on the axis, and what was measured there. A cell without an axis is at 0, 1, 2, ..."""
Found = tuple[str, bool]
"""What was measured, in words, and whether the sentence holds of it."""


class Query(msgspec.Struct, frozen=True):
    """One measurement of the points that `where` takes: along `x`, or at the one point without it."""

    what: str
    where: Callable[[Any], bool]
    x: str = ""

    def ask(self, summary: Summary) -> Numbers:
        if self.x:
            return [one for one in summary.series(self.x, self.what, self.where) if not math.isnan(one[1].value)]
        return [(0.0, summary.cell(self.what, self.where))]


class Judge(Protocol):
    """Says whether a sentence holds of numbers."""

    least: int
    """Numbers that it needs."""

    def __call__(self, numbers: Numbers) -> Found: ...

    def accepts(self, xs: Sequence[float]) -> Sequence[float]: ...

    def refuses(self, xs: Sequence[float]) -> Iterator[tuple[str, Sequence[float]]]: ...


class Shape(msgspec.Struct, frozen=True):
    """The points follow this shape rather than the three others, and it rises."""

    shape: str = "linear"
    unit: str = ""
    least: int = POINTS_MIN

    def __call__(self, numbers: Numbers) -> Found:
        xs, ys = [x for x, _ in numbers], [one.value for _, one in numbers]
        made = fits(xs, ys)
        ends = f"{spread(numbers[0][1])} to {spread(numbers[-1][1])}{self.unit}"
        holds = made.best == self.shape and (made.line.slope > 0) == (self.shape != "constant")
        return f"{ends}; R²: {made.text()}", holds

    def accepts(self, xs: Sequence[float]) -> Sequence[float]:
        return self._curve(xs, self.shape)

    def refuses(self, xs: Sequence[float]) -> Iterator[tuple[str, Sequence[float]]]:
        for other in SHAPES:
            if other != self.shape:
                yield other, self._curve(xs, other)
        yield "falling", [-y for y in self._curve(xs, self.shape)] if self.shape != "constant" else [-x for x in xs]

    def _curve(self, xs: Sequence[float], shape: str) -> Sequence[float]:
        # A little noise, the same each time: a measured curve is never exact.
        top = max(map(abs, xs)) or 1.0
        noise = [0.0 if shape == "constant" else 0.004 * (-1) ** n for n in range(len(xs))]
        return [100.0 * (1 + SHAPES[shape](x / top) + small) for x, small in zip(xs, noise, strict=True)]


class Within(msgspec.Struct, frozen=True):
    """A value lies in a band around the paper's number. `form` makes the value of the cells."""

    low: float
    high: float
    unit: str = ""
    form: str = "level"
    """level: the cell. saving: 1 - second / first, in percent. over: the cell less 100. ratio: second / first.
    gone: what the second saves of what the first has above the third, in percent."""

    @property
    def least(self) -> int:
        return {"level": 1, "over": 1, "gone": 3}.get(self.form, 2)

    def __call__(self, numbers: Numbers) -> Found:
        cells = [one.value for _, one in numbers]
        value = self._value(cells)
        shown = f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"
        if self.form in ("level", "over") and not math.isnan(numbers[0][1].half):
            shown += f" ± {numbers[0][1].half:.2g}"
        elif self.form not in ("level", "over"):
            shown += f"{self.unit} (of {', '.join(spread(one) for _, one in numbers)})"
            return shown, self.low <= value <= self.high
        return f"{shown}{self.unit}", self.low <= value <= self.high

    def _value(self, cells: Sequence[float]) -> float:
        first, second = cells[0], cells[1] if len(cells) > 1 else math.nan
        match self.form:
            case "saving":
                return 100 * (1 - second / first) if first else math.nan
            case "over":
                return first - 100
            case "ratio":
                return second / first if first else math.nan
            case "gone":
                above = first - cells[2]
                return 100 * (first - second) / above if above else math.nan
        return first

    def _cells(self, value: float) -> Sequence[float]:
        return {
            "saving": (100.0, 100.0 - value),
            "over": (100.0 + value,),
            "ratio": (100.0, 100.0 * value),
            "gone": (110.0, 110.0 - value / 10, 100.0),
        }.get(self.form, (value,))

    def accepts(self, xs: Sequence[float]) -> Sequence[float]:
        return self._cells((self.low + self.high) / 2)

    def refuses(self, xs: Sequence[float]) -> Iterator[tuple[str, Sequence[float]]]:
        middle = (self.low + self.high) / 2
        far = max(0.2 * abs(middle), (self.high - self.low) * 0.51)
        yield "20 % more, or what is above the band", self._cells(middle + far)
        yield "20 % less, or what is below the band", self._cells(middle - far)


def about(number: float, unit: str = "", form: str = "level", part: float = 0.15) -> Within:
    """The paper's number, 15 % up or down."""
    return Within(number * (1 - part), number * (1 + part), unit, form)


class Less(msgspec.Struct, frozen=True):
    """Each number is less than the next, by more than a hundredth of it."""

    names: tuple[str, ...]
    unit: str = ""

    @property
    def least(self) -> int:
        return len(self.names)

    def __call__(self, numbers: Numbers) -> Found:
        cells = [one.value for _, one in numbers]
        named = zip(self.names, (one for _, one in numbers), strict=True)
        shown = "; ".join(f"{name}: {spread(one)}{self.unit}" for name, one in named)
        return shown, all(b - a > 0.01 * abs(b) for a, b in pairwise(cells))

    def accepts(self, xs: Sequence[float]) -> Sequence[float]:
        return [100.0 * 1.2**n for n in range(len(self.names))]

    def refuses(self, xs: Sequence[float]) -> Iterator[tuple[str, Sequence[float]]]:
        yield "the other way round", [100.0 * 0.8**n for n in range(len(self.names))]
        yield "all equal", [100.0] * len(self.names)


class Jump(msgspec.Struct, frozen=True):
    """The largest step of a curve is the one that ends at `at`, and it is more than twice the mean of the others."""

    at: float
    unit: str = ""
    least: int = 4

    def __call__(self, numbers: Numbers) -> Found:
        steps = {x: after.value - before.value for (_, before), (x, after) in pairwise(numbers)}
        there = steps.get(self.at, math.nan)
        others = [step for x, step in steps.items() if x != self.at]
        usual = math.fsum(others) / len(others)
        shown = f"{there:+.3g}{self.unit} at {self.at:g}, {usual:+.3g}{self.unit} at the others on average"
        return shown, there == max(steps.values()) and there > 2 * max(usual, 0.0)

    def accepts(self, xs: Sequence[float]) -> Sequence[float]:
        return [100.0 + x + (50.0 if x >= self.at else 0.0) for x in xs]

    def refuses(self, xs: Sequence[float]) -> Iterator[tuple[str, Sequence[float]]]:
        yield "a straight line", [100.0 + 50 * x for x in xs]
        yield "no step at all", [100.0] * len(xs)


class Claim(msgspec.Struct, frozen=True):
    """One sentence or figure of a paper, or one of ours about doing better."""

    place: str
    says: str
    """The paper's result, in our words."""
    how: str
    """How it is measured, and with which parameters."""
    judge: Any = None
    """None: it cannot be compared, and `how` says why."""
    columns: Mapping[str, tuple[Query, ...]] = {}
    less_is_better: bool = False
    """A count of something unwanted: where ours has less than the paper's rules have, it is better."""
    ours: bool = False
    """Not the paper's sentence, but ours about doing better on its axes."""
    chosen: str = ""
    """An input that was chosen and decides this."""


class Row(msgspec.Struct, frozen=True):
    """A claim beside what a sweep measured."""

    claim: Claim
    measured: Mapping[str, str]
    verdicts: Mapping[str, str]

    @property
    def verdict(self) -> str:
        """Of the product's settings, or of the only column there is."""
        return self.verdicts.get(OURS) or next(iter(self.verdicts.values()), NOT_COMPARABLE)


def spread(one: Mean) -> str:
    """A mean with half of its 95 % interval."""
    value = f"{one.value:,.3g}" if abs(one.value) < 1000 else f"{one.value:,.0f}"
    return value if math.isnan(one.half) or not one.half else f"{value} ± {one.half:.2g}"


def row_of(claim: Claim, summary: Summary) -> Row:
    """Judge a claim, column by column."""
    if claim.judge is None:
        return Row(claim, {}, {OURS: NOT_COMPARABLE})
    measured: dict[str, str] = {}
    verdicts: dict[str, str] = {}
    numbers = {
        column: [n for query in queries for n in query.ask(summary)] for column, queries in claim.columns.items()
    }
    for column, known in numbers.items():
        if len(known) < claim.judge.least or any(math.isnan(one.value) for _, one in known):
            measured[column], verdicts[column] = NOT_MEASURED, NOT_MEASURED
            continue
        measured[column], holds = claim.judge(known)
        verdicts[column] = (BETTER if claim.ours else REPRODUCED) if holds else NOT_REPRODUCED
    if (
        claim.less_is_better
        and verdicts.get(OURS) == NOT_REPRODUCED
        and verdicts.get(PAPER) not in (None, NOT_MEASURED)
    ):
        sums = {column: math.fsum(one.value for _, one in known) for column, known in numbers.items()}
        if sums[OURS] < 0.8 * sums[PAPER]:
            verdicts[OURS] = BETTER
    return Row(claim, measured, verdicts)


def claims_of(summary: Summary) -> list[Row]:
    """All claims of the sweep's paper, judged."""
    return [row_of(claim, summary) for claim in CLAIMS[summary.experiment.name]()]


def _correlation() -> tuple[Claim, ...]:
    from unerring.evaluation.correlation_claims import CLAIMS as claims

    return claims


def _processes() -> tuple[Claim, ...]:
    from unerring.evaluation.process_claims import CLAIMS as claims

    return claims


def _channels() -> tuple[Claim, ...]:
    from unerring.evaluation.channel_claims import CLAIMS as claims

    return claims


CLAIMS: Final[Mapping[str, Callable[[], tuple[Claim, ...]]]] = {
    "correlation": _correlation,
    "processes": _processes,
    "channels": _channels,
}
