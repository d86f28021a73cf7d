"""The kernel of `a` then `b` within a time, the latest `a` wins, each condition on one row alone.

A key needs one deadline and the row of its latest `a`, and the loop over the rows has no branch that depends on data:
that is what makes it fast. Registers are filled afterwards, for matches alone, from the rows that the loop named.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unerring.matching.kernel.columns import Array, Columns
from unerring.matching.kernel.compilation import Functions
from unerring.matching.kernel.constants import marked
from unerring.matching.kernel.lists import LONG, NEVER
from unerring.matching.kernel.lowering import STRICT, Final, Net, Wait
from unerring.matching.kernel.outputs import Matches, constant
from unerring.matching.kernel.reading import RowReader, settled
from unerring.matching.kernel.registers import UNBOUND, Bank, Register, View, declare, fold, sure_registers
from unerring.matching.kernel.scalar import CODED, Lines, Uncompiled
from unerring.matching.kernel.state import NO_KEYS, Entries, RegisterRows, keys_more
from unerring.model import TIME_MAX
from unerring.rules import PatternPlan, Selection, of_row_alone, patterns as pt

NONE = -(2**63) + 1
"""A deadline before every row: no `a` is open."""
BLOCK = 2048
KEYS_CACHED = 1 << 16
"""Up to so many keys (16 bytes each) the state is near enough to be touched by every row."""
CARRIED = -1
"""The row of an `a` of an earlier batch: its registers are in the key's arrays."""


class LatestSource:
    """Writes the source for one plan, or refuses it."""

    def __init__(self, plan: PatternPlan, net: Net, reader: RowReader, bank: Bank) -> None:
        self.plan, self.reader, self.bank = plan, reader, bank
        first, then = _two_steps(plan, net)
        self.first, self.last = plan.variable(first.variable), plan.variable(then.variable)
        ends = [within for within in (plan.within_us, then.gap.within_us) if within is not None]
        self.within = min(*ends, LONG) if ends else None

    def write(self, measures: list[Register]) -> str:
        for register in measures:
            declare(self.bank, register)
        names = (self.first.name, self.last.name)
        self.bank.sure = sure_registers(self.bank.registers, names, self.reader.leaf)
        return settled(self._write, self.reader, self.bank)

    def _write(self, lines: Lines) -> None:
        columns = ", ".join(self.reader.fetches)
        lines("")
        with lines.block(f"def scan(n, D, OR, OA, key, K, Q, {columns}):"):
            lines("m = np.uint64(0)")
            with lines.block("for i in range(n):"):
                self._write_row(lines)
            lines("return m")
        lines("")
        lines("")
        with lines.block(f"def scan_many(n, D, OR, OA, key, K, Q, {columns}):"):
            self._write_scan_many(lines)
        lines("")
        lines("")
        with lines.block(f"def capture(n, OR, OA, OK, OT, OI, OF, ON, I, F, N, key, K, Q, {columns}):"):
            self._write_capture(lines)
        lines("")
        lines("")
        with lines.block(f"def carry(n, through, D, I, F, N, key, K, Q, {columns}):"):
            self._write_carry(lines)

    def _write_scan_many(self, lines: Lines) -> None:
        """The scan for more keys than the caches hold: only rows that matter touch the keys' state, many at a time."""
        lines("m = np.uint64(0)")
        lines("touched = 0")
        lines(f"chosen = np.empty({BLOCK + 1}, np.int64)")
        with lines.block(f"for low in range(0, n, {BLOCK}):"):
            lines("q = np.uint64(0)")
            with lines.block(f"for i in range(low, min(low + {BLOCK}, n)):"):
                a, b = self._conditions(lines)
                lines("chosen[q] = i")
                lines(f"q += np.uint64(({a}) | ({b}))")
            with lines.block("for j in range(q):"):
                # Loads that do not wait for each other: the row by row loop below finds them done.
                lines("touched ^= D[np.uint64(key[chosen[j]]), 0]")
            with lines.block("for j in range(q):"):
                lines("i = chosen[j]")
                self._write_row(lines)
        lines("OR[n] = touched")
        lines("return m")

    def _conditions(self, lines: Lines) -> tuple[str, str]:
        admitted = self.reader.admitted(lines)
        conditions = []
        for variable in (self.first, self.last):
            parts = [admitted, self.reader.of_input(variable.stream), self.reader.condition(variable.condition, lines)]
            conditions.append(" and ".join(part for part in parts if part != "True") or "True")
        return conditions[0], conditions[1]

    def _write_row(self, lines: Lines) -> None:
        """Masks of all ones or zeros instead of branches, which a random stream would mispredict."""
        a, b = self._conditions(lines)
        lines("t = T[i]")
        lines("k = np.uint64(key[i])")
        lines(f"a = -int({a})")
        lines("d = D[k, 0]")
        lines("r = D[k, 1]")
        lines(f"hit = int(({b}) & (t <= d))")
        lines("OR[m] = i")
        lines("OA[m] = r")
        lines("m += np.uint64(hit)")
        deadline = str(TIME_MAX) if self.within is None else f"(t + {marked(self.within)})"
        lines(f"d = (d & ~a) | ({deadline} & a)")
        lines(f"D[k, 0] = (d & ~-hit) | ({NONE} & -hit)")
        lines("D[k, 1] = (r & ~a) | (i & a)")

    def _write_capture(self, lines: Lines) -> None:
        """Registers of the matches: of `a` from its row or as carried, then of `b`."""
        with lines.block("for j in range(n):"):
            lines("i = OR[j]")
            lines("k = key[i]")
            lines("OK[j] = k")
            lines("OT[j] = T[i]")
            lines("i = OA[j]")
            view, carried = _Named(self.bank), Carried(self.bank, self.first.name)
            with lines.block("if i >= 0:"):
                self._write_blank(lines, view, self.bank.registers)
                self._fold(lines, view, self.first.name)
            with lines.block("else:"):
                self._write_blank(lines, view, [one for one in self.bank.registers if one not in carried.values])
                for register in carried.values:
                    lines(f"{view.value(register)} = {carried.value(register)}")
                for register in carried.states:
                    lines(f"{view.state(register)} = {carried.state(register)}")
                lines("pass")
            lines("i = OR[j]")
            self._fold(lines, view, self.last.name)

    def _write_blank(self, lines: Lines, view: View, registers: list[Register]) -> None:
        """Registers with nothing bound. Those that are filled in every match need not be blank before."""
        for register in registers:
            if register not in self.bank.sure:
                lines(f"{view.value(register)} = {-1 if register.type in CODED else 0}")
                lines(f"{view.state(register)} = {UNBOUND}")
        lines("pass")

    def _write_carry(self, lines: Lines) -> None:
        """At the end of a batch, copy the registers of open matches, so that they outlive it."""
        with lines.block("if n < len(D):"):
            with lines.block("for j in range(n):"):
                lines("k = key[j]")
                with lines.block("if D[k, 1] == j:"):
                    self._write_keep(lines)
        with lines.block("else:"):
            with lines.block("for k in range(len(D)):"):
                lines("j = D[k, 1]")
                with lines.block("if j >= 0:"):
                    self._write_keep(lines)

    def _write_keep(self, lines: Lines) -> None:
        lines(f"D[k, 1] = {CARRIED}")
        with lines.block("if D[k, 0] <= through:"):
            lines(f"D[k, 0] = {NONE}")
        with lines.block("else:"):
            lines("i = j")
            carried = Carried(self.bank, self.first.name)
            self._write_blank(lines, carried, carried.values)
            self._fold(lines, carried, self.first.name)

    def _fold(self, lines: Lines, view: View, variable: str) -> None:
        taken = [register for register in self.bank.registers if register.takes(variable)]
        for register in taken:
            fold(register, view, lines, self.reader.leaf)
        if not taken:
            lines("pass")


class _Named(View):
    """The registers of a match in the arrays of outputs."""

    def __init__(self, bank: Bank) -> None:
        super().__init__(bank, "j", 0)

    def value(self, register: Register) -> str:
        return "O" + View.value(self, register)

    def state(self, register: Register) -> str:
        return "O" + View.state(self, register)


class Carried(View):
    """The registers of an open match, by key: only those that the first row goes into, and states that are not sure."""

    def __init__(self, bank: Bank, first: str) -> None:
        super().__init__(bank, "k", 0)
        self.values = [register for register in bank.registers if register.takes(first)]
        self.states = [register for register in self.values if register not in bank.sure]

    def _place(self, register: Register) -> tuple[str, int]:
        array = self.bank.place(register)[0]
        return array, [one for one in self.values if self.bank.place(one)[0] == array].index(register)

    def value(self, register: Register) -> str:
        array, column = self._place(register)
        return f"{array}[k, {column}]"

    def state(self, register: Register) -> str:
        # A register that is sure has no state; nothing that folds it uses what is returned for it then.
        return f"N[k, {self.states.index(register)}]" if register in self.states else ""

    def columns(self, array: str) -> list[int]:
        """For each column of one of the arrays, the column of an entry that it is."""
        if array == "N":
            return [self.bank.place(register)[2] for register in self.states]
        places = [self.bank.place(register) for register in self.values]
        return [column for kind, column, _ in places if kind == array]


def _two_steps(plan: PatternPlan, net: Net) -> tuple[Wait, Wait]:
    match net.line() if net.one_path() and plan.selection is Selection.RECENT else []:
        case [Wait() as first, Wait() as then, Final(())]:
            gap = pt.Gap(pt.Contiguity.RELAXED, then.gap.within_us)
            fits = (
                first == Wait(0, first.variable, False, STRICT, ())
                and then == Wait(1, then.variable, False, gap, ())
                and first.variable != then.variable
            )
        case _:
            fits = False
    if not fits:
        raise Uncompiled("not two steps of which the latest wins")
    conditions = [plan.variable(wait.variable).condition for wait in (first, then)]
    if not all(condition is None or of_row_alone(condition) for condition in conditions):
        raise Uncompiled("its conditions look at more than one row")
    return first, then


class LatestMemory(RegisterRows):
    """By key: a deadline and a row, and the registers of an `a` that came in an earlier batch."""

    def __init__(self, bank: Bank, first: str) -> None:
        super().__init__(bank, 0, 1)
        carried = Carried(bank, first)
        self._columns = [carried.columns(array) for array in "IFN"]
        self._blank = self.blank[0], self.blank[1], self.blank[2].copy()
        self._blank[2][0, [bank.place(register)[2] for register in bank.sure]] = 0
        """One entry with nothing bound; what is sure has no state."""
        self.D = np.empty((0, 2), np.int64)
        self.I, self.F, self.N = (
            np.empty((0, len(columns)), array.dtype)
            for columns, array in zip(self._columns, self.registers, strict=True)
        )

    def reserve(self, keys: int) -> None:
        more = keys_more(len(self.D), keys)
        if more:
            self.D = self.room.longer(self.D, more, NONE)
            self.D[-more:, 1] = CARRIED
            self.add_rows(more)

    def step(
        self, functions: Functions, batch: Columns, key: Array, arguments: Sequence[Any], through: int, rows_before: int
    ) -> Matches:
        count = len(batch)
        rows, began = np.empty(count + 1, np.int64), np.empty(count + 1, np.int64)
        scan = functions["scan" if len(self.D) <= KEYS_CACHED else "scan_many"]
        matched = int(scan(count, self.D, rows, began, key, *arguments))
        rows, began = rows[:matched], began[:matched]
        keys, times, out = np.empty(matched, np.int64), np.empty(matched, np.int64), self.outputs(matched)
        functions["capture"](matched, rows, began, keys, times, *out, *self.registers, key, *arguments)
        until = NEVER if through >= TIME_MAX else through
        functions["carry"](count, until, self.D, *self.registers, key, *arguments)
        return Matches(times, rows, keys, constant(0, matched), *out)

    def is_quiet(self, through: int) -> bool:
        return True

    def due(self, through: int) -> Array:
        return NO_KEYS

    def count(self, through: int) -> int:
        return int(np.count_nonzero(self.D[:, 0] > (NEVER if through >= TIME_MAX else through)))

    def entries(self, through: int, keys: Array | None = None) -> Entries:
        until = NEVER if through >= TIME_MAX else through
        numbers = np.flatnonzero(self.D[:, 0] > until) if keys is None else keys[self.D[keys, 0] > until]
        full = [np.repeat(blank, len(numbers), axis=0) for blank in self._blank]
        for array, columns, held in zip(full, self._columns, self.taken(numbers), strict=True):
            array[:, columns] = held
        return Entries(numbers, np.concatenate([self.D[numbers, :1], full[0]], axis=1), *full[1:])

    def load(self, entries: Entries, keys: int) -> None:
        self.D = np.empty((0, 2), np.int64)
        self.I, self.F, self.N = self.taken(slice(0))
        self.reserve(keys)
        self.D[entries.key, 0] = entries.integers[:, 0]
        registers = (entries.integers[:, 1:], entries.floats, entries.states)
        for array, columns, held in zip(self.registers, self._columns, registers, strict=True):
            array[entries.key] = held[:, columns]
