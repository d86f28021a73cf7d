"""Expressions: a typed tree, frozen, hashable, printable. This module is their shape; `evaluation` is their meaning.

Every node is checked when it is built and knows its static `type` (None: the literal NULL, which fits every type).
Both front ends build these nodes; every back end reads them.

| group | nodes |
|---|---|
| leaves | Literal, Attribute, EventTime, EventOrdinal, KeyValue, Classifier, MatchNumber, WindowBound |
| numbers | Arithmetic (+ - * / div %), Negate |
| truth | Comparison (= <> < <= > >=), And, Or, Not, IsNull, InList, Like |
| choice | Case, Coalesce |
| others | Cast, Call (a registered function), Aggregate |

Which row a leaf reads is an `At`: the row at hand, or the first or last row that a variable is bound to, moved by a
logical offset among that variable's rows and then by a physical one among all rows of the partition. `PREV(x)` of the
row at hand is `At(shift=-1)`; `PREV(LAST(A.x, 2), 3)` is `At(("A",), LAST, offset=2, shift=-3)`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Final

from unerring.model import ColumnType, RuleError, Value
from unerring.rules.functions import AGGREGATES, INT_MAX, INT_MIN, function_of

BOOL, INT, FLOAT, TEXT, BYTES, TIME = (
    ColumnType.BOOL,
    ColumnType.INT,
    ColumnType.FLOAT,
    ColumnType.TEXT,
    ColumnType.BYTES,
    ColumnType.TIME,
)
Type = ColumnType | None
"""A static type. None is the type of NULL alone."""


class Which(StrEnum):
    """From where an `At` starts."""

    ROW = "row"  # the row at hand: under test, being aggregated, or being output (one row a match: the last one)
    FIRST = "first"  # the first row bound to the variables, then `offset` later ones on
    LAST = "last"  # the last row bound to them so far (running) or in the whole match (final), `offset` earlier


@dataclass(frozen=True, slots=True)
class At:
    """Which row. A row that is not there makes the leaf NULL."""

    variables: tuple[str, ...] = ()
    """The variable, the members of a union variable, or () for the rows of any variable."""
    which: Which = Which.ROW
    offset: int = 0
    """Logical: among the rows bound to `variables`. Never negative."""
    shift: int = 0
    """Physical: among all rows of the partition, after the logical step. Negative is PREV, positive NEXT."""
    final: bool = False
    """Look at the whole match. Never in a condition."""

    def __post_init__(self) -> None:
        if self.offset < 0:
            raise RuleError(f"the offset is {self.offset}; FIRST and LAST take an offset of 0 or more")
        if self.which is Which.ROW and (self.variables or self.offset or self.final):
            raise RuleError("the current row has no variable and no logical offset")

    def __str__(self) -> str:
        text = "|".join(self.variables) or "*"
        if self.which is Which.ROW:
            text = "row"
        elif self.which is Which.FIRST or self.offset:
            text = f"{self.which}({text}{f', {self.offset}' if self.offset else ''})"
        if self.final:
            text = f"final {text}"
        if self.shift:
            text = (
                f"{'prev' if self.shift < 0 else 'next'}({text}{f', {abs(self.shift)}' if abs(self.shift) > 1 else ''})"
            )
        return text


HERE: Final = At()
"""The row at hand."""


_FIELD_NAMES: dict[type, tuple[str, ...]] = {}


def field_names(kind: type) -> tuple[str, ...]:
    """The fields of a node class that say what it means (not those that are derived)."""
    names = _FIELD_NAMES.get(kind)
    if names is None:
        names = _FIELD_NAMES[kind] = tuple(part.name for part in fields(kind) if part.compare)
    return names


class Expr:
    """The base of all nodes."""

    __slots__ = ()

    @property
    def type(self) -> Type:
        raise RuleError(f"{type(self).__name__} is not an expression")


@dataclass(frozen=True, slots=True)
class Literal(Expr):
    """A constant. -0.0 and 0.0 are two literals, and NaN equals itself, so that plans compare by what they say."""

    value: Value = field(compare=False)
    literal_type: Type
    text: str = field(init=False, repr=False, default="")

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", repr(self.value))
        if self.literal_type in (INT, TIME) and not INT_MIN <= int(self.value or 0) <= INT_MAX:
            raise RuleError(f"{self.value!r} does not fit 64 bits; use a float or a smaller number")

    @property
    def type(self) -> Type:
        return self.literal_type

    def __str__(self) -> str:
        return "NULL" if self.value is None else self.text


@dataclass(frozen=True, slots=True)
class Attribute(Expr):
    """A payload column of a row. NULL where the row's stream has no such column."""

    name: str
    column_type: ColumnType
    at: At = HERE

    @property
    def type(self) -> Type:
        return self.column_type

    def __str__(self) -> str:
        return self.name if self.at == HERE else f"{self.at}.{self.name}"


@dataclass(frozen=True, slots=True)
class EventTime(Expr):
    """The event time of a row."""

    at: At = HERE

    @property
    def type(self) -> Type:
        return TIME

    def __str__(self) -> str:
        return "time" if self.at == HERE else f"{self.at}.time"


@dataclass(frozen=True, slots=True)
class EventOrdinal(Expr):
    """The ordinal in a row's stamp."""

    at: At = HERE

    @property
    def type(self) -> Type:
        return INT

    def __str__(self) -> str:
        return "ordinal" if self.at == HERE else f"{self.at}.ordinal"


@dataclass(frozen=True, slots=True)
class KeyValue(Expr):
    """The key's value number `index`: known even where no row is (an empty match, an unmatched side of a join)."""

    index: int
    name: str
    key_type: ColumnType

    @property
    def type(self) -> Type:
        return self.key_type

    def __str__(self) -> str:
        return f"key.{self.name}"


@dataclass(frozen=True, slots=True)
class Classifier(Expr):
    """The name of the variable that a row is bound to. In a condition the row under test counts as bound already."""

    at: At = At(which=Which.LAST)

    @property
    def type(self) -> Type:
        return TEXT

    def __str__(self) -> str:
        return f"classifier({self.at})"


@dataclass(frozen=True, slots=True)
class MatchNumber(Expr):
    """1, 2, 3, … within the key; empty matches count."""

    @property
    def type(self) -> Type:
        return INT

    def __str__(self) -> str:
        return "match_number()"


@dataclass(frozen=True, slots=True)
class WindowBound(Expr):
    """`start` (inclusive) or `end` (exclusive; for a session the last event's time plus the gap) of a window."""

    bound: str

    def __post_init__(self) -> None:
        if self.bound not in ("start", "end"):
            raise RuleError(f"a window has a start and an end, not a {self.bound!r}")

    @property
    def type(self) -> Type:
        return TIME

    def __str__(self) -> str:
        return f"window.{self.bound}"


ARITHMETIC: Final = ("+", "-", "*", "/", "div", "%")


@dataclass(frozen=True, slots=True)
class Arithmetic(Expr):
    """Two numbers. `/` gives a float, `div` truncates integers towards zero, `%` has the dividend's sign.

    A time plus or minus an int (microseconds) is a time; a time minus a time is an int.
    """

    op: str
    left: Expr
    right: Expr

    def __post_init__(self) -> None:
        if self.op not in ARITHMETIC:
            raise RuleError(f"{self.op!r} is not an arithmetic operator; use one of {' '.join(ARITHMETIC)}")
        self.type  # noqa: B018  (raises where the types do not fit)

    @property
    def type(self) -> Type:
        pair = (self.left.type, self.right.type)
        if TIME in pair:
            if self.op == "-" and pair in ((TIME, TIME), (TIME, None), (None, TIME)):
                return INT
            if self.op in "+-" and pair in ((TIME, INT), (TIME, None)):
                return TIME
            if self.op == "+" and pair in ((INT, TIME), (None, TIME)):
                return TIME
        elif all(side in (INT, FLOAT, None) for side in pair):
            if self.op == "div":
                if FLOAT not in pair:
                    return INT
            else:
                return FLOAT if self.op == "/" or FLOAT in pair else INT
        raise RuleError(f"{self}: {_named(pair[0])} {self.op} {_named(pair[1])} has no meaning; cast one side")

    def __str__(self) -> str:
        return f"({self.left} {self.op} {self.right})"


@dataclass(frozen=True, slots=True)
class Negate(Expr):
    """-x."""

    operand: Expr

    def __post_init__(self) -> None:
        if self.operand.type not in (INT, FLOAT, None):
            raise RuleError(f"-{self.operand}: {_named(self.operand.type)} has no negative")

    @property
    def type(self) -> Type:
        return self.operand.type

    def __str__(self) -> str:
        return f"(-{self.operand})"


COMPARISONS: Final = ("=", "<>", "<", "<=", ">", ">=")


@dataclass(frozen=True, slots=True)
class Comparison(Expr):
    """NULL if a side is NULL. Floats compare as IEEE 754 says: NaN is unequal to all, itself too, and -0.0 = 0.0."""

    op: str
    left: Expr
    right: Expr

    def __post_init__(self) -> None:
        if self.op not in COMPARISONS:
            raise RuleError(f"{self.op!r} is not a comparison; use one of {' '.join(COMPARISONS)}")
        check_comparable(self.left, self.right, self)

    @property
    def type(self) -> Type:
        return BOOL

    def __str__(self) -> str:
        return f"({self.left} {self.op} {self.right})"


@dataclass(frozen=True, slots=True)
class And(Expr):
    """Three-valued: one false makes it false, else one NULL makes it NULL. Evaluated left to right."""

    parts: tuple[Expr, ...]

    def __post_init__(self) -> None:
        _check_conditions(self.parts, self)

    @property
    def type(self) -> Type:
        return BOOL

    def __str__(self) -> str:
        return "(" + " AND ".join(map(str, self.parts)) + ")"


@dataclass(frozen=True, slots=True)
class Or(Expr):
    """Three-valued: one true makes it true, else one NULL makes it NULL. Evaluated left to right."""

    parts: tuple[Expr, ...]

    def __post_init__(self) -> None:
        _check_conditions(self.parts, self)

    @property
    def type(self) -> Type:
        return BOOL

    def __str__(self) -> str:
        return "(" + " OR ".join(map(str, self.parts)) + ")"


@dataclass(frozen=True, slots=True)
class Not(Expr):
    """NOT NULL is NULL."""

    operand: Expr

    def __post_init__(self) -> None:
        _check_conditions((self.operand,), self)

    @property
    def type(self) -> Type:
        return BOOL

    def __str__(self) -> str:
        return f"(NOT {self.operand})"


@dataclass(frozen=True, slots=True)
class IsNull(Expr):
    """True or false, never NULL."""

    operand: Expr

    @property
    def type(self) -> Type:
        return BOOL

    def __str__(self) -> str:
        return f"({self.operand} IS NULL)"


@dataclass(frozen=True, slots=True)
class InList(Expr):
    """`x = a OR x = b OR …`, with that meaning of NULL."""

    operand: Expr
    options: tuple[Expr, ...]

    def __post_init__(self) -> None:
        for option in self.options:
            check_comparable(self.operand, option, self)

    @property
    def type(self) -> Type:
        return BOOL

    def __str__(self) -> str:
        return f"({self.operand} IN ({', '.join(map(str, self.options))}))"


@dataclass(frozen=True, slots=True)
class Like(Expr):
    """`%` is any text, `_` one character; `escape` makes the next one plain. Case counts; the whole text must fit."""

    operand: Expr
    pattern: str
    escape: str = ""

    def __post_init__(self) -> None:
        if self.operand.type not in (TEXT, None):
            raise RuleError(f"{self}: LIKE needs text, not {_named(self.operand.type)}; cast it")
        if len(self.escape) > 1:
            raise RuleError(f"{self}: an escape is one character, not {self.escape!r}")

    @property
    def type(self) -> Type:
        return BOOL

    def __str__(self) -> str:
        return f"({self.operand} LIKE {self.pattern!r}{f' ESCAPE {self.escape!r}' if self.escape else ''})"


@dataclass(frozen=True, slots=True)
class Case(Expr):
    """The value of the first condition that is true, else `otherwise`. Later branches are not evaluated."""

    whens: tuple[tuple[Expr, Expr], ...]
    otherwise: Expr

    def __post_init__(self) -> None:
        _check_conditions(tuple(condition for condition, _ in self.whens), self)
        self.type  # noqa: B018

    @property
    def type(self) -> Type:
        return unify((*(value for _, value in self.whens), self.otherwise), self)

    def __str__(self) -> str:
        whens = " ".join(f"WHEN {condition} THEN {value}" for condition, value in self.whens)
        return f"CASE {whens} ELSE {self.otherwise} END"


@dataclass(frozen=True, slots=True)
class Coalesce(Expr):
    """The first that is not NULL."""

    options: tuple[Expr, ...]

    def __post_init__(self) -> None:
        self.type  # noqa: B018

    @property
    def type(self) -> Type:
        return unify(self.options, self)

    def __str__(self) -> str:
        return f"coalesce({', '.join(map(str, self.options))})"


@dataclass(frozen=True, slots=True)
class Cast(Expr):
    """To another type; what does not fit is NULL (see `evaluation.cast`)."""

    operand: Expr
    to: ColumnType

    @property
    def type(self) -> Type:
        return self.to

    def __str__(self) -> str:
        return f"cast({self.operand} AS {self.to})"


@dataclass(frozen=True, slots=True)
class Call(Expr):
    """A registered deterministic function (`functions.FUNCTIONS`). NULL in, NULL out, unless the function says else."""

    name: str
    arguments: tuple[Expr, ...]

    def __post_init__(self) -> None:
        self.type  # noqa: B018

    @property
    def type(self) -> Type:
        return function_of(self.name).result(self.name, tuple(argument.type for argument in self.arguments))

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.arguments))})"


@dataclass(frozen=True, slots=True)
class Aggregate(Expr):
    """A registered aggregate (`functions.AGGREGATES`) over the rows bound to `variables` (() is every bound row).

    Running: up to the row at hand, and in a condition including it; `final`: the whole match. Over a window all rows of
    the window. The arguments are evaluated on each row: their leaves are `HERE`. `count` without arguments counts rows.
    """

    name: str
    arguments: tuple[Expr, ...] = ()
    variables: tuple[str, ...] = ()
    final: bool = False
    distinct: bool = False

    def __post_init__(self) -> None:
        self.type  # noqa: B018

    @property
    def type(self) -> Type:
        function = AGGREGATES.get(self.name)
        if function is None:
            raise RuleError(f"there is no aggregate {self.name!r}; use one of {', '.join(AGGREGATES)}")
        return function.result(self.name, tuple(argument.type for argument in self.arguments))

    def __str__(self) -> str:
        inner = ", ".join(map(str, self.arguments)) or "*"
        over = f" over {'|'.join(self.variables)}" if self.variables else ""
        head = f"{'final ' if self.final else ''}{self.name}"
        return f"{head}({'distinct ' if self.distinct else ''}{inner}{over})"


def literal(value: object) -> Literal:
    """A constant of the type that Python's value has. (A TIME is written `Literal(microseconds, TIME)`.)"""
    for python_type, column_type in ((bool, BOOL), (int, INT), (float, FLOAT), (str, TEXT), (bytes, BYTES)):
        if isinstance(value, python_type):
            return Literal(value, column_type)
    if value is None:
        return Literal(None, None)
    raise RuleError(f"{value!r} cannot be a constant in a rule; use bool, int, float, str, bytes or None")


def check_comparable(left: Expr, right: Expr, where: Expr) -> None:
    """Raise unless both sides have one type, or both are numbers."""
    pair = {left.type, right.type} - {None}
    if len(pair) > 1 and pair != {INT, FLOAT}:
        raise RuleError(f"{where}: {_named(left.type)} cannot be compared with {_named(right.type)}; cast one side")


def unify(parts: tuple[Expr, ...], where: Expr) -> Type:
    """The one type of several alternatives; an int among floats becomes a float."""
    types = {part.type for part in parts} - {None}
    if types == {INT, FLOAT}:
        return FLOAT
    if len(types) > 1:
        names = " and ".join(sorted(_named(kind) for kind in types))
        raise RuleError(f"{where}: the alternatives have different types, {names}; cast them")
    return next(iter(types), None)


def _check_conditions(parts: tuple[Expr, ...], where: Expr) -> None:
    for part in parts:
        if part.type not in (BOOL, None):
            raise RuleError(f"{where}: {part} is {_named(part.type)}, not a condition; compare it with something")


def _named(kind: Type) -> str:
    return "NULL" if kind is None else f"{'an' if kind is INT else 'a'} {kind}"
