"""The kernel of a join of two inputs: a key's recent events are a list, and each row meets those of the other side.

Where both inputs are one stream, a row may be on both sides: it meets the earlier events of each before it joins them.
"""

from __future__ import annotations

from unerring.matching.kernel.constants import marked
from unerring.matching.kernel.lists import BASE, COUNT, DEADLINE, LONG, NEVER, OUT, STATE, ListSource
from unerring.matching.kernel.reading import RowReader, settled
from unerring.matching.kernel.registers import Bank, Register, View, declare, fold, leaf_in_condition
from unerring.matching.kernel.scalar import Lines, Uncompiled, emit, hold
from unerring.rules import JoinPlan


class JoinSource(ListSource):
    """Writes the source for one plan. A slot is an event: its PC is its side plus one, its count whether it joined."""

    def __init__(self, plan: JoinPlan, reader: RowReader, bank: Bank) -> None:
        self.plan, self.reader, self.bank = plan, reader, bank
        self.lines = Lines()
        if len(plan.inputs) != 2:
            raise Uncompiled(f"it joins {len(plan.inputs)} inputs")
        self.itself = plan.inputs[0].schema.name == plan.inputs[1].schema.name
        if self.itself and plan.inputs[0].key != plan.inputs[1].key:
            raise Uncompiled("it joins a stream with itself by different keys")
        self.sides = tuple(source.name for source in plan.inputs)
        self.within = min(plan.within_us, LONG)

    @property
    def pending(self) -> list[int]:
        """PCs of events that are output alone when their time is over."""
        return [number + 1 for number, name in enumerate(self.sides) if name in self.plan.unmatched]

    def write(self, measures: list[Register]) -> str:
        for register in measures:
            declare(self.bank, register)
        return settled(self._write, self.reader, self.bank)

    def _write(self, lines: Lines) -> None:
        self.lines = lines
        columns = ", ".join(self.reader.fetches)
        lines("")
        if self.plan.unmatched:
            self._write_heap()
            lines("")
            lines("")
            with lines.block(f"def fire({STATE}, {OUT}):"):
                self._write_fire()
            lines("")
            lines("")
        with lines.block(f"def step(n, first_row, through, row_base, {STATE}, {OUT}, key, K, Q, {columns}):"):
            with lines.block("for i in range(first_row, n):"):
                self._write_row()
            if self.plan.unmatched:
                with lines.block("while M[1] > 0 and HT[0] <= through:"):
                    with lines.block(f"if not fire({STATE}, {OUT}):"):
                        lines("return n")
            lines("return n + 1")

    def _write_row(self) -> None:
        lines = self.lines
        lines("t = T[i]")
        if self.plan.unmatched:
            with lines.block("while M[1] > 0 and HT[0] < t:"):
                with lines.block(f"if not fire({STATE}, {OUT}):"):
                    lines("return i")
        if self.itself:
            for number, source in enumerate(self.plan.inputs):
                lines(f"taken{number} = {self.reader.condition(source.where, lines)}")
            passed_over = "not (taken0 or taken1)"
        else:
            admitted = self.reader.admitted(lines)
            passed_over = "False" if admitted == "True" else f"not {admitted}"
        if passed_over != "False":
            with lines.block(f"if {passed_over}:"):
                lines("continue")
        lines("k = key[i]")
        with lines.block("if M[0] < 3 or M[2] + 2 * count[k] > len(OT) or M[1] + 2 > len(HT):"):
            lines("return i")
        lines("x = 0")
        lines("stamp = t")
        lines("position = i")
        if self.itself:
            self._write_both()
        else:
            for number in (0, 1):
                with lines.block(f"if {self.reader.of_stream(number)}:"):
                    self._write_met(number, "True")
                    self._write_joins(number)
        lines("following[last] = -1")
        lines("head[k] = first")
        lines("count[k] = size")
        if self.plan.unmatched:
            self._write_timer()

    def _write_both(self) -> None:
        """Matches of the row as the first side come before those as the second."""
        lines = self.lines
        self._write_met(0, "taken0")
        with lines.block("if last != -1:"):
            lines("following[last] = -1")
        lines("joined1 = 0")
        with lines.block("if taken1:"):
            lines("s = first")
            with lines.block("while s != -1:"):
                with lines.block("if I[s, 0] == 1:"):
                    self._write_meeting(1)
                lines("s = following[s]")
        for number in (0, 1):
            with lines.block(f"if taken{number}:"):
                self._write_joins(number)

    def _write_met(self, number: int, taken: str) -> None:
        """The row meets the other side's events, in their order; those whose time is over leave the list."""
        lines = self.lines
        lines(f"joined{number} = 0")
        lines("first = -1")
        lines("last = -1")
        lines("size = 0")
        lines("s = head[k]")
        with lines.block("while s != -1:"):
            lines("following_s = following[s]")
            with lines.block(f"if t > I[s, {DEADLINE}]:"):
                self._free("s")
            with lines.block("else:"):
                with lines.block(f"if {taken} and I[s, 0] == {2 - number}:"):
                    self._write_meeting(number)
                self._append("s")
            lines("s = following_s")

    def _write_joins(self, number: int) -> None:
        """The row joins its own side."""
        lines = self.lines
        self._allocate("s", "0")
        lines(f"I[s, 0] = {number + 1}")
        lines(f"I[s, {COUNT}] = joined{number}")
        lines(f"I[s, {DEADLINE}] = t + {marked(self.within)}")
        self._fold("s", number)
        self._append("s")

    def _write_meeting(self, number: int) -> None:
        lines = self.lines
        own = self.sides[number]
        held = "True"
        if self.plan.condition is not None:
            view = View(self.bank, "s", BASE)
            leaf = leaf_in_condition(self.bank, own, view, self.reader.leaf, lines, False)
            held = hold(emit(self.plan.condition, lines, leaf))
        with lines.block(f"if {held}:"):
            lines(f"joined{number} = 1")
            lines(f"I[s, {COUNT}] = 1")
            self._allocate("b", "s")
            self._fold("b", number)
            self._write_output("b")
            self._free("b")

    def _fold(self, slot: str, number: int) -> None:
        view = View(self.bank, slot, BASE)
        for register in list(self.bank.registers):
            if self.sides[number] in register.variables:
                fold(register, view, self.lines, self.reader.leaf)

    def _write_timer(self) -> None:
        lines = self.lines
        alone = " or ".join(f"I[s, 0] == {pc}" for pc in self.pending)
        lines(f"soon = {NEVER}")
        lines("s = head[k]")
        with lines.block("while s != -1:"):
            with lines.block(f"if I[s, {COUNT}] == 0 and ({alone}):"):
                lines(f"soon = I[s, {DEADLINE}]")
                lines("break")
            lines("s = following[s]")
        with lines.block("if soon != due[k]:"):
            lines("due[k] = soon")
            with lines.block(f"if soon != {NEVER}:"):
                lines("push(M, HT, HK, soon, k)")

    def _write_fire(self) -> None:
        """Events whose time is over leave; those that joined nothing are output alone."""
        lines = self.lines
        alone = " or ".join(f"I[s, 0] == {pc}" for pc in self.pending)
        lines("stamp = HT[0]")
        lines("k = HK[0]")
        with lines.block("if due[k] != stamp:"):
            lines("pop(M, HT, HK)")
            lines("return True")
        with lines.block("if M[2] + count[k] > len(OT):"):
            lines("return False")
        lines("pop(M, HT, HK)")
        lines(f"due[k] = {NEVER}")
        lines("position = -1")
        lines("x = 0")
        lines("s = head[k]")
        with lines.block(f"while s != -1 and I[s, {DEADLINE}] <= stamp:"):
            with lines.block(f"if I[s, {COUNT}] == 0 and ({alone}):"):
                self._write_output("s")
            self._free("s")
            lines("count[k] -= 1")
            lines("s = following[s]")
        lines("head[k] = s")
        self._write_timer()
        lines("return True")
