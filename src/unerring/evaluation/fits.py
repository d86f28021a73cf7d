"""Which curve a series of points follows: constant, a root, a line or a square. Each is judged by what it foretells.

A curve with more freedom always lies closer to the points it was drawn through. So each point is foretold from the
others (leaving it out), and the R² of a shape is how much of the variance its forecasts explain: below zero, the mean
of the other points would have foretold better.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from operator import mul
from typing import Final

import msgspec

POINTS_MIN: Final = 6
"""A curve with fewer points shows no shape."""

SHAPES: Final[Mapping[str, Callable[[float], float]]] = {
    "constant": lambda x: 0.0,
    "root": math.sqrt,
    "linear": lambda x: x,
    "quadratic": lambda x: x * x,
}


class Line(msgspec.Struct, frozen=True):
    """A least-squares line, and how much of the variance of its points it explains."""

    slope: float
    intercept: float
    r2: float


class Fits(msgspec.Struct, frozen=True):
    """How well each shape foretells the points, and the straight line through them."""

    r2: Mapping[str, float]
    line: Line
    points: int

    @property
    def best(self) -> str:
        return max(self.r2, key=lambda shape: (self.r2[shape], shape == "constant"))

    def text(self) -> str:
        return ", ".join(f"{shape} {r2:.3f}" for shape, r2 in self.r2.items())


def fit(xs: Sequence[float], ys: Sequence[float]) -> Line:
    """A straight line through points; R² is 1 when they lie on it."""
    count = len(xs)
    if count < 2:
        return Line(math.nan, math.nan, math.nan)
    x, y = math.fsum(xs) / count, math.fsum(ys) / count
    over = math.fsum((a - x) ** 2 for a in xs)
    total = math.fsum((b - y) ** 2 for b in ys)
    slope = math.fsum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / over if over else 0.0
    intercept = y - slope * x
    left = math.fsum((b - slope * a - intercept) ** 2 for a, b in zip(xs, ys, strict=True))
    return Line(slope, intercept, 1.0 - left / total if total else 1.0)


class Foretelling:
    """What each shape foretells of points at these places: each from all others."""

    def __init__(self, xs: Sequence[float]) -> None:
        self._xs = tuple(xs)
        self._weights = {shape: _weights([of(x) for x in xs]) for shape, of in SHAPES.items()}

    def __call__(self, ys: Sequence[float]) -> Fits:
        """How well. Points that do not vary at all are foretold by a constant, and by nothing else."""
        middle = math.fsum(ys) / len(ys)
        total = math.fsum((y - middle) ** 2 for y in ys)
        line = fit(self._xs, ys)
        if total <= (1e-9 * abs(middle)) ** 2:
            return Fits({shape: float(shape == "constant") for shape in SHAPES}, line, len(ys))
        r2 = {
            shape: 1.0 - sum((y - sum(map(mul, row, ys))) ** 2 for y, row in zip(ys, weights, strict=True)) / total
            for shape, weights in self._weights.items()
        }
        return Fits(r2, line, len(ys))


def fits(xs: Sequence[float], ys: Sequence[float]) -> Fits:
    """All shapes at the same points."""
    return Foretelling(xs)(ys)


def _weights(xs: Sequence[float]) -> list[list[float]]:
    """Of each point: how much each other one counts in the least-squares line that foretells it."""
    rows = []
    for out in range(len(xs)):
        rest = [at for at in range(len(xs)) if at != out]
        middle = math.fsum(xs[at] for at in rest) / len(rest)
        over = math.fsum((xs[at] - middle) ** 2 for at in rest)
        row = [0.0] * len(xs)
        for at in rest:
            row[at] = 1 / len(rest) + ((xs[out] - middle) * (xs[at] - middle) / over if over else 0.0)
        rows.append(row)
    return rows
