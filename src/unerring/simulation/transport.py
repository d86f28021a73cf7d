"""The part of the world that carries messages: the queue, the nodes, and the links between them."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappush
from itertools import count
from random import Random
from typing import Any, Final, Protocol

import msgspec

from unerring.model import Address, FrameError, breach
from unerring.simulation.network import FATES, FATES_BITS, LOST, RESET, Link, LinkSpec
from unerring.simulation.node import Node, State

MESSAGE: Final = 0
TIMER: Final = 1
SYNC: Final = 2
CALL: Final = 3

_FATES_MASK: Final = FATES - 1
_DRAWN_BITS: Final = FATES_BITS + 6
"""One draw a message: the lower bits are its fate; if the upper ones are all zero (one in 64), it meets its codec."""

Cut = tuple[frozenset[Address], bool]
"""One side of a partition, and whether only what leaves it is cut."""


class Wire(Protocol):
    """A protocol's codec."""

    def encode(self, message: Any) -> bytes: ...

    def decode(self, data: bytes) -> Any: ...


class Happened(msgspec.Struct, frozen=True, gc=False):
    """One line of a run's history. The world writes deliver, start, crash, stop and fail; a scenario what it likes."""

    at_us: int
    node: Address
    what: str
    value: Any = None


class Bounds(msgspec.Struct, frozen=True):
    """Limits of what may pile up, and of a run's length."""

    inbox_max: int = 10_000
    """Inputs of a paused or stalled node; at the bound datagrams are lost and connections reset."""
    waiting_max: int = 10_000
    """Effects that wait for a node's disk; at the bound the node takes no inputs until the sync returns."""
    held_max: int = 10_000
    """Messages at the cut of a reliable link; at the bound the connection is reset."""
    steps_max: int = 20_000_000
    """A run that takes more is ended as a violation: nothing comes to rest."""


class Transport:
    """Nodes and links. One queue of plain tuples `(at_us, order, kind, subject, object)` drives everything; `order`
    makes them unequal, so that nothing behind it is ever compared."""

    def __init__(self, seed: int, link: LinkSpec, bounds: Bounds, trace: Callable[[str], object] | None) -> None:
        self.seed = seed
        self.now_us = 0
        self.bounds = bounds
        self.chance = Random(f"world {seed}")
        """The randomness of network, disks and clocks."""
        self.nodes: dict[Address, Node] = {}
        self.history: list[Happened] = []
        self.reports: dict[str, int] = {}
        self.codec: Wire | None = None
        """Set it, and some messages are encoded and decoded on their way: they must come out equal."""
        self.messages = 0
        self.lost = 0
        self.trace = trace
        self.faults_on = True
        self.cuts: list[Cut] = []
        """Partitions in force."""
        self._link = link
        self._specs: dict[tuple[Address, Address], LinkSpec] = {}
        self._queue: list[tuple[int, int, int, Any, Any]] = []
        self._order = count().__next__
        self._bits = self.chance.getrandbits

    def _transmit(self, link: Link, message: Any) -> None:
        drawn = self._bits(_DRAWN_BITS)
        fate = link.fates[drawn & _FATES_MASK]
        at_us = self.now_us + fate
        if link.datagram:
            if fate < 0:
                self._odd_fate(link, message, fate)
                return
        elif at_us > link.last_at_us:
            link.last_at_us = at_us
        else:
            at_us = link.last_at_us
        if drawn < FATES and self.codec is not None:
            message = self._over_the_wire(self.codec, message)
        heappush(self._queue, (at_us, self._order(), MESSAGE, link, message))

    def _odd_fate(self, link: Link, message: Any, fate: int) -> None:
        if fate == LOST:
            self._lose(link, message)
            return
        first_us = LOST - 1 - fate
        second_us = first_us + self.chance.randrange(1 + link.spec.delay_us + 2 * link.spec.spread_us)
        heappush(self._queue, (self.now_us + first_us, self._order(), MESSAGE, link, message))
        heappush(self._queue, (self.now_us + second_us, self._order(), MESSAGE, link, message))

    def _over_the_wire(self, codec: Wire, message: Any) -> Any:
        try:
            data = codec.encode(message)
            arrived = codec.decode(data)
        except FrameError as error:
            breach(f"a machine sent what its codec refuses: {error}")
        if codec.encode(arrived) != data:  # The sentence holds both messages: it is not built unless it is needed.
            breach(f"what is decoded was sent: {message!r} became {arrived!r}")
        return arrived

    def _connect(self, node: Node, to: Address) -> Link | None:
        target = self.nodes.get(to)
        if target is None:
            self._count("nobody there", 1)
            return None
        link = self._open(node.name, target, self._specs.get((node.name, to), self._link), pushed=False)
        node.links[to] = link
        return link

    def _open(self, sender: Address, target: Node, spec: LinkSpec, pushed: bool) -> Link:
        link = Link(sender, target, spec if self.faults_on else spec.calm(), pushed)
        link.blocked = sum(self.is_cut(cut, sender, target.name) for cut in self.cuts)
        return link

    def is_cut(self, cut: Cut, sender: Address, target: Address) -> bool:
        """Whether a partition lets nothing through from one node to another."""
        side, one_way = cut
        return (sender in side and target not in side) or (not one_way and target in side and sender not in side)

    def _not_now(self, link: Link, node: Node, message: Any) -> None:
        """A message arrives at a cut, or at a node that takes no inputs."""
        if link.blocked >= RESET or node.state >= State.STOPPING:
            self._lose(link, message)
        elif link.blocked:
            self._at_the_cut(link, message)
        elif len(node.inbox) < self.bounds.inbox_max:
            node.inbox.append((link, message))
        else:
            self._lose(link, message)
            if not link.datagram:
                self.reset(link)

    def _at_the_cut(self, link: Link, message: Any) -> None:
        if not link.datagram and len(link.held) < self.bounds.held_max:
            link.held.append(message)
            return
        self._lose(link, message)
        if not link.datagram:
            self.reset(link)

    def _lose(self, link: Link, message: Any) -> None:
        self.lost += 1
        if self.trace is not None:
            self._say(link.target.name, f"  loses, from {link.sender}", message)

    def reset(self, link: Link) -> None:
        """The connection breaks: what was in flight is lost, what is sent from now on takes a new one."""
        if link.blocked >= RESET:
            return
        self._replace(link)
        for message in link.held:
            self._lose(link, message)
        link.held = []
        link.blocked = RESET

    def reconnect(self, link: Link) -> None:
        """The sender's end is gone but what it had handed over still arrives; a new connection may overtake it."""
        if link.blocked:
            self.reset(link)
        else:
            self._replace(link)

    def _replace(self, link: Link) -> None:
        node = self.nodes[link.sender]
        fresh = self._open(link.sender, link.target, link.spec, link.pushed)
        fresh.fates = link.fates
        if link.pushed:
            node.subscribers = [fresh if old is link else old for old in node.subscribers]
        else:
            node.links[link.target.name] = fresh

    def current(self, link: Link) -> Link:
        """The connection that stands now where this one stood."""
        node = self.nodes[link.sender]
        if not link.pushed:
            return node.links[link.target.name]
        return next((other for other in node.subscribers if other.target is link.target), link)

    def record(self, node: Address, what: str, value: Any = None) -> None:
        """A line of history for the checkers."""
        self.history.append(Happened(self.now_us, node, what, value))
        if self.trace is not None:
            self._say(node, what, value)

    def _count(self, what: str, number: int) -> None:
        self.reports[what] = self.reports.get(what, 0) + number

    def _say(self, node: Address, what: str, value: Any) -> None:
        if self.trace is not None:
            self.trace(f"{self.now_us:>12} {node:<12} {what} {value!r}")
