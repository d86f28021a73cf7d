"""NATS core: nats://host:port/subject. At most once: a slow reader is cut off by the server, or loses in its client."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Final

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from unerring.model import HandshakeError, NetworkError
from unerring.runtime.reports import Reports
from unerring.runtime.sockets import join_host
from unerring.runtime.transports.config import MIB, TransportConfig, TransportUrl
from unerring.runtime.transports.foreign import ForeignInlet, ForeignOutlet, Session, Take, place_and_name
from unerring.runtime.transports.login import read_login

PING_S: Final = 5
"""A server that went away without a word is noticed after two of these."""


def make_outlet(url: TransportUrl, config: TransportConfig, reports: Reports) -> ForeignOutlet:
    return ForeignOutlet(NatsService(url, config, reports), config, reports)


def make_inlet(url: TransportUrl, config: TransportConfig, reports: Reports) -> ForeignInlet:
    return ForeignInlet(NatsService(url, config, reports), config, reports)


class NatsService:
    """See `Service`."""

    scheme = "nats"
    faults: tuple[type[Exception], ...] = (nats.errors.Error, OSError, asyncio.TimeoutError)

    def __init__(self, url: TransportUrl, config: TransportConfig, reports: Reports) -> None:
        self.url = url.text
        self.message_bytes_max = MIB
        self._host, self._port, self._subject = place_and_name(url, "subject")
        self._config = config
        self._login = read_login(config.login)
        self._reports = reports

    @contextlib.asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        client = Client()
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        errors: list[Exception] = []

        async def on_error(error: Exception) -> None:
            if isinstance(error, nats.errors.SlowConsumerError):
                self._reports.count("nats.dropped")
            else:
                errors.append(error)
                del errors[:-1]

        async def on_closed() -> None:
            if not over.done():
                over.set_result(None)

        try:
            await self._connect(client, on_error, on_closed, errors)
            self.message_bytes_max = client.max_payload
            yield _NatsSession(client, self._subject, self._config.outbox_bytes_max, over, errors)
        finally:
            with contextlib.suppress(*self.faults):
                async with asyncio.timeout(self._config.flush_us / 1e6):
                    await client.close()

    async def _connect(self, client: Client, on_error: object, on_closed: object, errors: list[Exception]) -> None:
        where = f"{self.url} (NATS at {join_host(self._host, self._port)})"
        login = self._login
        try:
            async with asyncio.timeout(self._config.connect_us / 1e6):
                await client.connect(
                    f"nats://{join_host(self._host, self._port)}",
                    error_cb=on_error,  # type: ignore[arg-type]
                    closed_cb=on_closed,  # type: ignore[arg-type]
                    allow_reconnect=False,
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0,
                    connect_timeout=max(1, self._config.connect_us // 1_000_000),
                    ping_interval=PING_S,
                    pending_size=self._config.outbox_bytes_max,
                    user=login.user or None,
                    password=login.password or None,
                    token=login.token or None,
                    tls=login.tls(),
                )
        except (nats.errors.NoServersError, OSError, TimeoutError) as error:
            reason = errors[-1] if errors else error
            if isinstance(reason, OSError) and not isinstance(reason, TimeoutError):
                raise NetworkError(f"cannot reach {where}: {reason.strerror or reason}") from None
            raise HandshakeError(f"{where} did not greet as NATS does ({reason!r}); is it another server?") from None
        except nats.errors.Error as error:
            if "authorization" in str(error).lower():
                raise HandshakeError(f"{where} does not let us in: {error}; see ?login=FILE") from None
            raise HandshakeError(f"{where} refused the connection, or is not NATS: {error}") from None


class _NatsSession:
    def __init__(
        self, client: Client, subject: str, bytes_max: int, over: asyncio.Future[None], errors: list[Exception]
    ) -> None:
        self._client = client
        self._subject = subject
        self._bytes_max = bytes_max
        self._over = over
        self._errors = errors

    async def publish(self, messages: list[bytes]) -> None:
        for message in messages:
            await self._client.publish(self._subject, message)

    async def listen(self, take: Take, listening: Callable[[], None]) -> None:
        async def on_message(message: Msg) -> None:
            await take(message.data)

        await self._client.subscribe(self._subject, cb=on_message, pending_bytes_limit=self._bytes_max)
        # The client's flush sends its PING ahead of commands that wait for its writing task: the first round trip may
        # overtake the subscription, and gives that task its turn; only the second one is behind it.
        await self._client.flush()
        await self._client.flush()
        listening()
        await asyncio.shield(self._over)
        raise NetworkError(
            f"the server closed the connection ({self._errors[-1] if self._errors else 'no reason given'})"
        )
