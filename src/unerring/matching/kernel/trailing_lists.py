"""The arrays of the kernel of windows that trail: lists of rows, and what saves it from folding them anew.

The lists alone are the state. All else follows from them: it is in no snapshot, and it is made again after a load.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unerring.matching.kernel.columns import Array, Columns
from unerring.matching.kernel.compilation import Functions
from unerring.matching.kernel.outputs import Matches
from unerring.matching.kernel.registers import Bank, Register
from unerring.matching.kernel.run_lists import RunLists
from unerring.matching.kernel.state import Entries
from unerring.matching.kernel.totals import WIDE_LIMBS

DERIVED = "tail, middle, back, previous, W, Z"
"""The names of these arrays in generated source. For each key its newest row, the newest row of the older part (-1: it
is empty), and the slot that aggregates the newer part (see `trailing`); for each slot the row before it; each key's
totals; room to round one."""


class TrailingLists(RunLists):
    """`parted`: the aggregates that are held in two parts; `words`: how many a key's totals take."""

    def __init__(self, bank: Bank, parted: Sequence[Register], words: int, **sizes: Any) -> None:
        self.tail, self.middle, self.back, self.previous = (np.empty(0, np.int64) for _ in range(4))
        self.W = np.empty((0, words), np.int64)
        self.Z = np.zeros(WIDE_LIMBS, np.int64)
        self._whole = True
        """Whether what follows from the lists has been made."""
        super().__init__(bank, **sizes)
        places = [bank.place(register) for register in parted]
        self._parted_integers = [self.base + column for array, column, _ in places if array == "I"]
        self._parted_floats = [column for array, column, _ in places if array == "F"]
        self._parted_states = [number for *_, number in places]

    def _grow_slots(self, slots: int) -> None:
        super()._grow_slots(slots)
        self.previous = self.room.longer(self.previous, slots - len(self.previous), -1)

    def reserve(self, keys: int) -> None:
        super().reserve(keys)
        more = len(self.head) - len(self.tail)
        if more:
            self.tail, self.middle, self.back = (
                self.room.longer(array, more, -1) for array in (self.tail, self.middle, self.back)
            )
            self.W = self.room.longer(self.W, more)

    def arrays(self) -> tuple[Array, ...]:
        return (*super().arrays(), self.tail, self.middle, self.back, self.previous, self.W, self.Z)

    def step(
        self, functions: Functions, batch: Columns, key: Array, arguments: Sequence[Any], through: int, rows_before: int
    ) -> Matches:
        if not self._whole:
            functions["rebuild"](*self.arrays())
            self._whole = True
        return super().step(functions, batch, key, arguments, through, rows_before)

    def entries(self, through: int, keys: Array | None = None) -> Entries:
        entries = super().entries(through, keys)
        integers, floats, states = self.blank
        entries.integers[:, self._parted_integers] = integers[0, self._parted_integers]
        entries.floats[:, self._parted_floats] = floats[0, self._parted_floats]
        entries.states[:, self._parted_states] = states[0, self._parted_states]
        return entries

    def load(self, entries: Entries, keys: int) -> None:
        self.tail, self.middle, self.back, self.previous = (np.empty(0, np.int64) for _ in range(4))
        self.W = self.W[:0]
        super().load(entries, keys)
        self._whole = False
