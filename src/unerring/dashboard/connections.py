"""A bound on the dashboard's connections: idle ones make room, keep nobody out and use up no descriptors."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

CONNECTIONS_MAX: Final = 100
REQUEST_S_MAX: Final = 15.0
"""How long a connection may take until its first request is there."""


class BoundedConnection(H11Protocol):
    """uvicorn's own, of which there are no more than a few at once."""

    since_s: float = 0.0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS_MAX:
            # Somebody that has not even asked makes room; where all are busy the newcomer has to come again.
            others = [one for one in self.connections if isinstance(one, BoundedConnection) and one is not self]
            idle = [one for one in others if not one.has_asked]
            min(idle, key=lambda one: one.since_s, default=self).transport.abort()
        self.since_s = asyncio.get_running_loop().time()
        self._deadline = asyncio.get_running_loop().call_later(REQUEST_S_MAX, self._too_late)

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
