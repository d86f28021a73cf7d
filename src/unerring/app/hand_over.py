"""The engine port's end of a driver of Spark: sealed outputs, handed over to the driver's replica in stamp order.

Every driver follows the sealed streams that live rules take. It hands over what follows the stamps that its replica
named last, in whole times, and waits while the replica's queue is full: the log is long enough for all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unerring.app.live_source import LOOK_S, pieces
from unerring.correlation import HandOver
from unerring.correlation.messages import ENGINE, Batch, Produced
from unerring.log import EventLog
from unerring.model import Event, Stamp
from unerring.runtime.live import Host


class _Place:
    """Where the replica stands in one stream, as far as it was handed over to."""

    def __init__(self, last: Stamp, count: int) -> None:
        self.last = last
        self.count = count
        self.through_us = last.time


class Handing:
    """Hands over some streams of a log, from wherever `begin` said last."""

    def __init__(self, data: Path, streams: Sequence[str]) -> None:
        self._log = EventLog(data / "log")
        self._streams = tuple(streams)
        self._places: dict[str, _Place] = {}

    def begin(self, asked: HandOver) -> None:
        """The replica starts, or lacks something: go on after these stamps."""
        self._places = {stream: _Place(asked.after[stream], asked.counts[stream]) for stream in self._streams}

    async def run(self, host: Host) -> None:
        await asyncio.gather(*(self._follow(stream, host) for stream in self._streams))

    async def _follow(self, stream: str, host: Host) -> None:
        chain = self._log.chain(stream)
        while True:
            place = self._places.get(stream)
            if place is None or chain.refresh() <= place.through_us:
                await asyncio.sleep(LOOK_S)
                continue
            begin_us = max(place.through_us, chain.base.from_us)
            for span in chain.spans(begin_us, chain.through_us):
                for events in pieces(chain, chain.schema, max(begin_us, span.from_us), span.through_us):
                    await self._put(stream, place, tuple(events), events[-1].stamp.time, host)
                await self._put(stream, place, (), span.through_us, host)
                if self._places[stream] is not place:
                    break

    async def _put(self, stream: str, place: _Place, events: tuple[Event, ...], through_us: int, host: Host) -> None:
        """One batch; done when the replica has it, or has asked for another place to go on from."""
        replica: Any = host.driver.machine
        while replica.outgoing.full and self._places[stream] is place:
            await asyncio.sleep(LOOK_S)
        if self._places[stream] is not place:
            return
        batch = Batch(stream, place.last, place.count, events, through_us)
        await host.driver.put(ENGINE, Produced((batch,)))
        while replica.made[stream].watermark < through_us and self._places[stream] is place:
            await asyncio.sleep(0 if events else LOOK_S)
        if events:
            place.last, place.count = events[-1].stamp, place.count + len(events)
        place.through_us = through_us
