"""Which keys changed since a time: those that rows or deadlines touched and whose state is not what it was.

When a key is first touched after the mark, a digest of its entries is noted before anything changes them. So a mark
costs nothing, a step costs what it touches, and a row that a rule passes over changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from unerring.matching.kernel.columns import Array
from unerring.matching.kernel.state import IN_MEMORY, NO_KEYS, Entries, Room, distinct

_SEED: Final = 0x9E3779B97F4A7C15
_OTHER: Final = 2
"""Of a key that had state, but which is not known any more: unlike any digest, which are odd. Without state it is 0."""


class Marks:
    """What has been touched since the mark, and what it was then. `size`: above every key's number."""

    def __init__(self, size: int, room: Room = IN_MEMORY) -> None:
        self.room = room
        self.is_touched = room.longer(np.empty(0, np.bool_), size)
        self._keys: list[Array] = []
        self._before: list[Array] = []

    def touch(self, keys: Array, size: int, entries_of: Callable[[Array], Entries]) -> None:
        """Something may change for these. `entries_of`: some keys' entries, as they were at the mark if nothing has
        touched them since."""
        more = size - len(self.is_touched)
        if more > 0:
            self.is_touched = self.room.longer(self.is_touched, max(more, min(len(self.is_touched), 1 << 20)))
        fresh = distinct(keys[~self.is_touched[keys]])
        if len(fresh):
            held, digest = digests(entries_of(fresh))
            before = np.zeros(len(fresh), np.uint64)
            before[np.searchsorted(fresh, held)] = digest
            self._note(fresh, before)

    def _note(self, keys: Array, before: Array) -> None:
        self.is_touched[keys] = True
        self._keys.append(keys)
        self._before.append(before)

    def touched(self) -> Array:
        """All keys that were touched since the mark."""
        return np.concatenate([NO_KEYS, *self._keys])

    def changed(self, entries: Entries) -> tuple[Array, Array]:
        """Of the touched keys, with all entries that they have now: those with another state, those with none left."""
        touched = self.touched()
        before = np.concatenate([np.empty(0, np.uint64), *self._before])
        order = np.argsort(touched)
        touched, before = touched[order], before[order]
        keys, digest = digests(entries)
        now = np.zeros_like(before)
        now[np.searchsorted(touched, keys)] = digest
        differs, is_held = now != before, now != 0
        return touched[differs & is_held], touched[differs & ~is_held]

    def move(self) -> None:
        """The mark is now."""
        for keys in self._keys:
            self.is_touched[keys] = False
        self._keys, self._before = [], []

    def change(self, changed: Array, ended: Array) -> None:
        """These keys have another state than at the mark, or none any more. Whether they had one does not matter to the
        first: they are written anyway."""
        for keys in (changed, ended):
            self._note(keys, np.full(len(keys), _OTHER, np.uint64))


def digests(entries: Entries) -> tuple[Array, Array]:
    """The keys that have entries, in order of their numbers, and for each 64 bits of all its entries: two states of one
    key are alike by chance once in 2**64."""
    if np.any(entries.key[1:] < entries.key[:-1]):
        entries = entries.of(np.argsort(entries.key, kind="stable"))
    key = entries.key
    starts = np.flatnonzero(np.diff(key, prepend=-1))
    with np.errstate(over="ignore"):  # a hash may wrap
        digest = np.full(len(key), _SEED, np.uint64)
        if len(starts) < len(key):
            lengths = np.diff(starts, append=len(key))
            digest += (np.arange(len(key)) - np.repeat(starts, lengths)).astype(np.uint64)
        for column in (*entries.integers.T, *entries.floats.T, *_words(entries.states)):
            digest = _mixed(digest ^ column.view(np.uint64))
        if len(starts) < len(key):
            digest = np.add.reduceat(digest, starts)
    return key[starts], digest | np.uint64(1)


def _words(states: Array) -> Array:
    """Rows of bytes as columns of 8 bytes each."""
    padded = np.zeros((len(states), -(-states.shape[1] // 8) * 8), np.uint8)
    padded[:, : states.shape[1]] = states
    return padded.view(np.uint64).T


def _mixed(value: Array) -> Array:
    """SplitMix64's last step: every bit of the input reaches every bit of the output."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Array = value ^ (value >> np.uint64(31))
    return mixed
