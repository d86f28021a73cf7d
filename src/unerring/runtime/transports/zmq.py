"""ZeroMQ PUB/SUB: zmq://host:port, where the producer binds. By itself PUB drops what a slow reader has no room for.

The producer asks libzmq to say so instead, waits up to its patience, and only then lets libzmq drop.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import zmq
import zmq.asyncio
from zmq.utils.monitor import recv_monitor_message

from unerring.model import ConfigError, HandshakeError, NetworkError
from unerring.runtime.reports import Reports
from unerring.runtime.sockets import is_loopback, join_host, split_host
from unerring.runtime.transports.config import KIB, TransportConfig, TransportUrl, check_clear
from unerring.runtime.transports.foreign import ENVELOPE_BYTES_MAX, ForeignInlet, ForeignOutlet, Session, Take

WELCOME: Final = b"unerring subscribed"
"""The first message to a subscriber: its subscription is in force. All get it each time; who has had it reads on.

libzmq's own welcome (XPUB_WELCOME_MSG) does not say that: it goes out when the connection is there, before the
subscription has come.
"""
SUBSCRIBED: Final = b"\x01"
"""How ZeroMQ begins a message that subscribes; another one ends a subscription."""
LOOK_AGAIN_S: Final = 0.001
"""libzmq does not say when a reader has room again."""
ALIVE_MS: Final = 2000
_AWAY: Final = (zmq.EVENT_CONNECT_RETRIED, zmq.EVENT_DISCONNECTED, zmq.EVENT_CLOSED)
_STRANGER: Final = (
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL,
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL,
    zmq.EVENT_HANDSHAKE_FAILED_AUTH,
)


def make_outlet(url: TransportUrl, config: TransportConfig, reports: Reports) -> ForeignOutlet:
    return ForeignOutlet(ZmqService(url, config, reports, binds=True), config, reports)


def make_inlet(url: TransportUrl, config: TransportConfig, reports: Reports) -> ForeignInlet:
    return ForeignInlet(ZmqService(url, config, reports, binds=False), config, reports)


class ZmqService:
    """See `Service`."""

    scheme = "zmq"
    faults: tuple[type[Exception], ...] = (zmq.ZMQError, OSError)

    def __init__(self, url: TransportUrl, config: TransportConfig, reports: Reports, binds: bool) -> None:
        self.url = url.text
        self._host, self._port = split_host(url.place)
        self._config = config
        self._reports = reports
        self._binds = binds
        self.message_bytes_max = config.frame_bytes_max + ENVELOPE_BYTES_MAX
        self._queued_max = max(16, config.outbox_bytes_max // (64 * KIB))

    @contextlib.asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        """libzmq's own thread and sockets last as long as the session."""
        context = zmq.asyncio.Context()
        socket: Any = None
        session: _Publishing | _Subscribing | None = None
        try:
            if self._binds:
                socket = self._bound(context)
                session = _Publishing(socket, self._config.patience_us, self._reports)
            else:
                if not await asyncio.to_thread(is_loopback, self._host):
                    check_clear(self._config, self.url)
                socket = self._subscribed(context)
                place = f"tcp://{join_host(self._host, self._port)}"
                session = _Subscribing(socket, place, self.url, self._config.connect_us)
            yield session
        finally:
            if session is not None:
                session.close()
            if socket is not None:
                socket.close()
            # Waits for what is queued, within the socket's linger: beside the event loop, not on it. Who is cancelled
            # meanwhile does not wait, but the context is ended all the same.
            await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, context.term))

    def _bound(self, context: zmq.asyncio.Context) -> Any:
        try:
            loopback = ipaddress.ip_address(self._host).is_loopback
        except ValueError:
            raise ConfigError(f"{self.url!r}: a producer listens at an IP address, such as 127.0.0.1") from None
        if not loopback:
            check_clear(self._config, self.url)
        plain: Any = zmq.Context.shadow(context).socket(zmq.XPUB)
        plain.setsockopt(zmq.LINGER, self._config.flush_us // 1000)
        plain.setsockopt(zmq.SNDHWM, self._queued_max)
        plain.setsockopt(zmq.HEARTBEAT_IVL, ALIVE_MS)
        plain.setsockopt(zmq.XPUB_NODROP, 1)
        plain.setsockopt(zmq.XPUB_VERBOSE, 1)  # also the second subscriber's subscription comes up to be read
        try:
            plain.bind(f"tcp://{join_host(self._host, self._port)}")
        except zmq.ZMQError as error:
            plain.close(0)
            raise NetworkError(f"cannot listen at {self.url}: {error}") from None
        return plain

    def _subscribed(self, context: zmq.asyncio.Context) -> Any:
        socket = context.socket(zmq.SUB)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVHWM, self._queued_max)
        socket.setsockopt(zmq.MAXMSGSIZE, self.message_bytes_max)
        socket.setsockopt(zmq.HEARTBEAT_IVL, ALIVE_MS)
        socket.setsockopt(zmq.SUBSCRIBE, b"")
        return socket


class _Publishing:
    def __init__(self, socket: Any, patience_us: int, reports: Reports) -> None:
        self._socket = socket
        self._patience_s = patience_us / 1e6
        self._reports = reports
        self._lapsed = False
        self._unwelcomed = False
        self._again: asyncio.TimerHandle | None = None

        self._fd = socket.getsockopt(zmq.FD)
        asyncio.get_running_loop().add_reader(self._fd, self._hear)
        self._hear()

    def _hear(self) -> None:
        """Read subscriptions and welcome the subscribers: one is in force only once it was read here."""
        with contextlib.suppress(zmq.Again):
            while True:
                self._unwelcomed |= self._socket.recv(zmq.NOBLOCK)[:1] == SUBSCRIBED
        if self._unwelcomed:
            self._unwelcomed = not self._offer(WELCOME)
        if self._unwelcomed and self._again is None:
            self._again = asyncio.get_running_loop().call_later(LOOK_AGAIN_S, self._hear_again)

    def _hear_again(self) -> None:
        self._again = None
        self._hear()

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._fd)
        if self._again is not None:
            self._again.cancel()

    async def publish(self, messages: list[bytes]) -> None:
        for message in messages:
            if not self._offer(message):
                await self._insist(message)
        self._hear()  # sending may have swallowed the sign that there is something to read

    def _offer(self, message: bytes) -> bool:
        try:
            self._socket.send(message, zmq.NOBLOCK)
        except zmq.Again:
            return False
        self._lapsed = False
        return True

    async def _insist(self, message: bytes) -> None:
        """A reader has no room: wait while patience lasts, then let libzmq drop for it."""
        deadline_s = time.monotonic() + (0.0 if self._lapsed else self._patience_s)
        while time.monotonic() < deadline_s:
            await asyncio.sleep(LOOK_AGAIN_S)
            if self._offer(message):
                return
        self._lapsed = True
        self._socket.setsockopt(zmq.XPUB_NODROP, 0)
        self._socket.send(message, zmq.NOBLOCK)
        self._socket.setsockopt(zmq.XPUB_NODROP, 1)
        self._reports.count("zmq.dropped")

    async def listen(self, take: Take, listening: Callable[[], None]) -> None:
        raise ConfigError("a producer's socket does not listen")


class _Subscribing:
    def __init__(self, socket: zmq.asyncio.Socket, place: str, url: str, connect_us: int) -> None:
        self._socket = socket
        self._place = place
        self._url = url
        self._connect_us = connect_us

    def close(self) -> None:
        """Nothing of its own to let go of."""

    async def publish(self, messages: list[bytes]) -> None:
        raise ConfigError("a consumer's socket does not publish")

    async def listen(self, take: Take, listening: Callable[[], None]) -> None:
        watch = self._socket.get_monitor_socket()
        self._socket.connect(self._place)
        reading = asyncio.create_task(self._read(take, listening))
        watching = asyncio.create_task(self._watch(watch))
        try:
            done, _ = await asyncio.wait((reading, watching), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            reading.cancel()
            watching.cancel()
            await asyncio.gather(reading, watching, return_exceptions=True)
            self._socket.disable_monitor()
            watch.close(0)

    async def _read(self, take: Take, listening: Callable[[], None]) -> None:
        try:
            async with asyncio.timeout(self._connect_us / 1e6):
                while await self._socket.recv() != WELCOME:
                    pass  # the end of what was queued before
        except TimeoutError:
            raise HandshakeError(f"{self._url}: the server there does not greet as a producer does") from None
        listening()
        while True:
            message = await self._socket.recv()
            if message != WELCOME:
                await take(message)

    async def _watch(self, watch: Any) -> None:
        while True:
            event = (await recv_monitor_message(watch))["event"]
            if event in _STRANGER:
                raise HandshakeError(f"{self._url}: the server there does not speak this version of ZeroMQ")
            if event in _AWAY:
                raise NetworkError(f"cannot reach {self._url}: nothing listens there, or the connection was closed")
