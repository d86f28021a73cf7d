"""A run at a moment, and with one thing different: held to a recomputation of the whole run."""

from __future__ import annotations

import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.dashboard import judged
from tests.dashboard.plant import EXAMPLES, ended_run
from unerring import App, run_on
from unerring.app import Past, RunStatus, Travel, WhatIf
from unerring.app.status import timeline as held
from unerring.cli import main
from unerring.model import CallerError, Event
from unerring.runtime import lines, timeline
from unerring.runtime.timeline import Entry, What

Factory = tuple[Path, App, list[Event], list[Event]]


@pytest.fixture(scope="module")
def factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Factory]:
    sys.path.insert(0, str(EXAMPLES))
    from factory.app import app
    from factory.plant import Plant

    data = tmp_path_factory.mktemp("travelled") / "run"
    events = list(Plant(seed=3).events(600))
    made = ended_run(data, app, events)
    judged.leave(data, made)
    yield data, app, events, made
    sys.path.remove(str(EXAMPLES))


def counted(events: list[Event]) -> Counter[tuple[str, int, bytes]]:
    return Counter((e.stream, e.stamp.time, msgspec.msgpack.encode(e.payload)) for e in events)


def told(answer: dict[str, Any], side: str) -> int:
    return sum(len(rule[f"{side}_events"]) for rule in answer["rules"])


@pytest.mark.parametrize("number", [5, 150, 311, 480])
def test_without_an_event_exactly_what_a_run_without_it_lacks(factory: Factory, number: int) -> None:
    from factory.rules import RULES

    data, app, events, _ = factory
    tried = WhatIf(Past(app, data))
    through_us = tried.past.last_us()
    before = counted(run_on(list(RULES), events, through_us))
    after = counted(run_on(list(RULES), [e for n, e in enumerate(events) if n != number], through_us))
    answer = tried.without(events[number].stream, events[number].stamp)
    assert not answer["notes"]
    assert answer["gone"] == (before - after).total()
    assert answer["come"] == (after - before).total()


def test_with_another_value_or_one_more_event(factory: Factory) -> None:
    from factory.rules import RULES

    data, app, events, _ = factory
    tried = WhatIf(Past(app, data))
    through_us = tried.past.last_us()
    before = counted(run_on(list(RULES), events, through_us))
    at = next(n for n, e in enumerate(events) if n > 200 and any(type(v) is int for v in e.payload.values()))
    was = events[at]
    column = next(name for name, value in was.payload.items() if type(value) is int)
    other = msgspec.structs.replace(was, payload={**was.payload, column: was.payload[column] + 50})
    after = counted(run_on(list(RULES), [other if n == at else e for n, e in enumerate(events)], through_us))
    answer = tried.with_values(was.stream, was.stamp, {column: str(other.payload[column])})
    assert (answer["gone"], answer["come"]) == ((before - after).total(), (after - before).total())
    values = {name: str(value) for name, value in was.payload.items() if value is not None}
    more = tried.with_event(was.stream, was.stamp.time + 1, values)
    one_more = Event(was.stream, type(was.stamp)(was.stamp.time + 1, 1 << 40), was.key, was.payload)
    grown = counted(run_on(list(RULES), [*events, one_more], through_us))
    assert (more["gone"], more["come"]) == ((before - grown).total(), (grown - before).total())
    with pytest.raises(CallerError, match="has no column 'nothing'"):
        tried.with_values(was.stream, was.stamp, {"nothing": "1"})


def test_every_number_can_be_turned_and_the_same_number_changes_nothing(factory: Factory) -> None:
    data, app, _, _ = factory
    tried = WhatIf(Past(app, data))
    turned = 0
    for rule in tried.past.levels:
        for number in tried.numbers(rule):
            answer = tried.with_number(rule, number.name, number.value)
            assert (answer["gone"], answer["come"]) == (0, 0), (rule, number)
            turned += 1
    assert turned >= 3
    with pytest.raises(CallerError, match="has no rule"):
        tried.numbers("Nothing")


def test_another_number_gives_what_the_changed_rule_finds(factory: Factory) -> None:
    from unerring.matching import oracle
    from unerring.rules import with_number

    data, app, events, made = factory
    tried = WhatIf(Past(app, data))
    level, plan = tried.past.rule("Standstill")
    number = next(one for one in tried.numbers("Standstill") if one.duration)
    names = {source.schema.name for source in plan.inputs}
    rows = [event for event in (*events, *made) if event.stream in names]
    through_us, differs = tried.past.last_us(), 0
    for value in (number.value // 4, number.value // 2, number.value * 2):
        new = with_number(plan, number.name, value)
        before, after = (counted(oracle.run(one, rows, dict(level.ranks), through_us)) for one in (plan, new))
        answer = tried.with_number("Standstill", number.name, value)
        own = next(rule for rule in answer["rules"] if rule["stream"] == "Standstill")
        assert (own["gone"], own["come"]) == ((before - after).total(), (after - before).total())
        differs += own["gone"] + own["come"]
    assert differs


def test_at_a_moment_only_what_was_there_then(factory: Factory) -> None:
    data, _, events, made = factory
    travel = Travel(RunStatus(data))
    at_us = events[300].stamp.time
    document = travel.at(at_us)
    for stream in document["streams"]:
        there = [e for e in (*events, *made) if e.stream == stream["stream"] and e.stamp.time <= at_us]
        assert stream["events"] == len(there), stream
    for rule in document["rules"]:
        last = rule["last"]
        assert last is None or last["time_us"] <= at_us
        for one in rule["by_key"]:
            for match in one["matches"]:
                assert all(event["time_us"] <= at_us for event in match["bound"])
                assert match["until_us"] is None or match["until_us"] > at_us
    assert any(rule["open"] for rule in document["rules"])


def test_steps_go_through_every_event_and_back(factory: Factory) -> None:
    data, _, events, made = factory
    travel = Travel(RunStatus(data))
    times = sorted({event.stamp.time for event in (*events, *made)})
    at_us = times[40]
    for expected in times[41:46]:
        step = travel.at(at_us, rule="Standstill")["steps"]["next_event"]
        assert step is not None
        at_us = step["time_us"]
        assert at_us == expected
    back = travel.at(at_us, rule="Standstill")["steps"]["previous_event"]
    assert back is not None
    assert back["time_us"] == times[44]


def test_who_led_and_how_far_instances_were(tmp_path: Path, factory: Factory) -> None:
    data, *_ = factory
    status = RunStatus(data)
    first = time.time_ns() // 1000
    for n, (who, what) in enumerate(
        [("n/1", What.STARTED), ("n/2", What.STARTED), ("n/1", What.LEADS), ("n/1", What.DIED), ("n/2", What.LEADS)]
    ):
        lines.append(data / timeline.FILE, Entry(first + n * 1000, who, what))
    travel = Travel(status)

    def states(wall_us: int) -> dict[str, str]:
        parts = travel.at(None, wall_us, "Standstill")["replicas"]
        return {p["who"]: "leads" if p["leads"] else "up" if p["up"] else "down" for p in parts if "n/" in p["who"]}

    assert states(first + 1500) == {"n/1": "up", "n/2": "up"}
    assert states(first + 2500) == {"n/1": "leads", "n/2": "up"}
    assert states(first + 4500) == {"n/1": "down", "n/2": "leads"}
    decision = travel.at(None, first + 2500, "Standstill")["steps"]["next_decision"]
    assert decision is not None
    assert (decision["who"], decision["what"]) == ("n/1", What.DIED)
    every = travel.at(None, first + 10**13, "Standstill")["instances"]
    assert every["count"] == 2
    none = travel.at(None, 1, "Standstill")["instances"]
    assert none["count"] == 0


def test_a_moment_before_what_the_timeline_holds_says_so(
    factory: Factory, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "copy"
    shutil.copytree(factory[0], data)
    monkeypatch.setattr(held, "HELD_MAX", 4)
    (data / timeline.FILE).unlink(missing_ok=True)
    for n, what in enumerate([What.STARTED, What.DIED, What.STARTED, *[What.VOTE] * 5]):
        lines.append(data / timeline.FILE, Entry(10**15 + n * 10**6, "n/1", what))
    status = RunStatus(data)
    status.timeline.look()
    kept = [one.at_us for one in status.timeline.all if one.who == "n/1"]
    assert kept == [10**15 + n * 10**6 for n in (1, 7)], "a failure, and the last ones with the run's"
    travel = Travel(status)
    assert travel.at(None, 10**15 + 6 * 10**6, "Standstill")["timeline_from_us"] == 10**15 + 7 * 10**6
    assert travel.at(None, 10**15 + 7 * 10**6, "Standstill")["timeline_from_us"] is None
    with pytest.raises(SystemExit):
        main(["at", str(data), "--wall", "2001-09-09T01:46:44Z", "--rule", "Standstill"])
    assert "the timeline that is held begins at 2001-09-09 01:46:47" in capsys.readouterr().out


def test_the_command_line(factory: Factory, capsys: pytest.CaptureFixture[str]) -> None:
    data, _, events, _ = factory

    def said(*given: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(list(given))
        out = capsys.readouterr()
        assert ended.value.code == 0, out.err
        return out.out

    at = str(events[300].stamp.time)
    assert msgspec.json.decode(said("at", str(data), at, "--json"))["at_us"] == events[300].stamp.time
    assert "rules" in said("at", str(data), at)
    numbers = said("what-if", str(data), "--numbers", "Standstill")
    name = numbers.split("=")[0]
    assert name.startswith("Standstill:")
    event = f"{events[5].stream}@{events[5].stamp.time}#{events[5].stamp.ordinal}"
    assert said("what-if", str(data), "--drop", event)
    assert said("what-if", str(data), "--set", numbers.split()[0]).startswith("no situation comes or goes\n")
    with pytest.raises(SystemExit) as ended:
        main(["what-if", str(data)])
    assert ended.value.code == 2
    assert "give one of --drop" in capsys.readouterr().err


def test_the_page_asks_the_same(factory: Factory) -> None:
    import httpx

    from tests.dashboard.serving import serving

    data, _, events, _ = factory
    with serving(data) as address, httpx.Client(base_url=address) as client:
        rules = client.get("/api/rules").json()["rules"]
        assert {"rule", "level", "key", "numbers"} <= set(rules[0])
        at_us = events[300].stamp.time
        assert client.get("/api/at", params={"at_us": at_us, "rule": "Standstill"}).json()["at_us"] == at_us
        stamp = {"stream": events[5].stream, "time_us": events[5].stamp.time, "ordinal": events[5].stamp.ordinal}
        tried = client.get("/api/what-if", params=stamp).json()
        assert tried["gone"] == WhatIf(Past(factory[1], data)).without(events[5].stream, events[5].stamp)["gone"]
        refused = client.get("/api/what-if", params={**stamp, "do": "eat"})
        assert (refused.status_code, "dropped, changed or added" in refused.json()["error"]) == (400, True)
