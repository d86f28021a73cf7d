"""Apps, their metrics, and sentences for what can be wrong around them; no Spark is started here."""

from __future__ import annotations

import json
import socket
import sys
import threading
import urllib.request
from pathlib import Path

import msgspec
import pytest

from unerring.app import App, load
from unerring.app.feeds import Feeds
from unerring.app.metrics import Metrics
from unerring.app.serving import Health, serve
from unerring.app.spark_engine import SparkEngine
from unerring.cli import main
from unerring.correlation import NodeSpec, Role, Topology
from unerring.log import EventLog, Quarantine
from unerring.model import CallerError, ConfigError, NetworkError, RuleError, WorldError
from unerring.pipeline.session import SparkConfig, sentence_of, start
from unerring.rules.workloads import W1, W3, Typed
from unerring.runtime.channel import Publisher

from .worlds import OTHER, TYPED, pair

APP = """
from unerring import App
from unerring.rules.workloads import W1, Typed
app = App("trial", rules=[W1], buckets=2)
other = 7
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "trial_app.py").write_text(APP)
    (tmp_path / "broken_app.py").write_text("import nothing_of_this_name")
    (tmp_path / "raising_app.py").write_text("app = 1 / 0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return tmp_path


def test_an_app_is_found_by_its_address(folder: Path) -> None:
    app = load("trial_app:app")
    assert [schema.name for schema in app.streams] == ["Typed"]
    assert [schema.name for schema in app.outputs] == ["W1"]


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("trial_app", "write module:attribute"),
        ("nowhere_app:app", "there is no module 'nowhere_app'"),
        ("broken_app:app", "it needs nothing_of_this_name"),
        ("raising_app:app", "could not be loaded: ZeroDivisionError: division by zero .*raising_app.py, line 1"),
        ("trial_app:missing", "has no 'missing'"),
        ("trial_app:other", "is a int, not an app"),
    ],
)
def test_a_wrong_address_gets_a_sentence(folder: Path, address: str, sentence: str) -> None:
    with pytest.raises(CallerError, match=sentence):
        load(address)


def test_apps_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match="has no rules"):
        App("none", rules=[])
    with pytest.raises(RuleError, match="two streams are called 'Pairs'"):
        App("twins", rules=[pair("Pairs", TYPED, "A", "B", 1), pair("Pairs", OTHER, "A", "B", 1)])
    with pytest.raises(ConfigError, match="which no rule reads"):
        App("deaf", rules=[pair("Pairs", TYPED, "A", "B", 1)], channels={OTHER: "tcp://127.0.0.1:1"})
    with pytest.raises(ConfigError, match="app late: lateness of Other, which no rule reads"):
        App("late", rules=[pair("Pairs", TYPED, "A", "B", 1)], lateness={OTHER: "1s"})
    with pytest.raises(CallerError, match="no situation 'W2'; it has W1, W3"):
        App("known", rules=[W1, W3]).situations("W2")


def test_an_app_says_how_late_events_of_a_stream_may_be_without_a_new_version_of_its_rules() -> None:
    app = App("late", rules=[W1], lateness={Typed: "30s"})
    (typed,) = (schema for schema in app.streams if schema.name == "Typed")
    assert typed.lateness_us == 30_000_000
    late = msgspec.structs.replace(TYPED, lateness_us=1, idle_after_us=1)
    assert pair("Pairs", late, "A", "B", 1).version == pair("Pairs", TYPED, "A", "B", 1).version
    nodes = (NodeSpec("source", Role.SOURCE, outputs=("Typed",)),)
    assert Topology(nodes, (late,)).fingerprint() == Topology(nodes, (TYPED,)).fingerprint()


def test_a_file_comes_in_by_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "e.csv").write_text("ts,key,type,v\n1000,1,A,0.5\n3000,1,B,0.5\n2000,2,A,x\n2500,2,A,1\n")
    arguments = ["ingest", "e.csv", "--stream", "Typed", "--time-column", "ts", "--app", "trial_app:app"]
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--lateness", "1ms", "--json", "--quarantine-max", "25"])
    assert ended.value.code == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["added"], said["quarantined"], said["through_us"]) == (3, {"schema": 1}, 3000)
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--lateness", "soon"])
    assert ended.value.code == 2
    assert "'soon' is not a duration" in capsys.readouterr().err


def test_metrics_read_as_prometheus_writes_them() -> None:
    metrics = Metrics()
    metrics.add("unerring_events_total", 3, level=1)
    metrics.add("unerring_events_total", 4, level=1)
    metrics.set("unerring_lag_seconds", 0.5, level='a"b')
    text = metrics.text()
    assert "# TYPE unerring_events_total counter" in text
    assert 'unerring_events_total{level="1"} 7' in text
    assert 'unerring_lag_seconds{level="a\\"b"} 0.5' in text
    server = serve(metrics, Health(), 0)
    port = server.server_address[1]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=600) as answer:
        assert answer.read().decode() == text
    with pytest.raises(NetworkError, match=f"port {port} of 127.0.0.1 for metrics is in use"):
        serve(metrics, Health(), int(port))
    server.shutdown()
    server.server_close()


def test_a_channel_is_written_to_the_log_and_goes_on_after_a_restart(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    with Publisher("tcp://127.0.0.1:0", Typed) as out:
        url = out.address

        def reached(count: int, feeds: Feeds) -> None:
            quiet = threading.Event()
            while log.chain("Typed").refresh() < 1000 * count:
                assert feeds.error is None
                quiet.wait(0.01)

        for first, last in ((1, 500), (501, 900)):
            feeds = Feeds(log, {"Typed": url}, {"Typed": W1.plan.inputs[0].schema}, 2)
            feeds.start()
            quiet = threading.Event()
            if first == 1:
                # A consumer starts with what is published after it came: publish until the first event is there.
                moment = 0
                while log.chain("Typed").through_us < 0:
                    moment += 1
                    out.publish(Typed(1, "A", 0.0), at=moment)
                    quiet.wait(0.05)
            out.publish_many(
                [Typed(i % 7, "AB"[i % 2], 0.5) for i in range(first, last + 1)],
                at=[1000 * i for i in range(first, last + 1)],
            )
            reached(last, feeds)
            feeds.stop()
            assert feeds.error is None
    times = [time for time in log.chain("Typed").read(0, 10**9).column("time").to_pylist() if time >= 1000]
    assert times == [1000 * i for i in range(1, 901)]
    assert Quarantine(log.store, "Typed").events() == []


def test_what_a_channel_loses_stands_in_quarantine_and_the_stream_goes_on(tmp_path: Path) -> None:
    log, quiet = EventLog(tmp_path), threading.Event()
    port = 0

    def feed_until(sealed_us: int, at: int) -> None:
        """A producer's incarnation: it publishes one event a moment until the log holds one of `sealed_us` or later."""
        nonlocal port
        with Publisher(f"tcp://127.0.0.1:{port}", Typed, name="press") as out:
            port = int(out.address.rpartition(":")[2])
            feeds = Feeds(log, {"Typed": out.address}, {"Typed": W1.plan.inputs[0].schema}, 2)
            feeds.start()
            while log.chain("Typed").refresh() < sealed_us:
                assert feeds.error is None
                at += 1
                out.publish(Typed(1, "A", 0.0), at=at)
                quiet.wait(0.02)
            while not out._inner.registered or not max(out._inner.registered.values()):
                at += 1
                out.publish(Typed(1, "A", 0.0), at=at)
                quiet.wait(0.02)
            feeds.stop()
            assert feeds.error is None

    feed_until(1, at=0)
    feed_until(1_000_001, at=1_000_000)  # the same producer anew, without storage: its epoch's end is unknown
    (bad,) = Quarantine(log.store, "Typed").events()
    assert bad.reason == "lost"
    assert "the producer restarted without its buffer" in bad.detail


def test_what_is_wrong_around_spark_is_said_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="'nonsense' is not a Spark master"):
        SparkConfig(master="nonsense")
    with pytest.raises(ConfigError, match="exactly-once output depends on it"):
        SparkConfig(more=(("spark.sql.streaming.stateStore.checkpointFormatVersion", "1"),))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = f"spark://127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(NetworkError, match="there is no Spark master at"):
        SparkEngine(App("trial", rules=[W1], buckets=2), tmp_path, SparkConfig(master=nobody)).start(lambda text: None)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr("unerring.pipeline.session._existing", lambda: None)  # another test may have started one
    with pytest.raises(
        WorldError, match=r"Spark needs Java 17 or newer, and JAVA_HOME is .*, where there is no bin/java"
    ):
        start(SparkConfig())


def test_the_telling_line_of_a_long_story_is_found() -> None:
    ours = "Job aborted\n  File x\nunerring.model.errors.LogError: /a/b is not whole; restore it\n at java"
    assert sentence_of(WorldError(ours)) == "/a/b is not whole; restore it"
    python = "PythonException: Traceback\n  File y\nValueError: no such thing\n SQLSTATE"
    assert sentence_of(WorldError(python)) == "ValueError: no such thing"
    assert (
        sentence_of(WorldError("x\njava.lang.IllegalStateException: gone\n at y"))
        == "java.lang.IllegalStateException: gone"
    )
    py4j = "An error occurred while calling None.x.\n: java.lang.IllegalArgumentException: too short\n\tat y"
    assert sentence_of(WorldError(py4j)) == "java.lang.IllegalArgumentException: too short"
