"""Checks of graphs as data: what each refuses, and the nearest thing that it lets pass."""

from __future__ import annotations

from itertools import combinations
from random import Random
from typing import Any

import msgspec
import pytest

from unerring.model import ProcessError
from unerring.processes.checks import ROUNDS_MAX, check, concurrent
from unerring.processes.graph import IN_TIME, LATE, Cut, Edge, Graph, Kind, Retry, Service, Variable, Vertex
from unerring.simulation.process_architect import Architect

SERVICES = (
    Service("shop"),
    Service("bank", cancels=False),
    Service("open", filters=False),
)


def call(name: str, **fields: Any) -> Vertex:
    return Vertex(name, fields.pop("kind", Kind.CALL), service=fields.pop("service", "shop"), **fields)


def graph(vertices: list[Vertex], edges: str, name: str = "p", state: str = "xyz") -> Graph:
    """Edges as `a>b`, `a>b:label`; `>a` is from the start and `a>` to the end."""
    made = []
    for edge in edges.split():
        ends, _, label = edge.partition(":")
        source, _, target = ends.partition(">")
        made.append(Edge(source, target, label))
    return Graph(name, tuple(vertices), tuple(made), tuple(Variable(name, "int") for name in state), SERVICES)


def one(**fields: Any) -> Graph:
    return graph([call("a", **fields)], ">a a>")


def beside(left: Vertex, right: Vertex, kind: Kind = Kind.AND_SPLIT) -> Graph:
    """Two branches between a split and its join."""
    join = Kind.AND_JOIN if kind is Kind.AND_SPLIT else Kind.XOR_JOIN
    vertices = [Vertex("s", kind, condition="c"), left, right, Vertex("j", join)]
    return graph(vertices, f">s s>{left.name}:0 s>{right.name}:1 {left.name}>j {right.name}>j j>")


def receive(name: str, **fields: Any) -> Vertex:
    return Vertex(name, Kind.RECEIVE, **{"channel": name, **fields})


def child(name: str, **fields: Any) -> Vertex:
    return Vertex(name, Kind.CHILD, operation="child", **fields)


def loop(**fields: Any) -> Graph:
    head = Vertex("l", Kind.LOOP, **{"at_most": 3, **fields})
    again = Vertex("e", Kind.AGAIN, loop="l", condition="" if fields.get("over") else "c")
    return graph([head, call("a"), again], ">l l>a a>e e>")


def block(labels: str = f"{IN_TIME}|{LATE}", **fields: Any) -> Graph:
    first, second = labels.split("|")
    vertices = (Vertex("w", Kind.WITHIN, **{"time_us": 1, **fields}), call("a"), Vertex("j", Kind.XOR_JOIN, loop="w"))
    edges = (Edge("", "w"), Edge("w", "a", first), Edge("w", "j", second), Edge("a", "j"), Edge("j", ""))
    return Graph("p", vertices, edges, (), SERVICES)


RIGHT: dict[str, Graph] = {
    "a name with spaces": graph([call("a")], ">a a>", name="my order"),
    "a write that its service cancels": one(write=True),
    "a write with a compensation": one(write=True, service="bank", compensation="undo"),
    "a write for good": one(write=True, service="bank", compensable=False),
    "one for good in the node itself": one(write=True, service="local", compensable=False),
    "a read of a service that does not filter": one(service="open", compensable=False),
    "no time and no cost": one(time_us=0, cost=0),
    "the least patience": one(retry=Retry(attempt_us=1, attempts_max=1, occurrences_max=1)),
    "a key and a priority": one(key="x", priority="y"),
    "an atomic read": one(atomic="b"),
    "a race of one channel by keys": beside(
        receive("m", channel="c", key="x"), receive("n", channel="c", key="y"), Kind.FIRST_SPLIT
    ),
    "a race with one child": beside(child("m", compensation="undo"), receive("n"), Kind.FIRST_SPLIT),
    "as many rounds as there may be": loop(at_most=ROUNDS_MAX),
    "one round": loop(at_most=1),
    "a loop over a list": loop(over="x", reads=("x",)),
    "a block": block(),
    "one child at once": graph([child("m", compensable=False, at_once=1)], ">m m>"),
    "a child for good beside waiting": beside(
        child("m", compensable=False), call("n", reads=("x",)), Kind.XOR_SPLIT
    ),
    "two that read": beside(call("m", reads=("x",)), call("n", reads=("x",))),
    "two that write each its own": beside(call("m", writes=("x",)), call("n", writes=("y",))),
    "one that writes what only it reads": beside(call("m", reads=("x",), writes=("x",)), call("n", reads=("y",))),
    "two that write the same one or the other": beside(
        call("m", writes=("x",)), call("n", writes=("x",)), Kind.XOR_SPLIT
    ),
    "an answer": graph([call("a"), receive("m", answers="a")], ">a a>m m>"),
}  # fmt: skip

WRONG: dict[str, tuple[Graph, str]] = {
    "no name": (graph([call("")], "> >"), "invalid action name ''"),
    "a space": (graph([call("a b")], ">a"), "invalid action name 'a b'"),
    "not printable": (graph([call("a\n")], ">a"), "invalid action name"),
    "the process": (graph([call("a")], ">a a>", name="p/q"), "invalid process name 'p/q'"),
    "the process, not printable": (graph([call("a")], ">a a>", name="p\n"), "invalid process name"),
    "twice": (graph([call("a"), call("a")], ">a a>"), "two vertices are called 'a'"),
    "an edge to nothing": (graph([call("a")], ">a a>b"), "an edge names 'b'"),
    "an edge from nothing": (graph([call("a")], ">a b>a a>"), "an edge names 'b'"),
    "two starts": (graph([call("a"), Vertex("j", Kind.XOR_JOIN)], ">a >j a>j j>"), "exactly one edge from the start"),
    "two ends": (graph([call("a"), Vertex("s", Kind.AND_SPLIT)], ">s s>a s> a>"), "one to the end"),
    "no split": (
        graph([call("a"), call("b"), Vertex("j", Kind.XOR_JOIN)], ">a a>b a>j b>j j>"),
        "2 edges leave a; put a split behind it",
    ),
    "a dead end": (graph([call("a"), call("b"), Vertex("s", Kind.AND_SPLIT)], ">s s>a s>b a>"), "nothing follows b"),
    "no condition": (
        graph([Vertex("s", Kind.XOR_SPLIT), Vertex("j", Kind.XOR_JOIN)], ">s s>j:0 s>j:1 j>"), "has no condition"
    ),
    "an empty label": (
        graph([Vertex("s", Kind.XOR_SPLIT, condition="c"), Vertex("j", Kind.XOR_JOIN)], ">s s>j s>j:1 j>"),
        "need labels that differ",
    ),
    "two children race": (
        beside(child("m", compensation="undo"), child("n", compensation="undo"), Kind.FIRST_SPLIT),
        "two branches of s begin with a child",
    ),
    "the same channel and key": (
        beside(receive("m", channel="c", key="x"), receive("n", channel="c", key="x"), Kind.FIRST_SPLIT),
        "two branches of s receive the same",
    ),
    "reads": (one(reads=("q",)), "action a reads 'q', which the state lacks; it has x, y, z"),
    "writes": (one(writes=("q",)), "action a writes 'q'"),
    "reads of none": (graph([call("a", reads=("q",))], ">a a>", state=""), "it has nothing"),
    "reads of a split": (
        graph([Vertex("s", Kind.XOR_SPLIT, condition="c", reads=("q",)), Vertex("j", Kind.XOR_JOIN)],
              ">s s>j:0 s>j:1 j>"),
        "vertex s reads 'q'",
    ),
    "no service": (one(service="nowhere"), "calls service 'nowhere', which is not declared"),
    "no compensation": (one(write=True, service="bank"), "nothing says how to undo it"),
    "no filter": (one(write=True, service="open", compensable=False), "must filter repeated interaction ids"),
    "no channel": (graph([receive("m", channel="")], ">m m>"), "receive m names no channel"),
    "an operator's channel": (graph([receive("m", channel="!m")], ">m m>"), "are for operators"),
    "an unknown key": (one(key="q"), "call a has the key 'q', which the state lacks"),
    "an unknown priority": (one(priority="q"), "call a has the priority 'q', which the state lacks"),
    "alone in a block": (one(atomic="b", alone=True), "a is to be alone, so it cannot be part of an atomic block"),
    "for good in a block": (one(atomic="b", write=True, compensable=False), "a cannot be undone, so it cannot be part"),
    "a wait in a block": (graph([receive("m", atomic="b")], ">m m>"), "m waits, so it cannot be part"),
    "a wait that writes": (
        graph([receive("m", write=True, compensation="undo")], ">m m>"), "m waits, so it cannot write"
    ),
    "negative time": (one(time_us=-1), "time and cost cannot be negative"),
    "negative cost": (one(cost=-1), "time and cost cannot be negative"),
    "no attempt": (one(retry=Retry(attempts_max=0)), "retry needs at least one attempt"),
    "no occurrence": (one(retry=Retry(occurrences_max=0)), "retry needs at least one attempt"),
    "no patience": (one(retry=Retry(attempt_us=0)), "retry needs at least one attempt"),
    "no rounds": (loop(at_most=0), "at_most is 0; it must be 1 to 1000000"),
    "too many rounds": (loop(at_most=ROUNDS_MAX + 1), "at_most is 1000001"),
    "a loop that nothing ends": (
        graph([Vertex("l", Kind.LOOP, at_most=2), call("a"), Vertex("e", Kind.AGAIN, loop="l")], ">l l>a a>e e>"),
        "loop l has no condition that ends it",
    ),
    "a beginning alone": (graph([Vertex("l", Kind.LOOP, at_most=2)], ">l l>"), "l is no loop"),
    "an end alone": (graph([Vertex("e", Kind.AGAIN, loop="l", condition="c")], ">e e>"), "e is no loop"),
    "the end first": (
        graph([Vertex("l", Kind.LOOP, at_most=2), Vertex("e", Kind.AGAIN, loop="l", condition="c")], ">e e>l l>"),
        "is no loop: it needs one beginning, and one end behind it",
    ),
    "an end of what is no loop": (
        graph([call("l"), Vertex("e", Kind.AGAIN, loop="l", condition="c")], ">l l>e e>"), "e is no loop"
    ),
    "an end twice": (
        graph([Vertex("l", Kind.LOOP, at_most=2), *(Vertex(n, Kind.AGAIN, loop="l", condition="c") for n in "ef")],
              ">l l>e e>f f>"),
        "is no loop",
    ),
    "its list is written": (
        graph([Vertex("l", Kind.LOOP, over="x", at_most=2), call("a", writes=("x",)),
               Vertex("e", Kind.AGAIN, loop="l")], ">l l>a a>e e>"),
        "a writes 'x', over which its loop goes",
    ),
    "a way into a loop": (
        graph([Vertex("s", Kind.AND_SPLIT), Vertex("l", Kind.LOOP, at_most=2), Vertex("j", Kind.AND_JOIN),
               Vertex("e", Kind.AGAIN, loop="l", condition="c")], ">s s>l s>j l>j j>e e>"),
        "s is no part of loop l, but connected with j",
    ),
    "labels of a block": (block(f"{IN_TIME}|other"), "block w needs two branches, 'in time' and 'late', and an end"),
    "no time for a block": (block(time_us=0), "block w has no time"),
    "a child that nothing undoes": (graph([child("m")], ">m m>"), "nothing says what becomes of its effects"),
    "no child at once": (graph([child("m", compensable=False, at_once=0)], ">m m>"), "at_once is 0"),
    "a child for good beside another": (
        beside(child("m", compensable=False), call("n")), "so nothing may run beside it that could fail; n does"
    ),
    "write and read": (beside(call("m", writes=("x",)), call("n", reads=("x",))), "m and n run at the same time"),
    "read and write": (beside(call("m", reads=("x",)), call("n", writes=("x",))), "both touch 'x'"),
    "write and write": (beside(call("m", writes=("x",)), call("n", writes=("x",))), "both touch 'x'"),
    "an answer to nothing": (
        graph([call("a"), receive("m", answers="b")], ">a a>m m>"), "which is no action before it"
    ),
    "an answer to a wait": (
        graph([receive("a"), receive("m", answers="a")], ">a a>m m>"), "which is no action before it"
    ),
    "an answer before its question": (
        graph([receive("m", answers="a"), call("a")], ">m m>a a>"), "which is no action before it"
    ),
    "an answer to a join": (
        graph([Vertex("a", Kind.XOR_JOIN), receive("m", answers="a")], ">a a>m m>"), "which is no action before it"
    ),
    "an answer with a key": (graph([call("a"), receive("m", answers="a", key="x")], ">a a>m m>"), "m has a key"),
}  # fmt: skip


@pytest.mark.parametrize("what", RIGHT)
def test_what_may_be_is_let_pass(what: str) -> None:
    assert check(RIGHT[what]) is RIGHT[what]


@pytest.mark.parametrize("what", WRONG)
def test_what_may_not_be_is_refused(what: str) -> None:
    wrong, sentence = WRONG[what]
    with pytest.raises(ProcessError) as refused:
        check(wrong)
    assert sentence in str(refused.value)


def test_in_a_loop_an_answer_is_to_a_question_of_the_same_round() -> None:
    head, again = Vertex("l", Kind.LOOP, at_most=2), Vertex("e", Kind.AGAIN, loop="l", condition="c")
    asks, answers = call("a"), receive("m", answers="a")
    for edges, fits in ((">l l>a a>m m>e e>", True), (">a a>l l>m m>e e>", True), (">l l>a a>e e>m m>", False)):
        within = graph([head, asks, answers, again], edges)
        if fits:
            assert check(within)
        else:
            with pytest.raises(ProcessError, match="answers a, which is in a loop that it is not in"):
                check(within)


def cuts(graph: Graph) -> list[Cut]:
    """All that some execution comes to; of a graph with very many, none."""
    seen = {graph.start: None}
    todo = [graph.start]
    while todo:
        cut = todo.pop()
        for vertex in graph.enabled(cut):
            for fires, label in graph.ways(vertex):
                after = graph.fire(cut, fires, label)
                if after not in seen:
                    seen[after] = None
                    todo.append(after)
        if len(seen) > 400:
            return []
    return list(seen)


def test_two_are_concurrent_if_some_execution_has_both_under_way() -> None:
    """Against going through all cuts. The waits of one race are all waited for, and exclude each other."""
    seen = 0
    for seed in range(24):
        drawn = Architect(Random(seed), races=0.2, loops=0.2, blocks=0.2).build("p").graph
        together: set[frozenset[str]] = set()
        for cut in cuts(drawn):
            names = [vertex.name for vertex in drawn.enabled(cut) if vertex.acts]
            pairs = [(m, n) for m, n in combinations(names, 2) if drawn.races.get(m, ()) != drawn.races.get(n)]
            together |= {frozenset(pair) for pair in pairs}
        acting = [vertex.name for vertex in drawn.vertices if vertex.acts]
        for one, other in combinations(acting, 2) if cuts(drawn) else ():
            expected = frozenset((one, other)) in together
            assert concurrent(drawn, one, other) == concurrent(drawn, other, one) == expected, (seed, one, other)
            seen += expected
    assert seen > 50


@pytest.mark.parametrize("seed", range(20))
def test_what_comes_before_a_vertex_is_on_some_way_to_it(seed: int) -> None:
    drawn = Architect(Random(seed), races=0.2, loops=0.2, blocks=0.2).build("p").graph
    follows: dict[str, set[str]] = {vertex.name: set() for vertex in drawn.vertices}
    for _ in drawn.vertices:
        for edge in drawn.edges:
            if edge.source and edge.target:
                follows[edge.source] |= {edge.target, *follows[edge.target]}
    for name in follows:
        assert drawn.before[name] == {other for other in follows if name in follows[other]}
    places = {name: number for number, name in enumerate(drawn.order)}
    assert sorted(places) == sorted(follows)
    assert places == drawn.rank
    assert all(places[edge.source] < places[edge.target] for edge in drawn.edges if edge.source and edge.target)
    assert msgspec.structs.replace(drawn).order == drawn.order
