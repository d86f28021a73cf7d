"""Bytes from and to channel messages.

An event alone: 1 byte kind, 8 producer, 5 epoch, 6 sequence, 8 time, 4 ordinal = 32 bytes, then the payload.
A batch shares one header: kind, producer, epoch, first sequence, count, flags; then times, ordinals where a stream has
them, lengths, payloads, and the producer's signature if it signs. Everything else is a msgspec message behind a kind
byte.
"""

from __future__ import annotations

import struct
from itertools import accumulate, pairwise
from typing import Any, Final

from unerring.channels.config import ChannelConfig
from unerring.channels.messages import Control, Frames
from unerring.model import Codec, FrameError, Message

SINGLE: Final = 0xE1
BATCH: Final = 0xE2
CONTROL: Final = 0xE3
ORDINALS: Final = 1
SIGNED: Final = 2
SIGNATURE_BYTES: Final = 64
EVENT_BYTES: Final = 16
"""What an event in a batch takes besides its payload, at the most."""
_LOW: Final = 0xFFFFFFFF

_SINGLE: Final = struct.Struct("<BQIBIHqI")
_BATCH: Final = struct.Struct("<BQIBIHIB")
HEADER_BYTES: Final = _SINGLE.size
"""What the channel adds to one event."""


class ChannelCodec:
    """One channel's wire format; refuses what is too large before it looks inside."""

    def __init__(self, config: ChannelConfig) -> None:
        self._bytes_max = config.frame_bytes_max
        self._control = Codec(Control, config.frame_bytes_max)

    def encode(self, message: Frames | Message) -> bytes:
        if isinstance(message, Frames):
            return encode_frames(message)
        return bytes((CONTROL,)) + self._control.encode(message)

    def decode(self, data: bytes) -> Any:
        """A message, or FrameError with the reason."""
        if len(data) > self._bytes_max:
            raise FrameError(f"a frame of {len(data)} bytes is over the limit of {self._bytes_max}")
        kind = data[0] if data else 0
        if kind == BATCH:
            return _decode_batch(data)
        if kind == SINGLE:
            if len(data) < HEADER_BYTES:
                raise FrameError(f"a truncated event: {len(data)} bytes, its header alone has {HEADER_BYTES}")
            _, producer, epoch, era, low, high, time, ordinal = _SINGLE.unpack_from(data)
            payload = data[HEADER_BYTES:]
            ordinals = (ordinal,) if ordinal else None
            return Frames(producer, epoch | era << 32, low | high << 32, (time,), (payload,), ordinals, len(payload))
        if kind == CONTROL:
            return self._control.decode(memoryview(data)[1:])
        raise FrameError("not a frame of a reliable channel (another program on this service?)")


def encode_frames(frames: Frames) -> bytes:
    count = len(frames.payloads)
    first, ordinals = frames.first, frames.ordinals
    place = (frames.producer, frames.epoch & _LOW, frames.epoch >> 32, first & _LOW, first >> 32)
    if count == 1 and not frames.signature:
        return _SINGLE.pack(SINGLE, *place, frames.times[0], ordinals[0] if ordinals else 0) + frames.payloads[0]
    flags = (ORDINALS if ordinals else 0) | (SIGNED if frames.signature else 0)
    head = [
        _BATCH.pack(BATCH, *place, count, flags),
        struct.pack(f"<{count}q", *frames.times),
    ]
    if ordinals:
        head.append(struct.pack(f"<{count}I", *ordinals))
    head.append(struct.pack(f"<{count}I", *map(len, frames.payloads)))
    head.extend(frames.payloads)
    if frames.signature:
        head.append(frames.signature)
    return b"".join(head)


def _decode_batch(data: bytes) -> Frames:
    size = len(data)
    if size < _BATCH.size:
        raise FrameError(f"a truncated batch: {size} bytes")
    _, producer, epoch, era, low, high, count, flags = _BATCH.unpack_from(data)
    per_event = 16 if flags & ORDINALS else 12
    start = _BATCH.size + per_event * count
    signature = b""
    if flags & SIGNED:
        size -= SIGNATURE_BYTES
        signature = data[size:]
    if count < 1 or start > size or flags > ORDINALS | SIGNED:
        raise FrameError(f"a batch of {count} events does not fit its {len(data)} bytes")
    times = struct.unpack_from(f"<{count}q", data, _BATCH.size)
    at = _BATCH.size + 8 * count
    ordinals = None
    if flags & ORDINALS:
        ordinals = struct.unpack_from(f"<{count}I", data, at)
        at += 4 * count
    lengths = struct.unpack_from(f"<{count}I", data, at)
    ends = list(accumulate(lengths, initial=start))
    if ends[-1] != size:
        raise FrameError(f"a batch whose payloads end at byte {ends[-1]} of {size}")
    payloads = [data[begin:end] for begin, end in pairwise(ends)]
    return Frames(producer, epoch | era << 32, low | high << 32, times, payloads, ordinals, size - start, signature)
