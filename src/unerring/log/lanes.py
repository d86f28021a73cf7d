"""The producers of one stream, side by side: how far each was received, its watermark, and whether it is waited for.

A producer's watermark is its newest time less the stream's lateness, or what it declares. The stream's watermark is the
least of those that are neither ended nor idle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from unerring.log.producers import NOTHING, Mark, Taken
from unerring.model import TIME_MAX, TIME_MIN

if TYPE_CHECKING:
    import numpy as np

    Numbers = np.ndarray[Any, Any]


class ProducerState(msgspec.Struct, frozen=True):
    """One producer of a stream, for people."""

    producer: str
    watermark_us: int | None
    """None: nothing was heard of its times yet."""
    silent_us: int
    """For how long nothing came from it."""
    state: str
    """active, idle or ended."""


class Lanes:
    """Columns of numbers, one row for each producer, in the order in which they were first heard of."""

    def __init__(self, lateness_us: int, strict: bool, idle_after_us: int | None) -> None:
        import numpy as np

        # Of the newest time more may come, unless times strictly increase.
        self._behind_us = lateness_us + (0 if strict and not lateness_us else 1)
        self._idle_after_us = idle_after_us
        self.names: list[str] = []
        self.codes: dict[str, int] = {}
        self.epochs = np.zeros(0, np.int64)
        self.received = np.zeros(0, np.int64)
        """The last sequence of the epoch that was received, in order: taken, held or refused."""
        self.newest = np.zeros(0, np.int64)
        """The newest time of the epoch."""
        self._ranks: Numbers | None = None
        self._declared = np.zeros(0, np.int64)
        self._heard = np.zeros(0, np.int64)
        self._ended = np.zeros(0, bool)
        self._idle = np.zeros(0, bool)
        self._met = np.zeros(0, bool)
        """Whether something was heard of it since the start."""

    def __len__(self) -> int:
        return len(self.names)

    def begin(self, taken: Taken, now: int) -> None:
        """Start from what a chain has. The producers that it waits for hold the stream at its end until they speak."""
        awaited = frozenset(taken.awaited)
        for name, mark in taken.marks.items():
            self.code(name, now, mark)
        self._idle[: len(self.names)] = [name not in awaited for name in self.names]
        self._met[: len(self.names)] = False

    def code(self, name: str, now: int, mark: Mark = NOTHING) -> int:
        """A producer's number. One that is new is waited for from now on."""
        known = self.codes.get(name)
        if known is not None:
            return known
        code = self.codes[name] = len(self.names)
        self.names.append(name)
        if code >= len(self.epochs):
            self._grow(max(16, 2 * code))
        self.epochs[code], self.received[code] = mark
        self.newest[code] = self._declared[code] = TIME_MIN
        self._heard[code] = now
        self._met[code] = True
        self._ranks = None
        return code

    @property
    def ranks(self) -> Numbers:
        """Each producer's place among the names: rows of one time are in this order."""
        import numpy as np

        if self._ranks is None:
            order = np.argsort(np.array(self.names))
            self._ranks = np.empty(len(order), np.int64)
            self._ranks[order] = np.arange(len(order))
        return self._ranks

    def _grow(self, size: int) -> None:
        import numpy as np

        for name in ("epochs", "received", "newest", "_declared", "_heard", "_ended", "_idle", "_met"):
            old = getattr(self, name)
            new = np.zeros(size, old.dtype)
            new[: len(old)] = old
            setattr(self, name, new)

    def learn(self, taken: Taken, now: int) -> None:
        """Another writer has taken so much. Producers that only it heard of are waited for if it waits for them."""
        awaited = frozenset(taken.awaited)
        for name, mark in taken.marks.items():
            known = name in self.codes
            code = self.code(name, now)
            if not known:
                self._idle[code], self._met[code] = name not in awaited, False
            if mark > (int(self.epochs[code]), int(self.received[code])):
                if mark[0] > self.epochs[code]:
                    self.succeed(code, mark[0])
                self.received[code] = mark[1]

    def hear(self, codes: Any, now: int) -> None:
        """Something came from these: they are not idle."""
        self._heard[codes] = now
        self._met[codes] = True
        self._idle[codes] = False

    def meet(self, code: int) -> None:
        """A producer is there, whether it speaks or not."""
        self._met[code] = True

    def declare(self, code: int, time_us: int, now: int) -> bool:
        """A producer's word that nothing at or before a time follows; whether that is news."""
        if time_us <= self._declared[code]:
            return False
        self.hear(code, now)
        self._declared[code] = time_us
        self._ended[code] = time_us >= TIME_MAX
        return True

    def succeed(self, code: int, epoch: int) -> None:
        """A producer began again: so do its order and its word."""
        self.epochs[code], self.received[code] = epoch, -1
        self.newest[code] = self._declared[code] = TIME_MIN
        self._ended[code] = False

    def look(self, now: int) -> None:
        """Who has been silent for so long that nobody waits for it any more?"""
        if self._idle_after_us is not None:
            count = len(self.names)
            self._idle[:count] |= now - self._heard[:count] >= self._idle_after_us

    def watermark_us(self) -> int:
        """Up to where nothing more can come from anybody who is waited for."""
        import numpy as np

        count = len(self.names)
        watermarks = self._watermarks()[:count]
        counted = ~(self._idle[:count] | self._ended[:count])
        if counted.any():
            return max(int(watermarks[counted].min()), TIME_MIN)
        met = self._met[:count]
        if met.any() and self._ended[:count][met].all():
            return TIME_MAX
        # Nobody is waited for: what those who fell silent have said is all there is.
        silent = self._idle[:count] & ~self._ended[:count]
        spoken = np.maximum(self.newest[:count], self._declared[:count])[silent]
        return max(int(spoken.max(initial=TIME_MIN)), TIME_MIN)

    def awaited(self) -> int | None:
        """The code of the one for whom all wait: that with the least watermark."""
        import numpy as np

        count = len(self.names)
        counted = np.flatnonzero(~(self._idle[:count] | self._ended[:count]))
        return int(counted[np.argmin(self._watermarks()[counted])]) if len(counted) else None

    def away(self) -> frozenset[str]:
        """Those that nobody waits for."""
        import numpy as np

        count = len(self.names)
        return frozenset(self.names[code] for code in np.flatnonzero(self._idle[:count] | self._ended[:count]).tolist())

    def state(self, code: int, now: int) -> ProducerState:
        watermark_us = int(self._watermarks()[code])
        state = "ended" if self._ended[code] else "idle" if self._idle[code] else "active"
        known = None if watermark_us <= TIME_MIN else watermark_us
        return ProducerState(self.names[code], known, now - int(self._heard[code]), state)

    def _watermarks(self) -> Numbers:
        import numpy as np

        watermarks: Numbers = np.maximum(self._declared, np.maximum(self.newest - self._behind_us, TIME_MIN))
        return watermarks
