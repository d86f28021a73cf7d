"""Truthful health: each failure is played, and the status document is asked what is wrong."""

from __future__ import annotations

import asyncio
import io
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from tests.app.test_inputs import silent_run
from tests.app.tree_app import Reading
from unerring.app import batches
from unerring.app.folder import remember
from unerring.app.latencies import Latencies
from unerring.app.measuring import Measuring
from unerring.app.metrics import Metrics
from unerring.app.parts import Parts
from unerring.app.place import place_of
from unerring.app.status import RunStatus, prometheus
from unerring.dashboard import render_status
from unerring.log import EventLog, LogWriter, Syncs, disk_syncs, private_folder, write_private
from unerring.model import Histogram, Stamp, protect_json, schema_of
from unerring.processes import Request
from unerring.runtime import HttpService, Places, Reports, note, own_number, timeline
from unerring.runtime.services.clients import ServiceCarrier
from unerring.runtime.timeline import What

NODES = ["n0", "n1", "n2"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The folder of a run whose own process, this one, works."""
    data = tmp_path / "run"
    LogWriter(EventLog(data / "log"), schema_of(Reading), buckets=1)
    remember(data, "tests.app.tree_app:app")
    Parts(data).check()
    return data


def problems(data: Path) -> dict[str, str]:
    """What is wrong, by kind and name."""
    told = RunStatus(data).look()["health"]
    return {f"{one['kind']} {one['name']}": one["says"] for one in told["problems"]}


def screen(data: Path) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(render_status(RunStatus(data).look(), 120))
    return str(console.file.getvalue())  # type: ignore[attr-defined]


def test_a_run_with_which_nothing_is_wrong_says_so(data: Path) -> None:
    told = RunStatus(data).look()
    assert told["health"]["state"] == "well"
    assert told["health"]["problems"] == []
    assert told["health"]["waits_for"] is None


def test_which_input_does_everything_wait_for_and_since_when(tmp_path: Path) -> None:
    data = silent_run(tmp_path / "run")
    Parts(data).check()
    told = RunStatus(data).look()["health"]
    assert told["waits_for"]["stream"] == "TxnAsia"
    assert told["waits_for"]["rules"] == ["Txn"]
    assert time.time_ns() // 1000 - told["waits_for"]["since_us"] >= 10_000_000
    assert "Txn waits for TxnAsia since" in problems(data)["input TxnAsia"]


def test_which_service_fails_by_name_and_address(data: Path) -> None:
    """Asked of a port at which nobody listens, as a process node asks; well again once it answers."""
    answers: list[Any] = []

    async def ask(port: int) -> list[dict[str, Any]]:
        services = {"courier": HttpService(f"http://127.0.0.1:{port}", secret=None)}
        carrier = ServiceCarrier("n0/processes", services, None, Reports())
        done = asyncio.Event()

        def take(sender: str, message: Any) -> bool:
            answers.append(message)
            done.set()
            return True

        carrier.offer = take
        carrier.send("service:courier", Request("relieve-Shortage-5-0", "i/0", "courier", "fetch", {}))
        await done.wait()
        await carrier.close()
        return [msgspec.to_builtins(carrier.asked["courier"].seen)]

    seen = asyncio.run(ask(9))
    seen[0]["failing_since_us"] -= 40_000_000
    write_node(data, "n0", seen)
    (says,) = problems(data).values()
    assert says.startswith("service courier at http://127.0.0.1:9 fails since 4")
    assert "ConnectError" in says
    assert says[:60] in screen(data)
    exported = prometheus_of(data)
    assert 'unerring_service_up{service="courier",address="http://127.0.0.1:9"} 0' in exported
    assert 'unerring_service_seconds_count{service="courier",address="http://127.0.0.1:9"} 1' in exported
    seen.append({**seen[0], "failing_since_us": 0, "answered_us": time.time_ns() // 1000})
    write_node(data, "n1", seen[1:])
    assert problems(data) == {}, "another node has had an answer since"


def write_node(data: Path, name: str, services: list[dict[str, Any]], **more: Any) -> None:
    folder = data / "processes"
    fields = {"disk": msgspec.to_builtins(Syncs().look()), "services": services, **more}
    note(folder / "status" / f"{name}.json", name, fields)


def prometheus_of(data: Path) -> str:
    return prometheus.prometheus(RunStatus(data).look())


def test_a_disk_that_does_not_end_a_sync_is_said_while_it_hangs(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began, released = threading.Event(), threading.Event()
    real = os.fsync

    def stuck(descriptor: int) -> None:
        began.set()
        assert released.wait(600)
        real(descriptor)

    clock = [100.0]
    monkeypatch.setattr(disk_syncs, "_clock", lambda: clock[0])
    monkeypatch.setattr(disk_syncs, "_recent", deque())
    monkeypatch.setattr("unerring.log.store.folder.os.fsync", stuck)
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(place_of(data).store.replace, "some.json", b"{}")
        assert began.wait(600)
        clock[0] += 7
        Parts(data).check()
        assert problems(data) == {"disk run": "the disk of run does not end a sync that began 7 s ago"}
        assert 'unerring_sync_hangs_seconds{process="run"} 7' in prometheus_of(data)
        released.set()
        writing.result()
    Parts(data).check()
    assert problems(data)["disk run"].startswith("the disk of run is slow: half of its syncs take longer than ")
    clock[0] += 61
    Parts(data).check()
    assert problems(data) == {}, "of the last minute"


def test_prometheus_has_the_levels_and_drivers_of_spark(data: Path) -> None:
    document = RunStatus(data).look()
    told = {"pid": 7, "elections": 2, "refused": None, "jvm": 8, "sealed": 5, "held": 3, "supervised": True}
    document["spark"]["drivers"] = [
        {"name": "spark/0", "state": "member", "leads": True, **told},
        {"name": "spark/1", "state": "joining", "leads": False, **told},
        {"name": "spark", "state": "running", "pid": 9, "supervised": False},
    ]
    batch = batches.Batch(
        at_us=1,
        driver="spark/0",
        level=1,
        rules=("overheating",),
        batch=4,
        took_s=0.5,
        events=600,
        situations={},
        through_us=2_500_000,
        lag_s=1.0,
        keys=6,
    )
    batches.note(data, batch)
    document["spark"]["levels"] = RunStatus(data).look()["spark"]["levels"]
    exported = prometheus.prometheus(document).splitlines()
    for sample in (
        'unerring_driver_up{driver="spark/0"} 1',
        'unerring_driver_up{driver="spark/1"} 0',
        'unerring_driver_leads{driver="spark/0"} 1',
        'unerring_driver_leads{driver="spark/1"} 0',
        'unerring_driver_elections_total{driver="spark/1"} 2',
        'unerring_driver_sealed_total{driver="spark/0"} 5',
        'unerring_driver_held_total{driver="spark/0"} 3',
        'unerring_events_total{level="1"} 600',
        'unerring_level_watermark_seconds{level="1"} 2.5',
    ):
        assert sample in exported
    assert not any('driver="spark"' in line for line in exported), "an only driver is a process"


def test_prometheus_has_how_often_processes_were_started_again(data: Path) -> None:
    assert "unerring_process_restarts_total 0" in prometheus_of(data).splitlines(), "before the first one, too"
    for folder, name in (("live", "lit/1"), (".", "spark"), ("live", "lit/1")):
        (data / folder).mkdir(exist_ok=True)
        timeline.note(data / folder, name, What.DIED, "process 7")
    assert "unerring_process_restarts_total 3" in prometheus_of(data).splitlines()


def test_how_slow_the_disk_is(data: Path) -> None:
    writer = LogWriter(EventLog(data / "log"), schema_of(Reading), buckets=1)
    writer.append("p", (1, 1), Stamp(5, 0), {"machine": "m", "celsius": 1}, 0)
    writer.advance(6, 0)
    writer.seal()
    Parts(data).check()
    disk = RunStatus(data).look()["health"]["disk"]
    assert disk["count"] == disk["by_process"]["run"]["count"] > 0
    assert 0 < disk["half_s"] <= disk["most_s"] <= max(disk["max_s"], 0.001)
    assert "disk sync ≤ " in screen(data)


def test_votes_do_not_bury_the_one_death(data: Path) -> None:
    timeline.note(data, "Steps/0", What.DIED, "process 17 ended by SIGKILL")
    for number in range(1_000):
        timeline.note(data, f"Steps/{number % 3}", What.VOTE, str(number))
    told = RunStatus(data).look()["timeline"]
    assert [one["what"] for one in told["last"]].count("died") == 1
    assert told["count"] == 1_001
    assert "Steps/0 died  process 17 ended by SIGKILL" in screen(data)


def test_the_dead_process_is_the_first_problem(data: Path) -> None:
    (data / "processes").mkdir()
    own_number(data / "processes", "n1")
    number = data / "processes" / "pids" / "n1"
    write_node(data, "n0", [])
    (data / "processes" / "n0.db").touch()
    number.unlink()
    timeline.note(data / "processes", "n0", What.DIED, "process 9 ended by SIGKILL")
    told = RunStatus(data).look()["health"]["problems"]
    assert [(one["kind"], one["name"]) for one in told] == [("process", "n0")]
    assert abs(told[0]["since_us"] - time.time_ns() // 1000) < 600_000_000


def test_a_process_node_that_takes_no_part_yet_is_no_running_one(data: Path) -> None:
    nodes, now_us = data / "processes", time.time_ns() // 1000
    private_folder(nodes)
    write_private(nodes / "nodes.json", protect_json(Places(["tests.app.tree_app:app"], dict.fromkeys(NODES, 7300))))
    for name in NODES[:2]:
        own_number(nodes, name)
    why = "n1/processes does not know what it promised: it takes part as soon as n2/processes told it"
    write_node(data, "n0", [])
    write_node(data, "n1", [], absent=why, absent_us=now_us - 1_000_000)
    document = RunStatus(data).look()
    assert [(one["name"], one["state"]) for one in document["processes"]["nodes"]] == [
        ("n0", "running"),
        ("n1", "joining"),
        ("n2", "elsewhere"),
    ]
    assert document["run"]["alive"] == 2
    assert problems(data) == {}, "a moment at the start"
    assert "1 of 2 nodes run, 1 join" in screen(data)
    exported = prometheus_of(data)
    assert 'unerring_process_up{process="n1"} 1' in exported
    assert 'process="n2"' not in exported, "its own host tells of it"
    write_node(data, "n1", [], absent=why, absent_us=now_us - 40_000_000)
    assert problems(data) == {"process n1": f"n1 takes no part yet: {why}"}
    write_node(data, "n1", [], absent="", absent_us=0)
    assert problems(data) == {}
    assert "2 of 2 nodes run" in screen(data)


def test_how_late_situations_are_from_publishing_and_from_the_log(tmp_path: Path) -> None:
    """Through a log in a folder: what is sealed later than it was published, or known, by so much."""
    from tests.app.tree_app import app

    place = place_of(tmp_path / "run")
    (tmp_path / "run").mkdir()
    log, latencies, schemas = place.log, Latencies(), {schema.name: schema for schema in (*app.streams, *app.outputs)}
    made = app.outputs[0].name
    now_us = time.time_ns() // 1000
    measuring = Measuring(app, place, latencies)
    measuring.begin()
    measuring._began_us -= 10_000_000
    for name, age_s in ((app.streams[0].name, 4), (made, 1)):
        writer = LogWriter(log, schemas[name], buckets=1)
        values = {column.name: _SAMPLES[column.type.value] for column in schemas[name].columns}
        writer.append("p", (1, 1), Stamp(now_us - 5_000_000, 0), values, 0)
        writer.advance(now_us - 5_000_000, 0)
        writer.seal()
        for path in (tmp_path / "run" / "log" / name / "segments").glob("*.parquet"):
            os.utime(path, (now_us / 1e6 - age_s, now_us / 1e6 - age_s))
    measuring.look()
    took = {(one.since, one.to, one.of): one.took.max_s for one in latencies.look()}
    assert took[("published", "situation", made)] == pytest.approx(4, abs=0.01)
    assert took[("logged", "situation", made)] == pytest.approx(3, abs=0.01)
    metrics = Metrics()
    latencies.measure(metrics)
    assert (
        f'unerring_latency_seconds_bucket{{le="5.0",of="{made}",since="published",to="situation"}} 1' in metrics.text()
    )


_SAMPLES = {"bool": True, "int": 1, "float": 1.5, "text": "m", "bytes": b"b", "time": 1}


def test_event_time_that_is_no_clock_is_not_taken_for_one() -> None:
    latencies = Latencies()
    latencies.add("published", "situation", "Hot", 86_400.0)
    latencies.add("published", "situation", "Hot", -86_400.0)
    assert latencies.look() == []


@pytest.fixture
def few() -> Callable[..., Histogram]:
    def made(*took_s: float) -> Histogram:
        histogram = Histogram()
        for one in took_s:
            histogram.add(one)
        return histogram

    return made


def test_a_histogram_says_at_most_and_adds_up(few: Callable[..., Histogram]) -> None:
    one = few(0.002, 0.002, 0.03)
    assert one.at_most_s(0.5) == 0.0025
    assert one.at_most_s(0.99) == 0.03, "no more than the most that there was"
    one.merge(few(400.0))
    assert (one.count, one.max_s, list(one.buckets())[-1]) == (4, 400.0, ("+Inf", 4))
    assert few().at_most_s(0.5) is None
