"""The producer's replay buffer: consecutive frames, oldest first (paper, section 3.2). The producer bounds it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from unerring.channels.messages import Frames

_COMPACT_AT = 1024


class ReplayBuffer:
    """Holds what was published, from `lowest` to the last one, until it is evicted."""

    def __init__(self) -> None:
        self._frames: list[Frames] = []
        self._firsts: list[int] = []
        self._published_us: list[int] = []
        self._head = 0
        self.count = 0
        self.bytes = 0

    def append(self, frames: Frames, now: int) -> None:
        self._frames.append(frames)
        self._firsts.append(frames.first)
        self._published_us.append(now)
        self.count += len(frames.payloads)
        self.bytes += frames.size

    def restamp(self, now: int) -> None:
        """Count ages from now on: after a restart the clock is another one."""
        self._published_us = [now] * len(self._published_us)

    def __bool__(self) -> bool:
        return self._head < len(self._frames)

    @property
    def lowest(self) -> int | None:
        """The lowest sequence still here; None when empty."""
        return self._firsts[self._head] if self else None

    @property
    def oldest(self) -> Frames:
        return self._frames[self._head]

    @property
    def oldest_us(self) -> int:
        return self._published_us[self._head]

    def evict_oldest(self) -> int:
        """Let the oldest frames go; their first sequence."""
        head, first = self._head, self._firsts[self._head]
        self.count -= len(self._frames[head].payloads)
        self.bytes -= self._frames[head].size
        self._head = head + 1
        if self._head >= _COMPACT_AT and self._head * 2 >= len(self._frames):
            for column in (self._frames, self._firsts, self._published_us):
                del column[: self._head]
            self._head = 0
        else:
            self._frames[head] = _NOTHING  # let the payloads go now, the list's head later
        return first

    def between(self, first: int, last: int) -> Iterator[Frames]:
        """The frames of [first, last] that are still here, in order."""
        for frames in self.batches(first, last):
            yield frames.cut(first, last)

    def batches(self, first: int, last: int) -> Iterator[Frames]:
        """The same in whole batches, as they were published: a part of one has no signature."""
        at = max(bisect_right(self._firsts, first, self._head) - 1, self._head)
        while at < len(self._frames) and self._firsts[at] <= last:
            frames = self._frames[at]
            if frames.last >= first:
                yield frames
            at += 1


_NOTHING = Frames(0, 0, 0, (), ())
