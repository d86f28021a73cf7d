"""Faults carried out in a world, and undone when they end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from unerring.model import MILLISECOND_US, SECOND_US, Address, ConfigError
from unerring.simulation import faults as kinds
from unerring.simulation.faults import FOR_GOOD, Fault
from unerring.simulation.network import Link, LinkSpec, fates
from unerring.simulation.node import Node, State
from unerring.simulation.world import World

RETRANSMIT_US_MAX: Final = 200 * MILLISECOND_US
"""How long after a partition healed a connection may take to notice."""
LOOK_US: Final = MILLISECOND_US
"""How often it is looked whether a state has come that a fault waits for."""
CONGESTED_US_MAX: Final = SECOND_US
"""No congestion makes a link slower than this, unless it was."""


def inject(world: World, schedule: Sequence[Fault]) -> None:
    """Queue every fault of a schedule, and its end."""
    for fault in schedule:
        for name in (fault.node, *(fault.others if isinstance(fault, kinds.Partition) else ())):
            if name not in world.nodes:
                raise ConfigError(f"{fault} needs a node {name!r}; the world has {', '.join(world.nodes)}")
        if isinstance(fault, kinds.Aimed) and fault.what not in kinds.AIMED:
            raise ConfigError(f"{fault} aims {fault.what!r}; it can be one of {', '.join(kinds.AIMED)}")
        world.at(fault.at_us, lambda fault=fault: _begin(world, fault))  # type: ignore[misc]


def calm(world: World) -> None:
    """All faults end now: links whole, disks sound, clocks at pace, everybody up who is not gone for good."""
    world.faults_on = False
    world.cuts.clear()
    for node in list(world.nodes.values()):
        node.watches.clear()
        for link in _links(node):
            link.fates = fates(link.spec.calm())
            link.blocked = 0
            world.release(link)
        node.storage.calm()
        if node.drift_ppm:
            _set_clock(world, node)
        if node.state == State.PAUSED:
            world.resume(node.name)
        if node.state in (State.DOWN, State.FAILED) and node.name not in world.gone:
            world.start(node.name)


def _begin(world: World, fault: Fault) -> None:
    if not world.faults_on:
        return
    if world.trace is not None:
        world.trace(f"{world.now_us:>12} FAULT {fault!r}")
    node = world.nodes[fault.node]
    if not isinstance(fault, kinds.Aimed):
        _count_pairs(world, fault)
    end = _BEGIN[type(fault)](world, node, fault)
    if end is not None and fault.for_us < FOR_GOOD:
        # A fault that outlasts the faulty phase is ended by `calm`; ending it twice would undo another's.
        world.at(world.now_us + fault.for_us, lambda: end() if world.faults_on else None)


_End = Callable[[], object] | None


def _count_pairs(world: World, fault: Fault) -> None:
    for state in world.states(fault.node):
        pair = f"{type(fault).__name__}, {state}"
        world.pairs[pair] = world.pairs.get(pair, 0) + 1


def _crash(world: World, node: Node, fault: Any) -> _End:
    world.crash(node.name)
    if fault.for_us >= FOR_GOOD:
        world.gone.append(node.name)
    return lambda: _restart(world, node, State.DOWN)


def _lose_disk(world: World, node: Node, fault: Any) -> _End:
    if world.may_lose(node.name):
        world.lose_disk(node.name)
    return _crash(world, node, fault)


def _restart(world: World, node: Node, state: State) -> None:
    if node.state == state and node.name not in world.gone:
        world.start(node.name)


def _pause(world: World, node: Node, fault: Any) -> _End:
    if not world.pause(node.name):
        return None
    incarnation = node.incarnation
    return lambda: world.resume(node.name) if node.incarnation == incarnation else None


def _jump(world: World, node: Node, fault: Any) -> _End:
    _set_clock(world, node, fault.ahead_us, node.drift_ppm)
    return None


def _drift(world: World, node: Node, fault: Any) -> _End:
    _set_clock(world, node, 0, fault.ppm)
    return lambda: _set_clock(world, node)


def _set_clock(world: World, node: Node, ahead_us: int = 0, ppm: int = 0) -> None:
    node.set_clock(world.now_us, ahead_us, ppm)
    world.requeue_timers(node)


def _slow_disk(world: World, node: Node, fault: Any) -> _End:
    node.storage.slower = fault.factor
    return lambda: setattr(node.storage, "slower", 1)


def _full_disk(world: World, node: Node, fault: Any) -> _End:
    node.storage.full = True

    def room() -> None:
        node.storage.full = False
        _restart(world, node, State.FAILED)

    return room


def _failed_sync(world: World, node: Node, fault: Any) -> _End:
    node.storage.fails_next = True

    def over() -> None:
        node.storage.fails_next = False
        _restart(world, node, State.FAILED)

    return over


def _lying_disk(world: World, node: Node, fault: Any) -> _End:
    node.storage.lie(True)
    return lambda: node.storage.lie(False)


def _partition(world: World, node: Node, fault: Any) -> _End:
    cut = (frozenset((fault.node, *fault.others)), fault.one_way)
    world.cuts.append(cut)
    for link in _all_links(world):
        if world.is_cut(cut, link.sender, link.target.name):
            link.blocked += 1

    def heal() -> None:
        world.cuts.remove(cut)
        for link in _all_links(world):
            if world.is_cut(cut, link.sender, link.target.name):
                _heal(world, link)

    return heal


def _heal(world: World, link: Link) -> None:
    """One partition less; a connection with messages held at the cut either notices after a while or is reset."""
    if not link.held:
        link.blocked -= 1
    elif world.chance.random() < 0.3:
        world.reset(link)
    else:
        world.at(world.now_us + world.chance.randrange(RETRANSMIT_US_MAX), lambda: _retransmit(world, link))


def _retransmit(world: World, link: Link) -> None:
    if world.faults_on and world.current(link) is link:
        link.blocked -= 1
        if not link.blocked:
            world.release(link)


def _reset(world: World, node: Node, fault: Any) -> _End:
    for link in _around(world, node.name):
        if not link.datagram:
            (world.reset if world.chance.random() < 0.75 else world.reconnect)(link)
    return None


def _congestion(world: World, node: Node, fault: Any) -> _End:
    links = [link for link in _around(world, node.name) if not fault.others or _other_end(link, node) in fault.others]
    for link in links:
        link.fates = fates(_worse(link.spec, fault))

    def over() -> None:
        for link in links:
            current = world.current(link)
            current.fates = fates(current.spec)

    return over


def _aim(world: World, node: Node, fault: Any) -> _End:
    node.watch(fault.message, lambda: _strike(world, fault))
    return None


def _strike(world: World, fault: kinds.Aimed) -> None:
    struck = kinds.AIMED[fault.what](fault, world.now_us + fault.later_us)
    world.at(struck.at_us, lambda: _begin(world, struck))


def _seek(world: World, node: Node, fault: Any) -> _End:
    """Look at all nodes of `others`, the one that is named first, until one is in the state."""

    def look() -> None:
        if not world.faults_on:
            return
        for name in (fault.node, *fault.others):
            if fault.state in world.states(name):
                others = tuple(other for other in fault.others if other != name)
                found = msgspec.structs.replace(fault, node=name, others=others)
                _strike(world, found)
                return
        world.at(world.now_us + LOOK_US, look)

    look()
    return None


def _other_end(link: Link, node: Node) -> Address:
    return link.target.name if link.sender == node.name else link.sender


def _worse(spec: LinkSpec, fault: kinds.Congestion) -> LinkSpec:
    delay_us_max = max(spec.delay_us_max, min(spec.delay_us_max * fault.slower, CONGESTED_US_MAX))
    slower = msgspec.structs.replace(
        spec,
        delay_us=min(spec.delay_us * fault.slower, delay_us_max),
        spread_us=min(spec.spread_us * fault.slower, delay_us_max),
        delay_us_max=delay_us_max,
    )
    if not spec.datagram:
        return slower
    loss = max(spec.loss, fault.loss)
    return msgspec.structs.replace(
        slower, loss=loss, duplication=min(max(spec.duplication, fault.duplication), 1 - loss)
    )


def _links(node: Node) -> Iterator[Link]:
    yield from list(node.links.values())
    yield from list(node.subscribers)


def _all_links(world: World) -> list[Link]:
    return [link for node in world.nodes.values() for link in _links(node)]


def _around(world: World, name: Address) -> list[Link]:
    return [link for link in _all_links(world) if name in (link.sender, link.target.name)]


_BEGIN: Final[dict[type[Fault], Callable[[World, Node, Any], _End]]] = {
    kinds.Crash: _crash,
    kinds.LostDisk: _lose_disk,
    kinds.Pause: _pause,
    kinds.ClockJump: _jump,
    kinds.ClockDrift: _drift,
    kinds.SlowDisk: _slow_disk,
    kinds.FullDisk: _full_disk,
    kinds.FailedSync: _failed_sync,
    kinds.LyingDisk: _lying_disk,
    kinds.Partition: _partition,
    kinds.Reset: _reset,
    kinds.Congestion: _congestion,
    kinds.Aimed: _aim,
    kinds.Sought: _seek,
}
