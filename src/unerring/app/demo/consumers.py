"""The demonstration's consumers: each on a lossy way of its own, each with a ledger that must balance."""

from __future__ import annotations

import asyncio

from unerring.app.demo.press import Pressed
from unerring.audit import Claim, Declared, Delivered, Violation, check_channel
from unerring.channels import ConsumerConfig, Position, Start
from unerring.model import MILLISECOND_US, MessageLoss
from unerring.runtime.channel import AsyncSubscriber
from unerring.runtime.transports import Faults, lossy_inlet, open_inlet
from unerring.runtime.transports.lossy import LossyInlet

CONFIG = ConsumerConfig(start=Start.EARLIEST, nack_pause_us_max=100 * MILLISECOND_US, nack_attempts_max=600)


class Consumer:
    """Reads until it is stopped; goes on from its positions when it is started again."""

    def __init__(self, name: str, faults: Faults, seed: int) -> None:
        self.name = name
        self.faults = faults
        self.told: list[Delivered | Declared] = []
        self.delivered = 0
        self.lost_ranges: list[MessageLoss] = []
        self.dropped = 0
        self.restarts = 0
        self._seed = seed
        self._positions: dict[int, Position] = {}
        self._task: asyncio.Task[None] | None = None
        self._events: AsyncSubscriber[Pressed] | None = None
        self._inlet: LossyInlet | None = None

    async def start(self, url: str) -> None:
        self._seed += 1000
        self._inlet = lossy_inlet(open_inlet(url), self.faults, self._seed)
        self._events = AsyncSubscriber(self._inlet, Pressed, config=CONFIG, positions=self._positions)
        await self._events.open()
        self._task = asyncio.create_task(self._read(self._events))

    async def crash(self) -> None:
        """Everything in memory is gone; what was accepted is on record."""
        self.restarts += 1
        await self.stop()

    async def stop(self) -> None:
        if self._task is None or self._events is None or self._inlet is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._positions = self._events.positions()
        self.dropped += self._inlet.lost
        self._inlet.cut(True)
        await self._events.close()

    async def _read(self, events: AsyncSubscriber[Pressed]) -> None:
        while True:
            try:
                async for event in events:
                    self.told.append(Delivered(event.producer, event.epoch, event.sequence, _payload(event.value)))
                    self.delivered += 1
                    # The record of what was done and the position are one thing here: a crash loses neither.
                    events.accept(event)
            except MessageLoss as loss:
                self._lose(events, loss)

    def _lose(self, events: AsyncSubscriber[Pressed], loss: MessageLoss) -> None:
        producer = next(id for id in events.positions() if events.name_of(id) == loss.producer)
        self.told.append(Declared(producer, loss.epoch, loss.first, loss.last))
        self.lost_ranges.append(loss)

    @property
    def duplicates(self) -> int:
        return 0 if self._events is None else self._events.ledger().duplicates

    @property
    def lost_in_transit(self) -> int:
        return self.dropped + (0 if self._inlet is None else self._inlet.lost)

    def caught_up(self, epoch: int, last: int) -> bool:
        """Whether it has accepted everything of the present epoch."""
        return self._events is not None and (epoch, last) in self._events.positions().values()

    def judge(self, published: dict[int, int]) -> list[Violation]:
        """Promise 1 for this consumer, from what it was told and what the producer's journal says."""
        if self._events is None:
            return []
        claims = [
            self._claim(producer, epoch, accepted if epoch == present else published[epoch])
            for producer, (present, accepted) in self._events.positions().items()
            for epoch in sorted(published)
            if epoch <= present
        ]
        payloads = {
            (claim.producer, claim.epoch): [b"%d/%d" % (claim.epoch, n + 1) for n in range(published[claim.epoch])]
            for claim in claims
        }
        return check_channel(self.name, payloads, self.told, claims, finished=True)

    def _claim(self, producer: int, epoch: int, accepted: int) -> Claim:
        mine = [item for item in self.told if item.epoch == epoch]
        delivered = sum(isinstance(item, Delivered) for item in mine)
        ends = [(item.first, item.last) for item in mine if isinstance(item, Declared)]
        lost = sum(last - first + 1 for first, last in ends if last is not None)
        return Claim(producer, epoch, 1, accepted, delivered, lost)


def _payload(value: Pressed) -> bytes:
    return b"%d/%d" % (value.epoch, value.number)
