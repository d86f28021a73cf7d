"""An upgrade as the machines see it: nodes come and go, and others take over at one agreed time.

| step | what makes it safe |
|---|---|
| every machine is given the next topology, in which the old and the new nodes stand side by side | nothing counts yet |
| a replica of a new node joins: its state is made of the log, or given by a peer | upstreams keep what follows for it |
| the time is agreed on, after what any source has passed on | nobody has got there |
| sources pass the time on with their streams, and every replica with its own | who has got past it knows it |
| an old node makes nothing after that time, a new one nothing up to it | each situation comes from one of them |
| a receiver takes the old node's stream to its end, then the new one's from its beginning | nothing is left out |
| when nobody needs the old nodes any more, they are not in the next topology | they are asked for nothing |

The same steps change how many nodes a rule's keys are divided among: the old set of nodes goes, and the new one comes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from unerring.correlation.messages import Switch
from unerring.correlation.shards import unnumbered
from unerring.correlation.topology import NodeSpec, Topology
from unerring.matching import Cutter, Piece, first_after
from unerring.model import BEFORE_ALL, ORDINAL_MAX, TIME_MAX, TIME_MIN, Event, Stamp


class Rearrange(msgspec.Struct, frozen=True):
    """To every machine of a run, by its driver: the nodes that there are from now on."""

    topology: Topology


class AskLog(msgspec.Struct, frozen=True):
    """A replica's request to its driver: make the state of its node of the log.

    Upstreams keep what follows the marks: by stream the last stamp that they may not have any more, and its number."""

    incarnation: int
    marks: Mapping[str, tuple[Stamp, int]]


class Lane(msgspec.Struct, frozen=True):
    """Where one input stream stands in a state that was made of the log."""

    last: Stamp
    count: int
    watermark: int
    waiting: tuple[Event, ...]
    """What the rules have not seen yet: streams that have got further than others."""
    has_us: int = TIME_MIN
    """Up to where that is all, if more than the watermark says: what was not numbered when it came is in the log, too,
    and comes again."""


class FromLog(msgspec.Struct, frozen=True):
    """The answer: the state of the rules at a time that all input streams have reached, and the streams."""

    incarnation: int
    through_us: int
    lanes: Mapping[str, Lane]
    engine: bytes
    switch: Switch | None = None
    """The agreed time, if there was one after the log was read: the state is not later than that."""


def lane_of(mark: tuple[Stamp, int], events: Sequence[Event], through_us: int) -> Lane:
    """A stream at a time, or at its mark if that is later: it may have been pruned up to there. `events`: those after
    the mark or the time, whichever is earlier, and perhaps some before."""
    stamp, count = mark
    end_us = max(through_us, stamp.time)
    fresh = [event.stamp for event in events if stamp < event.stamp and event.stamp.time <= end_us]
    waiting = tuple(event for event in events if through_us < event.stamp.time <= end_us)
    return Lane(fresh[-1] if fresh else stamp, count + len(fresh), end_us, waiting)


def lanes_at(
    topology: Topology,
    marks: Mapping[str, tuple[Stamp, int]],
    through_us: int,
    events: Callable[[str, Stamp], Sequence[Event]],
) -> dict[str, Lane]:
    """Where each input stands in a state of the log, by the names under which they come. `events`: what a stream has in
    the log after a stamp or the time of the state, whichever is earlier, as far as the latest mark of the stream."""
    lanes: dict[str, Lane] = {}
    before = {name for name in marks if not _is_coming(topology, name)}
    for name, mark in marks.items():
        part, stream = topology.part(name), topology.stream_of(name)
        if name not in before:
            # Nothing of it counts up to the time of the state. What counted after that may be pruned: then it is not
            # at the mark, and a peer's snapshot is.
            lanes[name] = Lane(BEFORE_ALL, 0, TIME_MIN, ())
        elif part is not None and not part.is_cut:
            parts = [one for one in marks if topology.stream_of(one) == stream and one in before]
            has_us = max([through_us, *(marks[one][0].time for one in parts)])
            waits = (
                [e for e in events(stream, mark[0]) if through_us < e.stamp.time <= has_us] if parts[0] == name else []
            )
            lanes[name] = Lane(*mark, TIME_MIN, tuple(unnumbered(topology, part).replaced(waits)), has_us)
        else:
            found = events(stream, mark[0])
            if part is not None:
                found = list(Cutter(topology.schema(name), part.key, part.of).part(list(found), part.number))
            lanes[name] = lane_of(mark, found, through_us)
    return lanes


def _is_coming(topology: Topology, name: str) -> bool:
    return all(topology.is_coming(topology.node(maker)) for maker in topology.makers(name))


def is_ahead(switch: Switch | None, topology: Topology) -> bool:
    """Whether somebody hands on what is past an upgrade whose nodes are not known here yet: not to be taken. It is
    asked for again."""
    return switch is not None and switch.number > topology.upgrade


class Span:
    """Which times of a node's outputs count."""

    def __init__(self, topology: Topology, node: NodeSpec) -> None:
        self.number = topology.upgrade
        self.comes = topology.is_coming(node)
        self.ends = topology.is_ending(node)
        self.after_us = node.after_us
        self.switch: Switch | None = None

    def learn(self, switch: Switch | None) -> None:
        if switch is not None and switch.number == self.number:
            self.switch = switch

    def counted(self, events: Piece) -> Piece:
        """Nobody can have got past the agreed time without knowing it: until then all of a new node's are before it."""
        if self.comes:
            return () if self.switch is None else events[first_after(events, Stamp(self.switch.at_us, ORDINAL_MAX)) :]
        if self.after_us:
            events = events[first_after(events, Stamp(self.after_us, ORDINAL_MAX)) :]
        if self.ends and self.switch is not None:
            events = events[: first_after(events, Stamp(self.switch.at_us, ORDINAL_MAX))]
        return events

    def watermark(self, through_us: int) -> int:
        """Of its streams, when the node has processed all up to a time. An old node's end with the agreed time."""
        if self.comes:
            return TIME_MIN if self.switch is None else max(through_us, self.switch.at_us)
        if self.ends and self.switch is not None and through_us >= self.switch.at_us:
            return TIME_MAX
        return max(through_us, self.after_us) if self.after_us else through_us
