"""Writes deploy/prometheus/alerts.yaml and its test for promtool, and both into docs/operations.md, of one table:
`python scripts/alerts.py`. Each alert has a failure; for it that alert fires, and no other one.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
RULES = ROOT / "deploy" / "prometheus" / "alerts.yaml"
TESTS = ROOT / "deploy" / "prometheus" / "alerts-test.yaml"
PAGE = ROOT / "docs" / "operations.md"
BEGIN, END = "<!-- alerts: written by scripts/alerts.py -->", "<!-- end of alerts -->"
MINUTES = 40
"""The length of each test; the failure begins in the middle, and is looked at at the end."""

WHILE_IT_RUNS = 'unless on (instance) unerring_part_up{part="run"} == 0'
"""Nothing comes in or goes out without the run's own process, which is an alert of its own."""
WHILE_IT_SEALS = "unless changes(unerring_level_watermark_seconds[5m]) == 0"
"""A level that seals nothing at all is not slow, which is an alert of its own, too."""
WHILE_IT_IS_UP = "unless on (instance, process) max_over_time(unerring_process_up[5m]) == 0"
"""A process that is down falls behind, too; one that is only very busy is silent now and then."""
WHILE_IT_IS_THERE = (
    'unless on (instance, driver) label_replace(unerring_process_up == 0, "driver", "$1", "process", "(.*)")'
)
"""A driver that is not there at all is a process that is down."""
OF_A_PRODUCER = "unless on (instance, stream) unerring_situations_total"
"""The stream of a rule is silent while the rule makes no progress, which is an alert of its own."""
NOBODY_LEADS = "sum by (instance) (unerring_driver_leads) == 0"
WHILE_ONE_LEADS = f"unless on (instance) {NOBODY_LEADS}"
"""Where no driver leads, none is the one that does not catch up, and none seals."""
Series = dict[str, str]


class Alert(NamedTuple):
    """`failure`: in words; `series`: how its metrics look then, before and after, one value a minute; `with_it`: the
    alerts that may fire with it in a real run, as tests/campaign/test_alerts_campaign.py plays it."""

    name: str
    expr: str
    summary: str
    failure: str
    series: Series
    lasts: str = ""
    with_it: tuple[str, ...] = ()


def steady(value: float) -> str:
    return f"{value:g}+0x{MINUTES}"


def rising(step: float) -> str:
    return f"0+{step:g}x{MINUTES}"


def turns(before: float, after: float) -> str:
    return f"{before:g}+0x{MINUTES // 2} {after:g}+0x{MINUTES // 2}"


def jumps(by: float) -> str:
    """A counter that goes on after a failure."""
    return f"0+0x{MINUTES // 2} {by:g}+{by:g}x{MINUTES // 2}"


def buckets(metric: str, labels: str, below: float, a_minute: float = 60) -> Series:
    """A histogram of which everything is in the first bucket of these ends that is not below."""
    ends = ("0.01", "0.1", "0.25", "1", "10", "30", "+Inf")
    return {f'{metric}_bucket{{{labels},le="{end}"}}': rising(a_minute if float(end) >= below else 0) for end in ends}


HEALTHY: Series = {
    'unerring_violations{of="situations"}': steady(0),
    'unerring_quarantined_total{stream="Reading",reason="lost"}': steady(0),
    'unerring_quarantined_total{stream="Reading",reason="schema"}': steady(0),
    'unerring_process_up{process="hot/0"}': steady(1),
    'unerring_part_up{part="run"}': steady(1),
    'unerring_driver_up{driver="spark/0",instance="a"}': steady(1),
    'unerring_driver_leads{driver="spark/0",instance="a"}': steady(1),
    'unerring_driver_leads{driver="spark/0",instance="b"}': steady(1),
    "unerring_process_restarts_total": steady(0),
    'unerring_lag_seconds{process="hot/0"}': steady(0.2),
    'unerring_lag_seconds{level="1",instance="a"}': steady(0.2),
    'unerring_input_wait_seconds{rule="hot",stream="Reading"}': steady(0),
    'unerring_situations_total{stream="Hot"}': rising(1),
    'unerring_watermark_age_seconds{stream="Reading"}': steady(0.5),
    'unerring_watermark_age_seconds{stream="Hot"}': steady(0.5),
    'unerring_level_watermark_seconds{level="1",instance="a"}': rising(60),
    'unerring_queued{process="hot/0"}': steady(12),
    'unerring_instances_waiting{service="courier"}': steady(0),
    "unerring_instances_held": steady(0),
    "unerring_instances_stuck": steady(0),
    'unerring_sink_up{sink="lake",stream="Hot"}': steady(1),
    'unerring_sync_hangs_seconds{process="n0"}': steady(0),
    **buckets("unerring_sync_seconds", 'process="n0"', 0.01),
    **buckets("unerring_latency_seconds", 'since="published",to="situation",of="Hot"', 0.25),
}

SEALS_NOTHING: Series = {
    'unerring_lag_seconds{level="1",instance="a"}': turns(0.2, 1200),
    'unerring_level_watermark_seconds{level="1",instance="a"}': (
        f"0+60x{MINUTES // 2} {MINUTES // 2 * 60}+0x{MINUTES // 2}"
    ),
    'unerring_watermark_age_seconds{stream="Hot"}': turns(0.5, 1200),
}
"""A level's inputs go on, and it does not."""

ALERTS = [
    Alert(
        "AuditFoundSomethingWrong",
        "unerring_violations > 0",
        "The last audit found something wrong: open audit.html in the run's folder.",
        "an audit finds a violation",
        {'unerring_violations{of="situations"}': turns(0, 1)},
    ),
    Alert(
        "EventsDeclaredLost",
        'increase(unerring_quarantined_total{reason="lost"}[10m]) > 0',
        "A channel declared events lost: see the stream's quarantine, reason lost.",
        "a channel declares events lost",
        {'unerring_quarantined_total{stream="Reading",reason="lost"}': jumps(3)},
    ),
    Alert(
        "EventsInQuarantine",
        'increase(unerring_quarantined_total{reason!="lost"}[10m]) > 0',
        "Events went to quarantine: unerring status says how many and why.",
        "a producer sends events that do not fit their stream",
        {'unerring_quarantined_total{stream="Reading",reason="schema"}': jumps(3)},
    ),
    Alert(
        "ProcessDown",
        "unerring_process_up == 0",
        "A process of a run is down for a minute; one more failure may stop its rule.",
        "a replica, a driver or a process node stops or hangs, or its disk does, and does not come back",
        {
            'unerring_process_up{process="hot/0"}': turns(1, 0),
            'unerring_lag_seconds{process="hot/0"}': turns(0.2, 1200),
        },
        "1m",
    ),
    Alert(
        "PartDown",
        "unerring_part_up == 0",
        "A channel, a reaction or a level keeps failing, or the run itself is gone: unerring status says why.",
        "a part of the run's own process keeps failing, or that process is gone",
        {'unerring_part_up{part="run"}': turns(1, 0)},
        "1m",
    ),
    Alert(
        "DriverDown",
        f"unerring_driver_up == 0 {WHILE_IT_IS_THERE} {WHILE_ONE_LEADS}",
        "A Spark driver is there and does not catch up: one more failure may stop its rules. See its log file.",
        "one of several drivers is started again, and does not catch up",
        {'unerring_driver_up{driver="spark/0",instance="a"}': turns(1, 0)},
        "3m",
    ),
    Alert(
        "NobodyLeads",
        f"{NOBODY_LEADS} {WHILE_IT_RUNS}",
        "No Spark driver of a run leads, and nothing is sealed: see the drivers' log files.",
        "no driver of a run can be elected: Spark does not start, or all of them hang, which are processes that are "
        "down, too",
        {
            'unerring_driver_leads{driver="spark/0",instance="a"}': turns(1, 0),
            'unerring_driver_up{driver="spark/0",instance="a"}': turns(1, 0),
            **SEALS_NOTHING,
        },
        "1m",
        with_it=("ProcessDown",),
    ),
    Alert(
        "Behind",
        f"unerring_lag_seconds > 60 {WHILE_IT_SEALS} {WHILE_IT_IS_UP}",
        "A rule is a minute of event time behind its inputs: it is too slow.",
        "more events come than a rule can take: what it makes is late, and the source of a live one keeps them",
        {'unerring_lag_seconds{process="hot/0"}': turns(0.2, 90)},
        "5m",
        with_it=("SituationsLate", "QueueFills"),
    ),
    Alert(
        "InputSilent",
        f"unerring_input_wait_seconds > 30 {WHILE_IT_RUNS}",
        "A rule waits for an input that is silent while others go on: is its producer there, and does it send "
        "watermarks when quiet?",
        "one of a rule's producers falls silent",
        {'unerring_input_wait_seconds{rule="hot",stream="Reading"}': turns(0, 45)},
    ),
    Alert(
        "StreamSilent",
        f"unerring_watermark_age_seconds > 600 {OF_A_PRODUCER} {WHILE_IT_RUNS}",
        "Nothing was heard of a stream for ten minutes; choose the bound by its usual pace.",
        "a stream's only producer is gone",
        {'unerring_watermark_age_seconds{stream="Reading"}': turns(0.5, 700)},
    ),
    Alert(
        "DoesNotProgress",
        f"unerring_lag_seconds > 0 and changes(unerring_level_watermark_seconds[5m]) == 0 {WHILE_IT_RUNS} "
        f"{WHILE_ONE_LEADS}",
        "Events come in, and a level on Spark has sealed nothing for ten minutes: see the log of its driver.",
        "a level's inputs go on, and it seals nothing",
        SEALS_NOTHING,
        "5m",
    ),
    Alert(
        "QueueFills",
        "unerring_queued > 10000",
        "A receiver does not acknowledge: start it again, or evict it; if its rule is Behind, it is only too slow.",
        "a receiver does not acknowledge for two minutes, here since its disk hangs",
        {'unerring_queued{process="hot/0"}': turns(12, 20_000)},
        "2m",
        with_it=("DiskHangs",),
    ),
    Alert(
        "ServiceAway",
        "unerring_instances_waiting > 0",
        "A service does not answer, and instances wait for it: unerring status says its address, since when and why.",
        "a service is stopped",
        {'unerring_instances_waiting{service="courier"}': turns(0, 4)},
        "10s",
    ),
    Alert(
        "InstancesHeld",
        "unerring_instances_held > 0",
        "Instances could not go on: unerring process list --status held; fix the service, then retry.",
        "an instance cannot go on, or is held by an operator",
        {"unerring_instances_held": turns(0, 1)},
    ),
    Alert(
        "StuckInstances",
        "unerring_instances_stuck > 0",
        "Something does not undo: unerring process list --stuck, fix the service, then retry.",
        "a service refuses to undo for ten minutes",
        {"unerring_instances_stuck": turns(0, 1)},
        "10m",
        with_it=("ServiceAway",),
    ),
    Alert(
        "KeepsDying",
        "increase(unerring_process_restarts_total[10m]) > 5",
        "Processes of a run keep dying: see their log files.",
        "a process dies again and again",
        {"unerring_process_restarts_total": jumps(1)},
    ),
    Alert(
        "SinkDown",
        f"unerring_sink_up == 0 {WHILE_IT_RUNS}",
        "A sink's target is away or refuses: unerring status says why.",
        "a sink's target is away",
        {'unerring_sink_up{sink="lake",stream="Hot"}': turns(1, 0)},
        "1m",
    ),
    Alert(
        "DiskHangs",
        "unerring_sync_hangs_seconds > 5",
        "A disk does not end a sync: everything that this process would acknowledge waits for it.",
        "a disk takes nothing any more of a live process, whose status is on another one",
        {'unerring_sync_hangs_seconds{process="n0"}': turns(0, 9)},
    ),
    Alert(
        "DiskSlow",
        "histogram_quantile(0.5, sum by (instance, process, le) (rate(unerring_sync_seconds_bucket[5m]))) > 0.1",
        "Half of a process's syncs take longer than 0.1 s: every acknowledgement waits for one.",
        "a disk becomes slow",
        buckets("unerring_sync_seconds", 'process="n0"', 0.25),
        "5m",
    ),
    Alert(
        "SituationsLate",
        "histogram_quantile(0.99, sum by (instance, to, of, le) "
        '(rate(unerring_latency_seconds_bucket{since="published"}[5m]))) > 10',
        "Situations or effects come more than 10 s after their events: unerring status says what waits.",
        "events are on their way for longer than 10 s",
        buckets("unerring_latency_seconds", 'since="published",to="situation",of="Hot"', 30),
        "5m",
    ),
]


def rules_text() -> str:
    """The file for Prometheus."""
    lines = ["groups:", "  - name: unerring", "    rules:"]
    for alert in ALERTS:
        lines += [f"      - alert: {alert.name}", f"        expr: {alert.expr}"]
        lines += [f"        for: {alert.lasts}"] if alert.lasts else []
        lines += [f"        annotations: {{summary: {json.dumps(alert.summary)}}}"]
    return "\n".join([*lines, ""])


def tests_text() -> str:
    """The file for `promtool test rules`: a test for each failure, and one for a run with which nothing is wrong."""
    lines = ["rule_files: [alerts.yaml]", "evaluation_interval: 1m", "tests:"]
    for alert in [None, *ALERTS]:
        series = HEALTHY | ({} if alert is None else alert.series)
        lines += ["  - interval: 1m", f"    name: {json.dumps(alert.failure if alert else 'nothing is wrong')}"]
        lines += ["    input_series:"]
        lines += [f"      - {{series: '{name}', values: '{values}'}}" for name, values in series.items()]
        lines += ["    alert_rule_test:"]
        for other in ALERTS:
            lines += [f"      - eval_time: {MINUTES}m", f"        alertname: {other.name}"]
            labels = _labels(other) if other is alert else None
            expected = (
                "[]"
                if labels is None
                else f"[{{exp_labels: {labels}, exp_annotations: {{summary: {json.dumps(other.summary)}}}}}]"
            )
            lines += [f"        exp_alerts: {expected}"]
    return "\n".join([*lines, ""])


def _labels(alert: Alert) -> str:
    """Those that an alert has: what its expression leaves of its series."""
    name = next(iter(alert.series))
    given = dict(re.findall(r'(\w+)="([^"]*)"', name))
    if by := re.search(r"sum by \(([^)]+)\)", alert.expr.partition(" unless ")[0]):
        given = {label: given[label] for label in by[1].split(", ") if label in given and label != "le"}
    return json.dumps(given)


def page_text() -> str:
    """What docs/operations.md says: the rules, and the table of alerts and failures."""
    rows = [
        f"| {alert.failure} | `{alert.name}` | {alert.lasts or 'at once'} | "
        f"{' and '.join(f'`{name}`' for name in alert.with_it) or 'none'} |"
        for alert in ALERTS
    ]
    table = ["| failure | alert that fires | after | with it in a real run |", "|---|---|---|---|", *rows]
    return "\n".join([BEGIN, "", "```yaml alerts.yaml", rules_text() + "```", "", *table, "", END])


def page_with(text: str) -> str:
    """The page with its part between the marks written anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + page_text() + after


if __name__ == "__main__":
    RULES.parent.mkdir(parents=True, exist_ok=True)
    RULES.write_text(rules_text())
    TESTS.write_text(tests_text())
    PAGE.write_text(page_with(PAGE.read_text()))
