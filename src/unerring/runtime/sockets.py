"""Listening and dialling: the loopback rule, TLS or a secret, and redialling with a jittered, bounded pause."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import random
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from unerring.model import ConfigError, HandshakeError, NetworkError, UnerringError
from unerring.runtime.certificates import client_context, server_context
from unerring.runtime.reports import Reports
from unerring.runtime.secret import prove_to_acceptor, prove_to_dialler, shared_secret

Connection = TypeVar("Connection", bound=asyncio.BaseProtocol)

BACKLOG: Final = 512
ACCEPT_PAUSE_S: Final = 0.1
KNOCKS_MAX: Final = 10
KNOCK_PAUSE_S: Final = 0.001
KEEPALIVE_IDLE_S: Final = 10
KEEPALIVE_INTERVAL_S: Final = 5
KEEPALIVE_PROBES: Final = 3


def split_host(address: str, default_port: int | None = None) -> tuple[str, int]:
    """`host:port`, with an IPv6 host in brackets."""
    host, separator, port = address.rpartition(":")
    if not separator or "]" in port:
        host, port = address, "" if default_port is None else str(default_port)
    host = host.removeprefix("[").removesuffix("]")
    if not _is_host(host) or not port.isascii() or not port.isdigit() or len(port) > 5 or int(port) > 65535:
        raise ConfigError(f"{address!r} is not an address; write host:port, such as 127.0.0.1:7000 or [::1]:7000")
    return host, int(port)


def _is_host(host: str) -> bool:
    """A name or an IP address that a resolver can be asked for; it raises its own kinds of error for others."""
    try:
        if ":" in host:
            ipaddress.IPv6Address(host)
        encoded = host.encode("idna")
    except ValueError:  # UnicodeError is one
        return False
    return bool(encoded) and all(32 < byte < 127 for byte in encoded)


def join_host(host: str, port: int) -> str:
    """The inverse of `split_host`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether nobody but this host's own programs reaches an address or a name."""
    try:
        resolved = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError:
        return False
    return all(ipaddress.ip_address(address[0]).is_loopback for *_, address in resolved)


async def _listening_socket(host: str, port: int, tls: str) -> socket.socket:
    """Without TLS only on loopback: everyone on a network could speak otherwise."""
    loop = asyncio.get_running_loop()
    try:
        resolved = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise NetworkError(f"cannot listen on {join_host(host, port)}: {error}") from None
    family, kind, protocol, _, address = resolved[0]
    if not tls and not ipaddress.ip_address(address[0]).is_loopback:
        raise ConfigError(
            f"refusing to listen on {join_host(host, port)} without TLS; use a loopback address such as 127.0.0.1, "
            "or tls=DIR with certificates from 'unerring certs DIR'"
        )
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise NetworkError(f"cannot listen on {join_host(host, port)}: {error.strerror}") from None
    return listener


class Listener:
    """Accepts connections, each given to a protocol of its own; who fails the handshake is counted and named."""

    def __init__(
        self,
        listener: socket.socket,
        tls: str,
        secret: bytes | None,
        accept: Callable[[str], asyncio.Protocol | asyncio.BufferedProtocol | None],
        handshake_us: int,
        handshakes_max: int,
        reports: Reports,
        prefix: str,
    ) -> None:
        self.host, self.port = listener.getsockname()[:2]
        self._socket = listener
        self._tls = tls
        self._secret = secret
        self._accept = accept
        self._handshake_us = handshake_us
        self._handshakes_max = handshakes_max
        self._reports = reports
        self._prefix = prefix
        self._handshakes: dict[asyncio.Task[None], None] = {}
        self._untouched: dict[socket.socket, None] = {}
        """Accepted, and not yet taken over by its handshake."""
        self._retry: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(listener, self._accept_waiting)

    def _accept_waiting(self) -> None:
        for _ in range(BACKLOG):
            try:
                peer, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # Out of descriptors, say: others must still get in, later.
                self._reports.note(f"{self._prefix}.accept_failed", f"accepting a connection failed: {error}")
                self._loop.remove_reader(self._socket)
                self._retry = self._loop.call_later(
                    ACCEPT_PAUSE_S, self._loop.add_reader, self._socket, self._accept_waiting
                )
                return
            peer.setblocking(False)
            self._begin(peer, join_host(*address[:2]))

    def _begin(self, peer: socket.socket, address: str) -> None:
        if len(self._handshakes) >= self._handshakes_max:
            # The one that has taken longest makes room: whoever means it is done in no time.
            next(iter(self._handshakes)).cancel()
            self._reports.note(f"{self._prefix}.refused", f"{address}: too many handshakes under way; one was cut off")
        self._untouched[peer] = None
        task = asyncio.create_task(self._welcome(peer, address))
        self._handshakes[task] = None
        task.add_done_callback(self._handshakes.pop)

    async def _welcome(self, peer: socket.socket, address: str) -> None:
        del self._untouched[peer]
        if self._secret is not None and not await self._is_known(peer, address, self._secret):
            return
        protocol = self._accept(address)
        if protocol is None:
            self._reports.note(f"{self._prefix}.refused", f"{address}: too many connections")
            peer.close()
            return
        try:
            keep_alive(peer)
            await self._loop.connect_accepted_socket(
                lambda: protocol,
                peer,
                # Certificates are replaced while this listens; the newest ones count.
                ssl=server_context(self._tls) if self._tls else None,
                ssl_handshake_timeout=self._handshake_us / 1e6 if self._tls else None,
            )
        except OSError as error:
            peer.close()
            protocol.connection_lost(HandshakeError(explain_tls(error)))  # asyncio tells only us
        except asyncio.CancelledError:
            protocol.connection_lost(NetworkError("this side stopped listening"))
            raise

    async def _is_known(self, peer: socket.socket, address: str, secret: bytes) -> bool:
        """Whether the peer has proved that it knows the secret; it holds no place among the connections before."""
        try:
            async with asyncio.timeout(self._handshake_us / 1e6):
                await prove_to_dialler(peer, secret)
        except (TimeoutError, HandshakeError) as error:
            why = str(error) or "no greeting arrived in time"
            self._reports.note(f"{self._prefix}.refused", f"{address}: {why}")
            peer.close()
            return False
        except asyncio.CancelledError:
            peer.close()
            raise
        return True

    async def close(self) -> None:
        self._loop.remove_reader(self._socket)
        if self._retry is not None:
            self._retry.cancel()
        self._socket.close()
        for task in list(self._handshakes):
            task.cancel()
        await asyncio.gather(*self._handshakes, return_exceptions=True)
        for peer in self._untouched:
            peer.close()


async def listen(
    host: str,
    port: int,
    tls: str,
    accept: Callable[[str], asyncio.Protocol | asyncio.BufferedProtocol | None],
    *,
    handshake_us: int,
    handshakes_max: int,
    reports: Reports,
    prefix: str,
    foreign: bool = False,
    secret_file: str = "",
) -> Listener:
    """Start to listen; `accept` gives the protocol of each new connection from a host:port, or None: too many.

    The protocol also learns of a TLS handshake that failed, by `connection_lost` alone. `foreign`: others speak here,
    in a protocol that knows no secret of ours. `secret_file`: another one than this user's.
    """
    if tls:
        server_context(tls)  # says at once what is wrong with it
    secret = None if tls or foreign else shared_secret(secret_file)
    listener = await _listening_socket(host, port, tls)
    return Listener(listener, tls, secret, accept, handshake_us, handshakes_max, reports, prefix)


async def dial(
    host: str,
    port: int,
    tls: str,
    within_us: int,
    make: Callable[[], Connection],
    foreign: bool = False,
    secret_file: str = "",
) -> Connection:
    """One connection, or NetworkError (nobody there) or HandshakeError (somebody there, whom TLS or the secret
    refuses). `foreign`, `secret_file`: see `listen`."""
    loop = asyncio.get_running_loop()
    where = join_host(host, port)
    context = client_context(tls) if tls else None
    try:
        async with asyncio.timeout(within_us / 1e6):
            if tls or foreign:
                transport, protocol = await loop.create_connection(make, host, port, ssl=context)
            else:
                known = await _connect_known(host, port, shared_secret(secret_file))
                transport, protocol = await loop.create_connection(make, sock=known)
    except HandshakeError as error:
        raise HandshakeError(f"{where}: {error}") from None
    except NetworkError as error:
        raise NetworkError(f"{where}: {error}") from None
    except TimeoutError:
        raise NetworkError(f"{where} did not answer within {within_us / 1e6:g} s") from None
    except ssl.SSLError as error:
        raise HandshakeError(f"{where}: {explain_tls(error)}") from None
    except OSError as error:
        hint = "; it may not speak TLS" if tls and not isinstance(error, ConnectionRefusedError) else ""
        raise NetworkError(f"cannot reach {where}: {error.strerror or error}{hint}") from None
    connected = transport.get_extra_info("socket")
    if connected is not None:
        keep_alive(connected)
    return protocol


async def is_refused(host: str, port: int, within_us: int) -> bool:
    """Whether a host says that nobody listens there, or comes to say so: a process that ends lets go of its sockets one
    after the other, and of whoever it had not accepted with them. False: nothing was said, or somebody listens."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(within_us / 1e6):
            family, kind, protocol, _, address = (await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))[0]
            for _ in range(KNOCKS_MAX):
                with socket.socket(family, kind, protocol) as connection:
                    connection.setblocking(False)
                    await loop.sock_connect(connection, address)
                    with contextlib.suppress(ConnectionResetError):
                        if await loop.sock_recv(connection, 1):
                            return False
                await asyncio.sleep(KNOCK_PAUSE_S)
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError):
        return False
    return False


async def _connect_known(host: str, port: int, secret: bytes) -> socket.socket:
    """A connection whose other end knows the secret, and knows that we do."""
    loop = asyncio.get_running_loop()
    family, kind, protocol, _, address = (await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))[0]
    connection = socket.socket(family, kind, protocol)
    try:
        connection.setblocking(False)
        await loop.sock_connect(connection, address)
        await prove_to_acceptor(connection, secret)
    except BaseException:
        connection.close()
        raise
    return connection


def keep_alive(connection: socket.socket) -> None:
    """A quiet peer whose host vanished is noticed in seconds, not hours."""
    with contextlib.suppress(OSError):  # the peer is gone already; reading will say so
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_PROBES)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


_TLS_SENTENCES: Final = (
    ("certificate required", "it asks for a certificate and we showed none; use tls=DIR"),
    ("did not return a certificate", "it showed no certificate; it must use tls=DIR with a certificate of our CA"),
    ("expired", "the certificate has expired; make new ones with 'unerring certs'"),
    ("not yet valid", "the certificate is not valid yet; look at the clocks"),
    ("hostname mismatch", "the certificate does not name this host; make one with 'unerring certs DIR --host HOST'"),
    ("ip address mismatch", "the certificate does not name this address; make one with 'unerring certs DIR --host IP'"),
    ("unknown ca", "it does not trust our CA; both sides need certificates of one CA"),
    ("certificate verify failed", "the certificate is not of our CA; both sides need certificates of one CA"),
    ("wrong version number", "it does not speak TLS; give both sides tls=DIR or neither"),
    ("record layer failure", "it does not speak TLS; give both sides tls=DIR or neither"),
    ("http request", "it does not speak TLS; give both sides tls=DIR or neither"),
)


def explain_tls(error: OSError) -> str:
    """A TLS failure as a sentence that says what to do."""
    text = str(error)
    plain = text.lower().replace("_", " ")
    for part, sentence in _TLS_SENTENCES:
        if part in plain:
            return f"{sentence} ({text})"
    if isinstance(error, TimeoutError) or "handshake is taking longer" in plain:
        return "the TLS handshake took too long"
    return text or type(error).__name__


async def redial(
    attempt: Callable[[], Awaitable[bool]],
    pause_min_us: int,
    pause_max_us: int,
    failed: Callable[[UnerringError], None],
) -> None:
    """Call `attempt` for ever; it returns when its connection is over: True if it had been of use.

    The pause doubles up to its bound and is jittered, so that many who lost one peer do not come back as one.
    """
    pause_us = pause_min_us
    while True:
        try:
            if await attempt():
                pause_us = pause_min_us
        except UnerringError as error:
            failed(error)
        except Exception as error:  # Otherwise the task would end here, and nobody dial any more or hear of it.
            failed(NetworkError(f"dialling failed: {type(error).__name__}: {error}"))
        await asyncio.sleep(pause_us * random.uniform(0.5, 1.0) / 1e6)
        pause_us = min(pause_us * 2, pause_max_us)
