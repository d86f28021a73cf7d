"""Looks at a run while somebody watches, and tells every watcher what has changed.

A watcher that is slow gets fewer, newer states; nothing is queued for it but a bounded tail of situations.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final, TypeVar

import msgspec

from unerring.app import RunStatus
from unerring.dashboard.tail import Tail
from unerring.model import UnerringError

LOOK_S: Final = 0.5
ENDED_S: Final = 2.0
"""A run that has ended may be started again; nobody is in a hurry to see it."""
ALIVE_S: Final = 10.0
"""A quiet stream says so as often, so that both sides notice when the other is gone."""
TAILS_MAX: Final = 60

T = TypeVar("T")


class Watch:
    """One loop of looks for all watchers."""

    def __init__(self, status: RunStatus) -> None:
        self.status = status
        self.tail = Tail(status.streams)
        self.document: dict[str, Any] = {}
        self._sections: dict[str, tuple[int, bytes]] = {}
        self._tails: deque[tuple[int, bytes]] = deque(maxlen=TAILS_MAX)
        self._looks = 0
        self._watchers = 0
        self._wanted = asyncio.Event()
        self._changed = asyncio.Condition()
        self._looking = asyncio.Lock()

    async def run(self) -> None:
        """Look again and again, for ever; rest while nobody watches."""
        while True:
            await self._wanted.wait()
            if not self._watchers:
                self._wanted.clear()
                continue
            await self.look()
            ended = self.document.get("run", {}).get("state") == "ended"
            await asyncio.sleep(ENDED_S if ended else LOOK_S)

    async def look(self) -> dict[str, Any]:
        """Look now; also for one who asks for the document alone."""
        async with self._looking:
            try:
                document, tail = await asyncio.to_thread(self._look)
            except (UnerringError, OSError) as error:
                trouble = f"the run's folder cannot be read now: {error}"
                sys.stderr.write(f"unerring dashboard: {trouble}\n")
                document, tail = {"trouble": trouble}, None
            self._take(document, tail)
        async with self._changed:
            self._changed.notify_all()
        return self.document

    async def ask(self, question: Callable[[], T]) -> T:
        """Something else of the folder's reader, which reads for one at a time."""
        async with self._looking:
            return await asyncio.to_thread(question)

    def _look(self) -> tuple[dict[str, Any], dict[str, Any] | None]:
        document = self.status.look()
        return document, self.tail.look()

    def _take(self, document: dict[str, Any], tail: dict[str, Any] | None) -> None:
        self._looks += 1
        if "trouble" not in document:
            self.document = document
            document = {**document, "trouble": None}
        for name, section in document.items():
            data = msgspec.json.encode(section)
            if name not in self._sections or self._sections[name][1] != data:
                self._sections[name] = (self._looks, data)
        if tail is not None:
            self._tails.append((self._looks, msgspec.json.encode(tail)))

    async def changes(self) -> AsyncGenerator[bytes]:
        """Server-sent events for one watcher: each section when it has changed, and new situations."""
        self._watchers += 1
        self._wanted.set()
        seen = 0
        fresh = self._looks  # what was found before is asked for by the page itself
        try:
            yield b"retry: 1000\n\n"
            while True:
                now = self._looks
                for name, (number, data) in list(self._sections.items()):
                    if number > seen:
                        yield b"event: %s\ndata: %s\n\n" % (name.encode(), data)
                for number, data in list(self._tails):
                    if number > max(seen, fresh):
                        yield b"event: tail\ndata: %s\n\n" % data
                if now > seen:
                    yield b"event: look\ndata: %d\n\n" % now
                seen = now
                if self._looks == seen:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(ALIVE_S), self._changed:
                            await self._changed.wait()
                    if self._looks == seen:
                        yield b": alive\n\n"
        finally:
            self._watchers -= 1
