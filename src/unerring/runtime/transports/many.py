"""Several addresses as one: a consumer of producers that are not all behind the same one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Final

from unerring.model import Address, Inlet, Receive, Who
from unerring.runtime.guard import Guard
from unerring.runtime.reports import Reports
from unerring.runtime.transports.config import TransportConfig

_WAYS_MAX: Final = 1 << 16
"""Senders whose way is remembered; the oldest is forgotten, and found again by its address or scheme."""


class ManyInlets:
    """See `Inlet`. What is sent to a producer takes the way on which it was heard."""

    def __init__(self, inlets: Mapping[str, Inlet]) -> None:
        self._inlets = dict(inlets)
        self._ways: dict[Address, Inlet] = {}
        configs = [getattr(inlet, "config", TransportConfig()) for inlet in self._inlets.values()]
        self._guard = Guard("", Reports())
        self.config = min(configs, key=lambda config: config.frame_bytes_max)

    async def open(self, receive: Receive) -> None:
        opened = [inlet.open(partial(self._heard, inlet, receive)) for inlet in self._inlets.values()]
        for outcome in await asyncio.gather(*opened, return_exceptions=True):
            if isinstance(outcome, BaseException):
                await self.close()
                raise outcome

    def _heard(self, inlet: Inlet, receive: Receive, sender: Address, data: bytes) -> None:
        if self._ways.get(sender) is not inlet:
            if len(self._ways) >= _WAYS_MAX:
                del self._ways[next(iter(self._ways))]
            self._ways[sender] = inlet
        receive(sender, data)

    def identities(self, sender: Address) -> tuple[Who, ...] | None:
        """Who a producer is by its certificate, on the way on which it was heard."""
        known = getattr(self._ways.get(sender), "identities", None)
        return None if known is None else known(sender)

    @property
    def guard(self) -> Guard:
        """All ways have the same policy."""
        return next((inlet.guard for inlet in self._inlets.values() if hasattr(inlet, "guard")), self._guard)

    def send(self, to: Address, data: bytes) -> None:
        way = self._ways.get(to) or self._inlets.get(to)
        if way is None:
            scheme = to.partition("://")[0]
            alike = [inlet for url, inlet in self._inlets.items() if url.partition("://")[0] == scheme]
            way = next(iter(alike or self._inlets.values()))
        way.send(to, data)

    def pause_reading(self) -> None:
        for inlet in self._inlets.values():
            inlet.pause_reading()

    def resume_reading(self) -> None:
        for inlet in self._inlets.values():
            inlet.resume_reading()

    async def close(self) -> None:
        await asyncio.gather(*(inlet.close() for inlet in self._inlets.values()), return_exceptions=True)
