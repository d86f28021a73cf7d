"""Bytes from and to channel messages.

An event alone: 1 byte kind, 8 producer, 5 epoch, 6 sequence, 8 time, 4 ordinal = 32 bytes, then the payload.
More events of its time may follow one of kind `SINGLE_MORE`.
A batch shares one header: kind, producer, epoch, first sequence, count, flags; then times (one alone where they count
on by a microsecond), ordinals where a stream has them, the payloads as one msgpack array, so that they are put together
and taken apart in one call, and the producer's signature if it signs. Everything else is a msgspec message behind a
kind byte.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from unerring.channels.config import ChannelConfig
from unerring.channels.messages import SEQUENCE_MAX, Control, Frames
from unerring.model import UNDECODABLE, Codec, FrameError, Message

SINGLE: Final = 0xE1
BATCH: Final = 0xE4
CONTROL: Final = 0xE3
SINGLE_MORE: Final = 0xE5
ORDINALS: Final = 1
SIGNED: Final = 2
CONSECUTIVE: Final = 4
MORE: Final = 8
SIGNATURE_BYTES: Final = 64
EVENT_BYTES: Final = 20
"""The most bytes that an event in a batch takes besides its payload."""
_LOW: Final = 0xFFFFFFFF

_SINGLE: Final = struct.Struct("<BQIBIHqI")
_BATCH: Final = struct.Struct("<BQIBIHIB")
_TIME: Final = struct.Struct("<q")
_TIME_MAX: Final = (1 << 63) - 1
_PLAIN: Final = struct.Struct("<BQIBIHIBq")
"""The header of a batch, and the one time of consecutive ones."""
_PLAIN_BYTES: Final = _PLAIN.size
_join_payloads: Final = msgspec.msgpack.Encoder().encode
_join_payloads_into: Final = msgspec.msgpack.Encoder().encode_into
_part_payloads: Final = msgspec.msgpack.Decoder(list[bytes]).decode
_PAYLOAD_BYTES_MIN: Final = 2
"""An empty payload in its array."""
HEADER_BYTES: Final = _SINGLE.size
"""The bytes that the channel adds to one event."""


class ChannelCodec:
    """One channel's wire format; refuses what is too large before it looks inside."""

    def __init__(self, config: ChannelConfig) -> None:
        self._bytes_max = config.frame_bytes_max
        self._control = Codec(Control, config.frame_bytes_max)
        self._joined = bytearray(_PLAIN_BYTES)
        """Room for a plain header, and payloads behind it. It is kept: memory that is new for each batch costs more
        than what is done in it. No larger than the largest batch."""
        self._weighed: Sequence[bytes] | None = None
        """Whose payloads these are."""

    def weigh(self, payloads: Sequence[bytes]) -> int:
        """Bytes of these payloads as they travel. They are joined for that, which the next `encode` makes use of."""
        _join_payloads_into(payloads, self._joined, _PLAIN_BYTES)
        self._weighed = payloads
        return len(self._joined) - _PLAIN_BYTES

    def encode(self, message: Frames | Message) -> bytes:
        if isinstance(message, Frames):
            times = message.times
            plain = type(times) is range and times.step == 1 and not message.ordinals and not message.signature
            if plain and len(message.payloads) > 1:
                return self._encode_plain(message)
            return encode_frames(message)
        return bytes((CONTROL,)) + self._control.encode(message)

    def _encode_plain(self, frames: Frames) -> bytes:
        """Most batches: the same as `encode_frames`, put together in one place."""
        if self._weighed is not frames.payloads:
            self.weigh(frames.payloads)
        self._weighed = None
        flags = CONSECUTIVE | MORE if frames.more else CONSECUTIVE
        _PLAIN.pack_into(self._joined, 0, BATCH, *_place(frames), len(frames.payloads), flags, frames.times[0])
        return bytes(self._joined)

    def decode(self, data: bytes) -> Any:
        """A message, or FrameError with the reason."""
        if len(data) > self._bytes_max:
            raise FrameError(f"a frame of {len(data)} bytes exceeds the limit of {self._bytes_max} bytes")
        kind = data[0] if data else 0
        if kind == BATCH:
            return _decode_batch(data)
        if kind in (SINGLE, SINGLE_MORE):
            return _decode_single(data, kind == SINGLE_MORE)
        if kind == CONTROL:
            return self._control.decode(memoryview(data)[1:])
        raise FrameError("not a frame of a reliable channel (another program on this service?)")


def _place(frames: Frames) -> tuple[int, int, int, int, int]:
    epoch, first = frames.epoch, frames.first
    return frames.producer, epoch & _LOW, epoch >> 32, first & _LOW, first >> 32


def encode_frames(frames: Frames) -> bytes:
    count = len(frames.payloads)
    ordinals, place = frames.ordinals, _place(frames)
    if count == 1 and not frames.signature:
        kind = SINGLE_MORE if frames.more else SINGLE
        return _SINGLE.pack(kind, *place, frames.times[0], ordinals[0] if ordinals else 0) + frames.payloads[0]
    times = frames.times
    consecutive = type(times) is range and times.step == 1
    flags = (ORDINALS if ordinals else 0) | (SIGNED if frames.signature else 0) | (CONSECUTIVE if consecutive else 0)
    flags |= MORE if frames.more else 0
    parts = [
        _BATCH.pack(BATCH, *place, count, flags),
        _TIME.pack(times[0]) if consecutive else struct.pack(f"<{count}q", *times),
    ]
    if ordinals:
        parts.append(struct.pack(f"<{count}I", *ordinals))
    parts.append(_join_payloads(frames.payloads))
    if frames.signature:
        parts.append(frames.signature)
    return b"".join(parts)


def _decode_single(data: bytes, more: bool) -> Frames:
    size = len(data) - HEADER_BYTES
    if size < 0:
        raise FrameError(f"truncated event: {len(data)} bytes, but its header alone has {HEADER_BYTES}")
    _, producer, epoch, era, low, high, time, ordinal = _SINGLE.unpack_from(data)
    sequence = low | high << 32 or _checked(0, 1)
    ordinals = (ordinal,) if ordinal else None
    return Frames(producer, epoch | era << 32, sequence, (time,), (data[HEADER_BYTES:],), ordinals, size, b"", more)


def _decode_batch(data: bytes) -> Frames:
    size = len(data)
    if size < _BATCH.size:
        raise FrameError(f"truncated batch: {size} bytes")
    _, producer, epoch, era, low, high, count, flags = _BATCH.unpack_from(data)
    at = _BATCH.size
    start = at + (8 if flags & CONSECUTIVE else 8 * count) + (4 * count if flags & ORDINALS else 0)
    signature = b""
    if flags & SIGNED:
        size -= SIGNATURE_BYTES
        signature = data[size:]
    if count < 1 or start + _PAYLOAD_BYTES_MIN * count > size or flags > ORDINALS | SIGNED | CONSECUTIVE | MORE:
        raise FrameError(f"a batch of {count} events does not fit its {len(data)} bytes")
    times: Sequence[int]
    if flags & CONSECUTIVE:
        (first_us,) = _TIME.unpack_from(data, at)
        if first_us > _TIME_MAX - count:
            raise FrameError(f"a batch of {count} events exceeds the largest time: it begins at {first_us}")
        times = range(first_us, first_us + count)
        at += 8
    else:
        times = struct.unpack_from(f"<{count}q", data, at)
        at += 8 * count
    ordinals = struct.unpack_from(f"<{count}I", data, at) if flags & ORDINALS else None
    payloads = _decode_payloads(data, start, size, count)
    sequence, more = _checked(low | high << 32, count), bool(flags & MORE)
    return Frames(producer, epoch | era << 32, sequence, times, payloads, ordinals, size - start, signature, more)


def _checked(first: int, count: int) -> int:
    """Sequences begin with 1 and end where they have no number any more."""
    if first < 1 or first + count - 1 > SEQUENCE_MAX:
        raise FrameError(f"invalid sequence: {count} events from {first} on; sequences go from 1 to {SEQUENCE_MAX}")
    return first


def _decode_payloads(data: bytes, start: int, end: int, count: int) -> list[bytes]:
    # The decoder takes an array's word for its length and makes room for it: the word is checked before.
    head = _array_head(count)
    if not data.startswith(head, start, end):
        raise FrameError(f"a batch of {count} events has another number of payloads")
    try:
        return _part_payloads(memoryview(data)[start:end])
    except UNDECODABLE as error:
        raise FrameError(f"a batch of {count} events has invalid payloads: {error}") from None


def _array_head(count: int) -> bytes:
    if count < 16:
        return bytes((0x90 | count,))
    return struct.pack(">BH", 0xDC, count) if count < 1 << 16 else struct.pack(">BI", 0xDD, count)
