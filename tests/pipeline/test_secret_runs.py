"""Whole runs over secret columns, on both engines: they find what the oracle finds, and of no value a trace is left in
files, logs, spans, metrics or the dashboard."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.app.live_tree import LiveRun
from tests.app.secret_app import REFUSED, app, payments, tells
from tests.dashboard.test_server import Client
from tests.tracing.collector import Collector
from unerring.app import live
from unerring.app.folder import remember
from unerring.app.status import RunStatus
from unerring.cli import main
from unerring.dashboard import Dashboard
from unerring.log import KEYS_VARIABLE, EventLog, Quarantine, Reason, new_ring
from unerring.matching.oracle import run_tree
from unerring.model import TIME_MAX, Event
from unerring.pipeline import ingest
from unerring.rules.tree import ranks_of
from unerring.runtime.live import LiveSupervisor

from .worlds import sealed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

APP = "tests.app.secret_app:app"
ROOT = Path(__file__).parents[2]
FOUND = ("Twice", "Four")
"""What is compared with the oracle; the third rule is an operator, which refuses one payment."""


@pytest.fixture
def ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    new_ring(tmp_path / "ring")
    monkeypatch.setenv(KEYS_VARIABLE, str(tmp_path / "ring"))
    return tmp_path / "ring"


@pytest.fixture
def collector() -> Iterator[Collector]:
    receiver = Collector()
    yield receiver
    receiver.end()


def to(collector: Collector) -> dict[str, str]:
    """The variables of a process that sends its spans there."""
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "100"}


class Cards(LiveRun):
    """The live engine, with databases and traces."""

    def __init__(self, data: Path, events: list[Event], collector: Collector) -> None:
        variables = {**to(collector), "OTEL_TRACES_EXPORTER": "otlp"}
        self.traced = ["env", *(f"{name}={value}" for name, value in variables.items())]
        self.fed = 0
        super().__init__(data, APP, events, stream="Payment", durable=True)

    def new_supervisor(self) -> LiveSupervisor:
        def command(name: str) -> list[str]:
            return [*self.traced, *live.command(self.data, name)]

        return LiveSupervisor(self.cluster, self.data / "live", command)

    def feed(self, events: list[Event]) -> None:
        for event in events:
            self.writer.append("0123456789abcdef", (0, self.fed), event.stamp, event.payload, 0)
            self.fed += 1
        self.writer.advance(events[-1].stamp.time - 1, 0)  # more may come of this time
        self.writer.seal()


@pytest.mark.timeout(600)
def test_the_live_engine_finds_the_same_and_tells_nothing(
    tmp_path: Path, ring: Path, collector: Collector, capfd: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "run"
    remember(data, APP)
    run = Cards(data, payments(420_000_001, 160), collector)
    asyncio.run(run.play(0, 160, end=True))
    _check(data, collector, capfd)


@pytest.mark.timeout(900)
def test_an_intake_and_resident_tasks_find_the_same_and_tell_nothing(
    spark: SparkSession, tmp_path: Path, ring: Path, collector: Collector, capfd: pytest.CaptureFixture[str]
) -> None:
    data, incoming = tmp_path / "run", tmp_path / "incoming"
    _files(incoming, payments(420_000_002, 160))
    frame = (
        spark.readStream.schema("at bigint, who string, shop string, card string, pin bigint")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(incoming))
    )
    given = {"stream": app.streams[0], "time": "at", "time_unit": "us", "lateness": 5, "buckets": 2}
    ingest(frame, data=data, once=True, **given).awaitTermination()
    chain = EventLog(data / "log").chain("Payment")
    end = pa.table({"at": [TIME_MAX // 2], "who": ["w0"], "shop": ["south"], "card": ["none"], "pin": [0]})
    pq.write_table(end, incoming / "end.parquet")
    ingest(frame, data=data, once=True, **given).awaitTermination()
    assert chain.refresh() > payments(420_000_002, 160)[-1].stamp.time
    bad = Quarantine(chain.store, "Payment").events()
    assert [one.reason for one in bad] == [Reason.SCHEMA], "a payment of nobody"
    environment = {**os.environ, **to(collector), "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    command = [sys.executable, "-m", "unerring", "run", APP, "--engine", "spark", "--master", "local[1]", "--once"]
    environment["OTEL_BSP_SCHEDULE_DELAY"] = "3600000"  # only what is sent at the end of a task comes
    subprocess.run([*command, "--trace", "1", "--data", str(data)], env=environment, check=True, timeout=600)
    _check(data, collector, capfd)


def _files(folder: Path, events: list[Event]) -> None:
    """Each a micro-batch; one has a payment without its key."""
    folder.mkdir()
    times = sorted({event.stamp.time for event in events})
    for number in range(4):
        those = set(times[number * len(times) // 4 : (number + 1) * len(times) // 4])
        rows = [{"at": event.stamp.time, **event.payload} for event in events if event.stamp.time in those]
        if number == 2:
            rows.insert(3, {**rows[3], "who": None, "card": REFUSED})
        pq.write_table(pa.Table.from_pylist(rows), folder / f"{number}.parquet")
        os.utime(folder / f"{number}.parquet", (1_000_000 + number, 1_000_000 + number))


def _check(data: Path, collector: Collector, capfd: pytest.CaptureFixture[str]) -> None:
    events = sealed(data, "Payment")
    assert len(events) >= 160
    wanted = run_tree(app.plans[:2], events, ranks_of(app.plans, app.streams), TIME_MAX)
    for stream in FOUND:
        through_us = EventLog(data / "log").chain(stream).refresh()
        mine = [event for event in wanted if event.stream == stream and event.stamp.time <= through_us]
        assert mine, "the draw must make the rule speak"
        assert sealed(data, stream) == mine
    [refused] = Quarantine(EventLog(data / "log").store, "Counted").events()
    assert refused.reason is Reason.RULE
    assert len(collector.spans) > 10
    one = next(event for event in wanted if event.stream == "Twice")
    told = _of_the_dashboard(data, one, events[0]) + _of_commands(data, capfd)
    assert "(secret)" in told
    assert not list(tells(told))
    assert not list(tells(b"".join(collector.raw)))
    for path in data.rglob("*"):
        assert not path.is_file() or not list(tells(path.read_bytes())), path
    asked = _of_commands(data, capfd, "situations --secrets", "quarantine show --secrets")
    assert len(list(tells(asked))) > 1, "who asks for values with the keys gets them"


def _of_the_dashboard(data: Path, situation: Event, event: Event) -> str:
    client, stamp = Client(Dashboard(RunStatus(data), "token")), situation.stamp
    which = f"stream=Twice&time_us={stamp.time}&ordinal={stamp.ordinal}"
    of = f"stream=Payment&time_us={event.stamp.time}&ordinal={event.stamp.ordinal}"
    told = []
    for path in (
        "/",
        "/metrics",
        "/api/status",
        "/api/timeline",
        "/api/rules",
        "/api/situations?count=500",
        f"/api/why?{which}",
        f"/api/why-not?rule=Twice&key={situation.key[0]}&at_us={stamp.time - 1}",
        f"/api/at?at_us={stamp.time}",
        f"/api/what-if?do=drop&{of}",
    ):
        answer = client.get(path)
        assert answer.status_code == 200, (path, answer.text)
        told.append(answer.text)
    return "\n".join(told)


SHOWING = ("status", "situations", "quarantine show", "stats")


def _of_commands(data: Path, capfd: pytest.CaptureFixture[str], *commands: str) -> str:
    """With all that the run itself has printed."""
    for command in commands or SHOWING:
        with pytest.raises(SystemExit):
            main([*command.split(), str(data)])
    told = capfd.readouterr()
    return told.out + told.err
