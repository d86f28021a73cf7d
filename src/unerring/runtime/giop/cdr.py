"""CDR, CORBA's wire format: every value stands at a multiple of its size, counted from the start of the message.

We write little-endian and read both. What is read may be anything: each step is checked, and a FrameError says what is
wrong. An encapsulation is a message in a message: it counts from its own start and says its own byte order.
"""

from __future__ import annotations

import struct
from typing import Final

from unerring.model import FrameError

_LITTLE_ULONG: Final = struct.Struct("<I")
_LITTLE_USHORT: Final = struct.Struct("<H")
_ULONG: Final = {True: struct.Struct("<I"), False: struct.Struct(">I")}
_USHORT: Final = {True: struct.Struct("<H"), False: struct.Struct(">H")}


class Encoder:
    """Values one after the other. `origin`: how many bytes of the message stand before the first."""

    def __init__(self, origin: int = 0) -> None:
        self._buffer = bytearray()
        self._origin = origin

    def __bytes__(self) -> bytes:
        return bytes(self._buffer)

    def __len__(self) -> int:
        return len(self._buffer)

    def align(self, size: int) -> None:
        """Zeros up to the next multiple of `size`."""
        self._buffer += bytes(-(self._origin + len(self._buffer)) % size)

    def octet(self, value: int) -> None:
        self._buffer.append(value)

    def boolean(self, value: bool) -> None:
        self._buffer.append(1 if value else 0)

    def ushort(self, value: int) -> None:
        self.align(2)
        self._buffer += _LITTLE_USHORT.pack(value)

    def ulong(self, value: int) -> None:
        self.align(4)
        self._buffer += _LITTLE_ULONG.pack(value)

    def octets(self, value: bytes) -> None:
        """sequence<octet>."""
        self.ulong(len(value))
        self._buffer += value

    def string(self, value: str) -> None:
        """Narrow characters, with the zero that CORBA wants at the end."""
        self.octets(value.encode("latin-1", "replace") + b"\0")

    def raw(self, value: bytes) -> None:
        """Bytes that are CDR already, and stand where they may."""
        self._buffer += value


def encapsulation() -> Encoder:
    """A fresh one; its bytes go into the outer message as `octets`."""
    inner = Encoder()
    inner.boolean(True)  # little-endian
    return inner


class Decoder:
    """Values one after the other out of bytes that may be anything."""

    def __init__(self, data: bytes | memoryview, little: bool, origin: int = 0) -> None:
        self._data = memoryview(data)
        self._at = 0
        self._origin = origin
        self._little = little
        self._ulong = _ULONG[little]
        self._ushort = _USHORT[little]

    @property
    def left(self) -> int:
        """Bytes not read yet."""
        return len(self._data) - self._at

    def align(self, size: int) -> None:
        self._at = min(self._at + -(self._origin + self._at) % size, len(self._data))

    def _take(self, size: int, what: str) -> int:
        at = self._at
        if size > len(self._data) - at:
            raise FrameError(f"truncated CORBA message: {what} needs {size} bytes, {len(self._data) - at} are left")
        self._at = at + size
        return at

    def octet(self) -> int:
        return self._data[self._take(1, "an octet")]

    def boolean(self) -> bool:
        value = self.octet()
        if value > 1:
            raise FrameError(f"a CORBA boolean of {value}: neither true nor false")
        return value == 1

    def ushort(self) -> int:
        self.align(2)
        value: int = self._ushort.unpack_from(self._data, self._take(2, "a ushort"))[0]
        return value

    def ulong(self) -> int:
        self.align(4)
        value: int = self._ulong.unpack_from(self._data, self._take(4, "a ulong"))[0]
        return value

    def octets(self) -> bytes:
        size = self.ulong()
        at = self._take(size, "a sequence of octets")
        return bytes(self._data[at : at + size])

    def string(self) -> str:
        text = self.octets()
        if not text.endswith(b"\0"):
            raise FrameError("a CORBA string without its final zero")
        return text[:-1].decode("latin-1")

    def count(self, element_bytes_min: int, what: str) -> int:
        """A sequence's length, refused at once when what is left cannot hold it."""
        count = self.ulong()
        if count * element_bytes_min > self.left:
            raise FrameError(f"truncated CORBA message: {count} {what} do not fit into {self.left} bytes")
        return count

    def encapsulated(self) -> Decoder:
        """The decoder of an encapsulation that stands here."""
        return open_encapsulation(self.octets())


def open_encapsulation(data: bytes) -> Decoder:
    """An encapsulation's first octet tells its byte order."""
    if not data or data[0] > 1:
        raise FrameError("a CORBA encapsulation without a byte order")
    inner = Decoder(data, little=data[0] == 1)
    inner.octet()
    return inner
