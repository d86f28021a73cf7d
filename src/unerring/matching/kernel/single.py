"""The kernel of contiguous patterns of which a key can have one run at a time.

That holds where every condition asks one column for a value, each another one: a row that lets a run go on cannot start
another, and a row fits one continuation at most. So a run needs no list; its state is a row of arrays, by key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unerring.matching.kernel.columns import Array, Columns
from unerring.matching.kernel.compilation import Functions
from unerring.matching.kernel.constants import marked
from unerring.matching.kernel.lists import LONG
from unerring.matching.kernel.lowering import STRICT, Final, Net, Wait
from unerring.matching.kernel.outputs import OUTPUTS_MIN, Matches, constant, joined
from unerring.matching.kernel.reading import RowReader, settled
from unerring.matching.kernel.registers import UNBOUND, Bank, Register, View, declare, fold, leaf_in_condition
from unerring.matching.kernel.scalar import Lines, Uncompiled, emit, hold
from unerring.matching.kernel.state import NO_KEYS, Entries, RegisterRows, keys_more
from unerring.model import TIME_MAX
from unerring.rules import PatternPlan, Selection, expressions as ex, of_row_alone

PLACE, COUNT, DEADLINE = range(3)
"""Columns of `I`: the element whose row was bound last, plus one (0: no run), how often, until when."""
BASE = 3


class SingleSource:
    """Writes the source for one plan, or refuses it."""

    def __init__(self, plan: PatternPlan, net: Net, reader: RowReader, bank: Bank) -> None:
        self.plan, self.net, self.reader, self.bank = plan, net, reader, bank
        _check(plan, net)
        self.lines = Lines()

    def write(self, measures: list[Register]) -> str:
        for register in measures:
            declare(self.bank, register)
        return settled(self._write, self.reader, self.bank)

    def _write(self, lines: Lines) -> None:
        self.lines = lines
        columns = ", ".join(self.reader.fetches)
        lines("")
        with lines.block(f"def step(n, first_row, I, F, N, OR, OK, OI, OF, ON, M, key, K, Q, {columns}):"):
            lines("m = 0")
            lines("room = len(OR)")
            with lines.block("for i in range(first_row, n):"):
                self._write_row()
            lines("M[0] = m")
            lines("return n + 1")

    def _write_row(self) -> None:
        lines = self.lines
        admitted = self.reader.admitted(lines)
        if admitted != "True":
            with lines.block(f"if not {admitted}:"):
                lines("continue")
        lines("t = T[i]")
        lines("k = key[i]")
        lines("p = I[k, 0]")
        with lines.block("if p != 0:"):
            lines("new = 0")
            with lines.block(f"if t <= I[k, {DEADLINE}]:"):
                for element in range(len(self.net.elements) - 1):
                    with lines.block(f"{'el' if element else ''}if p == {element + 1}:"):
                        self._write_element(element)
            with lines.block("if new != 0:"):
                lines("I[k, 0] = new")
                lines("continue")
            lines("I[k, 0] = 0")
        self._write_start()

    def _write_element(self, element: int) -> None:
        place = self.net.elements[element]
        again, leave, _ = self.net.bound(element)
        options = [(f"I[k, {COUNT}] < {place.most}" if place.most else "", wait) for wait in again]
        options += [(f"I[k, {COUNT}] >= {place.least}" if place.least > 1 else "", wait) for wait in leave]
        depth = 0
        lines = self.lines
        for guard, wait in options:
            if not isinstance(wait, Wait):
                raise Uncompiled("it can end in a repetition")
            accepted = self._accepts(wait.variable)
            block = lines.block(f"if {f'{guard} and ' if guard else ''}{accepted}:")
            block.__enter__()
            self._write_bound(wait)
            block.__exit__()
            block = lines.block("else:")
            block.__enter__()
            depth += 1
        lines("pass")
        for _ in range(depth):
            block.__exit__()

    def _write_bound(self, wait: Wait) -> None:
        lines = self.lines
        lines(f"I[k, {COUNT}] = {f'I[k, {COUNT}] + 1' if wait.again else '1'}")
        self._fold(wait.variable)
        if wait.element == len(self.net.elements) - 1:
            self._write_output()
            lines("I[k, 0] = 0")
            # The row is the match's last: it starts nothing.
            lines("continue")
        else:
            lines(f"new = {wait.element + 1}")

    def _write_start(self) -> None:
        lines = self.lines
        first = self.net.elements[0].variables[0]
        condition = self.plan.variable(first).condition
        early = condition is not None and not of_row_alone(condition)
        if early:  # what it asks of the match is asked of this one, not of the key's run before
            self._write_blank()
        with lines.block(f"if {self._accepts(first)}:"):
            within = self.plan.within_us
            deadline = TIME_MAX if within is None else f"min(t + {marked(min(within, LONG))}, {TIME_MAX})"
            lines("I[k, 0] = 1")
            lines(f"I[k, {COUNT}] = 1")
            lines(f"I[k, {DEADLINE}] = {deadline}")
            if not early:
                self._write_blank()
            self._fold(first)

    def _write_blank(self) -> None:
        integers, floats, states = self.bank.widths()
        blank = self.bank.texts()
        for column in range(integers):
            self.lines(f"I[k, {BASE + column}] = {-1 if column in blank else 0}")
        for column in range(floats):
            self.lines(f"F[k, {column}] = 0.0")
        for column in range(states):
            self.lines(f"N[k, {column}] = {UNBOUND}")

    def _accepts(self, variable: str) -> str:
        defined = self.plan.variable(variable)
        stream = self.reader.of_input(defined.stream)
        if defined.condition is None:
            return stream
        start = variable == self.net.elements[0].variables[0]
        view = View(self.bank, "k", BASE)
        leaf = leaf_in_condition(self.bank, variable, view, self.reader.leaf, self.lines, not start)
        held = hold(emit(defined.condition, self.lines, leaf))
        return held if stream == "True" else f"({stream} and {held})"

    def _fold(self, variable: str) -> None:
        view = View(self.bank, "k", BASE)
        for register in list(self.bank.registers):
            if register.takes(variable):
                fold(register, view, self.lines, self.reader.leaf)

    def _write_output(self) -> None:
        lines = self.lines
        lines("OR[m] = i")
        lines("OK[m] = k")
        integers, floats, states = self.bank.widths()
        for column in range(integers):
            lines(f"OI[m, {column}] = I[k, {BASE + column}]")
        for column in range(floats):
            lines(f"OF[m, {column}] = F[k, {column}]")
        for column in range(states):
            lines(f"ON[m, {column}] = N[k, {column}]")
        lines("m += 1")
        with lines.block("if m == room:"):
            lines("M[0] = m")
            lines("I[k, 0] = 0")
            lines("return i + 1")


def _check(plan: PatternPlan, net: Net) -> None:
    """Refuse what could have a second run or a choice."""
    elements = net.elements
    names = [element.variables[0] for element in elements]
    fits = (
        plan.selection is Selection.PREFERRED
        and len(elements) > 1
        and all(element.least == element.most == 1 for element in (elements[0], elements[-1]))
        and all(
            len(element.variables) == 1 and element.least > 0 and element.loop_gap == STRICT for element in elements
        )
        and net.line() == [*(Wait(at, name, False, STRICT, ()) for at, name in enumerate(names)), Final(())]
    )
    if not fits:
        raise Uncompiled("not a contiguous sequence")
    if len(set(names)) < len(names):
        raise Uncompiled("a variable stands at two places")
    asked = [_asked(plan.variable(name).condition) for name in names]
    columns = [{column for column, _ in wanted} for wanted in asked]
    for column in sorted(set.intersection(*columns)):
        values = [next(value for name, value in wanted if name == column) for wanted in asked]
        if len(set(values)) == len(values):
            return
    raise Uncompiled("one row could fit two of its variables")


def _asked(condition: ex.Expr | None) -> list[tuple[str, str]]:
    """The `column = constant` that a condition cannot hold without."""
    match condition:
        case ex.And(parts):
            return [asked for part in parts for asked in _asked(part)]
        case ex.Comparison("=", ex.Attribute(name, kind, at), ex.Literal() as constant) if at == ex.HERE:
            if constant.type is kind and kind.value != "float":
                return [(name, str(constant))]
    return []


class SingleMemory(RegisterRows):
    """A row of each array for each key."""

    def __init__(self, bank: Bank) -> None:
        super().__init__(bank, BASE, 0)

    def reserve(self, keys: int) -> None:
        more = keys_more(len(self.I), keys)
        if more:
            self.add_rows(more)

    def step(
        self, functions: Functions, batch: Columns, key: Array, arguments: Sequence[Any], through: int, rows_before: int
    ) -> Matches:
        room = max(OUTPUTS_MIN, len(batch) // 8)
        parts: list[Matches] = []
        row, counted = 0, np.zeros(1, np.int64)
        while row <= len(batch):
            rows, keys, out = np.empty(room, np.int64), np.empty(room, np.int64), self.outputs(room)
            row = int(functions["step"](len(batch), row, *self.registers, rows, keys, *out, counted, key, *arguments))
            count = int(counted[0])
            rows = rows[:count]
            registers = [array[:count] for array in out]
            parts.append(Matches(batch.time[rows], rows, keys[:count], constant(0, count), *registers))
        return parts[0] if len(parts) == 1 else joined(parts, [0] * len(parts))

    def is_quiet(self, through: int) -> bool:
        return True

    def due(self, through: int) -> Array:
        return NO_KEYS

    def count(self, through: int) -> int:
        return int(np.count_nonzero((self.I[:, PLACE] != 0) & (self.I[:, DEADLINE] > through)))

    def entries(self, through: int, keys: Array | None = None) -> Entries:
        rows = self.I if keys is None else self.I[keys]
        numbers = np.flatnonzero((rows[:, PLACE] != 0) & (rows[:, DEADLINE] > through))
        numbers = numbers if keys is None else keys[numbers]
        return Entries(numbers, *self.taken(numbers))

    def load(self, entries: Entries, keys: int) -> None:
        self.I, self.F, self.N = self.taken(slice(0))
        self.reserve(keys)
        self.I[entries.key], self.F[entries.key], self.N[entries.key] = entries.integers, entries.floats, entries.states
