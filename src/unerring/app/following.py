"""Handing streams of the run's log to the machine that takes them: a live source, or the replica of a Spark driver.

Both engines so see the same events, and the machine keeps none of them for long: what it lacks is read again. The
machine says what it has taken and whether it has room (`StreamPosition`), or from where it needs everything again
(`HandOver`); until then the log holds what follows. Streams are handed over in stamp order and in whole times.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from unerring.correlation import ENGINE, PRODUCER, Batch, HandOver, Produced, Publish, StreamPosition, Switch, is_ahead
from unerring.log import Chain, EventLog, events_of
from unerring.matching import COLUMNS_MIN, Piece, first_after, stamp_at
from unerring.model import ORDINAL_MAX, TIME_MIN, Address, Stamp
from unerring.runtime import Driver

PAUSE_S = 0.002
PAUSE_S_MAX = 0.016
"""Nothing comes for a while: look less often. Somebody seals a segment every tenth of a second at most."""
PIECE_EVENTS = 8192


class Place:
    """Where a machine stands in one stream, as far as it was handed over."""

    def __init__(self, last: Stamp, count: int, through_us: int) -> None:
        self.last = last
        self.count = count
        self.through_us = through_us
        self.taken_us: int | None = None
        """Up to where the machine has taken it, and has room for more; None: not known yet."""


Wrap = Callable[[str, Place, Piece, int, Switch | None], tuple[Address, Any]]
"""The message that hands over some events of a stream, and the address that the machine knows its sender by."""


def to_source(stream: str, place: Place, events: Piece, through_us: int, switch: Switch | None) -> tuple[Address, Any]:
    """The message for a source, which publishes the events."""
    return PRODUCER, Publish(stream, events, through_us, switch)


def to_replica(stream: str, place: Place, events: Piece, through_us: int, switch: Switch | None) -> tuple[Address, Any]:
    """The message for a replica, whose engine made the events."""
    handed = tuple(events) if isinstance(events, list | tuple) else events.packed()
    return ENGINE, Produced((Batch(stream, place.last, place.count, handed, through_us, switch),))


class Following:
    """Hands over some streams of a log, as fast as they are taken; `deliver` hears what the machine says."""

    def __init__(
        self,
        log: EventLog,
        streams: Sequence[str],
        wrap: Wrap,
        pause_s_max: float = PAUSE_S_MAX,
        begins_us: int = TIME_MIN,
        shards: int = 1,
        agreed: Callable[[EventLog], Switch | None] | None = None,
    ) -> None:
        """`begins_us`: what is before is not handed over. `shards`: over how many nodes the streams are spread, each of
        which is to get as much at once as one would. `agreed`: when the rules of an upgrade take over, which is asked
        after a look how far the log is, and before that is handed on."""
        self._agreed = agreed
        self._switch: Switch | None = None
        self._log = log
        self._begins_us = begins_us
        self._pause_s = PAUSE_S if pause_s_max <= PAUSE_S_MAX else pause_s_max
        self._pause_s_max = pause_s_max
        self._streams = tuple(streams)
        self._piece_events = PIECE_EVENTS * shards
        self._wrap = wrap
        self._places: dict[str, Place] = {}
        self._heard = asyncio.Event()

    def deliver(self, what: Any) -> None:
        if isinstance(what, HandOver):
            self._places = {s: Place(what.after[s], what.counts[s], what.after[s].time) for s in self._streams}
        elif isinstance(what, StreamPosition) and what.stream in self._streams:
            place = self._places.setdefault(what.stream, Place(what.last, what.count, what.watermark))
            place.taken_us = what.watermark
        self._heard.set()

    async def run(self, driver: Driver) -> None:
        """Follow for ever."""
        await asyncio.gather(*(self._follow(stream, driver) for stream in self._streams))

    def _to_come(self, switch: Switch | None) -> Switch | None:
        """Replicas that begin where an upgrade took over have its rules, and no nodes to wait for."""
        return None if switch is None or switch.at_us <= self._begins_us else switch

    async def _follow(self, stream: str, driver: Driver) -> None:
        await self._until(lambda: stream in self._places)
        chain = self._log.chain(stream)
        chain.check_reached(self._places[stream].through_us, f"the follower of {stream}")
        pause_s = self._pause_s
        while True:
            place = self._places[stream]
            reached_us = chain.refresh()
            if self._agreed is not None and reached_us > place.through_us:
                self._switch = self._to_come(self._agreed(self._log))
                machine: Any = driver.machine
                if self._switch is not None and is_ahead(self._switch, machine.topology):
                    reached_us = min(reached_us, self._switch.at_us)  # until this host has heard of its nodes
            begin_us = max(place.through_us, chain.base.from_us, self._begins_us)
            if reached_us <= begin_us:
                await asyncio.sleep(pause_s)
                pause_s = min(self._pause_s_max, pause_s * 1.5)
                continue
            pause_s = self._pause_s
            for span in chain.spans(begin_us, reached_us):
                end_us = min(span.through_us, reached_us)
                for events in _pieces(chain, max(begin_us, span.from_us), end_us, self._piece_events):
                    fresh = events[first_after(events, place.last) :]
                    await self._hand_over(stream, place, fresh, stamp_at(events, -1).time, driver)
                await self._hand_over(stream, place, (), end_us, driver)
                if self._places[stream] is not place:
                    break

    async def _hand_over(self, stream: str, place: Place, events: Piece, through_us: int, driver: Driver) -> None:
        """One piece; done when the machine has taken it and has room, or asks for another place to go on from."""
        if not await self._taken(stream, place, place.through_us):
            return
        if len(events) or through_us > place.through_us:
            await driver.put(*self._wrap(stream, place, events, through_us, self._switch))
            await self._taken(stream, place, through_us)
        if len(events):
            place.last, place.count = stamp_at(events, -1), place.count + len(events)
        place.through_us = through_us

    async def _taken(self, stream: str, place: Place, through_us: int) -> bool:
        """Wait until the machine has this place's stream up to there. False: it is to go on from another place."""

        def heard() -> bool:
            return self._places[stream] is not place or (place.taken_us is not None and place.taken_us >= through_us)

        await self._until(heard)
        return self._places[stream] is place

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._heard.clear()
            await self._heard.wait()


def _pieces(chain: Chain, from_us: int, through_us: int, piece_events: int) -> Iterator[Piece]:
    """The events of an interval in pieces of about so many, none of which ends inside a time; a few as objects,
    many as columns."""
    from unerring.matching import Chunk

    table = chain.read(from_us, through_us)
    if len(table) < COLUMNS_MIN:
        if len(table):
            yield tuple(events_of(table, chain.schema))
        return
    whole = Chunk.of_table(chain.schema, table.combine_chunks())
    first = 0
    while first < len(whole):
        end = min(first + piece_events, len(whole))
        end = whole.first_after(Stamp(whole.stamp(end - 1).time, ORDINAL_MAX), first)
        yield whole[first:end]
        first = end
