"""The virtual network: directed links with a delay distribution, reliable and FIFO (as TCP) or datagrams.

A link's distribution is a table of 1024 equally likely fates, so that a message costs one draw of ten bits whatever
its link may do to it. All in integers: a seed means the same on every machine.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from unerring.model import Address, check

if TYPE_CHECKING:
    from unerring.simulation.node import Node

FATES_BITS: Final = 10
FATES: Final = 1 << FATES_BITS
LOST: Final = -1
"""A fate below LOST is a duplicate: `LOST - 1 - fate` is the first copy's delay."""
RESET: Final = 1 << 30
"""`Link.blocked` of a connection that is gone: what was in flight on it never arrives."""


class LinkSpec(msgspec.Struct, frozen=True):
    """How a link behaves in good times."""

    delay_us: int = 200
    """The least one-way delay."""
    spread_us: int = 200
    """The median of what is added to it; the tail is heavy. On datagram links this is what reorders."""
    delay_us_max: int = 100_000
    datagram: bool = False
    """Loses, repeats and reorders; otherwise reliable and FIFO until the connection is reset."""
    loss: float = 0.0
    duplication: float = 0.0

    def __post_init__(self) -> None:
        check(self, "delay_us", 0, self.delay_us_max)
        check(self, "spread_us", 0, self.delay_us_max)
        check(self, "loss", 0.0, 1.0 if self.datagram else 0.0)
        check(self, "duplication", 0.0, 1.0 - self.loss if self.datagram else 0.0)

    def calm(self) -> LinkSpec:
        """The same without loss and duplication."""
        return msgspec.structs.replace(self, loss=0.0, duplication=0.0) if self.datagram else self


@lru_cache(maxsize=256)
def fates(spec: LinkSpec) -> tuple[int, ...]:
    """The table of a link's fates: a delay, LOST, or a duplicate's first delay below LOST."""
    lost = round(spec.loss * FATES)
    twice = round(spec.duplication * FATES)
    singles = FATES - lost - twice
    delays = tuple(_delay_us(spec, k, singles) for k in range(singles))
    duplicates = tuple(LOST - 1 - _delay_us(spec, k, twice) for k in range(twice))
    return (LOST,) * lost + duplicates + delays


def _delay_us(spec: LinkSpec, k: int, of: int) -> int:
    return min(spec.delay_us + spec.spread_us * k // (of - k), spec.delay_us_max)


class Link:
    """One direction between two nodes: a connection, or the way datagrams take."""

    __slots__ = ("blocked", "datagram", "fates", "held", "last_at_us", "pushed", "sender", "spec", "target")

    def __init__(self, sender: Address, target: Node, spec: LinkSpec, pushed: bool) -> None:
        self.sender = sender
        self.target = target
        self.spec = spec
        self.pushed = pushed
        """Carries broadcasts (a subscription) rather than what is sent directly."""
        self.datagram = spec.datagram
        self.fates = fates(spec)
        self.last_at_us = 0
        """No message of a reliable link arrives before the one sent before it."""
        self.blocked = 0
        """How many partitions cut it now, or RESET."""
        self.held: list[Any] = []
        """Arrived at the cut of a reliable link; goes on when it heals, or is lost if the connection is reset."""
