"""State that a kernel keeps between batches.

Whatever the kernel, its state is a list of entries: a key and a row of integers, of floats and of register states.
`snapshots` writes them as bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np

from unerring.matching.kernel.columns import Array, Columns
from unerring.matching.kernel.compilation import Functions
from unerring.matching.kernel.outputs import Matches
from unerring.matching.kernel.registers import UNBOUND, Bank


@dataclass(frozen=True, slots=True)
class Entries:
    """The open entries, by key number; entries of one key in their own order."""

    key: Array
    integers: Array
    floats: Array
    states: Array

    def __len__(self) -> int:
        return len(self.key)

    @property
    def columns(self) -> tuple[Array, Array, Array, Array]:
        return self.key, self.integers, self.floats, self.states

    def of(self, rows: Array) -> Entries:
        """Some of them."""
        return Entries(*(column[rows] for column in self.columns))


NO_KEYS = np.empty(0, np.int64)


def distinct(keys: Array) -> Array:
    """Each key once, in order. (`np.unique` looks each up in a table, which takes ten times as long.)"""
    ordered = np.sort(keys)
    once: Array = ordered[np.diff(ordered, prepend=-1) != 0]
    return once


class Room(Protocol):
    """Where arrays are that grow with the keys: in memory, or in files that whoever runs the kernel has mapped."""

    def longer(self, array: Array, more: int, value: int = 0) -> Array:
        """The array with so many more places of one value. The one that was given must not be used again."""
        ...

    def moved(self, array: Array) -> Array:
        """An array that was elsewhere."""
        ...


class InMemory:
    """Arrays as they are made."""

    def longer(self, array: Array, more: int, value: int = 0) -> Array:
        return np.concatenate([array, np.full((more, *array.shape[1:]), value, array.dtype)])

    def moved(self, array: Array) -> Array:
        return array


IN_MEMORY: Final = InMemory()


class Housed(Protocol):
    """An object with arrays that grow with the keys."""

    room: Room


def arrays_of(holder: Housed) -> Iterator[tuple[str, Array]]:
    """Its arrays, with their names."""
    for name, value in vars(holder).items():
        if isinstance(value, np.ndarray):
            yield name, value


class RegisterRows:
    """The memory of all kernels: rows of integers (`base` of them the kernel's own), floats and states."""

    room: Room = IN_MEMORY

    def __init__(self, bank: Bank, base: int, rows: int) -> None:
        integers, floats, states = bank.widths()
        self.base = base
        blank = np.zeros((1, base + integers), np.int64)
        blank[0, [base + column for column in bank.texts()]] = -1
        self.blank: tuple[Array, Array, Array] = blank, np.zeros((1, floats)), np.full((1, states), UNBOUND, np.uint8)
        """One row with nothing bound."""
        self.I, self.F, self.N = (np.repeat(array, rows, axis=0) for array in self.blank)

    @property
    def registers(self) -> tuple[Array, Array, Array]:
        return self.I, self.F, self.N

    def add_rows(self, more: int) -> None:
        """More rows, all zero."""
        self.I, self.F, self.N = (self.room.longer(array, more) for array in self.registers)

    def outputs(self, room: int) -> tuple[Array, Array, Array]:
        """Room for the registers of so many matches."""
        integers, floats, states = (array.shape[1] for array in self.blank)
        return (
            np.empty((room, integers - self.base), np.int64),
            np.empty((room, floats)),
            np.empty((room, states), np.uint8),
        )

    def taken(self, rows: Any) -> tuple[Array, Array, Array]:
        return self.I[rows], self.F[rows], self.N[rows]


def keys_more(held: int, keys: int) -> int:
    """How many keys' places to add where `held` are there and `keys` are needed: twice as many, but not without end."""
    return max(keys, min(2 * held, keys + (1 << 20))) - held if keys > held else 0


class Memory(Protocol):
    """The state of one kernel."""

    room: Room

    def step(
        self, functions: Functions, batch: Columns, key: Array, arguments: Sequence[Any], through: int, rows_before: int
    ) -> Matches:
        """Feed a batch; `arguments` are K, Q and the columns that the source reads."""
        ...

    def reserve(self, keys: int) -> None:
        """Make room for key numbers below this."""
        ...

    def is_quiet(self, through: int) -> bool:
        """Whether time alone changes nothing up to this one: a step without rows would find nothing to do."""
        ...

    def due(self, through: int) -> Array:
        """The keys, by number, whose state changes at a time up to this one if no row comes before."""
        ...

    def entries(self, through: int, keys: Array | None = None) -> Entries:
        """The entries that rows after `through` could still need, of all keys or of some, by number."""
        ...

    def count(self, through: int) -> int:
        """How many keys have such entries."""
        ...

    def load(self, entries: Entries, keys: int) -> None:
        """Hold these entries and no other."""
        ...
