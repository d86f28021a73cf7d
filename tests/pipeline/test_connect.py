"""What is said where a Spark Connect session cannot do something. That it can do the rest is shown by the tests that
run with `any_spark`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from pyspark import cloudpickle

import unerring
from unerring.model import CallerError, ConfigError, NetworkError
from unerring.pipeline import artifacts, connecting, ingest, ingesting, parallelism, prepare
from unerring.pipeline.session import with_settings

from . import kills

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.connect import ConnectServer


@pytest.fixture
def fresh(connect_server: ConnectServer) -> Any:
    """A session that nobody has looked at yet."""
    return connecting.connect(connect_server.url, {})


def test_as_many_tasks_run_at_once_as_the_server_has_cores(any_spark: SparkSession) -> None:
    assert parallelism(any_spark) == 2


def test_a_server_of_another_version_is_refused(fresh: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.__version__", "4.9.1")
    with pytest.raises(CallerError, match=r"server is Spark 4\.3\.\d, and this process has pyspark 4\.9\.1: .* 4\.9$"):
        unerring.match(fresh, "SELECT 1 AS one")
    connecting.check_versions("4.3.2", "4.3.0")


def test_what_a_server_lacks_is_sent_to_it(
    fresh: Any, connected: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that truly has nothing is in campaign/. This one has all, and what it is sent comes first."""
    asked, answers = connecting._interpreter, []

    def lacking(spark: Any, looking: bool) -> connecting.Interpreter:
        answers.append(asked(spark, looking))
        return msgspec.structs.replace(answers[-1], version="", missing=("xxhash",)) if looking else answers[-1]

    monkeypatch.setattr(connecting, "_interpreter", lacking)
    prepare(fresh)
    assert [answer.missing for answer in answers] == [(), ()]
    folder = artifacts.folder_of(fresh)
    assert sorted(path.name for path in Path(folder).iterdir()) == ["unerring", "xxhash"]
    where = connecting.asked(with_settings(fresh, {}), where_found())
    assert where.split() == ["unerring", "xxhash", "unerring", "xxhash"]  # of the session beside it, not of this Python

    readings = fresh.sql("SELECT timestamp_seconds(id) AS at, id AS number FROM range(3)")
    assert ingest(readings, stream="S", key="number", time="at", source="numbers", data=tmp_path).added == 3
    assert fresh.read.format("unerring").option("stream", "S").load(str(tmp_path)).count() == 3
    # The server's process that takes micro-batches does not look into the session's folder by itself.
    taker = cloudpickle.dumps(ingesting._Taker(None, "checkpoint", str(tmp_path / "sent")))  # type: ignore[arg-type]
    (tmp_path / "sent").mkdir()
    found = subprocess.run(
        [sys.executable, "-c", ENTERED], input=taker, capture_output=True, timeout=600, check=False, cwd=tmp_path
    )
    assert found.stdout.decode().split() == [str(tmp_path / "sent"), "_Taker"], found.stderr.decode()
    assert artifacts.folder_of(connected) == ""


ENTERED = """
import sys
from pyspark import cloudpickle
taker = cloudpickle.loads(sys.stdin.buffer.read())
print(sys.path[0], type(taker).__name__)
"""


def where_found() -> Callable[[], str]:
    def question() -> str:  # goes there as it is
        import os
        from importlib.util import find_spec
        from pathlib import Path

        specs = [spec for name in ("unerring", "xxhash") if (spec := find_spec(name)) is not None]
        origins = [Path(str(spec.origin)).parent for spec in specs]
        here = [path.name for path in origins if path.parent == Path(os.getcwd())]
        return " ".join([*here, *sorted(os.listdir("."))])

    return question


def test_a_server_that_cannot_be_sent_what_it_lacks_is_told_what(fresh: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    there = connecting.Interpreter("", ("numba",), "Python 3.11 on linux-aarch64 glibc")
    monkeypatch.setattr(connecting, "_interpreter", lambda spark, looking: there)
    with pytest.raises(
        CallerError, match=r"lacks numba, and cannot be sent .* is Python 3\.11 on linux-aarch64 glibc, and"
    ):
        prepare(fresh)
    there = connecting.Interpreter("0.0.9", ("pandas", "xxhash"), connecting._platform()())
    with pytest.raises(
        CallerError, match="lacks pandas, which Spark itself needs there; install that, where PYSPARK_P"
    ):
        prepare(fresh)
    there = connecting.Interpreter("0.0.9", (), connecting._platform()())
    monkeypatch.setattr(artifacts, "send", lambda spark, missing: None)
    with pytest.raises(
        CallerError, match=r"was sent unerring \S+ and what it lacked, and still finds unerring 0\.0\.9; "
    ):
        prepare(fresh)
    monkeypatch.undo()
    monkeypatch.setattr(artifacts, "find_spec", lambda name: None)
    monkeypatch.setattr(connecting, "__version__", "99")
    with pytest.raises(CallerError, match="server lacks unerring, and so does this one, so that it cannot be sent"):
        prepare(fresh)
    fresh.conf.set(connecting.SHIP, "false")
    with pytest.raises(CallerError, match=r"has unerring \S+, and this process has unerring 99; install the same"):
        prepare(fresh)


def test_a_python_of_another_version_is_told_so(fresh: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.errors import PySparkException

    def refuse(spark: Any, question: Any) -> str:
        raise PySparkException(
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in driver: 3.11, PySpark"
        )

    monkeypatch.setattr(connecting, "asked", refuse)
    with pytest.raises(CallerError, match=r"server is 3\.12, and this one 3\.11: .* use Python 3\.12 here"):
        prepare(fresh)


def test_a_folder_that_the_server_does_not_see_is_refused(
    connected: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = connected.range(3).selectExpr("timestamp_seconds(id) AS at", "id")
    monkeypatch.setattr(connecting, "_looks_for", lambda path: lambda: "")
    with pytest.raises(CallerError, match="is a folder that the tasks of the Spark Connect server do not see; use a"):
        ingest(frame, stream="S", key="id", time="at", source="numbers", data=tmp_path)
    monkeypatch.undo()
    assert ingest(frame, stream="S", key="id", time="at", source="numbers", data=tmp_path).added == 3
    assert not list((tmp_path / "log").glob(".seen*"))


def test_no_server_is_told_within_seconds() -> None:
    with pytest.raises(
        NetworkError, match=r"there is no Spark Connect server at sc://127\.0\.0\.1:9 \(.*\); start one"
    ):
        connecting.connect("sc://127.0.0.1:9/;token=secret", {})
    with pytest.raises(ConfigError, match=r"sc:///here is not the address of a Spark Connect server; write sc://HOST"):
        connecting.connect("sc:///here", {})


def test_a_setting_of_the_server_is_refused(connect_server: ConnectServer) -> None:
    with pytest.raises(
        ConfigError, match=r"spark\.executor\.memory cannot be set in a session of Spark Connect; set it"
    ):
        connecting.connect(connect_server.url, {"spark.executor.memory": "1g"})


@pytest.mark.long
def test_a_run_that_is_killed_and_started_again_seals_what_any_other_does(
    connect_server: ConnectServer, tmp_path: Path
) -> None:
    rows, events = 40, 40 * 60
    wanted = kills.undisturbed(tmp_path / "perfect", 3, events, rows)
    level = kills.prepare(tmp_path / "killed", 3, events, rows)
    with kills.Driver(Path(level.address), connect_server.url, rows, resident=True) as driver:
        assert driver.kill_at(kills.sealed_count, 2, "driver's Python"), (tmp_path / "killed/driver.log").read_text()
    assert 2 <= kills.count_sealed(Path(level.address)) < 60
    kills.run_to_the_end(Path(level.address), connect_server.url, rows=rows, resident=True)
    assert kills.sealed_bytes(level) == wanted
