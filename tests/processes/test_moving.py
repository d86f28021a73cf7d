"""Two versions side by side: every change in a sentence, and for every place whether an instance may be moved there."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from unerring import Process, Service
from unerring.model import SECOND_US, ProcessError
from unerring.processes.messages import State
from unerring.processes.moving import compared, difference_text, differences, moved, moved_cut, obstacle


class Old(msgspec.Struct):
    item: str = ""
    count: int = 0
    gone: str = ""
    kind: int = 0


class New(msgspec.Struct):
    item: str = ""
    count: int = 0
    fresh: str = "f"
    kind: str = ""


class Order(msgspec.Struct):
    item: str = ""
    count: int = 0
    note: str = ""


def versions() -> tuple[Process, Process]:
    """The second one lacks `ask`, and has `tell`; much of the rest is another."""

    def build(state: type, first: bool, **options: Any) -> Process:
        services = [Service("mail", cancels=first), Service("bank")]
        process = Process("order", state=state, services=services, **options)

        @process.action(service="mail", write=True, compensation="undo", time=5_000 if first else 9_000)
        async def reserve(item: str) -> None: ...

        async def act(item: str) -> None: ...

        process.action(name="ask" if first else "tell", service="bank", write=True)(act)
        return process.flow(reserve, "ask" if first else "tell")

    return build(Old, True), build(New, False, deadline=SECOND_US, on_failure="hold")


def test_every_change_has_a_sentence() -> None:
    old, new = versions()
    assert differences(old.graph, new.graph) == [
        "ask is gone",
        "reserve: time_us was 5000, is 9000",
        "tell is new (call)",
        "reserve → ask is no longer a step",
        "ask → end is no longer a step",
        "reserve → tell is a new step",
        "tell → end is a new step",
        "variable gone is gone",
        "variable fresh is new",
        "variable kind was int, is str",
        "service mail promises something else",
        "its deadline was 0 µs, is 1000000 µs (for new instances)",
        "what cannot go on is held for an operator now",
    ]
    assert differences(new.graph, old.graph)[-1] == "what cannot go on is undone now"
    assert differences(old.graph, old.graph) == []
    told = compared(old, new)
    assert {place["why_not"] for place in told["places"]} == {"the new version has no variable gone"}
    text = difference_text(old, new).splitlines()
    assert text[0] == f"process order: version {old.graph.version} → {new.graph.version}"
    assert text[2:5] == ["what changed", "  ask is gone", "  reserve: time_us was 5000, is 9000"]
    assert "  may be moved at: nowhere" in text
    assert "  stay at start → reserve: the new version has no variable gone" in text
    other = Process("other", state=Old)
    other.flow(other.sleep("pause", 7))
    assert {place["why_not"] for place in compared(old, other)["places"]} == {
        "these are two processes, order and other"
    }


def steps(*names: str, **options: Any) -> Process:
    """Actions and waits by their names: `w…` waits, the others write. `mail`: what its service promises."""
    cancels, time = options.pop("cancels", True), options.pop("time", 5_000)
    process = Process("steps", state=Order, services=[Service("mail", cancels=cancels)])

    def step(name: str) -> Any:
        if name.startswith("w"):
            return process.receive(name, writes="note")

        async def act(item: str) -> None: ...

        process.action(name=name, service="mail", write=True, compensation="undo", time=time, **options)(act)
        return name

    return process.flow(*(step(name) for name in names))


def places(old: Process, new: Process) -> dict[str, str]:
    return {old.graph.edges[n].target: obstacle(old.graph, new.graph, n) for n in range(len(old.graph.edges))}


def test_an_instance_may_be_moved_where_all_that_lies_behind_it_is_the_same() -> None:
    old = steps("a", "b", "c")
    free = dict.fromkeys(["a", "b", "c", ""], "")
    assert places(old, steps("a", "b", "c", time=7_000, cost=3)) == free, "how it is done may change"
    assert places(old, steps("a", "b", "d")) == free | {"": "c lies behind it, and the new version has none"}
    inserted = "c lies behind it, and what comes before c changed"
    assert places(old, steps("a", "b", "d", "c")) == free | {"": inserted}
    changed = places(old, steps("a", "b", "c", compensable=False))
    assert changed == free | dict.fromkeys(["b", "c", ""], "a lies behind it, and its compensable changed")
    promises = places(old, steps("a", "b", "c", cancels=False))
    assert promises == free | dict.fromkeys(
        ["b", "c", ""], "a lies behind it, and service mail promises something else"
    )


def looping(*inside: str, behind: str = "z") -> Process:
    process = Process("looping", state=Order, services=[Service("mail")])

    def step(name: str) -> str:
        async def act(item: str) -> None: ...

        process.action(name=name, service="mail", write=True)(act)
        return name

    @process.condition
    def enough(count: int) -> bool:
        return count > 2

    loop = process.repeat([step(name) for name in inside], until=enough, at_most=3)
    return process.flow(step("a"), loop, step(behind))


def test_what_an_earlier_round_may_have_done_lies_behind_too() -> None:
    old, new = looping("b", "c"), looping("b", "d")
    why = places(old, new)
    missing = "c lies behind it, and the new version has none"
    [head] = old.graph.ends
    assert why["a"] == why[head] == ""
    assert why["b"] == why["c"] == missing, "in the loop it may have been there, in an earlier round"
    assert why["z"] == why[""] == missing
    assert set(places(old, looping("b", "c", behind="y")).values()) == {
        "",
        "z lies behind it, and the new version has none",
    }


def racing(*waits: str) -> Process:
    process = Process("racing", state=Order, services=[Service("mail")])

    @process.action(service="mail", write=True)
    async def ask(item: str) -> None: ...

    return process.flow(ask, process.first(*([process.receive(name, writes="note")] for name in waits)))


def beside(*names: str) -> Process:
    process = Process("beside", state=Order, services=[Service("mail")])

    def step(name: str) -> str:
        async def act(item: str) -> None: ...

        process.action(name=name, service="mail", write=True)(act)
        return name

    return process.flow(process.both(*([step(name)] for name in names)))


def test_marks_go_to_the_same_ways_and_to_every_rival_of_a_race() -> None:
    old, new = racing("yes", "no"), racing("yes", "no", "never")

    def at(process: Process, *targets: str) -> tuple[int, ...]:
        return tuple(n for n, edge in enumerate(process.graph.edges) if edge.target in targets)

    assert moved_cut(old.graph, old.graph, at(old, "yes", "no")) == at(old, "yes", "no")
    with pytest.raises(ProcessError, match="cannot be moved"):
        moved_cut(old.graph, new.graph, at(old, ""))  # which of its waits ended the race changed
    one, two = beside("a", "b"), beside("a", "b", "c")
    assert moved_cut(one.graph, one.graph, at(one, "a", "b")) == at(one, "a", "b")
    with pytest.raises(
        ProcessError, match="a join of the new version would wait for ever for a branch that did not begin"
    ):
        moved_cut(one.graph, two.graph, at(one, "a", "b"))


def test_a_moved_instance_keeps_its_times_and_has_the_new_variables() -> None:
    class Wide(msgspec.Struct):
        item: str = ""
        count: int = 0
        note: str = ""
        added: int = 7

    old = Process("pausing", state=Order)
    old.flow(old.sleep("pause", 5 * SECOND_US))
    new = Process("pausing", state=Wide)
    new.flow(new.sleep("pause", 9 * SECOND_US))
    graph = old.graph
    state = State("i", graph.name, graph.version, 4, (), graph.start, {"item": "x", "count": 2, "note": ""})
    for due, until_us in (({}, 100 + 9 * SECOND_US), ({"pause": 55}, 55)):
        after = moved(graph, new, msgspec.structs.replace(state, due=due), 3, 100)
        assert (after.version, after.moved, after.swept, after.group) == (new.graph.version, 5, 3, 4)
        assert after.variables == {"item": "x", "count": 2, "note": "", "added": 7}
        assert after.due == {"pause": until_us}


def test_an_instance_that_waits_for_a_child_moves_where_that_child_is_the_same() -> None:
    def build(given: str, more: bool = False) -> Process:
        part = Process("part", state=Order)
        part.flow(part.receive("go"))
        process = Process("parent", state=Order)
        child = process.child("making", part, {"item": given}, compensable=False)
        return process.flow(child, process.sleep("pause", 7)) if more else process.flow(child)

    old = build("item")
    state = State("i", "parent", old.graph.version, 0, (), old.graph.start, {"item": "", "count": 0, "note": ""})
    assert moved(old.graph, build("item", more=True), state, 0, 0).moved == 1
    with pytest.raises(ProcessError, match="waits for its child making, which the new version does not; wait"):
        moved(old.graph, build("note"), state, 0, 0)
