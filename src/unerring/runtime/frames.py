"""Length-prefixed frames on an asyncio connection: u32 length, checked before the body is read, then the body.

Work is done per buffer and per frame, never per byte; what a peer may make us hold is bounded in both directions.
"""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from unerring.model import FrameError, NetworkError, Who, identities, invariant

HEADER: Final = struct.Struct(">I")
HEADER_BYTES: Final = HEADER.size
READ_BYTES: Final = 256 * 1024
"""The read buffer of a connection; it grows with the largest frame under way..."""
READ_BYTES_KEPT: Final = 4 * READ_BYTES
"""...and shrinks back once it was larger than this."""
ENCRYPTED_BYTES: Final = 64 * 1024
"""Over TLS no more is written at once: what was encrypted of more would lie in memory that is new each time, and that
costs as much as to encrypt it."""


def framed(data: bytes) -> bytes:
    """One frame, ready to be written."""
    return HEADER.pack(len(data)) + data


class FramedConnection(asyncio.BufferedProtocol):
    """One connection. `on_frame` is called on the event loop for each whole frame, `on_lost` once at the end.

    `frame_bytes_max` may be raised once the peer has shown who it is.
    """

    def __init__(
        self,
        frame_bytes_max: int,
        outbox_bytes_max: int,
        on_frame: Callable[[bytes], None],
        on_lost: Callable[[Exception | None], None],
    ) -> None:
        self.frame_bytes_max = frame_bytes_max
        self.outbox_bytes_max = outbox_bytes_max
        self.on_frame = on_frame
        self.on_congestion: Callable[[bool], None] | None = None
        self.lost = asyncio.get_running_loop().create_future()
        """Done when the connection is over; its result is the reason, or None."""
        self.congested = False
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._failure: Exception | None = None
        self._buffer = bytearray()
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self._paused = False
        self._secure = False
        self._identities: tuple[Who, ...] | None = None
        self._file = -1
        """The socket's, where bytes go through it as they are."""
        self._pending: list[bytes] = []
        self._pending_bytes = 0

    @property
    def secure(self) -> bool:
        """Whether it began as a TLS connection."""
        return self._secure

    def certificate_names(self) -> list[str] | None:
        """The names in the peer's certificate; None without TLS."""
        if self._transport is None or not self._secure:
            return None
        certificate = self._transport.get_extra_info("peercert") or {}
        return [str(name) for _, name in certificate.get("subjectAltName", ())]

    def identities(self) -> tuple[Who, ...] | None:
        """Who the peer's certificate says that it is; None without TLS: then it knows the secret."""
        if self._identities is None and self._secure and self._transport is not None:
            certificate = self._transport.get_extra_info("peercert") or {}
            named = certificate.get("subjectAltName", ())
            self._identities = identities(str(uri) for kind, uri in named if kind == "URI")
        return self._identities

    # Writing

    @property
    def open(self) -> bool:
        """Whether writing still makes sense."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def outbox_bytes(self) -> int:
        """Bytes that the kernel has not taken yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def write(self, framed_bytes: bytes) -> bool:
        """Bytes that are already framed. False: the bounded outbox has no room (or nobody is there), nothing was taken.

        An empty outbox takes a frame of any size, or the largest frame could never pass.
        """
        return self._write([framed_bytes], len(framed_bytes))

    def _write(self, parts: Sequence[bytes], size: int) -> bool:
        if self._transport is None or self._transport.is_closing():
            return False
        waiting_bytes = self._transport.get_write_buffer_size()
        if waiting_bytes and waiting_bytes + size > self.outbox_bytes_max:
            return False
        self._pass_on(parts, size)
        return True

    def _pass_on(self, parts: Sequence[bytes], size: int) -> None:
        invariant(self._transport is not None, "an open connection has a transport")
        whole = size <= ENCRYPTED_BYTES or not self._secure
        for piece in [b"".join(parts)] if whole else _pieces(parts, ENCRYPTED_BYTES):
            self._transport.write(piece)  # type: ignore[union-attr]

    def write_parts(self, parts: Sequence[bytes], size: int) -> bool:
        """The same, of bytes in few large parts: the kernel takes them as they are, and only what it has no room for is
        joined. A copy of that size would cost more than the write, since its memory is new each time."""
        if self._file < 0 or self.outbox_bytes or not self.open:
            return self._write(parts, size)
        try:
            taken = os.writev(self._file, parts)
        except OSError:
            taken = 0  # no room, or the connection is gone: the transport finds out which
        if taken < size and self._transport is not None:
            self._transport.write(memoryview(b"".join(parts))[taken:])
        return True

    def send(self, data: bytes) -> bool:
        """One frame; see `write`."""
        return self.write(framed(data))

    def send_soon(self, data: bytes) -> bool:
        """One frame, joined with others of this turn of the event loop to one write; see `write`."""
        if not self.open:
            return False
        waiting_bytes = self.outbox_bytes + self._pending_bytes
        if waiting_bytes and waiting_bytes + len(data) > self.outbox_bytes_max:
            return False
        if not self._pending:
            asyncio.get_running_loop().call_soon(self.flush)
        self._pending.append(HEADER.pack(len(data)))
        self._pending.append(data)
        self._pending_bytes += HEADER_BYTES + len(data)
        return True

    def flush(self) -> None:
        """Write what `send_soon` took."""
        if self._pending:
            parts, size = self._pending, self._pending_bytes
            self._pending, self._pending_bytes = [], 0
            if self.open:
                self._pass_on(parts, size)

    def pause_writing(self) -> None:
        self.congested = True
        if self.on_congestion is not None:
            self.on_congestion(True)

    def resume_writing(self) -> None:
        self.congested = False
        if self.on_congestion is not None:
            self.on_congestion(False)

    # Reading

    def pause_reading(self) -> None:
        """Stop reading: the peer's outbox fills, and its bound decides. Frames already read wait in the buffer."""
        if not self._paused:
            self._paused = True
            if self.open:
                invariant(self._transport is not None, "an open connection has a transport")
                self._transport.pause_reading()  # type: ignore[union-attr]

    def resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            self._take_frames()
            if self.open and not self._paused:
                self._transport.resume_reading()  # type: ignore[union-attr]

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._failure is not None:
            return  # read, so that closing does not reset the connection, and thrown away
        self._end += nbytes
        self._take_frames()

    def _take_frames(self) -> None:
        self._parse()
        self._make_room()

    def _parse(self) -> None:
        # The bytes are copied once, out of the read buffer, since whoever takes a frame may keep it.
        view = self._view
        on_frame = self.on_frame
        while not self._paused:
            start, end = self._start, self._end
            if end - start < HEADER_BYTES:
                return
            (length,) = HEADER.unpack_from(view, start)
            if length > self.frame_bytes_max:
                self.fail(FrameError(f"a frame of {length} bytes is over the limit of {self.frame_bytes_max}"))
                return
            stop = start + HEADER_BYTES + length
            if stop > end:
                return
            self._start = stop
            on_frame(bytes(view[start + HEADER_BYTES : stop]))
            if self._failure is not None:
                return
            on_frame = self.on_frame

    def _make_room(self) -> None:
        """Keep room to read into: move a partial frame to the front, grow only as its bytes really come."""
        rest = self._end - self._start
        size = len(self._buffer)
        if rest == 0:
            if size > READ_BYTES_KEPT:
                self._replace_buffer(READ_BYTES)
            self._start = self._end = 0
        elif size - self._end < size // 4:
            if rest <= size // 2:
                self._view[:rest] = self._view[self._start : self._end]
                self._start, self._end = 0, rest
            else:
                self._replace_buffer(size * 2)

    def _replace_buffer(self, size: int) -> None:
        rest = self._end - self._start
        buffer = bytearray(size)
        buffer[:rest] = self._view[self._start : self._end]
        self._buffer, self._view = buffer, memoryview(buffer)
        self._start, self._end = 0, rest

    # Life

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        invariant(isinstance(transport, asyncio.Transport), "frames travel on stream transports")
        self._transport = transport  # type: ignore[assignment]
        self._replace_buffer(READ_BYTES)  # not before: a dialler has many connections that never are made
        self._secure = transport.get_extra_info("ssl_object") is not None
        if not self._secure:
            self._file = transport.get_extra_info("socket").fileno()
        # Congested at half the bound: who waits for `resume_writing` then never loses a frame to the bound.
        self._transport.set_write_buffer_limits(high=self.outbox_bytes_max // 2)  # type: ignore[union-attr]

    def eof_received(self) -> bool:
        if self._end > self._start and not self._paused:
            self._failure = self._failure or FrameError("the connection ended inside a frame")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport, self._file = None, -1
        if self.lost.done():
            return
        if self.congested:
            self.resume_writing()
        reason = self._failure or exc
        self.lost.set_result(reason)
        self._on_lost(reason)

    def fail(self, why: Exception) -> None:
        """The peer broke a rule: cut at once, nothing more is read or written."""
        self._failure = self._failure or why
        if self._transport is not None:
            self._transport.abort()

    def finish(self) -> None:
        """Write what is queued, say that nothing follows, and let the peer close.

        Closing outright would answer bytes still on their way to us with a reset, which may destroy what the peer has
        not read yet.
        """
        if self._transport is None:
            return
        self.flush()
        self._paused = False
        if self._transport.can_write_eof():
            if not self._transport.is_closing():
                self._transport.write_eof()
                self._transport.resume_reading()
        else:
            self._transport.close()

    def fail_after_sending(self, why: Exception) -> None:
        """The peer broke a rule and has been told so: write that, read nothing more, and end."""
        self._failure = self._failure or why
        self.finish()

    def abandon(self) -> None:
        """Cut without a reason: nobody is interested any more."""
        if self._transport is not None:
            self._transport.abort()

    async def gone(self) -> None:
        """Wait until asyncio has let go of the socket, if it ever had it."""
        if self._transport is not None:
            await asyncio.shield(self.lost)

    async def closed(self, within_us: int) -> None:
        """Wait for the end; past the bound the rest of the outbox is given up."""
        try:
            async with asyncio.timeout(within_us / 1e6):
                await asyncio.shield(self.lost)
        except TimeoutError:
            self.fail(NetworkError(f"the peer did not read the rest of its frames within {within_us / 1e6:g} s"))
            await asyncio.shield(self.lost)


def _pieces(parts: Sequence[bytes], size_max: int) -> Iterator[bytes]:
    """The same bytes, each piece as large as may be."""
    taken: list[memoryview] = []
    room = size_max
    for part in parts:
        view, start = memoryview(part), 0
        while start < len(view):
            taken.append(view[start : start + room])
            start += len(taken[-1])
            room -= len(taken[-1])
            if not room:
                yield b"".join(taken)
                taken, room = [], size_max
    if taken:
        yield b"".join(taken)
