"""SQL expressions become plan expressions: which row each column is read from, and the types checked on the way.

| written | in DEFINE of A | in MEASURES |
|---|---|---|
| `x` | the row under test | LAST(x) of the match |
| `A.x` | the row under test | the last row bound to A |
| `B.x` | the last row bound to B so far | the last row bound to B |
| `FIRST(B.x, 1)`, `LAST(B.x, 1)` | the second row bound to B, the last but one | the same (RUNNING) |
| `PREV(…)`, `NEXT(…)` | rows before and after that row, whatever they are bound to | the same |

All columns within one navigation or aggregate belong to one variable. Where the row of a navigation is not there, the
whole navigation is NULL: `PREV(coalesce(x, 0))` of the first row is NULL, not 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from sqlglot import exp

from unerring.model import ColumnType, RuleError
from unerring.rules import FUNCTIONS, NONDETERMINISTIC, expressions as ex, walk
from unerring.sql import scalars
from unerring.sql.dialect import Semantics
from unerring.sql.names import Names, TableColumn
from unerring.sql.predicates import PREDICATES

NAVIGATIONS: Final = ("FIRST", "LAST", "PREV", "NEXT")
OFFSET_MAX: Final = 1_000_000
T = TypeVar("T", bound=ex.Expr)


@dataclass(frozen=True, slots=True)
class Place:
    """Where an expression stands."""

    clause: str
    """DEFINE or MEASURES."""
    defining: str | None = None
    """The variable under test, in DEFINE."""
    within: str = ""
    """The aggregate or navigation around it."""
    at: ex.At | None = None
    """The row that a navigation around it has found, variables aside; `HERE` within an aggregate."""


class Lowering:
    """Expressions of one MATCH_RECOGNIZE."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self._list: exp.Expr | None = None

    def condition(self, node: exp.Expr, variable: str) -> ex.Expr:
        """A DEFINE condition."""
        lowered = self.lower(node, Place("DEFINE", variable))
        if lowered.type not in (ColumnType.BOOL, None):
            raise self.names.source.wrong(
                node, f"{variable} is defined by {lowered}, which is {lowered.type}, not a condition"
            )
        return lowered

    def measure(self, node: exp.Expr) -> ex.Expr:
        """A MEASURES expression. A list can be one as a whole; expressions do not know it."""
        inner = node
        while isinstance(inner, Semantics | exp.Paren):
            inner = inner.this
        self._list = inner
        return self.lower(node, Place("MEASURES"))

    # --- the tree ---

    def lower(self, node: exp.Expr, place: Place) -> ex.Expr:
        match node:
            case exp.Paren():
                return self.lower(node.this, place)
            case exp.Column():
                return self._column(node, place)
            case Semantics():
                return self._semantics(node, place)
            case exp.Literal() | exp.Boolean() | exp.Null() | exp.Interval():
                return self.built(node, lambda: _constant(node))
            case exp.Cast():
                return self._cast(node, place)
            case exp.Window() | exp.Filter() | exp.WithinGroup():
                raise self.names.source.wrong(
                    node, f"{place.clause} takes plain aggregates, without OVER, FILTER or WITHIN GROUP"
                )
            case exp.Query() | exp.Subquery() | exp.Exists():
                raise self.names.source.wrong(
                    node, f"a subquery is not allowed in {place.clause}; join it before or after"
                )
        name = _function_name(node)
        if name in NAVIGATIONS:
            return self._navigation(node, name, place, final=False)
        if name == "CLASSIFIER":
            return self._classifier(node, place)
        if name == "MATCH_NUMBER":
            if _arguments(node):
                raise self.names.source.wrong(node, "MATCH_NUMBER() takes no argument")
            return ex.MatchNumber()
        if scalars.aggregate_of(node) is not None:
            return self._aggregate(node, place, final=False)
        predicate = PREDICATES.get(type(node))
        if predicate is not None:
            return predicate(self, node, place)
        return self._call(node, place)

    def built(self, node: exp.Expr, build: Callable[[], T]) -> T:
        """The result of `build`; its errors about types and names get their place in the text."""
        try:
            return build()
        except RuleError as error:
            raise self.names.source.wrong(node, str(error)) from None

    # --- leaves ---

    def _column(self, node: exp.Column, place: Place) -> ex.Expr:
        if isinstance(node.this, exp.Star):
            raise self.names.source.wrong(node, f"{node.sql()} can only be counted: count({node.sql()})")
        if node.args.get("db") is not None:
            raise self.names.source.wrong(node, f"{node.sql()} has too many parts; write variable.column")
        if node.table == "" and not node.this.args.get("quoted") and node.name.lower() in NONDETERMINISTIC:
            raise self.names.source.wrong(node, f"{node.name} {NONDETERMINISTIC[node.name.lower()]}")
        column = self.names.readable(node.this)
        return _read(column, self._at(node.args.get("table"), place))

    def _at(self, qualifier: exp.Expr | None, place: Place) -> ex.At:
        """The row that a column with this qualifier is read from."""
        members = () if qualifier is None else self.names.members(qualifier)
        if place.at == ex.HERE:
            return ex.HERE
        at = place.at or ex.At(which=ex.Which.LAST)
        # In DEFINE the last row of the variable under test, or of all variables, is the row under test.
        own = place.defining is not None and (not members or place.defining in members)
        if own and at.which is ex.Which.LAST and not at.offset:
            return ex.At(shift=at.shift)
        return replace(at, variables=members)

    def _classifier(self, node: exp.Expr, place: Place) -> ex.Expr:
        arguments = _arguments(node)
        qualifier = arguments[0] if arguments else None
        if len(arguments) > 1 or (isinstance(qualifier, exp.Expr) and not isinstance(qualifier, exp.Column)):
            raise self.names.source.wrong(node, "CLASSIFIER() takes nothing or one variable")
        members = () if qualifier is None else self.names.members(qualifier.this)
        if place.at == ex.HERE:
            return ex.Classifier(ex.HERE)
        return ex.Classifier(replace(place.at or ex.At(which=ex.Which.LAST), variables=members))

    # --- navigation ---

    def _semantics(self, node: Semantics, place: Place) -> ex.Expr:
        final, inner = bool(node.args["final"]), node.this
        while isinstance(inner, exp.Paren):
            inner = inner.this
        if final and place.clause == "DEFINE":
            raise self.names.source.wrong(
                node, "FINAL looks at the whole match, which DEFINE does not know yet; leave it out"
            )
        name = _function_name(inner)
        if name in ("FIRST", "LAST"):
            return self._navigation(inner, name, place, final)
        if scalars.aggregate_of(inner) is not None:
            return self._aggregate(inner, place, final)
        word = "FINAL" if final else "RUNNING"
        raise self.names.source.wrong(
            node, f"{word} goes with FIRST, LAST or an aggregate, not with {name or inner.sql()}"
        )

    def _navigation(self, node: exp.Expr, name: str, place: Place, final: bool) -> ex.Expr:
        if place.within:
            raise self.names.source.wrong(
                node, f"{name} within {place.within}; only PREV(FIRST or LAST) and NEXT(FIRST or LAST) nest"
            )
        logical = name in ("FIRST", "LAST")
        argument, number = self._split(node, name, 0 if logical else 1)
        at = ex.At(which=ex.Which.LAST)
        if logical:
            at = ex.At(which=ex.Which(name.lower()), offset=number, final=final)
        else:
            inner, inner_final = argument, False
            while isinstance(inner, Semantics | exp.Paren):
                inner_final = inner_final or bool(inner.args.get("final"))
                inner = inner.this
            inner_name = _function_name(inner)
            if inner_name in ("FIRST", "LAST"):
                if inner_final and place.clause == "DEFINE":
                    raise self.names.source.wrong(
                        node, "FINAL looks at the whole match, which DEFINE does not know yet"
                    )
                argument, offset = self._split(inner, inner_name, 0)
                at = ex.At(which=ex.Which(inner_name.lower()), offset=offset, final=inner_final)
            at = replace(at, shift=-number if name == "PREV" else number)
        self._one_variable(argument, name)
        lowered = self.lower(argument, replace(place, within=name, at=at))
        return _null_without_row(lowered)

    def _split(self, node: exp.Expr, name: str, default: int) -> tuple[exp.Expr, int]:
        """A navigation's argument and its offset."""
        arguments = _arguments(node)
        if not 1 <= len(arguments) <= 2:
            raise self.names.source.wrong(
                node, f"{name} takes an expression and an offset, not {len(arguments)} arguments"
            )
        if len(arguments) == 1:
            return arguments[0], default
        offset = arguments[1]
        if not isinstance(offset, exp.Literal) or not offset.name.isdigit() or int(offset.name) > OFFSET_MAX:
            raise self.names.source.wrong(offset, f"the offset of {name} must be a whole number from 0 to {OFFSET_MAX}")
        return arguments[0], int(offset.name)

    def _one_variable(self, argument: exp.Expr, name: str, constants: bool = False) -> tuple[str, ...]:
        """The variable that all columns of a navigation's or aggregate's argument belong to."""
        leaves: list[tuple[exp.Expr, tuple[str, ...]]] = []
        for node in argument.find_all(exp.Column, exp.Anonymous):
            if isinstance(node, exp.Column) and not _within_classifier(node):
                qualifier = node.args.get("table")
                leaves.append((node, () if qualifier is None else self.names.members(qualifier)))
            elif isinstance(node, exp.Anonymous) and node.name.upper() == "CLASSIFIER":
                named = _arguments(node)
                leaves.append((node, self.names.members(named[0].this) if named else ()))
        if not leaves and not constants:
            raise self.names.source.wrong(argument, f"{name} reads no column; give it one, or leave {name} out")
        for leaf, members in leaves[1:]:
            if members != leaves[0][1]:
                raise self.names.source.wrong(
                    leaf, f"{name} reads rows of several variables; all columns in it must belong to one"
                )
        return leaves[0][1] if leaves else ()

    # --- aggregates, functions, casts ---

    def _aggregate(self, node: exp.Expr, place: Place, final: bool) -> ex.Expr:
        if place.within:
            raise self.names.source.wrong(
                node, f"an aggregate within {place.within} has no meaning; leave one of them out"
            )
        name = scalars.aggregate_of(node) or ""
        if name == "array_agg" and node is not self._list:
            raise self.names.source.wrong(
                node,
                "array_agg gives a list, which is a whole measure: MEASURES array_agg(x) AS name; within an expression "
                "use string_agg(x, ',')",
            )
        arguments: list[exp.Expr] = _arguments(node)
        distinct = bool(arguments) and isinstance(arguments[0], exp.Distinct)
        if distinct:
            arguments = [*list[exp.Expr](arguments[0].expressions), *arguments[1:]]
        if isinstance(node, exp.GroupConcat):
            separator: exp.Expr = node.args.get("separator") or exp.Literal.string("")
            arguments = [node.this, separator]
        if any(isinstance(argument, exp.Order) for argument in arguments):
            raise self.names.source.wrong(node, f"{name} folds the rows in their order; leave its ORDER BY out")
        if name == "count" and arguments and isinstance(arguments[0], exp.Star):
            return ex.Aggregate("count", final=final)
        if name == "count" and arguments and isinstance(arguments[0].this, exp.Star):
            qualifier = arguments[0].args.get("table")
            members = self.names.members(qualifier) if qualifier is not None else ()
            return ex.Aggregate("count", variables=members, final=final)
        whole = exp.Tuple(expressions=[argument.copy() for argument in arguments])
        variables = self._one_variable(whole, name, constants=True)
        inner = replace(place, within=name, at=ex.HERE)
        lowered = tuple(self.lower(argument, inner) for argument in arguments)
        return self.built(node, lambda: ex.Aggregate(name, lowered, variables, final, distinct))

    def _call(self, node: exp.Expr, place: Place) -> ex.Expr:
        if not isinstance(node, exp.Func):
            raise self.names.source.wrong(node, f"{node.sql()} is not allowed in {place.clause}")
        name = scalars.FUNCTIONS.get(type(node)) or (_function_name(node) or "").lower()
        if name not in FUNCTIONS and name in NONDETERMINISTIC:
            raise self.names.source.wrong(node, f"{name}() {NONDETERMINISTIC[name]}")
        arguments = tuple(self.lower(argument, place) for argument in _arguments(node))
        return self.built(node, lambda: ex.Call(name, arguments))

    def _cast(self, node: exp.Cast, place: Place) -> ex.Expr:
        kind = node.to.this.name if isinstance(node.to.this, exp.DType) else str(node.to.this)
        to = scalars.DATATYPES.get(kind)
        if to is None:
            raise self.names.source.wrong(
                node, f"a cast to {node.to.sql()}; use boolean, bigint, double, varchar, varbinary or timestamp"
            )
        if to is ColumnType.TIME and isinstance(node.this, exp.Literal) and node.this.is_string:
            text = node.this.name
            return self.built(node, lambda: ex.Literal(scalars.time_of(text), ColumnType.TIME))
        operand = self.lower(node.this, place)
        cast = operand if operand.type is to else self.built(node, lambda: ex.Cast(operand, to))
        if kind == "DATE":
            return ex.Call("date_trunc", (ex.literal("day"), cast))
        return cast


def _read(column: TableColumn, at: ex.At) -> ex.Expr:
    if column.event_time:
        return ex.EventTime(at)
    return ex.Attribute(column.field, column.type or ColumnType.TEXT, at)


def _constant(node: exp.Expr) -> ex.Expr:
    if isinstance(node, exp.Null):
        return ex.Literal(None, None)
    if isinstance(node, exp.Boolean):
        return ex.literal(bool(node.this))
    if isinstance(node, exp.Interval):
        return ex.literal(scalars.interval_us(node))
    return ex.literal(node.name if node.args.get("is_string") else scalars.number_of(node.name))


def _function_name(node: exp.Expr) -> str:
    """A function's name in capitals; '' for other nodes."""
    if isinstance(node, exp.Anonymous):
        return str(node.name).upper()
    return type(node).sql_names()[0] if isinstance(node, exp.Func) else ""


def _arguments(node: exp.Expr) -> list[exp.Expr]:
    """A function's arguments in the order in which they were written."""
    if isinstance(node, exp.Anonymous):
        return list(node.expressions)
    arguments: list[exp.Expr] = []
    for key in node.arg_types:
        value = node.args.get(key)
        arguments += [part for part in (value if isinstance(value, list) else [value]) if isinstance(part, exp.Expr)]
    return arguments


def _within_classifier(column: exp.Column) -> bool:
    return isinstance(column.parent, exp.Anonymous) and column.parent.name.upper() == "CLASSIFIER"


_STRICT: Final = (
    ex.Attribute,
    ex.EventTime,
    ex.Classifier,
    ex.Literal,
    ex.Arithmetic,
    ex.Negate,
    ex.Comparison,
    ex.Cast,
)


def _null_without_row(lowered: ex.Expr) -> ex.Expr:
    """NULL where the row is not there, also if the expression makes something of NULL."""
    leaf = next(node for node in walk(lowered) if isinstance(node, ex.Attribute | ex.EventTime | ex.Classifier))
    if all(isinstance(node, _STRICT) for node in walk(lowered)) or leaf.at == ex.HERE:
        return lowered
    return ex.Case(((ex.IsNull(ex.EventTime(leaf.at)), ex.Literal(None, None)),), lowered)
