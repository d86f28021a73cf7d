"""Loss records: an event that all registered consumers lost stands in the stream as one record with a stamp of its own.

So every replica learns of the loss at the same place of the same stream, and none declares one by itself.
"""

from __future__ import annotations

import msgspec

from unerring.model import Event, Stamp

_CAUSE = ""
"""A payload column that no schema can declare."""


class Lost(msgspec.Struct, frozen=True):
    """Handed up by every replica, at the same stamp."""

    event: Event

    @property
    def cause(self) -> str:
        return str(self.event.payload[_CAUSE])


def loss(stream: str, stamp: Stamp, cause: str) -> Event:
    """The record of a loss."""
    return Event(stream, stamp, (), {_CAUSE: cause})


def is_loss(event: Event) -> bool:
    return _CAUSE in event.payload
