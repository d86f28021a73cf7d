"""The status document: one reader of a run's folder, for scripts, the terminal and the page."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from tests.dashboard.plant import EXAMPLES, ended_run
from unerring.app import batches
from unerring.app.folder import FILE, Remembered, remember
from unerring.app.status import RunStatus, timeline as entries
from unerring.app.why import Why
from unerring.log import EventLog, LogWriter
from unerring.model import TIME_MAX, CallerError, Event, protect_line, schema_of, verified_line
from unerring.runtime import lines, timeline
from unerring.runtime.timeline import Timeline, What


@pytest.fixture(autouse=True)
def _examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


@pytest.fixture
def run(tmp_path: Path) -> tuple[Path, list[Event]]:
    from factory.app import app
    from factory.plant import Plant

    return tmp_path / "run", ended_run(tmp_path / "run", app, list(Plant(seed=3).events(1_500)))


def test_a_run_that_has_ended_is_told_from_its_folder(run: tuple[Path, list[Event]]) -> None:
    data, made = run
    told = RunStatus(data).look()
    counts = Counter(event.stream for event in made)
    assert told["run"]["state"] == "ended"
    assert told["run"]["name"] == "factory"
    assert told["situations"]["total"] == len(made)
    assert {name: count for name, count in told["situations"]["by_stream"].items() if count} == dict(counts)
    assert sum(one["events"] for one in told["streams"].values() if one["kind"] == "primary") == 1_500
    assert [one["what"] for one in told["timeline"]["last"]] == ["started", "ended"]
    rules = {node["name"]: node["level"] for node in told["tree"]["nodes"] if node["role"] == "rule"}
    assert rules["Shortage"] > rules["StorageDivision"] > rules["Need"] == 1
    assert {"situation": "Shortage", "process": "relieve"} in told["tree"]["reactions"]
    assert msgspec.json.decode(msgspec.json.encode(told)) == told


def test_why_names_the_events_that_a_situation_is_made_of(run: tuple[Path, list[Event]]) -> None:
    from factory.app import app

    data, made = run
    why = Why(app, data)
    still = next(event for event in made if event.stream == "Standstill")
    answer = why(still.stream, still.stamp)
    assert answer["complete"]
    assert [event["time_us"] for event in answer["made_of"]] == [still.payload["since"]]
    rate = [event for event in made if event.stream == "ProductionRate"][60]
    answer = why(rate.stream, rate.stamp)
    assert answer["complete"]
    assert answer["count"] == rate.payload["parts"], "a window's rate counts what was in it"
    short = next(event for event in made if event.stream == "Shortage")
    (refused,) = why(short.stream, short.stamp)["made_of"]
    assert refused["stream"] == "StorageDivision"
    assert refused["is_situation"], "so that one can ask on"
    places = next(event for event in made if event.stream == "StorageDivision")
    answer = why(places.stream, places.stamp)
    assert not answer["complete"], "an operator remembers more than a few events"
    assert answer["made_of"][-1]["time_us"] == places.stamp.time, "the last one decided"
    assert {event["payload"]["facility"] for event in answer["made_of"]} == {places.payload["facility"]}


def test_what_is_no_run_or_of_another_release_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(CallerError, match="there is no folder"):
        RunStatus(tmp_path / "nowhere")
    with pytest.raises(CallerError, match="is not a run's folder"):
        RunStatus(tmp_path)
    (tmp_path / "demo" / "spark" / "log").mkdir(parents=True)
    with pytest.raises(CallerError, match="give the one of a run in it: spark"):
        RunStatus(tmp_path / "demo")
    (tmp_path / "log").mkdir()
    (tmp_path / FILE).write_bytes(msgspec.json.encode(Remembered("factory.app:app", "9.1.0", format=7)))
    with pytest.raises(CallerError, match=r"was written by release 9\.1\.0 in format 7"):
        RunStatus(tmp_path)


def test_a_level_is_as_far_behind_as_it_is_now(tmp_path: Path) -> None:
    """Not only as far as its last batch found it: its inputs go on."""
    from factory.plant import Plant
    from factory.streams import Produced

    writer = LogWriter(EventLog(tmp_path / "log"), schema_of(Produced), buckets=1)
    made = [event for event in Plant(seed=3).events(400) if event.stream == "Produced"]
    for number, event in enumerate(made):
        writer.append("plant", (1, number + 1), event.stamp, dict(event.payload), 0)
    writer.advance(made[-1].stamp.time, 0)
    writer.seal()
    remember(tmp_path, "factory.app:app")
    through_us = made[-1].stamp.time - 7_000_000
    batches.note(tmp_path, batches.Batch(1, "spark", 1, ("Standstill",), 0, 1.0, 9, {}, through_us, 0.0, 3))
    (level,) = RunStatus(tmp_path).look()["spark"]["levels"]
    assert level["lag_s"] == 7.0
    chain = EventLog(tmp_path / "log").chain("Produced")
    assert batches.reached_us(chain, through_us) == made[-1].stamp.time
    writer.end(0)
    writer.seal()
    assert batches.reached_us(chain, through_us) == made[-1].stamp.time, "not the end of all times"
    assert batches.reached_us(chain, TIME_MAX) == TIME_MAX


def test_an_app_that_cannot_be_loaded_leaves_the_rest_to_see(run: tuple[Path, list[Event]]) -> None:
    data, made = run
    (data / FILE).write_bytes(msgspec.json.encode(Remembered("nowhere.to:be_found")))
    told = RunStatus(data).look()
    assert "there is no module 'nowhere.to' in" in told["run"]["notes"][0]
    assert told["streams"]["Shortage"]["events"] == sum(event.stream == "Shortage" for event in made)


def test_the_timeline_is_appended_by_many_and_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "BYTES_MAX", 4_000)
    reader = Timeline(tmp_path)
    program = "import sys; from pathlib import Path; from unerring.runtime import timeline\n"
    program += "for n in range(200): timeline.note(Path(sys.argv[1]), sys.argv[2], 'died', str(n))"
    many = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path), who]) for who in ("a", "b", "c")]
    assert [one.wait(600) for one in many] == [0, 0, 0]
    assert Counter(one.who for one in reader.added()) == {"a": 200, "b": 200, "c": 200}
    for number in range(200):
        timeline.note(tmp_path, "d", What.DIED, str(number))
    assert (tmp_path / timeline.FILE).stat().st_size < 5_000
    assert len([one for one in Timeline(tmp_path).added() if one.who == "d"]) < 200, "the oldest are gone"
    with (tmp_path / timeline.FILE).open("ab") as file:
        file.write(b'{"half a li')
    assert reader.added()[-1].said == "199"


def test_what_happened_is_counted_whole_and_held_within_bounds(
    tmp_path: Path, run: tuple[Path, list[Event]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entries, "HELD_MAX", 50)
    data = run[0]
    status = RunStatus(data)
    for number in range(120):
        if number % 2 == 0:
            timeline.note(data, "r/0", What.LEADS, str(number))
        if number % 10 == 0:
            status.look()
    told = status.look()["timeline"]
    assert told["counts"] == {"started": 1, "ended": 1, "leads": 60}
    assert told["count"] == 62
    assert [one.said for one in status.timeline.all] == [str(number) for number in range(20, 120, 2)]
    timeline.note_start(data, "spark", "again")
    assert status.look()["timeline"]["counts"].get("died") is None, "it had ended"
    timeline.note_start(data, "spark", "and again")
    assert status.look()["timeline"]["counts"]["died"] == 1, "nobody saw it end"


def test_a_file_that_was_turned_twice_is_not_taken_for_the_first(tmp_path: Path) -> None:
    """The number of a file that is gone is given to the next one, which may be shorter than what was read."""
    path = tmp_path / timeline.FILE
    timeline.note(tmp_path, "a", What.DIED, "long " * 99)
    kept = path.stat().st_ino
    reader = Timeline(tmp_path)
    assert len(reader.added()) == 1
    line = verified_line(path.read_bytes().rstrip(), "").replace(b"long ", b"").replace(b'"at_us":1', b'"at_us":2')
    path.write_bytes(protect_line(line) + b"\n")  # in place: the same number, another file
    assert path.stat().st_ino == kept
    assert [one.said for one in reader.added()] == [""]


def test_a_reader_loses_nothing_when_the_file_is_turned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "BYTES_MAX", 4_000)
    reader = Timeline(tmp_path)
    found = []
    for number in range(400):
        timeline.note(tmp_path, "d", What.DIED, str(number))
        if number % 7 == 0:
            found += reader.added()
    assert [one.said for one in found + reader.added()] == [str(number) for number in range(400)]
