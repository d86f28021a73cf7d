"""What the hub in the driver and the tasks of its pool say to each other: frames over TCP, a length and MessagePack."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import Final

import msgspec

from unerring.model import FrameError
from unerring.pipeline.shuffling import Interval

FRAME_BYTES_MAX: Final = 256 << 20
SEND_S: Final = 5.0
"""Whoever reads nothing for so long is taken for dead: a frame is small, and few are on their way."""
_LENGTH: Final = struct.Struct(">I")


class Greet(msgspec.Struct, frozen=True, tag=True):
    """A task's first frame. The token shows that it is one of this pool's."""

    token: bytes
    name: str


class Take(msgspec.Struct, frozen=True, tag=True):
    """Hold a partition, as it stands at a time."""

    line: int
    bucket: int
    at_us: int
    tenure: int
    """A task may get a partition that it had before: its answers say for which time."""


class Advance(msgspec.Struct, frozen=True, tag=True):
    """Run a partition over the interval that follows; afterwards keep its state, or not."""

    line: int
    bucket: int
    interval: Interval
    keep: bool


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

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        timeout = struct.pack("ll", int(SEND_S), 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)
        self._connection = connection
        self._sending = threading.Lock()

    def send(self, message: ToTask | ToHub) -> None:
        """OSError: nobody is there, or nobody reads."""
        data = _ENCODER.encode(message)
        with self._sending:
            self._connection.sendall(_LENGTH.pack(len(data)) + data)

    def to_task(self) -> ToTask | None:
        """The next frame for a task; None: the connection is over."""
        data = self._frame()
        return None if data is None else _TO_TASK.decode(data)

    def to_hub(self) -> ToHub | None:
        """The next frame for the hub; None: the connection is over. FrameError: whoever sends it is no task."""
        data = self._frame()
        try:
            return None if data is None else _TO_HUB.decode(data)
        except msgspec.DecodeError as error:
            raise FrameError(f"a frame that no task sends: {error}") from None

    def _frame(self) -> bytes | None:
        head = self._exactly(_LENGTH.size)
        if head is None:
            return None
        (length,) = _LENGTH.unpack(head)
        if length > FRAME_BYTES_MAX:
            raise FrameError(f"a frame of {length} bytes exceeds the limit of {FRAME_BYTES_MAX} bytes")
        return self._exactly(length)

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
