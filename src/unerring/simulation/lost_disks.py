"""Lost disks of process nodes: when they happen, and how many at once. A node whose disk was lost counts as failed
until it takes part again; f of 2f+1 may be so at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

import msgspec

from unerring.model import MILLISECOND_US, Address
from unerring.processes import INCARNATIONS, Lives
from unerring.simulation.faults import Fault, LostDisk
from unerring.simulation.world import World

TIMES_MAX: Final = 4


class LostDisks:
    """Of one run. Drawn apart from everything else, so that a seed without them is what it was."""

    def __init__(self, world: World, names: Sequence[Address], f: int, chance: float, founding_chance: float) -> None:
        self._world = world
        self._names = tuple(names)
        self._f = f
        self._draw = Random(f"lost disks {world.seed}")
        self.happen = self._draw.random() < chance
        self.founding = self._draw.random() < founding_chance
        """Nobody says that the nodes are new: they find out."""
        world.may_lose = self._may_lose

    def asks_first(self, name: Address) -> bool:
        """Whether a node with an empty disk has to ask the others before it takes part."""
        return self.founding or self._was_lost(name)

    def faults(self, until_us: int) -> list[Fault]:
        """Some at any time, some of them close together."""
        draw, drawn = self._draw, list[Fault]()
        for _ in range(draw.randint(1, TIMES_MAX) if self.happen else 0):
            at_us = draw.randrange(until_us)
            for _ in range(draw.choice((1, 1, 2))):
                for_us = draw.choice((1, 10, 100, 600)) * MILLISECOND_US
                drawn.append(LostDisk(at_us=at_us, node=draw.choice(self._names), for_us=1 + draw.randrange(for_us)))
                at_us += draw.randrange(200) * MILLISECOND_US
        return drawn

    def _was_lost(self, name: Address) -> bool:
        return any(line.node == name and line.what == "lost disk" for line in self._world.history)

    def _absent(self, name: Address) -> bool:
        """By what is on its disk."""
        records = self._world.nodes[name].storage.records
        lives = records.get(f"{name}|{INCARNATIONS}")
        if lives is None:
            return not records and self.asks_first(name)
        return not msgspec.msgpack.decode(lives, type=Lives).whole

    def _may_lose(self, name: Address) -> bool:
        if name not in self._names:
            return False
        return sum(self._absent(other) for other in self._names if other != name) < self._f
