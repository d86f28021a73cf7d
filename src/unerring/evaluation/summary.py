"""From rows to figures: means with their confidence, series of them, and tables."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from unerring.evaluation.fits import Line, fit
from unerring.evaluation.grids import Experiment, Measured
from unerring.evaluation.intervals import student_t


class Mean(msgspec.Struct, frozen=True):
    """A mean of several runs, and half of the width of its 95 % confidence interval."""

    value: float
    half: float
    runs: int


def mean(values: Iterable[float]) -> Mean:
    known = [value for value in values if not math.isnan(value)]
    count = len(known)
    if not count:
        return Mean(math.nan, math.nan, 0)
    middle = math.fsum(known) / count
    if count == 1:
        return Mean(middle, math.nan, 1)
    variance = math.fsum((value - middle) ** 2 for value in known) / (count - 1)
    return Mean(middle, student_t(count - 1) * math.sqrt(variance / count), count)


def like(**fixed: Any) -> Callable[[Any], bool]:
    """Takes the points whose parameters have these values."""
    return lambda run: all(getattr(run, name) == value for name, value in fixed.items())


def both(one: Callable[[Any], bool], other: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda run: one(run) and other(run)


class Summary:
    """All points of a sweep: the mean of each measurement, from its runs or from a table of them."""

    def __init__(self, experiment: Experiment, rows: Iterable[Measured] = ()) -> None:
        self.experiment = experiment
        self.failed: list[Measured] = []
        self.seconds = 0.0
        self.means: dict[str, dict[str, Mean]] = {}
        by_point: dict[str, list[Measured]] = {}
        for measured in rows:
            self.seconds += measured.seconds
            if measured.error:
                self.failed.append(measured)
            else:
                by_point.setdefault(measured.point, []).append(measured)
        for point, measured_there in by_point.items():
            kinds = measured_there[0].row
            self.means[point] = {what: mean(one.row[what] for one in measured_there) for what in kinds}
            self.means[point]["runs"] = Mean(len(measured_there), 0.0, len(measured_there))
        self.runs = {point: experiment.decode(point) for point in self.means}

    @property
    def count(self) -> int:
        """Runs without an error."""
        return round(sum(there["runs"].value for there in self.means.values()))

    def series(self, x: str, what: str, where: Callable[[Any], bool]) -> list[tuple[float, Mean]]:
        """One measurement along a parameter, or along another measurement, of the points that `where` takes."""
        taken = []
        for point, run in self.runs.items():
            if what in self.means[point] and where(run):
                at = getattr(run, x) if x in run.__struct_fields__ else self.means[point][x].value
                taken.append((at, self.means[point][what]))
        return sorted(taken, key=lambda one: one[0])

    def cell(self, what: str, where: Callable[[Any], bool]) -> Mean:
        """One measurement at the one point that `where` takes; not a number if it was not measured."""
        values = [
            self.means[point][what] for point, run in self.runs.items() if what in self.means[point] and where(run)
        ]
        return values[0] if len(values) == 1 else Mean(math.nan, math.nan, 0)

    def value(self, what: str, where: Callable[[Any], bool]) -> float:
        return self.cell(what, where).value

    def line(self, x: str, what: str, where: Callable[[Any], bool]) -> Line:
        series = self.series(x, what, where)
        return fit([value for value, _ in series], [one.value for _, one in series])

    def csv(self) -> str:
        """Every point with the mean of every measurement and its half-width. `from_csv` reads it."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        kinds = list(dict.fromkeys(what for there in self.means.values() for what in there if what != "runs"))
        writer.writerow(["point", "runs", *(column for what in kinds for column in (what, f"{what} ±"))])
        for point in sorted(self.means):
            there = self.means[point]
            known = [there.get(what, Mean(math.nan, math.nan, 0)) for what in kinds]
            numbers = [format(number, ".6g") for one in known for number in (one.value, one.half)]
            writer.writerow([point, round(there["runs"].value), *numbers])
        return text.getvalue()

    @classmethod
    def from_csv(cls, experiment: Experiment, text: str) -> Summary:
        """What a table holds."""
        made = cls(experiment)
        for line in csv.DictReader(io.StringIO(text)):
            point, runs = line.pop("point"), int(line.pop("runs"))
            kinds = [what for what in line if not what.endswith(" ±")]
            made.means[point] = {what: Mean(float(line[what]), float(line[f"{what} ±"]), runs) for what in kinds}
            made.means[point]["runs"] = Mean(runs, 0.0, runs)
        made.runs = {point: experiment.decode(point) for point in made.means}
        return made
