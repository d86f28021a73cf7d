"""A receiver of OTLP over HTTP, which decodes what it takes; and a service that notes who asked it."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

PATIENCE_S = 300.0


class Span(msgspec.Struct, frozen=True):
    name: str
    trace: str
    span: str
    parent: str
    links: tuple[tuple[str, str], ...]
    began_ns: int
    ended_ns: int
    about: dict[str, Any]
    service: str
    run: str


class Number(msgspec.Struct, frozen=True):
    pid: int
    name: str
    about: dict[str, Any]
    value: float


class _Server:
    def __init__(self, take: Callable[[str, dict[str, str], bytes], bytes]) -> None:
        class Page(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                answer = take(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def end(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Collector(_Server):
    """`spans` and the names of `metrics` that were sent to it; `numbers`: the process, series and value of each that is
    no histogram; `raw` has all bytes."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.metrics: dict[str, int] = {}
        self.numbers: list[Number] = []
        self.raw: list[bytes] = []
        self._came = threading.Condition()
        super().__init__(self._take)

    def wait_for(self, condition: Callable[[list[Span]], Any]) -> Any:
        """What the condition finds in the spans, once it does."""
        with self._came:
            assert self._came.wait_for(lambda: condition(self.spans), PATIENCE_S), sorted(
                {(span.name, span.trace[-4:]) for span in self.spans}
            )
            return condition(self.spans)

    def wait_for_numbers(self, condition: Callable[[list[Number]], bool]) -> None:
        with self._came:
            assert self._came.wait_for(lambda: condition(self.numbers), PATIENCE_S), self.numbers[-50:]

    def wait_for_metric(self, name: str) -> None:
        with self._came:
            assert self._came.wait_for(lambda: name in self.metrics, PATIENCE_S), sorted(self.metrics)

    def _take(self, path: str, headers: dict[str, str], body: bytes) -> bytes:
        body = gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body
        with self._came:
            self.raw.append(body)
            if path == "/v1/traces":
                self.spans += _spans(ExportTraceServiceRequest.FromString(body))
            elif path == "/v1/metrics":
                told = ExportMetricsServiceRequest.FromString(body)
                for metric in (m for r in told.resource_metrics for s in r.scope_metrics for m in s.metrics):
                    self.metrics[metric.name] = self.metrics.get(metric.name, 0) + 1
                self.numbers += _numbers(told)
            self._came.notify_all()
        return b""


class Fans(_Server):
    """Takes requests at `/cool`; `parents` has the traceparent of each."""

    def __init__(self) -> None:
        self.parents: list[str] = []
        super().__init__(self._take)

    def _take(self, path: str, headers: dict[str, str], body: bytes) -> bytes:
        self.parents.append(headers.get("traceparent", ""))
        return b"1"


def _spans(told: Any) -> list[Span]:
    return [
        Span(
            span.name,
            span.trace_id.hex(),
            span.span_id.hex(),
            span.parent_span_id.hex(),
            tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
            span.start_time_unix_nano,
            span.end_time_unix_nano,
            _values(span.attributes),
            of_process.get("service.name", ""),
            of_process.get("unerring.run", ""),
        )
        for resource in told.resource_spans
        for of_process in [_values(resource.resource.attributes)]
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def _numbers(told: Any) -> list[Number]:
    return [
        Number(_values(resource.resource.attributes)["process.pid"], metric.name, _values(at.attributes), at.as_double)
        for resource in told.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for at in [*metric.gauge.data_points, *metric.sum.data_points]
    ]


def _values(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}
