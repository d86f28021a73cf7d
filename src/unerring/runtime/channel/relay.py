"""A relay machine between two event services: channels chained."""

from __future__ import annotations

import random
from typing import Any, Self

from unerring.channels import (
    Ack,
    ChannelCodec,
    ChannelConfig,
    ConsumerConfig,
    Nack,
    Newcomer,
    Peer,
    ProducerConfig,
    Relay,
    Stale,
)
from unerring.model import (
    Address,
    Broadcast,
    CancelTimer,
    Effects,
    FrameError,
    Inlet,
    InvariantBreach,
    Outlet,
    PeerError,
    Report,
    Send,
    SetTimer,
)
from unerring.runtime.channel.epochs import present_epoch
from unerring.runtime.channel.timers import Timers, monotonic_us
from unerring.runtime.halt import halt
from unerring.runtime.reports import Reports
from unerring.runtime.transports import TransportConfig, open_inlet, open_outlet

_UPWARDS = (Nack, Newcomer, Ack, Stale, Peer)


class AsyncRelay:
    """Passes everything that comes from `source` on to `target`, with the producers' own ids.

    async with AsyncRelay("tcp://10.0.0.5:7000", "tcp://127.0.0.1:7001"):
        await asyncio.Event().wait()
    """

    def __init__(
        self,
        source: str | Inlet,
        target: str | Outlet,
        *,
        config: ProducerConfig | None = None,
        upstream: ConsumerConfig | None = None,
        channel: ChannelConfig | None = None,
        transport: TransportConfig | None = None,
    ) -> None:
        self.reports = Reports()
        self._codec = ChannelCodec(channel or ChannelConfig())
        self._inlet = open_inlet(source, transport, self.reports) if isinstance(source, str) else source
        self._outlet = open_outlet(target, transport, self.reports) if isinstance(target, str) else target
        self._config = config
        self._upstream = upstream
        self._timers = Timers(lambda name: self._step("timer", name))
        self._machine: Relay | None = None

    async def open(self) -> Self:
        await self._outlet.open(self._receive)
        self._machine = Relay(self._outlet.direct, random.Random(), self._config, self._upstream, present_epoch)
        self._step("start")
        await self._inlet.open(self._receive)
        return self

    async def close(self) -> None:
        self._timers.stop()
        await self._inlet.close()
        await self._outlet.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def address(self) -> Address:
        """Where consumers reach this relay."""
        return self._outlet.direct

    def _receive(self, sender: Address, data: bytes) -> None:
        try:
            message = self._codec.decode(data)
        except FrameError as error:
            self.reports.note("channel.bad_frame", f"{sender}: {error}")
            return
        try:
            self._step("handle", sender, message)
        except PeerError as error:
            self.reports.note("channel.protocol_error", f"{sender}: {error}")

    def _step(self, method: str, *arguments: Any) -> None:
        try:
            self._carry_out(getattr(self._machine, method)(*arguments, monotonic_us()))
        except InvariantBreach as broken:
            halt(broken)

    def _carry_out(self, effects: Effects) -> None:
        for effect in effects:
            if isinstance(effect, Broadcast):
                self._outlet.push(self._codec.encode(effect.message))
            elif isinstance(effect, Send):
                way = self._inlet if isinstance(effect.message, _UPWARDS) else self._outlet
                way.send(effect.to, self._codec.encode(effect.message))
            elif isinstance(effect, SetTimer):
                self._timers.set(effect)
            elif isinstance(effect, CancelTimer):
                self._timers.cancel(effect)
            elif isinstance(effect, Report):
                self.reports.take(effect)
