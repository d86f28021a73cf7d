"""Registers: what a run must remember of the rows it has bound, for its conditions and for its output.

A register is the value of a leaf at the last or first row bound to some variables, or a running aggregate over them.
Its state says whether there is a value yet: 0 a value, 1 NULL, 2 nothing bound, 3 an integer sum that left 64 bits.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from unerring.matching.kernel.scalar import CODED, FLOAT, INT, Leaf, Lines, Operand, Uncompiled, as_type, emit
from unerring.model import ColumnType
from unerring.rules import expressions as ex

LAST, FIRST = ex.Which.LAST, ex.Which.FIRST
AGGREGATES = ("count", "sum", "avg", "min", "max", "first", "last")

VALUE, NULL, UNBOUND, OVERFLOW = 0, 1, 2, 3


@dataclass(frozen=True, slots=True)
class Register:
    """`kind` is first, last or an aggregate's name; `expr` what is read on each row (None: rows are counted)."""

    kind: str
    variables: tuple[str, ...]
    expr: ex.Expr | None
    folded: bool = False
    """An aggregate: rows where the argument is NULL are passed over."""

    @property
    def type(self) -> ColumnType:
        if self.kind == "count" or self.of_row_number:
            return INT
        if self.kind == "avg":
            return FLOAT
        kind = None if self.expr is None else self.expr.type
        if kind is None:
            raise Uncompiled("the literal NULL is aggregated")
        return kind

    @property
    def of_row_number(self) -> bool:
        """`first row` and `last row`: not a value of the row, but its number."""
        return self.kind.endswith(" row")

    @property
    def never_null(self) -> bool:
        return self.kind in ("count", "window start", "window end")

    def takes(self, variable: str) -> bool:
        """Whether a row that is bound to the variable goes into it."""
        return (not self.variables or variable in self.variables) and not self.kind.startswith("window")


@dataclass(slots=True)
class Bank:
    """All registers of a rule, in the order they were asked for. Floats and all others are kept apart."""

    registers: list[Register]
    sure: list[Register] = field(default_factory=list)
    """The registers that have a value in every match: their state is neither kept nor read."""

    def widths(self) -> tuple[int, int, int]:
        """How many integers, floats and states there are."""
        floats = sum(register.type is FLOAT for register in self.registers)
        return len(self.registers) - floats, floats, len(self.registers)

    def texts(self) -> list[int]:
        """The columns of `I` that hold texts, without the base."""
        return [self.place(register)[1] for register in self.registers if register.type in CODED]

    def place(self, register: Register) -> tuple[str, int, int]:
        """The array (F or I), the column in it, and the number among all registers (its state's column)."""
        if register not in self.registers:
            self.registers.append(register)
        number = self.registers.index(register)
        floats = register.type is FLOAT
        column = sum((other.type is FLOAT) == floats for other in self.registers[:number])
        return ("F" if floats else "I"), column, number


Leafy = ex.Attribute | ex.EventTime | ex.EventOrdinal


def at_hand(expr: ex.Expr) -> ex.Expr:
    """The same leaf, read on the row at hand."""
    return replace(expr, at=ex.HERE) if isinstance(expr, Leafy) else expr


def register_of(expr: ex.Expr) -> Register | None:
    """The register that holds a leaf of a measure, once a match is complete."""
    if isinstance(expr, ex.Aggregate):
        return _aggregate(expr)
    if isinstance(expr, ex.WindowBound):
        return Register(f"window {expr.bound}", (), ex.EventTime())
    if not isinstance(expr, Leafy):
        return None
    at = expr.at
    if at.shift:
        raise Uncompiled(f"{expr} reads a row beside the match")
    if at.which is ex.Which.ROW:
        return Register("last", (), at_hand(expr))
    if at.offset:
        raise Uncompiled(f"{expr} reads further back than the last row of a variable")
    return Register("last" if at.which is LAST else "first", at.variables, at_hand(expr))


def _aggregate(expr: ex.Aggregate) -> Register:
    if expr.distinct or expr.name not in AGGREGATES:
        raise Uncompiled(f"the aggregate {expr}")
    if len(expr.arguments) > 1:
        raise Uncompiled(f"the aggregate {expr} of several values")
    argument = expr.arguments[0] if expr.arguments else None
    if expr.name in ("min", "max") and argument is not None and argument.type in (*CODED, ColumnType.BOOL):
        raise Uncompiled(f"{expr} orders values that are not numbers")
    return Register(expr.name, expr.variables, argument, folded=True)


@dataclass(slots=True)
class View:
    """How source text reads and writes the registers of one run, whose row in the arrays is `slot`."""

    bank: Bank
    slot: str
    base: int
    """Columns of `I` that are no registers."""

    def value(self, register: Register) -> str:
        array, column, _ = self.bank.place(register)
        return f"{array}[{self.slot}, {column + (self.base if array == 'I' else 0)}]"

    def state(self, register: Register) -> str:
        return f"N[{self.slot}, {self.bank.place(register)[2]}]"

    def read(self, register: Register) -> Operand:
        value = self.value(register)
        if register.type is ColumnType.BOOL:
            value = f"({value} != 0)"
        if register.never_null or register in self.bank.sure:
            return Operand(value)
        if register.kind == "avg":
            count = self.value(count_beside(register))
            return Operand(f"divide({value}, float({count}))", f"({count} == 0)")
        return Operand(value, f"({self.state(register)} != 0)")


def count_beside(register: Register) -> Register:
    return Register("count", register.variables, register.expr, folded=True)


def declare(bank: Bank, register: Register) -> None:
    """Give a register its place, and what it needs beside it."""
    if register.kind == "avg":
        bank.place(count_beside(register))
    bank.place(register)


def fold(register: Register, view: View, lines: Lines, leaf: Leaf) -> None:
    """Statements that take the row at hand into the register."""
    value, state = view.value(register), view.state(register)
    if register.of_row_number:
        with lines.block(f"if {state} != 0:" if register.kind == "first row" else "if True:"):
            lines(f"{value} = q")
            lines(f"{state} = 0")
        return
    if register.expr is None:
        lines(f"{value} += 1")
        return
    operand = emit(register.expr, lines, leaf)
    if register.kind in ("last", "first") and not register.folded:
        text = stored(operand, register)
        if register.kind == "first":
            with lines.block(f"if {state} == {UNBOUND}:"):
                _keep(lines, value, state, text, operand.null)
        elif register in view.bank.sure:
            lines(f"{value} = {text}")
        else:
            _keep(lines, value, state, text, operand.null)
        return
    if operand.never_null:
        _fold_value(register, operand, value, state, lines)
    else:
        with lines.block(f"if not {operand.null}:"):
            _fold_value(register, operand, value, state, lines)


def combine(register: Register, view: View, lines: Lines, later: View) -> None:
    """Statements that take into an aggregate of some rows what it is over the rows after them."""
    with lines.block(f"if {later.state(register)} == {VALUE}:"):
        _fold_value(register, Operand(later.value(register)), view.value(register), view.state(register), lines)


def _keep(lines: Lines, value: str, state: str, text: str, null: str) -> None:
    lines(f"{value} = {text}")
    lines(f"{state} = {'0' if null == 'False' else f'1 if {null} else 0'}")


def stored(operand: Operand, register: Register) -> str:
    """NULL is stored as zero (texts: -1): equal states have equal bytes."""
    text = f"int({operand.value})" if register.type is ColumnType.BOOL else operand.value
    if operand.never_null or register.type in CODED:
        return text
    return f"({'0.0' if register.type is FLOAT else '0'} if {operand.null} else {text})"


def _fold_value(register: Register, operand: Operand, value: str, state: str, lines: Lines) -> None:
    text = f"int({operand.value})" if register.type is ColumnType.BOOL else operand.value
    match register.kind:
        case "count":
            lines(f"{value} += 1")
        case "avg":
            lines(f"{value} += {as_type(operand, register.expr.type if register.expr else None, FLOAT).value}")
        case "last":
            lines(f"{value} = {text}")
            lines(f"{state} = 0")
        case "first":
            with lines.block(f"if {state} != 0:"):
                lines(f"{value} = {text}")
                lines(f"{state} = 0")
        case "min" | "max":
            sign = "<" if register.kind == "min" else ">"
            nan = f" or {value} != {value}" if register.type is FLOAT else ""
            with lines.block(f"if {state} != 0{nan} or {text} {sign} {value}:"):
                lines(f"{value} = {text}")
                lines(f"{state} = 0")
        case "sum":
            _fold_sum(register, text, value, state, lines)


def _fold_sum(register: Register, text: str, value: str, state: str, lines: Lines) -> None:
    with lines.block(f"if {state} == {UNBOUND}:"):
        lines(f"{value} = {text}")
        lines(f"{state} = 0")
    with lines.block(f"elif {state} == 0:"):
        if register.type is FLOAT:
            lines(f"{value} += {text}")
            return
        total, lost = lines.name(), lines.name("n")
        lines(f"{total}, {lost} = add({value}, {text})")
        lines(f"{value} = 0 if {lost} else {total}")
        lines(f"{state} = {OVERFLOW} if {lost} else 0")


def leaf_in_condition(bank: Bank, variable: str, view: View, row: Leaf, lines: Lines, previous_is_bound: bool) -> Leaf:
    """The operands of a condition of `variable`: the row at hand counts as bound to it already."""

    def leaf(expr: ex.Expr) -> Operand | None:
        if isinstance(expr, ex.Aggregate):
            return _running(expr, variable, view, row, lines)
        if not isinstance(expr, Leafy) or expr.at == ex.HERE:
            return row(expr)
        at, here = expr.at, at_hand(expr)
        if at.which is ex.Which.ROW:
            if at.shift != -1 or not previous_is_bound:
                raise Uncompiled(f"{expr} in the condition of {variable} reads a row that need not be bound")
            return view.read(_declared(bank, Register("last", (), here)))
        if at.shift:
            raise Uncompiled(f"{expr} reads a row beside the match")
        own = not at.variables or variable in at.variables
        if at.which is LAST:
            if at.offset == 0 and own:
                return row(here)
            if at.offset == int(own):
                return view.read(_declared(bank, Register("last", at.variables, here)))
        elif at.offset == 0:
            register = _declared(bank, Register("first", at.variables, here))
            return _first(view, register, row(here)) if own else view.read(register)
        raise Uncompiled(f"{expr} reads further back than the last row of a variable")

    return leaf


def _declared(bank: Bank, register: Register) -> Register:
    declare(bank, register)
    return register


def _first(view: View, register: Register, here: Operand | None) -> Operand:
    if here is None:
        raise Uncompiled("FIRST of something that is not a column")
    state, kept = view.state(register), view.read(register)
    return Operand(
        f"({here.value} if {state} == {UNBOUND} else {kept.value})",
        f"({here.null} if {state} == {UNBOUND} else {kept.null})",
    )


def _running(expr: ex.Aggregate, variable: str, view: View, row: Leaf, lines: Lines) -> Operand:
    """A running aggregate with the row at hand taken in, in names of its own."""
    register = _declared(view.bank, _aggregate(expr))
    if not register.takes(variable):
        return view.read(register)
    scratch = _Scratch(view, lines)
    if register.kind == "avg":
        fold(count_beside(register), scratch, lines, row)
    fold(register, scratch, lines, row)
    return scratch.read(register)


class _Scratch(View):
    """Copies of registers in local names: a test must not change the run."""

    def __init__(self, view: View, lines: Lines) -> None:
        super().__init__(view.bank, view.slot, view.base)
        self._lines = lines
        self._names: dict[Register, tuple[str, str]] = {}

    def _copies(self, register: Register) -> tuple[str, str]:
        if register not in self._names:
            value, state = self._lines.name("v"), self._lines.name("s")
            self._lines(f"{value} = {View.value(self, register)}")
            self._lines(f"{state} = {View.state(self, register)}")
            self._names[register] = value, state
        return self._names[register]

    def value(self, register: Register) -> str:
        return self._copies(register)[0]

    def state(self, register: Register) -> str:
        return self._copies(register)[1]


def sure_registers(registers: list[Register], variables: tuple[str, ...], row: Leaf) -> list[Register]:
    """The registers that hold plain values of columns without NULL, of a row that every match binds once."""
    sure = []
    for register in registers:
        plain = register.kind == "last" and not register.folded and isinstance(register.expr, Leafy)
        bound_once = len(register.variables) == 1 and register.variables[0] in variables
        if plain and bound_once and register.expr is not None:
            operand = row(register.expr)
            if operand is not None and operand.never_null:
                sure.append(register)
    return sure
