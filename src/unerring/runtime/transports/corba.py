"""A CORBA Event Service (omniEvents): corba://host:port/channel for push consumers, corba-pull:// for pull consumers.

A producer is a push supplier in both. The channel keeps a ring of about a thousand events: a consumer that is slower
loses whole laps of it, and nothing shows. A push consumer is unsubscribed for ever by one failed push, without a word
that is sure to arrive; so whoever hears nothing asks to be subscribed once more, and "already connected" is the good
answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final

from unerring.model import ConfigError, FrameError, NetworkError, PeerError, UnerringError
from unerring.runtime.giop import GiopClient, GiopConfig, PushConsumer, Reference
from unerring.runtime.giop.cdr import Decoder
from unerring.runtime.giop.connection import nothing
from unerring.runtime.giop.events import EventChannel, channel_named, read_pulled, write_event
from unerring.runtime.reports import Reports
from unerring.runtime.transports.config import MIB, TransportConfig, TransportUrl
from unerring.runtime.transports.foreign import ForeignInlet, ForeignOutlet, Session, Take, place_and_name

MESSAGE_BYTES_MAX: Final = 2 * MIB - 1024
"""The service refuses longer GIOP messages (omniORB's giopMaxMsgSize), headers included."""
GIOP_HEADERS_BYTES: Final = 1024
UNDER_WAY_MAX: Final = 64
"""Pushes that wait for the service's answer, and pulls that are asked for at once."""
INBOX_MAX: Final = 64
"""Pushed events that wait for the application; at the bound, the channel waits for us, and its ring turns."""
QUIET_S: Final = 0.5
"""After this long without an event a push consumer makes sure that it is still subscribed."""
GOODBYE_S: Final = 2.0
"""How long a push consumer that leaves waits for the channel's last word."""
PULL_PAUSE_MIN_S: Final = 0.001
PULL_PAUSE_MAX_S: Final = 0.02
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")


def make_outlet(url: TransportUrl, config: TransportConfig, reports: Reports) -> ForeignOutlet:
    return ForeignOutlet(CorbaService(url, config, reports), config, reports)


def make_inlet(url: TransportUrl, config: TransportConfig, reports: Reports) -> ForeignInlet:
    return ForeignInlet(CorbaService(url, config, reports), config, reports)


class CorbaService:
    """See `Service`."""

    scheme = "corba"
    faults: tuple[type[Exception], ...] = ()

    def __init__(self, url: TransportUrl, config: TransportConfig, reports: Reports) -> None:
        self.url = url.text
        self.message_bytes_max = MESSAGE_BYTES_MAX
        self._host, self._port, self._name = place_and_name(url, "channel")
        if not _NAME.fullmatch(self._name):
            raise ConfigError(f"{url.text!r}: a channel's name is made of letters, digits, '.', '_' and '-'")
        self._pull = url.scheme == "corba-pull"
        self._config = config
        self._reports = reports
        self._giop = GiopConfig(
            message_bytes_max=config.frame_bytes_max + GIOP_HEADERS_BYTES,
            outbox_bytes_max=config.outbox_bytes_max,
            connect_us=config.connect_us,
            call_us=config.handshake_us,
        )

    @contextlib.asynccontextmanager
    async def channel(self) -> AsyncIterator[EventChannel]:
        """A connection to the service, and the channel, made if need be."""
        client = GiopClient(self._host, self._port, self._giop)
        try:
            await client.connect()
            yield await channel_named(client, self._name)
        finally:
            await client.close()

    @contextlib.asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        async with self.channel() as channel:
            session = (_PullSession if self._pull else _PushSession)(channel, self._reports)
            try:
                yield session
            finally:
                await channel.client.settle_within(self._config.flush_us)
                await session.leave()


class _Supplier:
    """The producer's half of a session: pushes that overlap, so that the wire is never idle for an answer."""

    def __init__(self, channel: EventChannel, reports: Reports) -> None:
        self._channel = channel
        self._client = channel.client
        self._reports = reports
        self._supplies: Reference | None = None
        self._fault: Exception | None = None

    async def publish(self, messages: list[bytes]) -> None:
        if self._supplies is None:
            self._supplies = await self._channel.push_consumer()
        for message in messages:
            await self._client.settle(UNDER_WAY_MAX - 1)
            await self._client.connection.writable()
            if self._fault is not None:
                raise self._fault
            if not self._client.post(self._supplies, "push", write_event(message), self._pushed):
                raise NetworkError(f"{self._client.where} is gone or takes no more")

    def _pushed(self, result: Decoder | Reference | Exception) -> None:
        if isinstance(result, Exception):
            self._fault = result
        elif isinstance(result, Reference):
            self._fault = PeerError(f"{self._client.where} sent a push elsewhere")

    async def leave(self) -> None:
        """Leave after the last push was answered."""
        if self._supplies is not None:
            await self._channel.leave(self._supplies, "disconnect_push_consumer")


class _PushSession(_Supplier):
    """A push consumer: an object of ours that the channel calls for each event."""

    def __init__(self, channel: EventChannel, reports: Reports) -> None:
        super().__init__(channel, reports)
        self._servant = PushConsumer(channel.client.config, reports, self._on_event, self._on_disconnect)
        self._inbox: deque[bytes] = deque()
        self._arrived = asyncio.Event()
        self._doubtful = asyncio.Event()
        """The channel unsubscribed us, or may have done so without a message."""
        self._heard = 0
        self._leaving = False

    async def listen(self, take: Take, listening: Callable[[], None]) -> None:
        reference = await self._servant.open(self._client.connection.local_host)
        try:
            proxy = await self._channel.push_supplier(reference)
            try:
                listening()
                await first_end(over(self._client), self._stay_subscribed(proxy, reference), self._hand_over(take))
            finally:
                await self._say_goodbye(proxy)
        finally:
            await self._servant.close()

    async def _say_goodbye(self, proxy: Reference) -> None:
        """Answer what is under way until the channel has disconnected too.

        A push that fails after its consumer disconnected brings omniEvents 2.6.2 down: the call that disconnects takes
        the target away from under the thread that pushes, which then reports the failure of nothing.
        """
        self._leaving = True
        self._inbox.clear()
        self._servant.resume_reading()
        self._doubtful.clear()
        with contextlib.suppress(UnerringError, TimeoutError):
            await self._client.call(proxy, "disconnect_push_supplier")
            async with asyncio.timeout(GOODBYE_S):
                await self._doubtful.wait()

    def _on_event(self, data: bytes) -> None:
        if self._leaving:
            return
        self._heard += 1
        self._inbox.append(data)
        self._arrived.set()
        if len(self._inbox) >= INBOX_MAX:
            self._servant.pause_reading()

    def _on_disconnect(self) -> None:
        self._doubtful.set()

    async def _hand_over(self, take: Take) -> None:
        while True:
            await self._arrived.wait()
            while self._inbox:
                await take(self._inbox.popleft())
            self._arrived.clear()
            self._servant.resume_reading()

    async def _stay_subscribed(self, proxy: Reference, reference: Reference) -> None:
        while True:
            heard = self._heard
            try:
                async with asyncio.timeout(QUIET_S):
                    await self._doubtful.wait()
            except TimeoutError:
                if self._heard > heard:
                    continue
            self._doubtful.clear()
            if not await self._channel.still_subscribed(proxy, reference):
                self._reports.note(
                    "corba.evicted", f"{self._client.where} had unsubscribed us after a fault; subscribed again"
                )


class _PullSession(_Supplier):
    """A pull consumer: it asks, a few times at once while there is something, seldom while there is nothing."""

    async def listen(self, take: Take, listening: Callable[[], None]) -> None:
        proxy = await self._channel.pull_supplier()
        listening()
        try:
            await self._ask(proxy, take)
        finally:
            await self._channel.leave(proxy, "disconnect_pull_supplier")

    async def _ask(self, proxy: Reference, take: Take) -> None:
        at_once, pause_s = 1, PULL_PAUSE_MIN_S
        while True:
            events, empty = await self._pull(proxy, at_once)
            for event in events:
                await take(event)
            if not empty:
                at_once, pause_s = min(at_once * 2, UNDER_WAY_MAX), PULL_PAUSE_MIN_S
                continue
            at_once = max(1, len(events))
            await asyncio.sleep(pause_s)
            pause_s = PULL_PAUSE_MIN_S if events else min(pause_s * 2, PULL_PAUSE_MAX_S)

    async def _pull(self, proxy: Reference, count: int) -> tuple[list[bytes], bool]:
        """Pull `count` times at once: the events, in order, and whether the channel had nothing more."""
        events: list[bytes] = []
        empty = False
        fault: Exception | None = None

        def pulled(result: Decoder | Reference | Exception) -> None:
            nonlocal empty, fault
            if not isinstance(result, Decoder):
                fault = result if isinstance(result, Exception) else PeerError("a pull was sent elsewhere")
                return
            try:
                data, available = read_pulled(result)
            except FrameError as error:
                fault = error
                return
            empty |= not available
            if data is not None:
                events.append(data)
            elif available:
                self._reports.note(
                    "corba.foreign_event", "an event that is not a sequence of octets: another program's"
                )

        for _ in range(count):
            if not self._client.post(proxy, "try_pull", nothing, pulled):
                raise NetworkError(f"{self._client.where} is gone or takes no more")
        try:
            async with asyncio.timeout(self._client.config.call_us / 1e6):
                await self._client.settle()
        except TimeoutError:
            raise NetworkError(f"{self._client.where} did not answer try_pull in time") from None
        if fault is not None:
            raise fault
        return events, empty


async def over(client: GiopClient) -> None:
    """The connection's end, as an error."""
    reason = await asyncio.shield(client.lost)
    if isinstance(reason, PeerError):
        raise reason
    raise NetworkError(f"{client.where} closed the connection ({reason or 'no reason given'})")


async def first_end(*works: Coroutine[Any, Any, None]) -> None:
    """Run them side by side until one of them ends; its fault is raised, the others are cancelled."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
