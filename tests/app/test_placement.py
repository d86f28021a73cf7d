"""Which rules live replicas host together."""

from __future__ import annotations

import pytest

from tests.app.tree_app import Peaks, Rate, Reading, Steps
from unerring import App, event_of, fn, rule, run_on, trailing
from unerring.app.live_cluster import topology_of
from unerring.correlation import Role
from unerring.correlation.engine import Hosting
from unerring.matching.interpreter import Interpreter
from unerring.matching.outputs import Row
from unerring.model import MILLISECOND_US, TIME_MAX, ConfigError
from unerring.rules import Plan

Hottest = (
    rule("Hottest").on(Reading).window(trailing(30 * MILLISECOND_US)).on_change("top").emit(top=fn.max(Reading.celsius))
)


def test_a_node_for_each_rule_unless_the_app_says_otherwise() -> None:
    app = App("tree", rules=[Rate, Steps, Peaks, Hottest], nodes={"low": [Rate, Hottest]}, f={"Steps": 2})
    nodes = {node.name: node for node in topology_of(app, 1).nodes if node.role is Role.CORRELATION}
    assert {name: (node.inputs, node.outputs, node.f) for name, node in nodes.items()} == {
        "low": (("Reading",), ("Rate", "Hottest"), 1),
        "Steps": (("Rate",), ("Steps",), 2),
        "Peaks": (("Steps",), ("Peaks",), 1),
    }


def test_an_app_takes_in_the_rules_below_those_that_it_names() -> None:
    """Without them the top would wait for ever for a stream that nobody makes."""
    app = App("tree", rules=[Peaks])
    assert [plan.name for plan in app.plans] == ["Rate", "Steps", "Peaks"]
    assert [schema.name for schema in app.streams] == ["Reading"]
    assert [plan.name for plan in App("tree", rules=[Peaks, Rate]).plans] == ["Steps", "Peaks", "Rate"]
    upper = App("upper", rules=[Peaks], streams=[Steps.schema])
    assert [plan.name for plan in upper.plans] == ["Peaks"], "what another app makes comes in as a stream"


def test_what_cannot_be_placed_is_said_at_once() -> None:
    with pytest.raises(ConfigError, match="node low hosts Steps and what makes its input Rate"):
        App("tree", rules=[Rate, Steps], nodes={"low": [Rate, Steps]})
    with pytest.raises(ConfigError, match="node low hosts Peaks, which is not one of the app's rules"):
        App("tree", rules=[Rate, Steps], nodes={"low": [Peaks]})
    with pytest.raises(ConfigError, match="Rate is on nodes low and high; put it on one of them"):
        App("tree", rules=[Rate, Hottest], nodes={"low": [Rate], "high": [Rate, Hottest]})
    with pytest.raises(ConfigError, match="f of 'middle' is 2; there are nodes Rate"):
        App("tree", rules=[Rate], f={"middle": 2})
    with pytest.raises(ConfigError, match="start is 'now'; it can be latest or earliest"):
        App("tree", rules=[Rate], start="now")


def test_rules_of_one_node_hear_of_their_own_inputs_only() -> None:
    """A node of two rules with different inputs gives what each rule gives by itself."""
    plans: list[Plan] = [Rate.plan, Steps.plan]
    readings = [event_of(Reading(number % 2, number), 7_000 * (number + 1)) for number in range(40)]
    rates = list(run_on(Rate, readings))
    merged = sorted(
        [Row(0, event) for event in readings] + [Row(1, event) for event in rates],
        key=lambda row: (row.event.stamp.time, row.rank, row.event.stamp.ordinal),
    )
    hosting = Hosting([Interpreter(plan) for plan in plans])
    half = merged[len(merged) // 2].event.stamp.time
    fed = [
        hosting.feed([row for row in merged if row.event.stamp.time <= half], half),
        hosting.feed([row for row in merged if row.event.stamp.time > half], TIME_MAX),
    ]
    made = {name: [event for one in fed for event in one.outputs.get(name, [])] for name in ("Rate", "Steps")}
    assert made == {"Rate": rates, "Steps": run_on(Steps, rates)}
    assert made["Steps"]
