"""Windows that are output only when something has changed: what a key gave last is a slot at the head of its list.

A key starts with the values of an empty window. While what it gave last equals them, it needs no slot, so that a key
whose windows have become empty is forgotten.
"""

from __future__ import annotations

from unerring.matching.kernel.lists import BASE, COUNT, DEADLINE, NEVER, ListSource
from unerring.matching.kernel.registers import Bank, Register, View, declare, register_of
from unerring.matching.kernel.scalar import CODED, FLOAT, Lines, Operand, Uncompiled, emit, zero
from unerring.matching.windows import watched
from unerring.rules import WindowPlan, expressions as ex

GIVEN = 2
"""The PC of the slot that holds what was given last."""


def window_leaf(view: View, expr: ex.Expr) -> Operand | None:
    """The operand that a leaf of a measure reads in the registers of a window."""
    if isinstance(expr, ex.KeyValue):
        raise Uncompiled(f"a condition on the window looks at {expr}")
    register = register_of(expr)
    if register is None:
        return None
    declare(view.bank, register)
    return view.read(register)


class Changes(ListSource):
    """Writes the comparison of a window with what its key gave last."""

    def __init__(self, plan: WindowPlan, bank: Bank) -> None:
        names = watched(plan)
        exprs = [measure.expr for measure in plan.measures if measure.name in names]
        self.bank = bank
        self._watched = [(Register(f"window given {n}", (), expr), expr) for n, expr in enumerate(exprs)]

    def write_changed(self, lines: Lines, slot: str) -> None:
        """`changed`: whether the window in `slot` differs from what was given last, which it then is itself."""
        self.lines = lines
        lines("w = head[k]")
        with lines.block(f"if w != -1 and I[w, 0] != {GIVEN}:"):
            lines("w = -1")
        lines("changed = False")
        lines("is_empty = True")
        now = []
        for register, expr in self._watched:
            empty = self._values(expr, "0")
            new = self._values(expr, slot)
            before, before_null = lines.name("o"), lines.name("n")
            lines(f"{before} = {empty.value}")
            lines(f"{before_null} = {empty.null}")
            with lines.block("if w != -1:"):
                given = View(self.bank, "w", BASE)
                lines(f"{before} = {given.read(register).value}")
                lines(f"{before_null} = {given.state(register)} != 0")
            with lines.block(f"if not {_same(new, Operand(before, before_null), register)}:"):
                lines("changed = True")
            with lines.block(f"if not {_same(new, empty, register)}:"):
                lines("is_empty = False")
            now.append((register, new))
        with lines.block("if is_empty:"):
            with lines.block("if w != -1:"):
                lines("head[k] = following[w]")
                lines("count[k] -= 1")
                self._free("w")
        with lines.block("else:"):
            with lines.block("if w == -1:"):
                self._allocate("w", "0")
                lines(f"I[w, 0] = {GIVEN}")
                lines(f"I[w, {COUNT}] = {NEVER}")
                lines(f"I[w, {DEADLINE}] = {NEVER}")
                lines("following[w] = head[k]")
                lines("head[k] = w")
                lines("count[k] += 1")
            for register, new in now:
                self._keep(register, new)

    def _values(self, expr: ex.Expr, slot: str) -> Operand:
        """The value of a measure over the registers of a slot, in names of its own."""
        lines, view = self.lines, View(self.bank, slot, BASE)
        operand = emit(expr, lines, lambda leaf: window_leaf(view, leaf))
        value, null = lines.name(), lines.name("n")
        lines(f"{null} = {operand.null}")
        blank = "-1" if expr.type in CODED else zero(expr.type)
        lines(f"{value} = {blank} if {null} else {operand.value}")
        return Operand(value, null)

    def _keep(self, register: Register, new: Operand) -> None:
        """One NaN only: equal states have equal bytes."""
        view = View(self.bank, "w", BASE)
        value = f"NAN if {new.value} != {new.value} else {new.value}" if register.type is FLOAT else f"int({new.value})"
        self.lines(f"{view.value(register)} = {value}")
        self.lines(f"{view.state(register)} = 1 if {new.null} else 0")


def _same(left: Operand, right: Operand, register: Register) -> str:
    """NaN is no change from NaN, nor NULL from NULL."""
    equal = f"{left.value} == {right.value}"
    if register.type is FLOAT:
        equal = f"({equal} or ({left.value} != {left.value} and {right.value} != {right.value}))"
    return f"({left.null} == {right.null} and ({left.null} or {equal}))"
