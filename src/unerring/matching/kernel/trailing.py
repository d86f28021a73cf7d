"""The kernel of windows that trail: a key's rows of the last while are a list, folded anew whenever one comes or goes.

A row's slot holds what the aggregates read of it. Folding anew costs as much as the window is long, but keeps what a
fold in row order means: taking a row out of a sum of floats would give other digits.
"""

from __future__ import annotations

from unerring.matching.kernel.constants import marked
from unerring.matching.kernel.lists import BASE, DEADLINE, LONG, NEVER, START_TIME
from unerring.matching.kernel.reading import RowReader
from unerring.matching.kernel.registers import Bank, Register, View, declare, fold, stored
from unerring.matching.kernel.scalar import Operand, Uncompiled, emit
from unerring.matching.kernel.windows import OPEN, WindowSource
from unerring.rules import Trailing, WindowPlan, expressions as ex


class TrailingSource(WindowSource):
    """Writes the source for one plan."""

    def __init__(self, plan: WindowPlan, reader: RowReader, bank: Bank) -> None:
        super().__init__(plan, reader, bank)
        if not isinstance(plan.window, Trailing):
            raise Uncompiled("its window does not trail")
        self.size = plan.window.size_us
        if self.size > LONG // 4:
            raise Uncompiled("its window is longer than time")

    def _write_into(self) -> None:
        lines = self.lines
        self._allocate("s", "0")
        lines(f"I[s, 0] = {OPEN}")
        lines(f"I[s, {START_TIME}] = t")
        lines(f"I[s, {DEADLINE}] = t + {marked(self.size)}")
        lines("following[s] = -1")
        self._write_kept()
        lines("count[k] += 1")
        self._write_folded("t", "i", "s")
        with lines.block(f"if due[k] == {NEVER}:"):
            self._write_oldest("f")
            self._write_timer("f")

    def _write_due(self) -> None:
        """Rows whose time is over leave, and what is left is looked at."""
        lines = self.lines
        lines("before = head[k]")
        with lines.block("if before == s:"):
            lines("before = -1")
        with lines.block(f"while s != -1 and I[s, {DEADLINE}] <= stamp:"):
            lines("r = following[s]")
            self._free("s")
            lines("count[k] -= 1")
            lines("s = r")
        with lines.block("if before == -1:"):
            lines("head[k] = s")
        with lines.block("else:"):
            lines("following[before] = s")
        self._write_folded("stamp", "-1", "-1")

    def _write_folded(self, now: str, position: str, fresh: str) -> None:
        """All rows of the last while into a slot of their own, and a look at it. `fresh`: a row to append, or -1."""
        lines = self.lines
        lines(f"now = {now}")
        lines(f"fresh = {fresh}")
        self._allocate("b", "0")
        lines("last = head[k]")
        self._write_oldest("r")
        with lines.block("while True:"):
            with lines.block("if r == -1:"):
                with lines.block("if fresh == -1:"):
                    lines("break")
                self._write_link("fresh")
                lines("r = fresh")
                lines("fresh = -1")
            with lines.block(f"if I[r, {START_TIME}] > now - {marked(self.size)}:"):
                lines("pass")
                view = View(self.bank, "b", BASE)
                for register in list(self.bank.registers):
                    if register.takes(""):
                        fold(register, view, lines, self._kept)
            lines("last = r")
            lines("r = following[r]")
        self._write_look("b", f"now - {marked(self.size)} + 1", "now + 1", "now", position)
        self._free("b")

    # --- what is kept of a row ---

    def _kept(self, expr: ex.Expr) -> Operand | None:
        """The value of a register for the row in slot `r`."""
        register = Register("window value", (), expr)
        declare(self.bank, register)
        return View(self.bank, "r", BASE).read(register)

    def _write_kept(self) -> None:
        lines = self.lines
        view = View(self.bank, "s", BASE)
        for register in list(self.bank.registers):
            if register.kind == "window value" and register.expr is not None:
                operand = emit(register.expr, lines, self.reader.leaf)
                lines(f"{view.value(register)} = {stored(operand, register)}")
                null = operand.null
                lines(f"{view.state(register)} = {'0' if null == 'False' else f'1 if {null} else 0'}")
