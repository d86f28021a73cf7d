"""The sealer of an application that has replicas: each of them may seal into the log that all of them reach.

A replica holds what it has received until it is sealed, by whomever. The one that leads seals; if two do, the segment
that exists is the truth, and the other one goes on from its end. So no position has to be kept anywhere: a replica that
joins takes what is not sealed yet from a peer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from unerring.app.live_rules import LiveRules
from unerring.app.live_sealer import table_of_pieces
from unerring.correlation import SEALER, Forget, Replica
from unerring.log import Chain, EventLog, MemoryStore, seal_interval
from unerring.matching import Piece, first_after
from unerring.model import ORDINAL_MAX, Column, ColumnType, Event, Stamp, StreamSchema
from unerring.runtime import Host

if TYPE_CHECKING:
    from unerring.app.application import App

LOOK_S: Final = 0.05
"""How often it is looked whether there is so much that it is sealed before its time, or whether this replica leads."""


class SharedSealer:
    """One replica's part."""

    def __init__(self, log: EventLog, app: App, machine: Replica, seal_s: float) -> None:
        self._machine = machine
        self._seal_s = seal_s
        self._many = max(1, machine.config.window_events // 2)
        self._rules = LiveRules(log, app)
        self._log = log
        self._buckets = app.buckets
        self._chains: dict[str, Chain] = {}

    async def run(self, host: Host) -> None:
        await asyncio.to_thread(rehearse)
        try:
            await self._follow(host)
        finally:
            if self._machine.holding and self._machine.election.leading:
                for stream in self._machine.merge.streams:
                    watermark = self._watermark(stream)
                    self._seal_now(stream, self._machine.merge.whole(stream, watermark), watermark)

    async def _follow(self, host: Host) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time() + self._seal_s
        led = False
        while True:
            await asyncio.sleep(min(self._seal_s, LOOK_S))
            # What waits when this replica begins to lead has waited for the one that led before.
            led, before = self._machine.holding and self._machine.election.leading, led
            whole = loop.time() >= due_s or (led and not before)
            if whole:
                due_s = loop.time() + self._seal_s
            if self._machine.holding:
                for stream in self._machine.merge.streams:
                    if whole or self._waits(stream) >= self._many:
                        await self._seal(stream, host)

    def _waits(self, stream: str) -> int:
        return max(map(self._machine.merge.size, self._machine.merge.lanes(stream)))

    def _watermark(self, stream: str) -> int:
        """Of all parts in which it comes."""
        machine = self._machine
        return min(machine.intake.streams[name].watermark for name in machine.merge.lanes(stream))

    async def _seal(self, stream: str, host: Host) -> None:
        """Seal what is whole, if this replica leads; and let go what is sealed, by whomever."""
        machine, chain = self._machine, self._chain(stream)
        watermark = self._watermark(stream)
        if watermark > chain.through_us:
            if machine.election.leading:
                pieces = machine.merge.whole(stream, watermark)
                await asyncio.to_thread(self._seal_now, stream, pieces, watermark)
            else:
                await asyncio.to_thread(chain.refresh)
        # One that is behind lets go, too: what it holds of the sealed times takes the room of what comes after them.
        if not machine.holding or stream not in machine.merge.streams:
            return  # it joins anew: what it held is not its own any more
        for name in machine.merge.lanes(stream):
            sealed = sum(
                first_after(piece, Stamp(chain.through_us, ORDINAL_MAX)) for piece in machine.merge.waiting(name)
            )
            if sealed:
                number = machine.intake.consumed[name] + sealed
                host.driver.offer(SEALER, Forget(name, number, machine.intake.maker(name)))

    def _chain(self, stream: str) -> Chain:
        """Of a stream, which may have come with an upgrade."""
        if stream not in self._chains:
            self._chains[stream] = self._log.create(self._rules.schema(stream), self._buckets)
        return self._chains[stream]

    def _seal_now(self, stream: str, pieces: list[Piece], through_us: int) -> None:
        """Up to the time of an upgrade as the old rules', after it as the new ones'."""
        chain = self._chain(stream)
        from_us = chain.refresh()
        for end_us, version in self._rules.versions(stream, from_us, through_us):
            some = table_of_pieces([piece for piece in map(_until(end_us), pieces) if len(piece)], chain.schema)
            seal_interval(chain, some, end_us, rule=version)


def rehearse() -> None:
    """Load what a process needs for its first segment: pyarrow looks for pandas then, which takes a second beside a
    load, and whoever begins to lead has situations that wait."""
    schema = StreamSchema("rehearsal", (Column("number", ColumnType.INT), Column("text", ColumnType.TEXT)), ("number",))
    chain = EventLog(MemoryStore()).create(schema, 1)
    event = Event(schema.name, Stamp(1, 0), (1,), {"number": 1, "text": ""})
    seal_interval(chain, table_of_pieces([(event,)], schema), 1, rule="")


def _until(through_us: int) -> Callable[[Piece], Piece]:
    return lambda piece: piece[: first_after(piece, Stamp(through_us, ORDINAL_MAX))]
