"""Loops: `repeat` until a condition holds and `each` item of a list, as parts of the graph."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from unerring import Process, Refused, Rehearsal, Service
from unerring.audit import Acted, Model, check_one_copy
from unerring.model import SECOND_US, ProcessError
from unerring.processes import Edge, Graph, Kind, State, Vertex, draw, explain, process_text
from unerring.processes.moving import moved_cut
from unerring.processes.recovery import sweep


class Order(msgspec.Struct):
    item: str = ""
    answer: str = ""
    items: list[str] = []
    more: list[str] = []
    label: str = ""
    labels: list[str] = []
    count: int = 0


def survey(at_most: int = 5, **options: Any) -> Process:
    """Asks, waits a second at most for an answer, and asks again."""
    process = Process("survey", state=Order, services=[Service("mail")], **options)

    @process.action(service="mail", write=True)
    async def ask(item: str) -> None: ...

    @process.action(service="mail", write=True)
    async def thank(answer: str) -> None: ...

    @process.condition
    def answered(answer: str) -> bool:
        return answer != ""

    answer = process.receive("answer", writes="answer")
    patience = process.sleep("patience", SECOND_US)
    loop = process.repeat([ask, process.first([answer], [patience])], until=answered, at_most=at_most)
    return process.flow(loop, thank)


def packing(width: int = 1, final: bool = False) -> Process:
    process = Process("packing", state=Order, services=[Service("mail")])

    @process.action(service="mail", write=True, writes="label", compensable=not final)
    async def pack(item: str) -> str: ...

    @process.action(service="mail", write=True)
    async def ship(labels: list[str]) -> None: ...

    return process.flow(process.each("items", [pack], item="item", collect={"labels": "label"}, width=width), ship)


def staged(process: Process, seed: int = 0, **fakes: Any) -> Rehearsal:
    mail = {"ask": lambda item: None, "thank": lambda answer: None, "pack": lambda item: f"<{item}>"}
    mail |= {"ship": lambda labels: None, "count": lambda count: count + 1}
    return Rehearsal(process, {"mail": mail | fakes}, seed=seed)


def iids(stage: Rehearsal) -> list[str]:
    return [f"{line.what} {line.iid.partition('@')[0]}" for line in stage.journal("mail")]


def test_a_loop_goes_round_until_its_condition_holds() -> None:
    stage = staged(survey())
    stage.start("o", item="bolt")
    stage.run_until(lambda: len(stage.effects("mail")) == 3)
    assert stage.world.now_us > 2 * SECOND_US  # the sleep is a new one in each round
    stage.signal("o", "answer", "yes")
    assert stage.finish("o").variables["answer"] == "yes"
    assert iids(stage) == ["do o/ask'0/0", "do o/ask'1/0", "do o/ask'2/0", "do o/thank/0"]
    stage.check()


def test_a_loop_whose_condition_never_holds_fails_at_its_bound_and_is_undone_in_reverse_order() -> None:
    stage = staged(survey(at_most=3))
    stage.start("o", item="bolt")
    end = stage.finish("o")
    assert end.status == "failed"
    assert end.reason.startswith("loop repeat-1 had 3 rounds, and answered does not hold; give it more with at_most")
    assert iids(stage)[3:] == ["undo o/ask'2/0", "undo o/ask'1/0", "undo o/ask'0/0"]
    stage.check()


def test_a_loop_at_its_bound_is_not_held_because_trying_again_would_come_to_the_same() -> None:
    stage = staged(survey(at_most=2, on_failure="hold"))
    stage.start("o", item="bolt")
    assert stage.finish("o").status == "failed"
    assert stage.effects("mail") == []
    stage.check()


@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("count", [0, 1, 5])
def test_each_item_has_its_round_and_results_are_in_the_order_of_the_items(width: int, count: int) -> None:
    items = list("abcde")[:count]
    stage = staged(packing(width))
    stage.start("o", items=items)
    end = stage.finish("o")
    assert end.variables["labels"] == [f"<{item}>" for item in items]
    assert [line.request for line in stage.journal("mail")][-1] == {"labels": end.variables["labels"]}
    assert len(stage.effects("mail")) == count + 1
    stage.check()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("final", [False, True])
def test_a_master_that_dies_in_a_round(seed: int, final: bool) -> None:
    stage = staged(packing(1, final), seed)
    stage.start("o", items=["a", "b", "c"])
    stage.run_until(lambda: len(stage.effects("mail")) == 2)
    stage.crash(stage.master("o"), for_s=1.0)
    assert stage.finish("o").variables["labels"] == ["<a>", "<b>", "<c>"]
    assert len(stage.effects("mail")) == 4
    stage.check()


@pytest.mark.parametrize("width", [1, 2])
def test_rounds_are_undone_when_a_later_one_cannot_be_done(width: int) -> None:
    def pack(item: str) -> str:
        if item == "d":
            raise Refused("too large", for_good=True)
        return item

    stage = staged(packing(width), pack=pack)
    stage.start("o", items=["a", "b", "c", "d"])
    assert stage.finish("o").status == "failed"
    assert stage.effects("mail") == []
    stage.check()


def nested() -> Process:
    process = Process("nested", state=Order, services=[Service("mail")])

    @process.action(service="mail", write=True, writes="count")
    async def count(count: int) -> int: ...

    @process.condition
    def even(count: int) -> bool:
        return count % 2 == 0

    inner = process.repeat([count], until=even, at_most=9)
    return process.flow(process.each("items", [inner], item="item"))


def test_a_loop_in_a_loop_begins_anew_in_each_round() -> None:
    stage = staged(nested())
    stage.start("o", items=["a", "b"])
    assert stage.finish("o").variables["count"] == 4
    assert iids(stage) == ["do o/count'0'0/0", "do o/count'0'1/0", "do o/count'1'0/0", "do o/count'1'1/0"]
    stage.check()


@pytest.mark.parametrize(("step", "undone"), [("count", 1), ("count'0'1", 2)])
def test_an_operator_goes_back_to_a_round(step: str, undone: int) -> None:
    def count(count: int) -> int:
        if len(stage.journal("mail")) == 3:
            raise Refused("not now", for_good=True)
        return count + 1

    process = nested()
    process.holds = True
    stage = staged(process.with_graph(msgspec.structs.replace(process.graph, holds=True)), count=count)
    stage.start("o", items=["a", "b"])
    stage.run_until(lambda: stage.query("o")["status"] == "held")
    assert stage.query("o")["variables"]["count"] == 3
    stage.retry("o", step)
    assert stage.finish("o").status == "completed"
    assert len([line for line in stage.journal("mail") if line.what == "undo"]) == undone
    stage.check()


def test_a_child_of_a_round_has_an_id_of_its_own() -> None:
    parcel = Process("parcel", state=Order)

    @parcel.action(writes="label")
    async def wrap(item: str) -> str:
        return f"[{item}]"

    parcel.flow(wrap)
    process = Process("order", state=Order)
    child = process.child("wrapping", parcel, {"item": "item"}, returns="label", writes="label", compensable=False)
    process.flow(process.each("items", [child], item="item", collect={"labels": "label"}))
    stage = Rehearsal(process)
    stage.start("o", items=["a", "b"])
    end = stage.finish("o")
    assert end.variables["labels"] == ["[a]", "[b]"]
    taken = [action["iid"] for group in end.history["groups"] for action in group["actions"]]
    assert [iid for iid in taken if "+" in iid] == ["o+wrapping'0", "o+wrapping'1"]
    stage.check()


def test_more_items_than_a_loop_may_have_fail_the_process_before_the_first() -> None:
    process = Process("packing", state=Order, services=[Service("mail")])

    @process.action(service="mail", write=True)
    async def pack(item: str) -> str: ...

    process.flow(process.each("items", [pack], item="item", at_most=2))
    stage = staged(process)
    stage.start("o", items=["a", "b", "c"])
    assert stage.finish("o").reason == "loop each-1 goes over 3 items; the limit is 2 (at_most)"
    assert stage.journal("mail") == []


def test_survivors_cancel_what_a_lost_master_may_have_done_in_its_round() -> None:
    """Recovery: the group of an older view began in the rounds that the lineage has there."""
    stage = staged(survey())
    stage.start("o", item="bolt")
    stage.run_until(lambda: len(stage.effects("mail")) == 3)
    node = stage.world.machine(stage.master("o"))
    assert node is not None
    state: State = node.instances["o"].decided[1]
    assert state.rounds in ({"repeat-1": 1}, {"repeat-1": 2})
    for group in (1, 3, 5):
        early = msgspec.structs.replace(state, group=group - 1, lineage=state.lineage[: group - 1])
        steps, _ = sweep(survey().graph, stage._grouping, early, 1)
        assert {step.iid.split("/")[1] for step in steps} <= {f"ask'{group // 2}"}


@pytest.mark.parametrize(
    ("flow", "error"),
    [
        (lambda p, f: p.repeat([], until=f, at_most=3), "the loop repeat-1 has no body"),
        (lambda p, f: p.repeat(["act"], until=f, at_most=0), "at_most is 0; it must be 1 to 1000000"),
        (lambda p, f: p.repeat(["act"], until=len, at_most=2), "declare len with @order.condition"),
        (lambda p, f: p.each("absent", ["act"], item="item"), "loop each-1 reads 'absent', which the state lacks"),
        (lambda p, f: p.each("items", ["act"], item="absent"), "loop each-1 writes 'absent', which the state lacks"),
        (lambda p, f: p.each("items", ["act"], item="item", width=0), "width=0; it must be 1 to 64"),
        (lambda p, f: p.each("labels", ["act"], item="item"), "act writes 'labels', over which its loop goes"),
    ],
)
def test_a_loop_that_cannot_be_is_refused_when_it_is_built(flow: Any, error: str) -> None:
    process = Process("order", state=Order)

    @process.action(writes="labels")
    async def act(item: str) -> list[str]: ...

    @process.condition
    def done(labels: list[str]) -> bool: ...

    with pytest.raises(ProcessError, match=error.replace("(", r"\(")):
        process.flow(flow(process, done))


def test_a_graph_whose_loop_is_left_in_the_middle_is_refused() -> None:
    head = Vertex("head", Kind.LOOP, at_most=2)
    split = Vertex("split", Kind.AND_SPLIT)
    end = Vertex("end", Kind.AGAIN, loop="head", condition="odd")
    vertices = (head, split, end, Vertex("join", Kind.AND_JOIN))
    pairs = [("", "head"), ("head", "split"), ("split", "end"), ("split", "join"), ("end", "join"), ("join", "")]
    graph = Graph("p", vertices, tuple(Edge(*pair) for pair in pairs))
    with pytest.raises(ProcessError, match="join is no part of loop head, but connected with split"):
        Process.of(graph, {"odd": lambda: True}, {})


def test_loops_are_explained_and_drawn() -> None:
    facts = explain(survey())
    assert facts["loops"] == [
        {
            "loop": "repeat-1",
            "end": "repeat-1-end",
            "until": "until answered",
            "at_most": 5,
            "actions": ["ask", "answer", "patience"],
        }
    ]
    assert all("thank" not in group["actions"] or group["actions"] == ["thank"] for group in facts["groups"])
    text = process_text(survey())
    assert "until answered, at most 5 rounds; the state after each round is decided" in text
    assert "repeat-1-end → repeat-1  [again]" in text
    assert "one of 2 lanes, for each of items" in process_text(packing(2))
    assert 'stroke-dasharray="5 3"' in draw(survey())


def test_an_instance_in_a_loop_is_moved_only_if_the_whole_loop_is_the_same() -> None:
    old, new = survey(), survey()
    changed = [msgspec.structs.replace(v, operation="ask_kindly") if v.name == "ask" else v for v in new.graph.vertices]
    new = new.with_graph(msgspec.structs.replace(new.graph, vertices=tuple(changed)))
    entry = old.graph.outgoing["repeat-1"]
    assert moved_cut(old.graph, new.graph, old.graph.start) == old.graph.start
    with pytest.raises(ProcessError, match="ask lies behind it, and its operation changed"):
        moved_cut(old.graph, new.graph, entry)


def test_graphs_without_loops_keep_the_versions_that_they_had() -> None:
    graph = Graph("x", (Vertex("a", Kind.CALL),), (Edge("", "a"), Edge("a", "")))
    assert graph.version == "1c292f5229537dc8"


@pytest.mark.parametrize(
    ("changed", "witness"),
    [
        ({"iid": "o/pack'0/0@0"}, "where the model has pack'1"),
        ({"reply": {"next": [], "got": ["<a>"]}}, "in that round the model has"),
    ],
)
def test_the_checker_sees_a_round_that_the_model_does_not_have(changed: dict[str, Any], witness: str) -> None:
    stage = staged(packing())
    stage.start("o", items=["a", "b"])
    end = stage.finish("o")
    actions = [action for group in end.history["groups"] for action in group["actions"]]
    acted = [Acted(a["vertex"], a["iid"], a["request"], a["reply"], a["write"]) for a in actions]
    process = packing()
    graph, initial = process.graph, process.initial({"items": ["a", "b"]})
    model = Model(graph.vertices, graph.edges, initial, process.choose, process.fit)
    assert check_one_copy("o", model, "completed", acted, stage.journal("mail")) == []
    at = 3 if "iid" in changed else 2
    acted[at] = msgspec.structs.replace(acted[at], **changed)
    violations = check_one_copy("o", model, "completed", acted, stage.journal("mail"))
    assert any(witness in str(violation) for violation in violations)
