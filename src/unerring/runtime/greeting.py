"""The greeting between two nodes: who speaks, for which cluster, in which version. What differs is refused."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, TypeVar

import msgspec

from unerring.model import Codec, ConfigError, FrameError, HandshakeError, Message, NetworkError
from unerring.runtime.frames import FramedConnection
from unerring.runtime.guard import TOLD
from unerring.runtime.sockets import explain_tls

VERSION: Final = 2
GREETING_BYTES_MAX: Final = 4096
NODE_BYTES_MAX: Final = 255


class Identity(msgspec.Struct, frozen=True):
    """A node, as it introduces itself. `incarnation`, the microseconds of the start (starts.py), rises with every
    start; `cluster` is a fingerprint."""

    node: str
    incarnation: int
    cluster: str

    def __post_init__(self) -> None:
        if not self.node or "/" in self.node or len(self.node.encode()) > NODE_BYTES_MAX:
            raise ConfigError(f"node name {self.node!r}: use 1 to {NODE_BYTES_MAX} bytes without '/'")
        if self.incarnation < 0:
            raise ConfigError(f"incarnation {self.incarnation} of {self.node!r}: it counts up from 0")


class Greeting(Message, frozen=True):
    """Both sides' first frame; the dialler's comes first."""

    version: int
    cluster: str
    node: str
    incarnation: int


class Accepted(Message, frozen=True):
    """The dialler's second frame: the greetings fit, messages may follow."""


class Rejected(Message, frozen=True):
    """Instead of either: why the other side may not speak with us."""

    why: str


_CODEC: Final = Codec(Greeting | Accepted | Rejected, GREETING_BYTES_MAX)

Heard = TypeVar("Heard", bound=Message)

Check = Callable[[Identity], str | None]
"""Why an identity cannot be let in, or None."""
Vet = Callable[[str, FramedConnection], str | None]
"""Why whoever is at the other end may not be a node of that name, or None."""


class _Refusal(HandshakeError):
    """A sentence for our own operator, and what the other side is told: nothing about us."""

    def __init__(self, why: str, told: str) -> None:
        super().__init__(why)
        self.told = told


async def greet_acceptor(
    connection: FramedConnection, ours: Identity, expected: str, vet: Vet, check: Check, within_us: int
) -> Identity:
    """The dialler's side: greet, hear who answered, and accept it. Reading is paused then, for the caller to go on."""
    stranger = vet(expected, connection)
    if stranger is not None:  # it is not even greeted
        raise HandshakeError(stranger)
    first = _next_frame(connection)
    connection.send(_CODEC.encode(_greeting(ours)))
    theirs = await _hear(connection, first, within_us, Greeting)
    async with _refusal_told(connection, within_us):
        identity = _admit(connection, ours, theirs, vet, check)
        if identity.node != expected:
            raise HandshakeError(
                f"{expected!r} was called, but {identity.node!r} answered; correct the address of one of them"
            )
    connection.send(_CODEC.encode(Accepted()))
    return identity


async def greet_dialler(
    connection: FramedConnection, ours: Identity, vet: Vet, check: Check, within_us: int
) -> Identity:
    """The acceptor's side: hear who calls, greet back, and hear that this is whom it wanted."""
    theirs = await _hear(connection, _next_frame(connection), within_us, Greeting)
    async with _refusal_told(connection, within_us):
        identity = _admit(connection, ours, theirs, vet, check)
    verdict = _next_frame(connection)
    connection.send(_CODEC.encode(_greeting(ours)))
    await _hear(connection, verdict, within_us, Accepted)
    return identity


@contextlib.asynccontextmanager
async def _refusal_told(connection: FramedConnection, within_us: int) -> AsyncIterator[None]:
    """The other side's operator is to read the same sentence as ours, unless it would tell something about us."""
    try:
        yield
    except HandshakeError as error:
        told = error.told if isinstance(error, _Refusal) else str(error)
        connection.send(_CODEC.encode(Rejected(told[:1000])))
        connection.fail_after_sending(error)
        await connection.closed(within_us)
        raise


def _greeting(identity: Identity) -> Greeting:
    return Greeting(VERSION, identity.cluster, identity.node, identity.incarnation)


def _next_frame(connection: FramedConnection) -> asyncio.Future[bytes]:
    """Take one frame and pause: what follows it is for whoever comes after the greeting."""
    frame: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def take(data: bytes) -> None:
        if not frame.done():
            frame.set_result(data)
            connection.pause_reading()

    connection.frame_bytes_max = GREETING_BYTES_MAX
    connection.on_frame = take
    connection.resume_reading()
    return frame


async def _hear(
    connection: FramedConnection, frame: asyncio.Future[bytes], within_us: int, wanted: type[Heard]
) -> Heard:
    await asyncio.wait((frame, connection.lost), timeout=within_us / 1e6, return_when=asyncio.FIRST_COMPLETED)
    if frame.done():
        greeting: Any = _CODEC.decode(frame.result())
        if isinstance(greeting, Rejected):
            raise HandshakeError(f"refused: {greeting.why}")
        if isinstance(greeting, wanted):
            return greeting
        raise FrameError(f"unexpected {type(greeting).__name__} instead of {wanted.__name__}")
    if not connection.lost.done():
        raise NetworkError("no greeting arrived in time")
    reason = connection.lost.result()
    if isinstance(reason, ssl.SSLError):
        raise HandshakeError(explain_tls(reason))
    if isinstance(reason, (FrameError, HandshakeError)):
        raise reason
    if connection.secure:
        raise HandshakeError("it closed the connection after the TLS handshake; it may not trust our certificate")
    raise NetworkError(f"it closed the connection without a greeting ({reason or 'no reason given'})")


def _admit(connection: FramedConnection, ours: Identity, theirs: Greeting, vet: Vet, check: Check) -> Identity:
    stranger = vet(theirs.node, connection)
    if stranger is not None:
        raise _Refusal(stranger, TOLD)
    if theirs.version != VERSION:
        raise HandshakeError(
            f"{theirs.node!r} speaks version {theirs.version} of the node protocol and {ours.node!r} version {VERSION}"
            "; use the same release on both"
        )
    if theirs.cluster != ours.cluster:
        has = f"{theirs.node!r} has cluster fingerprint {theirs.cluster}"
        do = "give both the same cluster configuration"
        raise _Refusal(f"{has} and {ours.node!r} has {ours.cluster}; {do}", f"{has}, which is another one here; {do}")
    try:
        identity = Identity(theirs.node, theirs.incarnation, theirs.cluster)
    except ConfigError as error:
        raise HandshakeError(str(error)) from None
    why_not = check(identity)
    if why_not is not None:
        raise HandshakeError(why_not)
    return identity
