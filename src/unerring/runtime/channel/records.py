"""Payloads: a declared stream's records as msgpack arrays, or plain bytes where no stream is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import countOf
from typing import Any, Generic, TypeVar, overload

import msgspec

from unerring.channels import Frames
from unerring.model import SchemaError, Stamp, StreamSchema, schema_of

V = TypeVar("V")

_BYTES = (bytes,)
"""Without this a text would be taken for Base64."""


class Received(msgspec.Struct, Generic[V], frozen=True, gc=False):
    """One event as a consumer gets it. `subscriber.name_of(producer)` is the producer's name."""

    producer: int
    """The producer's id."""
    epoch: int
    """Its incarnation."""
    sequence: int
    """The event's number in the epoch, from 1."""
    time: int
    """Event time, in microseconds since 1970."""
    ordinal: int
    """The tie-breaker among events of one time."""
    value: V
    """The record, or the payload's bytes where no stream was given."""

    @property
    def stamp(self) -> Stamp:
        """Time and ordinal."""
        return Stamp(self.time, self.ordinal)


class Batch(Sequence[Received[V]]):
    """Consecutive events of one producer. Events are made as they are looked at; `values` are there at once."""

    __slots__ = ("_frames", "sequences", "values")

    def __init__(self, frames: Frames, sequences: Sequence[int], values: list[V]) -> None:
        self._frames = frames
        self.sequences = sequences
        self.values = values

    @property
    def frames(self) -> Frames:
        """The batch as it travelled."""
        return self._frames

    @property
    def times(self) -> Sequence[int]:
        first = self._frames.first
        return [self._frames.times[sequence - first] for sequence in self.sequences]

    @property
    def more(self) -> bool:
        """Whether more events of the last time may follow."""
        return self._frames.more

    def __len__(self) -> int:
        return len(self.values)

    @overload
    def __getitem__(self, at: int) -> Received[V]: ...
    @overload
    def __getitem__(self, at: slice) -> list[Received[V]]: ...
    def __getitem__(self, at: int | slice) -> Received[V] | list[Received[V]]:
        if isinstance(at, slice):
            return [self[index] for index in range(*at.indices(len(self.values)))]
        frames, sequence = self._frames, self.sequences[at]
        where = sequence - frames.first
        ordinal = frames.ordinals[where] if frames.ordinals else 0
        return Received(frames.producer, frames.epoch, sequence, frames.times[where], ordinal, self.values[at])


class Records:
    """Encodes and decodes the values of one stream."""

    def __init__(self, stream: type | None) -> None:
        self.schema: StreamSchema | None = None if stream is None else schema_of(stream)
        self._stream = stream
        self._encode = msgspec.msgpack.Encoder().encode
        self.decode: Callable[[bytes], Any] = bytes if stream is None else msgspec.msgpack.Decoder(stream).decode

    def decode_all(self, payloads: Sequence[bytes]) -> list[Any]:
        return list(payloads) if self._stream is None else list(map(self.decode, payloads))

    def encode_all(self, values: Iterable[Any]) -> list[bytes]:
        """A list of its own: the caller's may change."""
        given = values if type(values) is list else list(values)
        if self._stream is None:
            try:
                return msgspec.convert(given, list[bytes], builtin_types=_BYTES)  # checked and copied in one go
            except msgspec.ValidationError:
                return [self.encode(value) for value in given]  # says which one is wrong
        if countOf(map(type, given), self._stream) != len(given):
            return [self.encode(value) for value in given]
        return list(map(self._encode, given))

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
