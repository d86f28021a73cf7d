"""Code that kernels with lists share: for each key a list of slots in a pool, timers in a heap, and source for both.

A slot is a row of `I` (its place in the search or window first, then registers), of `F` and of `N`.
"""

from __future__ import annotations

from unerring.matching.kernel.registers import Bank
from unerring.matching.kernel.scalar import Lines

PC, COUNT, FRESH, START_ROW, LAST_ROW, START_TIME, LAST_TIME, DEADLINE = range(8)
BASE = 8
"""Columns of `I` before the registers. PC 0 is a match."""

NO_ROW, FIRST_ROW = 1, 2
"""Errors of a skip: its variable has no row in a match, or that row is the match's first."""

NEVER = 2**63 - 1
LONG = 2**62 - 1
"""A time plus this much does not leave 64 bits."""

STATE = "M, head, count, due, following, free, I, F, N, HT, HK"
OUT = "OT, OR, OK, OX, OI, OF, ON"


class ListSource:
    """Writes the statements that move slots about."""

    lines: Lines
    bank: Bank

    def _free(self, slot: str) -> None:
        self.lines(f"free[M[0]] = {slot}")
        self.lines("M[0] += 1")

    def _allocate(self, name: str, like: str) -> None:
        lines = self.lines
        lines("M[0] -= 1")
        lines(f"{name} = free[M[0]]")
        # Element by element: for so few, that is several times faster than a slice.
        integers, floats, states = self.bank.widths()
        for column in range(BASE + integers):
            lines(f"I[{name}, {column}] = I[{like}, {column}]")
        for column in range(floats):
            lines(f"F[{name}, {column}] = F[{like}, {column}]")
        for column in range(states):
            lines(f"N[{name}, {column}] = N[{like}, {column}]")

    def _append(self, slot: str) -> None:
        lines = self.lines
        with lines.block("if last == -1:"):
            lines(f"first = {slot}")
        with lines.block("else:"):
            lines(f"following[last] = {slot}")
        lines(f"last = {slot}")
        lines("size += 1")

    def _write_output(self, slot: str) -> None:
        lines = self.lines
        lines("m = M[2]")
        for name, value in (("OT", "stamp"), ("OR", "position"), ("OK", "k"), ("OX", "x")):
            lines(f"{name}[m] = {value}")
        integers, floats, states = self.bank.widths()
        for column in range(integers):
            lines(f"OI[m, {column}] = I[{slot}, {BASE + column}]")
        for column in range(floats):
            lines(f"OF[m, {column}] = F[{slot}, {column}]")
        for column in range(states):
            lines(f"ON[m, {column}] = N[{slot}, {column}]")
        lines("M[2] = m + 1")
        lines("x += 1")

    def _write_heap(self) -> None:
        for text in _HEAP.strip("\n").split("\n"):
            self.lines(text)


_HEAP = """
def push(M, HT, HK, soon, k):
    at = M[1]
    M[1] = at + 1
    while at > 0:
        above = (at - 1) // 2
        if HT[above] <= soon:
            break
        HT[at] = HT[above]
        HK[at] = HK[above]
        at = above
    HT[at] = soon
    HK[at] = k


def pop(M, HT, HK):
    size = M[1] - 1
    M[1] = size
    if size == 0:
        return
    soon = HT[size]
    k = HK[size]
    at = 0
    while 2 * at + 1 < size:
        below = 2 * at + 1
        if below + 1 < size and HT[below + 1] < HT[below]:
            below += 1
        if HT[below] >= soon:
            break
        HT[at] = HT[below]
        HK[at] = HK[below]
        at = below
    HT[at] = soon
    HK[at] = k
"""
