"""Conditions on instances, as people write them in SQL: `machine = 'press-1' and status in ('failed', 'parked')`.

Comparisons, IN, LIKE, IS NULL, AND, OR and NOT over the fields of an instance and the attributes that its process
declares. A comparison with what an instance does not have does not hold.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from typing import Any, Final

import sqlglot
from sqlglot import exp

from unerring.model import CallerError

Get = Callable[[str], Any]
"""The value of a field of one instance; None if it has none."""
Holds = Callable[[Get], bool]
Value = Callable[[Get], Any]

FIELDS: Final = ("instance", "process", "version", "status", "reason", "parent", "ended_us", "group", "view", "role")
WHERE_CHARS_MAX: Final = 10_000
DEEP_MAX: Final = 50

_COMPARED: Final[dict[type[exp.Expression], Callable[[Any, Any], bool]]] = {
    exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
    exp.LT: operator.lt,
    exp.LTE: operator.le,
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
}


def where(text: str, attributes: Iterable[str] = ()) -> Holds:
    """Read a condition; CallerError with what is wrong in it."""
    if not text.strip():
        return lambda get: True
    if len(text) > WHERE_CHARS_MAX:
        raise CallerError(f"the condition has {len(text)} characters; it may have {WHERE_CHARS_MAX}")
    try:
        tree = sqlglot.parse_one(text, into=exp.Condition)
    except (sqlglot.ParseError, sqlglot.TokenError, RecursionError) as error:
        why = str(error).partition("\n")[0]
        raise CallerError(
            f"{text!r} is not a condition ({why}); write for example: status = 'failed' and machine = 'press-1'"
        ) from None
    return _read(tree, (*FIELDS, *attributes), 0)


def equalities(text: str) -> list[tuple[str, Any]]:
    """Of a condition that `where` can read: names and the values that each must have for it to hold, so that an index
    can be asked. Not all that can be known: what is between ANDs, not within OR and NOT."""
    found: list[tuple[str, Any]] = []
    parts: list[Any] = [sqlglot.parse_one(text, into=exp.Condition)] if text.strip() else []
    while parts:
        part = parts.pop()
        if isinstance(part, exp.Paren):
            parts.append(part.this)
        elif isinstance(part, exp.And):
            parts += [part.right, part.left]
        elif isinstance(part, exp.EQ):
            for name, value in ((part.left, part.right), (part.right, part.left)):
                if isinstance(name, exp.Column) and isinstance(value, exp.Literal):
                    found.append((name.name, _value(value, ())(lambda _: None)))
    return found


def _read(tree: Any, names: tuple[str, ...], depth: int) -> Holds:
    if depth > DEEP_MAX:
        raise CallerError(f"the condition is nested more than {DEEP_MAX} deep; write a shorter one")
    if isinstance(tree, exp.Paren):
        return _read(tree.this, names, depth + 1)
    if isinstance(tree, exp.Not):
        inner = _read(tree.this, names, depth + 1)
        return lambda get: not inner(get)
    if isinstance(tree, exp.And | exp.Or):
        left, right = _read(tree.left, names, depth + 1), _read(tree.right, names, depth + 1)
        if isinstance(tree, exp.And):
            return lambda get: left(get) and right(get)
        return lambda get: left(get) or right(get)
    if isinstance(tree, exp.Is) and isinstance(tree.expression, exp.Null):
        value = _value(tree.this, names)
        return lambda get: value(get) is None
    if isinstance(tree, exp.In) and tree.expressions:
        value, options = _value(tree.this, names), [_value(one, names) for one in tree.expressions]
        return lambda get: (known := value(get)) is not None and any(known == option(get) for option in options)
    if isinstance(tree, exp.Like) and isinstance(tree.expression, exp.Literal):
        value, pattern = _value(tree.this, names), _pattern(tree.expression.name)
        return lambda get: isinstance(known := value(get), str) and pattern.fullmatch(known) is not None
    compare = _COMPARED.get(type(tree))
    if compare is not None:
        return _comparison(compare, _value(tree.left, names), _value(tree.right, names))
    raise CallerError(
        f"a condition cannot have {tree.sql()!r}; it can have =, <>, <, >, <=, >=, IN, LIKE, IS NULL, AND, OR and NOT"
    )


def _comparison(compare: Callable[[Any, Any], bool], left: Value, right: Value) -> Holds:
    def holds(get: Get) -> bool:
        one, other = left(get), right(get)
        if one is None or other is None:
            return False
        try:
            return bool(compare(one, other))
        except TypeError:
            return False

    return holds


def _value(tree: Any, names: tuple[str, ...]) -> Value:
    if isinstance(tree, exp.Column):
        name = tree.name
        if name not in names:
            raise CallerError(
                f"no process declares an attribute {name!r}; there are {', '.join(dict.fromkeys(names))} (declare it "
                "with Process(..., attributes=[...]); text is written in single quotes)"
            )
        return lambda get: get(name)
    if isinstance(tree, exp.Neg) and isinstance(tree.this, exp.Literal):
        negative = -_number(tree.this)
        return lambda get: negative
    if isinstance(tree, exp.Literal):
        literal = tree.name if tree.is_string else _number(tree)
        return lambda get: literal
    if isinstance(tree, exp.Boolean):
        truth = bool(tree.this)
        return lambda get: truth
    raise CallerError(f"a condition cannot compare {tree.sql()!r}; compare an attribute with text or a number")


def _number(tree: exp.Literal) -> float | int:
    try:
        return float(tree.name) if any(letter in tree.name for letter in ".eE") else int(tree.name)
    except ValueError:
        raise CallerError(f"{tree.name!r} is not a number") from None


def _pattern(like: str) -> re.Pattern[str]:
    parts = [{"%": ".*", "_": "."}.get(letter, re.escape(letter)) for letter in like]
    return re.compile("".join(parts), re.DOTALL)
