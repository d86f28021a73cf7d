"""A gate before an S3 server that misbehaves: what a network and a busy service do to those who use a store.

It passes HTTP on byte by byte, so that signatures hold, and by chance loses a request or its reply, refuses with 500 or
503, waits, or cuts an answer in its middle.
"""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from urllib.parse import urlsplit

BUSY = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
BROKEN = b"<Error><Code>InternalError</Code><Message>We encountered an internal error.</Message></Error>"
KINDS = ("request lost", "reply lost", "500", "503", "slow", "cut in the middle")
SLOW_S = 2.0
PIECE_BYTES = 1 << 16


class StoreGate:
    """`share` of all requests meets a fault."""

    def __init__(self, endpoint: str, seed: int, share: float) -> None:
        split = urlsplit(endpoint)
        self._server = split.hostname or "", split.port or 80
        self._draw = random.Random(seed)
        self._share = share
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self.done: Counter[str] = Counter()
        """How often each kind of fault was met."""
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def close(self) -> None:
        self._ended.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()

    def _accept(self) -> None:
        while not self._ended.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _fate(self) -> str:
        with self._lock:
            if self._draw.random() >= self._share:
                return ""
            kind = self._draw.choice(KINDS)
            self.done[kind] += 1
            return kind

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client, socket.create_connection(self._server) as server:
            asked, answered = _Wire(client), _Wire(server)
            while (request := asked.message(head_only=False)) is not None:
                fate = self._fate()
                if fate == "request lost":
                    return
                if fate in ("500", "503"):
                    words, body = (b"503 Slow Down", BUSY) if fate == "503" else (b"500 Internal Server Error", BROKEN)
                    client.sendall(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (words, len(body), body))
                    continue
                if fate == "slow":
                    self._ended.wait(SLOW_S)
                server.sendall(request)
                reply = answered.message(head_only=request.startswith(b"HEAD "))
                if reply is None or fate == "reply lost":
                    return
                client.sendall(reply[: len(reply) // 2] if fate == "cut in the middle" else reply)
                if fate == "cut in the middle":
                    return


class _Wire:
    """Whole HTTP messages of one connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._held = b""

    def message(self, head_only: bool) -> bytes | None:
        """Head and body; None: the connection has ended."""
        head = self._until(b"\r\n\r\n")
        if head is None:
            return None
        lines = head.lower().split(b"\r\n")
        fields = dict(line.split(b":", 1) for line in lines[1:] if b":" in line)
        status = lines[0].split()[1] if lines[0].startswith(b"http/") else b""
        if head_only or status in (b"204", b"304") or status.startswith(b"1"):
            return head
        if fields.get(b"transfer-encoding", b"").strip() == b"chunked":
            return self._chunks(head)
        body = self._exactly(int(fields.get(b"content-length", b"0")))
        return None if body is None else head + body

    def _chunks(self, head: bytes) -> bytes | None:
        told = head
        while True:
            size = self._until(b"\r\n")
            if size is None:
                return None
            chunk = self._exactly(int(size.split(b";")[0], 16) + 2)
            if chunk is None:
                return None
            told += size + chunk
            if len(chunk) == 2:
                return told

    def _until(self, end: bytes) -> bytes | None:
        while end not in self._held:
            if not self._more():
                return None
        before, _, self._held = self._held.partition(end)
        return before + end

    def _exactly(self, count: int) -> bytes | None:
        while len(self._held) < count:
            if not self._more():
                return None
        found, self._held = self._held[:count], self._held[count:]
        return found

    def _more(self) -> bool:
        piece = self._connection.recv(PIECE_BYTES)
        self._held += piece
        return bool(piece)


@contextlib.contextmanager
def store_gate(endpoint: str, seed: int, share: float) -> Iterator[StoreGate]:
    gate = StoreGate(endpoint, seed, share)
    try:
        yield gate
    finally:
        gate.close()
