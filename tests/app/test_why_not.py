"""Why not, asked of a run's log: on the command line, and as a document."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.dashboard.plant import EXAMPLES, ended_run
from unerring import App
from unerring.app import Why, WhyNot
from unerring.cli import main
from unerring.model import CallerError, Event


@pytest.fixture(scope="module")
def factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, App, list[Event]]]:
    sys.path.insert(0, str(EXAMPLES))
    from factory.app import app
    from factory.plant import Plant

    data = tmp_path_factory.mktemp("asked") / "run"
    made = ended_run(data, app, list(Plant(seed=3).events(600)))
    yield data, app, made
    sys.path.remove(str(EXAMPLES))


def test_every_situation_is_said_to_be_found_at_its_time(factory: tuple[Path, App, list[Event]]) -> None:
    data, app, made = factory
    asked = WhyNot(app, data)
    streams: dict[str, int] = {}
    for event in made:
        _, plan = asked.past.rule(event.stream)
        if len(plan.inputs[0].key) == len(event.key) and streams.setdefault(event.stream, 0) < 5:
            streams[event.stream] += 1
            answer = asked(event.stream, [str(value) for value in event.key], event.stamp.time)
            if answer["complete"]:
                assert event.stamp.time in [one["time_us"] for one in answer["found"]], (event, answer["note"])
    assert len(streams) >= 3


def test_just_before_a_situation_it_is_open_or_missed(factory: tuple[Path, App, list[Event]]) -> None:
    data, app, made = factory
    still = [event for event in made if event.stream == "Standstill"]
    assert still
    why = Why(app, data)("Standstill", still[0].stamp)
    assert why["complete"]
    answer = WhyNot(app, data)("Standstill", [str(value) for value in still[0].key], still[0].stamp.time - 1)
    assert still[0].stamp.time not in [one["time_us"] for one in answer["found"]]
    assert answer["attempts"]


def test_the_command_line_says_the_same(
    factory: tuple[Path, App, list[Event]], capsys: pytest.CaptureFixture[str]
) -> None:
    data, _, made = factory
    still = next(event for event in made if event.stream == "Standstill")
    keys = [text for value in still.key for text in ("--key", str(value))]
    given = ["why-not", str(data), "Standstill", *keys, "--at", str(still.stamp.time)]
    with pytest.raises(SystemExit) as ended:
        main([*given, "--json"])
    assert ended.value.code == 0
    answer = msgspec.json.decode(capsys.readouterr().out)
    assert answer["found"][0]["time_us"] == still.stamp.time
    with pytest.raises(SystemExit):
        main(given)
    assert "found: " in capsys.readouterr().out


def test_a_wrong_rule_or_key_is_a_sentence(factory: tuple[Path, App, list[Event]]) -> None:
    data, app, _ = factory
    asked = WhyNot(app, data)
    with pytest.raises(CallerError, match="has no rule 'Nothing'; it has "):
        asked("Nothing", ["1"], 0)
    with pytest.raises(CallerError, match="is facility and part; 1 values were given"):
        asked("Standstill", ["1"], 0)
