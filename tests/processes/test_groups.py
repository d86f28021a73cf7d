"""The group that begins at a cut, in full: what is in it, which part is active, and how long it takes (section V-B)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.processes.alone import Alone
from tests.processes.test_checks import beside, call, child, graph, receive
from tests.processes.test_loops import packing, survey
from tests.processes.test_scale import waiting
from unerring.model import ProcessError
from unerring.processes.graph import IN_TIME, LATE, REPEAT, SKIP, Cut, Edge, Graph, Kind, Service, Vertex
from unerring.processes.grouping import Group, Grouping, group_at, possible_at, time_of
from unerring.processes.messages import Replicate, Status

LIMIT = Grouping(failover_us=100, view_change_us=40)
"""Sixty microseconds for what has to be done again."""
FREE = Grouping(failover_us=10_000, view_change_us=0)


def write(name: str, time_us: int, **fields: Any) -> Vertex:
    return call(name, write=True, cost=1, time_us=time_us, **fields)


def line(*vertices: Vertex) -> Graph:
    names = [vertex.name for vertex in vertices]
    return graph(list(vertices), " ".join(f"{a}>{b}" for a, b in zip(["", *names], [*names, ""], strict=True)))


def first(graph: Graph, grouping: Grouping = LIMIT, ready: tuple[str, ...] = (), **fields: Any) -> Group:
    return group_at(graph, graph.start, ready, fields.get("announced", ""), grouping)


def before(graph: Graph, *names: str) -> Cut:
    return tuple(number for number, edge in enumerate(graph.edges) if edge.target in names)


def of(*names: str, time_us: int = 0, active: tuple[str, ...] = ()) -> Group:
    return Group(names, active, time_us=time_us)


@pytest.mark.parametrize(
    ("times_us", "group"),
    [
        ((30, 30), of("w0", "w1", time_us=60)),
        ((30, 31), of("w0", time_us=30)),
        ((500, 1), of("w0", time_us=500)),
        ((20, 20, 20, 1), of("w0", "w1", "w2", time_us=60)),
        ((60, 0), of("w0", "w1", time_us=60)),
    ],
)
def test_a_group_is_as_long_as_the_threshold_lets_it_be(times_us: tuple[int, ...], group: Group) -> None:
    actions = line(*(write(f"w{number}", time_us) for number, time_us in enumerate(times_us)))
    assert first(actions) == group
    assert time_of(actions, group) == group.time_us


@pytest.mark.parametrize("failover_us", [40, 39, 0])
def test_without_any_time_each_is_alone(failover_us: int) -> None:
    actions = line(write("w0", 1), write("w1", 1))
    assert first(actions, Grouping(failover_us, 40)) == of("w0", time_us=1)


def test_branches_count_by_the_longest_way_through_them() -> None:
    for last_us, group in ((10, of("s", "m", "n", "j", "z", time_us=60)), (11, of("s", "m", "n", "j", time_us=50))):
        for kind in (Kind.AND_SPLIT, Kind.XOR_SPLIT):
            forked = beside(write("m", 30), write("n", 50), kind)
            edges = (*forked.edges[:-1], Edge("j", "z"), Edge("z", ""))
            longer = msgspec.structs.replace(forked, vertices=(*forked.vertices, write("z", last_us)), edges=edges)
            assert first(longer) == group


def test_what_is_read_actively_takes_no_time_of_a_new_master() -> None:
    """Rule 1. What is read without determinism ends its group: it counts only once it is replicated."""
    for deterministic, group in (
        (True, of("q", "w", time_us=60, active=("q",))),
        (False, of("q", active=("q",))),
    ):
        actions = line(call("q", time_us=1_000, deterministic=deterministic), write("w", 60))
        assert first(actions) == group
    own = line(call("q", time_us=1_000, deterministic=True), call("r", time_us=7))
    assert first(own) == of("q", "r", active=("q", "r")), "one of them is not deterministic"
    assert first(own, Grouping(100, 40, each_alone=True)) == of("q", time_us=1_000)


def test_waits_end_a_group_and_begin_one_when_they_have_ended() -> None:
    actions = line(write("w", 10), receive("m"), write("v", 60))
    assert first(actions) == of("w", time_us=10)
    at = before(actions, "m")
    assert group_at(actions, at, (), "", LIMIT) == Group(())
    assert group_at(actions, at, (), "", LIMIT).empty
    assert group_at(actions, at, ("m",), "", LIMIT) == of("m", "v", time_us=60)
    stays = line(child("c", compensable=False), write("w", 1))
    assert first(stays, ready=("c",)) == of("c"), "a child that stays is decided before what follows"
    returns = line(child("c", compensation="undo"), write("w", 1))
    assert first(returns, ready=("c",)) == of("c", "w", time_us=1)


def test_what_is_for_good_is_announced_and_alone() -> None:
    actions = line(write("w", 1), write("f", 9, compensable=False), write("v", 1))
    assert first(actions) == of("w", time_us=1)
    announced = group_at(actions, before(actions, "f"), (), "", LIMIT)
    assert (announced, announced.empty) == (Group((), announce="f"), False)
    assert first(actions, announced="f") == of("f", time_us=9)
    last = line(write("f", 9, compensable=False))
    assert first(last) == Group((), announce="f")
    forked = beside(write("f", 9, compensable=False), write("w", 3))
    assert first(forked) == of("s", "w", time_us=3)
    assert first(line(Vertex("j", Kind.XOR_JOIN), write("f", 9, compensable=False))) == of("j")


def test_who_is_to_be_alone_is() -> None:
    actions = line(write("a", 1), write("b", 1, alone=True), write("c", 1))
    assert first(actions, FREE) == of("a", time_us=1)
    assert group_at(actions, before(actions, "b"), (), "", FREE) == of("b", time_us=1)
    assert group_at(actions, before(actions, "c"), (), "", FREE) == of("c", time_us=1)


@pytest.mark.parametrize(("last_us", "names"), [(10, "abc"), (11, "a")])
def test_an_atomic_block_is_taken_whole_or_not_at_all(last_us: int, names: str) -> None:
    parts = {"atomic": "x"}
    actions = line(write("a", 30), write("b", 20, **parts), write("c", last_us, **parts))
    assert first(actions).vertices == tuple(names)
    assert group_at(actions, before(actions, "b"), (), "", LIMIT) == of("b", "c", time_us=20 + last_us)
    early = msgspec.structs.replace(LIMIT, ends=("b",))
    assert group_at(actions, before(actions, "b"), (), "", early).vertices == ("b", "c"), "it has no end within"
    alone = Grouping(100, 40, each_alone=True)
    assert first(actions, alone) == of("a", time_us=30)
    assert group_at(actions, before(actions, "b"), (), "", alone) == of("b", "c", time_us=20 + last_us)


def test_a_group_ends_where_it_is_told_to() -> None:
    actions = line(write("a", 1), write("b", 1), write("c", 1))
    assert first(actions, msgspec.structs.replace(FREE, ends=("b",))) == of("a", "b", time_us=2)


def test_each_alone_takes_the_first_of_each_branch_that_excludes_the_others() -> None:
    alone = Grouping(100, 40, each_alone=True)
    apart = beside(write("m", 3), write("n", 5), Kind.XOR_SPLIT)
    assert first(apart, alone) == of("s", "m", "n", time_us=5)
    together = beside(write("m", 3), write("n", 5))
    assert first(together, alone) == of("s", "m", time_us=3)
    assert first(line(write("f", 1, compensable=False)), alone) == Group((), announce="f")
    assert first(line(receive("m")), alone) == Group(())
    assert time_of(together, Group(())) == 0
    joins = [Vertex(name, Kind.XOR_JOIN) for name in "tuj"]
    actions = [write(name, 0) for name in ("m", "n", "o", "p")]
    quick = graph(
        [Vertex("s", Kind.XOR_SPLIT, condition="c"), *actions, *joins], ">s s>m:0 s>t:1 m>n t>u n>o u>p o>j p>j j>"
    )
    assert first(quick, alone) == of("s", "m", "t", "u", "p", "j")


def test_a_round_ends_its_group_and_so_does_the_beginning_of_a_block() -> None:
    loop = line(
        Vertex("l", Kind.LOOP, at_most=3),
        write("a", 5),
        Vertex("e", Kind.AGAIN, loop="l", condition="c"),
        write("b", 5),
    )
    assert first(loop, FREE) == of("l", "a", "e", time_us=5)
    for grouping in (FREE, msgspec.structs.replace(FREE, each_alone=True)):
        assert group_at(loop, before(loop, "e"), (), "", grouping) == of("e")
        assert group_at(loop, before(loop, "b"), (), "", grouping) == of("b", time_us=5)
    block = graph(
        [write("a", 5), Vertex("w", Kind.WITHIN, time_us=9), write("b", 5), Vertex("j", Kind.XOR_JOIN, loop="w")],
        ">a a>w b>j j>",
    )
    edges = (*block.edges, Edge("w", "b", IN_TIME), Edge("w", "j", LATE))
    block = msgspec.structs.replace(block, edges=edges)
    assert first(block, FREE) == of("a", "w", time_us=5)
    assert group_at(block, before(block, "b"), (), "", FREE) == of("b", "j", time_us=5)
    assert (block.blocks, block.goes_on_atomically(block.by_name["b"])) == ({"w": frozenset([4])}, False)


# --- whatever may have been executed ---


def waits_beside(count: int) -> Graph:
    """So many waits beside each other, each with an action behind it, and one behind all."""
    names = [f"m{number}" for number in range(count)]
    vertices = [Vertex("s", Kind.AND_SPLIT), *map(receive, names), *(write(f"w{name}", 30) for name in names)]
    vertices += [Vertex("j", Kind.AND_JOIN), write("z", 30)]
    ways = " ".join(f"s>{name}:{name} {name}>w{name} w{name}>j" for name in names)
    return graph(vertices, f">s {ways} j>z z>")


@pytest.mark.parametrize("count", [2, 4, 5])
def test_a_dead_master_may_have_executed_what_is_behind_any_wait(count: int) -> None:
    graph = waits_beside(count)
    names = [f"m{number}" for number in range(count)]
    everything = ("s", *names, *(f"w{name}" for name in names), "j", "z")
    assert possible_at(graph, graph.start, FREE) == everything
    assert possible_at(graph, before(graph, *names), FREE) == everything[1:]
    one_left = before(graph, names[0], *(f"w{name}" for name in names[1:]))
    assert possible_at(graph, one_left, FREE) == (names[0], *everything[count + 1 :])
    behind = line(write("w", 1), receive("m"), write("v", 1))
    assert possible_at(behind, behind.start, FREE) == ("w",), "a wait behind an action is waited for in another group"
    assert possible_at(behind, before(behind, "m"), FREE) == ("m", "v")


def test_what_is_to_be_alone_counts_among_what_many_waits_make_possible() -> None:
    names = [f"m{number}" for number in range(5)]
    ways = " ".join(f"s>{name}:{name} {name}>w{name} w{name}>j" for name in names)
    writes = [write(f"w{name}", 1, alone=True) for name in names]
    vertices = [Vertex("s", Kind.AND_SPLIT), *map(receive, names), *writes, Vertex("j", Kind.AND_JOIN)]
    many = graph(vertices, f">s {ways} j>")
    assert set(possible_at(many, many.start, FREE)) == {"s", *names, *(f"w{name}" for name in names), "j"}


# --- parts of a graph ---


def test_the_longest_way_through_an_atomic_block() -> None:
    parts = {"atomic": "x"}
    forked = beside(write("m", 30, **parts), write("n", 50, **parts))
    inside = [msgspec.structs.replace(v, atomic="x") if not v.acts else v for v in forked.vertices]
    edges = (Edge("", "a"), Edge("a", "s"), *forked.edges[1:-1], Edge("j", "b"), Edge("b", ""))
    vertices = (write("a", 7), *inside, write("b", 5, **parts))
    whole = msgspec.structs.replace(forked, vertices=vertices, edges=edges)
    assert whole.atomic_us == {"x": 55}
    two = line(write("a", 3, **parts), write("b", 4, **parts), write("c", 5, atomic="y"), write("d", 6, atomic="y"))
    assert two.atomic_us == {"x": 7, "y": 11}
    going_on = {name: two.goes_on_atomically(two.by_name[name]) for name in "abcd"}
    assert going_on == {"a": True, "b": False, "c": True, "d": False}


def test_sequences_are_of_actions_that_may_be_one_group() -> None:
    alone, final = write("d", 1, alone=True), write("h", 1, compensable=False)
    longer = line(*map(call, "abc"), alone, call("e"), receive("f"), call("g"), final, call("i"))
    assert [[vertex.name for vertex in run] for run in longer.sequences] == [list("abc"), ["e"], ["g"], ["i"]]
    forked = beside(call("m"), call("n"))
    assert [[vertex.name for vertex in run] for run in forked.sequences] == [["m"], ["n"]]


def test_the_node_itself_promises_nothing_about_ids() -> None:
    assert line(call("a")).service_by_name["local"] == Service("local", filters=False, cancels=False)
    own = msgspec.structs.replace(line(call("a")), services=(Service("local"),))
    assert own.service_by_name == {"local": Service("local")}


def test_a_cut_that_is_not_there_is_not_fired_from() -> None:
    forked = beside(call("m"), call("n"))
    assert not forked.ended(())
    assert [vertex.name for vertex in forked.enabled(before(forked, "m", "n"))] == ["m", "n"]
    half = forked.fire(before(forked, "m", "n"), forked.by_name["n"])
    assert [vertex.name for vertex in forked.enabled(half)] == ["m"], "the join waits for both"
    both = forked.fire(half, forked.by_name["m"])
    assert [vertex.name for vertex in forked.enabled(both)] == ["j"]
    end = forked.fire(both, forked.by_name["j"])
    assert (len(end), forked.ended(end), forked.ended((*end, 0))) == (1, True, False)


def test_the_ways_on_from_a_vertex() -> None:
    def ways(graph: Graph, name: str) -> list[tuple[str, str]]:
        return [(vertex.name, label) for vertex, label in graph.ways(graph.by_name[name])]

    choice = beside(call("m"), call("n"), Kind.XOR_SPLIT)
    assert ways(choice, "s") == [("s", "0"), ("s", "1")]
    assert ways(choice, "m") == [("m", "")]
    assert ways(beside(call("m"), call("n")), "s") == [("s", "")]
    race = beside(receive("m"), receive("n"), Kind.FIRST_SPLIT)
    assert ways(race, "m") == ways(race, "n") == [("m", ""), ("n", "")]
    each = packing().graph
    assert ways(each, "each-1") == [("each-1", ""), ("each-1", SKIP)]
    assert ways(each, "each-1-end") == [("each-1-end", ""), ("each-1-end", REPEAT)]
    repeat = survey().graph
    assert ways(repeat, "repeat-1") == [("repeat-1", "")]
    end, head = repeat.by_name["repeat-1-end"], repeat.by_name["repeat-1"]
    entry = repeat.fire(repeat.start, head)
    assert repeat.fire(before(repeat, end.name), end, REPEAT) == entry
    assert repeat.fire(before(repeat, end.name), end) == before(repeat, "thank")
    assert each.fire(each.start, each.by_name["each-1"], SKIP) == before(each, "ship")
    assert (repeat.inside("repeat-1"), repeat.in_round("ask", {"repeat-1": 4}), repeat.in_round("ask", {})) == (
        frozenset(repeat.by_name) - {"thank"},
        "ask'4",
        "ask'0",
    )


@pytest.mark.parametrize(("width", "fits"), [(1, True), (2, True), (64, True), (65, False), (0, False)])
def test_a_loop_has_so_many_lanes_at_most(width: int, fits: bool) -> None:
    if fits:
        assert len([vertex for vertex in packing(width).graph.vertices if vertex.kind is Kind.LOOP]) == width
        return
    with pytest.raises(ProcessError, match=f"width={width}; it must be 1 to 64"):
        packing(width)


def test_nothing_follows_at_once_where_something_else_is_decided_first() -> None:
    it = Alone(waiting())
    it.hear(it.others[0], Replicate(0, it.state()))
    context = it.replica.context
    assert context.next_group(it.state()) == Group(())
    for change in ({"status": Status.UNDOING}, {"announced": "go"}, {"held": "x"}, {"version": "other"}):
        assert context.next_group(it.state(**change)) is None, change
