"""The arrays of the general kernel: lists of runs in a pool, timers in a heap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unerring.matching.kernel.columns import Array, Columns
from unerring.matching.kernel.compilation import Functions
from unerring.matching.kernel.lists import BASE, DEADLINE, FRESH, NEVER
from unerring.matching.kernel.outputs import OUTPUTS_MIN, Matches, joined
from unerring.matching.kernel.registers import Bank
from unerring.matching.kernel.state import NO_KEYS, Entries, RegisterRows, keys_more
from unerring.model import RuleError, invariant

RUNS_MAX = 1_000_000
"""Open ways to match of one key. Above, memory and time would grow without end: the rule stops with a sentence."""
MERGED_RUNS_MAX = 5_000
"""The same where each new way is compared with all that are open."""

WALKED_TOGETHER_MIN = 32
"""Fewer lists than these are walked one after the other: a step through all of them would cost more."""

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
        self.keeps_fresh = True
        """Whether it matters that a run has just bound a row. States of earlier releases say so all the same."""
        super().__init__(bank, BASE, 1)
        self._pending = tuple(pending)
        """PCs that time alone turns into a match."""
        self.M = np.array([0, 0, 0, NEVER if runs_max is None else runs_max, 0], np.int64)
        self.head = np.empty(0, np.int64)
        self.count_of = np.empty(0, np.int64)
        self.due_at = np.empty(0, np.int64)
        self.following = np.empty(0, np.int64)
        self.free = np.empty(0, np.int64)
        self.HT = np.empty(64, np.int64)
        self.HK = np.empty(64, np.int64)
        self._grow_slots(slots)

    def _grow_slots(self, slots: int) -> None:
        """So many slots in all; the new ones are taken first."""
        old = len(self.I)
        self.add_rows(slots - old)
        for array, blank in zip(self.registers, self.blank, strict=True):
            array[old:] = blank
        self.following = self.room.longer(self.following, slots - len(self.following), -1)
        self.free = self.room.longer(self.free, slots - len(self.free))
        held = int(self.M[FREE])
        self.free[held : held + slots - old] = np.arange(slots - 1, old - 1, -1)
        self.M[FREE] = held + slots - old

    def reserve(self, keys: int) -> None:
        more = keys_more(len(self.head), keys)
        if more:
            longer = self.room.longer
            self.head, self.count_of = longer(self.head, more, -1), longer(self.count_of, more)
            self.due_at = longer(self.due_at, more, NEVER)

    def arrays(self) -> tuple[Array, ...]:
        """The arguments that generated source calls `STATE`."""
        lists = (self.M, self.head, self.count_of, self.due_at, self.following, self.free)
        return (*lists, *self.registers, self.HT, self.HK)

    def step(
        self, functions: Functions, batch: Columns, key: Array, arguments: Sequence[Any], through: int, rows_before: int
    ) -> Matches:
        room = max(OUTPUTS_MIN, len(batch) // 4)
        parts: list[Matches] = []
        row, run = 0, functions["step"]
        while row <= len(batch):
            out = self._out(room)
            self.M[FOUND] = 0
            row = int(run(len(batch), row, through, rows_before, *self.arrays(), *out, key, *arguments))
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
        longest = int(self.count_of.max(initial=1)) + 2
        if longest - 2 > self.M[LIMIT]:
            raise RuleError(
                f"more than {self.M[LIMIT]} ways to match are open for one key; make the pattern less ambiguous "
                "(fewer nested repetitions, then instead of then_any), or its within shorter"
            )
        wanted = 2 * self._fan * (longest if self._by_length else 1)
        if self.M[FREE] < wanted:
            self._grow_slots(2 * len(self.I) + wanted)
        if self.M[TIMERS] + 2 > len(self.HT) // 2:
            self.HT, self.HK = (self.room.longer(array, len(array)) for array in (self.HT, self.HK))
        return wanted

    def is_quiet(self, through: int) -> bool:
        return not self.M[TIMERS] or bool(self.HT[0] > through)

    def due(self, through: int) -> Array:
        # In a heap, what is above a timer is not later: only those that are due, and what is below them, are looked at.
        at = np.arange(min(1, int(self.M[TIMERS])))
        early = []
        while len(at):
            at = at[self.HT[at] <= through]
            early.append(at)
            at = np.concatenate([2 * at + 1, 2 * at + 2])
            at = at[at < self.M[TIMERS]]
        due = np.concatenate([NO_KEYS, *early])
        keys = self.HK[due]
        fired: Array = keys[self.due_at[keys] == self.HT[due]]  # a timer that was set anew since is void
        return fired

    def count(self, through: int) -> int:
        left, counted = np.flatnonzero(self.count_of), 0
        slots = self.head[left]
        while len(slots):
            held = self._held(slots, through)
            counted += int(np.count_nonzero(held))
            slots = self.following[slots[~held]]
            slots = slots[slots != -1]
        return counted

    def entries(self, through: int, keys: Array | None = None) -> Entries:
        numbers = np.flatnonzero(self.count_of) if keys is None else keys[self.count_of[keys] > 0]
        walked = _walked(numbers, self.head[numbers], self.following)
        held = self._held(walked[1], through)
        return Entries(walked[0][held], *self.taken(walked[1][held]))

    def _held(self, slots: Array, through: int) -> Array:
        held: Array = (self.I[slots, 0] == 0) | (self.I[slots, DEADLINE] > through)
        return held

    def load(self, entries: Entries, keys: int) -> None:
        count = len(entries)
        self.I, self.F, self.N = self.taken(slice(1))
        self.add_rows(count)
        for array, held in zip(self.registers, entries.columns[1:], strict=True):
            array[1:] = held
        if not self.keeps_fresh:
            self.I[:, FRESH] = 0
        self.M[:LIMIT] = 0
        self.head, self.count_of, self.due_at = (np.empty(0, np.int64) for _ in range(3))
        self.reserve(keys)
        self.following = self.room.longer(np.empty(0, np.int64), count + 1, -1)
        self.free = np.empty(0, np.int64)
        starts = np.flatnonzero(np.diff(entries.key, prepend=-1))  # a key's entries stand together
        keys_held, lengths = entries.key[starts], np.diff(starts, append=count)
        self.following[1:-1] = np.where(entries.key[1:] == entries.key[:-1], np.arange(2, count + 1), -1)
        self.head[keys_held], self.count_of[keys_held] = starts + 1, lengths
        self._set_timers(keys_held, starts)
        self._grow_slots(2 * (count + 32))

    def _set_timers(self, keys: Array, starts: Array) -> None:
        """The timers of all keys, whose lists begin at these entries: just after slot 0, in their order."""
        places, deadlines = self.I[1:, 0], self.I[1:, DEADLINE]
        if len(keys):
            waits = np.logical_or.reduceat(np.isin(places, (0, *self._pending)), starts)
            soon = np.minimum.reduceat(np.where(places == 0, NEVER, deadlines), starts)
            set_ = np.flatnonzero(waits & (soon != NEVER))
            set_ = set_[np.lexsort((keys[set_], soon[set_]))]  # a sorted list is a heap
            keys, soon = keys[set_], soon[set_]
            self.due_at[keys] = soon
        else:
            soon = np.empty(0, np.int64)
        self.HT, self.HK = (self.room.longer(np.empty(0, np.int64), len(keys) + 64) for _ in range(2))
        self.HT[: len(keys)], self.HK[: len(keys)] = soon, keys
        self.M[TIMERS] = len(keys)


def _walked(keys: Array, slots: Array, following: Array) -> tuple[Array, Array]:
    """All slots of some keys' lists with the key of each; a key's slots together, in their order."""
    parts: list[tuple[Array, Array]] = []
    while len(slots) > WALKED_TOGETHER_MIN:
        parts.append((keys, slots))
        slots = following[slots]
        on = slots != -1
        keys, slots = keys[on], slots[on]
    rest: list[tuple[int, int]] = []
    for number, slot in zip(keys.tolist(), slots.tolist(), strict=True):
        while slot != -1:
            rest.append((number, slot))
            slot = int(following[slot])
    parts.append((np.array([n for n, _ in rest], np.int64), np.array([s for _, s in rest], np.int64)))
    all_keys, all_slots = (np.concatenate([part[at] for part in parts]) for at in (0, 1))
    order = np.argsort(all_keys, kind="stable")
    return all_keys[order], all_slots[order]
