"""The sink of a live run: situations that the application has committed are sealed into the run's log.

So they are read as those of the Spark engine are, and an audit finds them. The file in which position and effect commit
together keeps only what is not sealed yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from unerring.app.place import Where, place_of
from unerring.correlation import SEALER, Application, Forget, committed, numbered
from unerring.log import EventLog, events_of, seal_interval, table_of
from unerring.model import TIME_MIN, Event
from unerring.runtime import Host, SqliteStorage

if TYPE_CHECKING:
    from unerring.app.application import App

SEAL_S = 0.2


class _Lane:
    """One stream: what is committed and not sealed, each with its number in the stream."""

    def __init__(self, chain: Any, rule: str, kept: Iterable[tuple[int, Event]], count: int) -> None:
        self.chain = chain
        self.rule = rule
        """The version of the rule that makes it."""
        self.events = [(number, event) for number, event in kept if event.stamp.time > chain.through_us]
        self.count = count
        """How many were committed since the stream began."""


class Sink:
    """Takes committed situations in order, and seals them a few times a second."""

    def __init__(
        self, log: EventLog, app: App, machine: Application, records: Mapping[str, bytes], seal_s: float = SEAL_S
    ) -> None:
        self._seal_s = seal_s
        self.machine = machine
        self.lanes = {
            schema.name: _Lane(
                log.create(schema, app.buckets),
                plan.version,
                numbered(records, schema.name),
                machine.intake.streams[schema.name].count,
            )
            for plan in app.plans
            for schema in plan.outputs
            if schema.name in machine.intake.streams
        }

    def deliver(self, event: Event) -> None:
        """Take an event after its commit."""
        lane = self.lanes[event.stream]
        if event.stamp.time > lane.chain.through_us:
            lane.events.append((lane.count, event))
        lane.count += 1

    async def run(self, host: Host) -> None:
        try:
            while True:
                await asyncio.sleep(self._seal_s)
                for stream in self.lanes:
                    await self._seal(stream, host)
        finally:
            for stream in self.lanes:
                self._seal_now(stream, self._safe_us(stream))

    async def _seal(self, stream: str, host: Host) -> None:
        lane, safe_us = self.lanes[stream], self._safe_us(stream)
        if safe_us <= lane.chain.through_us:
            return
        await asyncio.to_thread(self._seal_now, stream, safe_us)
        through_us = lane.chain.through_us  # Perhaps further: another run may seal the same.
        sealed = sum(1 for _, event in lane.events if event.stamp.time <= through_us)
        if sealed:
            number = lane.events[sealed - 1][0]
            del lane.events[:sealed]
            host.driver.offer(SEALER, Forget(stream, number + 1))

    def _safe_us(self, stream: str) -> int:
        """Up to which time everything is committed. The machine may know of more, whose commit is under way."""
        lane, incoming = self.lanes[stream], self.machine.intake.streams[stream]
        if lane.count == incoming.count:
            return incoming.watermark
        return lane.events[-1][1].stamp.time - 1 if lane.events else TIME_MIN

    def _seal_now(self, stream: str, through_us: int) -> None:
        lane = self.lanes[stream]
        if through_us > lane.chain.refresh():
            events = [event for _, event in list(lane.events) if event.stamp.time <= through_us]
            seal_interval(lane.chain, table_of(events, lane.chain.schema), through_us, rule=lane.rule)


def live_situations(where: Where, stream: str) -> list[Event]:
    """What the live engine has delivered of a stream so far, in order: sealed, and committed but not sealed yet."""
    place = place_of(where)
    chain = place.log.chain(stream)
    through_us = chain.refresh()
    sealed = list(events_of(chain.read(chain.base.from_us, through_us), chain.schema))
    storage = SqliteStorage(place.live / "situations.0.db")
    try:
        kept = committed(storage.load(f"application/{stream}/"), stream)
    finally:
        storage.close()
    return sealed + [event for event in kept if event.stamp.time > through_us]
