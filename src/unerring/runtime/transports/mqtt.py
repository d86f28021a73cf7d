"""MQTT at QoS 0: mqtt://host:port/topic. At most once: a broker drops what a slow reader has no room for, silently."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import Final

import aiomqtt

from unerring.model import HandshakeError, NetworkError
from unerring.runtime.reports import Reports
from unerring.runtime.sockets import join_host
from unerring.runtime.transports.config import KIB, TransportConfig, TransportUrl
from unerring.runtime.transports.foreign import (
    ENVELOPE_BYTES_MAX,
    ForeignInlet,
    ForeignOutlet,
    Session,
    Take,
    place_and_name,
)

KEEPALIVE_S: Final = 5


def make_outlet(url: TransportUrl, config: TransportConfig, reports: Reports) -> ForeignOutlet:
    return ForeignOutlet(MqttService(url, config, reports), config, reports)


def make_inlet(url: TransportUrl, config: TransportConfig, reports: Reports) -> ForeignInlet:
    return ForeignInlet(MqttService(url, config, reports), config, reports)


class MqttService:
    """See `Service`."""

    scheme = "mqtt"
    faults: tuple[type[Exception], ...] = (aiomqtt.MqttError, OSError, asyncio.TimeoutError)

    def __init__(self, url: TransportUrl, config: TransportConfig, reports: Reports) -> None:
        self.url = url.text
        self.message_bytes_max = config.frame_bytes_max + ENVELOPE_BYTES_MAX
        self._host, self._port, self._topic = place_and_name(url, "topic")
        self._config = config
        self._log = logging.getLogger(f"unerring.mqtt.{id(self):x}")
        self._log.propagate = False
        self._log.addHandler(_Drops(reports))

    @contextlib.asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        where = f"{self.url} (MQTT at {join_host(self._host, self._port)})"
        client = aiomqtt.Client(
            self._host,
            self._port,
            timeout=self._config.connect_us / 1e6,
            keepalive=KEEPALIVE_S,
            logger=self._log,
            max_queued_incoming_messages=self._config.outbox_bytes_max // KIB,  # it counts messages alone
        )
        try:
            await client.__aenter__()
        except aiomqtt.MqttError as error:
            if isinstance(error.__cause__ or error.__context__, OSError):
                raise NetworkError(f"cannot reach {where}: {error}") from None
            raise HandshakeError(f"{where} refused us or is not MQTT: {error}") from None
        try:
            yield _MqttSession(client, self._topic)
        finally:
            with contextlib.suppress(*self.faults):
                async with asyncio.timeout(self._config.flush_us / 1e6):
                    await client.__aexit__(None, None, None)


class _Drops(logging.Handler):
    """The client tells only its log that its queue was full."""

    def __init__(self, reports: Reports) -> None:
        super().__init__(logging.WARNING)
        self._reports = reports

    def emit(self, record: logging.LogRecord) -> None:
        if "full" in record.getMessage():
            self._reports.count("mqtt.dropped")


class _MqttSession:
    def __init__(self, client: aiomqtt.Client, topic: str) -> None:
        self._client = client
        self._topic = topic

    async def publish(self, messages: list[bytes]) -> None:
        for message in messages:
            await self._client.publish(self._topic, message, qos=0)

    async def listen(self, take: Take, listening: Callable[[], None]) -> None:
        await self._client.subscribe(self._topic, qos=0)
        listening()
        async for message in self._client.messages:
            await take(bytes(message.payload))
