"""Numbers of a run in Prometheus's text format: in a file of the run's folder; `serving` has them over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from unerring.model import Histogram

if TYPE_CHECKING:
    from unerring.tracing import MetricsSender

_HELP: Final = {
    "unerring_events_total": "Events that the rules of a level were fed.",
    "unerring_situations_total": "Situations sealed, by stream.",
    "unerring_quarantined_total": "Events that writers put into quarantine, by stream.",
    "unerring_repeated_total": "Events that came again after they were in the log, by stream.",
    "unerring_late_total": "Events that came after their stream had passed their time, by stream.",
    "unerring_producers": "Producers that a stream has ever had.",
    "unerring_refused_producers": "Producers whose events are not taken, since the stream has as many as it may have.",
    "unerring_held_events": "Events that a writer holds until the watermark of their stream lets them go.",
    "unerring_part_up": "Whether a part of the run's own process works (1), or failed and waits for its restart (0).",
    "unerring_part_restarts_total": "How often a part of the run's own process was started again.",
    "unerring_level_watermark_seconds": "Event time up to which a level has sealed.",
    "unerring_lag_seconds": "How far a level's watermark is behind the log of its inputs, in event time.",
    "unerring_watermark_seconds": "Event time up to which a stream is known.",
    "unerring_watermark_age_seconds": "Wall time since a stream's watermark last moved.",
    "unerring_input_wait_seconds": "How long a rule has waited for one of its inputs while another is further.",
    "unerring_batch_seconds": "How long a level's last micro-batch took.",
    "unerring_state_keys": "Keys that have state, by level.",
    "unerring_sink_up": "Whether a sink delivers (1), or waits for its target or was stopped (0).",
    "unerring_sink_lag_seconds": "How far a sink's target is behind the sealed stream, in event time.",
    "unerring_sink_waiting": "Sealed events that a sink's target does not have yet.",
    "unerring_sink_delivered_total": "Events that a sink has brought to its target, since its driver started.",
    "unerring_sink_failures_total": "How often a sink's target failed, since its driver started.",
    "unerring_store_requests_total": "Requests that the run's own process made to its store, by kind.",
    "unerring_sync_hangs_seconds": "How long a sync of a process's disk has not ended by now.",
    "unerring_process_restarts_total": "How often processes of the run were started again.",
    "unerring_driver_up": "Whether a driver is caught up and counted on (1), or starting, joining or silent (0).",
    "unerring_driver_leads": "Whether a driver leads.",
    "unerring_driver_elections_total": "Votes that a driver has started.",
    "unerring_driver_sealed_total": "Intervals that a driver sealed, since it started.",
    "unerring_driver_held_total": "Intervals that a driver computed and another one sealed, since it started.",
}

HISTOGRAMS: Final = {
    "unerring_sync_seconds": "How long a process waited for its disk to sync.",
    "unerring_latency_seconds": "From an event to what follows of it: see docs/operations.md for since and to.",
    "unerring_service_seconds": "How long a service took to answer, or until nobody waited any longer.",
}
HELP: Final = _HELP | {name: told for name, told in HISTOGRAMS.items() if name != "unerring_service_seconds"}
"""Of these, services are asked by the process nodes alone."""

Sample = tuple[str, dict[str, object], float]


class Metrics:
    """Counters and gauges by name and labels."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, float]] = {name: {} for name in HELP}
        self._histograms: dict[str, dict[str, tuple[Sample, ...]]] = {name: {} for name in HISTOGRAMS}
        self._lock = threading.Lock()

    def add(self, name: str, value: float, **labels: object) -> None:
        with self._lock:
            known = self._values[name]
            known[_labels(labels)] = known.get(_labels(labels), 0) + value

    def set(self, name: str, value: float, **labels: object) -> None:
        with self._lock:
            self._values[name][_labels(labels)] = value

    def observe(self, name: str, histogram: Histogram, **labels: object) -> None:
        """A histogram as it is now."""
        with self._lock:
            self._histograms[name][_labels(labels)] = tuple(histogram_samples(name, histogram, labels))

    def text(self) -> str:
        """All of them, as Prometheus reads them."""
        lines: list[str] = []
        with self._lock:
            for name, values in self._values.items():
                histograms = self._histograms.get(name, {})
                if values or histograms:
                    lines += [f"# HELP {name} {HELP[name]}", f"# TYPE {name} {kind_of(name)}"]
                    lines += [f"{name}{labels} {value:.17g}" for labels, value in sorted(values.items())]
                for _, samples in sorted(histograms.items()):
                    lines += [f"{called}{_labels(labels)} {value:.17g}" for called, labels, value in samples]
        return "\n".join([*lines, ""])


def kind_of(name: str) -> str:
    """The kind of a metric in Prometheus's words."""
    return "histogram" if name in HISTOGRAMS else "counter" if name.endswith("_total") else "gauge"


def histogram_samples(name: str, histogram: Histogram, labels: Mapping[str, object]) -> Iterator[Sample]:
    """The samples by which Prometheus knows a histogram."""
    for bound, count in histogram.buckets():
        yield f"{name}_bucket", {**labels, "le": bound}, count
    yield f"{name}_sum", dict(labels), histogram.sum_s
    yield f"{name}_count", dict(labels), histogram.count


class Told(Protocol):
    """Whatever has numbers to tell."""

    def text(self) -> str: ...


def metrics_sender(metrics: Told) -> MetricsSender | None:
    """Sends them to OpenTelemetry's receiver, if its variables ask for that."""
    from unerring.tracing import MetricsSender, settings

    if not settings().metrics:
        return None
    sender = MetricsSender(metrics.text)
    sender.start()
    return sender


def _labels(labels: dict[str, object]) -> str:
    if not labels:
        return ""
    inner = ",".join(f'{name}="{_escaped(str(value))}"' for name, value in sorted(labels.items()))
    return "{" + inner + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
