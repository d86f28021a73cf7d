"""Where the parts of a node put what they want done in one step: everything to be kept goes to disk first."""

from __future__ import annotations

from typing import Any

import msgspec

from unerring.model import Deliver, Effect, Effects, Persist, Report, Send


class Out:
    """Effects of one step. Persisting comes before everything else, whatever the order of the calls, but for what is
    sent ahead: it promises nothing that rests on the records of this step."""

    def __init__(self) -> None:
        self._kept: dict[str, bytes | None] = {}
        self._ahead: list[Effect] = []
        self._then: list[Effect] = []

    def keep(self, key: str, record: Any) -> None:
        self._kept[key] = msgspec.msgpack.encode(record)

    def forget(self, key: str) -> None:
        self._kept[key] = None

    def send(self, to: str, message: Any) -> None:
        self._then.append(Send(to, message))

    def send_ahead(self, to: str, message: Any) -> None:
        """Send before this step's records are on disk, so that sending and syncing take place at the same time."""
        self._ahead.append(Send(to, message))

    def deliver(self, what: Any) -> None:
        self._then.append(Deliver(what))

    def report(self, what: str, detail: str = "") -> None:
        self._then.append(Report(f"process.{what}", detail))

    def take(self) -> Effects:
        """All of it, once."""
        effects: Effects = self._ahead
        if self._kept:
            puts = tuple((key, data) for key, data in self._kept.items() if data is not None)
            effects.append(Persist(puts, tuple(key for key, data in self._kept.items() if data is None)))
        effects += self._then
        self._kept, self._ahead, self._then = {}, [], []
        return effects
