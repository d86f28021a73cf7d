"""Parts of a correlation replica with one rule taken away each: who leads, and its disk."""

from __future__ import annotations

from typing import Any

from unerring.correlation import Batch, Election, Journal, Replica
from unerring.model import Effects


class _Believing(Election):
    def leader_seems_alive(self, now: int) -> bool:
        return True


class BelievesInALeader(Replica):
    """Takes it for granted that somebody leads."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.election.__class__ = _Believing


class _Unwritten(Journal):
    def keep(self, batch: Batch, events: int) -> Effects:
        super().keep(batch, events)
        return []


class AcksWithoutDisk(Replica):
    """Acknowledges what is in its memory alone."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        if self._journal is not None:
            self._journal.__class__ = _Unwritten
