"""A schema registry for tests: a real HTTP server that speaks the part of the REST API which readers and writers use.

Subjects have versions, a schema has one id wherever it is registered, and a Protobuf schema is given in its binary form
when that is asked for. It may be stopped and started again at the same port.
"""

from __future__ import annotations

import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.ports import free_port


@dataclass
class RegistryServer:
    """One registry; what it holds outlives its restarts."""

    port: int = field(default_factory=free_port)
    schemas: list[dict[str, Any]] = field(default_factory=list)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    answers: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    """For some paths: what is answered instead."""
    _server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def register(self, subject: str, text: str, kind: str = "AVRO", references: list[Any] | None = None) -> int:
        """The schema's id; the same one for the same schema."""
        schema = {"schema": text, "schemaType": kind, "references": references or []}
        if schema not in self.schemas:
            self.schemas.append(schema)
        number = self.schemas.index(schema) + 1
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def __enter__(self) -> RegistryServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), _handler(self))
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def answer(self, path: str) -> tuple[int, Any]:
        if match := re.fullmatch(r"/schemas/ids/(\d+)", path):
            number = int(match[1])
            if not 1 <= number <= len(self.schemas):
                return 404, {"error_code": 40403, "message": "Schema not found"}
            return 200, self.schemas[number - 1]
        if match := re.fullmatch(r"/subjects/([^/]+)/versions/(\d+|latest)", path):
            versions = self.subjects.get(match[1])
            if versions is None:
                return 404, {"error_code": 40401, "message": "Subject not found."}
            version = len(versions) if match[2] == "latest" else int(match[2])
            if not 1 <= version <= len(versions):
                return 404, {"error_code": 40402, "message": "Version not found."}
            number = versions[version - 1]
            return 200, {"subject": match[1], "version": version, "id": number, **self.schemas[number - 1]}
        return (200, sorted(self.subjects)) if path == "/subjects" else (404, {"error_code": 404})


def _handler(registry: RegistryServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            registry.requests.append(path)
            if path in registry.answers:
                status, body = registry.answers[path]
            else:
                status, answer = registry.answer(path)
                body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler
