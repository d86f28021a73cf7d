"""Sinks as a part of a run, in status and metrics, and by their own command."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.app import sink_app
from unerring.app import App, RunStatus, Sink, place_of, prometheus, sink_deliveries
from unerring.app.delivering import Delivering
from unerring.app.folder import remember
from unerring.app.metrics import Metrics
from unerring.app.parts import Parts
from unerring.app.place import Place
from unerring.cli import main
from unerring.log import KEYS_VARIABLE, Chain, Positions, new_ring, with_origin
from unerring.model import CallerError, ConfigError, StreamSchema, WorldError

RATE: StreamSchema = sink_app.app.outputs[0]
PATIENCE_S = 60


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    where = str(tmp_path / "lake")
    monkeypatch.setenv("RATE_TO", f"delta:{where}")
    return where


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / "run").mkdir()
    found = place_of(tmp_path / "run")
    remember(found, "tests.app.sink_app:app")
    return found


@pytest.fixture
def app(lake: str) -> App:
    return App("tree", rules=[sink_app.Rate], streams=[sink_app.Reading], buckets=1).deliver(
        "Rate", to=f"delta:{lake}", name="rates", every="10ms"
    )


def test_a_sink_gets_secret_values_only_if_the_app_says_so(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_ring(tmp_path / "ring")
    monkeypatch.setenv(KEYS_VARIABLE, str(tmp_path / "ring"))
    schema = msgspec.structs.replace(RATE, name="Hidden", secret=("n",))
    chain = place.log.create(schema, 1)
    chain.seal(9, with_origin(pa.table({"time": [5], "ordinal": [0], "machine": [1], "n": [7]}), schema))
    for secrets, wanted in ((False, [None]), (True, [7])):
        sink = Sink(f"sink{secrets}", "Hidden", f"delta:{tmp_path / str(secrets)}", secrets=secrets)
        [work] = sink_deliveries(place, [sink], None, lambda text: None)
        work.run(threading.Event(), follow=False)
        assert DeltaTable(str(tmp_path / str(secrets))).to_pyarrow_table().column("n").to_pylist() == wanted
        other = msgspec.structs.replace(sink, secrets=not secrets)
        with pytest.raises(ConfigError, match="give the new one another name"):
            sink_deliveries(place, [other], None, lambda text: None)


def seal(place: Place, times: list[int]) -> Chain:
    chain = place.log.create(RATE, 1)
    columns = {
        "time": pa.array(times, pa.int64()),
        "ordinal": pa.array([0] * len(times), pa.int64()),
        "machine": pa.array([7] * len(times), pa.int64()),
        "n": pa.array(times, pa.int64()),
    }
    chain.seal(times[-1], with_origin(pa.table(columns), RATE))
    return chain


def numbers(lake: str) -> list[int]:
    return sorted(DeltaTable(lake).to_pyarrow_table().column("n").to_pylist())


def until_held(lake: str, wanted: list[int]) -> None:
    waiting = threading.Event()
    for _ in range(PATIENCE_S * 20):
        if Path(lake, "_delta_log").is_dir() and numbers(lake) == wanted:
            return
        waiting.wait(0.05)
    assert numbers(lake) == wanted


def test_a_run_delivers_its_past_and_what_follows_and_shows_it(place: Place, app: App, lake: str) -> None:
    seal(place, [1, 2, 3])
    metrics, said = Metrics(), []
    part = Delivering(app, place, Parts(place.scratch), metrics, print)
    part.start(said.append)
    try:
        until_held(lake, [1, 2, 3])
        seal(place, [4, 9])
        until_held(lake, [1, 2, 3, 4, 9])
        part.check()
        document = RunStatus(place).look()
    finally:
        part.stop()
    part.check()
    assert said == ["delivering to rates"]
    [sink] = document["sinks"]
    assert (sink["name"], sink["stream"], sink["to"]) == ("rates", "Rate", f"delta:{lake}")
    assert sink["state"] == "delivering"
    [sink] = RunStatus(place).look()["sinks"]
    assert (sink["delivered"], sink["waiting"], sink["lag_us"], sink["position"][0]) == (5, 0, 0, 9)
    assert Positions(place.log.store, "Rate").get("sink-rates").time == 9
    for text in (metrics.text(), prometheus(document)):
        assert 'unerring_sink_up{sink="rates",stream="Rate"} 1' in text
        assert 'unerring_sink_lag_seconds{sink="rates",stream="Rate"} 0' in text


def test_a_sink_that_cannot_go_on_does_not_end_the_run(place: Place, app: App, lake: str) -> None:
    DeltaTable.create(lake, pa.schema([("n", pa.string())]))
    seal(place, [1])
    heard = threading.Event()
    parts = Parts(place.scratch)
    part = Delivering(app, place, parts, Metrics(), lambda text: heard.set())
    part.start(print)
    assert heard.wait(PATIENCE_S)
    part.check()
    parts.check()
    part.stop()
    [sink] = RunStatus(place).look()["sinks"]
    assert sink["state"] == "stopped"
    assert "has no column 'time'" in sink["why"]
    assert any("sink rates is stopped" in note for note in RunStatus(place).look()["run"]["notes"])


def test_the_command_delivers_rewinds_and_forgets(
    place: Place, lake: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_app.app, "sinks", [Sink("rates", "Rate", f"delta:{lake}")])
    seal(place, [1, 2, 3])
    main_of("deliver", place.address)
    assert capsys.readouterr().out == f"rates: 3 events of Rate delivered to delta:{lake}\n"
    main_of("deliver", place.address, "--json")
    assert json.loads(capsys.readouterr().out)["delivered"] == 0
    main_of("deliver", place.address, "--name", "rates", "--rewind", "1")
    assert capsys.readouterr().out.splitlines() == [
        f"delta:{lake} is as it was at 1; what is after that is delivered again",
        f"rates: 2 events of Rate delivered to delta:{lake}",
    ]
    assert numbers(lake) == [1, 2, 3]
    main_of("deliver", place.address, "--stream", "Rate", "--to", f"delta:{lake}2", "--name", "second")
    assert numbers(f"{lake}2") == [1, 2, 3]
    main_of("deliver", place.address, "--forget", "second")
    assert list(Positions(place.log.store, "Rate").all()) == ["sink-rates"]


def main_of(*arguments: str) -> None:
    with pytest.raises(SystemExit) as end:
        main(list(arguments))
    assert end.value.code in (0, None)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--stream", "Rate"], "--stream and --to go together"),
        (["--stream", "Rate", "--to", "ftp://x"], "is not the address of a target"),
        (["--stream", "Rats", "--to", "delta:/x"], "there is no stream 'Rats'"),
        (["--name", "none"], "has no sink 'none'; it has rates"),
        (["--forget", "none"], "has no sink 'none'"),
        (["--stream", "Rate", "--to", "delta:/x", "--name", "a/b"], "use letters, digits"),
    ],
)
def test_mistakes_of_the_command_are_sentences(
    place: Place, arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    seal(place, [1])
    with pytest.raises(SystemExit) as end:
        main(["deliver", place.address, *arguments])
    assert end.value.code == 2
    assert sentence in capsys.readouterr().err


def test_mistakes_of_a_declaration_are_sentences(app: App) -> None:
    with pytest.raises(ConfigError, match="there is a sink 'rates' already"):
        app.deliver("Rate", to="delta:/x", name="rates")
    with pytest.raises(CallerError, match="has no situation 'Rats'"):
        app.deliver("Rats", to="delta:/x")
    with pytest.raises(ConfigError, match="is not the address of a target"):
        app.deliver("Rate", to="/x")
    with pytest.raises(ConfigError, match="rows_max"):
        app.deliver("Rate", to="delta:/x", rows=-1)


def test_a_name_stands_for_one_stream_and_one_target(place: Place) -> None:
    seal(place, [1])
    sink_deliveries(place, [Sink("rates", "Rate", "delta:/x")], None, print)
    with pytest.raises(ConfigError, match="delivers Rate to delta:/x, not Rate to delta:/y"):
        sink_deliveries(place, [Sink("rates", "Rate", "delta:/y")], None, print)


def test_what_no_sink_expects_restarts_it(place: Place, app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    seal(place, [1])
    seen: list[str] = []

    def broken(*_: object) -> None:
        raise RuntimeError("a library broke")

    monkeypatch.setattr("unerring.app.delivering.open_target", broken)
    heard = threading.Event()
    parts = Parts(place.scratch, lambda text: (seen.append(text), heard.set()))
    part = Delivering(app, place, parts, Metrics(), print)
    part.start(print)
    assert heard.wait(PATIENCE_S)
    part.stop()
    assert "sink rates failed and is started again" in seen[0]
    assert "a library broke" in seen[0]
    assert not isinstance(parts.error, WorldError)
