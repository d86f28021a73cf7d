"""Faults of links that scenarios of correlation draw beside those of all scenarios."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from unerring.correlation import MEMBERSHIP, Topology, node_of
from unerring.model import MILLISECOND_US
from unerring.simulation.faults import Congestion, Reset
from unerring.simulation.world import World


def resets(draw: Random, names: Sequence[str], until_us: int) -> Iterator[Reset]:
    """Connections that break in quick succession: events lost in flight, gaps."""
    pause_us = draw.choice((20, 60, 200)) * MILLISECOND_US
    at_us = 0
    while (at_us := at_us + 1 + draw.randrange(2 * pause_us)) < until_us:
        yield Reset(at_us=at_us, node=draw.choice(names))


def late_at_some(world: World, topology: Topology, until_us: int) -> Iterator[Congestion]:
    """Spells in which some nodes' replicas, all of each, hear late of changes that the others know at once."""
    draw = Random(f"late at some {world.seed}")
    at_us = 0
    while at_us < until_us:
        for_us = draw.choice((100, 300, 1000)) * MILLISECOND_US
        late = {node.name for node in topology.nodes if draw.random() < 0.4}
        others = tuple(name for name in world.nodes if node_of(name) in late)
        if others:
            yield Congestion(at_us=at_us, for_us=for_us, node=MEMBERSHIP, slower=1000, others=others)
        at_us += for_us + 1
