"""How long correlation may take to come to rest once the faults are over, by what it is configured to wait for.

Two bounds, so that a stall is found soon, and a run that is slow but goes on is not taken for one:

| bound | what it is made of |
|---|---|
| `silence_us`, without any step forward | all that the code waits for before it acts by itself, one after the other |
| `Resting.rest_us`, altogether | as long for every level, and the time that the events left take at the slowest pace |

The configuration of a run is drawn, so both are its own.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from unerring.correlation import CorrelationConfig, Intake, Topology
from unerring.model import ORDINAL_MAX, TIME_MAX, TIME_MIN, Event, Stamp
from unerring.simulation.disk import DiskSpec
from unerring.simulation.network import FATES, LinkSpec, fates
from unerring.simulation.world import World

MADE: Final = 2
"""No stream of the query tree has had more than 1.6 events for each one that was published."""
SLOWEST: Final = 2
"""Of several receivers the slowest counts; its messages take so many times longer than those of one."""


def silence_us(config: CorrelationConfig) -> int:
    """The longest time in which nothing moves though nothing fails any more: what faults have left behind is found out
    by time-outs, and some of it only after the rest."""
    c = config
    # A leader is missed at the longest suspicion, another is elected, and asks receivers what they have.
    leader_us = c.suspect_us_max + c.vote_us + c.gossip_us + c.ask_us
    # A receiver lacks what was lost. It asks at its longest pause; then the leader, then whoever has it.
    question_us = c.patience_us_max + 3 * c.patience_us
    # A joiner enters, registers, is given a snapshot by the second peer, and is caught up: each asked for again once.
    join_us = 5 * c.join_retry_us + c.record_poll_us
    # Who is gone for good is silent for long; the first attempt is given up if who confirms it was about to join.
    attempt_us = c.eviction_us + c.eviction_us // 4
    eviction_us = max(c.evict_after_us, c.evict_full_us) + 2 * attempt_us + c.record_poll_us if c.evict_after_us else 0
    return leader_us + question_us + join_us + eviction_us + 10 * c.tick_us


class Resting:
    """The bounds of one run."""

    def __init__(
        self, config: CorrelationConfig, phases: int, durable: bool = False, waits_us: int = 0, room_us: int = 0
    ) -> None:
        """`phases`: the steps down the tree, of which each may begin where the one before has come to its end.
        `waits_us`: how long the world around the machines may take. `room_us`: how much later a receiver has room again
        because of it."""
        self.silence_us = silence_us(config) + waits_us
        self._phases = phases
        self._durable = durable
        self._event_us = event_us(config, room_us)
        self._through: int | None = None

    def rest_us(self, world: World, published: Iterable[Sequence[Event]]) -> int:
        """For what was not through everywhere when it was first asked, and whatever came since."""
        if self._through is None:
            self._through = min((time for _, time, has in reached(world) if has or self._durable), default=TIME_MIN)
        last = Stamp(self._through, ORDINAL_MAX)
        return self.left_us(sum(len(events) - bisect_right(events, last, key=_stamp) for events in published))

    def left_us(self, left: int) -> int:
        """For so many events that are not through everywhere."""
        return self._phases * self.silence_us + round(MADE * left * self._event_us)


def event_us(config: CorrelationConfig, room_us: int = 0) -> float:
    """How long an event may hold up those behind it, in a tree in which everybody waits for room."""
    c = config
    there_us = SLOWEST * sum(fates(LinkSpec())) / FATES
    kept_us = DiskSpec().sync_us + DiskSpec().spread_us
    # A receiver takes a window in so many steps and says so; what comes next is kept before it is answered.
    steps = -(-c.window_events // c.process_events_max)
    window_us = steps * (c.process_pause_us + there_us) + there_us + kept_us + room_us
    # A replica that does not lead hears from its peers what receivers have, and goes on when it looks.
    return window_us / c.window_events + (c.gossip_us + c.tick_us) / c.outgoing_events_max


def levels(topology: Topology) -> int:
    """The nodes on the longest way from a source to an application."""
    depths: dict[str, int] = {}

    def depth(name: str) -> int:
        if name not in depths:
            depths[name] = 1 + max((depth(above) for above in topology.upstream(name)), default=0)
        return depths[name]

    return max(depth(node.name) for node in topology.nodes)


def reached(world: World) -> Iterator[tuple[str, int, bool]]:
    """The time up to which each replica and application has all of its inputs, and whether it works on them."""
    for name, node in world.nodes.items():
        machine: Any = node.machine
        intake = getattr(machine, "intake", None)
        if isinstance(intake, Intake) and name not in world.gone:
            times = [incoming.watermark for stream, incoming in intake.streams.items() if intake.makers(stream)]
            yield name, min(times, default=TIME_MAX), getattr(machine, "holding", True)


def places(world: World) -> object:
    """Changes with every step forward of some machine."""
    found: list[object] = [phases(world)]
    for node in world.nodes.values():
        intake = getattr(node.machine, "intake", None)
        if isinstance(intake, Intake):
            found += [(incoming.count, incoming.watermark) for incoming in intake.streams.values()]
    return found


def phases(world: World) -> object:
    """Changes with every replica that starts, joins, or takes part."""
    machines: list[Any] = [node.machine for node in world.nodes.values()]
    return [(getattr(one, "phase", None), getattr(one, "holding", None)) for one in machines]


def _stamp(event: Event) -> Stamp:
    return event.stamp
