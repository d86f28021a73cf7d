"""The meaning of expressions: one evaluator, for the oracle, the interpreter and every test of a faster form.

`prepare(expr)` turns a tree into a closure over a `Scope`; `evaluate(expr, scope)` does it once. The rules:

- NULL is None. Comparisons and arithmetic with NULL are NULL; AND, OR and NOT are three-valued; a condition holds
  only if it is true.
- INT is 64 bits, signed. A result that does not fit is NULL, and so is `div` or `%` by zero. A sum is a left fold in
  row order; once it has left 64 bits it is NULL. Over a trailing window sums and averages are exact (`exact_sums`).
- FLOAT is IEEE 754 binary64: `/` by zero gives an infinity or NaN, NaN is unequal to everything, -0.0 = 0.0. Beside a
  FLOAT an INT is first converted to the nearest FLOAT, in comparisons too.
- TEXT compares by code points (the same as by UTF-8 bytes), BYTES by unsigned bytes, false < true.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from unerring.matching.exact_sums import EXACT
from unerring.matching.outputs import canonical_key
from unerring.model import ColumnType, Event, Key, RuleError, SchemaError, Value, to_datetime, to_time_us
from unerring.rules import AGGREGATES, FUNCTIONS, INT_MAX, INT_MIN, expressions as ex, fit


class NotYet(Exception):
    """Not an error: the value depends on a row that is not known yet (NEXT beyond the rows so far)."""


class Scope(Protocol):
    """Where an expression looks: the row at hand and what is bound around it."""

    @property
    def key(self) -> Key: ...

    @property
    def match_number(self) -> int | None: ...

    @property
    def window(self) -> tuple[int, int] | None: ...

    @property
    def exact_sums(self) -> bool:
        """Whether it is a window that rows leave one by one (see `exact_sums`)."""
        ...

    def here(self) -> Event | None:
        """The row at hand."""
        ...

    def row(self, at: ex.At) -> Event | None:
        """The row that `at` names; raises NotYet when it may still come."""
        ...

    def label(self, at: ex.At) -> str | None:
        """The variable that row is bound to, if it is bound to one of `at.variables`."""
        ...

    def rows(self, variables: tuple[str, ...], final: bool) -> Iterable[Scope]:
        """One scope for each row that an aggregate ranges over, in order, with that row at hand."""
        ...


Prepared = Callable[[Scope], Any]


def evaluate(expr: ex.Expr, scope: Scope) -> Value:
    """The value of `expr`."""
    value: Value = prepare(expr)(scope)
    return value


def holds(condition: Prepared | None, scope: Scope) -> bool:
    """Whether a prepared condition is true: NULL is not."""
    return condition is None or condition(scope) is True


def prepare(expr: ex.Expr) -> Prepared:
    """A closure that gives the value in a scope."""
    build = _BUILDERS.get(type(expr))
    if build is None:
        raise RuleError(f"{type(expr).__name__} is not an expression")
    prepared: Prepared = build(expr)
    return prepared


# --- leaves ----------------------------------------------------------------------------------------------------------


def _literal(expr: ex.Literal) -> Prepared:
    value = expr.value
    return lambda scope: value


def _attribute(expr: ex.Attribute) -> Prepared:
    name, at = expr.name, expr.at
    if at == ex.HERE:

        def here(scope: Scope) -> Any:
            row = scope.here()
            return None if row is None else row.payload.get(name)

        return here

    def elsewhere(scope: Scope) -> Any:
        row = scope.row(at)
        return None if row is None else row.payload.get(name)

    return elsewhere


def _event_time(expr: ex.EventTime) -> Prepared:
    at = expr.at

    def time(scope: Scope) -> Any:
        row = scope.row(at)
        return None if row is None else row.stamp.time

    return time


def _event_ordinal(expr: ex.EventOrdinal) -> Prepared:
    at = expr.at

    def ordinal(scope: Scope) -> Any:
        row = scope.row(at)
        return None if row is None else row.stamp.ordinal

    return ordinal


def _window_bound(expr: ex.WindowBound) -> Prepared:
    index = 0 if expr.bound == "start" else 1
    return lambda scope: None if scope.window is None else scope.window[index]


# --- numbers ---------------------------------------------------------------------------------------------------------


def _divide(left: float, right: float) -> float:
    if right:
        return left / right
    if left != left or not left or right != right:
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def _div(left: int, right: int) -> int | None:
    if not right:
        return None
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _remainder(left: Any, right: Any) -> Any:
    if isinstance(left, float):
        return math.nan if not right or math.isinf(left) else math.fmod(left, right)
    return (-1 if left < 0 else 1) * (abs(left) % abs(right)) if right else None


_OPERATORS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
    "div": _div,
    "%": _remainder,
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _arithmetic(expr: ex.Arithmetic) -> Prepared:
    left, right, apply = prepare(expr.left), prepare(expr.right), _OPERATORS[expr.op]
    if expr.type is ColumnType.FLOAT:

        def floats(scope: Scope) -> Any:
            a, b = left(scope), right(scope)
            return None if a is None or b is None else apply(float(a), float(b))

        return floats

    def integers(scope: Scope) -> Any:
        a, b = left(scope), right(scope)
        if a is None or b is None:
            return None
        value = apply(a, b)
        return value if value is not None and INT_MIN <= value <= INT_MAX else None

    return integers


def _negate(expr: ex.Negate) -> Prepared:
    operand = prepare(expr.operand)

    def negate(scope: Scope) -> Any:
        value = operand(scope)
        return None if value is None else -value if isinstance(value, float) else fit(-value)

    return negate


# --- truth -----------------------------------------------------------------------------------------------------------


def _compared(op: str, left: ex.Expr, right: ex.Expr) -> Callable[[Any, Any], bool | None]:
    apply = _OPERATORS[op]
    if {left.type, right.type} == {ColumnType.INT, ColumnType.FLOAT}:
        return lambda a, b: None if a is None or b is None else apply(float(a), float(b))
    return lambda a, b: None if a is None or b is None else apply(a, b)


def _comparison(expr: ex.Comparison) -> Prepared:
    left, right, compare = prepare(expr.left), prepare(expr.right), _compared(expr.op, expr.left, expr.right)
    return lambda scope: compare(left(scope), right(scope))


def _and(expr: ex.And) -> Prepared:
    parts = tuple(map(prepare, expr.parts))

    def every(scope: Scope) -> bool | None:
        unknown = False
        for part in parts:
            value = part(scope)
            if value is False:
                return False
            unknown = unknown or value is None
        return None if unknown else True

    return every


def _or(expr: ex.Or) -> Prepared:
    parts = tuple(map(prepare, expr.parts))

    def some(scope: Scope) -> bool | None:
        unknown = False
        for part in parts:
            value = part(scope)
            if value is True:
                return True
            unknown = unknown or value is None
        return None if unknown else False

    return some


def _not(expr: ex.Not) -> Prepared:
    operand = prepare(expr.operand)

    def negation(scope: Scope) -> bool | None:
        value = operand(scope)
        return None if value is None else not value

    return negation


def _is_null(expr: ex.IsNull) -> Prepared:
    operand = prepare(expr.operand)
    return lambda scope: operand(scope) is None


def _in_list(expr: ex.InList) -> Prepared:
    operand = prepare(expr.operand)
    options = tuple((prepare(option), _compared("=", expr.operand, option)) for option in expr.options)

    def within(scope: Scope) -> bool | None:
        value, unknown = operand(scope), False
        for option, equal in options:
            equals = equal(value, option(scope))
            if equals is True:
                return True
            unknown = unknown or equals is None
        return None if unknown else False

    return within


def like_regex(pattern: str, escape: str = "") -> re.Pattern[str]:
    """The regular expression of a LIKE pattern."""
    parts: list[str] = []
    letters = iter(pattern)
    for letter in letters:
        if letter == escape:
            plain = next(letters, None)
            if plain is None:
                raise RuleError(f"LIKE {pattern!r} ends with its escape character")
            parts.append(re.escape(plain))
        else:
            parts.append({"%": ".*", "_": "."}.get(letter) or re.escape(letter))
    return re.compile("".join(parts), re.DOTALL)


def _like(expr: ex.Like) -> Prepared:
    operand, regex = prepare(expr.operand), like_regex(expr.pattern, expr.escape)

    def like(scope: Scope) -> bool | None:
        value = operand(scope)
        return None if value is None else regex.fullmatch(value) is not None

    return like


# --- choice, casts, calls --------------------------------------------------------------------------------------------


def _widened(part: ex.Expr, to: ex.Type) -> Prepared:
    """An int among floats becomes a float, so that a value has the type that its expression says."""
    prepared = prepare(part)
    if to is not ColumnType.FLOAT or part.type is not ColumnType.INT:
        return prepared

    def widened(scope: Scope) -> Any:
        value = prepared(scope)
        return None if value is None else float(value)

    return widened


def _case(expr: ex.Case) -> Prepared:
    whens = tuple((prepare(condition), _widened(value, expr.type)) for condition, value in expr.whens)
    otherwise = _widened(expr.otherwise, expr.type)

    def case(scope: Scope) -> Any:
        for condition, value in whens:
            if condition(scope) is True:
                return value(scope)
        return otherwise(scope)

    return case


def _coalesce(expr: ex.Coalesce) -> Prepared:
    options = tuple(_widened(option, expr.type) for option in expr.options)

    def coalesce(scope: Scope) -> Any:
        for option in options:
            value = option(scope)
            if value is not None:
                return value
        return None

    return coalesce


def _cast(expr: ex.Cast) -> Prepared:
    operand, source, to = prepare(expr.operand), expr.operand.type, expr.to

    def convert(scope: Scope) -> Any:
        return cast(operand(scope), source, to)

    return convert


def cast(value: Any, source: ex.Type, to: ColumnType) -> Any:
    """A value as another type, NULL where it has none there.

    Float to int truncates towards zero; text is read as Python and JSON write the type, blanks around it ignored; a
    time is a count of microseconds to numbers and ISO 8601 in UTC to text.
    """
    if value is None or source is to:
        return value
    try:
        return _CASTS[to](value, source)
    except (ValueError, OverflowError, RuleError, SchemaError):
        return None


def _to_bool(value: Any, source: ex.Type) -> bool | None:
    if source is ColumnType.TEXT:
        return {"true": True, "false": False}.get(value.strip().lower())
    return None if value != value else bool(value)


def _to_int(value: Any, source: ex.Type) -> int | None:
    if source is ColumnType.TEXT and not re.fullmatch(r"\s*[+-]?[0-9]+\s*", value):
        return None
    return None if source is ColumnType.BYTES else fit(int(value))


def _to_float(value: Any, source: ex.Type) -> float | None:
    return None if source is ColumnType.BYTES or (source is ColumnType.TEXT and "_" in value) else float(value)


def _to_text(value: Any, source: ex.Type) -> str:
    if source is ColumnType.BOOL:
        return "true" if value else "false"
    if source is ColumnType.BYTES:
        return bytes(value).decode()
    if source is ColumnType.TIME:
        return to_datetime(value).isoformat().replace("+00:00", "Z")
    return repr(value) if source is ColumnType.FLOAT else str(value)


def _to_bytes(value: Any, source: ex.Type) -> bytes | None:
    return value.encode() if source is ColumnType.TEXT else None


def _to_time(value: Any, source: ex.Type) -> int | None:
    if source is ColumnType.TEXT:
        from datetime import UTC, datetime

        moment = datetime.fromisoformat(value.strip())
        return to_time_us(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    return fit(int(value)) if source in (ColumnType.INT, ColumnType.FLOAT) else None


_CASTS: Final[dict[ColumnType, Callable[[Any, ex.Type], Any]]] = {
    ColumnType.BOOL: _to_bool,
    ColumnType.INT: _to_int,
    ColumnType.FLOAT: _to_float,
    ColumnType.TEXT: _to_text,
    ColumnType.BYTES: _to_bytes,
    ColumnType.TIME: _to_time,
}


def _call(expr: ex.Call) -> Prepared:
    function = FUNCTIONS[expr.name]
    arguments = tuple(map(prepare, expr.arguments))

    def call(scope: Scope) -> Any:
        values = [argument(scope) for argument in arguments]
        if function.strict and None in values:
            return None
        return function.call(*values)

    return call


def _aggregate(expr: ex.Aggregate) -> Prepared:
    in_row_order, variables, final = AGGREGATES[expr.name], expr.variables, expr.final
    exact = EXACT.get(expr.name, in_row_order)
    arguments, distinct = tuple(map(prepare, expr.arguments)), expr.distinct

    def aggregate(scope: Scope) -> Any:
        function = exact if scope.exact_sums else in_row_order
        state, seen = function.start(), set()
        for row in scope.rows(variables, final):
            values = tuple(argument(row) for argument in arguments)
            if None in values and not function.nulls:
                continue
            if distinct:
                if (same := canonical_key(values)) in seen:
                    continue
                seen.add(same)
            state = function.step(state, *values)
        return function.finish(state)

    return aggregate


def _key_value(expr: ex.KeyValue) -> Prepared:
    index = expr.index
    return lambda scope: scope.key[index]


def _classifier(expr: ex.Classifier) -> Prepared:
    at = expr.at
    return lambda scope: scope.label(at)


_BUILDERS: Final[dict[type, Callable[[Any], Prepared]]] = {
    ex.Literal: _literal,
    ex.Attribute: _attribute,
    ex.EventTime: _event_time,
    ex.EventOrdinal: _event_ordinal,
    ex.KeyValue: _key_value,
    ex.Classifier: _classifier,
    ex.MatchNumber: lambda expr: lambda scope: scope.match_number,
    ex.WindowBound: _window_bound,
    ex.Arithmetic: _arithmetic,
    ex.Negate: _negate,
    ex.Comparison: _comparison,
    ex.And: _and,
    ex.Or: _or,
    ex.Not: _not,
    ex.IsNull: _is_null,
    ex.InList: _in_list,
    ex.Like: _like,
    ex.Case: _case,
    ex.Coalesce: _coalesce,
    ex.Cast: _cast,
    ex.Call: _call,
    ex.Aggregate: _aggregate,
}
