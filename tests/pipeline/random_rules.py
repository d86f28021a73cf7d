"""Random rules on random streams, each with a log of its own and what the oracle finds in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from unerring.matching.oracle import run
from unerring.model import Event, RuleError
from unerring.pipeline.level import Level, levels_of
from unerring.pipeline.versions import enter
from unerring.rules.tree import ranks_of

from .worlds import generators, sealed, write

_drawn = generators()
S, T, pair, rekeyed, stream_events = _drawn.S, _drawn.T, _drawn.pair, _drawn.rekeyed, _drawn.stream_events
RANKS = ranks_of((), (S, T))


def texts(events: list[Event]) -> list[str]:
    """Comparable: NaN is NaN, -0.0 is not 0.0."""
    return [repr(event) for event in events]


def write_log(level: Level, events: list[Event], random: Random, end_us: int) -> None:
    for schema in (T, S):
        own = [event for event in events if event.stream == schema.name and event.stamp.time <= end_us]
        cuts = [random.randrange(0, max(min(end_us, 1000), 1)) for _ in range(random.randrange(4))]
        write(level.log.create(schema, random.choice((1, level.buckets))), own, cuts, end_us)


@dataclass(frozen=True)
class Case:
    """One rule, the level that runs it on its log, and what it must find through a time."""

    drawn: Any
    level: Level
    random: Random
    data: Path
    wanted: list[Event]

    @property
    def through_us(self) -> int:
        return int(self.drawn.through)

    def check(self) -> None:
        for schema in self.drawn.plan.outputs:
            mine = [event for event in self.wanted if event.stream == schema.name]
            assert texts(sealed(self.data, schema.name)) == texts(mine), f"seed {self.drawn.seed}"


def cases(
    folder: Path, seeds: range, rekeys: Callable[[int], bool], buckets: Sequence[int] = (1, 2, 3)
) -> Iterator[Case]:
    """One for each seed whose rule the oracle can run; those that `rekeys` names have another key than their own."""
    for seed in seeds:
        drawn, random, data = pair(seed, events_max=16), Random(seed), folder / str(seed)
        drawn = rekeyed(drawn) if rekeys(seed) else drawn
        try:
            wanted = run(drawn.plan, drawn.events, RANKS, drawn.through)
        except RuleError:
            continue
        [level] = levels_of((drawn.plan,), (T, S), str(data), random.choice(buckets))
        enter(level)
        write_log(level, list(drawn.events), random, drawn.through)
        yield Case(drawn, level, random, data, wanted)
