"""The gate of a filter: the application is called only for who has a permit. Because the filter sees every request of
every node, a limit here holds over all nodes together, whoever of them dies.

A permit is taken at the call of the application and given back when its answer is on disk, or is known to be lost; a
master that died has nothing to give back. What passed, and when, is in the table `unerring_flow`, committed with the
effects; `unerring process audit` checks it. After a restart the gate stays shut for a second where there is a rate:
what was begun before need not be known.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from unerring.processes import Limiter, Limits
from unerring.runtime.services.headers import Headers
from unerring.runtime.services.store import FlowLine, Store
from unerring.runtime.timers import monotonic_us

HELD_US_MAX: Final = 500_000
HELD_MAX: Final = 32
"""So many requests whose turn comes so soon wait here, instead of coming again: whoever comes too late wastes what is
allowed."""


class Permit(msgspec.Struct, frozen=True, eq=False):
    """One call of the application."""

    iid: str
    key: str
    began_us: int


class Gate:
    """The gate before one application."""

    def __init__(self, store: Store, limits: Limits, clock: Callable[[], int] = monotonic_us) -> None:
        self._store = store
        self._limits = limits
        self._clock = clock
        self._offset_us = 0
        at_once = min(limits.at_once or store.at_once_max, store.at_once_max)
        self.limiter = Limiter(msgspec.structs.replace(limits, at_once=at_once))
        self._held = 0
        self._opening = asyncio.Lock()
        self._open = False

    def now_us(self) -> int:
        """Wall time that never goes back, not over restarts either."""
        return self._clock() + self._offset_us

    async def open(self) -> None:
        async with self._opening:
            if self._open:
                return
            end = await self._store.claim()
            self._offset_us = max(time.time_ns() // 1000, end.last_us or 0) - self._clock()
            self.limiter.paused = end.paused
            if end.last_us is not None:
                self.limiter.quiet(self.now_us())
            await self._note("limits", msgspec.json.encode(self._limits).decode())
            self._open = True

    async def _note(self, what: str, why: str) -> None:
        now = self.now_us()
        async with self._store.transaction(f"!{what}") as transaction:
            await transaction.note(FlowLine(what, why, "", now, now))

    # ---- passing -----------------------------------------------------------------------------------------------

    async def enter(self, asked: Headers, undo: bool) -> Permit | int | None:
        """A permit; or how many microseconds to wait for one; or None: the application will not be called, as far as
        can be seen now."""
        recorded, key = await self._store.peek(asked.iid)
        called = (recorded is not None and recorded.state == "done") if undo else recorded is None and not asked.settle
        if not called:
            return None
        place = f"{'undo' if undo else 'do'} {asked.iid.rpartition('@')[0] or asked.iid}"
        key, until_us = key if undo else asked.key, self.now_us() + HELD_US_MAX
        while asked.iid not in self.limiter.open:
            now = self.now_us()
            wait_us = self.limiter.ask(asked.iid, place, key, asked.priority, now)
            if not wait_us:
                return Permit(asked.iid, key, now)
            if now + wait_us > until_us or self._held >= HELD_MAX:
                return wait_us
            self._held += 1
            try:
                await asyncio.sleep(wait_us / 1e6)
            finally:
                self._held -= 1
        return None  # the same request is being carried out: its answer will be on record

    def leave(self, permit: Permit, failed: bool) -> None:
        self.limiter.end(permit.iid, failed, self.now_us())

    def line(self, what: str, permit: Permit) -> FlowLine:
        return FlowLine(what, permit.iid, permit.key, permit.began_us, self.now_us())

    async def note_failure(self, permit: Permit) -> None:
        """What the application did not answer leaves its line too, if the database lets it."""
        with contextlib.suppress(Exception):
            async with self._store.transaction(permit.iid) as transaction:
                await transaction.note(self.line("failed", permit))

    # ---- by hand -----------------------------------------------------------------------------------------------

    async def pause(self, why: str) -> None:
        """Nothing begins from here on; what has begun comes to its end."""
        self.limiter.paused = why or "by an operator"
        await self._note("pause", self.limiter.paused)

    async def resume(self) -> None:
        await self._note("resume", "")
        self.limiter.resume()

    def look(self) -> dict[str, Any]:
        """The gate now, for people."""
        left_us = self.limiter.shut_until_us - self.now_us()
        return {
            "limits": msgspec.to_builtins(self._limits),
            "paused": self.limiter.paused,
            "failures": self.limiter.failures,
            "shut_s": max(left_us, 0) / 1e6,
            "at_once": len(self.limiter.open),
            "waiting": self.limiter.waiting,
        }
