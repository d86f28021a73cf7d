"""A consumer's side on TCP: subscribed at one producer, redialling by itself, speaking to other producers directly."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable

from unerring.model import (
    Address,
    CallerError,
    FrameError,
    HandshakeError,
    NetworkError,
    Receive,
    UnerringError,
    invariant,
)
from unerring.runtime.frames import FramedConnection, framed
from unerring.runtime.halt import guard_loop
from unerring.runtime.reports import Reports
from unerring.runtime.sockets import dial, explain_tls, redial, split_host
from unerring.runtime.transports.config import TransportConfig, TransportUrl, parse_url
from unerring.runtime.transports.hello import GREETINGS, HELLO_BYTES_MAX, VERSION, Hello, Refused, Welcome


class _Line:
    """The way to one producer: dialled, greeted, then frames both ways."""

    def __init__(self, inlet: TcpInlet, address: Address, subscribes: bool) -> None:
        self.address = address
        self.announced: Address = ""
        self.connection: FramedConnection | None = None
        """Set while welcomed and open."""
        self._inlet = inlet
        self._subscribes = subscribes
        self._host, self._port = split_host(parse_url(address).place)
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0

    async def attempt(self, welcomed: Callable[[], None]) -> bool:
        """Dial, greet, and stay until the connection is over. Raises when it never came to be."""
        config = self._inlet.config
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        connection = FramedConnection(HELLO_BYTES_MAX, config.outbox_bytes_max, _ignore, _ignore)
        connection.on_frame = lambda data: self._answered(connection, answer, data)
        await dial(self._host, self._port, config.tls, config.connect_us, lambda: connection)
        try:
            connection.send(GREETINGS.encode(Hello(VERSION, self._subscribes)))
            await asyncio.wait(
                (answer, connection.lost), timeout=config.handshake_us / 1e6, return_when=asyncio.FIRST_COMPLETED
            )
            self._check_answer(connection, answer)
            welcomed()
            reason = await asyncio.shield(connection.lost)
            if isinstance(reason, FrameError):
                self._inlet.reports.note("tcp.bad_frame", f"{self.address}: {reason}; cut off")
            return True
        finally:
            self.connection = None
            connection.abandon()
            await connection.gone()

    def _answered(self, connection: FramedConnection, answer: asyncio.Future[bytes], data: bytes) -> None:
        """The producer's first frame. What follows a welcome may already be in the same buffer."""
        if answer.done():
            return
        answer.set_result(data)
        with contextlib.suppress(FrameError):
            welcome = GREETINGS.decode(data)
            if isinstance(welcome, Welcome):
                self.announced = welcome.direct
                connection.frame_bytes_max = self._inlet.config.frame_bytes_max
                connection.on_frame = self._take
                self.connection = connection
                if self._inlet.paused:
                    connection.pause_reading()
                for waiting in self._waiting:
                    connection.write(waiting)
                self.drop_waiting()

    def _check_answer(self, connection: FramedConnection, answer: asyncio.Future[bytes]) -> None:
        if answer.done():
            try:
                greeting = GREETINGS.decode(answer.result())
            except FrameError as error:
                raise HandshakeError(f"{self.address} is not a producer of ours: {error}") from None
            if isinstance(greeting, Refused):
                raise HandshakeError(f"{self.address} refused us: {greeting.why}")
            if isinstance(greeting, Hello):
                raise HandshakeError(f"{self.address} is a consumer, not a producer; dial a producer's address")
            return
        if not connection.lost.done():
            raise NetworkError(f"{self.address} did not answer our greeting in time")
        reason = connection.lost.result()
        if isinstance(reason, ssl.SSLError):
            raise HandshakeError(f"{self.address}: {explain_tls(reason)}")
        if isinstance(reason, FrameError):
            raise HandshakeError(f"{self.address} is not a producer of ours: {reason}")
        if self._inlet.config.tls:
            # asyncio does not send the alert that would say why.
            raise HandshakeError(
                f"{self.address} ended the connection after the TLS handshake: it may not trust our certificate "
                "(another CA, or expired); its own reports say why"
            )
        raise NetworkError(f"{self.address} closed the connection before it answered ({reason or 'no reason given'})")

    def _take(self, data: bytes) -> None:
        self._inlet.receive(self.address, data)

    def send(self, data: bytes) -> bool:
        return self.connection is not None and self.connection.send(data)

    def wait(self, data: bytes) -> bool:
        """Keep a frame for a line that is being dialled, within the outbox's bound."""
        if self._waiting_bytes + len(data) > self._inlet.config.outbox_bytes_max:
            return False
        self._waiting.append(framed(data))
        self._waiting_bytes += len(data)
        return True

    def drop_waiting(self) -> int:
        """Give up on what waits; how many frames that were."""
        dropped = len(self._waiting)
        self._waiting.clear()
        self._waiting_bytes = 0
        return dropped


class TcpInlet:
    """See `Inlet`. `open` waits for the first attempt to end, so that what is pushed after it comes in."""

    def __init__(self, url: TransportUrl, config: TransportConfig, reports: Reports) -> None:
        self.config = config
        self.reports = reports
        self.receive: Receive = _nobody
        self.paused = False
        self._subscription = _Line(self, url.text, subscribes=True)
        self._task: asyncio.Task[None] | None = None
        self._first: asyncio.Future[None] | None = None
        self._direct: dict[Address, tuple[_Line, asyncio.Task[None]]] = {}

    @property
    def subscribed(self) -> bool:
        """Whether the producer is there at this moment."""
        return self._subscription.connection is not None

    async def open(self, receive: Receive) -> None:
        invariant(self._task is None, "an inlet is opened once")
        guard_loop()
        self.receive = receive
        self._first = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(
            redial(self._subscribe, self.config.redial_min_us, self.config.redial_max_us, self._failed)
        )
        try:
            await self._first  # a producer that refuses us is the caller's to mend; one that is away comes back
        except BaseException:
            await self.close()
            raise

    async def _subscribe(self) -> bool:
        return await self._subscription.attempt(self._welcomed)

    def _welcomed(self) -> None:
        self.reports.count("tcp.subscribed")
        self._settle_first(None)

    def _failed(self, error: UnerringError) -> None:
        self.reports.note("tcp.unreachable", str(error))
        self._settle_first(None if isinstance(error, NetworkError) else error)

    def _settle_first(self, error: UnerringError | None) -> None:
        if self._first is not None and not self._first.done():
            if error is None:
                self._first.set_result(None)
            else:
                self._first.set_exception(error)

    def send(self, to: Address, data: bytes) -> None:
        if len(data) > self.config.frame_bytes_max:
            raise FrameError(f"a frame of {len(data)} bytes is over the limit of {self.config.frame_bytes_max}")
        line = self._subscription
        taken = line.send(data) if to in (line.address, line.announced) else self._send_elsewhere(to, data)
        if not taken:
            self.reports.count("tcp.undeliverable")

    def _send_elsewhere(self, to: Address, data: bytes) -> bool:
        """To a producer that we are not subscribed to (it publishes through a relay, say)."""
        held = self._direct.pop(to, None)
        if held is None:
            try:
                line = _Line(self, to, subscribes=False)
            except CallerError as error:
                self.reports.note("tcp.bad_address", f"cannot send to {to!r}: {error}")
                return False
            while self._direct and len(self._direct) >= self.config.direct_links_max:
                _, task = self._direct.pop(next(iter(self._direct)))
                task.cancel()
            held = line, asyncio.create_task(self._speak_directly(line))
        self._direct[to] = held  # last in, last out
        line, _ = held
        return line.send(data) if line.connection is not None else line.wait(data)

    async def _speak_directly(self, line: _Line) -> None:
        try:
            await line.attempt(lambda: self.reports.count("tcp.direct_connected"))
        except UnerringError as error:
            self.reports.note("tcp.unreachable", str(error))
        finally:
            self.reports.count("tcp.undeliverable", line.drop_waiting())
            held = self._direct.get(line.address)
            if held is not None and held[0] is line:
                del self._direct[line.address]

    def pause_reading(self) -> None:
        self.paused = True
        for connection in self._open_connections():
            connection.pause_reading()

    def resume_reading(self) -> None:
        self.paused = False
        for connection in self._open_connections():
            connection.resume_reading()

    def _open_connections(self) -> list[FramedConnection]:
        lines = [self._subscription, *(line for line, _ in self._direct.values())]
        return [line.connection for line in lines if line.connection is not None]

    async def close(self) -> None:
        self.receive = _nobody
        tasks = [task for task in (self._task, *(task for _, task in self._direct.values())) if task is not None]
        for connection in self._open_connections():
            connection.finish()
        for connection in self._open_connections():
            await connection.closed(self.config.flush_us)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _ignore(_: object) -> None:
    """Replaced once the connection is welcomed."""


def _nobody(sender: Address, data: bytes) -> None:
    """Before `open` and after `close` nobody listens."""
