"""The kernel of `a` that no `b` follows within a time, each condition on one row alone.

A batch is read backwards: then the next `b` of a key is known when its `a` is met, and the loop needs no branch that
depends on the data and no list of what is open. What is still open at the batch's end waits in a queue in the order of
deadlines, which is the order of rows. A `b` in a batch ends all entries of its key that came before the batch.
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
from unerring.matching.kernel.outputs import Matches, constant
from unerring.matching.kernel.reading import RowReader, settled
from unerring.matching.kernel.registers import Bank, Register, View, declare, fold, sure_registers
from unerring.matching.kernel.scalar import Lines, Uncompiled
from unerring.matching.kernel.state import Entries, RegisterRows, keys_more
from unerring.model import TIME_MAX
from unerring.rules import PatternPlan, Selection, of_row_alone, patterns as pt

NEVER = 2**63 - 1
"""No `b` in this batch."""


class AbsenceSource:
    """Writes the source for one plan, or refuses it."""

    def __init__(self, plan: PatternPlan, net: Net, reader: RowReader, bank: Bank) -> None:
        self.plan, self.reader, self.bank = plan, reader, bank
        first, absent, self.within = _one_step(plan, net)
        self.first, self.absent = plan.variable(first), plan.variable(absent)

    def write(self, measures: list[Register]) -> str:
        for register in measures:
            declare(self.bank, register)
        self.bank.sure = sure_registers(self.bank.registers, (self.first.name,), self.reader.leaf)
        return settled(self._write, self.reader, self.bank)

    def _write(self, lines: Lines) -> None:
        columns = ", ".join(self.reader.fetches)
        lines("")
        with lines.block(f"def scan(n, through, NB, OR, key, K, Q, {columns}):"):
            self._write_scan(lines)
        lines("")
        lines("")
        with lines.block(f"def capture(n, OR, I, F, N, K, Q, {columns}):"):
            with lines.block("for j in range(n):"):
                lines("i = OR[j]")
                view = View(self.bank, "j", 0)
                taken = [register for register in self.bank.registers if register.takes(self.first.name)]
                for register in taken:
                    fold(register, view, lines, self.reader.leaf)
                if not taken:
                    lines("pass")
        for text in _QUEUE.split("\n"):
            lines(text)

    def _write_scan(self, lines: Lines) -> None:
        """From the last row to the first. Those still open are met first: they come to lie behind."""
        lines("m = n")
        lines("still_open = 0")
        with lines.block("for i in range(n - 1, -1, -1):"):
            lines("t = T[i]")
            lines("k = np.uint64(key[i])")
            admitted = self.reader.admitted(lines)
            conditions = []
            for variable in (self.first, self.absent):
                parts = [
                    admitted,
                    self.reader.of_input(variable.stream),
                    self.reader.condition(variable.condition, lines),
                ]
                conditions.append(" and ".join(part for part in parts if part != "True") or "True")
            lines(f"b = -int({conditions[1]})")
            lines("x = NB[k]")
            lines(f"d = t + {marked(self.within)}")
            lines(f"held = int(({conditions[0]}) & (x > d))")
            lines("OR[m - 1] = i")
            lines("m -= held")
            lines("still_open += held & int(d > through)")
            # A mask of all ones or zeros instead of a branch, which a random stream would mispredict.
            lines("NB[k] = (x & ~b) | (t & b)")
        lines("return m, still_open")


_QUEUE = '''

def settle(n, rows_before, NB, LB, key):
    """Entries from before this batch end where the batch had a `b`; the next batch finds none noted."""
    if n < len(NB):
        for i in range(n):
            k = key[i]
            if NB[k] != 9223372036854775807:
                LB[k] = rows_before
                NB[k] = 9223372036854775807
    else:
        for k in range(len(NB)):
            if NB[k] != 9223372036854775807:
                LB[k] = rows_before
                NB[k] = 9223372036854775807


def due(first, last, through, NB, LB, QD, QK, QR, OQ):
    """Which entries of the queue become matches by `through`: their places into OQ; and how far the queue is done."""
    m = 0
    at = first
    while at < last and QD[at] <= through:
        k = QK[at]
        OQ[m] = at
        if LB[k] <= QR[at] and NB[k] > QD[at]:
            m += 1
        at += 1
    return m, at


def link(first, last, gone, QK, QP, tail):
    """Each entry says which one of its key came before it."""
    for at in range(first, last):
        QP[at] = tail[QK[at]]
        tail[QK[at]] = gone + at
'''


def _one_step(plan: PatternPlan, net: Net) -> tuple[str, str, int]:
    match net.line() if net.one_path() and plan.selection is not Selection.RECENT else []:
        case [Wait() as first, Final((pt.Absence(kind=pt.AbsenceKind.FOLLOWED) as absence,))]:
            ends = [within for within in (plan.within_us, absence.within_us) if within is not None]
            fits = first == Wait(0, first.variable, False, STRICT, ()) and bool(ends)
        case _:
            fits = False
    if not fits:
        raise Uncompiled("not one step and an absence")
    conditions = [plan.variable(name).condition for name in (first.variable, absence.variable)]
    if not all(condition is None or of_row_alone(condition) for condition in conditions):
        raise Uncompiled("its conditions look at more than one row")
    return first.variable, absence.variable, min(*ends, LONG)


class AbsenceMemory(RegisterRows):
    """The queue: deadline, key, number of the row, registers. `first` entries are done, and `gone` more are no longer
    there. The entries of a key are found from its newest, `tail`, each by the place of the one before in all that ever
    were in the queue."""

    def __init__(self, bank: Bank, within: int) -> None:
        super().__init__(bank, 0, 64)
        self._within = within
        self.NB = np.empty(0, np.int64)
        self.LB = np.empty(0, np.int64)
        self.tail = np.empty(0, np.int64)
        self.first = self.last = self.gone = 0
        self._linked = 0
        """Entries before this one are found from their keys."""
        self.QD, self.QK, self.QR, self.QP = (np.empty(64, np.int64) for _ in range(4))
        self._all_sure = len(bank.sure) == len(bank.registers)

    def reserve(self, keys: int) -> None:
        more = keys_more(len(self.NB), keys)
        if more:
            longer = self.room.longer
            self.NB, self.LB = longer(self.NB, more, NEVER), longer(self.LB, more)
            self.tail = longer(self.tail, more, -1)

    def step(
        self, functions: Functions, batch: Columns, key: Array, arguments: Sequence[Any], through: int, rows_before: int
    ) -> Matches:
        count = len(batch)
        rows = np.empty(count + 1, np.int64)
        until = NEVER if through >= TIME_MAX else through
        first, still_open = functions["scan"](count, until, self.NB, rows, key, *arguments)
        rows = rows[first:count]
        places = np.empty(len(self.due(through)) + 1, np.int64)
        queue = (self.NB, self.LB, self.QD, self.QK, self.QR)
        carried, self.first = functions["due"](self.first, self.last, through, *queue, places)
        old = places[:carried]
        times, keys, *registers = self._unbound(carried + len(rows))
        for array, kept in zip((times, keys, *registers), (self.QD, self.QK, *self.registers), strict=True):
            array[:carried] = kept[old]
        np.minimum(batch.time[rows] + self._within, TIME_MAX, out=times[carried:])
        keys[carried:] = key[rows]
        functions["capture"](len(rows), rows, *(array[carried:] for array in registers), *arguments)
        functions["settle"](count, rows_before, self.NB, self.LB, key)
        done = len(times) - int(still_open)
        self._append(times[done:], keys[done:], rows[done - carried :] + rows_before, *(r[done:] for r in registers))
        functions["link"](self._linked, self.last, self.gone, self.QK, self.QP, self.tail)
        self._linked = self.last
        return _matches(times[:done], keys[:done], *(array[:done] for array in registers))

    def _unbound(self, count: int) -> tuple[Array, Array, Array, Array, Array]:
        """Deadlines, keys and registers of matches, nothing bound yet."""
        registers = self.outputs(count)
        registers[2][:] = 0
        if not self._all_sure:
            for array, blank in zip(registers, self.blank, strict=True):
                array[:] = blank
        return np.empty(count, np.int64), np.empty(count, np.int64), *registers

    def _append(self, *fresh: Array) -> None:
        count = len(fresh[0])
        if self.last + count > len(self.QD):
            self._make_room(count)
        for array, new in zip((self.QD, self.QK, self.QR, *self.registers), fresh, strict=True):
            array[self.last : self.last + count] = new
        self.last += count

    def _make_room(self, count: int) -> None:
        """For so many entries more: where others are done, if these are the most, or in longer arrays."""
        if 2 * self.first > self.last:
            for array in (self.QD, self.QK, self.QR, self.QP, *self.registers):
                array[: self.last - self.first] = array[self.first : self.last]
            self.gone += self.first
            self._linked -= self.first
            self.first, self.last = 0, self.last - self.first
        more = keys_more(len(self.QD), self.last + count)
        if more:
            self.QD, self.QK, self.QR, self.QP = (
                self.room.longer(array, more) for array in (self.QD, self.QK, self.QR, self.QP)
            )
            self.add_rows(more)

    def is_quiet(self, through: int) -> bool:
        return self.first == self.last or bool(self.QD[self.first] > through)

    def due(self, through: int) -> Array:
        return self.QK[self.first : self.first + np.searchsorted(self.QD[self.first : self.last], through, "right")]

    def count(self, through: int) -> int:
        keys, rows = self.QK[self.first : self.last], self.QR[self.first : self.last]
        held = np.zeros(len(self.LB), np.bool_)
        held[keys[self.LB[keys] <= rows]] = True
        return int(np.count_nonzero(held))

    def entries(self, through: int, keys: Array | None = None) -> Entries:
        open_ = np.arange(self.first, self.last) if keys is None else self._places(keys)
        open_ = open_[self.LB[self.QK[open_]] <= self.QR[open_]]
        integers = np.concatenate([self.QD[open_, None], self.QR[open_, None], self.I[open_]], axis=1)
        return Entries(self.QK[open_], integers, self.F[open_], self.N[open_])

    def _places(self, keys: Array) -> Array:
        """Where entries of some keys are: all that have not ended, in order, and perhaps others."""
        unlinked = np.arange(max(self.first, self._linked), self.last)
        found = [unlinked[np.isin(self.QK[unlinked], keys)]]
        at = self.tail[keys] - self.gone
        while len(at):
            at = at[at >= self.first]
            at = at[self.LB[self.QK[at]] <= self.QR[at]]  # those before one that ended have ended
            found.append(at)
            at = self.QP[at] - self.gone
        return np.sort(np.concatenate(found))

    def load(self, entries: Entries, keys: int) -> None:
        self.NB, self.LB, self.tail = (np.empty(0, np.int64) for _ in range(3))
        self.first = self.last = self.gone = self._linked = 0
        self.reserve(keys)
        # In the order of deadlines; rows are numbered by key, and tell one key's entries of one deadline apart.
        order = np.lexsort((entries.integers[:, 1], entries.integers[:, 0]))
        integers = entries.integers[order]
        self._append(
            integers[:, 0],
            entries.key[order],
            integers[:, 1],
            integers[:, 2:],
            entries.floats[order],
            entries.states[order],
        )


def _matches(time: Array, key: Array, integers: Array, floats: Array, states: Array) -> Matches:
    index = constant(0, len(time))
    tied = np.flatnonzero(time[1:] == time[:-1]) + 1
    if len(tied):
        index = index.copy()
        seen: dict[tuple[int, int], int] = {}
        for at in np.unique(np.concatenate([tied - 1, tied])).tolist():
            place = int(time[at]), int(key[at])
            index[at] = seen[place] = seen.get(place, -1) + 1
    return Matches(time, constant(-1, len(time)), key, index, integers, floats, states)
