"""A condition taken apart: which of its parts held, and of which values."""

from __future__ import annotations

from dataclasses import dataclass

from unerring.matching.evaluation import NotYet, Scope
from unerring.matching.oracle.search import prepared
from unerring.matching.oracle.supposing import relaxed
from unerring.rules import Expr, expressions as ex, walk


@dataclass(frozen=True, slots=True)
class Term:
    """One part, all of which have to hold."""

    text: str
    holds: bool
    values: tuple[tuple[str, object], ...]
    """What it reads."""
    identity: bool = False
    """It asks for one value (`kind = 'B'`): where it fails, this is another sort of event, and no near miss."""


def terms_of(condition: Expr | None, scope: Scope) -> tuple[Term, ...]:
    """The parts of a condition in a scope, those that failed first."""
    if condition is None:
        return ()
    terms = [
        Term(str(part), _value(part, scope) is True, _values(part, scope), _asks_for_one(part))
        for part in relaxed(condition)
    ]
    return tuple(sorted(terms, key=lambda term: term.holds))


def _asks_for_one(part: Expr) -> bool:
    match part:
        case ex.Comparison("=", _, ex.Literal()) | ex.Comparison("=", ex.Literal(), _) | ex.InList() | ex.Like():
            return True
    return False


def _values(part: Expr, scope: Scope) -> tuple[tuple[str, object], ...]:
    read = ex.Attribute | ex.EventTime | ex.KeyValue | ex.Aggregate | ex.WindowBound | ex.Classifier
    leaves = {str(node): node for node in walk(part, into_aggregates=False) if isinstance(node, read)}
    return tuple((text, _value(node, scope)) for text, node in leaves.items())


def _value(expr: Expr, scope: Scope) -> object:
    try:
        return prepared(expr)(scope)
    except NotYet:
        return None
