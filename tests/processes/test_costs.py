"""Learned costs: what they change of a process, and what they leave."""

from __future__ import annotations

import msgspec
import pytest

from tests.processes.test_checks import call, child, graph, receive
from unerring import Process
from unerring.model import CallerError
from unerring.processes.costs import VIEW_CHANGE, Cost, read_costs, rounded, view_change_of, with_costs
from unerring.processes.graph import Kind, Vertex


def process() -> Process:
    vertices = [
        call("a", cost=3, time_us=5),
        receive("m", time_us=6),
        Vertex("s", Kind.SLEEP, time_us=7),
        child("c", compensable=False, time_us=8),
        Vertex("j", Kind.XOR_JOIN),
        call("b", cost=9, time_us=9),
    ]
    return Process.of(graph(vertices, ">a a>m m>s s>c c>j j>b b>"), {}, {})


def test_an_action_costs_what_was_learned_of_it() -> None:
    before = process()
    learned = dict.fromkeys("amscj", (1_000, 100))
    after = with_costs(before, learned)
    expected = [msgspec.structs.replace(before.graph.by_name["a"], time_us=1_024, cost=128)]
    assert list(after.graph.vertices) == [*expected, *before.graph.vertices[1:]], "waits take as long as they do"
    never_undone = with_costs(before, {"a": (0, 0)})
    assert (never_undone.graph.by_name["a"].time_us, never_undone.graph.by_name["a"].cost) == (0, 3)
    assert with_costs(before, {}).graph == before.graph
    measured = with_costs(before, {}, 300)
    assert measured.graph.view_change_us == 512
    assert with_costs(measured, {}).graph.view_change_us == 512, "what was known stays"


@pytest.mark.parametrize(("value", "power"), [(-5, 0), (0, 0), (1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (1_025, 2_048)])
def test_what_is_learned_is_rounded_to_a_power_of_two_above(value: int, power: int) -> None:
    assert rounded(value) == power


def test_a_view_change_is_an_action_of_no_process() -> None:
    def cost(process: str, action: str, p95_us: int) -> Cost:
        return Cost(process, action, 9, 1, p95_us, 0, 0)

    others = [cost("p", VIEW_CHANGE, 3), cost("", "a", 4)]
    assert view_change_of([*others, cost("", VIEW_CHANGE, 7)]) == 7
    assert view_change_of(others) == 0
    assert read_costs(msgspec.json.encode(others)) == others
    for wrong in (b"{", b'[{"process": "p"}]', msgspec.json.encode([msgspec.to_builtins(others[0]) | {"more": 1}])):
        with pytest.raises(CallerError, match=r"invalid costs file: .*; write it with `unerring costs"):
            read_costs(wrong)
