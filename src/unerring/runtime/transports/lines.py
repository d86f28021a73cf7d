"""A consumer's direct ways to producers, on TCP: dialled when first needed, bounded, the least used making room.

They are how a consumer asks for what it missed, whatever event service the events themselves travel on.
"""

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
    Right,
    UnerringError,
    Who,
)
from unerring.runtime.frames import FramedConnection, framed
from unerring.runtime.guard import Guard
from unerring.runtime.reports import Reports
from unerring.runtime.sockets import dial, explain_tls, split_host
from unerring.runtime.transports.config import TransportConfig, parse_url
from unerring.runtime.transports.hello import GREETINGS, HELLO_BYTES_MAX, VERSION, Hello, Refused, Welcome


class Line:
    """The way to one producer: dialled, greeted, then frames both ways."""

    def __init__(self, ends: DirectLines, address: Address, subscribes: bool) -> None:
        self.address = address
        self.announced: Address = ""
        self.connection: FramedConnection | None = None
        """Set while welcomed and open."""
        self._ends = ends
        self._subscribes = subscribes
        self._dialled: FramedConnection | None = None
        """The same, from before the greeting on."""
        self._host, self._port = split_host(parse_url(address).place)
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0

    async def attempt(self, welcomed: Callable[[], None]) -> bool:
        """Dial, greet, and stay until the connection is over. Raises when it never came to be."""
        config = self._ends.config
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        connection = FramedConnection(HELLO_BYTES_MAX, config.outbox_bytes_max, _ignore, _ignore)
        connection.on_frame = lambda data: self._answered(connection, answer, data)
        await dial(self._host, self._port, config.tls, config.connect_us, lambda: connection, secret_file=config.secret)
        try:
            self._ends.guard.reload()
            self._ends.check_producer(self.address, connection)
            self._dialled = connection
            connection.send(GREETINGS.encode(Hello(VERSION, self._subscribes)))
            await asyncio.wait(
                (answer, connection.lost), timeout=config.handshake_us / 1e6, return_when=asyncio.FIRST_COMPLETED
            )
            self._check_answer(connection, answer)
            welcomed()
            reason = await asyncio.shield(connection.lost)
            if isinstance(reason, FrameError):
                self._ends.reports.note("tcp.bad_frame", f"{self.address}: {reason}; cut off")
            return True
        finally:
            self.connection = self._dialled = None
            connection.abandon()
            await connection.gone()

    def vet_again(self) -> None:
        """The policy has changed: a producer that has lost its rights is cut off, also in the middle of a greeting."""
        if self._dialled is not None:
            try:
                self._ends.check_producer(self.address, self._dialled)
            except HandshakeError as error:
                self._ends.reports.note("tcp.cut_off", str(error))
                self.connection = None  # nothing that is under way goes there any more
                self._dialled.fail(error)

    def _answered(self, connection: FramedConnection, answer: asyncio.Future[bytes], data: bytes) -> None:
        """The producer's first frame. What follows a welcome may already be in the same buffer."""
        if answer.done():
            return
        answer.set_result(data)
        with contextlib.suppress(FrameError):
            welcome = GREETINGS.decode(data)
            if isinstance(welcome, Welcome):
                self.announced = welcome.direct
                connection.frame_bytes_max = self._ends.config.frame_bytes_max
                connection.on_frame = self._take
                self.connection = connection
                if self._ends.paused:
                    connection.pause_reading()
                for waiting in self._waiting:
                    connection.write(waiting)
                self.drop_waiting()

    def _check_answer(self, connection: FramedConnection, answer: asyncio.Future[bytes]) -> None:
        if answer.done():
            try:
                greeting = GREETINGS.decode(answer.result())
            except FrameError as error:
                raise HandshakeError(f"{self.address} is not a producer of a reliable channel: {error}") from None
            if isinstance(greeting, Refused):
                raise HandshakeError(f"{self.address} refused the connection: {greeting.why}")
            if isinstance(greeting, Hello):
                raise HandshakeError(f"{self.address} is a consumer, not a producer; dial a producer's address")
            return
        if not connection.lost.done():
            raise NetworkError(f"{self.address} did not answer the greeting in time")
        reason = connection.lost.result()
        if isinstance(reason, HandshakeError):  # the policy changed meanwhile
            raise reason
        if isinstance(reason, ssl.SSLError):
            raise HandshakeError(f"{self.address}: {explain_tls(reason)}")
        if isinstance(reason, FrameError):
            raise HandshakeError(f"{self.address} is not a producer of a reliable channel: {reason}")
        if self._ends.config.tls:
            # asyncio does not send the alert that would say why.
            raise HandshakeError(
                f"{self.address} ended the connection after the TLS handshake: it may not trust our certificate "
                "(another CA, or expired); its own reports say why"
            )
        raise NetworkError(f"{self.address} closed the connection before it answered ({reason or 'no reason given'})")

    def _take(self, data: bytes) -> None:
        self._ends.receive(self.address, data)

    def send(self, data: bytes) -> bool:
        return self.connection is not None and self.connection.send(data)

    def wait(self, data: bytes) -> bool:
        """Keep a frame for a line that is being dialled, within the outbox's bound."""
        if self._waiting_bytes + len(data) > self._ends.config.outbox_bytes_max:
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


class DirectLines:
    """The lines of one consumer. `held` are those besides a subscription, which its owner looks after."""

    def __init__(self, config: TransportConfig, reports: Reports) -> None:
        self.config = config
        self.reports = reports
        self.receive: Receive = nobody
        self.paused = False
        self.held: dict[Address, tuple[Line, asyncio.Task[None]]] = {}
        self.guard = Guard(config.policy, reports)
        self.subscription: Line | None = None
        """The line that its owner looks after, if there is one."""

    def open(self, receive: Receive) -> None:
        self.receive = receive
        self.guard.watch(self._vet_again)

    def _vet_again(self) -> None:
        lines = [line for line, _ in self.held.values()]
        for line in lines if self.subscription is None else [self.subscription, *lines]:
            line.vet_again()

    def check_producer(self, address: Address, connection: FramedConnection) -> None:
        """Nobody is asked for a stream who may neither publish it, nor hand on what others published."""
        whos = connection.identities()
        if whos is None:
            return
        policy, stream = self.guard.policy, self.config.stream
        # A reader hands on batches that their producer signed.
        if not any(policy.allows_any(whos, right, stream) for right in (Right.PUBLISH, Right.RELAY, Right.READ)):
            why = self.guard.refusal(whos, Right.PUBLISH, stream)
            raise HandshakeError(f"{address}: {why}")

    def identities(self, sender: Address) -> tuple[Who, ...] | None:
        """Who answers at an address, by its certificate; None without TLS."""
        held = self.held.get(sender)
        if held is None or held[0].connection is None:
            return () if self.config.tls else None
        return held[0].connection.identities()

    def send(self, to: Address, data: bytes) -> None:
        """Directly to a producer; what cannot be sent is counted."""
        self.check_size(data)
        if not self.offer(to, data):
            self.reports.count("tcp.undeliverable")

    def check_size(self, data: bytes) -> None:
        if len(data) > self.config.frame_bytes_max:
            raise FrameError(f"a frame of {len(data)} bytes exceeds the limit of {self.config.frame_bytes_max} bytes")

    def offer(self, to: Address, data: bytes) -> bool:
        """The same, without the checks; False: not taken."""
        held = self.held.pop(to, None)
        if held is None:
            try:
                line = Line(self, to, subscribes=False)
            except CallerError as error:
                self.reports.note("tcp.bad_address", f"cannot send to {to!r}: {error}")
                return False
            while self.held and len(self.held) >= self.config.direct_links_max:
                _, task = self.held.pop(next(iter(self.held)))
                task.cancel()
            held = line, asyncio.create_task(self._speak(line))
        self.held[to] = held  # last in, last out
        line, _ = held
        return line.send(data) if line.connection is not None else line.wait(data)

    async def _speak(self, line: Line) -> None:
        try:
            await line.attempt(lambda: self.reports.count("tcp.direct_connected"))
        except UnerringError as error:
            self.reports.note("tcp.unreachable", str(error))
        finally:
            self.reports.count("tcp.undeliverable", line.drop_waiting())
            held = self.held.get(line.address)
            if held is not None and held[0] is line:
                del self.held[line.address]

    def pause_reading(self) -> None:
        self.paused = True
        for connection in self.open_connections():
            connection.pause_reading()

    def resume_reading(self) -> None:
        self.paused = False
        for connection in self.open_connections():
            connection.resume_reading()

    def open_connections(self) -> list[FramedConnection]:
        return [line.connection for line, _ in self.held.values() if line.connection is not None]

    async def close(self) -> None:
        """Write what was sent, within a bound, and close."""
        self.receive = nobody
        self.guard.close()
        tasks = [task for _, task in self.held.values()]
        await finish(self.open_connections(), self.config.flush_us)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def finish(connections: list[FramedConnection], within_us: int) -> None:
    for connection in connections:
        connection.finish()
    for connection in connections:
        await connection.closed(within_us)


def _ignore(_: object) -> None:
    """Replaced once the connection is welcomed."""


def nobody(sender: Address, data: bytes) -> None:
    """Before `open` and after `close` nobody listens."""
