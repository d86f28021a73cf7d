"""Sums and averages over windows that rows leave one by one: exact, and rounded once.

A fold in row order cannot give up its oldest row: taking a float out of a sum gives other digits than a fold without
it. The exact sum depends on the window's rows alone, so a matcher may add what comes and subtract what leaves.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

from unerring.rules import AGGREGATES, AggregateFunction, fit

UNITS: Final = 1 << 1074
"""Every finite float is a whole number of 1 / UNITS."""


class _Total(NamedTuple):
    values: int
    units: int
    """The finite values, in 1 / UNITS."""
    special: float
    """The sum of infinities and NaN, whose order makes no difference; 0.0 without any."""
    whole: bool
    """Whether the values are integers."""


def _plus(total: _Total | None, value: float) -> _Total:
    values, units, special, _ = total or _Total(0, 0, 0.0, True)
    whole = isinstance(value, int)
    if whole or math.isfinite(value):
        numerator, denominator = value.as_integer_ratio()
        return _Total(values + 1, units + numerator * (UNITS // denominator), special, whole)
    return _Total(values + 1, units, special + value, whole)


def _rounded(total: _Total) -> float:
    if total.special:
        return total.special
    try:
        return total.units / UNITS  # Python rounds a quotient of integers once, half to even
    except OverflowError:
        return math.inf if total.units > 0 else -math.inf


def _sum(total: _Total | None) -> Any:
    if total is None:
        return None
    return fit(total.units // UNITS) if total.whole else _rounded(total)


def _avg(total: _Total | None) -> float | None:
    return None if total is None else _rounded(total) / total.values


def _exact(name: str, finish: Any) -> AggregateFunction:
    return AggregateFunction(AGGREGATES[name].result, lambda: None, _plus, finish)


EXACT: Final[dict[str, AggregateFunction]] = {"sum": _exact("sum", _sum), "avg": _exact("avg", _avg)}
"""The aggregates that mean something else in such a window than elsewhere."""
