"""Producers that an operator let begin anew: the epoch that the log knows of them no longer counts.

A producer's epoch comes from its clock. One whose clock was ahead once leaves an epoch that its later ones are below,
so that they are refused as stale until the clock has caught up.
"""

from __future__ import annotations

from typing import Final

from unerring.log.producers import Mark, Taken
from unerring.log.store import Store
from unerring.model import protect_json, verified_json

FILE: Final = "resets.json"


class Resets:
    """The resets of one stream: for each producer the marks (epoch and sequence) at which it was reset."""

    def __init__(self, store: Store, folder: str) -> None:
        self.store = store
        self._name = f"{folder}/{FILE}"

    def all(self) -> dict[str, list[Mark]]:
        data = self.store.read(self._name)
        return {} if data is None else verified_json(data, dict[str, list[Mark]], self.store.locate(self._name))

    def add(self, producer: str, mark: Mark) -> None:
        """Durable once this returns."""
        known = self.all()
        self.store.replace(self._name, protect_json({**known, producer: [*known.get(producer, ()), mark]}))

    def without(self, taken: Taken) -> Taken:
        """What a chain has taken, without the producers that were reset at exactly their mark."""
        resets = self.all()
        return taken.without(name for name, mark in taken.marks.items() if mark in resets.get(name, ()))
