"""The numbers of a rule, by name: what somebody turns when they ask what another threshold or time would give.

`within`, `window.size`, `gap1.within`, `hot.1` (the first number in the condition of step hot), `where.Reading.1`,
`having.1`, `condition.1`. Numbers in measures are left out: they change what a situation says, not when it arises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, cast

from unerring.model import ColumnType, RuleError
from unerring.rules.expressions import Expr, Literal, field_names
from unerring.rules.patterns import Gap, Pattern, Quantified
from unerring.rules.plan import Plan

TIMES: Final = ("within_us", "size_us", "slide_us", "gap_us", "offset_us")
COUNTS: Final = ("size", "slide", "least", "most")


@dataclass(frozen=True, slots=True)
class Number:
    """One number of a rule."""

    name: str
    value: int | float
    where: str
    """The expression or part that it stands in."""
    duration: bool = False
    """It is a length of time, in microseconds."""


Turn = Callable[[Number], int | float]


def numbers_of(plan: Plan) -> list[Number]:
    """All numbers of a rule, in the order in which they stand."""
    found: list[Number] = []

    def note(number: Number) -> int | float:
        found.append(number)
        return number.value

    _turned(plan, note)
    return found


def with_number(plan: Plan, name: str, value: int | float) -> Plan:
    """The rule with one number different."""
    known = {number.name: number for number in numbers_of(plan)}
    if name not in known:
        raise RuleError(f"rule {plan.name} has no number {name!r}; it has {', '.join(known) or 'none'}")
    if isinstance(known[name].value, int) and not float(value).is_integer():
        raise RuleError(f"rule {plan.name}: {name} is a whole number, and {value} is not")
    kind = type(known[name].value)
    return _turned(plan, lambda number: kind(value) if number.name == name else number.value)


def _turned(plan: Plan, turn: Turn) -> Plan:
    changes: dict[str, Any] = {}
    inputs = [(f"where.{source.name}", source.where, source) for source in plan.inputs]
    changes["inputs"] = tuple(
        replace(source, where=None if where is None else _expression(where, label, turn))
        for label, where, source in inputs
    )
    for name, value in _parts(plan):
        changes[name] = value(turn)
    return cast(Plan, replace(cast(Any, plan), **changes))


def _parts(plan: Plan) -> Iterator[tuple[str, Callable[[Turn], Any]]]:
    within_us = getattr(plan, "within_us", None)
    if within_us is not None:
        yield "within_us", lambda turn: turn(Number("within", within_us, "within", duration=True))
    if (window := getattr(plan, "window", None)) is not None:
        yield "window", lambda turn: _fields(window, "window", turn)
    if (variables := getattr(plan, "variables", None)) is not None:
        yield (
            "variables",
            lambda turn: tuple(
                one if one.condition is None else replace(one, condition=_expression(one.condition, one.name, turn))
                for one in variables
            ),
        )
    if (pattern := getattr(plan, "pattern", None)) is not None:
        yield "pattern", lambda turn: _pattern(pattern, [0], turn)
    for name in ("having", "condition"):
        if (expr := getattr(plan, name, None)) is not None:
            yield name, partial(_expression, expr, name)
    if (parameters := getattr(plan, "parameters", None)) is not None:
        yield (
            "parameters",
            lambda turn: tuple(
                (name, turn(Number(name, value, "parameter")) if _is_number(value) else value)
                for name, value in parameters
            ),
        )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _expression(expr: Expr, label: str, turn: Turn) -> Expr:
    count = 0

    def inner(node: Any) -> Any:
        nonlocal count
        if isinstance(node, tuple):
            return tuple(map(inner, node))
        if isinstance(node, Literal) and node.type in (ColumnType.INT, ColumnType.FLOAT) and node.value is not None:
            count += 1
            value = turn(Number(f"{label}.{count}", cast(Any, node.value), str(expr)))
            return node if value == node.value else Literal(value, node.type)
        if not isinstance(node, Expr):
            return node
        changed = {name: inner(getattr(node, name)) for name in _given(node)}
        return replace(cast(Any, node), **changed)

    return cast(Expr, inner(expr))


def _given(node: Any) -> tuple[str, ...]:
    return () if isinstance(node, Literal) else field_names(type(node))


def _pattern(node: Any, gaps: list[int], turn: Turn) -> Any:
    if isinstance(node, tuple):
        return tuple(_pattern(part, gaps, turn) for part in node)
    if not isinstance(node, Pattern):
        return node
    label = "gap"
    if isinstance(node, Gap | Quantified) or getattr(node, "within_us", None) is not None:
        gaps[0] += 1
        label = f"{type(node).__name__.lower()}{gaps[0]}"
    changed = {
        name: value if isinstance(value := getattr(node, name), int) else _pattern(value, gaps, turn)
        for name in field_names(type(node))
    }
    return _fields(replace(cast(Any, node), **changed), label, turn)


def _fields(node: Any, label: str, turn: Turn) -> Any:
    changed = {
        name: turn(Number(f"{label}.{name.removesuffix('_us')}", value, str(node), duration=name in TIMES))
        for name in field_names(type(node))
        if name in (*TIMES, *COUNTS) and _is_number(value := getattr(node, name))
    }
    return replace(node, **changed) if changed else node
