"""The kernel of windows: a key's open windows are a list, and each row goes into every aggregate of every one of them.

Aggregates are left folds in row order, as the meaning of a rule wants them, so nothing is shared between windows that
overlap. A window that is still open is one slot, however many rows it has seen.
"""

from __future__ import annotations

from unerring.matching.kernel.changes import GIVEN, Changes, window_leaf
from unerring.matching.kernel.constants import marked
from unerring.matching.kernel.lists import (
    BASE,
    COUNT,
    DEADLINE,
    LONG,
    NEVER,
    OUT,
    START_ROW,
    START_TIME,
    STATE,
    ListSource,
)
from unerring.matching.kernel.reading import RowReader, settled
from unerring.matching.kernel.registers import Bank, Register, View, declare, fold
from unerring.matching.kernel.scalar import Lines, Uncompiled, emit, hold
from unerring.rules import Counted, Emit, Session, Sliding, Tumbling, WindowPlan

OPEN = 1
"""The PC of a window: time alone may close it."""
WINDOWS_MAX = 64
"""Windows of one key that overlap: each row goes into all of them."""
BESIDE = 4
"""Slots that a row may need beside those of windows: for an empty one that follows, for what was given, to spare."""


class WindowSource(ListSource):
    """Writes the source for one plan."""

    def __init__(self, plan: WindowPlan, reader: RowReader, bank: Bank) -> None:
        self.plan, self.reader, self.bank = plan, reader, bank
        self.lines = Lines()
        self.state = STATE
        self.changes = Changes(plan, bank) if plan.emit is Emit.CHANGE else None
        window = plan.window
        if isinstance(window, Tumbling):
            self.aligned = window.size_us, window.size_us, window.offset_us
        elif isinstance(window, Sliding):
            self.aligned = window.size_us, window.slide_us, 0
        else:
            self.aligned = 0, 0, 0
        size, slide, offset = self.aligned
        overlap = -(-window.size // window.slide) if isinstance(window, Counted) else -(-size // slide) if slide else 1
        if overlap > WINDOWS_MAX:
            raise Uncompiled(f"{overlap} windows are open at a time")
        length = window.gap_us if isinstance(window, Session) else max(size, slide, abs(offset))
        if length > LONG // 4:
            raise Uncompiled("its window is longer than time")
        self.slots = overlap + BESIDE
        """How many a row may need."""

    def write(self, measures: list[Register]) -> str:
        for register in measures:
            declare(self.bank, register)
        return settled(self._write, self.reader, self.bank)

    def _write(self, lines: Lines) -> None:
        self.lines = lines
        columns = ", ".join(self.reader.fetches)
        timed = not isinstance(self.plan.window, Counted)
        lines("")
        if timed:
            self._write_heap()
            lines("")
            lines("")
            with lines.block(f"def fire({self.state}, {OUT}, K, Q):"):
                self._write_fire()
            lines("")
            lines("")
        with lines.block(f"def step(n, first_row, through, row_base, {self.state}, {OUT}, key, K, Q, {columns}):"):
            with lines.block("for i in range(first_row, n):"):
                self._write_row(timed)
            if timed:
                with lines.block("while M[1] > 0 and HT[0] <= through:"):
                    with lines.block(f"if not fire({self.state}, {OUT}, K, Q):"):
                        lines("return n")
            lines("return n + 1")

    def _write_row(self, timed: bool) -> None:
        lines = self.lines
        lines("t = T[i]")
        if timed:
            with lines.block("while M[1] > 0 and HT[0] < t:"):
                with lines.block(f"if not fire({self.state}, {OUT}, K, Q):"):
                    lines("return i")
        admitted = self.reader.admitted(lines)
        if admitted != "True":
            with lines.block(f"if not {admitted}:"):
                lines("continue")
        lines("k = key[i]")
        with lines.block(f"if M[0] < {self.slots} or M[2] + 1 > len(OT) or M[1] + 2 > len(HT):"):
            lines("return i")
        self._write_into()

    def _write_into(self) -> None:
        """The row goes into the windows of its key."""
        match self.plan.window:
            case Counted(size, slide):
                self._write_counted(size, slide)
            case Session(gap):
                self._write_session(gap)
            case _:
                self._write_aligned()

    # --- the three kinds ---

    def _write_aligned(self) -> None:
        lines = self.lines
        size, slide, offset = map(marked, self.aligned)
        lines(f"number = (t - {offset} - {size}) // {slide} + 1")
        lines(f"newest = (t - {offset}) // {slide}")
        self._write_walk(f"number = I[s, {START_ROW}] + 1")
        with lines.block("while number <= newest:"):
            self._open(f"number * {slide} + {offset}", f"number * {slide} + {offset} + {size} - 1")
            lines(f"I[s, {START_ROW}] = number")
            self._fold()
            lines("number += 1")
        self._write_oldest("f")
        with lines.block("if f != -1:"):  # a row between two windows opens none
            self._write_timer("f")

    def _write_session(self, gap: int) -> None:
        lines = self.lines
        self._write_oldest("s")
        with lines.block("if s == -1:"):
            lines("last = head[k]")
            self._open("t", f"t + {marked(gap)}")
        lines(f"I[s, {DEADLINE}] = t + {marked(gap)}")
        self._fold()
        # A timer that is already set comes too early and is then set anew: cheaper than one for each row.
        with lines.block(f"if due[k] == {NEVER}:"):
            self._write_timer("s")

    def _write_counted(self, size: int, slide: int) -> None:
        lines = self.lines
        self._write_walk("pass")
        with lines.block(f"if last == -1 or I[last, {COUNT}] > {slide}:"):
            self._open("t", str(NEVER))
            self._fold()
        self._write_oldest("s")
        with lines.block(f"if I[s, {COUNT}] == {size}:"):
            self._write_close("t + 1", "t", "i")

    def _write_walk(self, then: str) -> None:
        """The row goes into all open windows; `last` is the newest of them, or what stands before the first."""
        lines = self.lines
        lines("last = -1")
        lines("s = head[k]")
        if self.changes is not None:
            with lines.block(f"if s != -1 and I[s, 0] == {GIVEN}:"):
                lines("last = s")
                lines("s = following[s]")
        with lines.block("while s != -1:"):
            if self.changes is None:
                self._fold()
            else:
                with lines.block(f"if I[s, {START_TIME}] <= t:"):  # an empty window may begin later
                    self._fold()
            lines(then)
            lines("last = s")
            lines("s = following[s]")

    # --- pieces ---

    def _write_oldest(self, name: str) -> None:
        """The key's first open window, or -1."""
        lines = self.lines
        lines(f"{name} = head[k]")
        if self.changes is not None:
            with lines.block(f"if {name} != -1 and I[{name}, 0] == {GIVEN}:"):
                lines(f"{name} = following[{name}]")

    def _open(self, start: str, deadline: str) -> None:
        lines = self.lines
        self._allocate("s", "0")
        lines(f"I[s, 0] = {OPEN}")
        lines(f"I[s, {START_TIME}] = {start}")
        lines(f"I[s, {DEADLINE}] = {deadline}")
        self._write_link("s")
        lines("following[s] = -1")
        lines("last = s")
        lines("count[k] += 1")

    def _write_link(self, slot: str) -> None:
        """Append to the key's list, after `last`."""
        with self.lines.block("if last == -1:"):
            self.lines(f"head[k] = {slot}")
        with self.lines.block("else:"):
            self.lines(f"following[last] = {slot}")

    def _fold(self) -> None:
        """The row at hand into the window `s`; how many it holds, where that matters."""
        view = View(self.bank, "s", BASE)
        if self.changes is not None or isinstance(self.plan.window, Counted):
            self.lines(f"I[s, {COUNT}] += 1")
        for register in list(self.bank.registers):
            if register.takes(""):
                fold(register, view, self.lines, self.reader.leaf)

    def _write_look(self, slot: str, start: str, end: str, stamp: str, position: str) -> None:
        """Output the window in `slot`, if it is one to output."""
        lines = self.lines
        view = View(self.bank, slot, BASE)
        for register in self.bank.registers:
            if register.kind in ("window start", "window end"):
                lines(f"{view.value(register)} = {start if register.kind == 'window start' else end}")
        lines(f"stamp = {stamp}")
        lines(f"position = {position}")
        lines("x = 0")
        wanted = []
        if self.changes is not None:
            self.changes.write_changed(lines, slot)
            wanted.append("changed")
        if self.plan.having is not None:
            wanted.append(hold(emit(self.plan.having, lines, lambda expr: window_leaf(view, expr))))
        with lines.block(f"if {' and '.join(wanted) or 'True'}:"):
            self._write_output(slot)

    def _write_close(self, end: str, stamp: str, position: str) -> None:
        """The window `s`, the oldest of its key, is complete."""
        lines = self.lines
        self._write_look("s", f"I[s, {START_TIME}]", end, stamp, position)
        lines("beyond = following[s]")
        if self.changes is not None and self.aligned[1]:
            self._write_successor()
        with lines.block("if head[k] == s:"):
            lines("head[k] = beyond")
        with lines.block("else:"):
            lines("following[head[k]] = beyond")
        lines("count[k] -= 1")
        self._free("s")

    def _write_successor(self) -> None:
        """After a window that held something the next one is looked at, though it may stay empty."""
        lines = self.lines
        slide = marked(self.aligned[1])
        follows = f"beyond == -1 or I[beyond, {START_ROW}] != I[s, {START_ROW}] + 1"
        with lines.block(f"if I[s, {COUNT}] > 0 and ({follows}):"):
            self._allocate("e", "0")
            lines(f"I[e, 0] = {OPEN}")
            lines(f"I[e, {START_ROW}] = I[s, {START_ROW}] + 1")
            lines(f"I[e, {START_TIME}] = I[s, {START_TIME}] + {slide}")
            lines(f"I[e, {DEADLINE}] = I[s, {DEADLINE}] + {slide}")
            lines("following[e] = beyond")
            lines("beyond = e")
            lines("count[k] += 1")

    def _write_timer(self, slot: str) -> None:
        lines = self.lines
        lines(f"soon = I[{slot}, {DEADLINE}]")
        with lines.block("if soon != due[k]:"):
            lines("due[k] = soon")
            lines("push(M, HT, HK, soon, k)")

    def _write_fire(self) -> None:
        lines = self.lines
        lines("stamp = HT[0]")
        lines("k = HK[0]")
        with lines.block("if due[k] != stamp:"):
            lines("pop(M, HT, HK)")
            lines("return True")
        with lines.block(f"if M[0] < {BESIDE} or M[2] + 1 > len(OT):"):
            lines("return False")
        lines("pop(M, HT, HK)")
        lines(f"due[k] = {NEVER}")
        self._write_oldest("s")
        self._write_due()
        self._write_oldest("f")
        with lines.block("if f != -1:"):
            self._write_timer("f")
        lines("return True")

    def _write_due(self) -> None:
        """The time of the key's oldest window `s` may be over."""
        with self.lines.block(f"if I[s, {DEADLINE}] <= stamp:"):
            end = "stamp" if isinstance(self.plan.window, Session) else "stamp + 1"
            self._write_close(end, "stamp", "-1")
