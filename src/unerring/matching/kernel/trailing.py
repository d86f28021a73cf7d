"""The kernel of windows that trail: a key's rows of the last while are a list, and a row costs the same however long
that is.

Counts, sums and averages are totals: a row is added when it comes and taken out when it leaves (see `totals`). The
others cannot give up a row, so they are held in two parts. Each row of the older part has, in its own slot, the
aggregates of the rows from it to the end of that part; all rows of the newer part are in one aggregate. What the window
shows is what its oldest row has, combined with that one. When a row leaves and the older part is empty, the newer part
becomes the older one: its rows are gone through from the newest back. That happens to a row once.
"""

from __future__ import annotations

from collections.abc import Callable

from unerring.matching.kernel.constants import marked
from unerring.matching.kernel.lists import BASE, DEADLINE, LONG, NEVER, START_TIME, STATE
from unerring.matching.kernel.reading import RowReader
from unerring.matching.kernel.registers import OVERFLOW, Bank, Register, View, combine, declare, fold, stored
from unerring.matching.kernel.scalar import FLOAT, Lines, Operand, Uncompiled, emit
from unerring.matching.kernel.totals import (
    DOWNWARD,
    FLOAT_LIMBS,
    FLOAT_UNIT,
    FLOAT_WORDS,
    INT_LIMBS,
    INT_UNIT,
    OUTSIDE,
    UPWARD,
    WIDE_LIMBS,
    WIDE_UNIT,
)
from unerring.matching.kernel.trailing_lists import DERIVED
from unerring.matching.kernel.windows import OPEN, WindowSource
from unerring.rules import Trailing, WindowPlan, expressions as ex

TOTALS = ("count", "sum", "avg")

Kept = Callable[[str, ex.Expr], Operand]
"""What is kept of an expression in a slot."""


class TrailingSource(WindowSource):
    """Writes the source for one plan."""

    def __init__(self, plan: WindowPlan, reader: RowReader, bank: Bank) -> None:
        super().__init__(plan, reader, bank)
        if not isinstance(plan.window, Trailing):
            raise Uncompiled("its window does not trail")
        self.size = plan.window.size_us
        if self.size > LONG // 4:
            raise Uncompiled("its window is longer than time")
        self.state = f"{STATE}, {DERIVED}"
        self.totals = Totals(bank, self._kept)

    @property
    def parted(self) -> list[Register]:
        """The aggregates that are held in two parts."""
        return [one for one in self.bank.registers if one.takes("") and one.kind not in TOTALS]

    def _write(self, lines: Lines) -> None:
        super()._write(lines)
        lines("")
        lines("")
        with lines.block(f"def rebuild({self.state}):"):
            with lines.block("for k in range(len(head)):"):
                self._write_oldest("s")
                with lines.block("while s != -1:"):
                    self._write_enter()
                    lines("s = following[s]")

    def _write_into(self) -> None:
        lines = self.lines
        self._allocate("s", "0")
        lines(f"I[s, 0] = {OPEN}")
        lines(f"I[s, {START_TIME}] = t")
        lines(f"I[s, {DEADLINE}] = t + {marked(self.size)}")
        self._write_kept()
        lines("count[k] += 1")
        # Rows whose time is over now are in the list until the deadline, after all rows of this time: none of these
        # sees them any more. The look at the deadline is due even if they have left.
        self._write_leave("t")
        lines("last = tail[k]")
        with lines.block("if last == -1:"):
            lines("last = head[k]")  # what was given last, if anything was
        self._write_link("s")
        lines("following[s] = -1")
        self._write_enter()
        self._write_window("t", "i")
        with lines.block(f"if due[k] == {NEVER}:"):
            self._write_oldest("f")
            self._write_timer("f")

    def _write_due(self) -> None:
        """Rows whose time is over leave, and what is left is looked at."""
        self._write_leave("stamp")
        self._write_window("stamp", "-1")

    # --- rows come and go ---

    def _write_enter(self) -> None:
        """The row in slot `s`, which is in the list, becomes the newest."""
        lines = self.lines
        lines("previous[s] = tail[k]")
        lines("tail[k] = s")
        self.totals.write_add(lines, "s", 1)
        if self.parted:
            with lines.block("if back[k] == -1:"):
                self._allocate("e", "0")
                lines("back[k] = e")
            lines("e = back[k]")
            for register in self.parted:
                fold(register, View(self.bank, "e", BASE), lines, lambda expr: self._kept("s", expr))

    def _write_leave(self, now: str) -> None:
        """The oldest rows leave, if their time is over."""
        lines = self.lines
        self._write_oldest("r")
        with lines.block(f"if r != -1 and I[r, {DEADLINE}] <= {now}:"):
            lines("before = head[k]")
            with lines.block("if before == r:"):
                lines("before = -1")
            if self.parted:
                lines("is_newer = False")
            with lines.block(f"while r != -1 and I[r, {DEADLINE}] <= {now}:"):
                if self.parted:
                    with lines.block("if middle[k] == -1:"):
                        lines("is_newer = True")
                    with lines.block("if middle[k] == r:"):
                        lines("middle[k] = -1")
                self.totals.write_add(lines, "r", -1)
                lines("beyond = following[r]")
                self._free("r")
                lines("count[k] -= 1")
                lines("r = beyond")
            with lines.block("if before == -1:"):
                lines("head[k] = r")
            with lines.block("else:"):
                lines("following[before] = r")
            with lines.block("if r == -1:"):
                lines("tail[k] = -1")
                if self.parted:
                    self._free("back[k]")
                    lines("back[k] = -1")
            if self.parted:
                with lines.block("elif is_newer:"):
                    self._write_older_part()

    def _write_older_part(self) -> None:
        """The rows from `r` to the newest become the older part; there is none."""
        lines, later = self.lines, View(self.bank, "q", BASE)
        view = View(self.bank, "p", BASE)
        lines("p = tail[k]")
        lines("middle[k] = p")
        lines("q = -1")
        with lines.block("while True:"):
            for register in self.parted:
                fold(register, view, lines, lambda expr: self._kept("p", expr))
            with lines.block("if q != -1:"):
                for register in self.parted:
                    combine(register, view, lines, later)
            with lines.block("if p == r:"):
                lines("break")
            lines("q = p")
            lines("p = previous[p]")
        lines("e = back[k]")
        self._copy("e", "0")

    def _write_window(self, now: str, position: str) -> None:
        """What the window shows, in a slot of its own, and a look at it."""
        lines = self.lines
        lines(f"now = {now}")
        self._allocate("b", "0")
        view = View(self.bank, "b", BASE)
        self._write_oldest("r")
        if self.parted:
            with lines.block("if middle[k] != -1:"):
                self._copy("b", "r")
            with lines.block("if back[k] != -1:"):
                lines("e = back[k]")
                for register in self.parted:
                    combine(register, view, lines, View(self.bank, "e", BASE))
        self.totals.write_read(lines, view)
        self._write_look("b", f"now - {marked(self.size)} + 1", "now + 1", "now", position)
        self._free("b")

    def _copy(self, slot: str, like: str) -> None:
        """The aggregates that are held in two parts, from one slot to another."""
        view, other = View(self.bank, slot, BASE), View(self.bank, like, BASE)
        for register in self.parted:
            self.lines(f"{view.value(register)} = {other.value(register)}")
            self.lines(f"{view.state(register)} = {other.state(register)}")

    # --- what is kept of a row ---

    def _kept(self, slot: str, expr: ex.Expr) -> Operand:
        register = Register("window value", (), expr)
        declare(self.bank, register)
        return View(self.bank, slot, BASE).read(register)

    def _write_kept(self) -> None:
        lines = self.lines
        view = View(self.bank, "s", BASE)
        for register in list(self.bank.registers):
            if register.kind == "window value" and register.expr is not None:
                operand = emit(register.expr, lines, self.reader.leaf)
                lines(f"{view.value(register)} = {stored(operand, register)}")
                null = operand.null
                lines(f"{view.state(register)} = {'0' if null == 'False' else f'1 if {null} else 0'}")


class Totals:
    """Writes how the totals of a key change, and how counts, sums and averages are read from them. They are words in
    `W`: for each expression how many values it has (rows, where there is none), and their sum where one asks for it."""

    def __init__(self, bank: Bank, kept: Kept) -> None:
        self._bank, self._kept = bank, kept
        self._counts: dict[ex.Expr | None, int] = {}
        self._sums: dict[ex.Expr, int] = {}
        self.words = 1
        """How many there are; the first is never used."""

    def _declare(self) -> list[Register]:
        registers = [one for one in self._bank.registers if one.takes("") and one.kind in TOTALS]
        for register in registers:
            if register.expr not in self._counts:
                self._counts[register.expr] = self._words(1)
            if register.kind != "count" and register.expr is not None and register.expr not in self._sums:
                self._sums[register.expr] = self._words(FLOAT_WORDS if register.expr.type is FLOAT else INT_LIMBS)
        return registers

    def _words(self, more: int) -> int:
        self.words += more
        return self.words - more

    def write_add(self, lines: Lines, slot: str, sign: int) -> None:
        """The row in a slot is added, or taken out."""
        self._declare()
        for expr, count in self._counts.items():
            if expr is None:
                lines(f"W[k, {count}] += {sign}")
                continue
            operand = self._kept(slot, expr)
            with lines.block(f"if not {operand.null}:"):
                lines(f"W[k, {count}] += {sign}")
                if expr in self._sums:
                    function = "add_float" if expr.type is FLOAT else "add_int"
                    lines(f"{function}(W, k, {self._sums[expr]}, {operand.value}, {sign})")

    def write_read(self, lines: Lines, view: View) -> None:
        """The registers of a slot that show totals. `r` is the key's oldest row."""
        registers = self._declare()
        nearest: dict[ex.Expr, str] = {}
        for register in registers:
            value, state, expr = view.value(register), view.state(register), register.expr
            count = f"W[k, {self._counts[expr]}]"
            if register.kind == "count" or expr is None:
                lines(f"{value} = {count}")
                continue
            at = self._sums[expr]
            if register.kind == "sum" and expr.type is not FLOAT:
                total, lost = lines.name(), lines.name("n")
                with lines.block(f"if {count} > 0:"):
                    lines(f"{total}, {lost} = whole(W, k, {at})")
                    lines(f"{value} = {total}")
                    lines(f"{state} = {OVERFLOW} if {lost} else 0")
                continue
            if expr not in nearest:
                nearest[expr] = self._write_nearest(lines, expr)
            with lines.block(f"if {count} > 0:"):
                lines(f"{value} = {nearest[expr]}")
                lines(f"{state} = 0")

    def _write_nearest(self, lines: Lines, expr: ex.Expr) -> str:
        """A name for the float that is nearest to a total."""
        name, at = lines.name(), self._sums[expr]
        if expr.type is not FLOAT:
            self._write_rounded(lines, name, at, INT_LIMBS, INT_UNIT)
            return name
        with lines.block(f"if W[k, {at + UPWARD}] > 0:"):
            lines(f"{name} = NAN if W[k, {at + DOWNWARD}] > 0 else INF")
        with lines.block(f"elif W[k, {at + DOWNWARD}] > 0:"):
            lines(f"{name} = -INF")
        with lines.block(f"elif W[k, {at + OUTSIDE}] == 0:"):
            self._write_rounded(lines, name, at, FLOAT_LIMBS, FLOAT_UNIT)
        with lines.block("else:"):
            with lines.block(f"for limb in range({WIDE_LIMBS}):"):
                lines("Z[limb] = 0")
            lines("q = r")
            with lines.block("while q != -1:"):
                operand = self._kept("q", expr)
                with lines.block(f"if not {operand.null}:"):
                    lines(f"add_wide(Z, {operand.value})")
                lines("q = following[q]")
            lines(f"{name} = rounded(Z, {WIDE_LIMBS}, {WIDE_UNIT})")
        return name

    def _write_rounded(self, lines: Lines, name: str, at: int, limbs: int, unit: int) -> None:
        for limb in range(limbs):
            lines(f"Z[{limb}] = W[k, {at + limb}]")
        lines(f"{name} = rounded(Z, {limbs}, {unit})")
