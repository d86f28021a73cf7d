"""UDP multicast: multicast://group:port. One datagram reaches every subscriber, or not; nobody is told which.

Any number of producers and consumers share a group. Loopback's interface unless `interface` names another.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import AsyncIterator, Callable
from typing import Final

from unerring.model import ConfigError, NetworkError
from unerring.runtime.reports import Reports
from unerring.runtime.sockets import split_host
from unerring.runtime.transports.config import TransportConfig, TransportUrl, check_clear
from unerring.runtime.transports.foreign import ENVELOPE_BYTES_MAX, ForeignInlet, ForeignOutlet, Session, Take
from unerring.runtime.transports.udp import DATAGRAM_BYTES_MAX, READ_DATAGRAMS

HOPS: Final = 1
"""It does not leave the local network."""


def make_outlet(url: TransportUrl, config: TransportConfig, reports: Reports) -> ForeignOutlet:
    return ForeignOutlet(MulticastService(url, config), config, reports)


def make_inlet(url: TransportUrl, config: TransportConfig, reports: Reports) -> ForeignInlet:
    return ForeignInlet(MulticastService(url, config), config, reports)


class MulticastService:
    """See `Service`."""

    scheme = "multicast"
    faults: tuple[type[Exception], ...] = (OSError,)
    message_bytes_max = DATAGRAM_BYTES_MAX + ENVELOPE_BYTES_MAX

    def __init__(self, url: TransportUrl, config: TransportConfig) -> None:
        self.url = url.text
        self._group, self._port = split_host(url.place)
        self._config = config
        try:
            group, interface = ipaddress.IPv4Address(self._group), ipaddress.IPv4Address(config.interface)
        except ValueError as error:
            raise ConfigError(
                f"{url.text!r}: {error}; name a group such as 239.255.0.1, and interfaces by IPv4"
            ) from None
        if not group.is_multicast:
            raise ConfigError(
                f"{url.text!r}: {group} is not a multicast group; use one from 239.255.0.0 to 239.255.255.255"
            )
        if not interface.is_loopback:
            check_clear(config, f"interface {interface} for {url.text}")

    @contextlib.asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        interface = socket.inet_aton(self._config.interface)
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            made.setblocking(False)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                made.setsockopt(socket.SOL_SOCKET, option, self._config.outbox_bytes_max)
            made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, interface)
            made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
            made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, HOPS)
            yield _MulticastSession(made, self._group, self._port, interface)
        except OSError as error:
            raise NetworkError(f"{self.url}: {error.strerror or error}") from None
        finally:
            made.close()


class _MulticastSession:
    def __init__(self, made: socket.socket, group: str, port: int, interface: bytes) -> None:
        self._socket = made
        self._place = (group, port)
        self._interface = interface

    async def publish(self, messages: list[bytes]) -> None:
        loop = asyncio.get_running_loop()
        for message in messages:
            await loop.sock_sendto(self._socket, message, self._place)

    async def listen(self, take: Take, listening: Callable[[], None]) -> None:
        self._socket.bind(self._place)
        membership = socket.inet_aton(self._place[0]) + self._interface
        self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        listening()
        loop = asyncio.get_running_loop()
        while True:
            message, _ = await loop.sock_recvfrom(self._socket, 65536)
            await take(message)
            for _ in range(READ_DATAGRAMS):
                try:
                    message = self._socket.recv(65536)
                except (BlockingIOError, InterruptedError):
                    break
                await take(message)
            await asyncio.sleep(0)
