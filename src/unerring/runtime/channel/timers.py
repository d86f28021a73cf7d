"""A machine's named timers on the event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from unerring.model import CancelTimer, SetTimer


def monotonic_us() -> int:
    """The `now` that machines are given."""
    return time.monotonic_ns() // 1000


class Timers:
    """While `held`, timers that come wait until they are let go."""

    def __init__(self, fire: Callable[[str], None]) -> None:
        self._fire = fire
        self._handles: dict[str, asyncio.TimerHandle] = {}
        self._held: dict[str, None] | None = None

    def set(self, timer: SetTimer) -> None:
        self.cancel(CancelTimer(timer.name))
        delay_s = max(timer.at_us - monotonic_us(), 0) / 1e6
        self._handles[timer.name] = asyncio.get_running_loop().call_later(delay_s, self._come, timer.name)

    def cancel(self, timer: CancelTimer) -> None:
        handle = self._handles.pop(timer.name, None)
        if handle is not None:
            handle.cancel()
        if self._held:
            self._held.pop(timer.name, None)

    def _come(self, name: str) -> None:
        self._handles.pop(name, None)
        if self._held is not None:
            self._held[name] = None
        else:
            self._fire(name)

    def hold(self) -> None:
        self._held = {} if self._held is None else self._held

    def let_go(self) -> None:
        held, self._held = self._held, None
        for name in held or ():
            self._fire(name)

    def stop(self) -> None:
        for handle in self._handles.values():
            handle.cancel()
        self._handles.clear()
        self._held = {}
