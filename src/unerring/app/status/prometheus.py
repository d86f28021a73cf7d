"""The status document in Prometheus's text format: all parts of a run, under the names that runs themselves use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from unerring.app.inputs import Wait, Watermark, now_us, rules_in, samples_of
from unerring.app.metrics import HISTOGRAMS, Sample, histogram_samples, kind_of
from unerring.app.status.health import KINDS
from unerring.log import Reason
from unerring.model import SECOND_US, Histogram
from unerring.runtime import ServiceSeen, What

_HELP: Final = {
    "unerring_process_up": "Whether a process of the run is there: live ones, drivers of Spark, process nodes.",
    "unerring_process_restarts_total": "How often processes of the run were started again.",
    "unerring_driver_up": "Whether a driver is caught up and counted on (1), or starting, joining or silent (0).",
    "unerring_driver_leads": "Whether a driver leads.",
    "unerring_driver_elections_total": "Votes that a driver has started.",
    "unerring_driver_sealed_total": "Intervals that a driver sealed, since it started.",
    "unerring_driver_held_total": "Intervals that a driver computed and another one sealed, since it started.",
    "unerring_part_up": "Whether a part of the run's own process works (1), or failed and waits for its restart (0).",
    "unerring_part_restarts_total": "How often a part of the run's own process was started again.",
    "unerring_store_requests_total": "Requests that a process made to the run's store, by kind.",
    "unerring_sink_up": "Whether a sink delivers (1), or waits for its target or was stopped (0).",
    "unerring_sink_lag_seconds": "How far a sink's target is behind the sealed stream, in event time.",
    "unerring_sink_waiting": "Sealed events that a sink's target does not have yet.",
    "unerring_sink_delivered_total": "Events that a sink has brought to its target, since its driver started.",
    "unerring_sink_failures_total": "How often a sink's target failed, since its driver started.",
    "unerring_leads": "Whether a replica or driver leads.",
    "unerring_elections_total": "Votes that a replica or driver started.",
    "unerring_queued": "Outgoing events that a process keeps until they are acknowledged.",
    "unerring_waiting": "Events that a process has received and not worked on.",
    "unerring_lag_seconds": "How far a process or level is behind its inputs, in event time.",
    "unerring_watermark_seconds": "Event time up to which a stream is known.",
    "unerring_watermark_age_seconds": "Wall time since a stream's watermark last moved.",
    "unerring_input_wait_seconds": "How long a rule has waited for one of its inputs while another is further.",
    "unerring_stream_events_total": "Events in the log, by stream.",
    "unerring_situations_total": "Situations sealed, by stream.",
    "unerring_quarantined_total": "Events in quarantine, by stream and reason.",
    "unerring_events_total": "Events that the rules of a level were fed.",
    "unerring_level_watermark_seconds": "Event time up to which a level has sealed.",
    "unerring_batches_total": "Micro-batches, by level.",
    "unerring_batch_seconds": "How long a level's last micro-batch took.",
    "unerring_state_keys": "Keys that have state, by level.",
    "unerring_state_bytes": "Bytes of state on the store, by level: what a restart would read.",
    "unerring_instances": "Instances, by process and status.",
    "unerring_instances_held": "Instances that could not go on, or were held by an operator, and wait for one.",
    "unerring_instances_waiting": "Instances that ask a service again because it has not answered, by service.",
    "unerring_instances_stuck": "Instances with something that does not undo.",
    "unerring_channel_published_total": "Events that a channel's consumer knows to be published.",
    "unerring_channel_delivered_total": "Of these, delivered.",
    "unerring_channel_lost_total": "Of these, declared lost.",
    "unerring_channel_pending": "Of these, neither yet.",
    "unerring_channel_duplicates_total": "Duplicates that were discarded.",
    "unerring_timeline_total": "Failures and elections, by what happened.",
    "unerring_dashboard_refused_total": "Requests that this dashboard refused, since it started.",
    "unerring_violations": "What the last audit found wrong, by promise.",
    "unerring_problems": "What is wrong now, by kind: what unerring status says at its top.",
    "unerring_service_up": "Whether a service answers (1), or was asked and has not answered since (0).",
    "unerring_service_failures_total": "Requests to a service that it did not answer, by service.",
    "unerring_sync_hangs_seconds": "How long a sync of a process's disk has not ended by now.",
}
HELP: Final = {**_HELP, **HISTOGRAMS}


def prometheus(document: dict[str, Any], more: Iterable[Sample] = ()) -> str:
    """All samples of one document, and what the process that serves them counts itself."""
    lines: list[str] = []
    places = {name: place for place, name in enumerate(HELP)}
    samples = sorted([*_samples(document), *more], key=lambda sample: places[_metric(sample[0])])
    last = ""
    for name, labels, value in samples:
        if (metric := _metric(name)) != last:
            lines += [f"# HELP {metric} {HELP[metric]}", f"# TYPE {metric} {kind_of(metric)}"]
            last = metric
        inner = ",".join(f'{label}="{_escaped(str(text))}"' for label, text in labels.items())
        lines.append(f"{name}{{{inner}}} {value:.17g}" if inner else f"{name} {value:.17g}")
    return "\n".join([*lines, ""])


def _metric(name: str) -> str:
    """The name of the metric that a sample is of."""
    return name if name in HELP else name.rpartition("_")[0]


def _samples(document: dict[str, Any]) -> Iterator[Sample]:
    yield from _processes(document)
    yield from _parts(document["parts"])
    yield from _health(document["health"])
    yield from _inputs(document["inputs"], rules_in(document["tree"]))
    for stream, one in document["streams"].items():
        name = "unerring_situations_total" if one["kind"] == "situation" else "unerring_stream_events_total"
        yield name, {"stream": stream}, one["events"]
        for reason in Reason:  # also those that were none: a counter that begins at 1 has not risen to Prometheus
            yield "unerring_quarantined_total", {"stream": stream, "reason": reason}, one["quarantined"].get(reason, 0)
    for sink in document["sinks"]:
        labels: dict[str, object] = {"sink": sink["name"], "stream": sink["stream"]}
        yield "unerring_sink_up", labels, sink["state"] == "delivering"
        yield "unerring_sink_lag_seconds", labels, sink["lag_us"] / 1e6
        yield "unerring_sink_waiting", labels, sink["waiting"]
        yield "unerring_sink_delivered_total", labels, sink["delivered"]
        yield "unerring_sink_failures_total", labels, sink["failures"]
    yield from _spark(document["spark"])
    for process, counts in document["processes"]["by_process"].items():
        for status, count in counts.items():
            yield "unerring_instances", {"process": process, "status": status}, count
    yield "unerring_instances_held", {}, document["processes"]["held"]
    for service, count in document["processes"]["waiting"].items():
        yield "unerring_instances_waiting", {"service": service}, count
    yield "unerring_instances_stuck", {}, document["processes"]["stuck"]
    for account in document["channels"]["accounts"]:
        labels = {"stream": account["stream"], "producer": account["producer"], "epoch": account["epoch"]}
        for word, kept in _ACCOUNT.items():
            yield f"unerring_channel_{word}", labels, account[kept]
    yield "unerring_process_restarts_total", {}, document["timeline"]["counts"].get(What.DIED, 0)
    for what, count in document["timeline"]["counts"].items():
        yield "unerring_timeline_total", {"what": what}, count
    for promise, judged in (
        ("situations", document["audit"]["situations"]),
        ("processes", document["audit"]["processes"]),
    ):
        if judged is not None:
            yield "unerring_violations", {"of": promise}, judged["wrong"]


def _spark(spark: dict[str, Any]) -> Iterator[Sample]:
    """The levels, and the drivers where there are several; an only one is a process like others."""
    for level in spark["levels"]:
        labels: dict[str, object] = {"level": f"{level['number']}{'-unkeyed' if level['unkeyed'] else ''}"}
        yield "unerring_batches_total", labels, level["batches"]
        yield "unerring_events_total", labels, level["events"]
        yield "unerring_batch_seconds", labels, level["took_s"]
        yield "unerring_lag_seconds", labels, level["lag_s"]
        yield "unerring_state_keys", labels, level["keys"]
        if level["through_us"] is not None:
            yield "unerring_level_watermark_seconds", labels, level["through_us"] / SECOND_US
        if level["state_bytes"] is not None:
            yield "unerring_state_bytes", labels, level["state_bytes"]
    for driver in spark["drivers"]:
        if driver["supervised"]:
            labels = {"driver": driver["name"]}
            takes_part = driver["state"] == "member"
            yield "unerring_driver_up", labels, takes_part
            yield "unerring_driver_leads", labels, takes_part and bool(driver["leads"])
            yield "unerring_driver_elections_total", labels, driver["elections"] or 0
            yield "unerring_driver_sealed_total", labels, driver["sealed"]
            yield "unerring_driver_held_total", labels, driver["held"]


_ACCOUNT: Final = {
    "published_total": "published",
    "delivered_total": "delivered",
    "lost_total": "declared_lost",
    "pending": "pending",
    "duplicates_total": "duplicates",
}


def _parts(run: dict[str, Any]) -> Iterator[Sample]:
    runs = run["state"] == "running"
    if run["state"] != "none":
        yield "unerring_part_up", {"part": "run"}, runs
    for part in run["parts"]:
        yield "unerring_part_up", {"part": part["name"]}, runs and part["state"] == "running"
        yield "unerring_part_restarts_total", {"part": part["name"]}, part["restarts"]
    yield from _requests("run", run["requests"])


def _health(health: dict[str, Any]) -> Iterator[Sample]:
    for kind in KINDS:
        count = sum(problem["kind"] == kind for problem in health["problems"])
        yield "unerring_problems", {"kind": kind}, count
    for one in msgspec.convert(health["services"], list[ServiceSeen]):
        labels: dict[str, object] = {"service": one.name, "address": one.address}
        yield "unerring_service_up", labels, not one.failing_since_us
        yield "unerring_service_failures_total", labels, one.failed
        yield from histogram_samples("unerring_service_seconds", one.took, labels)
    for process, disk in health["disk"]["by_process"].items():
        yield "unerring_sync_hangs_seconds", {"process": process}, disk["hangs_s"]
        took = msgspec.convert(disk["all"], Histogram)
        yield from histogram_samples("unerring_sync_seconds", took, {"process": process})
    for way in health["latency"]:
        labels = {"since": way["since"], "to": way["to"], "of": way["of"]}
        yield from histogram_samples("unerring_latency_seconds", msgspec.convert(way["took"], Histogram), labels)


def _requests(process: str, requests: dict[str, Any]) -> Iterator[Sample]:
    for kind, count in requests.get("made", {}).items():
        yield "unerring_store_requests_total", {"process": process, "kind": kind}, count


def _inputs(inputs: dict[str, Any], rules: dict[str, list[str]]) -> Iterator[Sample]:
    watermarks = msgspec.convert(inputs["watermarks"], list[Watermark])
    yield from samples_of(watermarks, msgspec.convert(inputs["waits"], list[Wait]), rules, now_us())


def _processes(document: dict[str, Any]) -> Iterator[Sample]:
    alone = [driver for driver in document["spark"]["drivers"] if not driver["supervised"]]
    nodes = [node for node in document["processes"]["nodes"] if node["state"] != "elsewhere"]
    for one in (*document["live"]["processes"], *alone, *nodes):
        labels: dict[str, object] = {"process": one["name"]}
        up = one["state"] not in ("dead", "silent", "ended", "refused")
        yield "unerring_process_up", labels, up
        if one.get("leads") is not None:
            yield "unerring_leads", labels, bool(one["leads"]) and up
            yield "unerring_elections_total", labels, one.get("elections", 0)
        if "outputs" in one:
            yield (
                "unerring_queued",
                labels,
                sum(stream["queued"] for stream in one["outputs"].values() if not stream.get("part")),
            )
        if "inputs" in one:
            yield "unerring_waiting", labels, sum(stream["waiting"] for stream in one["inputs"].values())
            yield "unerring_lag_seconds", labels, one["lag_s"]


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
