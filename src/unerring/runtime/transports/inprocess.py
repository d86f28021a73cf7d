"""An event service inside one event loop: inprocess://name. For tests, embedded use, and as the shortest example.

Bounds and patience are those of the other transports; a consumer that paused reading is the one that stalls.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Final

from unerring.model import Address, CallerError, FrameError, Receive, invariant
from unerring.runtime.halt import guard_loop
from unerring.runtime.reports import Reports
from unerring.runtime.transports.config import TransportConfig, TransportUrl
from unerring.runtime.transports.patience import Patience
from unerring.runtime.transports.tcp import YIELD_BYTES, YIELD_FRAMES


def make_outlet(url: TransportUrl, config: TransportConfig, reports: Reports) -> InprocessOutlet:
    return InprocessOutlet(url, config, reports)


def make_inlet(url: TransportUrl, config: TransportConfig, reports: Reports) -> InprocessInlet:
    return InprocessInlet(url, config, reports)


class _Mailbox:
    """Frames on their way to one end. They arrive in the event loop's next turn, as from any other transport."""

    def __init__(self, address: Address, receive: Receive, bytes_max: int) -> None:
        self.address = address
        self.paused = False
        self.dropped = 0
        self.on_congestion: dict[object, Callable[[bool], None]] = {}
        self._receive = receive
        self._bytes_max = bytes_max
        self._frames: deque[tuple[Address, bytes]] = deque()
        self._bytes = 0
        self._congested = False
        self._due = False
        self._loop = asyncio.get_running_loop()
        self._emptied = asyncio.Event()
        self._emptied.set()

    def put(self, sender: Address, data: bytes) -> bool:
        if self._frames and self._bytes + len(data) > self._bytes_max:
            return False
        self._frames.append((sender, data))
        self._bytes += len(data)
        self._emptied.clear()
        if not self._congested and self._bytes > self._bytes_max // 2:
            self._tell(True)
        self._schedule()
        return True

    def _schedule(self) -> None:
        if not self._due and not self.paused and self._frames:
            self._due = True
            self._loop.call_soon(self._drain)

    def _drain(self) -> None:
        self._due = False
        try:
            for _ in range(len(self._frames)):  # what comes meanwhile has its own turn
                if self.paused or not self._frames:
                    break
                sender, data = self._frames.popleft()
                self._bytes -= len(data)
                self._receive(sender, data)
                if self._congested and self._bytes <= self._bytes_max // 8:
                    self._tell(False)
        finally:  # whoever raised has lost one frame, not those behind it
            if not self._frames:
                self._emptied.set()
            self._schedule()

    def _tell(self, congested: bool) -> None:
        self._congested = congested
        for tell in list(self.on_congestion.values()):
            tell(congested)

    @property
    def congested(self) -> bool:
        return self._congested

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        self._schedule()

    def discard(self) -> None:
        self._frames.clear()
        self._bytes = 0
        self._receive = _nobody
        self._emptied.set()
        if self._congested:
            self._tell(False)

    async def emptied(self, within_us: int) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_us / 1e6):
                await self._emptied.wait()


class _Service:
    """All ends of one name in one event loop."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.loop = asyncio.get_running_loop()
        self.producers: dict[Address, InprocessOutlet] = {}
        self.boxes: dict[Address, _Mailbox] = {}
        self.subscribers: dict[Address, _Mailbox] = {}
        self._ends = 0

    def fresh_address(self, role: str) -> Address:
        self._ends += 1
        return f"inprocess://{self.name}#{role}{self._ends}"


_SERVICES: Final[dict[str, _Service]] = {}


def _service(name: str) -> _Service:
    service = _SERVICES.get(name)
    if service is None or service.loop.is_closed():
        service = _SERVICES[name] = _Service(name)
    if service.loop is not asyncio.get_running_loop():
        raise CallerError(
            f"inprocess://{name} is in use by another event loop; open all its ends in one loop, or use tcp"
        )
    return service


def _leave(service: _Service, address: Address) -> None:
    service.boxes.pop(address, None)
    service.subscribers.pop(address, None)
    service.producers.pop(address, None)
    if not service.boxes and _SERVICES.get(service.name) is service:
        del _SERVICES[service.name]


class InprocessOutlet:
    """See `Outlet`. Several producers may share a name, as on an event channel of the paper."""

    def __init__(self, url: TransportUrl, config: TransportConfig, reports: Reports) -> None:
        self._name = url.place
        self._config = config
        self._reports = reports
        self._service: _Service | None = None
        self._box: _Mailbox | None = None
        self._patience: Patience[_Mailbox] = Patience(config.patience_us, self._out_of_patience)
        self._since_yield_bytes = 0
        self._since_yield_frames = 0

    @property
    def direct(self) -> Address:
        return self._box.address if self._box is not None else f"inprocess://{self._name}"

    async def open(self, receive: Receive) -> None:
        invariant(self._box is None, "an outlet is opened once")
        guard_loop()
        self._service = service = _service(self._name)
        self._box = _Mailbox(service.fresh_address("producer"), receive, self._config.outbox_bytes_max)
        service.boxes[self._box.address] = self._box
        service.producers[self._box.address] = self
        for subscriber in service.subscribers.values():
            self.watch(subscriber)

    def watch(self, subscriber: _Mailbox) -> None:
        """Learn of a subscriber's congestion from now on."""
        subscriber.on_congestion[self] = lambda congested: self._congestion(subscriber, congested)
        if subscriber.congested:
            self._patience.begin(subscriber)

    def _congestion(self, subscriber: _Mailbox, congested: bool) -> None:
        if congested:
            self._patience.begin(subscriber)
            return
        self._patience.forget(subscriber)
        if subscriber.dropped:
            self._reports.note(
                "inprocess.resumed", f"{subscriber.address}: reads again; {subscriber.dropped} frames were dropped"
            )
            subscriber.dropped = 0

    def _out_of_patience(self, subscriber: _Mailbox) -> None:
        self._reports.note(
            "inprocess.stalled", f"{subscriber.address}: does not read; frames for it are dropped until it does"
        )

    def push(self, data: bytes) -> None:
        _check_size(data, self._config)
        if self._service is None:
            return
        self._since_yield_bytes += len(data)
        self._since_yield_frames += 1
        for subscriber in self._service.subscribers.values():
            if subscriber in self._patience.lapsed or not subscriber.put(self.direct, data):
                subscriber.dropped += 1
                self._reports.count("inprocess.dropped")

    def send(self, to: Address, data: bytes) -> None:
        _send(self._service, self.direct, to, data, self._config, self._reports)

    async def ready(self) -> None:
        if self._since_yield_bytes >= YIELD_BYTES or self._since_yield_frames >= YIELD_FRAMES:
            self._since_yield_bytes = self._since_yield_frames = 0
            await asyncio.sleep(0)
        if self._patience.tried:
            await self._patience.wait()

    async def close(self) -> None:
        service, box = self._service, self._box
        if service is None or box is None:
            return
        self._service = None
        box.discard()
        subscribers = list(service.subscribers.values())
        await asyncio.gather(*(subscriber.emptied(self._config.flush_us) for subscriber in subscribers))
        for subscriber in subscribers:
            subscriber.on_congestion.pop(self, None)
        _leave(service, box.address)


class InprocessInlet:
    """See `Inlet`. It stays subscribed to the name while producers come and go."""

    def __init__(self, url: TransportUrl, config: TransportConfig, reports: Reports) -> None:
        self._name = url.place
        self._config = config
        self._reports = reports
        self._service: _Service | None = None
        self._box: _Mailbox | None = None

    @property
    def subscribed(self) -> bool:
        """Whether a producer is there at this moment."""
        return self._service is not None and bool(self._service.producers)

    async def open(self, receive: Receive) -> None:
        invariant(self._box is None, "an inlet is opened once")
        guard_loop()
        self._service = service = _service(self._name)
        self._box = box = _Mailbox(service.fresh_address("consumer"), receive, self._config.outbox_bytes_max)
        service.boxes[box.address] = service.subscribers[box.address] = box
        for producer in service.producers.values():
            producer.watch(box)

    def send(self, to: Address, data: bytes) -> None:
        if self._box is not None:
            _send(self._service, self._box.address, to, data, self._config, self._reports)

    def pause_reading(self) -> None:
        if self._box is not None:
            self._box.pause()

    def resume_reading(self) -> None:
        if self._box is not None:
            self._box.resume()

    async def close(self) -> None:
        if self._service is None or self._box is None:
            return
        _leave(self._service, self._box.address)
        self._service = None
        self._box.discard()


def _send(
    service: _Service | None, sender: Address, to: Address, data: bytes, config: TransportConfig, reports: Reports
) -> None:
    _check_size(data, config)
    box = service.boxes.get(to) if service is not None else None
    if box is None:
        reports.count("inprocess.undeliverable")
    elif not box.put(sender, data):
        reports.count("inprocess.dropped")


def _check_size(data: bytes, config: TransportConfig) -> None:
    if len(data) > config.frame_bytes_max:
        raise FrameError(
            f"a frame of {len(data)} bytes exceeds the limit of {config.frame_bytes_max} bytes; send less at once"
        )


def _nobody(sender: Address, data: bytes) -> None:
    """Drop the message: after `close` nobody listens."""
