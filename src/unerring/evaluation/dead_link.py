"""How long no situation comes when the link between two leaders dies: with LeaderDead between nodes, and without it.

Both leaders live and hear the other replicas, so that neither is deaf. Without LeaderDead the one that gets nothing has
to find out that nothing comes, and whom to ask for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unerring.correlation import (
    MEMBERSHIP,
    Application,
    CorrelationConfig,
    DeadLinks,
    Fed,
    Membership,
    NodeSpec,
    Outgoing,
    Replica,
    Role,
    Source,
    Topology,
)
from unerring.matching import Row
from unerring.model import (
    MILLISECOND_US,
    SECOND_US,
    Column,
    ColumnType,
    Disconnected,
    Effects,
    Entropy,
    Event,
    Stamp,
    StreamSchema,
)
from unerring.simulation import World

BEGIN_US = SECOND_US
EVERY_US = 5 * MILLISECOND_US
LONGEST_US = 20 * SECOND_US


class Untold(DeadLinks):
    """Keeps to itself whom it cannot reach."""

    def tell(self, outgoing: Outgoing, now: int) -> Effects:
        return []


class Passing:
    """An engine that makes an event of each event."""

    def __init__(self, stream: str) -> None:
        self._stream = stream

    def feed(self, rows: Sequence[Row], through: int) -> Fed:
        events = [Event(self._stream, row.event.stamp, (), row.event.payload) for row in rows]
        return Fed({self._stream: events} if events else {})

    def snapshot(self) -> bytes:
        return b""

    def restore(self, state: bytes) -> None:
        """It has none."""


class Severed:
    """src -> N1 -> N2 -> app, f = 1, under load; at one moment the leaders of N1 and N2 lose each other."""

    def __init__(self, told: bool, seed: int) -> None:
        links = DeadLinks if told else Untold
        self._replica = type("Replica", (Replica,), {"links_part": links})
        nodes = (
            NodeSpec("src", Role.SOURCE, outputs=("a",)),
            NodeSpec("N1", Role.CORRELATION, ("a",), ("b",), 1),
            NodeSpec("N2", Role.CORRELATION, ("b",), ("c",), 1),
            NodeSpec("app", Role.APPLICATION, ("c",)),
        )
        columns = (Column("v", ColumnType.INT),)
        self.topology = Topology(nodes, tuple(StreamSchema(name, columns) for name in "abc"))
        self.config = CorrelationConfig()
        self.world = World(seed)
        self.delivered_us: list[tuple[int, int]] = []
        """When a situation of which time was delivered."""
        self._time = 0
        self.world.add(MEMBERSHIP, self._membership)
        for node in nodes:
            for name in node.replicas:
                self.world.add(name, self._boot(node, name), self._deliver if name == "app/0" else None)
        self.world.every(EVERY_US, self._publish, BEGIN_US + LONGEST_US, BEGIN_US // 2)

    def _membership(self, records: Mapping[str, bytes], entropy: Entropy, now: int) -> Membership:
        return Membership(records, self.topology, self.config, entropy)

    def _boot(self, node: NodeSpec, name: str) -> Any:
        topology, config = self.topology, self.config
        if node.role is Role.SOURCE:
            return lambda records, entropy, now: Source(records, name, topology, config)
        if node.role is Role.APPLICATION:
            return lambda records, entropy, now: Application(records, name, topology, config)
        return lambda records, entropy, now: self._replica(
            name, topology, config, lambda: Passing(node.outputs[0]), entropy
        )

    def _deliver(self, what: Any) -> None:
        if isinstance(what, Event):
            self.delivered_us.append((self.world.now_us, what.stamp.time))

    def _publish(self) -> None:
        self._time += 10
        self.world.call("src/0", "publish", [Event("a", Stamp(self._time), (), {"v": self._time})])

    def without_situations_us(self, notices: bool) -> int:
        """Sever the link; `notices`: its end is reported, as when a host's network answers. Until a situation comes of
        what was published later."""
        world = self.world
        world.run_until(BEGIN_US)
        ends = [self._leader("N1"), self._leader("N2")]
        for one, other in (ends, ends[::-1]):
            node = world.nodes[one]
            node.handle = _deaf_to(node.handle, other)
            if notices:
                world.call(one, "handle", "", Disconnected(other, "the connection was reset"))
        severed_us, last = world.now_us, self._time
        while not (found := [at_us for at_us, time in self.delivered_us if time > last]):
            world.run_until(world.now_us + MILLISECOND_US)
        return found[0] - severed_us

    def _leader(self, node: str) -> str:
        names = self.topology.node(node).replicas
        return next(name for name in names if self.world.machine(name).election.leading)


def _deaf_to(handle: Any, other: str) -> Any:
    return lambda sender, message, now: [] if sender == other else handle(sender, message, now)
