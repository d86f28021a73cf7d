"""Redis pub/sub: redis://host:port/channel. At most once: a reader over the server's output limit is cut off."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import redis.exceptions
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from unerring.model import HandshakeError, NetworkError
from unerring.runtime.reports import Reports
from unerring.runtime.sockets import join_host
from unerring.runtime.transports.config import TransportConfig, TransportUrl
from unerring.runtime.transports.foreign import ForeignInlet, ForeignOutlet, Session, Take, place_and_name
from unerring.runtime.transports.login import read_login


def make_outlet(url: TransportUrl, config: TransportConfig, reports: Reports) -> ForeignOutlet:
    return ForeignOutlet(RedisService(url, config), config, reports)


def make_inlet(url: TransportUrl, config: TransportConfig, reports: Reports) -> ForeignInlet:
    return ForeignInlet(RedisService(url, config), config, reports)


class RedisService:
    """See `Service`."""

    scheme = "redis"
    faults: tuple[type[Exception], ...] = (redis.exceptions.RedisError, OSError, asyncio.TimeoutError)

    def __init__(self, url: TransportUrl, config: TransportConfig) -> None:
        self.url = url.text
        self._host, self._port, self._channel = place_and_name(url, "channel")
        self._config = config
        self._login = read_login(config.login)

    @property
    def message_bytes_max(self) -> int:
        return self._config.frame_bytes_max + 512  # Redis itself takes 512 MiB

    @contextlib.asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        where = f"{self.url} (Redis at {join_host(self._host, self._port)})"
        login = self._login
        secure: dict[str, Any] = {}
        if login.ca:
            login.tls()  # says what is wrong with the files
            secure = {"ssl": True, "ssl_ca_certs": login.ca, "ssl_check_hostname": True}
            secure |= {"ssl_certfile": login.certificate, "ssl_keyfile": login.key} if login.certificate else {}
        client = Redis(
            host=self._host,
            port=self._port,
            socket_connect_timeout=self._config.connect_us / 1e6,
            socket_timeout=None,
            retry=Retry(NoBackoff(), 0),  # we come back ourselves, and say so
            username=login.user or None,
            password=login.password or login.token or None,
            **secure,
        )
        try:
            try:
                async with asyncio.timeout(self._config.connect_us / 1e6):
                    await client.ping()
            except TimeoutError:
                raise HandshakeError(f"{where} did not answer as Redis does; is it another server?") from None
            except redis.exceptions.AuthenticationError as error:
                raise HandshakeError(f"{where} does not let us in: {error}; see ?login=FILE") from None
            except redis.exceptions.ConnectionError as error:
                if isinstance(error.__cause__ or error.__context__, OSError):
                    raise NetworkError(f"cannot reach {where}: {error}") from None
                raise HandshakeError(f"{where} refused the connection, or is not Redis: {error}") from None
            except redis.exceptions.RedisError as error:
                raise HandshakeError(f"{where} refused the connection, or is not Redis: {error}") from None
            yield _RedisSession(client, self._channel)
        finally:
            with contextlib.suppress(*self.faults):
                async with asyncio.timeout(self._config.flush_us / 1e6):
                    await client.aclose()


class _RedisSession:
    def __init__(self, client: Any, channel: str) -> None:
        self._client = client
        self._channel = channel

    async def publish(self, messages: list[bytes]) -> None:
        async with self._client.pipeline(transaction=False) as pipeline:
            for message in messages:
                pipeline.publish(self._channel, message)
            await pipeline.execute()

    async def listen(self, take: Take, listening: Callable[[], None]) -> None:
        async with self._client.pubsub() as subscription:
            await subscription.subscribe(self._channel)
            while True:
                message = await subscription.get_message(timeout=None)
                if message is None:
                    continue
                if message["type"] == "message":
                    await take(message["data"])
                elif message["type"] == "subscribe":
                    listening()
