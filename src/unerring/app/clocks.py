"""Two clocks of a run: event time, in which rules and the log are, and wall time, in which its processes are.

What links them is when a segment was sealed: its file's time, for a run in a folder. Of a run on a store, or of
segments that were compacted since, the link is not known; where event time is wall time, none is needed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from unerring.log import Chain, LocalStore, Span, segment_name
from unerring.model import TIME_MAX, TIME_MIN

NEAR_US: Final = 60_000_000
"""If events are sealed so soon after their time, both clocks are taken for one."""


class Clocks:
    """For the source streams of a run."""

    def __init__(self, chains: Sequence[Chain]) -> None:
        self._chains = list(chains)

    def wall_us(self, at_us: int) -> int | None:
        """When all sources' events through this time were in the log."""
        known = [self._sealed_us(chain, span) for chain in self._chains for span in self._holding(chain, at_us)]
        times = [time_us for time_us in known if time_us is not None]
        return max(times) if times and len(times) == len(known) else None

    def event_us(self, wall_us: int) -> int | None:
        """Through which time all sources' events were in the log at a wall time."""
        reached: list[int] = []
        for chain in self._chains:
            spans = chain.spans(chain.base.from_us, TIME_MAX)
            at = bisect_left(spans, wall_us + 1, key=lambda span: self._sealed_us(chain, span) or TIME_MAX)
            if at:
                last = spans[at - 1]
                ended = last.through_us >= TIME_MAX
                reached.append(last.from_us if ended and last.from_us > TIME_MIN else last.through_us)
            elif spans:
                return None
        times = [time_us for time_us in reached if time_us < TIME_MAX]
        return min(times) if times else None

    def _holding(self, chain: Chain, at_us: int) -> list[Span]:
        return chain.spans(max(at_us - 1, chain.base.from_us), max(at_us, chain.base.from_us + 1))[:1]

    @staticmethod
    def _sealed_us(chain: Chain, span: Span) -> int | None:
        if not isinstance(chain.store, LocalStore):
            return None
        path = chain.store.root / chain.folder / segment_name(span.from_us)
        try:
            return path.stat().st_mtime_ns // 1000
        except OSError:
            return None
