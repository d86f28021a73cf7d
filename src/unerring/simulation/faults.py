"""Faults as data: a schedule is a tuple of frozen structs, drawn from a seed.

Swarm: each seed first draws which kinds happen at all and how often, so that some runs see one kind in plenty and
others many kinds at once; a fixed mix would hide whatever needs the absence of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final

import msgspec

from unerring.model import MILLISECOND_US, SECOND_US, Address, ConfigError

FOR_GOOD: Final = 2**62
"""A crash without a return."""


class Fault(msgspec.Struct, frozen=True, tag=True, kw_only=True, forbid_unknown_fields=True):
    """Something that goes wrong at a time, at a node, for a while."""

    at_us: int
    node: Address
    for_us: int = 0


class Crash(Fault, frozen=True, kw_only=True):
    """Down for a while: memory, connections and unsynced records are lost. FOR_GOOD: nobody starts it again."""


class LostDisk(Crash, frozen=True, kw_only=True):
    """Down for a while, and back with an empty disk. Where the world's budget for that is used up, it is a crash."""


class Pause(Fault, frozen=True, kw_only=True):
    """Stops a node as SIGSTOP does."""


class ClockJump(Fault, frozen=True, kw_only=True):
    """The monotonic clock leaps ahead, as after a suspended virtual machine."""

    ahead_us: int


class ClockDrift(Fault, frozen=True, kw_only=True):
    """The clock is too fast, or too slow (negative)."""

    ppm: int


class SlowDisk(Fault, frozen=True, kw_only=True):
    factor: int


class FullDisk(Fault, frozen=True, kw_only=True):
    """Every sync fails: the node stops at its next one, and is started again when there is room."""


class FailedSync(Fault, frozen=True, kw_only=True):
    """The next sync fails: the node stops, and is started again at the end."""


class LyingDisk(Fault, frozen=True, kw_only=True):
    """Syncs return but a crash loses them. No protocol survives this alone, so a scenario must ask for it."""


class Partition(Fault, frozen=True, kw_only=True):
    """`node` and `others` are cut off from the rest; one way: nothing gets out, all gets in."""

    others: tuple[Address, ...] = ()
    one_way: bool = False


class Reset(Fault, frozen=True, kw_only=True):
    """The node's connections break, both ways; what was in flight is lost, or arrives beside what comes after it."""


class Congestion(Fault, frozen=True, kw_only=True):
    """All links of the node get slower, or those with `others` alone, and datagrams are lost and doubled."""

    slower: int
    others: tuple[Address, ...] = ()
    loss: float = 0.0
    duplication: float = 0.0


class Aimed(Fault, frozen=True, kw_only=True):
    """A fault at a moment of the protocol: `later_us` after the node next gets or sends a message of this kind."""

    message: str
    what: str
    """The name of a kind of fault; see `AIMED`."""
    later_us: int = 0
    others: tuple[Address, ...] = ()
    """To whom a link gets slower."""


class Sought(Aimed, frozen=True, kw_only=True):
    """A fault that waits for a state: it strikes as soon as the node, or one that the same is said of, is in it."""

    state: str


AnyFault = (
    Crash
    | LostDisk
    | Pause
    | ClockJump
    | ClockDrift
    | SlowDisk
    | FullDisk
    | FailedSync
    | LyingDisk
    | Partition
    | Reset
    | Congestion
    | Aimed
    | Sought
)
"""All faults, for decoding."""


class Rate(msgspec.Struct, frozen=True):
    """How often one kind of fault happens, somewhere."""

    kind: str
    every_us: int


class Limit(msgspec.Struct, frozen=True):
    """A fault budget: of these nodes at most so many are down (crashed, or stopped by their disk) at once."""

    nodes: tuple[Address, ...]
    down_max: int
    recovery_us: int = 0
    """How long after its return a node still counts as down."""


_Draw = Callable[[Random, int, Sequence[Address]], Fault]


def _length_us(draw: Random, least_us: int, doublings: int) -> int:
    """Short ones as likely as long ones, by order of magnitude."""
    longest = least_us << draw.randrange(doublings + 1)
    return longest // 2 + draw.randrange(longest)


def _node(draw: Random, nodes: Sequence[Address]) -> Address:
    return nodes[draw.randrange(len(nodes))]


def _partition(draw: Random, at_us: int, nodes: Sequence[Address]) -> Fault:
    side = [name for name in nodes if draw.random() < 0.4] or [_node(draw, nodes)]
    return Partition(
        at_us=at_us,
        node=side[0],
        others=tuple(side[1:]),
        for_us=_length_us(draw, 10 * MILLISECOND_US, 9),
        one_way=draw.random() < 0.3,
    )


def _congestion(draw: Random, at_us: int, nodes: Sequence[Address]) -> Fault:
    return Congestion(
        at_us=at_us,
        node=_node(draw, nodes),
        for_us=_length_us(draw, 10 * MILLISECOND_US, 8),
        slower=2 << draw.randrange(7),
        loss=draw.choice((0.0, 0.05, 0.5)),
        duplication=draw.choice((0.0, 0.05, 0.3)),
    )


_DRAWN: Final[Mapping[type[Fault], _Draw]] = {
    Crash: lambda d, at, n: Crash(at_us=at, node=_node(d, n), for_us=_length_us(d, MILLISECOND_US, 12)),
    Pause: lambda d, at, n: Pause(at_us=at, node=_node(d, n), for_us=_length_us(d, MILLISECOND_US, 12)),
    ClockJump: lambda d, at, n: ClockJump(
        at_us=at, node=_node(d, n), ahead_us=_length_us(d, MILLISECOND_US, 14), for_us=0
    ),
    ClockDrift: lambda d, at, n: ClockDrift(
        at_us=at, node=_node(d, n), for_us=_length_us(d, SECOND_US // 8, 6), ppm=d.randrange(-200_000, 400_000)
    ),
    SlowDisk: lambda d, at, n: SlowDisk(
        at_us=at, node=_node(d, n), for_us=_length_us(d, 10 * MILLISECOND_US, 8), factor=2 << d.randrange(9)
    ),
    FullDisk: lambda d, at, n: FullDisk(at_us=at, node=_node(d, n), for_us=_length_us(d, 10 * MILLISECOND_US, 8)),
    FailedSync: lambda d, at, n: FailedSync(at_us=at, node=_node(d, n), for_us=_length_us(d, 10 * MILLISECOND_US, 8)),
    LyingDisk: lambda d, at, n: LyingDisk(at_us=at, node=_node(d, n), for_us=_length_us(d, 10 * MILLISECOND_US, 8)),
    Partition: _partition,
    Reset: lambda d, at, n: Reset(at_us=at, node=_node(d, n)),
    Congestion: _congestion,
}

KINDS: Final[tuple[type[Fault], ...]] = tuple(kind for kind in _DRAWN if kind is not LyingDisk)
"""The faults of a scenario unless it chooses others."""

AIMED: Final[Mapping[str, Callable[[Aimed, int], Fault]]] = {
    "Crash": lambda aimed, at: Crash(at_us=at, node=aimed.node, for_us=aimed.for_us),
    "FailedSync": lambda aimed, at: FailedSync(at_us=at, node=aimed.node, for_us=aimed.for_us),
    "Pause": lambda aimed, at: Pause(at_us=at, node=aimed.node, for_us=aimed.for_us),
    "Partition": lambda aimed, at: Partition(at_us=at, node=aimed.node, for_us=aimed.for_us),
    "SlowDisk": lambda aimed, at: SlowDisk(at_us=at, node=aimed.node, for_us=aimed.for_us, factor=256),
    "ClockJump": lambda aimed, at: ClockJump(at_us=at, node=aimed.node, ahead_us=300 * aimed.for_us),
    "Congestion": lambda aimed, at: Congestion(
        at_us=at, node=aimed.node, for_us=aimed.for_us, slower=1000, others=aimed.others
    ),
}
"""The faults that can be aimed at a moment of the protocol. The slow links are those between nodes: a master that the
others have given up still reaches the services."""

_DOWN: Final = (Crash, FullDisk, FailedSync)


def draw_rates(draw: Random, kinds: Sequence[type[Fault]] = KINDS) -> tuple[Rate, ...]:
    """The swarm: each kind on or off, and if on, how often (0.1 to 13 s apart)."""
    rates = []
    for kind in kinds:
        if kind not in _DRAWN:
            raise ConfigError(f"{kind.__name__} is not a kind of fault; use those of unerring.simulation.faults")
        on, doublings = draw.random() < 0.5, draw.randrange(8)
        if on:
            rates.append(Rate(kind.__name__, (SECOND_US // 10) << doublings))
    return tuple(rates)


def draw_faults(
    draw: Random,
    nodes: Sequence[Address],
    until_us: int,
    kinds: Sequence[type[Fault]] = KINDS,
    limits: Sequence[Limit] = (),
    for_good: bool = False,
) -> tuple[Fault, ...]:
    """A schedule, in the order of time, that keeps within the budget. `for_good`: some crashes are never undone."""
    if not nodes:
        raise ConfigError("there are no nodes for faults; add nodes to the world first")
    drawn: list[Fault] = []
    names = {kind.__name__: kind for kind in kinds}
    for rate in draw_rates(draw, kinds):
        at_us = 0
        while (at_us := at_us + 1 + draw.randrange(2 * rate.every_us)) < until_us:
            fault = _DRAWN[names[rate.kind]](draw, at_us, nodes)
            if for_good and isinstance(fault, Crash) and draw.random() < 0.1:
                fault = msgspec.structs.replace(fault, for_us=FOR_GOOD)
            drawn.append(fault)
    drawn.sort(key=lambda fault: fault.at_us)
    return _within(drawn, limits)


def _aimed(draw: Random, at_us: int, nodes: Sequence[Address], moments: Sequence[str], kinds: Sequence[str]) -> Fault:
    node = _node(draw, nodes)
    return Aimed(
        at_us=at_us,
        node=node,
        others=tuple(other for other in nodes if other != node),
        message=draw.choice(moments),
        what=draw.choice(kinds),
        later_us=draw.choice((0, _length_us(draw, MILLISECOND_US // 8, 10))),
        for_us=_length_us(draw, 2 * MILLISECOND_US, 10),
    )


def draw_aimed(draw: Random, nodes: Sequence[Address], messages: Sequence[str], until_us: int) -> tuple[Fault, ...]:
    """A few faults at moments of the protocol. What a protocol overlooks is seldom one failure in calm: often two fall
    together, and a run that meets the same few moments again and again finds more than one that meets all once."""
    drawn: list[Fault] = []
    moments = draw.sample(list(messages), min(len(messages), draw.randint(1, 4)))
    kinds = draw.sample(list(AIMED), draw.randint(1, 3))
    for _ in range(draw.randint(1, 8)):
        at_us = draw.randrange(until_us)
        drawn += [_aimed(draw, at_us, nodes, moments, kinds) for _ in range(draw.choice((1, 1, 2, 3)))]
    return tuple(sorted(drawn, key=lambda fault: fault.at_us))


def _within(drawn: Sequence[Fault], limits: Sequence[Limit]) -> tuple[Fault, ...]:
    """Leave out what would exceed the budget."""
    kept: list[Fault] = []
    for fault in drawn:
        if not isinstance(fault, _DOWN) or all(_affordable(fault, kept, limit) for limit in limits):
            kept.append(fault)
    return tuple(kept)


def _affordable(fault: Fault, kept: Sequence[Fault], limit: Limit) -> bool:
    if fault.node not in limit.nodes:
        return True
    absent = {fault.node}
    for other in kept:
        if isinstance(other, _DOWN) and other.at_us + other.for_us + limit.recovery_us >= fault.at_us:
            absent.add(other.node)
    return len(absent.intersection(limit.nodes)) <= limit.down_max
