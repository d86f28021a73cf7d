"""An event service on UDP: the producer's socket sends each frame to every subscriber, a datagram each.

What travels, behind two bytes that say what it is:

| datagram | from → to | holds |
|---|---|---|
| FRAME | producer → consumer | bytes sent so far, this datagram included; then the frame |
| SUBSCRIBE | consumer → producer | the highest such count seen, the room in its socket, whether it reads; repeated |
| WELCOME | producer → consumer | the count so far, then the producer's direct address |

Counts tell the producer what is under way, so that `ready` can wait before a reader's socket overflows; what is lost
all the same is the channel's business. Requests and answers go on TCP, as beside any other service.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import struct
from typing import Final

from unerring.model import Address, FrameError, NetworkError, Receive, invariant
from unerring.runtime.guard import Guard
from unerring.runtime.halt import guard_loop
from unerring.runtime.reports import Reports
from unerring.runtime.sockets import join_host, split_host
from unerring.runtime.transports.config import KIB, TransportConfig, TransportUrl, check_clear, parse_url
from unerring.runtime.transports.lines import DirectLines
from unerring.runtime.transports.tcp import YIELD_BYTES, YIELD_FRAMES, TcpOutlet

DATAGRAM_BYTES_MAX: Final = 60 * KIB
READ_DATAGRAMS: Final = 64
"""How many are read in one turn of the event loop."""
FRAME: Final = b"\xec\x66"
SUBSCRIBE: Final = b"\xec\x73"
WELCOME: Final = b"\xec\x77"
_FRAME: Final = struct.Struct("<2sQ")
_SUBSCRIBE: Final = struct.Struct("<2sQIB")
_WELCOME: Final = struct.Struct("<2sQ")
OVERHEAD_BYTES: Final = 1 * KIB
"""A generous bound for the kernel's memory of a datagram besides its bytes."""
REPEAT_S: Final = 0.2
LEASE_S: Final = 5.0
"""A subscriber that says nothing for so long is gone."""
PROGRESS_S: Final = 0.05
"""A reader that tells of no progress for so long has lost what was under way."""

Place = tuple[str, int]


def make_outlet(url: TransportUrl, config: TransportConfig, reports: Reports) -> UdpOutlet:
    return UdpOutlet(url, config, reports)


def make_inlet(url: TransportUrl, config: TransportConfig, reports: Reports) -> UdpInlet:
    return UdpInlet(url, config, reports)


class _Subscriber:
    def __init__(self, now_s: float, sent: int) -> None:
        self.heard_s = now_s
        self.progress_s = now_s
        self.seen = sent
        self.window_bytes = 0
        self.reads = True
        self.lapsed = False


class UdpOutlet:
    """See `Outlet`. A frame longer than a datagram is not pushed; consumers find the gap and fetch it directly."""

    push_bytes_max: Final = DATAGRAM_BYTES_MAX

    def __init__(self, url: TransportUrl, config: TransportConfig, reports: Reports) -> None:
        self.config = config
        self.reports = reports
        self._host, self._port = split_host(url.place)
        self._way = TcpOutlet(parse_url(f"tcp://{config.direct}"), config, reports)
        self._socket: socket.socket | None = None
        self._subscribers: dict[Place, _Subscriber] = {}
        self._sent = 0
        self._progress = asyncio.Event()
        self._since_yield_bytes = 0
        self._since_yield_frames = 0

    @property
    def direct(self) -> Address:
        return self._way.direct

    @property
    def url(self) -> str:
        """The address that consumers subscribe to; the port is known once open."""
        return "udp://" + join_host(self._host, self._port)

    async def open(self, receive: Receive) -> None:
        invariant(self._socket is None, "an outlet is opened once")
        guard_loop()
        await self._way.open(receive)
        try:
            self._socket = await datagram_socket(self._host, self._port, self.config)
        except BaseException:
            await self._way.close()
            raise
        self._port = self._socket.getsockname()[1]
        asyncio.get_running_loop().add_reader(self._socket, self._hear)

    def _hear(self) -> None:
        for _ in range(READ_DATAGRAMS):
            if self._socket is None:
                return
            try:
                data, place = self._socket.recvfrom(2048)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                continue  # a subscriber's host answered that the port is closed; its lease ends
            if len(data) != _SUBSCRIBE.size or data[:2] != SUBSCRIBE:
                self.reports.count("udp.foreign")
                continue
            self._renew(place[:2], *_SUBSCRIBE.unpack(data)[1:])

    def _renew(self, place: Place, seen: int, window_bytes: int, reads: int) -> None:
        now_s = asyncio.get_running_loop().time()
        subscriber = self._subscribers.get(place)
        if subscriber is None:
            for gone in [at for at, held in self._subscribers.items() if now_s - held.heard_s > LEASE_S]:
                del self._subscribers[gone]
            if len(self._subscribers) >= self.config.connections_max:
                self.reports.note("udp.refused", f"{join_host(*place)}: too many subscribers")
                return
            subscriber = self._subscribers[place] = _Subscriber(now_s, self._sent)
            self.reports.count("udp.connected")
        subscriber.heard_s = now_s
        subscriber.window_bytes = window_bytes
        if subscriber.seen < seen <= self._sent:
            subscriber.seen = seen
            subscriber.progress_s = now_s
        if bool(reads) != subscriber.reads:
            subscriber.reads = bool(reads)
            subscriber.progress_s = now_s
        if subscriber.reads:
            if subscriber.lapsed:
                self.reports.note("udp.resumed", f"{join_host(*place)}: reads again")
            subscriber.lapsed = False
        self._progress.set()
        self._send_to(place, _WELCOME.pack(WELCOME, self._sent) + self.direct.encode())

    def push(self, data: bytes) -> None:
        size = len(data)
        if size > self.config.frame_bytes_max:
            raise FrameError(
                f"a frame of {size} bytes exceeds the limit of {self.config.frame_bytes_max} bytes; send less at once"
            )
        if self._socket is None:
            return
        if size > DATAGRAM_BYTES_MAX:
            self.reports.count("udp.too_large")
            return
        self._sent += size + OVERHEAD_BYTES
        self._since_yield_bytes += size
        self._since_yield_frames += 1
        datagram = _FRAME.pack(FRAME, self._sent) + data
        for place in self._subscribers:
            self._send_to(place, datagram)

    def _send_to(self, place: Place, datagram: bytes) -> None:
        try:
            if self._socket is not None:
                self._socket.sendto(datagram, place)
        except OSError:  # the kernel has no room, or the way there is down
            self.reports.count("udp.dropped")

    def send(self, to: Address, data: bytes) -> None:
        self._way.send(to, data)

    async def ready(self) -> None:
        if self._since_yield_bytes >= YIELD_BYTES or self._since_yield_frames >= YIELD_FRAMES:
            self._since_yield_bytes = self._since_yield_frames = 0
            await asyncio.sleep(0)
        while self._socket is not None and (wait_s := self._wait_s()) > 0:
            self._progress.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._progress.wait()

    def _wait_s(self) -> float:
        """How long to wait for readers whose sockets are full; those out of time are no longer waited for."""
        sent, longest_s = self._sent, 0.0
        for place, subscriber in list(self._subscribers.items()):
            if subscriber.lapsed or sent - subscriber.seen <= subscriber.window_bytes:
                continue
            now_s = asyncio.get_running_loop().time()
            patience_s = PROGRESS_S if subscriber.reads else self.config.patience_us / 1e6
            left_s = subscriber.progress_s + patience_s - now_s
            if left_s > 0:
                longest_s = max(longest_s, left_s)
            elif now_s - subscriber.heard_s > LEASE_S:
                del self._subscribers[place]
            elif subscriber.reads:
                subscriber.seen, subscriber.progress_s = sent, now_s
            else:
                subscriber.lapsed = True
                self.reports.note(
                    "udp.stalled", f"{join_host(*place)}: does not read; it loses frames until it reads again"
                )
        return longest_s

    async def close(self) -> None:
        opened, self._socket = self._socket, None
        if opened is not None:
            asyncio.get_running_loop().remove_reader(opened)
            opened.close()
        self._progress.set()
        await self._way.close()


class UdpInlet:
    """See `Inlet`. It says again and again that it is there, so a producer that comes back finds it."""

    def __init__(self, url: TransportUrl, config: TransportConfig, reports: Reports) -> None:
        self.config = config
        self.reports = reports
        self._url = url.text
        self._place = split_host(url.place)
        self._lines = DirectLines(config, reports)
        self._socket: socket.socket | None = None
        self._producer: Place = ("", 0)
        self._sender: Address = ""
        self._seen = 0
        self._acknowledged = 0
        self._welcomed_s = 0.0
        self._window_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._welcome = asyncio.Event()

    @property
    def guard(self) -> Guard:
        return self._lines.guard

    @property
    def subscribed(self) -> bool:
        """Whether the producer answered lately."""
        return bool(self._sender) and asyncio.get_running_loop().time() - self._welcomed_s < 3 * REPEAT_S

    async def open(self, receive: Receive) -> None:
        """Waits for a producer's answer, within a bound: one that is away for now is found when it comes."""
        invariant(self._socket is None, "an inlet is opened once")
        guard_loop()
        loop = asyncio.get_running_loop()
        try:
            resolved = await loop.getaddrinfo(*self._place, type=socket.SOCK_DGRAM)
        except OSError as error:
            raise NetworkError(f"cannot reach {self._url}: {error}") from None
        self._producer = resolved[0][4][:2]  # type: ignore[assignment]
        self._socket = opened = await datagram_socket(wildcard_near(self._producer[0]), 0, self.config)
        self._lines.open(receive)
        self._window_bytes = opened.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
        loop.add_reader(opened, self._read)
        self._repeat()
        try:
            async with asyncio.timeout(min(self.config.connect_us / 1e6, 2 * REPEAT_S)):
                await self._welcome.wait()
        except TimeoutError:
            self.reports.note("udp.unreachable", f"{self._url}: no producer answers there; it is waited for")

    def _repeat(self) -> None:
        self._tell()
        self._timer = asyncio.get_running_loop().call_later(REPEAT_S, self._repeat)

    def _tell(self) -> None:
        self._acknowledged = self._seen
        if self._socket is not None:
            with contextlib.suppress(OSError):  # it is sent again soon
                frame = _SUBSCRIBE.pack(SUBSCRIBE, self._seen, self._window_bytes, not self._lines.paused)
                self._socket.sendto(frame, self._producer)

    def _read(self) -> None:
        for _ in range(READ_DATAGRAMS):
            opened = self._socket
            if opened is None or self._lines.paused:
                return
            try:
                data, place = opened.recvfrom(65536)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                continue  # the producer's host answered that the port is closed
            kind = data[:2]
            if place[:2] != self._producer or (kind != FRAME and kind != WELCOME) or len(data) < _FRAME.size:
                self.reports.count("udp.foreign")
            elif kind == WELCOME:
                self._welcomed(data)
            elif self._sender:
                self._seen = max(_FRAME.unpack_from(data)[1], self._seen)
                if self._seen - self._acknowledged > self._window_bytes // 4:
                    self._tell()
                self._lines.receive(self._sender, data[_FRAME.size :])

    def _welcomed(self, data: bytes) -> None:
        sender = data[_WELCOME.size :].decode("ascii", "replace")
        if sender != self._sender:
            self._sender = sender
            self.reports.count("udp.subscribed")
        # The first one, or one that restarted: its count starts anew.
        self._seen = min(_WELCOME.unpack_from(data)[1], self._seen or (1 << 64))
        self._welcomed_s = asyncio.get_running_loop().time()
        self._welcome.set()

    def send(self, to: Address, data: bytes) -> None:
        self._lines.send(to, data)

    def pause_reading(self) -> None:
        if self._socket is not None and not self._lines.paused:
            self._lines.pause_reading()
            asyncio.get_running_loop().remove_reader(self._socket)
            self._tell()

    def resume_reading(self) -> None:
        if self._socket is not None and self._lines.paused:
            self._lines.resume_reading()
            asyncio.get_running_loop().add_reader(self._socket, self._read)
            self._tell()

    async def close(self) -> None:
        opened, self._socket = self._socket, None
        if self._timer is not None:
            self._timer.cancel()
        if opened is not None:
            asyncio.get_running_loop().remove_reader(opened)
            opened.close()
        await self._lines.close()


def wildcard_near(host: str) -> str:
    """Where to bind to be reached from `host`: loopback for loopback."""
    address = ipaddress.ip_address(host)
    if address.is_loopback:
        return host
    return "::" if address.version == 6 else "0.0.0.0"


async def datagram_socket(host: str, port: int, config: TransportConfig) -> socket.socket:
    """A bound socket with as much room as the kernel grants. Loopback only, unless the direct way has TLS and frames
    are signed."""
    where = join_host(host, port)
    try:
        resolved = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise NetworkError(f"cannot bind {where}: {error}") from None
    family, kind, protocol, _, address = resolved[0]
    if not ipaddress.ip_address(address[0]).is_loopback:
        check_clear(config, f"udp://{where}")
    made = socket.socket(family, kind, protocol)
    try:
        made.setblocking(False)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            made.setsockopt(socket.SOL_SOCKET, option, config.outbox_bytes_max)
        made.bind(address)
    except OSError as error:
        made.close()
        raise NetworkError(f"cannot bind {where}: {error.strerror}") from None
    return made
