"""What the hub in the driver and the tasks of its pool say to each other: sealed frames over TCP.

A frame is a length and MessagePack, encrypted by AES-GCM with a key for each direction. The keys follow from the pool's
secret, which the tasks get from Spark, and from what both ends draw for the connection: whoever does not know the
secret cannot say or read anything, and no frame can be repeated, left out or moved.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from typing import Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from unerring.model import UNDECODABLE, FrameError
from unerring.pipeline.shuffling import Interval

FRAME_BYTES_MAX: Final = 256 << 20
GREETING_BYTES_MAX: Final = 4096
SEND_S: Final = 5.0
"""Whoever reads nothing for so long is taken for dead: a frame is small, and few are on their way."""
_LENGTH: Final = struct.Struct(">I")
_DRAWN_BYTES: Final = 16
_KEY_BYTES: Final = 32


class Greet(msgspec.Struct, frozen=True, tag=True):
    """A task's first frame."""

    name: str


class Take(msgspec.Struct, frozen=True, tag=True):
    """Hold a partition, as it stands at a time, and run what is sealed since: nobody asks for its outputs."""

    line: int
    bucket: int
    at_us: int
    tenure: int
    """A task may get a partition that it had before: its answers say for which time."""
    sealed: Interval | None = None


class Advance(msgspec.Struct, frozen=True, tag=True):
    """Run a partition over the interval that follows; afterwards keep its state, or not."""

    line: int
    bucket: int
    interval: Interval
    keep: bool
    handed: dict[str, bytes] = {}
    """Streams that may not be sealed yet: their rows of the interval, of all partitions (see `handing`)."""


class Drop(msgspec.Struct, frozen=True, tag=True):
    """Somebody else holds the partition now."""

    line: int
    bucket: int


class End(msgspec.Struct, frozen=True, tag=True):
    """The task is done."""


class Answered(msgspec.Struct, frozen=True, tag=True):
    """What a partition found in an interval: for each output stream an answer (see `answers`)."""

    line: int
    bucket: int
    tenure: int
    from_us: int
    through_us: int
    outputs: dict[str, bytes]
    keys: int
    rows: int
    state_bytes: int = 0
    """What was kept of the partition last."""


class Kept(msgspec.Struct, frozen=True, tag=True):
    """The state of a partition is on the store."""

    line: int
    bucket: int
    at_us: int


class Failed(msgspec.Struct, frozen=True, tag=True):
    """A partition cannot go on, and would not elsewhere: rules, log or disk are wrong."""

    line: int
    bucket: int
    why: str


ToTask = Take | Advance | Drop | End
ToHub = Greet | Answered | Kept | Failed
_ENCODER: Final = msgspec.msgpack.Encoder()
_TO_TASK: Final = msgspec.msgpack.Decoder(ToTask)
_TO_HUB: Final = msgspec.msgpack.Decoder(ToHub)


class Wire:
    """One end of a connection. Any thread may send; one receives."""

    def __init__(self, connection: socket.socket, secret: bytes, *, dialled: bool) -> None:
        """`dialled`: this is the task's end. OSError: nobody is there."""
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        timeout = struct.pack("ll", int(SEND_S), 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)
        self._connection = connection
        self._sending = threading.Lock()
        self.bytes_max = FRAME_BYTES_MAX if dialled else GREETING_BYTES_MAX
        """What a frame may weigh that comes in; a hub raises it for those who have greeted."""
        own = os.urandom(_DRAWN_BYTES)
        other = self._exchanged(own)
        drawn = own + other if dialled else other + own
        ours, theirs = (b"to hub", b"to task") if dialled else (b"to task", b"to hub")
        self._sealing = _Sealing(secret, drawn, ours)
        self._opening = _Sealing(secret, drawn, theirs)

    def _exchanged(self, own: bytes) -> bytes:
        """What the other end has drawn."""
        try:
            self._connection.sendall(own)
            other = self._exactly(_DRAWN_BYTES)
            if other is None:
                raise ConnectionError("the connection ended before both had drawn")
        except OSError:
            self._connection.close()
            raise
        return other

    def send(self, message: ToTask | ToHub) -> None:
        """OSError: nobody is there, or nobody reads."""
        data = _ENCODER.encode(message)
        with self._sending:
            frame = self._sealing.sealed(data)
            self._connection.sendall(_LENGTH.pack(len(frame)) + frame)

    def to_task(self) -> ToTask | None:
        """The next frame for a task; None: the connection is over."""
        data = self._frame()
        return None if data is None else _TO_TASK.decode(data)

    def to_hub(self) -> ToHub | None:
        """The next frame for the hub; None: the connection is over. FrameError: whoever sends it is no task."""
        data = self._frame()
        try:
            return None if data is None else _TO_HUB.decode(data)
        except UNDECODABLE as error:
            raise FrameError(f"a frame that no task sends: {error}") from None

    def _frame(self) -> bytes | None:
        head = self._exactly(_LENGTH.size)
        if head is None:
            return None
        (length,) = _LENGTH.unpack(head)
        if length > self.bytes_max:
            raise FrameError(f"a frame of {length} bytes exceeds the limit of {self.bytes_max} bytes")
        frame = self._exactly(length)
        return None if frame is None else self._opening.opened(frame)

    def _exactly(self, count: int) -> bytes | None:
        data = bytearray()
        while len(data) < count:
            try:
                piece = self._connection.recv(min(count - len(data), 1 << 20))
            except OSError:
                return None
            if not piece:
                return None
            data += piece
        return bytes(data)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()


class _Sealing:
    """One direction of a connection: its key, and the number of the next frame."""

    def __init__(self, secret: bytes, drawn: bytes, direction: bytes) -> None:
        self._cipher = AESGCM(HKDF(SHA256(), _KEY_BYTES, salt=drawn, info=direction).derive(secret))
        self._number = 0

    def sealed(self, data: bytes) -> bytes:
        return self._cipher.encrypt(self._nonce(), data, None)

    def opened(self, frame: bytes) -> bytes:
        try:
            return self._cipher.decrypt(self._nonce(), frame, None)
        except InvalidTag:
            raise FrameError("a frame that was not sealed with this pool's secret, or not in its turn") from None

    def _nonce(self) -> bytes:
        self._number += 1
        return self._number.to_bytes(12, "big")
