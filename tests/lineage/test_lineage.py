"""What a receiver hears of ingests, runs and deliveries, and what happens when there is none."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.app import sum_app
from tests.lineage.receiver import Receiver, brief, fields, names
from unerring.app import Sink, place_of, traced_run
from unerring.cli import main
from unerring.lineage import Dataset, Flow, begin, dataset_at, folders_of, sender, traced
from unerring.lineage.runs import is_on
from unerring.model import CallerError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent.parent
APP = "tests.app.sum_app:app"
READING = [("time", "time"), ("ordinal", "int"), ("machine", "int"), ("celsius", "int")]


@pytest.fixture
def own_sender(monkeypatch: pytest.MonkeyPatch) -> sender.Sender:
    """A sender that reads this test's variables."""
    made = sender.Sender()
    monkeypatch.setattr(sender, "_sender", made)
    monkeypatch.setattr("atexit.register", lambda what: what)
    return made


@pytest.fixture
def receiver(own_sender: sender.Sender, monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    running = Receiver()
    monkeypatch.setenv("OPENLINEAGE_URL", running.url)
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "plant")
    yield running
    running.end()


@pytest.fixture
def readings(tmp_path: Path) -> Path:
    file = tmp_path / "readings.csv"
    file.write_text("at,machine,celsius\n" + "".join(f"{n * 10_000},7,{n}\n" for n in range(1, 9)))
    return file


def command(*arguments: str, code: int = 0) -> None:
    with pytest.raises(SystemExit) as end:
        main(list(arguments))
    assert (end.value.code or 0) == code


def ingest(file: Path, data: Path, code: int = 0) -> None:
    command(
        "ingest", str(file), "--stream", "Reading", "--time-column", "at", "--app", APP, "--data", str(data), code=code
    )


def test_an_ingest_tells_its_file_its_stream_and_how_many_rows(
    receiver: Receiver, readings: Path, tmp_path: Path
) -> None:
    data = tmp_path / "run"
    ingest(readings, data)
    start, complete = receiver.wait_for(2)
    assert [brief(start), brief(complete)] == [(s, "INGEST", "ingest.Reading") for s in ("START", "COMPLETE")]
    assert start["run"]["runId"] == complete["run"]["runId"]
    assert start["job"]["namespace"] == "plant"
    assert names(complete, "inputs") == [("file", str(readings))]
    assert names(complete, "outputs") == [("file", str(data / "log" / "Reading"))]
    [written] = complete["outputs"]
    assert fields(written) == READING
    assert written["outputFacets"]["outputStatistics"]["rowCount"] == 8


def test_an_ingest_that_cannot_be_done_tells_why(receiver: Receiver, tmp_path: Path) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text("machine,celsius\n7,1\n")
    ingest(bad, tmp_path / "run", code=2)
    start, fail = receiver.wait_for(2)
    assert [brief(start)[0], brief(fail)[0]] == ["START", "FAIL"]
    assert "at" in fail["run"]["facets"]["errorMessage"]["message"]


@pytest.mark.xdist_group("spark")
def test_a_run_on_spark_tells_each_rule_and_each_sink_as_its_parts(
    receiver: Receiver, readings: Path, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, lake = tmp_path / "run", tmp_path / "lake"
    monkeypatch.setattr(sum_app.app, "sinks", [Sink("sums", "Total", f"delta:{lake}")])
    ingest(readings, data)
    command("run", APP, "--once", "--master", "local[2]", "--data", str(data))
    told = {brief(event): event for event in receiver.wait_for(8)[2:]}
    assert set(told) == {
        (state, kind, name)
        for state in ("START", "COMPLETE")
        for kind, name in (("RUN", "sums"), ("DETECT", "sums.Total"), ("DELIVER", "sums.deliver.sums"))
    }
    run = told["START", "RUN", "sums"]["run"]["runId"]
    detected = told["COMPLETE", "DETECT", "sums.Total"]
    assert detected["run"]["facets"]["parent"]["run"]["runId"] == run
    assert detected["run"]["facets"]["processing_engine"]["name"] == "spark"
    assert detected["job"]["facets"]["jobType"]["processingType"] == "BATCH"
    assert names(detected, "inputs") == [("file", str(data / "log" / "Reading"))]
    assert names(detected, "outputs") == [("file", str(data / "log" / "Total"))]
    delivered = told["COMPLETE", "DELIVER", "sums.deliver.sums"]
    assert delivered["run"]["facets"]["parent"]["run"]["runId"] == run
    assert names(delivered, "inputs") == names(detected, "outputs")
    assert names(delivered, "outputs") == [("file", str(lake))]
    assert delivered["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 8
    assert fields(delivered["outputs"][0]) == [
        ("time", "time"),
        ("ordinal", "int"),
        ("machine", "int"),
        ("total", "int"),
    ]


@pytest.mark.xdist_group("spark")
def test_spark_tells_what_it_takes_in(receiver: Receiver, spark: SparkSession, tmp_path: Path) -> None:
    from unerring.pipeline import ingest as ingest_frame

    source, data = tmp_path / "shifts", tmp_path / "run"
    spark.sql("SELECT id * 10000 AS at, id % 3 AS machine FROM range(1, 20)").coalesce(1).write.parquet(str(source))
    ingest_frame(spark.read.parquet(str(source)), stream="Shift", key="machine", time="at", data=data)
    _, complete = receiver.wait_for(2)
    [(namespace, name)] = names(complete, "inputs")
    assert namespace == "file"
    assert Path(name).parent == source
    assert names(complete, "outputs") == [("file", str(data / "log" / "Shift"))]
    frame = spark.readStream.schema("at bigint, machine bigint").parquet(str(source))
    query = ingest_frame(frame, stream="Live", key="machine", time="at", data=data, once=True)
    query.awaitTermination()
    start, complete = receiver.wait_for(4)[2:]
    assert [brief(start), brief(complete)] == [(s, "INGEST", "ingest.Live") for s in ("START", "COMPLETE")]
    assert start["job"]["facets"]["jobType"]["processingType"] == "STREAMING"


def test_a_live_run_tells_its_start_and_its_end(receiver: Receiver, readings: Path, tmp_path: Path) -> None:
    data = tmp_path / "run"
    run = [sys.executable, "-m", "unerring", "run", APP, "--engine", "live", "--f", "0"]
    process = subprocess.Popen([*run, "--data", str(data)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        started = {brief(event) for event in receiver.wait_for(2)}
        assert started == {("START", "RUN", "sums"), ("START", "DETECT", "sums.Total")}
        assert process.stdout is not None
        while b"Ctrl-C stops it" not in (line := process.stdout.readline()):
            assert line, "it ended"
        process.send_signal(signal.SIGINT)
        process.communicate()
    finally:
        process.kill()
        process.wait()
    ended = receiver.wait_for(4)[2:]
    assert {brief(event) for event in ended} == {("COMPLETE", "RUN", "sums"), ("COMPLETE", "DETECT", "sums.Total")}
    assert {event["run"]["facets"]["processing_engine"]["name"] for event in ended} == {"live"}


def test_a_run_that_breaks_or_is_interrupted_tells_so(receiver: Receiver, tmp_path: Path) -> None:
    place = place_of(tmp_path)
    with pytest.raises(CallerError), traced_run(sum_app.app, place, "live", streaming=True):
        raise CallerError("no more")
    with pytest.raises(KeyboardInterrupt), traced_run(sum_app.app, place, "live", streaming=True):
        raise KeyboardInterrupt
    ends = [event for event in receiver.wait_for(8) if event["eventType"] != "START"]
    assert [brief(event)[0] for event in ends] == ["FAIL", "FAIL", "ABORT", "ABORT"]
    assert ends[0]["run"]["facets"]["errorMessage"]["message"] == "CallerError: no more"


def test_a_delivery_that_stops_tells_why(
    receiver: Receiver, readings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "run"
    ingest(readings, data)
    command("deliver", str(data), "--stream", "Reading", "--to", f"delta:{tmp_path / 'lake'}")
    command("deliver", str(data), "--stream", "Reading", "--to", f"delta:{tmp_path / 'lake'}", "--name", "two", code=2)
    told = [brief(event) for event in receiver.wait_for(6)[2:]]
    assert told == [
        ("START", "DELIVER", "deliver.Reading"),
        ("COMPLETE", "DELIVER", "deliver.Reading"),
        ("START", "DELIVER", "deliver.two"),
        ("FAIL", "DELIVER", "deliver.two"),
    ]
    assert "none of them by this sink" in receiver.events[-1]["run"]["facets"]["errorMessage"]["message"]


# --- without a receiver ---


@pytest.mark.parametrize(
    ("variables", "on"),
    [
        ({}, False),
        ({"OPENLINEAGE_URL": "http://h"}, True),
        ({"OPENLINEAGE_URL": ""}, False),
        ({"OPENLINEAGE__TRANSPORT__TYPE": "console"}, True),
        ({"OPENLINEAGE_CONFIG": "/openlineage.yml"}, True),
        ({"OPENLINEAGE_URL": "http://h", "OPENLINEAGE_DISABLED": "True"}, False),
        ({"OPENLINEAGE_NAMESPACE": "plant"}, False),
    ],
)
def test_the_standard_variables_switch_it_on_and_off(variables: dict[str, str], on: bool) -> None:
    assert is_on(variables) is on


def test_nothing_is_loaded_while_it_is_off(readings: Path, tmp_path: Path) -> None:
    program = (
        "import sys, threading; from unerring.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "assert not [name for name in sys.modules if name.startswith('openlineage')]\n"
        "assert 'unerring.lineage.sender' not in sys.modules\n"
    )
    options = ["--stream", "Reading", "--time-column", "at", "--app", APP, "--data", str(tmp_path / "run")]
    variables = {**os.environ, "OPENLINEAGE_URL": "http://127.0.0.1:9", "OPENLINEAGE_DISABLED": "true"}
    subprocess.run(
        [sys.executable, "-c", program, "ingest", str(readings), *options], cwd=ROOT, env=variables, check=True
    )


def test_a_receiver_that_refuses_costs_one_warning(
    own_sender: sender.Sender, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, readings: Path
) -> None:
    refusing = Receiver(status=400)
    monkeypatch.setenv("OPENLINEAGE_URL", refusing.url)
    ingest(readings, readings.parent / "run")
    assert own_sender.finish(300)
    refusing.end()
    assert [one for one in caplog.messages if "lineage" in one] == [caplog.messages[-1]]
    assert "lineage events are lost (HTTPError: 400" in caplog.messages[-1]


def test_a_receiver_that_is_down_is_not_waited_for(
    own_sender: sender.Sender, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hung = threading.Event()

    class Hung:
        def emit(self, event: Any) -> None:
            hung.wait()

    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:9")
    monkeypatch.setattr(sender, "_client", Hung)
    for _ in range(sender.WAITING_MAX + 50):
        begin("ingest", "ingest.Reading", Flow)
    with caplog.at_level(logging.WARNING):
        assert not own_sender.finish(0.05)
    [warning] = caplog.messages
    assert f"lost ({sender.WAITING_MAX} events wait for their receiver)" in warning
    hung.set()


def test_a_library_that_is_not_installed_costs_one_warning(
    own_sender: sender.Sender, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:9")
    monkeypatch.setitem(sys.modules, "openlineage.client", None)
    with traced("ingest", "ingest.Reading", Flow):
        pass
    assert own_sender.finish(60)
    [warning] = caplog.messages
    assert "pip install 'unerring[lineage]'" in warning


# --- names ---


@pytest.mark.parametrize(
    ("address", "namespace", "name"),
    [
        ("/data/log/Reading", "file", "/data/log/Reading"),
        ("file:///data/a%20b", "file", "/data/a%20b"),
        ("s3://lake/run/log/Reading", "s3://lake", "run/log/Reading"),
        ("delta:s3://lake/hot", "s3://lake", "hot"),
        ("delta:/lake/hot", "file", "/lake/hot"),
        ("iceberg:lake.plant.hot", "iceberg://lake", "plant.hot"),
        ("postgresql://me:secret@db/plant/hot", "postgres://db:5432", "plant.public.hot"),
        ("postgresql://me@db:99/plant/raw.hot?password=x", "postgres://db:99", "plant.raw.hot"),
        ("kafka://broker:9093/hot", "kafka://broker:9093", "hot"),
        ("https://me:secret@h/alarms?token=x", "https://h", "alarms"),
    ],
)
def test_datasets_have_the_names_that_other_tools_give_them(address: str, namespace: str, name: str) -> None:
    assert dataset_at(address) == Dataset(namespace, name)


def test_many_files_are_named_by_their_folders() -> None:
    assert len(folders_of(f"/a/{n}.csv" for n in range(100))) == 100
    assert folders_of(f"/{n % 2}/{n}.csv" for n in range(101)) == (Dataset("file", "/0"), Dataset("file", "/1"))
