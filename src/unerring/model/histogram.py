"""How long something took, counted in buckets: what can be added up over processes and shown by Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

import msgspec

BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""The upper ends of the buckets; a last one has what took longer."""


def _no_counts() -> list[int]:
    return [0] * (len(BOUNDS_S) + 1)


class Histogram(msgspec.Struct):
    """Times in seconds. Those of several processes are merged."""

    counts: list[int] = msgspec.field(default_factory=_no_counts)
    """Of each bucket alone."""
    sum_s: float = 0.0
    max_s: float = 0.0

    def add(self, took_s: float) -> None:
        self.counts[bisect_left(BOUNDS_S, took_s)] += 1
        self.sum_s += took_s
        self.max_s = max(self.max_s, took_s)

    def merge(self, other: Histogram) -> None:
        self.counts = [mine + its for mine, its in zip(self.counts, other.counts, strict=True)]
        self.sum_s += other.sum_s
        self.max_s = max(self.max_s, other.max_s)

    @property
    def count(self) -> int:
        return sum(self.counts)

    def at_most_s(self, share: float) -> float | None:
        """The time in which this share was done, at most: the upper end of its bucket. None: nothing was counted."""
        wanted, reached = share * self.count, 0
        for count, bound in zip(self.counts, (*BOUNDS_S, self.max_s), strict=True):
            reached += count
            if count and reached >= wanted:
                return min(bound, self.max_s)
        return None

    def buckets(self) -> Iterator[tuple[str, int]]:
        """As Prometheus counts: of each upper end, what took no longer."""
        reached = 0
        for count, bound in zip(self.counts, (*map(str, BOUNDS_S), "+Inf"), strict=True):
            reached += count
            yield bound, reached
