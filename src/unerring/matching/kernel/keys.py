"""Keys as dense numbers, so that a key's state is a row of an array; and texts as numbers that outlive a batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from unerring.matching.kernel.columns import Array, Columns, Texts
from unerring.matching.kernel.compilation import plain
from unerring.matching.kernel.key_tables import FEW_MAX, LOOK_UP, BytesTable, IntegerTable, ObjectTable
from unerring.matching.kernel.state import IN_MEMORY, Housed, Room
from unerring.model import ColumnType, Key, invariant

DIRECT_MAX = 1 << 22
"""Integer keys from 0 up to here are their own numbers: no table, no lookup."""


Keys = Array | list[Key]
"""Many keys: an array where they are one integer each, else a list."""


class KeyIndex:
    """Gives each key a number, in the order of arrival, or the key itself where keys are small integers.

    The numbers are internal: neither outputs nor snapshots depend on them.
    """

    def __init__(self, kinds: tuple[ColumnType, ...], direct: bool = True, room: Room = IN_MEMORY) -> None:
        """`direct=False`: there are integer keys that cannot be their own numbers."""
        self._integers = kinds == (ColumnType.INT,)
        self.direct = direct and self._integers
        self.functions = plain(LOOK_UP)
        self.room = room
        self._table = IntegerTable(room)
        self._named: ObjectTable | BytesTable = ObjectTable()
        self._bound = 0
        if not kinds:
            self._numbers([()])

    @property
    def size(self) -> int:
        """Above every number given."""
        return self._bound if self.direct else self._table.size if self._integers else self._named.size

    @property
    def holders(self) -> list[Housed]:
        """The objects whose arrays grow with the keys."""
        named: list[Housed] = [self._named, self._named.hashes] if isinstance(self._named, BytesTable) else []
        return [self._table, *named]

    def _numbers(self, keys: list[Key]) -> Array:
        numbers = self._named.numbers(keys, self.functions)
        if isinstance(self._named, ObjectTable) and self._named.size > FEW_MAX:
            many = BytesTable(self.room)
            many.numbers(self._named.keys(np.arange(self._named.size)), self.functions)
            self._named = many
        return numbers

    def give(self, keys: Keys) -> Array:
        """The numbers of some keys, new or known."""
        if not self._integers:
            return self._numbers(list(keys))
        values = np.asarray(keys, np.int64)
        if self.direct:
            self._bound = max(self._bound, int(values.max(initial=-1)) + 1)
            return values
        return self._table.numbers(values, self.functions)

    def held(self, numbers: Array) -> Keys:
        """The keys of some numbers, as `give` takes them."""
        return self.column(numbers, 0) if self._integers else self._named.keys(numbers)

    def fits(self, batch: Columns, names: tuple[str, ...]) -> bool:
        """Whether all keys of a batch can be their own numbers, if the index works like that."""
        if not self.direct:
            return True
        values = _numbers_in(batch, names[0])
        # One pass: all are below a power of two exactly if their bits together are.
        bits = int(np.bitwise_or.reduce(values)) if len(values) else 0
        if not 0 <= bits < DIRECT_MAX:
            return False
        self._bound = max(self._bound, 1 << bits.bit_length())
        return True

    def numbers(self, batch: Columns, names: tuple[str, ...]) -> Array:
        """The number of each row's key. `names`: the key columns. Ask `fits` before."""
        if not names:
            return np.zeros(len(batch), np.int8)
        if self._integers:
            values = _numbers_in(batch, names[0])
            return values if self.direct else self._table.numbers(values, self.functions)
        codes, uniques = _factorised(batch.columns[names[0]])
        for name in names[1:]:
            more, beside = _factorised(batch.columns[name])
            pairs, codes = np.unique(codes.astype(np.int64) * len(beside) + more, return_inverse=True)
            uniques = [(*uniques[pair // len(beside)], *beside[pair % len(beside)]) for pair in pairs.tolist()]
        return self._numbers(uniques)[codes]

    def keys(self, numbers: Array) -> list[Key]:
        """The keys of some numbers."""
        if self._integers:
            return [(value,) for value in self.column(numbers, 0).tolist()]
        return self._named.keys(numbers)

    def column(self, numbers: Array, index: int) -> Array:
        """One key column of some keys."""
        if self._integers:
            return numbers.astype(np.int64) if self.direct else self._table.held[numbers]
        values = np.empty(len(numbers), object)
        values[:] = [key[index] for key in self._named.keys(numbers)]
        return values


def direct_keys(kinds: tuple[ColumnType, ...], keys: Sequence[Keys]) -> bool:
    """Whether these keys can be their own numbers."""
    if kinds != (ColumnType.INT,):
        return False
    return all(
        int(some.min(initial=0)) >= 0 and int(some.max(initial=0)) < DIRECT_MAX for some in map(np.asarray, keys)
    )


def _numbers_in(batch: Columns, name: str) -> Array:
    column = batch.columns[name]
    invariant(not isinstance(column, Texts), f"column {name} holds numbers")
    values: Array = column.values  # type: ignore[assignment]
    return values


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
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return number

    def numbers(self, column: Texts) -> Array:
        """The number of each row's text, -1 for NULL."""
        if len(column.codes) < len(column.values):  # some rows of a large batch: not all its texts are theirs
            used, codes = np.unique(column.codes, return_inverse=True)
            return self._given(used.tolist(), column)[codes]
        return self._given([*range(len(column.values)), -1], column)[column.codes]

    def _given(self, codes: Iterable[int], column: Texts) -> Array:
        return np.array([-1 if code < 0 else self.number(column.values[code]) for code in codes], np.int64)

    def keep(self, held: Iterable[int]) -> Array:
        """Forget all but these; the new number of each old one."""
        old, moved = self.texts, np.full(len(self.texts), -1, np.int64)
        self.texts, self._numbers = [], {}
        for number in held:
            if number >= 0 and moved[number] < 0:
                moved[number] = self.number(old[number])
        return moved
