"""A file over pieces of an object, as Arrow asks for one.

It begins with the object's first bytes, which is all of a small one: a small segment costs one request. No piece is
asked for from the end backwards, since not every store can do that.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Final

from unerring.log.store.client import Got
from unerring.model import DiskError

FIRST_BYTES: Final = 1 << 18
"""What opening a file asks for: more than a small segment, less than a noticeable wait."""
PIECE_BYTES: Final = 1 << 24
"""What one request asks for at most, so that a slow line can answer it in time."""


class ObjectFile(io.RawIOBase):
    """Reads what is asked for, when it is asked for."""

    def __init__(self, first: Got, piece: Callable[[int, int], Got | None], where: str) -> None:
        super().__init__()
        self._first = first
        self._piece = piece
        self._where = where
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def size(self) -> int:
        return self._first.size

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._first.size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._first.size - self._at)
        end = self._at + (left if size is None or size < 0 else min(size, left))
        pieces = []
        while self._at < end:
            data = self._next(end)
            pieces.append(data)
            self._at += len(data)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _next(self, end: int) -> bytes:
        if self._at < len(self._first.data):
            return self._first.data[self._at : end]
        piece = self._piece(self._at, min(end, self._at + PIECE_BYTES))
        if piece is None or piece.tag != self._first.tag:
            raise DiskError(f"{self._where} was deleted or replaced while it was read; read it again")
        return piece.data
