"""The virtual world as a scenario sees it: real machines on one virtual clock, network and disk. A run is its seed.

All times without a node's name on them are the world's own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from heapq import heappush
from random import Random
from typing import Any, Final

from unerring.model import SECOND_US, Address, ConfigError, Connected, Disconnected, Effects, Vanished, invariant
from unerring.simulation.disk import DiskSpec
from unerring.simulation.engine import Engine
from unerring.simulation.network import Link, LinkSpec
from unerring.simulation.node import Factory, Node, OnDeliver, State
from unerring.simulation.transport import CALL, Bounds

CLOCK_US_MAX: Final = 3_600 * SECOND_US
"""A monotonic clock begins anywhere below this, and anywhere anew at a restart: it means nothing to anybody else."""


class World(Engine):
    """Nodes, links and a clock. A scenario builds it; `run_until` runs it."""

    def __init__(
        self,
        seed: int,
        link: LinkSpec | None = None,
        disk: DiskSpec | None = None,
        bounds: Bounds | None = None,
        trace: Callable[[str], object] | None = None,
    ) -> None:
        super().__init__(seed, link or LinkSpec(), bounds or Bounds(), trace)
        self.draw = Random(f"workload {seed}")
        """The scenario's own randomness: workload and choices."""
        self.reached: dict[str, int] = {}
        self.pairs: dict[str, int] = {}
        """How often each kind of fault struck in each state of a machine."""
        self.states: Callable[[Address], Collection[str]] = lambda name: ()
        """The states of a node's machine that matter; the scenario knows them."""
        self.gone: list[Address] = []
        """Crashed for good."""
        self.may_lose: Callable[[Address], bool] = lambda name: True
        """The budget of lost disks: whether this node may lose its own now."""
        self.word_us_max: int | None = None
        """Set: within so long a machine has its driver's word that a connection ended, and that there is a new one."""
        self.knocks = False
        """Set: and that nobody is there any more."""
        self._words = Random(f"words {seed}")
        self._disk = disk or DiskSpec()

    # ---- building ----------------------------------------------------------------------------------------------

    def add(
        self,
        name: Address,
        factory: Factory,
        on_deliver: OnDeliver | None = None,
        disk: DiskSpec | None = None,
        start_us: int | None = 0,
    ) -> None:
        """A node, started at `start_us` (None: only by `start`). Its name is its address."""
        if name in self.nodes:
            raise ConfigError(f"the world has a node {name!r} already; give every node its own name")
        self.nodes[name] = Node(name, factory, disk or self._disk, on_deliver)
        if start_us is not None:
            self.at(start_us, lambda: self._start_new(name))

    def link(self, one: Address, other: Address, spec: LinkSpec) -> None:
        """How direct messages between two nodes travel, both ways; before the first is sent."""
        self._specs[one, other] = self._specs[other, one] = spec

    def subscribe(self, consumer: Address, producer: Address, spec: LinkSpec | None = None) -> None:
        """From now on the consumer gets the producer's broadcasts, on a link of its own."""
        link = self._open(producer, self._node(consumer), spec or self._link, pushed=True)
        self._node(producer).subscribers.append(link)

    def unsubscribe(self, consumer: Address, producer: Address) -> None:
        node = self._node(producer)
        node.subscribers = [link for link in node.subscribers if link.target.name != consumer]

    # ---- the workload ------------------------------------------------------------------------------------------

    def at(self, at_us: int, call: Callable[[], object]) -> None:
        """Call the scenario back at a time."""
        heappush(self._queue, (max(at_us, self.now_us), self._order(), CALL, call, None))

    def every(self, period_us: int, call: Callable[[], object], until_us: int, from_us: int = 0) -> None:
        """Call the scenario back again and again."""
        invariant(period_us > 0, "a period is longer than nothing")

        def again() -> None:
            call()
            if self.now_us + period_us <= until_us:
                self.at(self.now_us + period_us, again)

        self.at(from_us, again)

    def machine(self, name: Address) -> Any:
        """The machine of a node that runs now, or None: it is down, paused or stopped, and so is its application."""
        node = self._node(name)
        return None if node.state else node.machine

    def node_now_us(self, name: Address) -> int:
        """The node's monotonic clock."""
        return self._node(name).now_us(self.now_us)

    def carry_out(self, name: Address, effects: Effects) -> None:
        """Carry out what a machine's own method (publish, submit, ...) answered to the scenario."""
        node = self._node(name)
        invariant(node.state == State.UP, "only a machine that runs has effects")
        self._carry_out(node, effects)

    def call(self, name: Address, method: str, *arguments: Any) -> bool:
        """`machine.method(*arguments, now)`, whose effects are carried out; False if the node does not run now."""
        node = self.nodes.get(name) or self._node(name)
        if node.state:
            return False
        acting, self._acting = self._acting, node
        now = node.now_us(self.now_us) if node.drift_ppm else self.now_us + node.offset_us
        effects = getattr(node.machine, method)(*arguments, now)
        if effects:
            self._carry_out(node, effects)
        self._acting = acting
        return True

    def sometimes(self, what: str) -> None:
        """A rare state was reached; a sweep counts them and says which never were."""
        self.reached[what] = self.reached.get(what, 0) + 1

    # ---- faults of nodes ---------------------------------------------------------------------------------------

    def _start_new(self, name: Address) -> None:
        """Unless its host was lost before."""
        if name not in self.gone:
            self.start(name)

    def start(self, name: Address) -> None:
        """Start a node that does not run, from what its disk holds, on a clock that began anew."""
        node = self._node(name)
        if node.state < State.DOWN:
            return
        self.record(name, "start", node.incarnation + 1)
        acting, self._acting = self._acting, node
        entropy = Random(f"{name} {node.incarnation} {self.seed}")
        self._carry_out(node, node.build(self.now_us, entropy, self.chance.randrange(CLOCK_US_MAX)))
        self._acting = acting
        others = () if self.word_us_max is None else self.nodes.values()
        for other in others:
            if name in other.links and other.state < State.DOWN:
                self._word(other.name, Connected(name, node.incarnation))
                self._word(name, Connected(other.name, other.incarnation))

    def crash(self, name: Address) -> None:
        """The node loses its memory, its connections, and what its disk had not synced."""
        node = self._node(name)
        if node.state < State.DOWN:
            node.storage.crash(self.chance)
            self._down(node, State.DOWN, "crash", None)

    def lose_disk(self, name: Address) -> None:
        """The node crashes, and nothing is left of what its disk held."""
        self.crash(name)
        self.record(name, "lost disk")
        self._node(name).storage.lose()

    def reset(self, link: Link) -> None:
        super().reset(link)
        if not link.pushed:
            peer = link.target
            delay_us = self._word(link.sender, Disconnected(peer.name, "the connection was reset"))
            if peer.state < State.DOWN:
                self._word(link.sender, Connected(peer.name, peer.incarnation), delay_us)
            elif self.knocks:
                self._word(link.sender, Vanished(peer.name), delay_us)

    def _word(self, name: Address, word: Connected | Disconnected | Vanished, delay_us: int = 0) -> int:
        """Let a driver report it; the delay until then."""
        if self.word_us_max is not None:
            delay_us += self._words.randrange(self.word_us_max)
            self.at(self.now_us + delay_us, lambda: self.call(name, "handle", word.peer, word))
        return delay_us

    def pause(self, name: Address) -> bool:
        """The node's process takes no steps until `resume`; False if it runs none."""
        node = self._node(name)
        if node.state > State.STALLED or node.state == State.PAUSED:
            return False
        self.record(name, "pause")
        node.paused_from, node.state = node.state, State.PAUSED
        return True

    def resume(self, name: Address) -> None:
        """It goes on, with everything that queued meanwhile."""
        node = self._node(name)
        if node.state != State.PAUSED:
            return
        self.record(name, "resume")
        node.state = node.paused_from
        self._acting = node
        if node.sync_returned:
            node.sync_returned = False
            self._synced(node)
        self.drain(node)
        self._acting = None

    def _node(self, name: Address) -> Node:
        try:
            return self.nodes[name]
        except KeyError:
            known = ", ".join(self.nodes) or "none"
            raise ConfigError(f"the world has no node {name!r}; it has {known}") from None
