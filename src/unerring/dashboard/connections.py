"""A bound on the dashboard's connections: idle ones make room, and then those of whoever holds most. So nobody keeps
others out, or uses up all descriptors."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

CONNECTIONS_MAX: Final = 100
REQUEST_S_MAX: Final = 15.0
"""How long a connection may take until its first request is there."""
HOLDER: Final = "unerring.holder"
"""The name in a request's scope under which its connection's owner stands."""


class BoundedConnection(H11Protocol):
    """uvicorn's own, of which there are no more than a few at once."""

    since_s: float = 0.0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS_MAX:
            self._one_too_many().transport.abort()
        self.since_s = asyncio.get_running_loop().time()
        self._deadline = asyncio.get_running_loop().call_later(REQUEST_S_MAX, self._too_late)

    def _one_too_many(self) -> BoundedConnection:
        """Somebody that has not even asked; where all have, the oldest of whoever holds most. Where nobody holds more
        than one, the newcomer has to come again."""
        others = [one for one in self.connections if isinstance(one, BoundedConnection) and one is not self]
        idle = [one for one in others if not one.has_asked]
        if not idle:
            counted = sorted(Counter(one.holder for one in others).items(), key=lambda one: (-one[1], one[0]))
            most, count = counted[0] if counted else ("", 0)
            idle = [one for one in others if one.holder == most and count > 1]
        return min(idle, key=lambda one: one.since_s, default=self)

    @property
    def holder(self) -> str:
        """Whose connection it is, as its last request said; empty before that."""
        scope: dict[str, Any] = getattr(self, "scope", None) or {}
        return str(scope.get(HOLDER, ""))

    def _too_late(self) -> None:
        if not self.has_asked:
            self.transport.abort()

    @property
    def has_asked(self) -> bool:
        """Whether a request has come; uvicorn looks after what follows it."""
        return getattr(self, "cycle", None) is not None

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        super().connection_lost(exc)
