"""Health by input: a stream that falls silent is named, with the rules that wait for it, though nothing is behind."""

from __future__ import annotations

import io
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.pages import blocks_of
from unerring import App, fn, rule, stream, trailing
from unerring.app.folder import remember
from unerring.app.inputs import Inputs, rules_of
from unerring.app.metrics import Metrics
from unerring.app.parts import FILE as PARTS, Parts, channel_part
from unerring.app.status import RunStatus
from unerring.app.status.document import behind_log
from unerring.app.status.prometheus import prometheus
from unerring.dashboard.screen import render_status
from unerring.log import EventLog, LogWriter
from unerring.model import SECOND_US, TIME_MIN, Stamp, StreamSchema, protect_json, schema_of, verified_json
from unerring.runtime.os_processes import own_number

OPERATIONS = Path(__file__).parent.parent.parent / "docs" / "operations.md"
NOON_US = 1_772_539_200 * SECOND_US


@stream(key="card")
class TxnEurope:
    card: int


@stream(key="card")
class TxnAmerica:
    card: int


@stream(key="card")
class TxnAsia:
    card: int


Txn = rule("Txn").on(TxnEurope, TxnAmerica, TxnAsia).window(trailing(60 * SECOND_US)).on_change("n").emit(n=fn.count())
app = App("cards", rules=[Txn], buckets=1)
fed = App("fed", rules=[Txn], buckets=1, channels={TxnAsia: "tcp://127.0.0.1:9", TxnEurope: "tcp://127.0.0.1:9"})


def extend(data: Path, schema: StreamSchema, known_s: int, ago_s: float) -> None:
    """One event, and a watermark, sealed so long ago."""
    writer = LogWriter(EventLog(data / "log"), schema, None, 1)
    writer.append("p", (1, known_s), Stamp(NOON_US + known_s * SECOND_US), {"card": 1}, 0)
    writer.advance(NOON_US + known_s * SECOND_US, 0)
    writer.seal()
    newest = max((data / "log" / schema.name / "segments").iterdir(), key=lambda path: path.name)
    at_s = time.time() - ago_s
    os.utime(newest, (at_s, at_s))


def silent_run(data: Path) -> Path:
    """All three came in for a while; then Asia fell silent, 40 s ago, and the others went on."""
    for schema in app.streams:
        extend(data, schema, 1, 41)
    for schema in (schema_of(TxnEurope), schema_of(TxnAmerica)):
        for second in range(2, 6):
            extend(data, schema, second, 42 - second)
    remember(data, "tests.app.test_inputs:app")
    own_number(data, "spark")  # so that the run counts as running
    return data


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return silent_run(tmp_path)


def alerts() -> dict[str, tuple[str, float, str]]:
    """The alerts of docs/operations.md of the form `metric > number`, and the sample that silences each at 0."""
    (found,) = [block for block in blocks_of("operations.md", OPERATIONS.read_text()) if block.save_as == "alerts.yaml"]
    of_rules = r"(?: unless on \(instance, stream\) unerring_situations_total)?"
    expression = rf"(unerring_\w+) > ([0-9.]+){of_rules}(?: unless on \(instance\) (.+) == 0)?$"
    told = re.findall(rf"alert: (\w+)\n\s+expr: {expression}", found.text, re.MULTILINE)
    return {name: (metric, float(bound), unless) for name, metric, bound, unless in told}


def firing(alert: str, exported: str) -> list[str]:
    """The labels of the samples for which a documented alert fires."""
    metric, bound, unless = alerts()[alert]
    if f"{unless} 0" in exported.splitlines():
        return []
    samples = re.findall(rf"^{metric}(\{{.*\}})? (\S+)$", exported, re.MULTILINE)
    return [labels for labels, value in samples if float(value) > bound]


def test_a_rule_says_for_which_input_it_waits(data: Path) -> None:
    told = RunStatus(data).look()
    (wait,) = told["inputs"]["waits"]
    assert (wait["rule"], wait["stream"]) == ("Txn", "TxnAsia")
    assert (time.time_ns() // 1000 - wait["since_us"]) / SECOND_US == pytest.approx(40, abs=30)
    (note,) = told["run"]["notes"]
    assert re.match(r"Txn waits for TxnAsia since \d+ s: nothing is known of it after 2026-03-03 12:00:01; ", note)
    console = Console(file=io.StringIO(), width=80)
    console.print(render_status(told, 80))
    assert "Txn waits for TxnAsia since" in console.file.getvalue()  # type: ignore[attr-defined]


def test_the_documented_alert_fires_for_the_silent_input_alone(data: Path) -> None:
    exported = prometheus(RunStatus(data).look())
    silent = '{rule="Txn",stream="TxnAsia"}'
    assert firing("InputSilent", exported) == [silent]
    assert firing("StreamSilent", exported) == []
    assert firing("InputSilent", f'{exported}unerring_part_up{{part="run"}} 0\n') == [], "another alert says that"
    assert f'unerring_watermark_seconds{{stream="TxnAsia"}} {NOON_US // SECOND_US + 1}' in exported
    metrics = Metrics()
    Inputs(EventLog(data / "log"), rules_of(app)).measure(metrics)
    assert firing("InputSilent", metrics.text()) == [silent], "with a port of its own a run on Spark says the same"

    extend(data, schema_of(TxnAsia), 5, 0)
    exported = prometheus(RunStatus(data).look())
    assert firing("InputSilent", exported) == [], "it spoke again"
    assert RunStatus(data).look()["run"]["notes"] == []


def test_an_input_that_never_spoke_is_waited_for_since_another_did(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "log")
    for schema in app.streams:
        log.create(schema, 1)
    long_ago_s = time.time() - 9_000
    os.utime(tmp_path / "log" / "TxnAsia" / "stream.json", (long_ago_s, long_ago_s))
    inputs = Inputs(log, rules_of(app))
    assert inputs.look()[1] == [], "nobody has anything to wait for"
    for schema in (schema_of(TxnEurope), schema_of(TxnAmerica)):
        extend(tmp_path, schema, 1, 3_000)
    (wait,) = inputs.look()[1]
    assert wait.stream == "TxnAsia"
    assert (time.time_ns() // 1000 - wait.since_us) / SECOND_US == pytest.approx(3_000, abs=300)
    assert "nothing is known of it at all" in wait.sentence(wait.since_us)


def test_a_channel_on_which_nobody_is_heard_is_named(tmp_path: Path) -> None:
    """Its part works, for it may wait for a producer; but a wrong port looks the same."""
    remember(tmp_path, "tests.app.test_inputs:fed")
    EventLog(tmp_path / "log").create(schema_of(TxnAsia), 1)
    parts = Parts(tmp_path)
    for stream_name in ("TxnAsia", "TxnEurope"):
        parts.began(channel_part(stream_name))
    parts.check()
    assert RunStatus(tmp_path).look()["run"]["notes"] == [], "give it a moment"
    told = verified_json((tmp_path / PARTS).read_bytes(), dict[str, Any], PARTS)
    for part in told["parts"]:
        part["since_us"] -= 3_600 * SECOND_US * (part["name"] == "channel TxnAsia")
    (tmp_path / PARTS).write_bytes(protect_json(told))
    (note,) = RunStatus(tmp_path).look()["run"]["notes"]
    assert re.match(
        r"no producer was heard of on the channel of TxnAsia since 36\d\d s: is one at tcp://127.0.0.1:9\?", note
    )


def test_a_replica_whose_rule_is_too_slow_is_behind_the_log() -> None:
    """Its source gives it no more than it takes, nor takes more from the log: there is no lag between them."""
    tree = {"nodes": [{"name": "Txn", "runs_on": "Txn"}, {"name": "Away", "runs_on": "Away"}]}
    slow = {"name": "Txn/0", "through": 5 * SECOND_US, "inputs": {"TxnAsia": {}}, "lag_s": 1.0}
    shard = {"name": "Txn.1/0", "shard_of": "Txn", "through": 64 * SECOND_US, "inputs": {"TxnAsia": {}}, "lag_s": 2.0}
    source = {"name": "source_TxnAsia/0", "lag_s": 0.0}
    new = {"name": "Txn/1", "through": TIME_MIN, "inputs": {"TxnAsia": {}}, "lag_s": 0.0}
    unknown = {"name": "Away/0", "through": 5 * SECOND_US, "inputs": {"TxnAsia": {}}, "lag_s": 3.0}
    processes: list[dict[str, Any]] = [slow, shard, source, new, unknown]
    behind_log(processes, tree, {"Txn": 65 * SECOND_US})
    assert [one["lag_s"] for one in processes] == [60.0, 2.0, 0.0, 0.0, 3.0]
