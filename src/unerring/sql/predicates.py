"""SQL's operators and predicates, each as the plan expressions that mean the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from sqlglot import exp

from unerring.model import ColumnType
from unerring.rules import FIELDS, expressions as ex
from unerring.sql import scalars

if TYPE_CHECKING:
    from unerring.sql.lowering import Lowering, Place

Predicate = Callable[["Lowering", Any, "Place"], ex.Expr]

_COMPARISONS: Final[dict[type[exp.Expr], str]] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_ARITHMETIC: Final[dict[type[exp.Expr], str]] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.IntDiv: "div",
}


def _arithmetic(low: Lowering, node: Any, place: Place) -> ex.Expr:
    left, right = low.lower(node.this, place), low.lower(node.expression, place)
    return low.built(node, lambda: ex.Arithmetic(_ARITHMETIC[type(node)], left, right))


def _negate(low: Lowering, node: Any, place: Place) -> ex.Expr:
    operand = low.lower(node.this, place)
    if isinstance(operand, ex.Literal) and isinstance(operand.value, int | float):
        value = -operand.value
        return low.built(node, lambda: ex.literal(value))
    return low.built(node, lambda: ex.Negate(operand))


def compared(low: Lowering, node: Any, op: str, left: ex.Expr, right: ex.Expr) -> ex.Expr:
    """A comparison. A text constant beside a time is read as a time."""
    left, right = _as_time(low, node, left, right), _as_time(low, node, right, left)
    return low.built(node, lambda: ex.Comparison(op, left, right))


def _as_time(low: Lowering, node: Any, side: ex.Expr, other: ex.Expr) -> ex.Expr:
    if isinstance(side, ex.Literal) and side.type is ColumnType.TEXT and other.type is ColumnType.TIME:
        text = str(side.value)
        return low.built(node, lambda: ex.Literal(scalars.time_of(text), ColumnType.TIME))
    return side


def _comparison(low: Lowering, node: Any, place: Place) -> ex.Expr:
    op = _COMPARISONS[type(node)]
    return compared(low, node, op, low.lower(node.this, place), low.lower(node.expression, place))


def _connective(low: Lowering, node: Any, place: Place) -> ex.Expr:
    """A chain of ANDs (or ORs) as one node."""
    kind = type(node)
    parts: list[ex.Expr] = []
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, kind):
            waiting += [part.expression, part.this]
        else:
            parts.append(low.lower(part, place))
    made = ex.And if kind is exp.And else ex.Or
    return low.built(node, lambda: made(tuple(parts)))


def _not(low: Lowering, node: Any, place: Place) -> ex.Expr:
    operand = low.lower(node.this, place)
    return low.built(node, lambda: ex.Not(operand))


def _is(low: Lowering, node: Any, place: Place) -> ex.Expr:
    """IS NULL, IS TRUE, IS FALSE; IS UNKNOWN is IS NULL of a condition."""
    operand, wanted = low.lower(node.this, place), node.expression
    negated = isinstance(wanted, exp.Not)
    wanted = wanted.this if negated else wanted
    if isinstance(wanted, exp.Boolean):
        value = operand if wanted.this else low.built(node, lambda: ex.Not(operand))
        test: ex.Expr = low.built(node, lambda: ex.And((ex.Not(ex.IsNull(operand)), value)))
    elif isinstance(wanted, exp.Null) or wanted.name.upper() == "UNKNOWN":
        test = ex.IsNull(operand)
    else:
        raise low.names.source.wrong(node, f"IS {wanted.sql()}; use IS NULL, IS TRUE, IS FALSE or IS UNKNOWN")
    return ex.Not(test) if negated else test


def _between(low: Lowering, node: Any, place: Place) -> ex.Expr:
    operand, least, most = (low.lower(part, place) for part in (node.this, node.args["low"], node.args["high"]))
    inside = ex.And((compared(low, node, ">=", operand, least), compared(low, node, "<=", operand, most)))
    if node.args.get("symmetric"):
        turned = ex.And((compared(low, node, ">=", operand, most), compared(low, node, "<=", operand, least)))
        return ex.Or((inside, turned))
    return inside


def _in(low: Lowering, node: Any, place: Place) -> ex.Expr:
    if not node.expressions:
        raise low.names.source.wrong(node, f"IN takes a list of values in {place.clause}, not a subquery")
    operand = low.lower(node.this, place)
    options = tuple(_as_time(low, node, low.lower(option, place), operand) for option in node.expressions)
    return low.built(node, lambda: ex.InList(operand, options))


def _like(low: Lowering, node: Any, place: Place, escape: str = "") -> ex.Expr:
    operand = low.lower(node.this, place)
    if not (isinstance(node.expression, exp.Literal) and node.expression.is_string):
        raise low.names.source.wrong(node.expression, "the pattern of LIKE must be a text constant")
    text = node.expression.name
    if isinstance(node, exp.ILike):
        operand, text = low.built(node, lambda: ex.Call("lower", (operand,))), text.lower()
    return low.built(node, lambda: ex.Like(operand, text, escape))


def _escape(low: Lowering, node: Any, place: Place) -> ex.Expr:
    return _like(low, node.this, place, node.expression.name)


def _same(low: Lowering, node: Any, place: Place) -> ex.Expr:
    """IS [NOT] DISTINCT FROM: NULL is the same as NULL."""
    left, right = low.lower(node.this, place), low.lower(node.expression, place)
    equal = compared(low, node, "=", left, right)
    either = ex.Or((ex.IsNull(left), ex.IsNull(right)))
    same = ex.Case(((either, ex.And((ex.IsNull(left), ex.IsNull(right)))),), equal)
    return same if isinstance(node, exp.NullSafeEQ) else ex.Not(same)


def _case(low: Lowering, node: Any, place: Place) -> ex.Expr:
    subject = low.lower(node.this, place) if node.this is not None else None
    whens: list[tuple[ex.Expr, ex.Expr]] = []
    for when in node.args["ifs"]:
        condition = low.lower(when.this, place)
        if subject is not None:
            condition = compared(low, when, "=", subject, condition)
        whens.append((condition, low.lower(when.args["true"], place)))
    otherwise = low.lower(node.args["default"], place) if node.args.get("default") else ex.Literal(None, None)
    return low.built(node, lambda: ex.Case(tuple(whens), otherwise))


def _if(low: Lowering, node: Any, place: Place) -> ex.Expr:
    condition, then = low.lower(node.this, place), low.lower(node.args["true"], place)
    otherwise = low.lower(node.args["false"], place) if node.args.get("false") else ex.Literal(None, None)
    return low.built(node, lambda: ex.Case(((condition, then),), otherwise))


def _coalesce(low: Lowering, node: Any, place: Place) -> ex.Expr:
    options = tuple(low.lower(option, place) for option in (node.this, *node.expressions))
    return low.built(node, lambda: ex.Coalesce(options))


def _nullif(low: Lowering, node: Any, place: Place) -> ex.Expr:
    left, right = low.lower(node.this, place), low.lower(node.expression, place)
    equal = compared(low, node, "=", left, right)
    return low.built(node, lambda: ex.Case(((equal, ex.Literal(None, None)),), left))


def _concat(low: Lowering, node: Any, place: Place) -> ex.Expr:
    parts = (low.lower(node.this, place), low.lower(node.expression, place))
    return low.built(node, lambda: ex.Call("concat", parts))


def _trim(low: Lowering, node: Any, place: Place) -> ex.Expr:
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position") or "").upper(), "trim")
    if node.expression is not None:
        raise low.names.source.wrong(
            node, "TRIM takes blanks away; other characters are not possible here, use replace()"
        )
    operand = low.lower(node.this, place)
    return low.built(node, lambda: ex.Call(name, (operand,)))


def _extract(low: Lowering, node: Any, place: Place) -> ex.Expr:
    field = node.this.name.lower()
    field = {"dow": "day_of_week", "doy": "day_of_year"}.get(field, field)
    if field not in FIELDS:
        raise low.names.source.wrong(node, f"EXTRACT({field.upper()} FROM ...); there are {', '.join(FIELDS)}")
    operand = low.lower(node.expression, place)
    return low.built(node, lambda: ex.Call(field, (operand,)))


def _named_field(low: Lowering, node: Any, place: Place) -> ex.Expr:
    """year(x), hour(x), …: functions that sqlglot knows by a class."""
    operand = low.lower(node.this, place)
    return low.built(node, lambda: ex.Call(_FIELDS[type(node)], (operand,)))


def _date_trunc(low: Lowering, node: Any, place: Place) -> ex.Expr:
    operand, unit = low.lower(node.this, place), ex.literal(node.args["unit"].name.lower())
    return low.built(node, lambda: ex.Call("date_trunc", (unit, operand)))


def _position(low: Lowering, node: Any, place: Place) -> ex.Expr:
    operands = (low.lower(node.this, place), low.lower(node.args["substr"], place))
    return low.built(node, lambda: ex.Call("position", operands))


_FIELDS: Final[dict[type[exp.Expr], str]] = {
    exp.Year: "year",
    exp.Quarter: "quarter",
    exp.Month: "month",
    exp.Day: "day",
    exp.DayOfWeek: "day_of_week",
    exp.DayOfWeekIso: "day_of_week",
    exp.DayOfYear: "day_of_year",
    exp.Hour: "hour",
    exp.Minute: "minute",
    exp.Second: "second",
}

PREDICATES: Final[dict[type[exp.Expr], Predicate]] = {
    **dict.fromkeys(_COMPARISONS, _comparison),
    **dict.fromkeys(_ARITHMETIC, _arithmetic),
    **dict.fromkeys(_FIELDS, _named_field),
    exp.Neg: _negate,
    exp.And: _connective,
    exp.Or: _connective,
    exp.Not: _not,
    exp.Is: _is,
    exp.Between: _between,
    exp.In: _in,
    exp.Like: _like,
    exp.ILike: _like,
    exp.Escape: _escape,
    exp.NullSafeEQ: _same,
    exp.NullSafeNEQ: _same,
    exp.Case: _case,
    exp.If: _if,
    exp.Coalesce: _coalesce,
    exp.Nullif: _nullif,
    exp.DPipe: _concat,
    exp.Trim: _trim,
    exp.Extract: _extract,
    exp.TimestampTrunc: _date_trunc,
    exp.DateTrunc: _date_trunc,
    exp.StrPosition: _position,
}
