"""The rules of a scenario's tree from one upgrade to the next: which of them change, come and go is drawn."""

from __future__ import annotations

from random import Random
from typing import Final

import msgspec

from unerring.correlation import NodeSpec, Role, Topology, side_by_side
from unerring.simulation.query_tree import schema

ADDED: Final = NodeSpec("Q", Role.CORRELATION, ("a", "x1", "w"), ("q",), 1)
"""The rule that comes, and perhaps goes again."""
REMOVED: Final = "V"
"""The rule that goes, for good; what it made is read no more."""


class Editions:
    """The rules as the application has them, whatever their nodes are called in a run."""

    def __init__(self, draw: Random, first: Topology) -> None:
        self._draw = draw
        self._ends = [node for node in first.nodes if node.role is not Role.CORRELATION]
        self._rules = {node.name: node for node in first.nodes if node.role is Role.CORRELATION}
        self._streams = first.streams
        self.adds = self.removes = False
        """Whether the last upgrade adds a rule, or removes one."""

    def upgraded(self, before: Topology, number: int) -> Topology:
        """The nodes of the next edition beside those of the last one: a coin for each rule whether it changes, and now
        and then one comes or goes."""
        draw = self._draw
        fresh = {name for name in self._rules if draw.random() < 0.35} or {draw.choice(list(self._rules))}
        coins = draw.random() < 0.3, draw.random() < 0.3, draw.random() < 0.3
        self.adds = ADDED.name not in self._rules and coins[0]
        goes = {name for name, coin in ((ADDED.name, coins[1]), (REMOVED, coins[2])) if coin and name in self._rules}
        self.removes = bool(goes)
        for name in goes:
            made = self._rules.pop(name).outputs
            for taker, node in self._rules.items():
                if set(made) & set(node.inputs):
                    fresh.add(taker)
                    inputs = tuple(stream for stream in node.inputs if stream not in made)
                    self._rules[taker] = msgspec.structs.replace(node, inputs=inputs)
        if self.adds:
            self._rules[ADDED.name] = msgspec.structs.replace(ADDED, f=draw.choice((1, 2)))
            if all(known.name != "q" for known in self._streams):
                self._streams = (*self._streams, schema("q"))
        streams = [stream for name in sorted(fresh) if name in self._rules for stream in self._rules[name].outputs]
        return side_by_side(before, self._plain(), streams, number)

    def _plain(self) -> Topology:
        made = {stream for node in (*self._ends, *self._rules.values()) for stream in node.outputs}
        situations = tuple(stream for node in self._rules.values() for stream in node.outputs)
        ends = [
            msgspec.structs.replace(node, inputs=situations) if node.role is Role.APPLICATION else node
            for node in self._ends
        ]
        return Topology((*ends, *self._rules.values()), tuple(one for one in self._streams if one.name in made))
