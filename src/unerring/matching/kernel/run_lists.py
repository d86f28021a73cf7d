"""The arrays of the general kernel: lists of runs in a pool, timers in a heap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unerring.matching.kernel.columns import Array, Columns
from unerring.matching.kernel.compilation import Functions
from unerring.matching.kernel.lists import BASE, DEADLINE, NEVER
from unerring.matching.kernel.outputs import OUTPUTS_MIN, Matches, joined
from unerring.matching.kernel.registers import Bank
from unerring.matching.kernel.state import Entries, RegisterRows, keys_more, longer
from unerring.model import TIME_MIN, RuleError, invariant

RUNS_MAX = 1_000_000
"""Open ways to match of one key. Above, memory and time would grow without end: the rule stops with a sentence."""
MERGED_RUNS_MAX = 5_000
"""The same where each new way is compared with all that are open."""

FREE, TIMERS, FOUND, LIMIT, WRONG = range(5)
"""Places in `M`: how many slots are free, timers are set, outputs were found; how long a list may become; what is wrong
with a skip."""


class RunLists(RegisterRows):
    """Slot 0 is the blank that new runs are copied from; it is never in a list."""

    def __init__(
        self,
        bank: Bank,
        pending: Sequence[int],
        runs_max: int | None = None,
        fan: int = 8,
        by_length: bool = True,
        slots: int = 64,
    ) -> None:
        """`fan`: how many slots and outputs a row may need for each that is in a list, and for one more; in all, where
        that does not depend on how long the list is."""
        self._fan = fan
        self._by_length = by_length
        self.wrong_skip: dict[int, str] = {}
        """The error message of a skip that leads nowhere."""
        super().__init__(bank, BASE, 1)
        self._pending = tuple(pending)
        """PCs that time alone turns into a match."""
        self.M = np.array([0, 0, 0, NEVER if runs_max is None else runs_max, 0], np.int64)
        self.head = np.empty(0, np.int64)
        self.count = np.empty(0, np.int64)
        self.due = np.empty(0, np.int64)
        self.following = np.empty(0, np.int64)
        self.free = np.empty(0, np.int64)
        self.HT = np.empty(64, np.int64)
        self.HK = np.empty(64, np.int64)
        self._grow_slots(slots)

    def _grow_slots(self, slots: int) -> None:
        old = len(self.I)
        more = slots - old
        self.I, self.F, self.N = (
            np.concatenate([array, np.repeat(blank, more, axis=0)])
            for array, blank in zip(self.registers, self.blank, strict=True)
        )
        self.following = longer(self.following, slots - len(self.following), -1)
        free = np.empty(slots, np.int64)
        held = int(self.M[FREE])
        free[:more] = np.arange(slots - 1, old - 1, -1)
        free[more : more + held] = self.free[:held]
        self.free = free
        self.M[FREE] = held + more

    def reserve(self, keys: int) -> None:
        more = keys_more(len(self.head), keys)
        if more:
            self.head, self.count = longer(self.head, more, -1), longer(self.count, more)
            self.due = longer(self.due, more, NEVER)

    def step(
        self, functions: Functions, batch: Columns, key: Array, arguments: Sequence[Any], through: int, rows_before: int
    ) -> Matches:
        room = max(OUTPUTS_MIN, len(batch) // 4)
        parts: list[Matches] = []
        row, run = 0, functions["step"]
        while row <= len(batch):
            out = self._out(room)
            self.M[FOUND] = 0
            lists = (self.M, self.head, self.count, self.due, self.following, self.free)
            pool = (*self.registers, self.HT, self.HK)
            row = int(run(len(batch), row, through, rows_before, *lists, *pool, *out, key, *arguments))
            if self.M[WRONG]:
                raise RuleError(self.wrong_skip[int(self.M[WRONG])])
            matched = int(self.M[FOUND])
            parts.append(Matches(*(array[:matched] for array in out)))
            if row <= len(batch):
                before = room, len(self.I), len(self.HT)
                room = max(room, 2 * self._enlarge())
                larger = (room, len(self.I), len(self.HT)) != before
                invariant(larger or matched > 0, "a kernel that stops gets more room, or has made room by its outputs")
        return parts[0] if len(parts) == 1 else joined(parts, [0] * len(parts))

    def _out(self, room: int) -> tuple[Array, ...]:
        return (*(np.empty(room, np.int64) for _ in range(4)), *self.outputs(room))

    def _enlarge(self) -> int:
        """More slots and timers; what the longest list may need of outputs."""
        longest = int(self.count.max(initial=1)) + 2
        if longest - 2 > self.M[LIMIT]:
            raise RuleError(
                f"more than {self.M[LIMIT]} ways to match are open for one key; make the pattern less ambiguous "
                "(fewer nested repetitions, then instead of then_any), or its within shorter"
            )
        wanted = 2 * self._fan * (longest if self._by_length else 1)
        if self.M[FREE] < wanted:
            self._grow_slots(2 * len(self.I) + wanted)
        if self.M[TIMERS] + 2 > len(self.HT) // 2:
            self.HT = np.concatenate([self.HT, np.empty_like(self.HT)])
            self.HK = np.concatenate([self.HK, np.empty_like(self.HK)])
        return wanted

    def entries(self, through: int) -> Entries:
        keys: list[int] = []
        slots: list[int] = []
        for number in np.flatnonzero(self.count).tolist():
            slot = int(self.head[number])
            while slot != -1:
                if self.I[slot, 0] == 0 or self.I[slot, DEADLINE] > through:
                    keys.append(number)
                    slots.append(slot)
                slot = int(self.following[slot])
        return Entries(np.array(keys, np.int64), *self.taken(slots))

    def load(self, entries: Entries, keys: int) -> None:
        count = len(entries)
        self.I, self.F, self.N = (
            np.concatenate([blank, held])
            for blank, held in zip(self.blank, (entries.integers, entries.floats, entries.states), strict=True)
        )
        self.M[:LIMIT] = 0
        self.head, self.count, self.due = (np.empty(0, np.int64) for _ in range(3))
        self.reserve(keys)
        self.following = np.full(count + 1, -1, np.int64)
        self.free = np.empty(0, np.int64)
        last: dict[int, int] = {}
        for slot, number in enumerate(entries.key.tolist(), 1):
            if number in last:
                self.following[last[number]] = slot
            else:
                self.head[number] = slot
            last[number] = slot
            self.count[number] += 1
        self._set_timers(list(last))
        self._grow_slots(2 * (count + 32))

    def _set_timers(self, keys: Sequence[int]) -> None:
        timers: list[tuple[int, int]] = []
        for number in keys:
            soon, waits, slot = NEVER, False, int(self.head[number])
            while slot != -1:
                pc = int(self.I[slot, 0])
                waits = waits or pc == 0 or pc in self._pending
                if pc != 0:
                    soon = min(soon, int(self.I[slot, DEADLINE]))
                slot = int(self.following[slot])
            if waits and soon != NEVER:
                self.due[number] = soon
                timers.append((soon, number))
        timers.sort()  # a sorted list is a heap
        self.HT = np.concatenate([np.array([soon for soon, _ in timers], np.int64), np.full(64, TIME_MIN, np.int64)])
        self.HK = np.concatenate([np.array([number for _, number in timers], np.int64), np.zeros(64, np.int64)])
        self.M[TIMERS] = len(timers)
