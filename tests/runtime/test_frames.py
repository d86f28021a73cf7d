"""Frames on a connection: what is written of them, with TLS and without."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from unerring.runtime.frames import ENCRYPTED_BYTES, HEADER, FramedConnection, framed

SEED = 420_000_001


class Written(asyncio.Transport):
    """What a connection gave it to write."""

    def __init__(self, secure: bool) -> None:
        super().__init__({"ssl_object": object() if secure else None, "socket": self})
        self.pieces: list[bytes] = []
        self.waiting_bytes = 0

    def write(self, data: Any) -> None:
        self.pieces.append(bytes(data))

    def fileno(self) -> int:
        return -1  # nobody's: all goes through `write`

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return self.waiting_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


def connected(secure: bool, outbox_bytes_max: int = 1 << 30) -> tuple[FramedConnection, Written]:
    connection = FramedConnection(1 << 30, outbox_bytes_max, lambda data: None, lambda why: None)
    transport = Written(secure)
    connection.connection_made(transport)
    return connection, transport


@pytest.mark.parametrize("secure", [True, False], ids=["tls", "plain"])
def test_large_frames_are_encrypted_in_pieces_and_nothing_else_changes(secure: bool) -> None:
    drawn = random.Random(SEED)
    sizes = [0, 1, ENCRYPTED_BYTES - 5, ENCRYPTED_BYTES - 4, ENCRYPTED_BYTES, ENCRYPTED_BYTES + 1, 300_000]
    frames = [drawn.randbytes(size) for size in sizes * 3]
    drawn.shuffle(frames)
    parts = [part for frame in frames for part in (HEADER.pack(len(frame)), frame)]
    whole = b"".join(map(framed, frames))

    async def writes() -> None:
        connection, transport = connected(secure)
        assert connection.write_parts(parts, len(whole))
        assert connection.write(whole)
        assert all(map(connection.send_soon, frames))
        connection.flush()
        assert b"".join(transport.pieces) == 3 * whole
        assert (max(map(len, transport.pieces)) <= ENCRYPTED_BYTES) == secure

    asyncio.run(writes())


@pytest.mark.parametrize("secure", [True, False], ids=["tls", "plain"])
def test_an_outbox_without_room_takes_no_piece(secure: bool) -> None:
    async def writes() -> None:
        connection, transport = connected(secure, outbox_bytes_max=200_000)
        transport.waiting_bytes = 100_001
        parts = [bytes(50_000), bytes(50_000)]
        assert not connection.write_parts(parts, 100_000)
        assert not connection.send(bytes(100_000))
        assert transport.pieces == []
        transport.waiting_bytes = 100_000
        assert connection.write_parts(parts, 100_000)
        assert b"".join(transport.pieces) == bytes(100_000)

    asyncio.run(writes())
