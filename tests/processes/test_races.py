"""Waits that race: the first message or time decides the branch (an event-based gateway)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from unerring import Process, Refused, Rehearsal, Service
from unerring.audit import Acted, Model, check_one_copy
from unerring.model import SECOND_US, ProcessError
from unerring.processes import draw, explain
from unerring.processes.moving import moved_cut


class Order(msgspec.Struct):
    item: str = ""
    answer: str = ""
    sent: str = ""


def shop(*more: str) -> Process:
    """Asks a customer, who may approve, refuse or let ten seconds pass; `more`: further messages that count."""
    process = Process("order", state=Order, services=[Service("mail")])

    @process.action(service="mail", write=True)
    async def ask(item: str) -> None: ...

    @process.action(service="mail", writes="sent", write=True)
    async def ship(answer: str) -> str: ...

    @process.action(service="mail", write=True)
    async def remind(item: str) -> None: ...

    approved = process.receive("approved", writes="answer")
    refused = process.receive("refused", writes="answer")
    patience = process.sleep("patience", 10 * SECOND_US)
    others = [[process.receive(name, writes="answer")] for name in more]
    return process.flow(ask, process.first([approved, ship], [refused], [patience, remind], *others))


def rehearsed(process: Process, seed: int = 0, remind: Any = lambda item: None) -> Rehearsal:
    mail = {"ask": lambda item: None, "ship": lambda answer: f"by {answer}", "remind": remind}
    stage = Rehearsal(process, {"mail": mail}, seed=seed)
    stage.start("o", item="bolt")
    stage.run_until(lambda: stage.effects("mail") == ["ask"])
    return stage


def test_the_message_that_comes_first_decides() -> None:
    stage = rehearsed(shop())
    stage.signal("o", "refused", "no")
    assert stage.finish("o").variables["answer"] == "no"
    assert stage.effects("mail") == ["ask"]
    stage.check()


def test_time_decides_when_no_message_came() -> None:
    stage = rehearsed(shop())
    began_us = stage.world.now_us
    assert stage.finish("o").status == "completed"
    assert stage.effects("mail") == ["ask", "remind"]
    assert stage.world.now_us - began_us >= 9 * SECOND_US
    stage.check()


def test_a_message_after_the_time_is_not_received() -> None:
    stage = rehearsed(shop())
    stage.run_until(lambda: "remind" in stage.effects("mail"))
    stage.signal("o", "approved", "too late")
    end = stage.finish("o")
    assert end.variables["answer"] == ""
    assert stage.effects("mail") == ["ask", "remind"]
    stage.check()


def test_of_a_message_and_a_time_at_once_the_message_counts() -> None:
    stage = rehearsed(shop())
    for node in stage.names:
        stage.pause(node, for_s=20.0)
    stage.signal("o", "approved", "yes")
    end = stage.finish("o")
    assert end.variables["sent"] == "by yes"
    assert stage.effects("mail") == ["ask", "ship"]
    stage.check()


@pytest.mark.parametrize("seed", range(4))
def test_a_master_that_dies_after_the_choice(seed: int) -> None:
    stage = rehearsed(shop(), seed)
    stage.signal("o", "approved", "yes")
    stage.run_until(lambda: "ship" in stage.effects("mail"))
    stage.crash(stage.master("o"), for_s=1.0)
    assert stage.finish("o").variables["sent"] == "by yes"
    stage.check()


def test_what_was_done_before_and_behind_a_race_is_undone() -> None:
    def refuse(item: str) -> None:
        raise Refused("nobody there", for_good=True)

    stage = rehearsed(shop(), remind=refuse)
    assert stage.finish("o").status == "failed"
    assert stage.effects("mail") == []
    stage.check()


def test_an_instance_that_waits_says_for_what() -> None:
    stage = rehearsed(shop())
    stage.run(seconds=1.0)
    node = stage.world.machine(stage.master("o"))
    assert node is not None
    waits = node.query("o")["waits_for"]
    assert [(wait["wait"], wait["kind"]) for wait in waits] == [
        ("approved", "signal"),
        ("refused", "signal"),
        ("patience", "time"),
    ]
    assert waits[2]["until_us"] > stage.world.now_us


def test_five_reminders_in_ten_lines() -> None:
    process = Process("order", state=Order, services=[Service("mail")])
    steps: list[object] = []
    for round in reversed(range(5)):

        @process.action(name=f"ask-{round}", service="mail", operation="ask", write=True)
        async def ask(item: str) -> None: ...

        answer = process.receive(f"answer-{round}", channel="answer", writes="answer")
        patience = process.sleep(f"patience-{round}", 20 * SECOND_US)
        steps = [f"ask-{round}", process.first([answer], [patience, *steps])]
    stage = Rehearsal(process.flow(*steps), {"mail": {"ask": lambda item: None}})
    stage.start("o", item="bolt")
    stage.run_until(lambda: len(stage.effects("mail")) == 3)
    stage.signal("o", "answer", "at last")
    assert stage.finish("o").variables["answer"] == "at last"
    assert stage.effects("mail") == ["ask-0", "ask-1", "ask-2"]
    stage.check()


def test_an_instance_in_a_race_is_moved_to_a_version_with_another_wait_in_it() -> None:
    old, new = shop(), shop("called")
    assert len(moved_cut(old.graph, new.graph, tuple(old.graph.outgoing["first-1"]))) == 4
    stage = rehearsed(old)
    stage.deploy(old, new)
    stage.move("o", new)
    stage.run(seconds=1.0)
    stage.signal("o", "called", "by phone")
    assert stage.finish("o").variables["answer"] == "by phone"
    stage.check()


def test_a_race_is_explained_and_drawn() -> None:
    process = shop()
    groups = [group["actions"] for group in explain(process)["groups"]]
    assert any("ship" in group and "remind" in group for group in groups)
    assert "◷" in draw(process)


@pytest.mark.parametrize("wrong", ["one branch", "begins with an action", "twice the same", "nothing in it"])
def test_races_that_cannot_be_are_refused(wrong: str) -> None:
    process = Process("order", state=Order, services=[Service("mail")])

    @process.action(service="mail", write=True)
    async def ask(item: str) -> None: ...

    approved = process.receive("approved", writes="answer")
    patience = process.sleep("patience", SECOND_US)
    branches: dict[str, tuple[list[object], str]] = {
        "one branch": ([[approved, patience, ask]], "at least two waits"),
        "begins with an action": ([[approved], [ask, patience]], "begins with ask; let it begin with a receive"),
        "twice the same": (
            [[approved], [process.receive("again", channel="approved"), ask], [patience]],
            "two branches of first-1 receive the same",
        ),
        "nothing in it": ([[approved, patience, ask], []], "begins with first-1-join"),
    }
    steps, sentence = branches[wrong]
    if wrong != "twice the same":
        process.declared.pop("again")
    with pytest.raises(ProcessError, match=sentence):
        process.flow(process.first(*steps))


def test_the_checker_finds_a_race_that_two_have_won() -> None:
    """Definition 3.1: the decided execution follows the model, in which one wait ends the others."""
    process = shop()
    graph = process.graph
    model = Model(graph.vertices, graph.edges, process.initial({"item": "bolt"}), process.choose, process.fit)
    approved = Acted("approved", "m1", None, "yes", False)
    refused = Acted("refused", "m2", None, "no", False)
    asked = Acted("ask", "i1", {"item": "bolt"}, None, False)
    assert check_one_copy("o", model, "completed", [asked, refused], []) == []
    both = check_one_copy("o", model, "completed", [asked, refused, approved], [])
    assert "approved was executed, but the model was at" in str(both[0])
    nothing_won = check_one_copy("o", model, "completed", [asked], [])
    assert "whole execution of the model" in str(nothing_won[0])
