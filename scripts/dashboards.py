"""Writes deploy/grafana/*.json, one dashboard of Grafana for each entry of DASHBOARDS: `python scripts/dashboards.py`.

In an expression, `[metric]` is the metric of the runs that are chosen at the top of the dashboard, and
`[metric|label="value"]` those of its series. A test holds the files to this table, and the table to what runs export.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).resolve().parents[1] / "deploy" / "grafana"
WIDTH, HEIGHT, COLUMNS = 8, 8, 3
RUNS = 'instance=~"$instance"'


class Panel(NamedTuple):
    """One picture: lines over time, or the newest value as a figure."""

    title: str
    expr: str
    legend: str = ""
    unit: str = "short"
    kind: str = "timeseries"
    red_from: float | None = None
    """A figure is red from here on."""


def quantile(share: float, metric: str, by: str) -> str:
    return f"histogram_quantile({share}, sum by ({by}, le) (rate([{metric}_bucket][5m])))"


DASHBOARDS: dict[str, list[Panel]] = {
    "run": [
        Panel("Problems", "sum([unerring_problems])", unit="none", kind="stat", red_from=1),
        Panel("Violations found by the last audit", "sum([unerring_violations])", unit="none", kind="stat", red_from=1),
        Panel("Processes that are down", "count([unerring_process_up] == 0) or vector(0)", kind="stat", red_from=1),
        Panel("What is wrong, by kind", "[unerring_problems] > 0", "{{kind}}"),
        Panel("Situations a second", "rate([unerring_situations_total][1m])", "{{stream}}", "ops"),
        Panel(
            "From event to situation and effect, 99 %",
            quantile(0.99, "unerring_latency_seconds", "since, to, of"),
            "{{since}} to {{to}} {{of}}",
            "s",
        ),
        Panel("A sync of the disk, 99 %", quantile(0.99, "unerring_sync_seconds", "process"), "{{process}}", "s"),
        Panel("A sync that has not ended", "[unerring_sync_hangs_seconds]", "{{process}}", "s"),
        Panel("Parts that are up", "[unerring_part_up]", "{{part}}"),
        Panel("Parts started again", "increase([unerring_part_restarts_total][5m])", "{{part}}"),
        Panel("Failures and elections", "increase([unerring_timeline_total][5m])", "{{what}}"),
        Panel(
            "Requests to the store a second", "rate([unerring_store_requests_total][5m])", "{{process}} {{kind}}", "ops"
        ),
    ],
    "channels": [
        Panel("Events lost", "sum([unerring_channel_lost_total])", kind="stat", red_from=1),
        Panel("Events in quarantine", "sum([unerring_quarantined_total])", kind="stat", red_from=1),
        Panel("Longest wait for an input", "max([unerring_input_wait_seconds])", unit="s", kind="stat", red_from=30),
        Panel("Published a second", "rate([unerring_channel_published_total][1m])", "{{stream}} {{producer}}", "ops"),
        Panel("Delivered a second", "rate([unerring_channel_delivered_total][1m])", "{{stream}} {{producer}}", "ops"),
        Panel("Neither delivered nor lost yet", "[unerring_channel_pending]", "{{stream}} {{producer}}"),
        Panel("Duplicates discarded a second", "rate([unerring_channel_duplicates_total][1m])", "{{stream}}", "ops"),
        Panel("Events in the log a second", "rate([unerring_stream_events_total][1m])", "{{stream}}", "ops"),
        Panel("Into quarantine", "increase([unerring_quarantined_total][5m])", "{{stream}} {{reason}}"),
        Panel("Since a watermark moved", "[unerring_watermark_age_seconds]", "{{stream}}", "s"),
        Panel("A rule waits for an input", "[unerring_input_wait_seconds]", "{{rule}} for {{stream}}", "s"),
    ],
    "correlation": [
        Panel("Replicas that are down", "count([unerring_process_up] == 0) or vector(0)", kind="stat", red_from=1),
        Panel("Replicas that lead", "sum([unerring_leads])", kind="stat"),
        Panel("Most events kept for a receiver", "max([unerring_queued])", kind="stat", red_from=10_000),
        Panel("Behind the inputs, in event time", "[unerring_lag_seconds]", "{{process}}{{level}}", "s"),
        Panel("Received and not worked on", "[unerring_waiting]", "{{process}}"),
        Panel("Kept until acknowledged", "[unerring_queued]", "{{process}}"),
        Panel("Who leads", "[unerring_leads]", "{{process}}"),
        Panel("Votes", "increase([unerring_elections_total][5m])", "{{process}}"),
        Panel("Situations a second", "rate([unerring_situations_total][1m])", "{{stream}}", "ops"),
    ],
    "spark": [
        Panel(
            "Behind the inputs, in event time",
            'max([unerring_lag_seconds|level!=""])',
            unit="s",
            kind="stat",
            red_from=60,
        ),
        Panel("Keys with state", "sum([unerring_state_keys])", kind="stat"),
        Panel("State on the store", "sum([unerring_state_bytes])", unit="bytes", kind="stat"),
        Panel("Micro-batches a second", "rate([unerring_batches_total][1m])", "level {{level}}", "ops"),
        Panel("The last micro-batch took", "[unerring_batch_seconds]", "level {{level}}", "s"),
        Panel("Behind, by level", '[unerring_lag_seconds|level!=""]', "level {{level}}", "s"),
        Panel("Keys with state, by level", "[unerring_state_keys]", "level {{level}}"),
        Panel("State, by level", "[unerring_state_bytes]", "level {{level}}", "bytes"),
        Panel("Situations a second", "rate([unerring_situations_total][1m])", "{{stream}}", "ops"),
    ],
    "processes": [
        Panel("Held", "[unerring_instances_held]", kind="stat", red_from=1),
        Panel("Something does not undo", "[unerring_instances_stuck]", kind="stat", red_from=1),
        Panel("Services that do not answer", "count([unerring_service_up] == 0) or vector(0)", kind="stat", red_from=1),
        Panel("Instances", "[unerring_instances]", "{{process}} {{status}}"),
        Panel("Instances that ask a service again", "[unerring_instances_waiting]", "{{service}}"),
        Panel("Services that answer", "[unerring_service_up]", "{{service}} {{address}}"),
        Panel("A service takes, 99 %", quantile(0.99, "unerring_service_seconds", "service"), "{{service}}", "s"),
        Panel("Requests without an answer", "increase([unerring_service_failures_total][5m])", "{{service}}"),
        Panel(
            "From the event to the effect, 99 %",
            'histogram_quantile(0.99, sum by (of, le) (rate([unerring_latency_seconds_bucket|to="effect"][5m])))',
            "{{of}}",
            "s",
        ),
    ],
    "sinks": [
        Panel("Sinks that do not deliver", "count([unerring_sink_up] == 0) or vector(0)", kind="stat", red_from=1),
        Panel("Events that targets lack", "sum([unerring_sink_waiting])", kind="stat"),
        Panel(
            "Furthest behind, in event time", "max([unerring_sink_lag_seconds])", unit="s", kind="stat", red_from=300
        ),
        Panel("Delivered a second", "rate([unerring_sink_delivered_total][1m])", "{{sink}}", "ops"),
        Panel("Behind, in event time", "[unerring_sink_lag_seconds]", "{{sink}}", "s"),
        Panel("Failures", "increase([unerring_sink_failures_total][5m])", "{{sink}}"),
    ],
}


def expression(expr: str) -> str:
    """With the runs that are chosen."""
    named = re.sub(r"\[(unerring_\w+)\|([^]]+)\]", rf"\1{{{RUNS}, \2}}", expr)
    return re.sub(r"\[(unerring_\w+)\]", rf"\1{{{RUNS}}}", named)


def metrics_of(name: str) -> set[str]:
    """The metrics that a dashboard queries."""
    found = {metric for panel in DASHBOARDS[name] for metric in re.findall(r"\[(unerring_\w+)", panel.expr)}
    return {metric.removesuffix("_bucket") for metric in found}


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.red_from is not None:
        steps.append({"color": "red", "value": panel.red_from})
    row, column = divmod(number, COLUMNS)
    return {
        "id": number + 1,
        "type": panel.kind,
        "title": panel.title,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {"x": column * WIDTH, "y": row * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "min": 0, "thresholds": {"mode": "absolute", "steps": steps}},
            "overrides": [],
        },
        "targets": [{"refId": "A", "expr": expression(panel.expr), "legendFormat": panel.legend or "__auto"}],
    }


def dashboard(name: str) -> dict[str, Any]:
    """What Grafana imports."""
    chosen = {
        "name": "instance",
        "label": "Run",
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": {"query": "label_values(unerring_part_up, instance)", "refId": "runs"},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "current": {"text": "All", "value": "$__all"},
    }
    source = {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    links = [{"title": other, "type": "link", "url": f"/d/unerring-{other}", "keepTime": True} for other in DASHBOARDS]
    return {
        "uid": f"unerring-{name}",
        "title": f"Unerring: {name}",
        "tags": ["unerring"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {"list": [source, chosen]},
        "links": [link for link in links if link["title"] != name],
        "panels": [_panel(number, panel) for number, panel in enumerate(DASHBOARDS[name])],
    }


def text(name: str) -> str:
    """The file of a dashboard."""
    return json.dumps(dashboard(name), indent=1) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for each in DASHBOARDS:
        (FOLDER / f"{each}.json").write_text(text(each))
