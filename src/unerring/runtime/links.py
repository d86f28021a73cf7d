"""Links between nodes: one TCP connection a pair, for the messages of the machines that the nodes host.

A link is reliable and FIFO while it lasts, and both sides see when it ends: nothing is ever dropped inside a link that
goes on. Where something would have to be dropped (an outbox or inbox is full, a frame cannot be read), the link is cut
instead; machines recover by sending again after `Connected`.

An address is `node`, or `node/machine` where a node hosts several machines.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from unerring.model import (
    SECOND_US,
    Address,
    Codec,
    ConfigError,
    Connected,
    Disconnected,
    FrameError,
    HandshakeError,
    NetworkError,
    PeerError,
    ProcessConfig,
    Right,
    check,
    invariant,
)
from unerring.runtime.frames import FramedConnection
from unerring.runtime.greeting import Identity, greet_acceptor, greet_dialler
from unerring.runtime.guard import Guard
from unerring.runtime.halt import guard_loop
from unerring.runtime.reports import Reports
from unerring.runtime.sockets import Listener, dial, is_refused, join_host, listen, redial, split_host

ReceiveMessage = Callable[[Address, Any], "bool | None"]
"""Called with the sender and a decoded message. False: it could not be taken, and the link it came on is cut."""


class LinksConfig(ProcessConfig, frozen=True):
    """Bounds of a node's links."""

    frame_bytes_max: int = 4 * 1024 * 1024
    outbox_bytes_max: int = 32 * 1024 * 1024
    """The bytes held for one peer that reads slowly. Past this the link is cut."""
    peers_max: int = 256
    connect_us: int = 5 * SECOND_US
    handshake_us: int = 5 * SECOND_US
    flush_us: int = 2 * SECOND_US
    knock_us: int = 500_000
    """How long it is watched, when a link ends, whether its other end still listens."""
    redial_min_us: int = 20_000
    redial_max_us: int = 2 * SECOND_US
    incarnation_ahead_us_max: int = 86_400 * SECOND_US
    """How far a node's clock may be ahead of this one's. A later incarnation is refused: once it had greeted, the right
    process of that name would be taken for a ghost until then."""
    tls: str = ""
    """A folder made by `unerring certs` whose certificate names this node. Empty: no TLS, loopback only."""
    policy: str = ""
    """The file with the rights of those who show a certificate; empty: the defaults."""
    secret: str = ""
    """The file with the secret that nodes prove to know where there is no TLS; empty: that of this user."""

    def __post_init__(self) -> None:
        check(self, "frame_bytes_max", 1024, 1 << 30)
        check(self, "outbox_bytes_max", self.frame_bytes_max, 1 << 32)
        check(self, "peers_max", 1, 100_000)
        for name in ("connect_us", "handshake_us", "flush_us", "knock_us", "redial_min_us"):
            check(self, name, 1_000, 3600 * SECOND_US)
        check(self, "incarnation_ahead_us_max", 0, 1 << 60)
        check(self, "redial_max_us", self.redial_min_us, 3600 * SECOND_US)


class _Peer:
    """Another node: its connection while there is one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.connection: FramedConnection | None = None
        self.incarnation = 0
        """The highest that ever greeted us. A lower one is a ghost."""
        self.address: tuple[str, int] | None = None
        """Where it listens, if it was joined."""
        self.dialling: asyncio.Task[None] | None = None
        self.trouble = "not connected yet"


class Links:
    """All links of one node. `codec` knows the messages of its machines."""

    def __init__(
        self,
        identity: Identity,
        codec: Codec,
        config: LinksConfig | None = None,
        reports: Reports | None = None,
        right_of: Callable[[str], tuple[str, ...] | None] = lambda node: (Right.REPLICA, node),
    ) -> None:
        """`right_of`: what somebody must have a right to, to be a node of this name (a right, and the things any of
        which is enough); None: there is no such node."""
        self.identity = identity
        self.reports = reports or Reports()
        self._codec = codec
        self._config = config or LinksConfig()
        if codec.bytes_max + 2 * ENVELOPE_BYTES_MAX > self._config.frame_bytes_max:
            raise ConfigError(
                f"messages of up to {codec.bytes_max} bytes do not fit LinksConfig.frame_bytes_max, which is "
                f"{self._config.frame_bytes_max}; raise it by at least {2 * ENVELOPE_BYTES_MAX} above the message limit"
            )
        self._right_of = right_of
        self._guard = Guard(self._config.policy, self.reports)
        self.on_vanished: Callable[[str], object] | None = None
        """Called with a node whose link ended, and at whose address nobody listens any more."""
        self._machines: dict[str, ReceiveMessage] = {}
        self._peers: dict[str, _Peer] = {}
        self._listener: Listener | None = None
        self._incoming: dict[asyncio.Task[None], None] = {}
        self._knocking: dict[asyncio.Task[None], None] = {}
        self._connections: dict[FramedConnection, None] = {}
        self._paused = False
        self._holds = 0
        self._encoded: tuple[Any, bytes] = None, b""
        """The last message sent, and its bytes: one that goes to several nodes is encoded once."""

    # Who is there

    async def open(self, listen_on: str) -> str:
        """Listen on host:port; the answer is the real one (port 0 asks for any that is free)."""
        invariant(self._listener is None, "links are opened once")
        guard_loop()
        host, port = split_host(listen_on)
        self._listener = await listen(
            host,
            port,
            self._config.tls,
            self._accept,
            handshake_us=self._config.handshake_us,
            handshakes_max=self._config.peers_max,
            reports=self.reports,
            prefix="links",
            secret_file=self._config.secret,
        )
        self._guard.watch(self._vet_again)
        return join_host(host, self._listener.port)

    def join(self, peer: str, address: str, dials: bool | None = None) -> None:
        """Keep a link to another node. Of two nodes that join each other the lower name dials, unless told."""
        if peer == self.identity.node or "/" in peer:
            raise ConfigError(f"{peer!r} cannot be joined by {self.identity.node!r}; name another node, without '/'")
        guard_loop()
        known = self._peer(peer)
        known.address = host, port = split_host(address)
        if (self.identity.node < peer if dials is None else dials) and known.dialling is None:
            known.dialling = asyncio.create_task(self._keep_dialling(known, host, port))

    def attach(self, machine: str, receive: ReceiveMessage) -> None:
        """Hand messages for `node/machine` (or `node`, with the name '') to `receive`, and who is connected."""
        if machine in self._machines:
            raise ConfigError(f"a machine called {machine!r} is attached to {self.identity.node!r} already")
        _check_name(machine)
        self._machines[machine] = receive
        for peer in self._peers.values():
            if peer.connection is not None:
                receive(peer.name, Connected(peer.name, peer.incarnation))

    def detach(self, machine: str) -> None:
        """Count and drop what still comes for it."""
        self._machines.pop(machine, None)

    def status(self) -> dict[str, str]:
        """Each peer, and 'connected' or why it is not."""
        return {p.name: "connected" if p.connection is not None else p.trouble for p in self._peers.values()}

    def _peer(self, name: str) -> _Peer:
        return self._peers.setdefault(name, _Peer(name))

    def _tell(self, peer: _Peer, message: Connected | Disconnected) -> None:
        for receive in list(self._machines.values()):
            if receive(peer.name, message) is False:
                self.reports.note("links.untold", f"{peer.name}: a machine's inbox is full and missed {message}")

    # Connecting

    def _accept(self, address: str) -> FramedConnection | None:
        if len(self._connections) >= self._config.peers_max:
            return None
        connection = self._make_connection()
        task = asyncio.create_task(self._receive_caller(connection, address))
        self._incoming[task] = None
        task.add_done_callback(self._incoming.pop)
        return connection

    def _make_connection(self) -> FramedConnection:
        connection = FramedConnection(0, self._config.outbox_bytes_max, _ignore, _ignore)
        self._connections[connection] = None
        connection.lost.add_done_callback(lambda _: self._connections.pop(connection, None))
        return connection

    async def _receive_caller(self, connection: FramedConnection, address: str) -> None:
        try:
            caller = await greet_dialler(
                connection, self.identity, self._vet, self._check_caller, self._config.handshake_us
            )
        except (FrameError, NetworkError, HandshakeError) as error:
            self.reports.note("links.refused", f"{address}: {error}")
            connection.abandon()
            return
        self._establish(self._peer(caller.node), connection, caller)

    def _vet(self, node: str, connection: FramedConnection) -> str | None:
        """Why whoever is at the other end may not be a node of that name, or None."""
        right = self._right_of(node)
        if right is None:
            self.reports.count("links.stranger")
            return f"{node[:100]!r} is no node that {self.identity.node!r} speaks with"
        return self._guard.refusal(connection.identities(), *right)

    def _vet_again(self) -> None:
        """The policy has changed: whoever has lost its rights is cut off."""
        for peer in list(self._peers.values()):
            if peer.connection is not None:
                why = self._vet(peer.name, peer.connection)
                if why is not None:
                    self._cut(peer, peer.connection, why)

    def _check_caller(self, caller: Identity) -> str | None:
        """Why a caller cannot be let in, or None."""
        peer = self._peers.get(caller.node)
        if caller.node == self.identity.node:
            return f"{caller.node!r} is the name of the node it called; give each node its own"
        ahead_us = caller.incarnation - time.time_ns() // 1000
        if ahead_us > self._config.incarnation_ahead_us_max:
            return (
                f"{caller.node!r} says that it started {ahead_us // SECOND_US} s from now; set its clock and start it "
                "again"
            )
        if peer is not None and caller.incarnation < peer.incarnation:
            return (
                f"incarnation {caller.incarnation} of {caller.node!r} has been succeeded by {peer.incarnation}; "
                "the old process must stop"
            )
        if peer is None and len(self._peers) >= self._config.peers_max:
            return f"node {self.identity.node!r} has {len(self._peers)} peers, its bound"
        return None

    async def _keep_dialling(self, peer: _Peer, host: str, port: int) -> None:
        async def attempt() -> bool:
            connection = self._make_connection()
            try:
                config = self._config
                await dial(host, port, config.tls, config.connect_us, lambda: connection, secret_file=config.secret)
                answerer = await greet_acceptor(
                    connection, self.identity, peer.name, self._vet, self._check_caller, config.handshake_us
                )
                self._establish(peer, connection, answerer)
                await asyncio.shield(connection.lost)
                return True
            finally:
                self._connections.pop(connection, None)
                connection.abandon()
                await connection.gone()

        def failed(error: Exception) -> None:
            peer.trouble = str(error)
            self.reports.note("links.unreachable", f"{peer.name}: {error}")

        await redial(attempt, self._config.redial_min_us, self._config.redial_max_us, failed)

    def _establish(self, peer: _Peer, connection: FramedConnection, identity: Identity) -> None:
        """The greetings are done: frames are messages from now on."""
        if not connection.open:
            return
        if peer.connection is not None:
            # The peer dialled anew, so it has given the old one up, whatever our side of it believes.
            peer.connection.fail(NetworkError("replaced by a newer connection"))
            self._ended(peer, peer.connection, "replaced by a newer connection")
        peer.connection = connection
        peer.incarnation = identity.incarnation
        self.reports.count("links.connected")
        connection.lost.add_done_callback(lambda lost: self._lost(peer, connection, lost.result()))
        self._tell(peer, Connected(peer.name, identity.incarnation))
        connection.frame_bytes_max = self._config.frame_bytes_max
        connection.on_frame = lambda data: self._take(peer, connection, data)
        connection.resume_reading()
        if self._paused:
            connection.pause_reading()

    def _lost(self, peer: _Peer, connection: FramedConnection, why: Exception | None) -> None:
        """The other end is gone, or the network between: who knocks at its door knows at once which."""
        if peer.connection is not connection:
            return
        self._ended(peer, connection, _reason(why))
        if self.on_vanished is not None and peer.address is not None and self._listener is not None:
            task = asyncio.create_task(self._knock(peer, *peer.address))
            self._knocking[task] = None
            task.add_done_callback(self._knocking.pop)

    async def _knock(self, peer: _Peer, host: str, port: int) -> None:
        if await is_refused(host, port, self._config.knock_us) and peer.connection is None and self.on_vanished:
            self.on_vanished(peer.name)

    def _ended(self, peer: _Peer, connection: FramedConnection, why: str) -> None:
        if peer.connection is connection:
            peer.connection = None
            peer.trouble = why
            self.reports.note("links.disconnected", f"{peer.name}: {why}")
            self._tell(peer, Disconnected(peer.name, why))

    # Messages

    def send(self, to: Address, message: Any, sender: str = "") -> None:
        """From the machine `sender` of this node. Never waits; without a link the message is gone, and the machine
        knows from `Disconnected` that it may be."""
        node, _, machine = to.partition("/")
        if message is not self._encoded[0]:
            self._encoded = message, self._codec.encode(message)
        data = seal(machine, sender, self._encoded[1])
        if node == self.identity.node:
            asyncio.get_running_loop().call_soon(self._open_envelope, node, data)
            return
        peer = self._peers.get(node)
        if peer is None or peer.connection is None:
            self.reports.count("links.unsent")
        elif not peer.connection.send_soon(data):
            self._cut(peer, peer.connection, f"its outbox of {self._config.outbox_bytes_max} bytes is full")

    def _take(self, peer: _Peer, connection: FramedConnection, data: bytes) -> None:
        try:
            taken = self._open_envelope(peer.name, data)
        except FrameError as error:
            self.reports.count("links.bad_frame")
            self._cut(peer, connection, str(error))
            return
        if not taken:
            self._cut(peer, connection, "a machine here could not take its message")

    def _open_envelope(self, node: str, data: bytes) -> bool:
        machine, sender, body = unseal(data)
        message = self._codec.decode(body)
        receive = self._machines.get(machine)
        if receive is None:
            self.reports.count("links.unaddressed")
            return True
        return receive(f"{node}/{sender}" if sender else node, message) is not False

    def _cut(self, peer: _Peer, connection: FramedConnection, why: str) -> None:
        self.reports.note("links.cut", f"{peer.name}: {why}; the link is cut, both sides start over")
        connection.fail(NetworkError(why))
        self._ended(peer, connection, why)

    def blame(self, sender: Address, error: PeerError) -> None:
        """A driver's `on_fault`: a machine got a message that breaks its protocol. Cut the link; whoever is at its
        other end starts over, and with the same mistake is cut again."""
        peer = self._peers.get(sender.partition("/")[0])
        if peer is not None and peer.connection is not None:
            self._cut(peer, peer.connection, str(error))

    def hold(self, congested: bool) -> None:
        """A driver's `on_congestion`: its inbox is filling, so let TCP hold the peers back, and go on later."""
        self._holds += 1 if congested else -1  # several machines may ask for it at once
        if self._holds:
            self.pause_reading()
        else:
            self.resume_reading()

    def pause_reading(self) -> None:
        self._paused = True
        self._each_link(FramedConnection.pause_reading)

    def resume_reading(self) -> None:
        self._paused = False
        self._each_link(FramedConnection.resume_reading)

    def _each_link(self, act: Callable[[FramedConnection], None]) -> None:
        for peer in list(self._peers.values()):
            if peer.connection is not None:
                act(peer.connection)

    def flush(self) -> None:
        """Write now what was sent in this turn of the event loop."""
        self._each_link(FramedConnection.flush)

    def post(self, machine: str = "") -> Post:
        """The way out for one machine's effects."""
        return Post(self, machine)

    def peers(self) -> list[str]:
        return list(self._peers)

    async def close(self) -> None:
        """Write what is queued within a bound, then end all links."""
        listener, self._listener = self._listener, None
        self._guard.close()
        if listener is not None:
            await listener.close()
        tasks = [
            *self._incoming,
            *self._knocking,
            *(peer.dialling for peer in self._peers.values() if peer.dialling is not None),
        ]
        links = [peer.connection for peer in self._peers.values() if peer.connection is not None]
        for connection in links:
            connection.finish()
        await asyncio.gather(*(connection.closed(self._config.flush_us) for connection in links))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in list(self._connections):
            connection.abandon()
            await connection.gone()


class Post:
    """A machine's `Carrier` on links: a broadcast goes to the machine of the same name on every peer."""

    def __init__(self, links: Links, machine: str) -> None:
        self._links = links
        self._machine = machine

    def send(self, to: Address, message: Any) -> None:
        self._links.send(to, message, self._machine)

    def broadcast(self, message: Any) -> None:
        for peer in self._links.peers():
            self._links.send(f"{peer}/{self._machine}" if self._machine else peer, message, self._machine)


ENVELOPE_BYTES_MAX = 256
"""A machine's name and its length byte."""


def _check_name(machine: str) -> None:
    if len(machine.encode()) >= ENVELOPE_BYTES_MAX:
        raise ConfigError(
            f"the machine name {machine[:40]!r}... exceeds the limit of {ENVELOPE_BYTES_MAX - 1} bytes; use a "
            "shorter one"
        )


def seal(machine: str, sender: str, body: bytes) -> bytes:
    """Address a message: two short names, each after its length, then the message."""
    to_name, from_name = machine.encode(), sender.encode()
    if len(to_name) >= ENVELOPE_BYTES_MAX or len(from_name) >= ENVELOPE_BYTES_MAX:
        raise ConfigError(f"a machine name on the way from {sender!r} to {machine!r} exceeds the limit of 255 bytes")
    return bytes((len(to_name),)) + to_name + bytes((len(from_name),)) + from_name + body


def unseal(data: bytes) -> tuple[str, str, memoryview]:
    """The inverse of `seal`."""
    view = memoryview(data)
    try:
        to_end = 1 + view[0]
        from_end = to_end + 1 + view[to_end]
        if from_end > len(view):
            raise FrameError("truncated envelope")
        return str(view[1:to_end], "utf-8"), str(view[to_end + 1 : from_end], "utf-8"), view[from_end:]
    except (IndexError, UnicodeDecodeError):
        raise FrameError("invalid envelope") from None


def _reason(reason: Exception | None) -> str:
    return "the peer closed the link" if reason is None else str(reason) or type(reason).__name__


def _ignore(_: object) -> None:
    """Replaced once the greetings are done."""
