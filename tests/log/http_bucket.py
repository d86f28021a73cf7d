"""A small S3 server over real HTTP that misbehaves as told: for what a well-behaved server never does."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

ERROR = '<?xml version="1.0"?><Error><Code>{code}</Code><Message>{message}</Message>{more}</Error>'


class HttpBucket(ThreadingHTTPServer):
    """One bucket, called `b`. `script` holds what goes wrong with the next puts or gets, one word for each."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.held: dict[str, tuple[bytes, str | None]] = {}
        self.script: list[str] = []
        self.conditional = True
        self.matching = True
        self.attributes = True
        self.refusal: tuple[int, str, str] | None = None
        """Status, code and more XML of the answer to everything."""
        self.requests: list[str] = []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def http_bucket() -> Iterator[HttpBucket]:
    server = HttpBucket()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Request(BaseHTTPRequestHandler):
    server: HttpBucket
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        return

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if self._refused():
            return None
        fault, name = self._fault(), self._name()
        if fault == "503":
            return self._answer(503, b"")
        if fault == "409":
            return self._answer(409, ERROR.format(code="ConditionalRequestConflict", message="", more="").encode())
        held = self.server.held.get(name)
        if self.headers.get("If-None-Match") == "*" and self.server.conditional and held is not None:
            return self._precondition_failed()
        matching = self.headers.get("If-Match")
        if matching is not None and self.server.matching and (held is None or _tag(held[0]) != matching):
            return self._precondition_failed()
        self.server.held[name] = (data, self.headers.get("x-amz-meta-unerring"))
        if fault == "no reply":
            self.close_connection = True
            return None
        return self._answer(200, b"", {"ETag": _tag(data)})

    def do_GET(self) -> None:
        if self._refused():
            return None
        if "list-type" in parse_qs(urlsplit(self.path).query):
            return self._answer(200, b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")
        held = self.server.held.get(self._name())
        if held is None:
            return self._answer(404, ERROR.format(code="NoSuchKey", message="", more="").encode())
        data, token = held
        headers = {"ETag": _tag(data), "Last-Modified": "Mon, 16 Nov 2026 10:00:00 GMT"}
        if token is not None and self.server.attributes:
            headers["x-amz-meta-unerring"] = token
        asked, status, body = self.headers.get("Range"), 200, data
        if asked is not None and data:
            start, end = (int(part) for part in asked.removeprefix("bytes=").split("-"))
            body, status = data[start : end + 1], 206
            headers["Content-Range"] = f"bytes {start}-{start + len(body) - 1}/{len(data)}"
        return self._answer(status, body, headers, cut=self.command == "GET" and self._fault() == "cut")

    do_HEAD = do_GET

    def do_POST(self) -> None:
        """S3's deletion of several objects at once, which the client uses for one too."""
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if self._refused():
            return
        keys = [key.split("</Key>")[0] for key in text.split("<Key>")[1:]]
        for key in keys:
            self.server.held.pop(key, None)
        deleted = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        self._answer(200, f"<DeleteResult>{deleted}</DeleteResult>".encode())

    def _name(self) -> str:
        return unquote(urlsplit(self.path).path.removeprefix("/b/"))

    def _fault(self) -> str:
        return self.server.script.pop(0) if self.server.script else ""

    def _refused(self) -> bool:
        self.server.requests.append(self.command)
        if self.server.refusal is None:
            return False
        status, code, more = self.server.refusal
        self._answer(status, ERROR.format(code=code, message="no", more=more).encode())
        return True

    def _precondition_failed(self) -> None:
        self._answer(412, ERROR.format(code="PreconditionFailed", message="", more="").encode())

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None, cut: bool = False) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if cut else body)
        self.close_connection = self.close_connection or cut


def _tag(data: bytes) -> str:
    return f'"{hashlib.md5(data).hexdigest()}"'
