"""Services for webhooks, and a gate in front of a server that somebody closes."""

from __future__ import annotations

import http.client
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from unerring.log import Chain


class _Server:
    """Pages on a free port of this machine, until it ends."""

    def __init__(self, page: type[BaseHTTPRequestHandler]) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), page)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]
        self.root = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def end(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Service(_Server):
    """Takes what is posted; answers as it was told, then 204."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, Any]] = []
        self.answers: list[int] = []
        """0: the request is taken, and the answer is lost."""
        service = self

        class Page(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = service.answers.pop(0) if service.answers else 204
                if status < 300:
                    service.taken.append((self.headers["Idempotency-Key"], json.loads(body)))
                if status == 0:
                    self.connection.close()
                    self.close_connection = True
                    return
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None: ...

        super().__init__(Page)
        self.url = f"{self.root}/alarms"

    def keys(self) -> list[str]:
        return [key for key, _ in self.taken]


def keys_of(chain: Chain) -> list[str]:
    """What a service is sent of a stream, in order."""
    rows = chain.read(chain.base.from_us, chain.through_us)
    stamps = zip(rows.column("time").to_pylist(), rows.column("ordinal").to_pylist(), strict=True)
    return [f"{chain.name}-{time}-{ordinal}" for time, ordinal in stamps]


class Gate(_Server):
    """Hands requests on to a server. While it is closed, it answers for it: a status and a body."""

    def __init__(self, behind: str) -> None:
        self.closed: tuple[int, bytes] | None = None
        gate, host = self, behind.removeprefix("http://")

        class Page(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if gate.closed is not None:
                    self._answer(gate.closed[0], {}, gate.closed[1])
                    return
                connection = http.client.HTTPConnection(host)
                try:
                    # The host stays the gate's: requests to a store are signed with it.
                    connection.request(self.command, self.path, body, dict(self.headers.items()))
                    answer = connection.getresponse()
                    self._answer(answer.status, dict(answer.getheaders()), answer.read())
                finally:
                    connection.close()

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any

            def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    if name.lower() not in ("content-length", "transfer-encoding", "connection", "date", "server"):
                        self.send_header(name, value)
                length = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(body))
                self.send_header("Content-Length", length)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None: ...

        super().__init__(Page)
