"""An event service on TCP: one producer listens, many consumers dial. Pushed and direct frames share a socket.

A consumer greets with `Hello` and is answered `Welcome` or `Refused`; all further frames are the user's bytes.
"""

from __future__ import annotations

import asyncio
from typing import Final

from unerring.model import Address, FrameError, HandshakeError, Receive, Right, Who, invariant
from unerring.runtime.frames import HEADER, HEADER_BYTES, FramedConnection
from unerring.runtime.guard import TOLD, Guard
from unerring.runtime.halt import guard_loop
from unerring.runtime.reports import Reports
from unerring.runtime.sockets import Listener, join_host, listen, split_host
from unerring.runtime.transports.config import COALESCE_BYTES, TransportConfig, TransportUrl
from unerring.runtime.transports.hello import GREETINGS, HELLO_BYTES_MAX, VERSION, Hello, Refused, Welcome
from unerring.runtime.transports.patience import Patience
from unerring.runtime.transports.tcp_inlet import TcpInlet

LARGE_BYTES: Final = 16 * 1024
"""Frames that are so large on average are written as they are: a copy costs more than the system call's parts."""
YIELD_BYTES: Final = 256 * 1024
YIELD_FRAMES: Final = 64
"""After this much, `ready` lets the event loop read: requests must not wait behind an eager producer."""


def make_outlet(url: TransportUrl, config: TransportConfig, reports: Reports) -> TcpOutlet:
    return TcpOutlet(url, config, reports)


def make_inlet(url: TransportUrl, config: TransportConfig, reports: Reports) -> TcpInlet:
    return TcpInlet(url, config, reports)


class _Consumer:
    """One consumer's connection, as the producer sees it."""

    def __init__(self, outlet: TcpOutlet, address: Address) -> None:
        config = outlet.config
        self.connection = FramedConnection(HELLO_BYTES_MAX, config.outbox_bytes_max, self._greeted, self._lost)
        self.address = address
        self.greeted = False
        self.subscribed = False
        self.dropped = 0
        self._outlet = outlet
        self._deadline = asyncio.get_running_loop().call_later(config.handshake_us / 1e6, self._too_late)

    def _greeted(self, data: bytes) -> None:
        """The first frame says who is there; only then are frames of full size read."""
        outlet = self._outlet
        try:
            hello = GREETINGS.decode(data)
        except FrameError as error:
            self.connection.fail(error)
            return
        if not isinstance(hello, Hello) or hello.version != VERSION:
            theirs = f" and this consumer {hello.version}" if isinstance(hello, Hello) else ""
            speaks = f"this producer speaks version {VERSION} of the event service{theirs}"
            self._refuse(f"{speaks}; use the same release on both sides")
            return
        if not outlet.may_enter(self):
            self._refuse(TOLD)
            return
        self._deadline.cancel()
        self.connection.frame_bytes_max = outlet.config.frame_bytes_max
        self.connection.on_frame = self._take
        self.connection.send(GREETINGS.encode(Welcome(outlet.direct)))
        self.greeted = True
        outlet.admit(self, subscribes=hello.subscribes)

    def _refuse(self, why: str) -> None:
        self.connection.send(GREETINGS.encode(Refused(why)))
        self.connection.fail_after_sending(HandshakeError(f"told that {why}"))

    def _too_late(self) -> None:
        self.connection.fail(FrameError("no greeting arrived in time"))

    def _take(self, data: bytes) -> None:
        self._outlet.receive(self.address, data)

    def _lost(self, reason: Exception | None) -> None:
        self._deadline.cancel()
        self._outlet.forget(self, reason)


class TcpOutlet:
    """See `Outlet`. Every subscriber has a bounded outbox; the slowest one holds `ready` up, but not for ever."""

    def __init__(self, url: TransportUrl, config: TransportConfig, reports: Reports) -> None:
        self.config = config
        self.reports = reports
        self.receive: Receive = _nobody
        self._host, self._port = split_host(url.place)
        self._listener: Listener | None = None
        self._connections: dict[_Consumer, None] = {}
        self._consumers: dict[Address, _Consumer] = {}
        self._subscribers: dict[_Consumer, None] = {}
        self._patience: Patience[_Consumer] = Patience(config.patience_us, self._out_of_patience)
        self.guard = Guard(config.policy, reports)
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._flush_due = False
        self._since_yield_bytes = 0
        self._since_yield_frames = 0

    @property
    def direct(self) -> Address:
        return "tcp://" + join_host(self._host, self._port)

    async def open(self, receive: Receive) -> None:
        invariant(self._listener is None, "an outlet is opened once")
        guard_loop()
        self.receive = receive
        self._listener = await listen(
            self._host,
            self._port,
            self.config.tls,
            self._accept,
            handshake_us=self.config.handshake_us,
            handshakes_max=self.config.connections_max,
            reports=self.reports,
            prefix="tcp",
            secret_file=self.config.secret,
        )
        self.guard.watch(self._look_again)
        self._port = self._listener.port  # 0 asked for any free one

    def _accept(self, peer: str) -> FramedConnection | None:
        if len(self._connections) >= self.config.connections_max:
            return None
        consumer = _Consumer(self, "tcp://" + peer)
        self._connections[consumer] = None
        return consumer.connection

    def may_enter(self, consumer: _Consumer) -> bool:
        """Whether it may read this stream, and has not too many connections already."""
        whos = consumer.connection.identities()
        if self.guard.refusal(whos, Right.READ, self.config.stream) is not None:
            return False
        if whos is not None:
            same = sum(other.connection.identities() == whos for other in self._consumers.values())
            if same >= self.config.connections_per_peer_max:
                self.guard.note(f"{whos[0]} has {same} connections, its limit (connections_per_peer_max)")
                return False
        return True

    def _look_again(self) -> None:
        """The policy has changed: whoever has lost its rights is cut off."""
        for consumer in list(self._consumers.values()):
            if self.guard.refusal(consumer.connection.identities(), Right.READ, self.config.stream) is not None:
                consumer.connection.fail(HandshakeError("it may not read this any more"))

    def identities(self, sender: Address) -> tuple[Who, ...] | None:
        """Who a consumer is by its certificate; None without TLS."""
        consumer = self._consumers.get(sender)
        if consumer is None:
            return () if self.config.tls else None
        return consumer.connection.identities()

    def admit(self, consumer: _Consumer, subscribes: bool) -> None:
        """A consumer that greeted rightly."""
        self._consumers[consumer.address] = consumer
        self.reports.count("tcp.connected")
        if subscribes:
            self._flush()  # what was pushed before is not for the newcomer
            consumer.subscribed = True
            consumer.connection.on_congestion = lambda congested: self._congestion(consumer, congested)
            self._subscribers[consumer] = None

    def forget(self, consumer: _Consumer, reason: Exception | None) -> None:
        """A connection that is over."""
        if isinstance(reason, FrameError):
            self.reports.note("tcp.bad_frame", f"{consumer.address}: {reason}; cut off")
        elif not consumer.greeted:
            self.reports.note("tcp.refused", f"{consumer.address}: {reason or 'went away without a greeting'}")
        self._connections.pop(consumer, None)
        self._subscribers.pop(consumer, None)
        if self._consumers.get(consumer.address) is consumer:
            del self._consumers[consumer.address]
            self.reports.count("tcp.disconnected")
        self._patience.forget(consumer)

    # Sending

    def push(self, data: bytes) -> None:
        size = len(data)
        if size > self.config.frame_bytes_max:
            raise FrameError(
                f"a frame of {size} bytes exceeds the limit of {self.config.frame_bytes_max} bytes; send less at once"
            )
        if not self._subscribers:
            return
        self._pending.append(HEADER.pack(size))
        self._pending.append(data)
        self._pending_bytes += size
        if self._pending_bytes >= COALESCE_BYTES:
            self._flush()
        elif not self._flush_due:
            self._flush_due = True
            asyncio.get_running_loop().call_soon(self._flush_at_turn)

    def _flush_at_turn(self) -> None:
        self._flush_due = False
        self._flush()

    def _flush(self) -> None:
        """Join small frames once, for all subscribers; large ones need not be joined."""
        if not self._pending:
            return
        parts, self._pending = self._pending, []
        frames = len(parts) // 2
        size = self._pending_bytes + HEADER_BYTES * frames
        if size < LARGE_BYTES * frames:
            parts = [b"".join(parts)]
        self._since_yield_bytes += size
        self._since_yield_frames += frames
        self._pending_bytes = 0
        for consumer in self._subscribers:
            connection = consumer.connection
            if consumer in self._patience.lapsed or not (
                connection.write(parts[0]) if len(parts) == 1 else connection.write_parts(parts, size)
            ):
                consumer.dropped += frames
                self.reports.count("tcp.dropped", frames)

    def send(self, to: Address, data: bytes) -> None:
        consumer = self._consumers.get(to)
        if consumer is None:
            self.reports.count("tcp.undeliverable")
            return
        if consumer.subscribed:
            self._flush()  # keeps the order in which we were called
        if not consumer.connection.send(data):
            consumer.dropped += 1
            self.reports.count("tcp.dropped")

    # Waiting for subscribers

    def _congestion(self, consumer: _Consumer, congested: bool) -> None:
        if congested:
            self._patience.begin(consumer)
            return
        if consumer.dropped:
            self.reports.note(
                "tcp.resumed", f"{consumer.address}: reads again; {consumer.dropped} frames were dropped meanwhile"
            )
            consumer.dropped = 0
        self._patience.forget(consumer)

    def _out_of_patience(self, consumer: _Consumer) -> None:
        self.reports.note(
            "tcp.stalled",
            f"{consumer.address}: has not read for {self.config.patience_us / 1e6:g} s with its outbox half full; "
            "frames for it are dropped until it reads again",
        )

    async def ready(self) -> None:
        if self._since_yield_bytes + self._pending_bytes >= YIELD_BYTES or self._since_yield_frames >= YIELD_FRAMES:
            self._flush()
            self._since_yield_bytes = self._since_yield_frames = 0
            await asyncio.sleep(0)
        if self._patience.tried:
            await self._patience.wait()

    async def close(self) -> None:
        listener, self._listener = self._listener, None
        if listener is None:
            return
        self.guard.close()
        await listener.close()
        self._flush()
        self.receive = _nobody
        connections = [consumer.connection for consumer in self._connections]
        for connection in connections:
            connection.finish()
        await asyncio.gather(*(connection.closed(self.config.flush_us) for connection in connections))


def _nobody(sender: Address, data: bytes) -> None:
    """Before `open` and after `close` nobody listens."""
