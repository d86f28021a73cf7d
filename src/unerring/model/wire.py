"""Messages on a wire or disk: msgspec structs, decoded against their schema, with a size limit before decoding."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from unerring.model.effects import Address
from unerring.model.errors import FrameError, SchemaError

_UNKNOWN: Final = re.compile(r"Invalid value '(\w+)' - at `\$\[0\]`")
"""What the decoder says of a message whose tag is none of the protocol's."""

UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, OverflowError, RecursionError)
"""What msgspec raises of bytes that mean nothing: a text that is no UTF-8, a number too large and nesting too deep are
none of its own errors."""


class Message(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """The base of every protocol message. Its tag is the class name; fields are positional and only ever appended."""


class Codec:
    """Bytes from and to the messages of one protocol."""

    def __init__(self, messages: Any, bytes_max: int) -> None:
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(messages)
        self.bytes_max = bytes_max

    def encode(self, message: Message) -> bytes:
        try:
            data = self._encoder.encode(message)
        except (TypeError, OverflowError, UnicodeEncodeError, RecursionError) as error:
            raise SchemaError(f"{type(message).__name__} holds a value that cannot be sent: {error}") from None
        if len(data) > self.bytes_max:
            raise FrameError(
                f"{type(message).__name__} has {len(data)} bytes, which exceeds the limit of {self.bytes_max} bytes; "
                "send less at once, or raise the limit on all members"
            )
        return data

    def decode(self, data: bytes | memoryview) -> Any:
        if len(data) > self.bytes_max:
            raise FrameError(f"a message of {len(data)} bytes exceeds the limit of {self.bytes_max} bytes")
        try:
            return self._decoder.decode(data)
        except UNDECODABLE as error:
            kind = _UNKNOWN.match(str(error))
            if kind is not None:
                raise FrameError(
                    f"invalid message: this release knows no {kind[1]!r}; if its sender has a newer one, upgrade this "
                    "side too"
                ) from None
            raise FrameError(f"invalid message: {error}") from None


class Connected(Message, frozen=True):
    """A driver's word to a machine: the link to this node is up. What was sent before may be gone; send it again."""

    peer: Address
    incarnation: int


class Disconnected(Message, frozen=True):
    """A driver's word to a machine: the link to this node is down. What was sent and not acknowledged may be lost."""

    peer: Address
    why: str


class Vanished(Message, frozen=True):
    """A driver's word to a machine, after `Disconnected`: nobody listens any more where this node did. Its process has
    ended, or is out of reach; it can have started again since."""

    peer: Address
