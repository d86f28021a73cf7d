"""State that a kernel keeps between batches, and its canonical bytes.

Whatever the kernel, its state is a list of entries: a key and a row of integers, of floats and of register states. In a
snapshot keys stand in their order and texts are written out, so the bytes depend on what was fed and on nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import numpy as np

from unerring.matching.kernel.columns import Array, Columns
from unerring.matching.kernel.compilation import Functions
from unerring.matching.kernel.keys import Interner, KeyIndex, direct_keys
from unerring.matching.kernel.outputs import Matches
from unerring.matching.kernel.registers import UNBOUND, Bank
from unerring.matching.outputs import key_order
from unerring.model import ColumnType, RuleError


@dataclass(frozen=True, slots=True)
class Entries:
    """The open entries, by key number; entries of one key in their own order."""

    key: Array
    integers: Array
    floats: Array
    states: Array

    def __len__(self) -> int:
        return len(self.key)


class RegisterRows:
    """The memory of all kernels: rows of integers (`base` of them the kernel's own), floats and states."""

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
        self.I, self.F, self.N = longer(self.I, more), longer(self.F, more), longer(self.N, more)

    def outputs(self, room: int) -> tuple[Array, Array, Array]:
        """Room for the registers of so many matches."""
        integers, floats, states = (array.shape[1] for array in self.registers)
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


def longer(array: Array, more: int, value: int = 0) -> Array:
    """The array with so many more places of one value."""
    return np.concatenate([array, np.full((more, *array.shape[1:]), value, array.dtype)])


class Memory(Protocol):
    """The state of one kernel."""

    def step(
        self, functions: Functions, batch: Columns, key: Array, arguments: Sequence[Any], through: int, rows_before: int
    ) -> Matches:
        """Feed a batch; `arguments` are K and the columns that the source reads."""
        ...

    def reserve(self, keys: int) -> None:
        """Make room for key numbers below this."""
        ...

    def entries(self, through: int) -> Entries:
        """The entries that rows after `through` could still need."""
        ...

    def load(self, entries: Entries, keys: int) -> None:
        """Hold these entries and no other."""
        ...


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """The bytes' form. `lengths` counts each key's entries."""

    version: str
    kernel: str
    through: int
    rows: int
    keys: list[tuple[Any, ...]]
    lengths: list[int]
    integers: bytes
    floats: bytes
    states: bytes
    texts: list[Any]


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Snapshot)


def written(
    version: str,
    kernel: str,
    through: int,
    rows: int,
    entries: Entries,
    index: KeyIndex,
    interner: Interner,
    text_columns: Sequence[int],
) -> bytes:
    """The canonical bytes."""
    numbers = np.unique(entries.key)
    keys = index.keys(numbers)
    order = sorted(range(len(keys)), key=lambda at: key_order(keys[at]))
    rank = np.empty(len(keys), np.int64)
    rank[order] = np.arange(len(keys))
    ranked = rank[np.searchsorted(numbers, entries.key)]
    by_key = np.argsort(ranked, kind="stable")
    integers = entries.integers[by_key]
    texts = _write_texts(integers, entries.states[by_key], text_columns, interner)
    return _ENCODER.encode(
        Snapshot(
            version,
            kernel,
            through,
            rows,
            [keys[at] for at in order],
            np.bincount(ranked, minlength=len(keys)).tolist(),
            integers.astype("<i8").tobytes(),
            entries.floats[by_key].astype("<f8").tobytes(),
            entries.states[by_key].astype(np.uint8).tobytes(),
            texts,
        )
    )


def _write_texts(integers: Array, states: Array, columns: Sequence[int], interner: Interner) -> list[str | bytes]:
    """Number the texts anew, in the order they stand; the columns are changed in place."""
    texts: dict[str | bytes, int] = {}
    for column in columns:
        held = integers[:, column].tolist()
        integers[:, column] = [
            -1 if number < 0 else texts.setdefault(interner.texts[number], len(texts)) for number in held
        ]
    return list(texts)


def read(
    state: bytes,
    version: str,
    kernel: str,
    rule: str,
    widths: tuple[int, int, int],
    text_columns: Sequence[int],
    kinds: tuple[ColumnType, ...],
) -> tuple[Snapshot, Entries, KeyIndex, Interner]:
    """A snapshot, its entries, and the numbers of the keys and texts in them."""
    try:
        snapshot = _DECODER.decode(state)
    except msgspec.MsgspecError:
        raise RuleError(f"rule {rule}: invalid state of a compiled rule; replay the log instead") from None
    if (snapshot.version, snapshot.kernel) != (version, kernel):
        raise RuleError(
            f"rule {rule}: this state was made by version {snapshot.version} of the rule ({snapshot.kernel}), and this "
            f"is {version} ({kernel}); replay the log with the new rule, or run the old one"
        )
    index = KeyIndex(kinds, direct_keys(kinds, snapshot.keys))
    numbers = index.give([tuple(key) for key in snapshot.keys])
    key = np.repeat(np.array(numbers, np.int64), snapshot.lengths)
    integers = np.frombuffer(snapshot.integers, "<i8").reshape(len(key), widths[0]).astype(np.int64)
    interner = Interner()
    table = np.array([interner.number(text) for text in snapshot.texts] or [0], np.int64)
    for column in text_columns:
        held = integers[:, column]
        integers[:, column] = np.where(held < 0, -1, table[held])
    floats = np.frombuffer(snapshot.floats, "<f8").reshape(len(key), widths[1]).astype(np.float64)
    states = np.frombuffer(snapshot.states, np.uint8).reshape(len(key), widths[2]).copy()
    return snapshot, Entries(key, integers, floats, states), index, interner
