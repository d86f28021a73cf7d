"""What is said where a Spark Connect session cannot do something. That it can do the rest is shown by the tests that
run with `any_spark`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import unerring
from unerring.model import CallerError, ConfigError, NetworkError
from unerring.pipeline import connecting, ingest, parallelism, prepare

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


def test_a_server_that_lacks_something_is_told_what(fresh: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "NEEDED", ("numpy", "this_is_nowhere"))
    with pytest.raises(CallerError, match="server lacks this_is_nowhere, which rules need; install that there"):
        prepare(fresh)
    monkeypatch.setattr(connecting, "__version__", "99")
    with pytest.raises(CallerError, match=r"server has unerring \S+, and this process has unerring 99; install the"):
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
