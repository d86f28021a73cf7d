"""Waiting for slow subscribers: each is given its time from when its outbox became half full, then given up on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

Subscriber = TypeVar("Subscriber")


class Patience(Generic[Subscriber]):
    """`tried` holds those we wait for and since when, `lapsed` those we no longer wait for. Both end with `forget`."""

    def __init__(self, patience_us: int, gave_up: Callable[[Subscriber], None]) -> None:
        self.tried: dict[Subscriber, float] = {}
        self.lapsed: dict[Subscriber, None] = {}
        self._patience_s = patience_us / 1e6
        self._gave_up = gave_up
        self._relief = asyncio.Event()

    def begin(self, subscriber: Subscriber) -> None:
        """Its outbox is half full."""
        self.tried[subscriber] = asyncio.get_running_loop().time()
        self._relief.clear()

    def forget(self, subscriber: Subscriber) -> None:
        """It reads again, or is gone."""
        self.tried.pop(subscriber, None)
        self.lapsed.pop(subscriber, None)
        if not self.tried:
            self._relief.set()

    async def wait(self) -> None:
        """Until nobody is waited for any more."""
        loop = asyncio.get_running_loop()
        while self.tried:
            oldest, since = next(iter(self.tried.items()))  # insertion order is the order of time
            left_s = since + self._patience_s - loop.time()
            if left_s <= 0:
                del self.tried[oldest]
                self.lapsed[oldest] = None
                self._gave_up(oldest)
                continue
            try:
                async with asyncio.timeout(left_s):
                    await self._relief.wait()
            except TimeoutError:
                continue
