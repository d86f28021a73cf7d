"""GIOP messages, versions 1.0 to 1.2: what is asked, what is answered, and how both stand on the wire.

| message | from → to | when |
|---|---|---|
| Request, LocateRequest, CancelRequest | client → server | an operation is called; is the object there?; never mind |
| Reply, LocateReply | server → client | results or an exception; here, elsewhere, unknown |
| CloseConnection, MessageError | both | no more will come; that was no GIOP |
| Fragment | both | the rest of a message that was sent in parts |

In 1.2 the body is aligned to 8 and the headers' fields stand in another order.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from unerring.model import FrameError
from unerring.runtime.giop.cdr import Decoder, Encoder

MAGIC: Final = b"GIOP"
HEADER: Final = struct.Struct("<4sBBBBI")
HEADER_BYTES: Final = HEADER.size
LITTLE: Final = 1
MORE: Final = 2
SERVICE_CONTEXTS_MAX: Final = 64


class Kind(IntEnum):
    REQUEST = 0
    REPLY = 1
    CANCEL_REQUEST = 2
    LOCATE_REQUEST = 3
    LOCATE_REPLY = 4
    CLOSE_CONNECTION = 5
    MESSAGE_ERROR = 6
    FRAGMENT = 7


class Status(IntEnum):
    """How a call ended."""

    NO_EXCEPTION = 0
    USER_EXCEPTION = 1
    SYSTEM_EXCEPTION = 2
    LOCATION_FORWARD = 3
    LOCATION_FORWARD_PERM = 4
    NEEDS_ADDRESSING_MODE = 5


class Whereabouts(IntEnum):
    """The answer to a LocateRequest."""

    UNKNOWN = 0
    HERE = 1
    FORWARD = 2


@dataclass(frozen=True, slots=True)
class GiopMessage:
    """One message as it came: `minor` of version 1, and everything behind the header of twelve bytes.

    `oversized`: only its beginning was kept, which tells what it was and whom to answer.
    """

    kind: Kind
    minor: int
    little: bool
    body: bytes
    oversized: bool = False

    def decoder(self) -> Decoder:
        return Decoder(self.body, self.little, HEADER_BYTES)


@dataclass(frozen=True, slots=True)
class Request:
    """A call that came in, or a LocateRequest (`operation` is then empty)."""

    id: int
    minor: int
    answer: bool
    key: bytes
    operation: str
    arguments: Decoder


@dataclass(frozen=True, slots=True)
class Reply:
    id: int
    status: Status
    results: Decoder


# Writing


def write_message(kind: Kind, minor: int, body: bytes) -> bytes:
    return HEADER.pack(MAGIC, 1, minor, LITTLE, kind, len(body)) + body


def begin_request(id: int, minor: int, key: bytes, operation: str, answer: bool = True) -> Encoder:
    """A request's body, ready for its arguments; `write_message` finishes it."""
    body = Encoder(HEADER_BYTES)
    if minor >= 2:
        body.ulong(id)
        body.raw(b"\x03\0\0\0" if answer else b"\0\0\0\0")
        body.ushort(0)  # the target is named by its key
        body.octets(key)
        body.string(operation)
        body.ulong(0)  # no service contexts
        return body
    body.ulong(0)
    body.ulong(id)
    body.boolean(answer)
    body.octets(key)
    body.string(operation)
    body.octets(b"")  # the principal
    return body


def begin_reply(id: int, minor: int, status: Status) -> Encoder:
    body = Encoder(HEADER_BYTES)
    if minor >= 2:
        body.ulong(id)
        body.ulong(status)
        body.ulong(0)
    else:
        body.ulong(0)
        body.ulong(id)
        body.ulong(status)
    return body


def begin_values(body: Encoder, minor: int) -> None:
    """Align before the first argument or result: in 1.2 they begin at a multiple of eight."""
    if minor >= 2:
        body.align(8)


def write_locate_reply(id: int, minor: int, whereabouts: Whereabouts) -> bytes:
    body = Encoder(HEADER_BYTES)
    body.ulong(id)
    body.ulong(whereabouts)
    return write_message(Kind.LOCATE_REPLY, minor, bytes(body))


def write_system_exception(id: int, minor: int, repository_id: str) -> bytes:
    body = begin_reply(id, minor, Status.SYSTEM_EXCEPTION)
    begin_values(body, minor)
    body.string(repository_id)
    body.ulong(0)
    body.ulong(1)  # it was not carried out
    return write_message(Kind.REPLY, minor, bytes(body))


# Reading


def _skip_service_contexts(body: Decoder) -> None:
    count = body.count(8, "service contexts")
    if count > SERVICE_CONTEXTS_MAX:
        raise FrameError(f"{count} service contexts in one CORBA message; the limit is {SERVICE_CONTEXTS_MAX}")
    for _ in range(count):
        body.ulong()
        body.octets()


def _read_target(body: Decoder) -> bytes:
    disposition = body.ushort()
    if disposition != 0:
        raise FrameError("a CORBA request that names its target by a profile; only object keys are supported")
    return body.octets()


def read_request(message: GiopMessage) -> Request:
    body = message.decoder()
    if message.minor >= 2:
        id = body.ulong()
        answer = body.octet() & 1 == 1
        for _ in range(3):
            body.octet()
        key = _read_target(body)
        operation = body.string()
        _skip_service_contexts(body)
        body.align(8)
    else:
        _skip_service_contexts(body)
        id = body.ulong()
        answer = body.boolean()
        key = body.octets()
        operation = body.string()
        body.octets()
    return Request(id, message.minor, answer, key, operation, body)


def read_locate_request(message: GiopMessage) -> Request:
    body = message.decoder()
    id = body.ulong()
    key = _read_target(body) if message.minor >= 2 else body.octets()
    return Request(id, message.minor, True, key, "", body)


def read_reply(message: GiopMessage) -> Reply:
    body = message.decoder()
    if message.minor >= 2:
        id, status = body.ulong(), body.ulong()
        _skip_service_contexts(body)
        body.align(8)
    else:
        _skip_service_contexts(body)
        id, status = body.ulong(), body.ulong()
    if status > Status.NEEDS_ADDRESSING_MODE:
        raise FrameError(f"a CORBA reply of unknown status {status}")
    return Reply(id, Status(status), body)
