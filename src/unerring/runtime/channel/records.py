"""Payloads: a declared stream's records as msgpack arrays, or plain bytes where no stream is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from unerring.model import SchemaError, Stamp, StreamSchema, schema_of

V = TypeVar("V")


class Received(msgspec.Struct, Generic[V], frozen=True, gc=False):
    """One event as a consumer gets it. `subscriber.name_of(producer)` is the producer's name."""

    producer: int
    epoch: int
    sequence: int
    time: int
    ordinal: int
    value: V

    @property
    def stamp(self) -> Stamp:
        return Stamp(self.time, self.ordinal)


class Records:
    """Encodes and decodes the values of one stream."""

    def __init__(self, stream: type | None) -> None:
        self.schema: StreamSchema | None = None if stream is None else schema_of(stream)
        self._stream = stream
        self._encode = msgspec.msgpack.Encoder().encode
        self.decode: Callable[[bytes], Any] = bytes if stream is None else msgspec.msgpack.Decoder(stream).decode

    def encode(self, value: Any) -> bytes:
        if self._stream is None:
            if type(value) is not bytes:
                raise SchemaError(
                    f"a channel without a stream takes bytes, not {type(value).__name__}; give it stream=YourStream"
                )
            return value
        if type(value) is not self._stream:
            raise SchemaError(f"this channel carries {self._stream.__name__} records, not {type(value).__name__}")
        return self._encode(value)


BAD_RECORD = (msgspec.DecodeError, UnicodeDecodeError, OverflowError, RecursionError)
