"""Replicas that are lost for good, and supervisors that start new ones in their place, for scenarios of correlation.

The keeper of the record decides who is gone; a supervisor does no more than start a replica where the record has too
few. Nothing here knows who was really lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, Final

import msgspec

from unerring.correlation import MEMBERSHIP, CorrelationConfig, NodeSpec, Record, Standing, Topology, node_of
from unerring.model import MILLISECOND_US
from unerring.simulation.world import World

LOST: Final = "a replica was lost for good"
REPLACED: Final = "a new replica took the place of a lost one"
LOOK_US: Final = 50 * MILLISECOND_US


class Losses:
    """In a share of the seeds some crashes are for good, and the keeper evicts who is silent."""

    def __init__(self, seed: int, share: float) -> None:
        self._draw = Random(f"losses {seed}")
        self.on = self._draw.random() < share
        self._started: set[str] = set()

    def applied(self, config: CorrelationConfig) -> CorrelationConfig:
        """As short as a run needs it: the well are evicted too, then, when faults keep them from speaking."""
        if not self.on:
            return msgspec.structs.replace(config, evict_after_us=0)
        poll_us = self._draw.choice((50, 100)) * MILLISECOND_US
        return msgspec.structs.replace(
            config,
            record_poll_us=poll_us,
            eviction_us=self._draw.choice((200, 400)) * MILLISECOND_US,
            evict_full_us=poll_us * self._draw.choice((2, 4)),
            evict_after_us=self._draw.choice((300, 600, 1200)) * MILLISECOND_US,
        )

    def for_good(self, world: World, topology: Topology, victim: str, remaining: Sequence[str]) -> bool:
        """Whether a replica that crashes now never comes back."""
        watched = topology.node(node_of(victim)).watched
        if not self.on or not remaining or not watched or self._draw.random() < 0.5:
            return False
        world.gone.append(victim)
        world.sometimes(LOST)
        return True

    def replace(self, world: World, topology: Topology, add: Callable[[NodeSpec, str], None]) -> None:
        """Start a replica of each node that has too few, unless one is on its way into the record."""
        membership: Any = world.nodes[MEMBERSHIP].machine
        if not self.on or membership is None:
            return
        for node in lacking(topology, membership.record):
            members = membership.record.of(node.name)
            names = [name for name in world.nodes if node_of(name) == node.name]
            if any(name not in members and world.nodes[name].machine is not None for name in names):
                continue
            if any(member.standing is Standing.CAUGHT_UP for member in members.values()):
                name = f"{node.name}/{1 + max(node.f, *(int(name.rpartition('/')[2]) for name in names))}"
                self._started.add(name)
                add(node, name)

    def observe(self, world: World) -> None:
        membership: Any = world.nodes[MEMBERSHIP].machine
        members = {} if membership is None else membership.record.members
        for name in self._started:
            if name in members and members[name].standing is Standing.CAUGHT_UP:
                world.sometimes(REPLACED)


def lacking(topology: Topology, record: Record) -> Iterator[NodeSpec]:
    """The nodes that have fewer replicas than they were given."""
    for node in topology.nodes:
        if node.watched and len(record.of(node.name)) <= node.f:
            yield node
