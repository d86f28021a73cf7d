"""Spans and metrics to a receiver, by OpenTelemetry's own exporters. A receiver that is down or slow holds nothing up:
spans wait in a bounded queue, and what does not fit is dropped there."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from unerring.model import require

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

END_MS: Final = 3_000
"""How long a process, or a part of it, that ends waits for what is not sent yet."""
SCOPE: Final = "unerring"
INTERVAL_MS: Final = 60_000
"""How often metrics are sent, unless `OTEL_METRIC_EXPORT_INTERVAL` says otherwise."""


class SpanSender:
    """Sends finished spans, in batches, from a thread of its own."""

    def __init__(self) -> None:
        resource = _resource()
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags
        from opentelemetry.trace.status import Status, StatusCode

        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # it would write a stack for every lost batch
        self._processor = BatchSpanProcessor(OTLPSpanExporter())
        scope = InstrumentationScope(SCOPE)
        sampled = TraceFlags(TraceFlags.SAMPLED)

        def context(trace: int, span: int) -> SpanContext:
            return SpanContext(trace, span, is_remote=True, trace_flags=sampled)

        def made(
            name: str,
            kind: str,
            own: tuple[int, int],
            parent: int | None,
            times_ns: tuple[int, int],
            links: Sequence[tuple[int, int]],
            about: Mapping[str, Any],
            failed: str,
        ) -> ReadableSpan:
            return ReadableSpan(
                name,
                context=context(*own),
                parent=None if parent is None else context(own[0], parent),
                resource=resource,
                attributes=dict(about),
                links=[Link(context(*link)) for link in links],
                kind=SpanKind[kind.upper()],
                status=Status(StatusCode.ERROR, failed) if failed else Status(),
                start_time=times_ns[0],
                end_time=max(times_ns),
                instrumentation_scope=scope,
            )

        self._made: Callable[..., ReadableSpan] = made
        atexit.register(self._processor.force_flush, END_MS)  # a thread cannot be started any more

    def send(self, *span: Any) -> None:
        """Take a span to send; never waits."""
        self._processor.on_end(self._made(*span))

    def finish(self) -> None:
        """Send what waits. The processor's own flush knows no end where the receiver hangs."""
        flushing = threading.Thread(target=self._processor.force_flush, daemon=True)
        flushing.start()
        flushing.join(END_MS / 1000)


class MetricsSender:
    """Sends a run's metrics at intervals, as its Prometheus endpoint shows them."""

    def __init__(self, text: Callable[[], str]) -> None:
        resource = _resource()
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

        self._text = text
        self._resource = resource
        self._exporter = OTLPMetricExporter()
        self._began_ns = time.time_ns()
        self._interval_s = int(os.environ.get("OTEL_METRIC_EXPORT_INTERVAL", INTERVAL_MS)) / 1000
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="otlp-metrics", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Send once more, and end."""
        self._stopping.set()
        self._thread.join(END_MS / 1000)

    def _run(self) -> None:
        while not self._stopping.wait(self._interval_s):
            self._send()
        self._send()

    def _send(self) -> None:
        try:
            self._exporter.export(metrics_of(self._text(), self._resource, self._began_ns), timeout_millis=END_MS)
        except Exception as error:  # a receiver, or a run that is just making its folder, must not end a run
            logging.getLogger("unerring.tracing").debug("metrics were not sent: %s", error)


def metrics_of(text: str, resource: Resource, began_ns: int) -> Any:
    """Metrics in Prometheus's text format as OpenTelemetry's."""
    from opentelemetry.sdk.metrics.export import (
        AggregationTemporality,
        Gauge,
        Histogram,
        Metric,
        MetricsData,
        NumberDataPoint,
        ResourceMetrics,
        ScopeMetrics,
        Sum,
    )
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    now_ns = time.time_ns()
    told = _Told.read(text)
    cumulative = AggregationTemporality.CUMULATIVE
    metrics = []
    for name, samples in told.samples.items():
        data: Any
        if told.kinds.get(name) == "histogram":
            data = Histogram(_histogram_points(name, samples, began_ns, now_ns), cumulative)
        else:
            points = [NumberDataPoint(labels, began_ns, now_ns, value) for _, labels, value in samples]
            data = Sum(points, cumulative, True) if told.kinds.get(name) == "counter" else Gauge(points)
        metrics.append(Metric(name, told.helps.get(name, ""), "s" if name.endswith("_seconds") else "", data))
    scope = ScopeMetrics(InstrumentationScope(SCOPE), metrics, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


_Sample = tuple[str, dict[str, str], float]


class _Told:
    """Prometheus's text, by metric: a histogram has its buckets, sum and count."""

    def __init__(self) -> None:
        self.helps: dict[str, str] = {}
        self.kinds: dict[str, str] = {}
        self.samples: dict[str, list[_Sample]] = {}

    @classmethod
    def read(cls, text: str) -> _Told:
        told = cls()
        for line in text.splitlines():
            if line.startswith(("# HELP ", "# TYPE ")):
                name, _, words = line[len("# HELP ") :].partition(" ")
                (told.helps if line.startswith("# HELP ") else told.kinds)[name] = words
            elif line and not line.startswith("#"):
                series, _, value = line.rpartition(" ")
                name, _, inner = series.partition("{")
                sample = name, _labels(inner.removesuffix("}")), float(value)
                whole = name.rpartition("_")[0]
                metric = whole if told.kinds.get(whole) == "histogram" else name
                told.samples.setdefault(metric, []).append(sample)
        return told


def _histogram_points(name: str, samples: Sequence[_Sample], began_ns: int, now_ns: int) -> list[Any]:
    """A point for each set of labels. Prometheus counts in a bucket what is in those below, too; OpenTelemetry does
    not."""
    from opentelemetry.sdk.metrics.export import HistogramDataPoint

    found: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
    for called, labels, value in samples:
        bound = labels.pop("le", "")
        one = found.setdefault(tuple(labels.items()), {"buckets": [], "sum": 0.0, "count": 0})
        if bound:
            one["buckets"].append((float(bound), int(value)))
        else:
            one[called.removeprefix(f"{name}_")] = value
    points: list[Any] = []
    unknown: Any = None
    for labels_of, one in found.items():
        buckets = sorted(one["buckets"])
        below = [0, *(count for _, count in buckets)]
        points.append(
            HistogramDataPoint(
                attributes=dict(labels_of),
                start_time_unix_nano=began_ns,
                time_unix_nano=now_ns,
                count=int(one["count"]),
                sum=one["sum"],
                bucket_counts=[count - before for before, (_, count) in zip(below, buckets, strict=False)],
                explicit_bounds=[bound for bound, _ in buckets if bound != float("inf")],
                min=unknown,
                max=unknown,
            )
        )
    return points


def _labels(inner: str) -> dict[str, str]:
    """Of `name="value",…`, with its escapes."""
    labels: dict[str, str] = {}
    at = 0
    while at < len(inner):
        name, _, _ = inner[at:].partition('="')
        at += len(name) + 2
        value = ""
        while inner[at] != '"':
            if inner[at] == "\\":
                at += 1
                value += {"n": "\n"}.get(inner[at], inner[at])
            else:
                value += inner[at]
            at += 1
        labels[name] = value
        at += 2
    return labels


def _resource() -> Resource:
    """OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES, completed."""
    require("opentelemetry.sdk", "unset OTEL_TRACES_EXPORTER and OTEL_METRICS_EXPORTER")
    from opentelemetry.sdk.resources import Resource

    name = os.environ.get("OTEL_SERVICE_NAME", "") or SCOPE
    return Resource.create({"service.name": name, "process.pid": os.getpid()})
