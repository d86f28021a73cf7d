"""What a chain has taken of each producer: everything up to a mark, and runs above it.

Events of a stream with several producers, or with lateness, are sealed in the order of their times. So a producer's
events may be sealed out of its own sequence. What was taken is written down exactly, in every segment: whoever goes on
from there takes nothing twice, and leaves nothing out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

Mark = tuple[int, int]
"""A producer's epoch and sequence."""
Run = tuple[Mark, Mark]
"""Everything from one event to another, both included; it may reach into a later epoch."""

NOTHING: Final[Mark] = (-1, -1)


@dataclass(frozen=True, slots=True)
class Taken:
    """What was taken of every producer."""

    marks: Mapping[str, Mark] = field(default_factory=dict)
    """For each producer: everything up to this epoch and sequence."""
    above: Mapping[str, tuple[Run, ...]] = field(default_factory=dict)
    """For some producers: runs above the mark, in order."""
    away: frozenset[str] | None = None
    """Producers that have ended or are idle: nobody waits for them. None: not known, nobody waits for any."""

    def has(self, producer: str, mark: Mark) -> bool:
        """Whether an event was taken."""
        return mark <= self.marks.get(producer, NOTHING) or within(self.above.get(producer, ()), mark)

    @property
    def runs(self) -> int:
        """How many runs there are above the marks: what has a bound."""
        return sum(map(len, self.above.values()))

    @property
    def awaited(self) -> list[str]:
        """The producers that a writer which starts here waits for."""
        return [] if self.away is None else [name for name in self.marks if name not in self.away]

    def with_mark(self, producer: str, mark: Mark) -> Taken:
        """The same and one more, whom nobody waits for."""
        away = None if self.away is None else self.away | {producer}
        return Taken({**self.marks, producer: mark}, self.above, away)

    def without(self, producers: Iterable[str]) -> Taken:
        """The same without some producers."""
        left_out = frozenset(producers)
        return Taken(
            {name: mark for name, mark in self.marks.items() if name not in left_out},
            {name: runs for name, runs in self.above.items() if name not in left_out},
            self.away,
        )

    def holes(self, producer: str) -> Iterator[Run]:
        """What lies between the mark and the last run above it and was not taken yet."""
        epoch, sequence = self.marks.get(producer, NOTHING)
        for first, last in self.above.get(producer, ()):
            yield (epoch, sequence + 1), (first[0], first[1] - 1)
            epoch, sequence = last


def within(runs: tuple[Run, ...], mark: Mark) -> bool:
    """Whether one of these runs, which are in order, has an event."""
    at = bisect_right(runs, mark, key=_first) - 1
    return at >= 0 and mark <= runs[at][1]


def settled(mark: Mark, runs: Iterable[Run]) -> tuple[Mark, tuple[Run, ...]]:
    """A mark and any runs, in canonical form: runs joined, in order, and those that continue the mark joined to it."""
    joined: list[Run] = []
    for first, last in sorted(runs):
        if first <= (mark[0], mark[1] + 1):
            mark = max(mark, last)
        elif joined and first <= (joined[-1][1][0], joined[-1][1][1] + 1):
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return mark, tuple(joined)


def less(mark: Mark, runs: Iterable[Run], held: Iterable[Mark]) -> tuple[Mark, tuple[Run, ...]]:
    """What is left of everything up to a mark, and of runs above it, without some events, which are given in order."""
    held = list(held)
    if not held:
        return settled(mark, runs)
    begin: Mark = (held[0][0], held[0][1] - 1)
    between = zip(held, [*held[1:], (mark[0], mark[1] + 1)], strict=True)
    whole = [((low[0], low[1] + 1), (high[0], high[1] - 1)) for low, high in between]
    return settled(begin, [*(run for run in whole if run[0] <= run[1]), *runs])


def _first(run: Run) -> Mark:
    return run[0]
