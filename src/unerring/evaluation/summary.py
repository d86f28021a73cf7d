"""From rows to figures: means with their confidence, straight lines with their R², and tables."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from unerring.evaluation.grids import Experiment, Measured

# Student's t at 97.5 %: half-widths of 95 % intervals of few runs would be too narrow with the normal's 1.96.
_T: Final = (
    12.71,
    4.30,
    3.18,
    2.78,
    2.57,
    2.45,
    2.36,
    2.31,
    2.26,
    2.23,
    2.20,
    2.18,
    2.16,
    2.14,
    2.13,
    2.12,
    2.11,
    2.10,
)


class Mean(msgspec.Struct, frozen=True):
    """A mean of several runs, and half of the width of its 95 % confidence interval."""

    value: float
    half: float
    runs: int


class Line(msgspec.Struct, frozen=True):
    """A least-squares line, and how much of the variance of its points it explains."""

    slope: float
    intercept: float
    r2: float


def mean(values: Iterable[float]) -> Mean:
    known = [value for value in values if not math.isnan(value)]
    count = len(known)
    if not count:
        return Mean(math.nan, math.nan, 0)
    middle = math.fsum(known) / count
    if count == 1:
        return Mean(middle, math.nan, 1)
    variance = math.fsum((value - middle) ** 2 for value in known) / (count - 1)
    t = _T[count - 2] if count - 2 < len(_T) else 1.98
    return Mean(middle, t * math.sqrt(variance / count), count)


def fit(xs: Sequence[float], ys: Sequence[float]) -> Line:
    """A straight line through points; R² is 1 when they lie on it."""
    count = len(xs)
    if count < 2:
        return Line(math.nan, math.nan, math.nan)
    x, y = math.fsum(xs) / count, math.fsum(ys) / count
    over = math.fsum((a - x) ** 2 for a in xs)
    total = math.fsum((b - y) ** 2 for b in ys)
    slope = math.fsum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / over if over else math.nan
    intercept = y - slope * x
    left = math.fsum((b - slope * a - intercept) ** 2 for a, b in zip(xs, ys, strict=True))
    return Line(slope, intercept, 1.0 - left / total if total else 1.0)


def like(**fixed: Any) -> Callable[[Any], bool]:
    """Takes the points whose parameters have these values."""
    return lambda run: all(getattr(run, name) == value for name, value in fixed.items())


def both(one: Callable[[Any], bool], other: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda run: one(run) and other(run)


class Summary:
    """All runs of a sweep, by point."""

    def __init__(self, experiment: Experiment, rows: Iterable[Measured]) -> None:
        self.experiment = experiment
        self.failed: list[Measured] = []
        self.by_point: dict[str, list[Measured]] = {}
        for measured in rows:
            if measured.error:
                self.failed.append(measured)
            else:
                self.by_point.setdefault(measured.point, []).append(measured)
        self.runs = {point: experiment.decode(point) for point in self.by_point}

    def mean(self, point: str, what: str) -> Mean:
        return mean(measured.row[what] for measured in self.by_point[point])

    def series(self, x: str, what: str, where: Callable[[Any], bool]) -> list[tuple[float, Mean]]:
        """One measurement along one parameter, of the points that `where` takes."""
        taken = [(getattr(run, x), point) for point, run in self.runs.items() if where(run)]
        return [(value, self.mean(point, what)) for value, point in sorted(taken)]

    def value(self, what: str, where: Callable[[Any], bool]) -> float:
        """One measurement at the one point that `where` takes; not a number if it was not measured."""
        values = [self.mean(point, what).value for point, run in self.runs.items() if where(run)]
        return values[0] if len(values) == 1 else math.nan

    def line(self, x: str, what: str, where: Callable[[Any], bool]) -> Line:
        series = self.series(x, what, where)
        return fit([value for value, _ in series], [one.value for _, one in series])

    def csv(self) -> str:
        """Every point with the mean of every measurement and its half-width."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        names = list(self.experiment.run.__struct_fields__)
        kinds = list(dict.fromkeys(what for rows in self.by_point.values() for what in rows[0].row))
        writer.writerow([*names, "runs", *(column for what in kinds for column in (what, f"{what} ±"))])
        for point, run in self.runs.items():
            means = [self.mean(point, what) for what in kinds]
            numbers = [format(number, ".6g") for one in means for number in (one.value, one.half)]
            writer.writerow([*(getattr(run, name) for name in names), len(self.by_point[point]), *numbers])
        return text.getvalue()
