"""Children by themselves: their ids and what they are given, when they have ended, and what undoes them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.processes.alone import Alone
from tests.processes.test_checks import call, child, graph
from tests.processes.test_scale import waiting
from unerring import Process
from unerring.processes.children import children_used, end_of, ended, family_of, starts, undoing
from unerring.processes.context import replica_set
from unerring.processes.families import Families
from unerring.processes.graph import Vertex
from unerring.processes.messages import CHILD, Mail, Post, Replicate, Start, State, Status, Taken


class Order(msgspec.Struct):
    items: list[str] = []
    item: str = ""
    answer: str = "a"
    label: Any = None


class Recall(msgspec.Struct):
    label: str = ""
    other: str = ""


def parent(over: bool) -> tuple[Process, Vertex, State]:
    parcel = Process("parcel", state=Order)
    parcel.flow(parcel.receive("go"))
    recall = Process("recall", state=Recall)
    recall.flow(recall.receive("went"))
    process = Process("order", state=Order)
    given = {"item": "items" if over else "item", "answer": "answer"}
    more: dict[str, Any] = {"returns": "label", "writes": "label", "undo": recall}
    process.flow(process.child("part", parcel, given, over="items" if over else "", **more))
    graph = process.graph
    variables = process.initial({"items": ["x", "y"], "item": "z"})
    return process, graph.by_name["part"], State("i", "order", graph.version, 1, (), graph.start, variables)


def test_one_child_has_the_id_of_its_step() -> None:
    process, vertex, state = parent(over=False)
    assert family_of(process.graph, state, vertex) == "i+part"
    again = family_of(process.graph, msgspec.structs.replace(state, again=2), vertex)
    assert again == "i+part'2"
    start = Start(again, "parcel", {"answer": "a", "item": "z"}, "i", "label")
    assert starts("i", vertex, again, state.variables, 0) == [start]


def test_children_over_a_list_are_numbered_and_not_one_too_many() -> None:
    _, vertex, state = parent(over=True)
    expected = [
        Start(f"i+part+{number}", "parcel", {"answer": "a", "item": item}, "i", "label")
        for number, item in enumerate(("x", "y"))
    ]
    for most, children in ((3, expected), (2, expected), (1, [])):
        assert starts("i", vertex, "i+part", state.variables, most) == children
    assert starts("i", vertex, "i+part", state.variables | {"items": "xy"}, 9) == []


def end(id: str, status: str = Status.COMPLETED, value: Any = None, channel: str = CHILD) -> Mail:
    return Mail(id, channel, {"status": status, "reason": "because", "value": value})


def test_the_end_of_one_child_is_the_end() -> None:
    process, vertex, state = parent(over=False)

    def at(*mail: Mail) -> Mail | None:
        return ended(process.graph, vertex, state, mail, 9)

    assert at() is None
    assert at(end("i+other"), end("i+part", channel="partner")) is None
    assert at(end("i+part", value=7)) == Mail("i+part", CHILD, {"status": Status.COMPLETED, "reason": "", "value": 7})
    failed = at(end("i+part", Status.FAILED))
    assert failed is not None
    assert failed.payload["status"] == Status.FAILED
    assert failed.payload["reason"] == "i+part was failed: because"
    assert not failed.payload.get("final")


def test_a_list_has_ended_with_its_last_child_or_the_first_that_failed() -> None:
    process, vertex, state = parent(over=True)

    def at(*mail: Mail, most: int = 2, **variables: Any) -> dict[str, Any] | None:
        now = msgspec.structs.replace(state, variables=state.variables | variables)
        mail_ = ended(process.graph, vertex, now, mail, most)
        assert mail_ is None or (mail_.id, mail_.channel) == ("i+part", CHILD)
        return None if mail_ is None else mail_.payload

    assert at(end("i+part+1", value=1)) is None
    done = {"status": Status.COMPLETED, "reason": ""}
    assert at(end("i+part+1", value=1), end("i+part+0", value=0)) == done | {"value": [0, 1]}
    assert at(items=[]) == done | {"value": []}
    failed = at(end("i+part+1", Status.CANCELLED))
    assert failed is not None
    assert (failed["status"], failed["reason"]) == (Status.FAILED, "i+part+1 was cancelled: because")
    for most, items, why in (
        (1, ["x", "y"], "items has 2 items, which exceeds the limit of 1"),
        (9, "xy", "items has 'xy', not a list"),
    ):
        wrong = at(most=most, items=items)
        assert wrong is not None
        assert (wrong["status"], wrong["reason"], wrong["final"]) == (Status.FAILED, why, True)


@pytest.mark.parametrize("returns", ["label", ""])
def test_a_parent_is_told_how_it_ended_and_what_it_wanted(returns: str) -> None:
    told = {"status": Status.COMPLETED, "reason": "r", "value": 3 if returns else None}
    assert end_of("i+part", Status.COMPLETED, "r", {"label": 3, "": 4}, returns) == Mail("i+part", CHILD, told)


def test_what_undoes_a_child_is_given_what_it_had_and_returned() -> None:
    _, vertex, state = parent(over=False)
    [start] = starts("i", vertex, "i+part", state.variables, 9)
    assert undoing(start, vertex, "l", 3) == Start("i+part~3", "recall", {"label": "l"}, "i")


# --- between the nodes ---


def told(start: list[tuple[Start, Mail | None]]) -> tuple[Families, list[tuple[str, Any]]]:
    """What a node tells all replicas of whom it speaks of."""
    it = Alone(waiting())
    it.hear(it.others[0], Replicate(0, it.state()))
    said: list[tuple[str, Any]] = []
    shared = it.replica.context.shared
    shared.children.extend(start)
    return Families(shared, lambda to, message, now: said.append((to, message))), said


def test_children_are_started_at_all_of_their_replicas_once() -> None:
    one, other = (Start(f"i+{name}", "parcel", {}, "i") for name in "ab")
    cancel = Mail("cancel", "!cancel", None)
    families, said = told([(one, None), (other, cancel)])
    families.start_children(5)
    first, second = (replica_set(start.instance, ("n0", "n1", "n2"), 1) for start in (one, other))
    expected: list[tuple[str, Any]] = [(member, one) for member in first]
    for member in second:
        expected += [(member, other), (member, Post("i+b", cancel))]
    assert said == expected
    families.start_children(6)
    assert said == expected


def test_an_end_is_told_to_all_who_may_lead_the_parent_and_to_who_asks() -> None:
    families, said = told([])
    _, _, state = parent(over=False)
    ended_ = msgspec.structs.replace(state, status=Status.COMPLETED, parent="mother", returns="item")
    mail = Mail("i", CHILD, {"status": Status.COMPLETED, "reason": "", "value": "z"})
    families.tell_parent(ended_, 5)
    assert said == [(member, Post("mother", mail)) for member in replica_set("mother", ("n0", "n1", "n2"), 1)]
    said.clear()
    families.tell_end("n1", "mother", mail, 5)
    assert said == [("n1", Post("mother", mail))]


def test_what_a_parent_stands_on_in_the_end() -> None:
    """One that was undone stands on what it did up to the last action that could not be."""
    _, _, state = parent(over=False)
    pieces = [child("one", compensation="undo"), call("pay", write=True, compensable=False)]
    pieces.append(child("two", compensation="undo"))
    steps = graph(pieces, ">one one>pay pay>two two>")
    taken = tuple(Taken(name, f"i+{name}", {}, name, False, at, 0) for at, name in enumerate(("one", "pay", "two"), 1))
    for status, used in (
        (Status.COMPLETED, ["one", "two"]),
        (Status.RUNNING, ["one", "two"]),
        (Status.PARKED, ["one"]),
    ):
        stands = msgspec.structs.replace(state, status=status, taken=taken)
        assert children_used(steps, stands) == [(f"i+{name}", name) for name in used]
    undone = msgspec.structs.replace(state, status=Status.FAILED, taken=taken[::2])
    assert children_used(steps, undone) == []
