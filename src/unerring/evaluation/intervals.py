"""How far a number of few runs can be trusted: what leaving out one seed at a time does to it, and other draws of them.

A seed draws the same events, actions and failures whatever the settings are. So a number that compares several points
is taken from the same seeds at all of them, and what varies from seed to seed alone does not count as a difference.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Final

import msgspec

Values = Mapping[int, float]
"""One measurement at one point, by the seed of each run."""

# The normal's 1.96 would make 95 % intervals of few runs too narrow.
_T: Final = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)

DRAWS: Final = 400
"""How often the seeds are drawn again."""
SURE: Final = 0.95
"""Of as many draws the same must come out."""


def student_t(freedom: int) -> float:
    """Student's t at 97.5 %, by degrees of freedom: one less than there are runs."""
    if freedom <= len(_T):
        return _T[freedom - 1]
    return 1.960 + 2.372 / freedom + 2.82 / freedom**2  # Its expansion about the normal, exact to a thousandth here.


class Interval(msgspec.Struct, frozen=True):
    """A number, and half of the width of its 95 % interval; not a number if one run cannot tell."""

    value: float
    half: float

    def within(self, low: float, high: float) -> bool | None:
        """Whether it lies in a band. None: its interval spans an end of it."""
        if low <= self.value - self.half and self.value + self.half <= high:
            return True
        if self.value + self.half < low or self.value - self.half > high:
            return False
        return None

    def positive(self) -> bool | None:
        """Whether it is more than zero. None: its interval has numbers on both sides."""
        if self.value - self.half > 0:
            return True
        return False if self.value + self.half <= 0 else None


def average(values: Values) -> float:
    return math.fsum(values.values()) / len(values) if values else math.nan


def interval(cells: Sequence[Values], of: Callable[[Sequence[Values]], float]) -> Interval:
    """What `of` makes of several cells, by leaving out one seed at a time (the jackknife).

    Of a difference of two means this is the paired interval of Student's t."""
    seeds = sorted({seed for cell in cells for seed in cell})
    value, count = of(cells), len(seeds)
    if count < 2:
        return Interval(value, math.nan)
    left = [of([_without(cell, seed) for cell in cells]) for seed in seeds]
    middle = math.fsum(left) / count
    variance = (count - 1) / count * math.fsum((one - middle) ** 2 for one in left)
    return Interval(value, student_t(count - 1) * math.sqrt(variance))


def of_means(cells: Sequence[Values], of: Callable[[Sequence[float]], float]) -> Interval:
    """The same of a number that is made of the cells' means."""
    return interval(cells, lambda some: of([average(cell) for cell in some]))


def redrawn(cells: Sequence[Values]) -> Iterator[list[float]]:
    """Means of the cells as other seeds might have given them (the bootstrap, always with the same draws)."""
    seeds = sorted({seed for cell in cells for seed in cell})
    draw = Random("seeds")
    for _ in range(DRAWS):
        times = Counter(draw.choices(seeds, k=len(seeds)))
        taken = [sum(times[seed] for seed in cell) for cell in cells]
        if all(taken):
            yield [
                math.fsum(times[seed] * value for seed, value in cell.items()) / count
                for cell, count in zip(cells, taken, strict=True)
            ]


def all_of(verdicts: Sequence[bool | None]) -> bool | None:
    """False if one is; else None if one is not decided."""
    if False in verdicts:
        return False
    return None if None in verdicts else True


def _without(cell: Values, seed: int) -> Values:
    return {one: value for one, value in cell.items() if one != seed}
