"""Assembles GIOP messages from a stream of bytes: headers checked first, fragments joined, memory bounded."""

from __future__ import annotations

from typing import Final

from unerring.model import FrameError
from unerring.runtime.giop.messages import HEADER_BYTES, LITTLE, MAGIC, MORE, GiopMessage, Kind

FRAGMENTED_MAX: Final = 16
"""Messages that may be under way in parts at once on one connection."""
MINOR_MAX: Final = 2


class _Part:
    """A message whose parts still come. Past the bound only its beginning is kept."""

    def __init__(self, kind: Kind, minor: int, little: bool) -> None:
        self.kind = kind
        self.minor = minor
        self.little = little
        self.body = bytearray()
        self.oversized = False

    def add(self, data: bytes | memoryview, bytes_max: int) -> None:
        room = bytes_max - len(self.body)
        self.oversized |= len(data) > room
        self.body += data[: max(room, 0)]

    def message(self) -> GiopMessage:
        return GiopMessage(self.kind, self.minor, self.little, bytes(self.body), self.oversized)


class Assembly:
    """Feed it what a socket gave; take whole messages out.

    A message over `message_bytes_max` is read past: its beginning comes out, marked `oversized`, so that whoever
    sent it gets an answer and the connection lives on. Bytes that are no GIOP raise FrameError: the connection is of no
    use any more.
    """

    def __init__(self, message_bytes_max: int) -> None:
        self._bytes_max = message_bytes_max
        self._buffer = bytearray()
        self._fragmented: dict[int, _Part] = {}
        self._current: tuple[_Part, bool] | None = None
        """The message whose body is too long to wait for as a whole, and whether fragments follow it."""
        self._skip = 0

    def feed(self, data: bytes) -> list[GiopMessage]:
        self._buffer += data
        messages: list[GiopMessage] = []
        at = 0
        try:
            while (used := self._step(at, messages)) is not None:
                at += used
        finally:
            del self._buffer[:at]
        return messages

    def _step(self, at: int, messages: list[GiopMessage]) -> int | None:
        """Use some bytes of the buffer from `at` on; None when more must come first."""
        have = len(self._buffer) - at
        if self._current is not None:
            return self._read_past(at, have, messages)
        if have < HEADER_BYTES:
            check_magic(self._buffer[at : at + 4])
            return None
        part, more, size = self._open_header(at)
        if size > self._bytes_max:
            self._current, self._skip = (part, more), size
            return HEADER_BYTES
        if have < HEADER_BYTES + size:
            return None
        with memoryview(self._buffer) as view:
            body = bytes(view[at + HEADER_BYTES : at + HEADER_BYTES + size])
        if part.kind is not Kind.FRAGMENT and not more:
            messages.append(GiopMessage(part.kind, part.minor, part.little, body))
        else:
            part.add(body, self._bytes_max)
            self._join(part, more, messages)
        return HEADER_BYTES + size

    def _read_past(self, at: int, have: int, messages: list[GiopMessage]) -> int | None:
        if not have or self._current is None:
            return None
        part, more = self._current
        used = min(have, self._skip)
        part.add(bytes(self._buffer[at : at + used]), self._bytes_max)
        self._skip -= used
        if not self._skip:
            self._current = None
            self._join(part, more, messages)
        return used

    def _join(self, part: _Part, more: bool, messages: list[GiopMessage]) -> None:
        if part.kind is not Kind.FRAGMENT and not more:
            messages.append(part.message())
            return
        if part.minor < MINOR_MAX:
            raise FrameError(f"a fragment in GIOP 1.{part.minor}, which has no request id in fragments")
        if len(part.body) < 4:
            raise FrameError("a GIOP fragment too short for its request id")
        id = int.from_bytes(part.body[:4], "little" if part.little else "big")
        if part.kind is not Kind.FRAGMENT:
            if len(self._fragmented) >= FRAGMENTED_MAX:
                raise FrameError(f"more than {FRAGMENTED_MAX} fragmented CORBA messages at the same time")
            self._fragmented[id] = part
            return
        begun = self._fragmented.get(id)
        if begun is None:
            return  # of a message that was cancelled
        begun.add(memoryview(part.body)[4:], self._bytes_max)
        begun.oversized |= part.oversized
        if not more:
            del self._fragmented[id]
            messages.append(begun.message())

    def _open_header(self, at: int) -> tuple[_Part, bool, int]:
        header = bytes(self._buffer[at : at + HEADER_BYTES])
        check_magic(header[:4])
        major, minor, flags, kind = header[4:8]
        if major != 1 or minor > MINOR_MAX:
            raise FrameError(f"GIOP {major}.{minor} is not supported; 1.0 to 1.{MINOR_MAX} are")
        if kind > Kind.FRAGMENT:
            raise FrameError(f"a GIOP message of unknown kind {kind}")
        little = flags & LITTLE == LITTLE
        size = int.from_bytes(header[8:12], "little" if little else "big")
        return _Part(Kind(kind), minor, little), minor > 0 and flags & MORE == MORE, size


def check_magic(begin: bytes | bytearray) -> None:
    """Refuse another protocol as early as its first byte."""
    if begin != MAGIC[: len(begin)]:
        raise FrameError(f"{bytes(begin)!r} is not the start of a GIOP message: the server speaks another protocol")
