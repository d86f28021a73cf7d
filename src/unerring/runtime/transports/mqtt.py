"""MQTT 3.1.1 at QoS 0: mqtt://host:port/topic. A broker drops what a slow reader has no room for, silently.

At QoS 0 the protocol is a few packets, spoken here on an asyncio stream: the client libraries either need a thread or
wait for each message by itself, and drop from queues of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import struct
from collections.abc import AsyncIterator, Callable
from typing import Final

from unerring.model import ConfigError, FrameError, HandshakeError, NetworkError
from unerring.runtime.reports import Reports
from unerring.runtime.sockets import join_host, keep_alive
from unerring.runtime.transports.config import KIB, TransportConfig, TransportUrl
from unerring.runtime.transports.foreign import (
    ENVELOPE_BYTES_MAX,
    ForeignInlet,
    ForeignOutlet,
    Session,
    Take,
    place_and_name,
)
from unerring.runtime.transports.login import Login, read_login

CONNECT, CONNACK, PUBLISH, SUBSCRIBE, SUBACK, PINGREQ, PINGRESP, DISCONNECT = 1, 2, 3, 8, 9, 12, 13, 14
CLEAN_SESSION: Final = 2
HAS_PASSWORD: Final = 0x40
HAS_USER: Final = 0x80
KEEPALIVE_S: Final = 10
"""A broker that says nothing for so long, though asked, is gone; it thinks the same of us."""
READ_BYTES: Final = 256 * KIB
_REFUSALS: Final = {
    1: "it does not speak MQTT 3.1.1",
    2: "it does not take our client name",
    3: "it is not available",
    4: "it wants a user and a password",
    5: "we are not allowed in",
}


def make_outlet(url: TransportUrl, config: TransportConfig, reports: Reports) -> ForeignOutlet:
    return ForeignOutlet(MqttService(url, config), config, reports)


def make_inlet(url: TransportUrl, config: TransportConfig, reports: Reports) -> ForeignInlet:
    return ForeignInlet(MqttService(url, config), config, reports)


class MqttService:
    """See `Service`."""

    scheme = "mqtt"
    faults: tuple[type[Exception], ...] = (OSError, EOFError, FrameError)

    def __init__(self, url: TransportUrl, config: TransportConfig) -> None:
        self.url = url.text
        self._host, self._port, self._topic = place_and_name(url, "topic")
        if "#" in self._topic or "+" in self._topic:
            raise ConfigError(f"{url.text!r}: a channel is one topic, without wildcards")
        self._config = config
        self._login = read_login(config.login)
        self.message_bytes_max = config.frame_bytes_max + ENVELOPE_BYTES_MAX

    @contextlib.asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        where = f"{self.url} (MQTT at {join_host(self._host, self._port)})"
        try:
            async with asyncio.timeout(self._config.connect_us / 1e6):
                reader, writer = await asyncio.open_connection(
                    self._host, self._port, limit=READ_BYTES, ssl=self._login.tls()
                )
        except TimeoutError:
            raise NetworkError(f"cannot reach {where}: no answer in time") from None
        except OSError as error:
            raise NetworkError(f"cannot reach {where}: {error.strerror or error}") from None
        session = _MqttSession(reader, writer, self._topic, self.message_bytes_max)
        alive: asyncio.Task[None] | None = None
        try:
            keep_alive(writer.get_extra_info("socket"))
            try:
                async with asyncio.timeout(self._config.connect_us / 1e6):
                    await session.greet(self._login)
            except HandshakeError as error:
                raise HandshakeError(f"{where}: {error}") from None
            except (TimeoutError, EOFError, FrameError, ConnectionError) as error:
                raise HandshakeError(f"{where} did not greet as MQTT does ({error!r}); is it another server?") from None
            alive = asyncio.create_task(session.stay_alive())
            yield session
        finally:
            if alive is not None:
                alive.cancel()
            await self._leave(writer)

    async def _leave(self, writer: asyncio.StreamWriter) -> None:
        """Leave after what was published has gone out, within a bound."""
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(self._config.flush_us / 1e6):
                writer.write(_packet(DISCONNECT, 0))
                writer.close()
                await writer.wait_closed()
        writer.transport.abort()


class _MqttSession:
    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, topic: str, message_bytes_max: int
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._topic = _text(topic)
        self._packet_bytes_max = message_bytes_max + len(self._topic)

    async def greet(self, login: Login) -> None:
        client = _text(f"unerring-{secrets.token_hex(6)}")
        flags = CLEAN_SESSION | (HAS_USER if login.user else 0) | (HAS_PASSWORD if login.user and login.password else 0)
        version = _text("MQTT") + bytes((4, flags)) + struct.pack(">H", KEEPALIVE_S)
        shown = [_text(text) for text in (login.user, login.password) if login.user and text]
        self._writer.write(_packet(CONNECT, 0, version, client, *shown))
        kind, _, body = await self._read()
        if kind != CONNACK or len(body) != 2:
            raise FrameError("not the answer to CONNECT")
        if body[1] in (4, 5):
            raise HandshakeError(f"it does not let us in: {_REFUSALS[body[1]]}; see ?login=FILE")
        if body[1]:
            raise FrameError(_REFUSALS.get(body[1], f"refusal {body[1]}"))

    async def stay_alive(self) -> None:
        while not self._writer.is_closing():
            await asyncio.sleep(KEEPALIVE_S / 2)
            self._writer.write(_packet(PINGREQ, 0))

    async def publish(self, messages: list[bytes]) -> None:
        if self._reader.at_eof() or self._writer.is_closing():
            raise EOFError("the broker closed the connection")
        self._writer.writelines([_packet(PUBLISH, 0, self._topic, message) for message in messages])
        await self._writer.drain()

    async def listen(self, take: Take, listening: Callable[[], None]) -> None:
        self._writer.write(_packet(SUBSCRIBE, 2, struct.pack(">H", 1), self._topic, b"\x00"))
        while True:
            async with asyncio.timeout(2 * KEEPALIVE_S):
                kind, flags, body = await self._read()
            if kind == PUBLISH and not flags & 6:  # QoS 0, as asked for
                if not body.startswith(self._topic):
                    raise FrameError("a message of a topic without a subscription")
                await take(body[len(self._topic) :])
            elif kind == SUBACK:
                if body[-1:] == b"\x80":
                    raise HandshakeError("the broker refuses the subscription; its access rules say why")
                listening()
            elif kind not in (PINGRESP, PUBLISH):
                raise FrameError(f"unexpected packet of kind {kind}")

    async def _read(self) -> tuple[int, int, bytes]:
        """Kind, flags, body."""
        head = await self._reader.readexactly(1)
        length = shift = 0
        while True:
            (digit,) = await self._reader.readexactly(1)
            length |= (digit & 0x7F) << shift
            shift += 7
            if not digit & 0x80:
                break
            if shift > 21:
                raise FrameError("a packet with an invalid length")
        if length > self._packet_bytes_max:
            raise FrameError(f"a packet of {length} bytes exceeds the limit of {self._packet_bytes_max} bytes")
        return head[0] >> 4, head[0] & 15, await self._reader.readexactly(length)


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">H", len(encoded)) + encoded


def _packet(kind: int, flags: int, *parts: bytes) -> bytes:
    length = sum(map(len, parts))
    head = bytearray((kind << 4 | flags,))
    while True:
        length, digit = length >> 7, length & 0x7F
        head.append(digit | (0x80 if length else 0))
        if not length:
            return b"".join((head, *parts))
