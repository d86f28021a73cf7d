"""Two CORBA event channels, one feeding the other, on one service or two; and the link between them kept whole.

Events go from service to service as they are, with the ids that their producer gave them: a consumer at the end of the
chain finds what was lost anywhere on it, and asks the producer itself.
"""

from __future__ import annotations

import asyncio
from typing import Final, Self

from unerring.model import ConfigError, HandshakeError, NetworkError, UnerringError, invariant
from unerring.runtime.giop.cdr import Encoder
from unerring.runtime.giop.events import EventChannel, chain
from unerring.runtime.giop.ior import Reference
from unerring.runtime.halt import guard_loop
from unerring.runtime.reports import Reports
from unerring.runtime.sockets import redial
from unerring.runtime.transports.config import TransportConfig, parse_url
from unerring.runtime.transports.corba import CorbaService, first_end, over

LOOK_S: Final = 0.5
"""How often the link is looked after: one failed push breaks it for ever."""
_PROXY: Final = "IDL:omg.org/CosEventChannelAdmin/ProxyPushConsumer:1.0"


class CorbaChain:
    """Everything on the channel `upstream` goes on to the channel `downstream` while this is open.

    async with CorbaChain("corba://127.0.0.1:11169/hall", "corba://127.0.0.1:11169/office"):
        ...
    """

    def __init__(self, upstream: str, downstream: str, config: TransportConfig | None = None) -> None:
        self.reports = Reports()
        self._config = config or TransportConfig()
        places = [parse_url(url) for url in (upstream, downstream)]
        if any(place.scheme not in ("corba", "corba-pull") for place in places):
            raise ConfigError("both ends of a chain are CORBA channels; write corba://host:port/channel")
        if places[0].place == places[1].place:
            raise ConfigError(f"{upstream!r} cannot feed itself: events would circulate for ever")
        self._upstream, self._downstream = (CorbaService(place, self._config, self.reports) for place in places)
        self._task: asyncio.Task[None] | None = None
        self._first: asyncio.Future[None] | None = None

    async def open(self) -> Self:
        """Link them. Services that are away are waited for; one that is no event service raises."""
        invariant(self._task is None, "a chain is opened once")
        guard_loop()
        self._first = asyncio.get_running_loop().create_future()
        pauses = self._config.redial_min_us, self._config.redial_max_us
        self._task = asyncio.create_task(redial(self._link, *pauses, self._failed))
        try:
            await self._first
        except BaseException:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _failed(self, error: UnerringError) -> None:
        self.reports.note("corba.unlinked", str(error))
        self._settle(error if isinstance(error, HandshakeError) else None)

    def _settle(self, error: UnerringError | None) -> None:
        if self._first is not None and not self._first.done():
            if error is None:
                self._first.set_result(None)
            else:
                self._first.set_exception(error)

    async def _link(self) -> bool:
        async with self._upstream.channel() as upstream, self._downstream.channel() as downstream:
            supplier, consumer = await chain(upstream, downstream)
            self.reports.count("corba.linked")
            self._settle(None)
            try:
                await first_end(
                    over(upstream.client),
                    over(downstream.client),
                    self._look_after(upstream, downstream, supplier, consumer),
                )
            finally:
                # Which tells the other end. If that is gone, the next push fails and ends the link by itself: a push
                # that fails after a disconnect brings omniEvents 2.6.2 down.
                if downstream.client.connection.open:
                    await upstream.leave(supplier, "disconnect_push_supplier")
        return True

    async def _look_after(
        self, upstream: EventChannel, downstream: EventChannel, supplier: Reference, consumer: Reference
    ) -> None:
        def ask(body: Encoder) -> None:
            body.string(_PROXY)

        while True:
            await asyncio.sleep(LOOK_S)
            if not (await downstream.client.call(consumer, "_is_a", ask)).boolean():
                raise NetworkError(f"{downstream.client.where} has lost its end of the chain")
            if not await upstream.still_subscribed(supplier, consumer):
                self.reports.note("corba.evicted", f"{upstream.client.where} had dropped the chain; linked again")
