"""A consumer's side on TCP: subscribed at one producer, redialling by itself, speaking to other producers directly."""

from __future__ import annotations

import asyncio

from unerring.model import Address, NetworkError, Receive, UnerringError, Who, invariant
from unerring.runtime.guard import Guard
from unerring.runtime.halt import guard_loop
from unerring.runtime.reports import Reports
from unerring.runtime.sockets import redial
from unerring.runtime.transports.config import TransportConfig, TransportUrl
from unerring.runtime.transports.lines import DirectLines, Line, finish


class TcpInlet:
    """See `Inlet`. `open` waits for the first attempt to end, so that what is pushed after it comes in."""

    def __init__(self, url: TransportUrl, config: TransportConfig, reports: Reports) -> None:
        self.config = config
        self.reports = reports
        self.lines = DirectLines(config, reports)
        self._subscription = self.lines.subscription = Line(self.lines, url.text, subscribes=True)
        self._task: asyncio.Task[None] | None = None
        self._first: asyncio.Future[None] | None = None

    @property
    def subscribed(self) -> bool:
        """Whether the producer is there at this moment."""
        return self._subscription.connection is not None

    async def open(self, receive: Receive) -> None:
        invariant(self._task is None, "an inlet is opened once")
        guard_loop()
        self.lines.open(receive)
        self._first = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(
            redial(self._subscribe, self.config.redial_min_us, self.config.redial_max_us, self._failed)
        )
        try:
            await self._first  # a producer that refuses us is the caller's to fix; one that is away comes back
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

    def identities(self, sender: Address) -> tuple[Who, ...] | None:
        """Who a producer is by its certificate; None without TLS."""
        line = self._subscription
        if sender == line.address:
            if line.connection is None:
                return () if self.config.tls else None
            return line.connection.identities()
        return self.lines.identities(sender)

    @property
    def guard(self) -> Guard:
        return self.lines.guard

    def send(self, to: Address, data: bytes) -> None:
        line = self._subscription
        if to not in (line.address, line.announced):
            self.lines.send(to, data)
            return
        self.lines.check_size(data)
        if not line.send(data):
            self.reports.count("tcp.undeliverable")

    def pause_reading(self) -> None:
        self.lines.pause_reading()
        if self._subscription.connection is not None:
            self._subscription.connection.pause_reading()

    def resume_reading(self) -> None:
        self.lines.resume_reading()
        if self._subscription.connection is not None:
            self._subscription.connection.resume_reading()

    async def close(self) -> None:
        connection, task = self._subscription.connection, self._task
        if connection is not None:
            connection.finish()
        await self.lines.close()
        if connection is not None:
            await finish([connection], self.config.flush_us)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
