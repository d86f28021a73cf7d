"""The factory of the correlation paper (section II): its events, its situations, and what is done about them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from unerring import event_of, run_on
from unerring.matching import oracle
from unerring.matching.tree import QueryTree
from unerring.model import SECOND_US, Event
from unerring.rules.tree import plans_of, ranks_of
from unerring.runtime.process_node import Embedded
from unerring.runtime.services import HttpService

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def _examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


def a_day() -> list[Event]:
    """A few minutes of one facility."""
    from factory.streams import Consumed, Delivered, Produced, StoragePrice, Stored

    here = ("South", "Stuttgart")
    records = [
        StoragePrice(*here, 700),
        Produced(*here, "gear"),
        Produced(*here, "axle"),
        Consumed(*here, "gear"),
        Stored(*here, "axle"),
        Produced(*here, "gear"),
        StoragePrice(*here, 300),
        Delivered(*here, "axle"),
        Produced(*here, "gear"),
    ]
    return [event_of(record, 7 * turn * SECOND_US) for turn, record in enumerate(records)]


def test_situation_a_says_when_a_rate_changes() -> None:
    from factory.rules import ProductionRate

    made = run_on(ProductionRate, a_day())
    gears = [(e.stamp.time // SECOND_US, e.payload["parts"]) for e in made if e.payload["part"] == "gear"]
    assert gears == [(7, 1), (35, 2), (56, 3), (607, 2), (635, 1), (656, 0)]


def test_situation_b_divides_the_storage() -> None:
    from factory.rules import StorageDivision

    made = [event for event in run_on(StorageDivision, a_day()) if event.stream == "StorageDivision"]
    said = [(e.stamp.time // SECOND_US, e.payload["part"], e.payload["places"]) for e in made[:5]]
    # 10 places, one in use; then two parts share what is free; then gears are needed and axles arrive by themselves.
    assert said == [(7, "gear", 9), (14, "axle", 4), (14, "gear", 4), (35, "axle", 0), (35, "gear", 6)]
    assert [tuple(event.stamp) for event in made] == sorted({tuple(event.stamp) for event in made})


def test_a_region_sees_the_sums_of_its_facilities() -> None:
    from factory.rules import RegionDivision

    made = [e.payload for e in run_on(RegionDivision, a_day()) if e.stream == "RegionDivision"]
    assert made[:3] == [
        {"region": "South", "part": "gear", "places": 9},
        {"region": "South", "part": "axle", "places": 4},
        {"region": "South", "part": "gear", "places": 4},
    ]


def test_a_part_without_a_place_for_five_minutes_is_a_shortage() -> None:
    from factory.rules import Shortage

    # Axles have no place from 35 s on, and get none before their last one has left the window.
    made = [e for e in run_on(Shortage, a_day()) if e.stream == "Shortage"]
    assert [(e.stamp.time // SECOND_US, e.payload["part"], e.payload["since"] // SECOND_US) for e in made][:1] == [
        (335, "axle", 35)
    ]


def test_a_tree_stopped_anywhere_goes_on_the_same() -> None:
    from factory.rules import ProductionRate, StorageDivision

    plans = plans_of(ProductionRate, StorageDivision)
    events = a_day()
    expected = sorted(map(repr, oracle.run_tree(plans, events, ranks_of(plans))))
    tree, made = QueryTree(plans), []
    for event in events:
        tree.push(event)
        for name in {"Produced", "Consumed", "Stored", "Delivered", "StoragePrice"} - {event.stream}:
            tree.advance(name, event.stamp.time)
        made += tree.run()
        state = tree.snapshot()
        tree = QueryTree(plans)
        tree.restore(state)
        assert tree.snapshot() == state
    tree.end()
    assert sorted(map(repr, made + tree.run())) == expected


def test_a_seed_is_a_plant_with_every_kind_of_event_and_situation() -> None:
    from factory.plant import Plant
    from factory.rules import RULES

    events = list(Plant(seed=3).events(2_500))
    assert events == list(Plant(seed=3).events(2_500))
    assert events != list(Plant(seed=4).events(2_500))
    for stream in {event.stream for event in events}:
        mine = [event.stamp.time for event in events if event.stream == stream]
        assert all(one < other for one, other in pairwise(mine))
    made = Counter(event.stream for event in run_on(list(RULES), events))
    assert set(made) == {rule.name for rule in RULES}
    assert made["StorageDivision"] > 150


@pytest.fixture
def services(tmp_path: Path) -> Iterator[str]:
    """The address of the factory's services, in a process of their own."""
    command = [sys.executable, "-m", "factory.services", str(tmp_path / "services")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(EXAMPLES), *sys.path])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as serving:
        assert serving.stdout is not None
        yield serving.stdout.readline().strip()
        serving.terminate()


def test_what_is_done_about_situations_is_done_once(services: str, tmp_path: Path) -> None:
    from factory.processes import PROCESSES
    from factory.services import OPERATIONS, journal

    async def scenario() -> dict[str, Any]:
        clients = {name: HttpService(f"{services}/{name}") for name in OPERATIONS}
        async with Embedded(PROCESSES, tmp_path / "engine.db", clients) as engine:
            results = [
                await engine.run("relieve", f"shortage-{facility}", facility=facility, part="gear")
                for facility in ("F", "F.1", "F.2", "F.1.1")
            ]
            again = await engine.run("relieve", "shortage-F", facility="F", part="gear")
            assert again == results[0]
            mended = await engine.run("repair", "standstill-F.1", facility="F.1", part="axle")
            return {"relieved": results, "mended": mended}

    told = asyncio.run(scenario())
    did = {name: journal(tmp_path / "services", name) for name in OPERATIONS}
    rented, trucks = (
        [e for e in did["storage"] if e.operation == "rent"],
        [e for e in did["trucks"] if e.operation == "book"],
    )
    cheap = [result for result in told["relieved"] if result["offer"] < 500]
    assert len(rented) == len(cheap)
    assert len(rented) + len(trucks) == len(told["relieved"])
    assert Counter(e.operation for e in did["notes"]) == {"tell_management": 4, "tell_customers": 1}
    assert told["mended"]["truck"].startswith("send_fitters ")
    assert not any(effect.undone for effects in did.values() for effect in effects)
