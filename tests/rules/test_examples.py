"""The paper's own examples: the worked example of section III, situations A and B of section II."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from unerring import run_on
from unerring.model import SECOND_US
from unerring.rules import oracle
from unerring.rules.tree import QueryTree, plans_of, ranks_of

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


@pytest.fixture
def example(request: pytest.FixtureRequest) -> ModuleType:
    """An example, loaded as the module that its operator's address names."""
    name = request.param
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("example", ["worked_example"], indirect=True)
def test_the_worked_example(example: ModuleType) -> None:
    (made,) = run_on(example.C, example.EVENTS)
    assert (made.stream, made.stamp.time) == ("C", 30 * SECOND_US)
    assert made.payload == {"a_at": 25 * SECOND_US, "b_at": 30 * SECOND_US}


@pytest.mark.parametrize("example", ["factory_storage"], indirect=True)
def test_situation_a_says_when_a_rate_changes(example: ModuleType) -> None:
    made = run_on(example.ProductionRate, example.a_day())
    gears = [(e.stamp.time // SECOND_US, e.payload["parts"]) for e in made if e.payload["part"] == "gear"]
    assert gears == [(7, 1), (35, 2), (56, 3), (607, 2), (635, 1), (656, 0)]


@pytest.mark.parametrize("example", ["factory_storage"], indirect=True)
def test_situation_b_divides_the_storage(example: ModuleType) -> None:
    made = [event for event in run_on(example.StorageDivision, example.a_day()) if event.stream == "StorageDivision"]
    said = [(e.stamp.time // SECOND_US, e.payload["part"], e.payload["places"]) for e in made[:5]]
    # 10 places, one in use; then two parts share what is free; then gears are needed and axles arrive by themselves.
    assert said == [(7, "gear", 9), (14, "axle", 4), (14, "gear", 4), (35, "axle", 0), (35, "gear", 6)]
    assert [tuple(event.stamp) for event in made] == sorted({tuple(event.stamp) for event in made})


@pytest.mark.parametrize("example", ["factory_storage"], indirect=True)
def test_a_tree_stopped_anywhere_goes_on_the_same(example: ModuleType) -> None:
    plans = plans_of(example.ProductionRate, example.StorageDivision)
    events = sorted(example.a_day(), key=lambda event: event.stamp)
    expected = sorted(map(repr, oracle.run_tree(plans, events, ranks_of(plans))))
    tree, made = QueryTree(plans), []
    for event in events:
        tree.push(event)
        for name in {"Produced", "Consumed", "Stored", "Delivered", "StoragePrice"} - {event.stream}:
            tree.progress(name, event.stamp.time)
        made += tree.run()
        state = tree.snapshot()
        tree = QueryTree(plans)
        tree.restore(state)
        assert tree.snapshot() == state
    tree.end()
    assert sorted(map(repr, made + tree.run())) == expected
