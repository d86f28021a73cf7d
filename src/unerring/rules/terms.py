"""Terms: expressions as one writes them: `Reading.celsius > 80`, `last(hot).celsius + 2`, `prev(Reading).volts`.

A term is made when its rule is built, not before, so that errors in it carry the rule's name. To a type
checker a column is of its column's type, and a comparison is a bool.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any, NoReturn, TypeVar, cast, overload

from unerring.model import ColumnType, RuleError, StreamSchema, refer_with, schema_of, to_time_us
from unerring.rules import expressions as ex

T = TypeVar("T")

Operand = Any
"""A term, or a constant: bool, int, float, str, bytes, datetime or None."""


class Term:
    """An expression to be. `over` names the variables whose rows an aggregate is to range over (`each(...)`)."""

    __slots__ = ("_make", "over")

    def __init__(self, make: Callable[[], ex.Expr], over: tuple[str, ...] | None = None) -> None:
        self._make = make
        self.over = over

    def made(self) -> ex.Expr:
        return self._make()

    def __bool__(self) -> NoReturn:
        raise RuleError(
            "a condition has no value while the rule is being written; combine conditions with & | ~ instead of "
            "and, or, not, and use .isin(...) and .between(...)"
        )

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: Operand) -> Term:  # type: ignore[override]
        return _two(self, other, lambda a, b: ex.Comparison("=", a, b))

    def __ne__(self, other: Operand) -> Term:  # type: ignore[override]
        return _two(self, other, lambda a, b: ex.Comparison("<>", a, b))

    def __lt__(self, other: Operand) -> Term:
        return _two(self, other, lambda a, b: ex.Comparison("<", a, b))

    def __le__(self, other: Operand) -> Term:
        return _two(self, other, lambda a, b: ex.Comparison("<=", a, b))

    def __gt__(self, other: Operand) -> Term:
        return _two(self, other, lambda a, b: ex.Comparison(">", a, b))

    def __ge__(self, other: Operand) -> Term:
        return _two(self, other, lambda a, b: ex.Comparison(">=", a, b))

    def __add__(self, other: Operand) -> Term:
        return _two(self, other, lambda a, b: ex.Arithmetic("+", a, b))

    def __radd__(self, other: Operand) -> Term:
        return _two(other, self, lambda a, b: ex.Arithmetic("+", a, b))

    def __sub__(self, other: Operand) -> Term:
        return _two(self, other, lambda a, b: ex.Arithmetic("-", a, b))

    def __rsub__(self, other: Operand) -> Term:
        return _two(other, self, lambda a, b: ex.Arithmetic("-", a, b))

    def __mul__(self, other: Operand) -> Term:
        return _two(self, other, lambda a, b: ex.Arithmetic("*", a, b))

    def __rmul__(self, other: Operand) -> Term:
        return _two(other, self, lambda a, b: ex.Arithmetic("*", a, b))

    def __truediv__(self, other: Operand) -> Term:
        return _two(self, other, lambda a, b: ex.Arithmetic("/", a, b))

    def __rtruediv__(self, other: Operand) -> Term:
        return _two(other, self, lambda a, b: ex.Arithmetic("/", a, b))

    def __floordiv__(self, other: Operand) -> Term:
        """Truncates towards zero, as SQL does."""
        return _two(self, other, lambda a, b: ex.Arithmetic("div", a, b))

    def __mod__(self, other: Operand) -> Term:
        """Has the sign of the left side, as in SQL."""
        return _two(self, other, lambda a, b: ex.Arithmetic("%", a, b))

    def __neg__(self) -> Term:
        return _one(self, ex.Negate)

    def __and__(self, other: Operand) -> Term:
        return _two(self, other, lambda a, b: ex.And((a, b)))

    def __rand__(self, other: Operand) -> Term:
        return _two(other, self, lambda a, b: ex.And((a, b)))

    def __or__(self, other: Operand) -> Term:
        return _two(self, other, lambda a, b: ex.Or((a, b)))

    def __ror__(self, other: Operand) -> Term:
        return _two(other, self, lambda a, b: ex.Or((a, b)))

    def __invert__(self) -> Term:
        return _one(self, ex.Not)


def expr_of(value: Operand) -> ex.Expr:
    """The expression of a term or a constant."""
    if isinstance(value, Term):
        if value.over is not None:
            raise RuleError("each(...) stands for many rows: aggregate it, as in fn.sum(each(step).column)")
        return value.made()
    return _constant(value)


def _constant(value: Operand) -> ex.Expr:
    if isinstance(value, Row):
        raise RuleError("an event cannot be compared as a whole; name one of its columns")
    if isinstance(value, datetime):
        return ex.Literal(to_time_us(value), ColumnType.TIME)
    return ex.literal(value)


def inner_of(value: Operand) -> ex.Expr:
    """Like `expr_of`, for the argument of an aggregate."""
    return value.made() if isinstance(value, Term) else _constant(value)


def over_of(*values: Operand) -> tuple[str, ...] | None:
    """The variables that several operands range over together."""
    named = {value.over for value in values if isinstance(value, Term) and value.over is not None}
    if len(named) > 1:
        raise RuleError("one aggregate ranges over the rows of one step; each(a) and each(b) cannot be mixed")
    return next(iter(named), None)


def _one(value: Operand, make: Callable[[ex.Expr], ex.Expr]) -> Term:
    return Term(lambda: make(inner_of(value)), over_of(value))


def _two(left: Operand, right: Operand, make: Callable[[ex.Expr, ex.Expr], ex.Expr]) -> Term:
    return Term(lambda: make(inner_of(left), inner_of(right)), over_of(left, right))


# --- rows ------------------------------------------------------------------------------------------------------------


class Row:
    """A row that a term reads: its columns are attributes."""

    __slots__ = ("at", "over", "schema")

    def __init__(self, schema: StreamSchema, at: ex.At, over: tuple[str, ...] | None = None) -> None:
        self.schema = schema
        self.at = at
        self.over = over

    def __getattr__(self, name: str) -> Term:
        if name.startswith("__"):
            raise AttributeError(name)
        schema, at = self.schema, self.at
        return Term(lambda: ex.Attribute(name, schema.column(name).type, at), self.over)

    def __getitem__(self, name: str) -> Term:
        term: Term = getattr(self, name)
        return term

    def __eq__(self, other: Operand) -> Term:  # type: ignore[override]
        return _two(self, other, lambda a, b: ex.Comparison("=", a, b))

    __hash__ = None  # type: ignore[assignment]


class Source:
    """Something a rule can read that is not a declared class: a rule's output."""

    @property
    def schema(self) -> StreamSchema:
        raise RuleError("this object has no columns to read")

    def __getitem__(self, column: str) -> Any:
        return Row(self.schema, ex.HERE)[column]


def schema_for(source: object) -> StreamSchema:
    """The schema of a declared stream, a rule, a rule's timed-out output, or a schema."""
    return source.schema if isinstance(source, Source) else schema_of(source)


def columns(source: type[T] | Source | StreamSchema) -> T:
    """The columns of the current row, for a stream without a class: `columns(schema).celsius`."""
    return cast("T", Row(schema_for(source), ex.HERE))


@overload
def prev(row: type[T], steps: int = 1) -> T: ...
@overload
def prev(row: Source, steps: int = 1) -> Any: ...
@overload
def prev(row: T, steps: int = 1) -> T: ...
def prev(row: object, steps: int = 1) -> Any:
    """The previous row: of the current row (`prev(Reading)`), or of another one (`prev(last(hot))`)."""
    return _shifted(row, -steps)


@overload
def next_row(row: type[T], steps: int = 1) -> T: ...
@overload
def next_row(row: Source, steps: int = 1) -> Any: ...
@overload
def next_row(row: T, steps: int = 1) -> T: ...
def next_row(row: object, steps: int = 1) -> Any:
    """The next row. On a stream it may never come: prefer `prev` from the later event."""
    return _shifted(row, steps)


def _shifted(row: object, shift: int) -> Row:
    base = row if isinstance(row, Row) else Row(schema_for(row), ex.HERE)
    return Row(base.schema, replace(base.at, shift=base.at.shift + shift))


def time_of(row: object) -> Any:
    """The event time of a row: `time_of(Reading)`, `time_of(last(hot))`."""
    base = row if isinstance(row, Row) else Row(schema_for(row), ex.HERE)
    return Term(lambda: ex.EventTime(base.at), base.over)


# --- what operators cannot say ---------------------------------------------------------------------------------------


def is_null(value: Operand) -> Any:
    return _one(value, ex.IsNull)


def isin(value: Operand, *options: Operand) -> Any:
    return Term(lambda: ex.InList(inner_of(value), tuple(map(inner_of, options))), over_of(value))


def between(value: Operand, low: Operand, high: Operand) -> Any:
    """Both ends included."""
    term: Any = value
    return (term >= low) & (term <= high)


def like(value: Operand, pattern: str, escape: str = "") -> Any:
    return Term(lambda: ex.Like(inner_of(value), pattern, escape), over_of(value))


def when(condition: Operand, value: Operand, otherwise: Operand = None) -> Any:
    """`value` if the condition is true, else `otherwise`."""
    return Term(
        lambda: ex.Case(((inner_of(condition), inner_of(value)),), inner_of(otherwise)),
        over_of(condition, value, otherwise),
    )


def coalesce(*options: Operand) -> Any:
    return Term(lambda: ex.Coalesce(tuple(map(inner_of, options))), over_of(*options))


def cast_to(value: Operand, to: ColumnType) -> Any:
    return Term(lambda: ex.Cast(inner_of(value), to), over_of(value))


refer_with(lambda schema, name: getattr(Row(schema, ex.HERE), name))
