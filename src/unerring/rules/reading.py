"""Finds out what an expression reads: which rows, how far around, the row at hand alone or more."""

from __future__ import annotations

from collections.abc import Iterator

from unerring.rules.expressions import (
    HERE,
    Aggregate,
    At,
    Attribute,
    Classifier,
    EventOrdinal,
    EventTime,
    Expr,
    MatchNumber,
    WindowBound,
    field_names,
)


def walk(expr: Expr, into_aggregates: bool = True) -> Iterator[Expr]:
    """The node and all below it, top first."""
    yield expr
    if into_aggregates or not isinstance(expr, Aggregate):
        for name in field_names(type(expr)):
            yield from _walk_value(getattr(expr, name), into_aggregates)


def _walk_value(value: object, into_aggregates: bool) -> Iterator[Expr]:
    if isinstance(value, Expr):
        yield from walk(value, into_aggregates)
    elif isinstance(value, tuple):
        for item in value:
            yield from _walk_value(item, into_aggregates)


def columns_read(expr: Expr) -> set[str]:
    """The names of all payload columns that it reads, of whatever stream."""
    return {node.name for node in walk(expr) if isinstance(node, Attribute)}


def depth_of(expr: Expr) -> int:
    """How deep its nodes are nested; without recursion, so that it can be asked of any."""
    depth = 0
    level: list[object] = [expr]
    while level:
        depth += 1
        values = [getattr(node, name) for node in level for name in field_names(type(node))]
        level = []
        while values:
            value = values.pop()
            if isinstance(value, tuple):
                values += value
            elif isinstance(value, Expr):
                level.append(value)
    return depth


def positions(expr: Expr) -> Iterator[At]:
    """The `At` of every leaf that reads a row, not those inside an aggregate's arguments."""
    if isinstance(expr, Attribute | EventTime | EventOrdinal | Classifier):
        yield expr.at
    elif not isinstance(expr, Aggregate):
        for name in field_names(type(expr)):
            value = getattr(expr, name)
            for node in value if isinstance(value, tuple) else (value,):
                for part in node if isinstance(node, tuple) else (node,):
                    if isinstance(part, Expr):
                        yield from positions(part)


def of_row_alone(expr: Expr) -> bool:
    """Whether the value depends on the row at hand and nothing else: such conditions run over whole columns at once."""
    return all(at == HERE for at in positions(expr)) and not any(
        isinstance(node, Aggregate | Classifier | MatchNumber | WindowBound) for node in walk(expr)
    )


def lookahead(expr: Expr) -> int:
    """How many rows after the latest bound row it may read (NEXT)."""
    return max((0, *(at.shift for at in _every_position(expr))))


def lookback(expr: Expr) -> int:
    """How many rows before the first bound row it may read (PREV)."""
    return max((0, *(-at.shift for at in _every_position(expr))))


def _every_position(expr: Expr) -> Iterator[At]:
    """Also those inside an aggregate's arguments."""
    return (n.at for n in walk(expr) if isinstance(n, Attribute | EventTime | EventOrdinal | Classifier))
