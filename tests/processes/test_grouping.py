"""Grouping by the paper's two rules (section V-B), and what must hold beyond them."""

from __future__ import annotations

from itertools import combinations, pairwise
from random import Random

import msgspec
import pytest
from hypothesis import example, given, settings, strategies as st

from tests.processes.orders import order_process
from unerring import Process
from unerring.model import ProcessError
from unerring.processes.costs import with_costs
from unerring.processes.drawing import draw
from unerring.processes.explain import explain, groups_of, process_text
from unerring.processes.graph import Cut, Edge, Graph, Kind, Service, Vertex
from unerring.processes.grouping import Grouping, group_at, possible_at
from unerring.processes.partition import best_ends, lost
from unerring.simulation.process_architect import Architect

SLOW = Grouping(failover_us=10_000_000, view_change_us=100_000)
TIGHT = Grouping(failover_us=125_000, view_change_us=100_000)


def _told(grouping: Grouping) -> list[tuple[str, list[str]]]:
    return [(group["mode"], group["actions"]) for group in explain(order_process(), grouping)["groups"]]


def test_a_generous_threshold_gives_large_groups() -> None:
    assert _told(SLOW) == [
        ("active, then passive", ["quote", "reserve", "inspect", "bill", "print_label"]),
        ("announcement", []),
        ("passive", ["dispatch"]),
    ]


def test_a_tight_threshold_ends_groups_early() -> None:
    """Rule 2: t_v + Σ t(v) ≤ t_f. `bill` alone is over it, and still executed, alone."""
    groups = explain(order_process(), TIGHT)["groups"]
    for group in groups:
        costly = [name for name in group["actions"] if name not in group.get("active", [])]
        assert group["failover_us"] <= TIGHT.failover_us or len(costly) == 1
    assert any(group.get("over") for group in groups)


def test_each_action_alone() -> None:
    groups = _told(Grouping(each_alone=True))
    assert all(len(actions) <= 1 for _, actions in groups)
    assert [actions[0] for _, actions in groups if actions][-1] == "dispatch"


def test_explanation_and_drawing_name_everything() -> None:
    text, picture = process_text(order_process(), TIGHT), draw(order_process())
    for vertex in order_process().graph.vertices:
        assert vertex.name in picture
        assert not vertex.acts or vertex.name in text
    assert "cannot be compensated" in text
    assert "may write" in text
    assert picture.startswith("<svg")


def _cuts(graph: Graph, grouping: Grouping, draw: Random) -> list[tuple[Cut, tuple[str, ...]]]:
    """One random walk through the groups, with a random choice of ended waits at each cut."""
    walked = []
    cut, announced = graph.start, ""
    for _ in range(200):
        waits = tuple(v.name for v in graph.enabled(cut) if v.waits and draw.random() < 0.7)
        group = group_at(graph, cut, waits, announced, grouping)
        if group.announce:
            announced = group.announce
            continue
        if group.empty:
            if graph.ended(cut):
                break
            continue
        walked.append((cut, group.vertices if not announced else ()))
        announced = ""
        moved = True
        while moved:
            moved = False
            for vertex in list(graph.enabled(cut)):
                if vertex.name in group.vertices:
                    labels = [graph.edges[n].label for n in graph.outgoing[vertex.name]]
                    cut = graph.fire(cut, vertex, draw.choice(labels) if vertex.kind is Kind.XOR_SPLIT else "")
                    moved = True
                    break
    assert graph.ended(cut), "every walk through the groups comes to the end"
    return walked


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9), st.integers(0, 600_000), st.booleans())
@example(2851, 0, False)  # five waits at once, and a write that has a group of its own
def test_any_walk_through_the_groups_ends_and_keeps_the_rules(seed: int, failover_us: int, alone: bool) -> None:
    draw = Random(seed)
    graph = Architect(draw).build("p").graph
    grouping = Grouping(failover_us=failover_us, view_change_us=50_000, each_alone=alone)
    for cut, vertices in _cuts(graph, grouping, draw):
        finals = [name for name in vertices if graph.by_name[name].final]
        assert all(graph.by_name[name].waits for name in finals), "a non-compensable action is announced and alone"
        for child in finals:
            assert all(child not in graph.before[name] for name in vertices), (
                "one that stays is decided before the rest"
            )
        # What survivors would cancel for a dead master covers whatever it may have executed.
        assert set(vertices) <= set(possible_at(graph, cut, grouping))
    for group in groups_of(graph, grouping):
        for name in group.active:
            assert not graph.by_name[name].write, "a write is never active, whatever its cost"


# ---- partition: the best groups of a sequence


def _sequence(drawn: list[tuple[int, int, bool]]) -> list[Vertex]:
    return [
        Vertex(
            f"a{n}", Kind.CALL, service="s", write=cost > 0, deterministic=sure and not cost, cost=cost, time_us=time
        )
        for n, (time, cost, sure) in enumerate(drawn)
    ]


def _groups(actions: list[Vertex], ends: tuple[str, ...]) -> list[tuple[str, ...]]:
    """As a machine would execute them."""
    names = ["", *(action.name for action in actions), ""]
    graph = Graph("p", tuple(actions), tuple(Edge(a, b) for a, b in pairwise(names)), (), (Service("s"),))
    grouping = Grouping(failover_us=1_000, view_change_us=100, ends=ends)
    found: list[tuple[str, ...]] = []
    at = 0
    while at < len(actions):
        group = group_at(graph, (at,), (), "", grouping)
        found.append(group.vertices)
        at += len(group.vertices)
    return found


def _score(actions: list[Vertex], groups: list[tuple[str, ...]]) -> tuple[int, int]:
    by_name = {action.name: action for action in actions}
    return len(groups), sum(lost([by_name[name] for name in group]) for group in groups)


ACTIONS = st.lists(
    st.tuples(st.integers(1, 700), st.sampled_from((0, 0, 3, 40)), st.booleans()), min_size=1, max_size=7
)


@given(ACTIONS)
@settings(max_examples=150, deadline=None)
def test_no_other_ends_are_better(drawn: list[tuple[int, int, bool]]) -> None:
    """Against every subset of ends: the fewest groups, then the least compensation to be expected."""
    actions = _sequence(drawn)
    names = [action.name for action in actions]
    subsets = [subset for count in range(len(names) + 1) for subset in combinations(names, count)]
    best = min(_score(actions, _groups(actions, subset)) for subset in subsets)
    assert _score(actions, _groups(actions, best_ends(actions, Grouping(1_000, 100)))) == best


def _line(*times_ms: int) -> Process:
    """Writes one after the other, of these times; undoing the first is dear."""
    process = Process("line", services=[Service("shop")])
    for number, time_ms in enumerate(times_ms):

        @process.action(
            name=f"w{number}", service="shop", write=True, time=time_ms * 1000, cost=9 if number == 0 else 1
        )
        async def write() -> None: ...

    return process.flow(*(f"w{number}" for number in range(len(times_ms))))


def test_a_process_may_have_a_failover_bound_of_its_own() -> None:
    """t_f is the process's (section V-B), whatever the nodes' threshold; its groups are the best ones for it."""
    slow = _line(100, 100, 100, 100)
    assert [group["actions"] for group in explain(slow, SLOW)["groups"]] == [["w0", "w1", "w2", "w3"]]
    quick = slow.with_graph(msgspec.structs.replace(slow.graph, failover_us=400_000))
    facts = explain(quick, SLOW)
    # Filled up, the first group would be w0, w1, w2: as many groups, but the dear w0 would be at risk for longer.
    assert [group["actions"] for group in facts["groups"]] == [["w0"], ["w1", "w2", "w3"]]
    assert facts["threshold_us"] == 400_000 >= facts["failover_us"]
    assert quick.graph.version != slow.graph.version


def test_explain_compares_thresholds() -> None:
    trade = explain(_line(*[400] * 12), Grouping(view_change_us=100_000))["trade"]
    assert [one["states"] for one in trade] == sorted((one["states"] for one in trade), reverse=True)
    assert trade[0]["states"] == 12
    assert trade[-1]["states"] == 1
    assert all(one["failover_us"] <= one["threshold_us"] for one in trade)
    assert "600 ms: state replicated 12 times at most" in process_text(_line(*[400] * 12))


def test_explain_says_what_a_threshold_sends_and_lets_be_done_again() -> None:
    """Twelve actions of 400 ms: alone, half of one is done again; in one group, half of all."""
    process = with_costs(_line(*[400] * 12), {}, 100_000)
    trade = explain(process)["trade"]
    assert (trade[0]["states"], trade[0]["messages"], trade[0]["again_us"]) == (12, 48, 200_000)
    assert (trade[-1]["states"], trade[-1]["messages"], trade[-1]["again_us"]) == (1, 4, 2_400_000)
    costs = [one["undo_cost"] for one in trade]
    assert costs == sorted(costs)
    mean = sum(vertex.cost for vertex in process.graph.vertices) / 12
    assert costs[0] == round(mean / 2, 2)


def test_a_measured_view_change_is_another_version_with_other_groups() -> None:
    """Rule 2: t_v + Σ t(v) ≤ t_f. In two seconds four actions of 400 ms fit beside 262 ms, and three beside 500 ms."""
    line = _line(*[400] * 12)
    measured = with_costs(line, {}, 200_000)
    assert measured.graph.view_change_us == 262_144  # rounded, so that tomorrow it is the same version
    assert measured.graph.version != line.graph.version
    assert with_costs(line, {}).graph.version == line.graph.version
    assert len(explain(line)["groups"]) > len(explain(measured)["groups"])
    assert "view change: 262.144 ms (measured)" in process_text(measured)
    assert "view change: 500 ms (assumed" in process_text(line)


def test_graphs_from_before_thresholds_keep_their_versions() -> None:
    assert order_process().graph.version == "beb53bcd0b2e83f5"


def test_a_negative_failover_bound_is_refused() -> None:
    with pytest.raises(ProcessError, match="failover is negative"):
        Process("late", failover=-1)
