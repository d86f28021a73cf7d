"""Which rows can matter to a rule: a few columns' values that a row must have one of.

A row that is not among them changes nothing but time, and need not be fed. More rows than matter may be among them,
never fewer: what cannot be said by one column's values stands for all rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from unerring.matching.kernel.columns import DTYPES
from unerring.matching.kernel.constants import INT_MAX, INT_MIN
from unerring.matching.kernel.scalar import CODED, FLOAT, INT, TIME
from unerring.rules import JoinPlan, PatternPlan, WindowPlan, expressions as ex, patterns as pt


@dataclass(frozen=True, slots=True)
class Is:
    """A text column has this text."""

    column: str
    text: str | bytes


@dataclass(frozen=True, slots=True)
class Within:
    """A number column is between these, both included; as a float where one side of the comparison is one."""

    column: str
    low: float
    high: float
    as_float: bool


Wanted = tuple[Is | Within, ...]
"""A row matters only if one of these holds."""


def wanted_rows(plan: PatternPlan | WindowPlan | JoinPlan, passes_over: bool) -> Wanted | None:
    """The rows that can matter to a pattern or a window on one stream; None: all of them.

    `passes_over`: a row that none of a pattern's variables accepts changes nothing. Only the kernel knows: with a
    strict gap it would end a run. Stop conditions look at every row.
    """
    if isinstance(plan, JoinPlan) or len(plan.inputs) > 1:
        return None
    admitted = _any_of([plan.inputs[0].where])
    if not isinstance(plan, PatternPlan) or not passes_over or _stops(plan.pattern):
        return admitted
    return _narrower([admitted, _any_of([variable.condition for variable in plan.variables])])


def _stops(pattern: pt.Pattern) -> bool:
    return any(isinstance(node, pt.Gap) and node.until is not None for node in pt.nodes(pattern))


def _any_of(conditions: Iterable[ex.Expr | None]) -> Wanted | None:
    wanted: list[Is | Within] = []
    for condition in conditions:
        one = None if condition is None else _wanted(condition)
        if one is None:
            return None
        wanted += one
    return tuple(dict.fromkeys(wanted))


def _wanted(condition: ex.Expr) -> Wanted | None:
    """What must hold of a row on which the condition is true."""
    match condition:
        case ex.Comparison():
            return _compared(condition)
        case ex.InList(operand, options):
            return _any_of([ex.Comparison("=", operand, option) for option in options])
        case ex.And(parts):
            return _narrower([_wanted(part) for part in parts])
        case ex.Or(parts):
            return _any_of(parts)
    return None


def _narrower(parts: list[Wanted | None]) -> Wanted | None:
    """All of these hold: ranges of one column are cut, and of the rest one is enough. Texts are likely to be rarer."""
    known = [part for part in parts if part is not None]
    ranges: dict[tuple[str, bool], Within] = {}
    for part in known:
        match part:
            case (Within(column, low, high, as_float),):
                other = ranges.get((column, as_float), part[0])
                cut = Within(column, max(low, other.low), min(high, other.high), as_float)  # type: ignore[union-attr]
                ranges[column, as_float] = cut
    known = [part for part in known if len(part) != 1 or isinstance(part[0], Is)] + [(one,) for one in ranges.values()]
    return min(known, key=lambda part: (any(isinstance(one, Within) for one in part), len(part)), default=None)


_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


def _compared(condition: ex.Comparison) -> Wanted | None:
    """A column compared with a constant, on either side."""
    op, left, right = condition.op, condition.left, condition.right
    if isinstance(left, ex.Literal) and op in _MIRRORED:
        op, left, right = _MIRRORED[op], right, left
    if not (isinstance(left, ex.Attribute) and left.at == ex.HERE and isinstance(right, ex.Literal)):
        return None
    value = right.value
    if op not in _MIRRORED or value is None:
        return None
    if left.type in CODED:
        return (Is(left.name, value),) if op == "=" and isinstance(value, str | bytes) else None
    as_float = FLOAT in (left.type, right.type)
    known = left.type in (INT, FLOAT, TIME) and left.type in DTYPES and right.type in (INT, FLOAT, TIME)
    if not known or not isinstance(value, int | float) or (not as_float and not INT_MIN <= value <= INT_MAX):
        return None
    if as_float:
        value = float(value)
        if math.isnan(value):
            return None
    least, most = (-math.inf, math.inf) if as_float else (INT_MIN, INT_MAX)
    low, high = (least if op[0] == "<" else value), (most if op[0] == ">" else value)
    return (Within(left.name, low, high, as_float),)
