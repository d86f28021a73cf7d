"""The sealer of an application that has replicas: each of them may seal into the log that all of them reach.

A replica holds what it has received until it is sealed, by whomever. The one that leads seals; if two do, the segment
that exists is the truth, and the other one goes on from its end. So no position has to be kept anywhere: a replica that
joins takes what is not sealed yet from a peer.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from unerring.app.live_sealer import table_of_pieces
from unerring.correlation import SEALER, Forget, Replica
from unerring.log import Chain, EventLog, seal_interval
from unerring.matching import Piece, first_after
from unerring.model import ORDINAL_MAX, Stamp
from unerring.runtime import Host

if TYPE_CHECKING:
    from unerring.app.application import App

LOOK_S: Final = 0.05
"""How often it is looked whether there is so much that it is sealed before its time."""


class SharedSealer:
    """One replica's part."""

    def __init__(self, log: EventLog, app: App, machine: Replica, seal_s: float) -> None:
        self._machine = machine
        self._seal_s = seal_s
        self._many = max(1, machine.config.window_events // 2)
        self._lanes: dict[str, tuple[Chain, str]] = {
            schema.name: (log.create(schema, app.buckets), plan.version)
            for plan in app.plans
            for schema in plan.outputs
            if schema.name in machine.merge.streams
        }

    async def run(self, host: Host) -> None:
        try:
            await self._follow(host)
        finally:
            if self._machine.holding and self._machine.election.leading:
                for stream, (chain, rule) in self._lanes.items():
                    watermark = self._watermark(stream)
                    _seal(chain, self._machine.merge.whole(stream, watermark), watermark, rule)

    async def _follow(self, host: Host) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time() + self._seal_s
        while True:
            await asyncio.sleep(min(self._seal_s, LOOK_S))
            whole = loop.time() >= due_s
            if whole:
                due_s = loop.time() + self._seal_s
            if self._machine.holding:
                for stream in self._lanes:
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
        machine, (chain, rule) = self._machine, self._lanes[stream]
        watermark = self._watermark(stream)
        if watermark <= chain.through_us:
            return
        if machine.election.leading:
            pieces = machine.merge.whole(stream, watermark)
            await asyncio.to_thread(_seal, chain, pieces, watermark, rule)
        else:
            await asyncio.to_thread(chain.refresh)
        if not machine.holding:
            return  # it joins anew: what it held is not its own any more
        for name in machine.merge.lanes(stream):
            sealed = sum(
                first_after(piece, Stamp(chain.through_us, ORDINAL_MAX)) for piece in machine.merge.waiting(name)
            )
            if sealed:
                host.driver.offer(SEALER, Forget(name, machine.intake.consumed[name] + sealed))


def _seal(chain: Chain, pieces: list[Piece], through_us: int, rule: str) -> None:
    if through_us > chain.refresh():
        seal_interval(chain, table_of_pieces(pieces, chain.schema), through_us, rule=rule)
