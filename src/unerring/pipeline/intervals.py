"""Intervals of merged time: where a query is, where the next micro-batch ends, and which segments hold it.

Every interval is whole: it ends where all input chains are contiguous. So listing order, sealing order and batch
boundaries cannot matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from unerring.log import Chain, Span
from unerring.model import TIME_MAX, TIME_MIN, LogError
from unerring.pipeline.level import Level
from unerring.pipeline.versions import end_of

NOTHING_AHEAD: Final[Mapping[str, int]] = {}


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where a query starts, and how much it takes at a time."""

    start_us: int = TIME_MIN
    rows_per_batch: int = 8_000_000
    """About this many events; never less than what one segment boundary forces. A micro-batch costs the same whatever
    its size, so that a backlog is worked off in large ones; what has just arrived is taken as it is."""
    rows_at_once: int = 1_000_000
    """About how many of them a bucket's task holds in memory at a time, times the number of buckets."""
    look_s: float = 0.0
    """How often a query looks for something new, and so how often it seals."""
    state_memory_bytes: int | None = None
    """See `Level`."""


def next_end(chains: dict[str, Chain], from_us: int, through_us: int, rows: int) -> int:
    """The end of the next interval: at a segment's end, with about `rows` events, never past `through_us`."""
    ends: list[tuple[int, int]] = []
    for chain in chains.values():
        for span in chain.spans(from_us, through_us):
            footer = chain.footer(span)
            ends.append((min(footer.through_us, through_us), footer.rows))
            if sum(count for _, count in ends) > rows * (len(chains) + 1):
                break
    taken = 0
    end_us = through_us
    for end, count in sorted(ends):
        taken += count
        if taken >= rows:
            end_us = end
            break
    return end_us if end_us > from_us else through_us


def steps_of(chains: dict[str, Chain], from_us: int, through_us: int, rows: int) -> list[int]:
    """An interval in steps of about `rows` events, by their ends."""
    ends: list[int] = []
    while from_us < through_us:
        from_us = next_end(chains, from_us, through_us, rows)
        ends.append(from_us)
    return ends


def spans_of(chains: dict[str, Chain], from_us: int, through_us: int) -> dict[str, list[Span]]:
    """The segments of an interval, by stream."""
    return {name: chain.spans(from_us, through_us) for name, chain in chains.items()}


class Front:
    """How far a level may go: its input chains as the driver sees them."""

    def __init__(self, level: Level, bounds: Bounds) -> None:
        self.level = level
        self.bounds = bounds
        self.chains = level.chains()
        self._target_us: int | None = None

    def reached_us(self, ahead: Mapping[str, int] = NOTHING_AHEAD) -> int:
        """Up to where every chain is contiguous, and no newer version of the rules has taken over."""
        return min(self._contiguous_us(ahead), end_of(self.level))

    @property
    def known_us(self) -> int:
        """Up to where every chain was contiguous when it was last looked at."""
        return min(chain.through_us for chain in self.chains.values())

    def behind_us(self, through_us: int) -> int:
        """How far the chains go beyond a time. One that has ended is known for ever: its events end where its last
        segment begins, or in it."""
        known_us = self.known_us
        if known_us == TIME_MAX:
            beyond = [chain.spans(through_us, TIME_MAX) for chain in self.chains.values()]
            known_us = max((spans[-1].from_us for spans in beyond if spans), default=through_us)
        return max(known_us - through_us, 0)

    def _contiguous_us(self, ahead: Mapping[str, int] = NOTHING_AHEAD) -> int:
        """Only the chain that holds the others up is looked at: on a store a look is a request."""

        def reached_us(chain: Chain) -> int:
            return max(chain.through_us, ahead.get(chain.name, chain.through_us))

        for _ in range(2 * len(self.chains)):
            last = min(self.chains.values(), key=reached_us)
            before_us = last.through_us
            if last.name in ahead or last.refresh() == before_us:
                break
        return min(map(reached_us, self.chains.values()))

    def check(self, through_us: int) -> None:
        """An interval that Spark planned before ends where all chains are: its own checkpoint may be damaged."""
        for chain in self.chains.values():
            if chain.through_us < through_us and chain.refresh() < through_us:
                raise LogError(
                    f"{self.level.checkpoint}: Spark's checkpoint has an interval up to {through_us}, and stream "
                    f"{chain.name} ends at {chain.through_us}; restore what is damaged from a copy, or remove the "
                    "checkpoint, and the level continues from a savepoint or the log"
                )

    def stop_at_present(self) -> int:
        """Go no further than what is there now; up to where that is."""
        self._target_us = self.reached_us()
        return self._target_us

    def next_end(self, from_us: int, ahead: Mapping[str, int] = NOTHING_AHEAD) -> int:
        """The end of the next interval; `from_us` itself if there is nothing more. `ahead`: streams of which somebody
        has all rows up to a time, whatever is sealed."""
        through_us = self._target_us
        if through_us is None:
            through_us = self._contiguous_us(ahead)
            through_us = through_us if through_us <= from_us else min(through_us, end_of(self.level))
        if through_us <= from_us:
            return from_us
        chains = {name: chain for name, chain in self.chains.items() if name not in ahead}
        return next_end(chains, from_us, through_us, self.bounds.rows_per_batch)
