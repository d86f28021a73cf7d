"""Which keys changed since a time: those that rows or deadlines touched and whose state is not what it was.

For every key there is a digest of its entries as they were at the mark. A key is looked at only if something touched
it, so that a step costs what it touched, and a row that a rule passes over changes nothing.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from unerring.matching.kernel.columns import Array
from unerring.matching.kernel.state import Entries, longer

_SEEDS: Final = (0x9E3779B97F4A7C15, 0xD1B54A32D192ED03)


class Marks:
    """What the state was at the mark, and what has been touched since."""

    def __init__(self, entries: Entries, size: int) -> None:
        self._digests = np.zeros((size, len(_SEEDS)), np.uint64)
        """By key number; 0: unlike any state. A key without state has 0 too, and is not `held`."""
        self._held = np.zeros(size, np.bool_)
        self._touched = np.zeros(size, np.bool_)
        self._remember(*digests(entries))

    def touch(self, keys: Array, size: int) -> None:
        """Something may have changed for these. `size`: above every key's number."""
        self._reserve(size)
        self._touched[keys] = True

    def touched(self) -> Array:
        """All keys that were touched since the mark."""
        return np.flatnonzero(self._touched)

    def held(self) -> Array:
        """The keys that had state at the mark."""
        return np.flatnonzero(self._held)

    def changed(self, touched: Array, entries: Entries) -> tuple[Array, Array]:
        """Of the touched keys, with all entries that they have now: those with another state, those with none left."""
        keys, now = digests(entries)
        changed = keys[(now != self._digests[keys]).any(axis=1)]
        left = touched[self._held[touched]]
        return changed, left[~np.isin(left, keys, assume_unique=True)]

    def move(self, touched: Array, entries: Entries) -> None:
        """The mark is now: these are the touched keys' entries."""
        self._digests[touched], self._held[touched] = 0, False
        self._remember(*digests(entries))
        self._touched[touched] = False

    def renumbered(self, moved: Array, size: int, entries: Entries, dirty: Array) -> Marks:
        """The same marks where keys and texts have new numbers. `moved`: old number and new one of every key that is
        held or has state; `dirty`: new numbers of keys that changed since the mark."""
        marks = Marks(entries, size)
        marks._digests[dirty] = 0
        marks._held[:] = False
        was = moved[0] < len(self._held)
        marks._held[moved[1][was]] = self._held[moved[0][was]]
        marks.touch(dirty, size)
        return marks

    def _remember(self, keys: Array, digest: Array) -> None:
        self._digests[keys], self._held[keys] = digest, True

    def _reserve(self, size: int) -> None:
        more = size - len(self._held)
        if more > 0:
            more = max(more, min(len(self._held), 1 << 20))
            self._digests, self._held = longer(self._digests, more), longer(self._held, more)
            self._touched = longer(self._touched, more)


def digests(entries: Entries) -> tuple[Array, Array]:
    """The keys that have entries, in order of their numbers, and for each 128 bits of all its entries."""
    by_key = np.argsort(entries.key, kind="stable")
    key = entries.key[by_key]
    starts = np.flatnonzero(np.diff(key, prepend=-1))
    position = (np.arange(len(key)) - np.repeat(starts, np.diff(starts, append=len(key)))).astype(np.uint64)
    columns = [
        *(entries.integers[by_key, at].view(np.uint64) for at in range(entries.integers.shape[1])),
        *(entries.floats[by_key, at].view(np.uint64) for at in range(entries.floats.shape[1])),
        *(entries.states[by_key, at].astype(np.uint64) for at in range(entries.states.shape[1])),
    ]
    result = np.empty((len(starts), len(_SEEDS)), np.uint64)
    with np.errstate(over="ignore"):  # a hash may wrap
        for at, seed in enumerate(_SEEDS):
            digest = _mixed(position + np.uint64(seed))
            for column in columns:
                digest = _mixed((digest ^ column) + np.uint64(seed))
            result[:, at] = (np.add.reduceat(digest, starts) if len(starts) else digest) | np.uint64(1)
    return key[starts], result


def _mixed(value: Array) -> Array:
    """SplitMix64's last step: every bit of the input reaches every bit of the output."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Array = value ^ (value >> np.uint64(31))
    return mixed
