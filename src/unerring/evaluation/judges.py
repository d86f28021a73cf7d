"""Judges: does a sentence hold of numbers, does it not, or do too few runs leave it open?

Every judge knows numbers that it must accept (`accepts`), such that it must refuse (`refuses`), and some on its border
(`border`), where runs that vary decide nothing: a test puts them into a sweep's results, for every claim.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, Protocol

import msgspec

from unerring.evaluation.fits import POINTS_MIN, SHAPES, Fits, Foretelling
from unerring.evaluation.intervals import SURE, Interval, Values, all_of, average, interval, of_means, redrawn
from unerring.evaluation.summary import Mean

Numbers = Sequence[tuple[float, Mean]]
"""Where on the axis, and what was measured there. A cell without an axis is at 0, 1, 2, ..."""
Found = tuple[str, bool | None]
"""What was measured, in words, and whether the sentence holds of it. None: the runs do not decide it."""
LEAST: Final = 0.01
"""Two numbers differ if they do by more than a hundredth."""


class Judge(Protocol):
    """Says whether a sentence holds of numbers."""

    least: int
    """Numbers that it needs."""

    def __call__(self, numbers: Numbers) -> Found: ...

    def accepts(self, xs: Sequence[float]) -> Sequence[float]: ...

    def refuses(self, xs: Sequence[float]) -> Iterator[tuple[str, Sequence[float]]]: ...

    def border(self, xs: Sequence[float]) -> Sequence[float]: ...


class Shape(msgspec.Struct, frozen=True):
    """The points follow this shape rather than the three others, and it rises; with other draws of the seeds, too."""

    shape: str = "linear"
    unit: str = ""
    least: int = POINTS_MIN

    def __call__(self, numbers: Numbers) -> Found:
        foretelling = Foretelling([x for x, _ in numbers])
        made = foretelling([one.value for _, one in numbers])
        cells = [one.by_seed for _, one in numbers]
        drawn = [self._holds(foretelling(ys)) for ys in redrawn(cells)] if len(_seeds(cells)) > 1 else []
        share = sum(drawn) / len(drawn) if drawn else math.nan
        ends = f"{spread(numbers[0][1])} to {spread(numbers[-1][1])}{self.unit}"
        words = f"; {self.shape} in {100 * share:.0f} % of the draws" if drawn else ""
        holds = self._holds(made)
        decided = share >= SURE if holds else share <= 1 - SURE
        return f"{ends}; R²: {made.text()}{words}", holds if decided else None

    def _holds(self, made: Fits) -> bool:
        return made.best == self.shape and (made.line.slope > 0 or self.shape == "constant")

    def accepts(self, xs: Sequence[float]) -> Sequence[float]:
        return self._curve(xs, self.shape)

    def refuses(self, xs: Sequence[float]) -> Iterator[tuple[str, Sequence[float]]]:
        for other in SHAPES:
            if other != self.shape:
                yield other, self._curve(xs, other)
        yield "falling", [-y for y in self._curve(xs, self.shape)] if self.shape != "constant" else [-x for x in xs]

    def border(self, xs: Sequence[float]) -> Sequence[float]:
        """Between this shape and a steeper one (a line, for a constant)."""
        if self.shape == "constant":
            return [100.0] * len(xs)
        one, other = (
            self._curve(xs, self.shape),
            self._curve(xs, "linear" if self.shape == "quadratic" else "quadratic"),
        )
        foretelling, low, high = Foretelling(xs), 0.0, 1.0
        for _ in range(30):
            part = (low + high) / 2
            mixed = [(1 - part) * a + part * b for a, b in zip(one, other, strict=True)]
            low, high = (part, high) if foretelling(mixed).best == self.shape else (low, part)
        return mixed

    def _curve(self, xs: Sequence[float], shape: str) -> Sequence[float]:
        # A little noise, the same each time: a measured curve is never exact.
        top = max(map(abs, xs)) or 1.0
        noise = [0.0 if shape == "constant" else 0.004 * (-1) ** n for n in range(len(xs))]
        return [100.0 * (1 + SHAPES[shape](x / top) + small) for x, small in zip(xs, noise, strict=True)]


class Within(msgspec.Struct, frozen=True):
    """A value lies in a band around the paper's number, with its whole interval. `form` makes it of the cells."""

    low: float
    high: float
    unit: str = ""
    form: str = "level"
    """level: the cell. saving: 1 - second / first, in percent. over: the cell less 100. ratio: second / first, or the
    sum of all others / first. gone: what the second saves of what the first has above the third, in percent."""

    @property
    def least(self) -> int:
        return {"level": 1, "over": 1, "gone": 3}.get(self.form, 2)

    def __call__(self, numbers: Numbers) -> Found:
        value = of_means([one.by_seed for _, one in numbers], self._value)
        shown = f"{_shown(value)}{self.unit}"
        if self.form not in ("level", "over"):
            shown += f" (of {', '.join(spread(one) for _, one in numbers)})"
        return shown, value.within(self.low, self.high)

    def _value(self, cells: Sequence[float]) -> float:
        first, second = cells[0], cells[1] if len(cells) > 1 else math.nan
        match self.form:
            case "saving":
                return 100 * (1 - second / first) if first else math.nan
            case "over":
                return first - 100
            case "ratio":
                return math.fsum(cells[1:]) / first if first else math.nan
            case "gone":
                above = first - cells[2]
                return 100 * (first - second) / above if above else math.nan
        return first

    def _cells(self, value: float, xs: Sequence[float]) -> Sequence[float]:
        return {
            "saving": (100.0, 100.0 - value),
            "over": (100.0 + value,),
            "ratio": (100.0, *([100.0 * value / max(1, len(xs) - 1)] * max(1, len(xs) - 1))),
            "gone": (110.0, 110.0 - value / 10, 100.0),
        }.get(self.form, (value,))

    def accepts(self, xs: Sequence[float]) -> Sequence[float]:
        return self._cells((self.low + self.high) / 2, xs)

    def refuses(self, xs: Sequence[float]) -> Iterator[tuple[str, Sequence[float]]]:
        middle = (self.low + self.high) / 2
        far = max(0.2 * abs(middle), (self.high - self.low) * 0.51)
        yield "20 % more, or what is above the band", self._cells(middle + far, xs)
        yield "20 % less, or what is below the band", self._cells(middle - far, xs)

    def border(self, xs: Sequence[float]) -> Sequence[float]:
        return self._cells(self.high, xs)


def about(number: float, unit: str = "", form: str = "level", part: float = 0.15) -> Within:
    """The paper's number, 15 % up or down."""
    return Within(number * (1 - part), number * (1 + part), unit, form)


class Less(msgspec.Struct, frozen=True):
    """Each number is less than the next, by more than a hundredth of it."""

    names: tuple[str, ...]
    unit: str = ""
    added: bool = False
    """Each number is what one cell has above the next: two cells for each name."""
    than_last: bool = False
    """Each is less than the last, in whatever order."""
    spreads: bool = False
    """Not of the means: of the deviations from seed to seed."""

    @property
    def least(self) -> int:
        return len(self.names) * (1 + self.added)

    def __call__(self, numbers: Numbers) -> Found:
        cells = [one.by_seed for _, one in numbers]
        count = len(self.names)
        levels = [interval(cells, lambda some, at=at: self._levels(some)[at]) for at in range(count)]  # type: ignore[misc]
        shown = "; ".join(f"{name}: {_shown(one)}{self.unit}" for name, one in zip(self.names, levels, strict=True))
        pairs = [(n, count - 1) for n in range(count - 1)] if self.than_last else list(pairwise(range(count)))
        margins = [interval(cells, lambda some, pair=pair: self._margin(some, *pair)) for pair in pairs]  # type: ignore[misc]
        return shown, all_of([margin.positive() for margin in margins])

    def _levels(self, cells: Sequence[Values]) -> list[float]:
        known = [deviation(cell) if self.spreads else average(cell) for cell in cells]
        return [one - other for one, other in zip(known[::2], known[1::2], strict=True)] if self.added else known

    def _margin(self, cells: Sequence[Values], less: int, more: int) -> float:
        levels = self._levels(cells)
        return levels[more] - levels[less] - LEAST * abs(levels[more])

    def _cells(self, levels: Sequence[float]) -> Sequence[float]:
        return [cell for level in levels for cell in (50.0 + level, 50.0)] if self.added else levels

    def accepts(self, xs: Sequence[float]) -> Sequence[float]:
        return self._cells([100.0 * 1.2**n for n in range(len(self.names))])

    def refuses(self, xs: Sequence[float]) -> Iterator[tuple[str, Sequence[float]]]:
        yield "the other way round", self._cells([100.0 * 0.8**n for n in range(len(self.names))])
        yield "all equal", self._cells([100.0] * len(self.names))
        if self.than_last:
            yield "one of them more", self._cells([*[100.0] * (len(self.names) - 2), 130.0, 120.0])

    def border(self, xs: Sequence[float]) -> Sequence[float]:
        return self._cells([100.0 * (1 + LEAST) ** n for n in range(len(self.names))])


class Jump(msgspec.Struct, frozen=True):
    """The largest step of a curve is the one that ends at `at`, and it is more than twice the mean of the others."""

    at: float
    unit: str = ""
    least: int = 4

    def __call__(self, numbers: Numbers) -> Found:
        xs, cells = [x for x, _ in numbers], [one.by_seed for _, one in numbers]
        there = of_means(cells, lambda ys: self._steps(xs, ys)[0])
        usual = of_means(cells, lambda ys: self._steps(xs, ys)[1])
        largest = of_means(cells, lambda ys: self._steps(xs, ys)[0] - self._steps(xs, ys)[2])
        twice = of_means(cells, lambda ys: self._steps(xs, ys)[0] - 2 * max(self._steps(xs, ys)[1], 0.0))
        shown = f"{_shown(there)}{self.unit} at {self.at:g}, {_shown(usual)}{self.unit} at the others on average"
        return shown, all_of([largest.positive(), twice.positive()])

    def _steps(self, xs: Sequence[float], ys: Sequence[float]) -> tuple[float, float, float]:
        """The step there, the mean of the others, and the largest of them."""
        steps = {round(x): after - before for (_, before), (x, after) in pairwise(zip(xs, ys, strict=True))}
        there = steps.pop(round(self.at), math.nan)
        return there, math.fsum(steps.values()) / len(steps), max(steps.values())

    def accepts(self, xs: Sequence[float]) -> Sequence[float]:
        return [100.0 + x + (50.0 if x >= self.at else 0.0) for x in xs]

    def refuses(self, xs: Sequence[float]) -> Iterator[tuple[str, Sequence[float]]]:
        yield "a straight line", [100.0 + 50 * x for x in xs]
        yield "no step at all", [100.0] * len(xs)

    def border(self, xs: Sequence[float]) -> Sequence[float]:
        return [100.0 + 10 * n + (10.0 if x >= self.at else 0.0) for n, x in enumerate(xs)]


class Rising(msgspec.Struct, frozen=True):
    """A curve rises, or falls, from its beginning to its end: by more than a hundredth of its mean along a straight
    line through its points, which are taken as evenly spaced."""

    falls: bool = False
    unit: str = ""
    least: int = POINTS_MIN

    def __call__(self, numbers: Numbers) -> Found:
        cells = [one.by_seed for _, one in numbers]
        rise = of_means(cells, self._rise)
        beyond = of_means(cells, lambda ys: self._sign * self._rise(ys) - LEAST * abs(math.fsum(ys) / len(ys)))
        curve = ", ".join(f"{one.value:.3g}" for _, one in numbers)
        return f"{curve}{self.unit}: {rise.value:+.3g} ± {rise.half:.2g} along it", beyond.positive()

    @property
    def _sign(self) -> int:
        return -1 if self.falls else 1

    def _rise(self, ys: Sequence[float]) -> float:
        middle = (len(ys) - 1) / 2
        over = math.fsum((n - middle) ** 2 for n in range(len(ys)))
        return (len(ys) - 1) * math.fsum((n - middle) * y for n, y in enumerate(ys)) / over

    def _curve(self, xs: Sequence[float], step: float) -> Sequence[float]:
        return [100.0 + step * n for n in range(len(xs))]

    def accepts(self, xs: Sequence[float]) -> Sequence[float]:
        return self._curve(xs, 5.0 * self._sign)

    def refuses(self, xs: Sequence[float]) -> Iterator[tuple[str, Sequence[float]]]:
        yield "the other way", self._curve(xs, -5.0 * self._sign)
        yield "level", self._curve(xs, 0.0)

    def border(self, xs: Sequence[float]) -> Sequence[float]:
        return self._curve(xs, self._sign / (len(xs) - 1))


class Together(msgspec.Struct, frozen=True):
    """Runs that have more of the first have more of the second: their correlation over the seeds is above zero."""

    least: int = 2

    def __call__(self, numbers: Numbers) -> Found:
        of = interval([one.by_seed for _, one in numbers], _correlation)
        shown = f"correlation {_shown(of)} (of {', '.join(spread(one) for _, one in numbers)})"
        return shown, None if math.isnan(of.value) else of.positive()

    def accepts(self, xs: Sequence[float]) -> Sequence[float]:
        return (100.0, 100.0)  # What varies with the seeds varies alike.

    def refuses(self, xs: Sequence[float]) -> Iterator[tuple[str, Sequence[float]]]:
        yield "more of the one, less of the other", (100.0, -100.0)
        yield "less of the one, more of the other", (-100.0, 100.0)

    def border(self, xs: Sequence[float]) -> Sequence[float]:
        return (100.0, 100.0)


def _correlation(cells: Sequence[Values]) -> float:
    one, other = cells
    seeds = [seed for seed in one if seed in other]
    x, y = (average({seed: cell[seed] for seed in seeds}) for cell in cells)
    across = math.fsum((one[seed] - x) * (other[seed] - y) for seed in seeds)
    over = math.fsum((one[seed] - x) ** 2 for seed in seeds) * math.fsum((other[seed] - y) ** 2 for seed in seeds)
    return across / math.sqrt(over) if over else math.nan


def deviation(values: Values) -> float:
    """The standard deviation from seed to seed."""
    if len(values) < 2:
        return math.nan
    middle = average(values)
    return math.sqrt(math.fsum((value - middle) ** 2 for value in values.values()) / (len(values) - 1))


def _seeds(cells: Sequence[Values]) -> set[int]:
    return {seed for cell in cells for seed in cell}


def spread(one: Mean) -> str:
    """A mean with half of its 95 % interval."""
    return _shown(Interval(one.value, one.half))


def _shown(one: Interval) -> str:
    value = f"{one.value:,.3g}" if abs(one.value) < 1000 else f"{one.value:,.0f}"
    return value if math.isnan(one.half) or not one.half else f"{value} ± {one.half:.2g}"
