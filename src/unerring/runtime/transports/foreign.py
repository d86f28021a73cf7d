"""Event services that others wrote: what they have in common, so that each is a small file.

A message on the service is an envelope and a frame. The envelope names the producer's direct address, so that whoever
hears one frame can ask for those before it; messages without it are other programs' and are counted, not read. Requests
and answers go beside the service, on TCP straight between consumer and producer, with mutual TLS when that is on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from itertools import islice
from typing import Final, Protocol

from unerring.model import (
    Address,
    CallerError,
    ConfigError,
    FrameError,
    HandshakeError,
    NetworkError,
    Receive,
    UnerringError,
    Who,
    invariant,
)
from unerring.runtime.guard import Guard
from unerring.runtime.halt import guard_loop
from unerring.runtime.reports import Reports
from unerring.runtime.sockets import redial, split_host
from unerring.runtime.transports.config import TransportConfig, TransportUrl, parse_url
from unerring.runtime.transports.lines import DirectLines
from unerring.runtime.transports.patience import Patience
from unerring.runtime.transports.tcp import YIELD_BYTES, YIELD_FRAMES, TcpOutlet

MAGIC: Final = b"\xec\x55"
ENVELOPE_BYTES_MAX: Final = len(MAGIC) + 1 + 255
SENDERS_KEPT_MAX: Final = 1024
TOGETHER_MAX: Final = 64
"""Messages given to the service's client at once; fewer where they are large."""

Take = Callable[[bytes], Awaitable[None]]


class Session(Protocol):
    """One connection to a service, while it lasts."""

    async def publish(self, messages: list[bytes]) -> None:
        """To all subscribers, in order; may wait while the service does not read."""
        ...

    async def listen(self, take: Take, listening: Callable[[], None]) -> None:
        """Subscribe, call `listening` once that is in force, then give each message to `take` until the end.

        While `take` waits the application reads nothing: the service's own bounds decide what is lost.
        """
        ...


class Service(Protocol):
    """One service: how to reach it, and which of its library's errors mean that the connection is over."""

    scheme: str
    url: str
    faults: tuple[type[Exception], ...]

    @property
    def message_bytes_max(self) -> int:
        """The longest message that passes."""
        ...

    def session(self) -> AbstractAsyncContextManager[Session]:
        """Connect; NetworkError: nobody there, HandshakeError: somebody there who is not our service or refuses us."""
        ...


def place_and_name(url: TransportUrl, noun: str) -> tuple[str, int, str]:
    """`host:port/name`"""
    place, _, name = url.place.partition("/")
    if not name:
        raise ConfigError(f"{url.text!r} names no {noun}; write {url.scheme}://host:port/{noun}")
    host, port = split_host(place)
    return host, port, name


@contextlib.asynccontextmanager
async def explained(service: Service) -> AsyncIterator[None]:
    """A library's own errors as the world's fault."""
    try:
        yield
    except service.faults as error:
        raise NetworkError(
            f"{service.url}: the connection was closed ({str(error) or type(error).__name__})"
        ) from error


def seal(direct: Address) -> bytes:
    """The envelope of everything that the producer at `direct` pushes."""
    place = direct.removeprefix("tcp://").encode()
    if len(place) > 255:
        raise ConfigError(f"the direct address {direct!r} is too long for an envelope")
    return MAGIC + bytes((len(place),)) + place


class Envelopes:
    """Opens envelopes; remembers whom it has read about, within a bound."""

    def __init__(self) -> None:
        self._senders: dict[bytes, Address] = {}

    def open(self, message: bytes) -> tuple[Address, bytes] | None:
        """Sender and frame; None: not ours."""
        if message[:2] != MAGIC or len(message) < 3:
            return None
        end = 3 + message[2]
        sender = self._senders.get(message[3:end]) or self._read(message[3:end])
        return None if sender is None or len(message) < end else (sender, message[end:])

    def _read(self, place: bytes) -> Address | None:
        try:
            address = "tcp://" + place.decode("ascii")
            split_host(parse_url(address).place)
        except (UnicodeDecodeError, ConfigError):
            return None
        while len(self._senders) >= SENDERS_KEPT_MAX:
            del self._senders[next(iter(self._senders))]
        self._senders[place] = address
        return address


class _Attempts:
    """Connects again and again in a task; the first attempt's end is waited for."""

    def __init__(self, service: Service, config: TransportConfig, reports: Reports) -> None:
        self.connected = False
        self._service = service
        self._config = config
        self._reports = reports
        self._task: asyncio.Task[None] | None = None
        self._first: asyncio.Future[None] | None = None

    async def start(self, attempt: Callable[[], Awaitable[None]], absence_raises: bool) -> None:
        invariant(self._task is None, "opened once")
        guard_loop()
        first = self._first = asyncio.get_running_loop().create_future()

        async def once() -> bool:
            try:
                async with explained(self._service):
                    await attempt()
            except UnerringError as error:
                if not self.connected:
                    raise
                failed(error)
            finally:
                useful, self.connected = self.connected, False
            return useful

        def failed(error: UnerringError) -> None:
            self._reports.note(f"{self._service.scheme}.unreachable", str(error))
            if not first.done():
                if absence_raises or isinstance(error, HandshakeError | CallerError):
                    first.set_exception(error)
                else:
                    first.set_result(None)

        self._task = asyncio.create_task(redial(once, self._config.redial_min_us, self._config.redial_max_us, failed))
        await first

    def welcomed(self) -> None:
        self.connected = True
        self._reports.count(f"{self._service.scheme}.connected")
        if self._first is not None and not self._first.done():
            self._first.set_result(None)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


class ForeignOutlet:
    """See `Outlet`. What the service does not take at once waits in a bounded outbox, also while the service is away.

    A frame too long for the service is not pushed; consumers find the gap and fetch it on the direct way.
    """

    def __init__(self, service: Service, config: TransportConfig, reports: Reports) -> None:
        self.config = config
        self.reports = reports
        self._service = service
        self._scheme = service.scheme
        self._way = TcpOutlet(parse_url(f"tcp://{config.direct}"), config, reports)
        self._attempts = _Attempts(service, config, reports)
        self._patience: Patience[str] = Patience(config.patience_us, self._out_of_patience)
        self._envelope = b""
        self._outbox: deque[bytes] = deque()
        self._outbox_bytes = 0
        self._filled = asyncio.Event()
        self._emptied = asyncio.Event()
        self._emptied.set()
        self._dropped = 0
        self._since_yield_bytes = 0
        self._since_yield_frames = 0
        self._open = False

    @property
    def direct(self) -> Address:
        return self._way.direct

    @property
    def guard(self) -> Guard:
        return self._way.guard

    def identities(self, sender: Address) -> tuple[Who, ...] | None:
        """Who a consumer is that asks on the direct way."""
        return self._way.identities(sender)

    @property
    def push_bytes_max(self) -> int:
        """The size of one message; longer batches are divided by whoever makes them."""
        return min(self._service.message_bytes_max - ENVELOPE_BYTES_MAX, self.config.frame_bytes_max)

    @property
    def connected(self) -> bool:
        """Whether the service is there at this moment."""
        return self._attempts.connected

    async def open(self, receive: Receive) -> None:
        await self._way.open(receive)
        self._envelope = seal(self.direct)
        self._open = True
        try:
            await self._attempts.start(self._serve, absence_raises=True)
        except BaseException:
            self._outbox.clear()
            await self.close()
            raise

    async def _serve(self) -> None:
        outbox = self._outbox
        async with self._service.session() as session:
            self._attempts.welcomed()
            while True:
                while outbox:
                    together = self._together()
                    await session.publish(together)
                    for _ in together:
                        self._outbox_bytes -= len(outbox.popleft())
                    if self._patience.tried or self._patience.lapsed:
                        self._relieve()
                self._emptied.set()
                self._filled.clear()
                await self._filled.wait()

    def _together(self) -> list[bytes]:
        """The next messages for the client: not so many that it joins megabytes, in new memory each time."""
        together, size = [], 0
        for message in islice(self._outbox, TOGETHER_MAX):
            together.append(message)
            size += len(message)
            if size >= YIELD_BYTES:
                break
        return together

    def _relieve(self) -> None:
        if self._outbox_bytes <= self.config.outbox_bytes_max // 8:
            self._patience.forget(self._service.url)
            if self._dropped:
                self.reports.note(
                    f"{self._scheme}.resumed", f"{self._service.url}: takes frames again; {self._dropped} were dropped"
                )
                self._dropped = 0

    def _out_of_patience(self, url: str) -> None:
        self.reports.note(
            f"{self._scheme}.stalled",
            f"{url}: has not taken frames for {self.config.patience_us / 1e6:g} s with the outbox half full; "
            "frames that do not fit the outbox are dropped until it does",
        )

    def push(self, data: bytes) -> None:
        if len(data) > self.config.frame_bytes_max:
            raise FrameError(
                f"a frame of {len(data)} bytes exceeds the limit of {self.config.frame_bytes_max} bytes; send "
                "less at once"
            )
        if not self._open:
            return
        message = self._envelope + data
        size = len(message)
        if size > self._service.message_bytes_max:
            self.reports.count(f"{self._scheme}.too_large")
            return
        if self._outbox_bytes and self._outbox_bytes + size > self.config.outbox_bytes_max:
            self._dropped += 1
            self.reports.count(f"{self._scheme}.dropped")
            return
        self._since_yield_bytes += size
        self._since_yield_frames += 1
        self._outbox.append(message)
        self._outbox_bytes += size
        self._emptied.clear()
        self._filled.set()
        if self._outbox_bytes > self.config.outbox_bytes_max // 2:
            url = self._service.url
            if url not in self._patience.tried and url not in self._patience.lapsed:
                self._patience.begin(url)

    def send(self, to: Address, data: bytes) -> None:
        self._way.send(to, data)

    async def ready(self) -> None:
        if self._since_yield_bytes >= YIELD_BYTES or self._since_yield_frames >= YIELD_FRAMES:
            self._since_yield_bytes = self._since_yield_frames = 0
            await asyncio.sleep(0)
        if self._patience.tried:
            await self._patience.wait()

    async def close(self) -> None:
        if not self._open:
            return
        self._open = False
        if self._attempts.connected:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.config.flush_us / 1e6):
                    await self._emptied.wait()
        await self._attempts.stop()
        await self._way.close()


class ForeignInlet:
    """See `Inlet`. Subscribed at the service, again and again; direct lines to whoever is heard of there."""

    def __init__(self, service: Service, config: TransportConfig, reports: Reports) -> None:
        self.config = config
        self.reports = reports
        self._service = service
        self._foreign = f"{service.scheme}.foreign"
        self._lines = DirectLines(config, reports)
        self._attempts = _Attempts(service, config, reports)
        self._envelopes = Envelopes()
        self._reading = asyncio.Event()
        self._reading.set()

    @property
    def guard(self) -> Guard:
        return self._lines.guard

    def identities(self, sender: Address) -> None:
        """Who pushes on a service nobody can say: only signatures can."""
        return

    @property
    def subscribed(self) -> bool:
        """Whether the service is there at this moment and we are subscribed."""
        return self._attempts.connected

    async def open(self, receive: Receive) -> None:
        self._lines.open(receive)
        try:
            await self._attempts.start(self._listen, absence_raises=False)
        except BaseException:
            await self.close()
            raise

    async def _listen(self) -> None:
        async with self._service.session() as session:
            await session.listen(self._take, self._attempts.welcomed)

    async def _take(self, message: bytes) -> None:
        if self._lines.paused:
            await self._reading.wait()
        opened = self._envelopes.open(message)
        if opened is None:
            self.reports.count(self._foreign)
        else:
            self._lines.receive(*opened)

    def send(self, to: Address, data: bytes) -> None:
        self._lines.send(to, data)

    def pause_reading(self) -> None:
        self._reading.clear()
        self._lines.pause_reading()

    def resume_reading(self) -> None:
        self._lines.resume_reading()
        self._reading.set()

    async def close(self) -> None:
        self._reading.set()
        await self._attempts.stop()
        await self._lines.close()
