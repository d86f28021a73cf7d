"""One thing different: a rule or its rows with one change, so that it can be tried what the change does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, cast

from unerring.matching.outputs import Row, merge_order
from unerring.model import ColumnType, Event, Key, Stamp
from unerring.rules import Expr, PatternPlan, expressions as ex, patterns as pt

ORDINAL: Final = 1 << 40
"""An ordinal after all others of its time: that of an event that is only supposed."""


def granted(plan: PatternPlan, variable: str, event: Event) -> PatternPlan:
    """The rule with the variable's condition relaxed, so that it holds on this event too."""
    same = ex.And(
        (
            ex.Comparison("=", ex.EventTime(), ex.Literal(event.stamp.time, ColumnType.TIME)),
            ex.Comparison("=", ex.EventOrdinal(), ex.Literal(event.stamp.ordinal, ColumnType.INT)),
        )
    )
    variables = tuple(
        one if one.name != variable or one.condition is None else replace(one, condition=ex.Or((same, one.condition)))
        for one in plan.variables
    )
    return replace(plan, variables=variables)


def extended(plan: PatternPlan, more_us: int) -> PatternPlan:
    """The rule with its times longer by so much."""
    within_us = None if plan.within_us is None else plan.within_us + more_us
    return replace(plan, within_us=within_us, pattern=_longer(plan.pattern, more_us))


def _longer(node: Any, more_us: int) -> Any:
    if isinstance(node, tuple):
        return tuple(_longer(part, more_us) for part in node)
    if isinstance(node, pt.Gap) and node.within_us is not None:
        return replace(node, within_us=node.within_us + more_us)
    if not isinstance(node, pt.Pattern) or isinstance(node, pt.Absence):
        return node
    changes = {name: _longer(getattr(node, name), more_us) for name in ex.field_names(type(node))}
    return replace(cast(Any, node), **changes)


def without(rows: Sequence[Row], event: Event) -> list[Row]:
    return [row for row in rows if row.event is not event]


def added(
    plan: PatternPlan, variable: str, key: Key, rows: Sequence[Row], time_us: int
) -> tuple[PatternPlan, list[Row]]:
    """The rule and its rows with one more event, which satisfies the variable and has no other value than its key."""
    defined = plan.variable(variable)
    sources = [one for one in plan.inputs if defined.stream in (None, one.name)]
    source = sources[0]
    payload: dict[str, Any] = dict.fromkeys((column.name for column in source.schema.columns), None)
    payload |= dict(zip(source.key, key, strict=True))
    event = Event(source.schema.name, Stamp(time_us, ORDINAL), key, payload)
    ranks = {row.event.stream: row.rank for row in rows}
    row = Row(ranks.get(event.stream, max(ranks.values(), default=0)), event)
    return granted(plan, variable, event), sorted([*rows, row], key=merge_order)


def relaxed(condition: Expr) -> tuple[Expr, ...]:
    """The parts of which all have to hold."""
    if isinstance(condition, ex.And):
        return tuple(part for inner in condition.parts for part in relaxed(inner))
    return (condition,)
