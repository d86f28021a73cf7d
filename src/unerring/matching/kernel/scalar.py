"""Expressions as source text: each becomes a few statements over plain numbers and a NULL flag.

The text runs as Python and, compiled by numba, as machine code; both give what `rules.evaluation` gives. What cannot be
said over numbers and flags raises `Uncompiled` with the reason. A text is a number here too (a dictionary code): it can
be compared for equality and carried, not looked into.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from unerring.matching.kernel.constants import marked
from unerring.model import ColumnType
from unerring.rules import expressions as ex

BOOL, INT, FLOAT, TIME = ColumnType.BOOL, ColumnType.INT, ColumnType.FLOAT, ColumnType.TIME
CODED = (ColumnType.TEXT, ColumnType.BYTES)
"""Types whose values are dictionary codes in generated source."""


class Uncompiled(Exception):
    """Not an error: this rule, or this part of it, runs interpreted. The text is the reason."""


class Lines:
    """Source text under construction."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 0
        self._names = 0

    def __call__(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    def block(self, head: str) -> _Block:
        self(head)
        return _Block(self)

    def name(self, stem: str = "x") -> str:
        """A name that is used once."""
        self._names += 1
        return f"{stem}{self._names}"

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def _indent(self, by: int) -> None:
        self._depth += by


class _Block:
    def __init__(self, lines: Lines) -> None:
        self._lines = lines

    def __enter__(self) -> None:
        self._lines._indent(1)

    def __exit__(self, *_: object) -> None:
        self._lines._indent(-1)


@dataclass(frozen=True, slots=True)
class Operand:
    """A value and whether it is NULL, as source text without side effects."""

    value: str
    null: str = "False"

    @property
    def never_null(self) -> bool:
        return self.null == "False"


Leaf = Callable[[ex.Expr], Operand | None]
"""What a leaf (or any node that the caller knows better) reads; None: it is no leaf of the caller's."""

NULL = Operand("0", "True")


@dataclass(slots=True)
class Constants:
    """Values that a kernel gets with each batch: dictionary codes of the texts that a rule names."""

    texts: list[tuple[str, str | bytes]] = field(default_factory=list)
    """(column, text): the text's code in that column's dictionary."""

    def code(self, column: str, text: str | bytes) -> str:
        if (column, text) not in self.texts:
            self.texts.append((column, text))
        return f"K[{self.texts.index((column, text))}]"


def emit(expr: ex.Expr, lines: Lines, leaf: Leaf) -> Operand:
    """Statements into `lines`; the operand that holds the value afterwards."""
    known = leaf(expr)
    if known is not None:
        return known
    match expr:
        case ex.Literal():
            return _literal(expr)
        case ex.Arithmetic():
            return _arithmetic(expr, emit(expr.left, lines, leaf), emit(expr.right, lines, leaf), lines)
        case ex.Negate():
            return _negate(expr, emit(expr.operand, lines, leaf), lines)
        case ex.Comparison():
            _refuse_coded(expr, (expr.left, expr.right), equality=expr.op in ("=", "<>"))
            return _comparison(
                expr.op, (expr.left, expr.right), emit(expr.left, lines, leaf), emit(expr.right, lines, leaf)
            )
        case ex.And():
            return _junction([emit(part, lines, leaf) for part in expr.parts], lines, absorbing=False)
        case ex.Or():
            return _junction([emit(part, lines, leaf) for part in expr.parts], lines, absorbing=True)
        case ex.Not():
            operand = emit(expr.operand, lines, leaf)
            return Operand(f"(not {operand.value})", operand.null)
        case ex.IsNull():
            return Operand(f"({emit(expr.operand, lines, leaf).null})")
        case ex.InList():
            _refuse_coded(expr, (expr.operand, *expr.options), equality=True)
            operand = emit(expr.operand, lines, leaf)
            parts = [_comparison("=", (expr.operand, o), operand, emit(o, lines, leaf)) for o in expr.options]
            return _junction(parts, lines, absorbing=True)
        case ex.Case():
            return _case(expr, lines, leaf)
        case ex.Coalesce():
            return _coalesce(expr, lines, leaf)
        case ex.Cast():
            return _cast(expr, emit(expr.operand, lines, leaf), lines)
        case ex.Call():
            return _call(expr, [emit(argument, lines, leaf) for argument in expr.arguments])
    raise Uncompiled(f"{expr} is evaluated in Python")


def hold(operand: Operand) -> str:
    """Source that is true where a condition holds: NULL does not."""
    return operand.value if operand.never_null else f"(not {operand.null} and {operand.value})"


def any_null(*operands: Operand) -> str:
    flags = [operand.null for operand in operands if not operand.never_null]
    return "(" + " or ".join(flags) + ")" if flags else "False"


def as_type(operand: Operand, have: ex.Type, want: ex.Type) -> Operand:
    """An int among floats becomes a float."""
    return Operand(f"float({operand.value})", operand.null) if want is FLOAT and have is INT else operand


def zero(kind: ex.Type) -> str:
    return "0.0" if kind is FLOAT else "False" if kind is BOOL else "0"


def _literal(expr: ex.Literal) -> Operand:
    if expr.value is None:
        return NULL
    if expr.type in CODED:
        raise Uncompiled(f"{expr} stands outside of a comparison with a column")
    if expr.type is BOOL:
        return Operand(f"({expr.value!r})")
    return Operand(marked(float(expr.value) if expr.type is FLOAT else int(expr.value)))


def _refuse_coded(expr: ex.Expr, parts: tuple[ex.Expr, ...], equality: bool) -> None:
    if not equality and any(part.type in CODED for part in parts):
        raise Uncompiled(f"{expr} compares the order of texts")


def _arithmetic(expr: ex.Arithmetic, left: Operand, right: Operand, lines: Lines) -> Operand:
    null = any_null(left, right)
    if expr.type is FLOAT:
        a, b = as_type(left, expr.left.type, FLOAT).value, as_type(right, expr.right.type, FLOAT).value
        if expr.op in "+-*":
            return Operand(f"({a} {expr.op} {b})", null)
        return Operand(f"{'divide' if expr.op == '/' else 'remainder'}({a}, {b})", null)
    value, lost = lines.name(), lines.name("n")
    function = {"+": "add", "-": "subtract", "*": "multiply", "div": "quotient", "%": "modulo"}[expr.op]
    lines(f"{value}, {lost} = {function}({left.value}, {right.value})")
    return Operand(value, lost if null == "False" else f"({lost} or {null})")


def _negate(expr: ex.Negate, operand: Operand, lines: Lines) -> Operand:
    if expr.type is FLOAT:
        return Operand(f"(-{operand.value})", operand.null)
    value, lost = lines.name(), lines.name("n")
    lines(f"{value}, {lost} = subtract(0, {operand.value})")
    return Operand(value, lost if operand.never_null else f"({lost} or {operand.null})")


def _comparison(op: str, sides: tuple[ex.Expr, ex.Expr], left: Operand, right: Operand) -> Operand:
    mixed = {side.type for side in sides} == {INT, FLOAT}
    a, b = (as_type(o, s.type, FLOAT if mixed else s.type).value for o, s in zip((left, right), sides, strict=True))
    python = {"=": "==", "<>": "!="}.get(op, op)
    return Operand(f"({a} {python} {b})", any_null(left, right))


def _junction(parts: list[Operand], lines: Lines, absorbing: bool) -> Operand:
    """AND (absorbing False) or OR (True): the absorbing value wins, then NULL."""
    word, sign = ("or", "") if absorbing else ("and", "not ")
    if all(part.never_null for part in parts):
        return Operand("(" + f" {word} ".join(part.value for part in parts) + ")")
    settled = lines.name("b")
    holds = [hold(Operand(f"({sign}{part.value})", part.null)) for part in parts]
    lines(f"{settled} = {' or '.join(holds)}")
    null = f"(not {settled} and {any_null(*parts)})"
    return Operand(settled if absorbing else f"(not {settled})", null)


def _into(lines: Lines, value: str, null: str, operand: Operand) -> None:
    lines(f"{value} = {operand.value}")
    lines(f"{null} = {operand.null}")


def _case(expr: ex.Case, lines: Lines, leaf: Leaf) -> Operand:
    if expr.type in CODED:
        raise Uncompiled(f"{expr} chooses between texts")
    value, null = lines.name(), lines.name("n")
    _into(lines, value, null, as_type(_typed(expr.otherwise, lines, leaf, expr.type), expr.otherwise.type, expr.type))
    for condition, result in reversed(expr.whens):
        held = hold(emit(condition, lines, leaf))
        chosen = as_type(_typed(result, lines, leaf, expr.type), result.type, expr.type)
        with lines.block(f"if {held}:"):
            _into(lines, value, null, chosen)
    return Operand(value, null)


def _coalesce(expr: ex.Coalesce, lines: Lines, leaf: Leaf) -> Operand:
    if expr.type in CODED:
        raise Uncompiled(f"{expr} chooses between texts")
    value, null = lines.name(), lines.name("n")
    _into(lines, value, null, Operand(zero(expr.type), "True"))
    for option in reversed(expr.options):
        operand = as_type(_typed(option, lines, leaf, expr.type), option.type, expr.type)
        with lines.block(f"if not {operand.null}:"):
            _into(lines, value, null, operand)
    return Operand(value, null)


def _typed(expr: ex.Expr, lines: Lines, leaf: Leaf, want: ex.Type) -> Operand:
    """A bare NULL gets the type of its place: a compiled variable has one type."""
    operand = emit(expr, lines, leaf)
    return Operand(zero(want), "True") if expr.type is None else operand


def _cast(expr: ex.Cast, operand: Operand, lines: Lines) -> Operand:
    source = expr.operand.type
    if source is expr.to:
        return operand
    if source is None:
        return Operand(zero(expr.to), "True")
    if source is BOOL and expr.to in (INT, FLOAT):
        one, none = ("1.0", "0.0") if expr.to is FLOAT else ("1", "0")
        return Operand(f"({one} if {operand.value} else {none})", operand.null)
    if expr.to is FLOAT and source in (INT, TIME):
        return Operand(f"float({operand.value})", operand.null)
    if (source, expr.to) in ((INT, TIME), (TIME, INT)):
        return operand
    if expr.to in (INT, TIME) and source is FLOAT:
        value, lost = lines.name(), lines.name("n")
        lines(f"{value}, {lost} = truncate({operand.value})")
        return Operand(value, lost if operand.never_null else f"({lost} or {operand.null})")
    raise Uncompiled(f"{expr} is evaluated in Python")


def _call(expr: ex.Call, arguments: list[Operand]) -> Operand:
    kinds = [argument.type for argument in expr.arguments]
    if expr.name == "abs" and kinds == [FLOAT]:
        return Operand(f"abs({arguments[0].value})", arguments[0].null)
    if expr.name == "is_nan" and kinds == [FLOAT]:
        return Operand(f"({arguments[0].value} != {arguments[0].value})", arguments[0].null)
    raise Uncompiled(f"{expr.name}() is evaluated in Python")
