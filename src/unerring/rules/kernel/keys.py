"""Keys as dense numbers, so that a key's state is a row of an array; and texts as numbers that outlive a batch."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from unerring.model import ColumnType, Key
from unerring.rules.kernel.columns import Array, Columns, Texts
from unerring.rules.outputs import canonical_key

DIRECT_MAX = 1 << 22
"""Integer keys from 0 up to here are their own numbers: no table, no lookup."""


class KeyIndex:
    """Gives each key a number, in the order of arrival, or the key itself where keys are small integers.

    The numbers are internal: neither outputs nor snapshots depend on them.
    """

    def __init__(self, kinds: tuple[ColumnType, ...]) -> None:
        self._kinds = kinds
        self.direct = kinds == (ColumnType.INT,)
        self._keys: list[Key] = []
        self._numbers: dict[Key, int] = {}
        self.size = 0
        """Above every number given."""
        if not kinds:
            self._add(())

    def _add(self, key: Key) -> int:
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._keys)
            self._keys.append(key)
            self.size = len(self._keys)
        return number

    def number(self, key: Key) -> int:
        """The number of one key, new or known."""
        if self.direct:
            only = key[0]
            if isinstance(only, int) and 0 <= only < DIRECT_MAX:
                self.size = max(self.size, only + 1)
                return only
        self._leave_direct()
        return self._add(key)

    def numbers(self, batch: Columns, names: tuple[str, ...]) -> Array:
        """The number of each row's key. `names`: the key columns."""
        if not names:
            return np.zeros(len(batch), np.int8)
        columns = [batch.columns[name] for name in names]
        first = columns[0]
        if self.direct and not isinstance(first, Texts):
            values = first.values
            # One pass: all are below a power of two exactly if their bits together are.
            bits = int(np.bitwise_or.reduce(values)) if len(values) else 0
            if 0 <= bits < DIRECT_MAX:
                self.size = max(self.size, 1 << bits.bit_length())
                return values
            self._leave_direct()
        codes, uniques = _factorised(columns[0])
        for column in columns[1:]:
            more, beside = _factorised(column)
            pairs, codes = np.unique(codes.astype(np.int64) * len(beside) + more, return_inverse=True)
            uniques = [(*uniques[pair // len(beside)], *beside[pair % len(beside)]) for pair in pairs.tolist()]
        table = np.fromiter((self._add(canonical_key(key)) for key in uniques), np.int64, len(uniques))
        return table[codes]

    def _leave_direct(self) -> None:
        """From now on by table; keys given so far keep their numbers."""
        if self.direct:
            self.direct = False
            for number in range(self.size):
                self._add((number,))

    def key(self, number: int) -> Key:
        return (number,) if self.direct else self._keys[number]

    def keys(self, numbers: Array) -> list[Key]:
        if self.direct:
            return [(number,) for number in numbers.tolist()]
        return [self._keys[number] for number in numbers.tolist()]

    def column(self, numbers: Array, index: int) -> Array:
        """One key column of some keys."""
        if self.direct:
            return numbers.astype(np.int64)
        table = np.array([key[index] for key in self._keys] or [None], dtype=object)
        return table[numbers]


def _factorised(column: object) -> tuple[Array, list[Key]]:
    if isinstance(column, Texts):
        return column.codes, [(value,) for value in column.values]
    values = column.values  # type: ignore[attr-defined]
    uniques, codes = np.unique(values, return_inverse=True)
    return codes, [(value,) for value in uniques.tolist()]


class Interner:
    """Texts as numbers that mean the same in every batch. What no run holds any more can be forgotten."""

    def __init__(self) -> None:
        self._numbers: dict[str | bytes, int] = {}
        self.texts: list[str | bytes] = []

    def number(self, text: str | bytes) -> int:
        found = self._numbers.get(text)
        if found is None:
            found = self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return found

    def numbers(self, column: Texts) -> Array:
        """The number of each row's text, -1 for NULL."""
        table = np.fromiter((self.number(text) for text in (*column.values,)), np.int64, len(column.values))
        if not len(table):
            return np.full(len(column.codes), -1, np.int64)
        return np.where(column.codes < 0, -1, table[column.codes])

    def keep(self, held: Iterable[int]) -> Array:
        """Forget all but these; the new number of each old one."""
        old, moved = self.texts, np.full(len(self.texts), -1, np.int64)
        self.texts, self._numbers = [], {}
        for number in held:
            if number >= 0 and moved[number] < 0:
                moved[number] = self.number(old[number])
        return moved
