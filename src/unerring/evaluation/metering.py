"""A world that counts what its nodes send, and in which sending takes a sender's time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from unerring.simulation import Bounds, Link, LinkSpec, World

Occupancy = Callable[[Any], int]
"""How long a message keeps its sender's uplink busy, in microseconds: the next one leaves after it."""


class MeteredWorld(World):
    """Counts messages by their type; those pushed to subscribers apart from those sent to one."""

    def __init__(
        self, seed: int, link: LinkSpec | None = None, bounds: Bounds | None = None, occupancy: Occupancy | None = None
    ) -> None:
        super().__init__(seed, link, bounds=bounds)
        self.sent: dict[type, int] = {}
        self.pushed: dict[type, int] = {}
        """Copies to subscribers: on a multicast service one message is as many copies as there are subscribers."""
        self.events_sent = 0
        """Events in all messages that carry any, one for each receiver."""
        self.pushes_lost = 0
        self._occupancy = occupancy
        self._free_us: dict[str, int] = {}

    def _transmit(self, link: Link, message: Any) -> None:
        kind = type(message)
        counts = self.pushed if link.pushed else self.sent
        counts[kind] = counts.get(kind, 0) + 1
        events = getattr(message, "events", None)
        if events is not None:
            self.events_sent += len(events)
        busy_us = 0 if self._occupancy is None else self._occupancy(message)
        if not busy_us:
            super()._transmit(link, message)
            return
        now_us = self.now_us
        self.now_us = self._free_us[link.sender] = max(now_us, self._free_us.get(link.sender, 0)) + busy_us
        super()._transmit(link, message)
        self.now_us = now_us

    def _lose(self, link: Link, message: Any) -> None:
        self.pushes_lost += link.pushed
        super()._lose(link, message)

    def count(self, *kinds: type) -> int:
        """How many messages of these types were sent to one receiver each."""
        return sum(self.sent.get(kind, 0) for kind in kinds)
