"""Which incarnation of a source each epoch of its producers is, and where each of its producers began.

A source that others keep (a topic) may be deleted and made anew under its old name: its numbers then begin again, and
mean other events. Every incarnation gets an epoch, counted from 0, in an object that is created if absent: whoever
comes later, or at the same time, reads the same. Where its producers began is in it too, so that a log that starts in
the middle of a source knows exactly what it left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from unerring.log.store import Store
from unerring.model import protect_json, verified_json

SOURCES: Final = "sources"
EPOCHS_MAX: Final = 10_000


class Incarnation(msgspec.Struct, frozen=True):
    """One epoch of a source."""

    identity: str
    """What tells this incarnation from others; empty where the source has nothing of the kind."""
    begin: Mapping[str, int]
    """For each producer that was there when the epoch began, the first sequence that is taken."""


class Epochs:
    """The epochs of one source of a stream."""

    def __init__(self, store: Store, folder: str, source: str) -> None:
        self.store = store
        self.folder = f"{folder}/{SOURCES}/{source}"
        self._known: list[Incarnation] = []

    def newest(self) -> tuple[int, Incarnation] | None:
        """The newest epoch, by names that follow each other; None: the source was never read."""
        while len(self._known) < EPOCHS_MAX:
            name = self._name(len(self._known))
            data = self.store.read(name)
            if data is None:
                break
            self._known.append(verified_json(data, Incarnation, self.store.locate(name)))
        return (len(self._known) - 1, self._known[-1]) if self._known else None

    def begin(self, epoch: int, incarnation: Incarnation) -> tuple[int, Incarnation]:
        """Begin an epoch, unless somebody else has: the newest epoch then."""
        self.store.create(self._name(epoch), protect_json(incarnation))
        newest = self.newest()
        return (epoch, incarnation) if newest is None else newest

    def _name(self, epoch: int) -> str:
        return f"{self.folder}/{epoch:05d}.json"
