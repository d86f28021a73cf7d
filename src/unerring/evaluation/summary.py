"""From rows to figures: means with their confidence, series of them, and tables."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from unerring.evaluation.fits import Line, fit
from unerring.evaluation.grids import Experiment, Measured
from unerring.evaluation.intervals import Values, student_t

HALF: Final = " ±"
BY_SEED: Final = " by seed"


class Mean(msgspec.Struct, frozen=True):
    """A mean of several runs, and half of the width of its 95 % confidence interval."""

    value: float
    half: float
    runs: int
    by_seed: Values = {}
    """What each run measured."""


def mean(by_seed: Values) -> Mean:
    """Of the runs that measured it: a time of what did not happen is not a number."""
    kept = {seed: value for seed, value in by_seed.items() if not math.isnan(value)}
    known, count = kept.values(), len(kept)
    if not count:
        return Mean(math.nan, math.nan, 0)
    middle = math.fsum(known) / count
    if count == 1:
        return Mean(middle, math.nan, 1, kept)
    variance = math.fsum((value - middle) ** 2 for value in known) / (count - 1)
    return Mean(middle, student_t(count - 1) * math.sqrt(variance / count), count, kept)


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
        self.seeds: dict[str, tuple[int, ...]] = {}
        """Of each point: of its runs without an error."""
        by_point: dict[str, list[Measured]] = {}
        for measured in rows:
            self.seconds += measured.seconds
            if measured.error:
                self.failed.append(measured)
            else:
                by_point.setdefault(measured.point, []).append(measured)
        for point, measured_there in by_point.items():
            kinds = measured_there[0].row
            self.means[point] = {what: mean({one.seed: one.row[what] for one in measured_there}) for what in kinds}
            self.seeds[point] = tuple(sorted(one.seed for one in measured_there))
        self.runs = {point: experiment.decode(point) for point in self.means}

    @property
    def count(self) -> int:
        """Runs without an error."""
        return sum(map(len, self.seeds.values()))

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
        """Every point with the mean of every measurement, its half-width and what each run measured. `from_csv` reads
        it."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        kinds = list(dict.fromkeys(what for there in self.means.values() for what in there))
        columns = (column for what in kinds for column in (what, what + HALF, what + BY_SEED))
        writer.writerow(["point", "runs", "seeds", *columns])
        for point in sorted(self.means):
            there, seeds = self.means[point], self.seeds[point]
            cells = [point, len(seeds), _ranges(seeds)]
            for what in kinds:
                one = there.get(what, Mean(math.nan, math.nan, 0))
                values = [format(one.by_seed.get(seed, math.nan), ".6g") for seed in seeds]
                same = values[:1] if len(set(values)) == 1 else values
                cells += [format(one.value, ".6g"), format(one.half, ".6g"), " ".join(same)]
            writer.writerow(cells)
        return text.getvalue()

    @classmethod
    def from_csv(cls, experiment: Experiment, text: str) -> Summary:
        """What a table holds."""
        made = cls(experiment)
        csv.field_size_limit(1 << 20)
        for line in csv.DictReader(io.StringIO(text)):
            point, seeds = line["point"], _seeds(line["seeds"])
            kinds = [what.removesuffix(HALF) for what in line if what.endswith(HALF)]
            made.seeds[point], made.means[point] = seeds, {}
            for what in kinds:
                values = [float(value) for value in line[what + BY_SEED].split()]
                if len(values) == 1:
                    values *= len(seeds)
                by_seed = {seed: value for seed, value in zip(seeds, values, strict=True) if not math.isnan(value)}
                made.means[point][what] = Mean(float(line[what]), float(line[what + HALF]), len(by_seed), by_seed)
        made.runs = {point: experiment.decode(point) for point in made.means}
        return made


def _ranges(seeds: Sequence[int]) -> str:
    """Seeds as first-last, for each part without a gap."""
    parts: list[list[int]] = []
    for seed in seeds:
        if parts and seed == parts[-1][-1] + 1:
            parts[-1][1:] = [seed]
        else:
            parts.append([seed])
    return " ".join("-".join(map(str, part)) for part in parts)


def _seeds(text: str) -> tuple[int, ...]:
    ends = [[int(end) for end in part.split("-")] for part in text.split()]
    return tuple(seed for part in ends for seed in range(part[0], part[-1] + 1))
