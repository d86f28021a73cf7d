"""A relay machine between two event services: channels chained."""

from __future__ import annotations

import random
from typing import Self

from unerring.channels import ChannelCodec, ChannelConfig, ConsumerConfig, ProducerConfig, Relay
from unerring.model import Address, Inlet, Outlet
from unerring.runtime.channel.driver import UPWARDS, ChannelDriver
from unerring.runtime.channel.epochs import present_epoch
from unerring.runtime.channel.vetting import vet_frames, vet_requests
from unerring.runtime.reports import Reports
from unerring.runtime.transports import TransportConfig, open_inlet, open_outlet


class AsyncRelay:
    """Forwards everything from `source` to `target`, with the producers' own ids.

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
        self._inlet = open_inlet(source, transport, self.reports) if isinstance(source, str) else source
        self._outlet = open_outlet(target, transport, self.reports) if isinstance(target, str) else target
        self._config = config
        self._upstream = upstream
        codec = ChannelCodec(channel or ChannelConfig())
        above = vet_frames(self._inlet, (transport or TransportConfig()).stream)
        below = vet_requests(self._outlet)
        self._driver = ChannelDriver(
            codec,
            self.reports,
            inlet=self._inlet,
            outlet=self._outlet,
            vet=lambda sender, message: (below if isinstance(message, UPWARDS) else above)(sender, message),
        )

    async def open(self) -> Self:
        receive = self._driver.receive
        await self._outlet.open(receive)
        self._driver.machine = Relay(self._outlet.direct, random.Random(), self._config, self._upstream, present_epoch)
        self._driver.start()
        await self._inlet.open(receive)
        return self

    async def close(self) -> None:
        await self._driver.close()
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
