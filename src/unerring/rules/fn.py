"""Functions and aggregates for terms: `fn.abs(Reading.volts)`, `fn.count()`, `fn.avg(each(hot).celsius)`.

In a pattern an aggregate ranges over the rows of a step (`each(step)`) or, without one, over all bound rows; in a
window over the rows of the window.
"""

from __future__ import annotations

from typing import Any

from unerring.rules import expressions as ex
from unerring.rules.terms import (
    Operand,
    Row,
    Term,
    between,
    cast_to,
    coalesce,
    inner_of,
    is_null,
    isin,
    like,
    over_of,
    when,
)

__all__ = [
    "abs",
    "array_agg",
    "avg",
    "between",
    "call",
    "cast_to",
    "ceil",
    "classifier",
    "coalesce",
    "concat",
    "count",
    "count_distinct",
    "count_if",
    "first",
    "floor",
    "is_nan",
    "is_null",
    "isin",
    "last",
    "length",
    "like",
    "lower",
    "match_number",
    "max",
    "max_by",
    "min",
    "min_by",
    "round",
    "sqrt",
    "stddev",
    "sum",
    "upper",
    "when",
    "window_end",
    "window_start",
]


def call(name: str, *arguments: Operand) -> Any:
    """A registered function by name."""
    return Term(lambda: ex.Call(name, tuple(map(inner_of, arguments))), over_of(*arguments))


def _aggregate(name: str, *arguments: Operand, distinct: bool = False) -> Any:
    over = over_of(*arguments) or ()
    return Term(lambda: ex.Aggregate(name, tuple(map(inner_of, arguments)), over, distinct=distinct))


def abs(value: Operand) -> Any:
    return call("abs", value)


def floor(value: Operand) -> Any:
    return call("floor", value)


def ceil(value: Operand) -> Any:
    return call("ceil", value)


def round(value: Operand, digits: int = 0) -> Any:
    return call("round", value, digits)


def sqrt(value: Operand) -> Any:
    return call("sqrt", value)


def is_nan(value: Operand) -> Any:
    return call("is_nan", value)


def length(value: Operand) -> Any:
    return call("length", value)


def lower(value: Operand) -> Any:
    return call("lower", value)


def upper(value: Operand) -> Any:
    return call("upper", value)


def concat(*parts: Operand) -> Any:
    return call("concat", *parts)


def array_agg(what: Operand) -> Any:
    """All values in row order, NULLs among them, as a list; NULL without a row. It is an output column as a whole:
    since columns are no lists, JSON text (`[81.0, 84.5]`, times in microseconds)."""
    return _aggregate("array_agg", what)


def count(what: Operand = None) -> Any:
    """Rows (`count()`, `count(each(step))`), or values that are not NULL (`count(Reading.volts)`)."""
    if isinstance(what, Row):
        over = what.over or ()
        return Term(lambda: ex.Aggregate("count", (), over))
    return _aggregate("count") if what is None else _aggregate("count", what)


def count_distinct(what: Operand) -> Any:
    return _aggregate("count", what, distinct=True)


def count_if(condition: Operand) -> Any:
    return _aggregate("count_if", condition)


def sum(what: Operand) -> Any:
    return _aggregate("sum", what)


def avg(what: Operand) -> Any:
    return _aggregate("avg", what)


def min(what: Operand) -> Any:
    return _aggregate("min", what)


def max(what: Operand) -> Any:
    return _aggregate("max", what)


def min_by(what: Operand, rank: Operand) -> Any:
    """The value at the smallest rank."""
    return _aggregate("min_by", what, rank)


def max_by(what: Operand, rank: Operand) -> Any:
    """The value at the largest rank."""
    return _aggregate("max_by", what, rank)


def first(what: Operand) -> Any:
    """The first value that is not NULL."""
    return _aggregate("first", what)


def last(what: Operand) -> Any:
    """The last value that is not NULL."""
    return _aggregate("last", what)


def stddev(what: Operand) -> Any:
    """The standard deviation of a sample."""
    return _aggregate("stddev_samp", what)


def classifier() -> Any:
    """The name of the step that the row is bound to."""
    return Term(ex.Classifier)


def match_number() -> Any:
    """1, 2, 3, … for each key. A rule that uses it keeps a number for every key for ever."""
    return Term(ex.MatchNumber)


def window_start() -> Any:
    return Term(lambda: ex.WindowBound("start"))


def window_end() -> Any:
    return Term(lambda: ex.WindowBound("end"))
