"""Waiting with an end: blocks with a deadline, and children that race."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from unerring import Limits, Process, Refused, Rehearsal, Service
from unerring.model import SECOND_US, ProcessError
from unerring.processes import draw, process_text


class Order(msgspec.Struct):
    item: str = ""
    answer: str = ""
    label: str = ""
    items: list[str] = []


def shop(final: bool = False, more: bool = False, **options: Any) -> Process:
    """Reserves and waits for an answer, a second at most; else it goes on without either."""
    process = Process("shop", state=Order, services=[Service("mail")], **options)

    @process.action(service="mail", write=True, compensable=not final)
    async def reserve(item: str) -> None: ...

    @process.action(service="mail", write=True)
    async def book(answer: str) -> None: ...

    @process.action(service="mail", write=True)
    async def apologise(item: str) -> None: ...

    answer = process.receive("answer", writes="answer")
    block = process.within(SECOND_US, [reserve, answer, book], otherwise=[apologise])
    return process.flow(block, *([process.receive("done", writes="label")] if more else []))


def staged(process: Process, seed: int = 0, limited: bool = False, **fakes: Any) -> Rehearsal:
    mail: dict[str, Any] = dict.fromkeys(("reserve", "apologise", "ask"), lambda item: None)
    fakes = {"mail": mail | {"book": lambda answer: None} | fakes}
    return Rehearsal(process, fakes, limits={"mail": Limits(at_once=9)} if limited else None, seed=seed)


def test_a_block_that_is_over_in_time_goes_on() -> None:
    stage = staged(shop())
    stage.start("o", item="bolt")
    stage.run_until(lambda: stage.effects("mail") == ["reserve"])
    stage.signal("o", "answer", "yes")
    assert stage.finish("o").status == "completed"
    assert stage.effects("mail") == ["reserve", "book"]
    stage.check()


def test_a_block_that_is_late_is_undone_and_the_other_branch_taken() -> None:
    stage = staged(shop())
    stage.start("o", item="bolt")
    stage.run_until(lambda: stage.effects("mail") == ["reserve"])
    assert {wait["wait"] for wait in stage.query("o")["waits_for"]} <= {"answer", "within-1"}
    end = stage.finish("o")
    assert end.status == "completed"
    assert stage.effects("mail") == ["apologise"]
    assert [f"{line.what} {line.action}" for line in stage.journal("mail")] == [
        "do reserve",
        "undo reserve",
        "do apologise",
    ]
    stage.check()


@pytest.mark.parametrize("seed", range(4))
def test_a_master_that_dies_while_a_late_block_is_undone(seed: int) -> None:
    stage = staged(shop(), seed)
    stage.start("o", item="bolt")
    stage.run_until(lambda: any(line.what == "undo" for line in stage.journal("mail")))
    stage.crash(stage.master("o"), for_s=1.0)
    assert stage.finish("o").status == "completed"
    assert stage.effects("mail") == ["apologise"]
    stage.check()


def test_what_cannot_be_undone_keeps_its_block() -> None:
    stage = staged(shop(final=True))
    stage.start("o", item="bolt")
    stage.run(seconds=3.0)
    assert stage.effects("mail") == ["reserve"]
    stage.signal("o", "answer", "late, but in the end")
    assert stage.finish("o").status == "completed"
    assert stage.effects("mail") == ["reserve", "book"]
    stage.check()


def test_five_rounds_of_ask_and_remind_each_with_its_deadline() -> None:
    process = Process("survey", state=Order, services=[Service("mail")])

    @process.action(service="mail", write=True)
    async def ask(item: str) -> None: ...

    @process.condition
    def answered(answer: str) -> bool:
        return answer != ""

    block = process.within(SECOND_US, [ask, process.receive("answer", writes="answer")])
    process.flow(process.repeat([block], until=answered, at_most=5))
    stage = staged(process)
    stage.start("o", item="bolt")
    stage.run_until(lambda: len([line for line in stage.journal("mail") if line.what == "do"]) == 3)
    stage.signal("o", "answer", "yes")
    assert stage.finish("o").variables["answer"] == "yes"
    assert stage.effects("mail") == ["ask"]  # what was asked in vain is undone
    stage.check()


def gone_back(stage: Rehearsal, step: str, undone: int) -> None:
    """Go back to before a step, whose service then waits until its block is late."""
    stage.retry("o", step)
    stage.run_until(lambda: [line.what for line in stage.journal("mail")].count("undo") == undone)
    stage.pause_service("mail")
    stage.run(seconds=2.0)


def test_a_block_that_was_gone_back_to_may_be_late() -> None:
    stage = staged(shop(more=True), limited=True)
    stage.start("o", item="bolt")
    stage.signal("o", "answer", "yes")
    stage.run_until(lambda: stage.effects("mail") == ["reserve", "book"])
    gone_back(stage, "reserve", undone=2)
    stage.signal("o", "done", "so")
    stage.run(seconds=0.5)
    assert stage.query("o")["variables"]["label"] == "", "what is behind the block is not there yet"
    stage.resume_service("mail")
    assert stage.finish("o").variables["label"] == "so"
    assert stage.effects("mail") == ["apologise"]
    stage.check()


def test_a_block_of_an_earlier_round_begins_anew() -> None:
    """A deadline of a later round, and where that began, are nothing to it."""
    process = Process("survey", state=Order, services=[Service("mail")])

    @process.action(service="mail", write=True)
    async def ask(item: str) -> None: ...

    @process.condition
    def answered(answer: str) -> bool:
        return answer == "yes"

    block = process.within(SECOND_US, [ask, process.receive("answer", writes="answer")])
    process.flow(process.repeat([block], until=answered, at_most=3))
    stage = staged(process, limited=True)
    stage.start("o", item="bolt")
    stage.signal("o", "answer", "no")
    stage.run_until(lambda: stage.effects("mail") == ["ask", "ask"])
    gone_back(stage, "ask'0", undone=2)
    stage.resume_service("mail")
    stage.run_until(lambda: stage.effects("mail") == ["ask"])
    stage.signal("o", "answer", "yes")
    assert stage.finish("o").status == "completed"
    stage.check()


def test_a_message_that_a_late_block_received_is_received_again() -> None:
    process = Process("order", state=Order)
    first = process.receive("first", channel="answer", writes="label")
    never = process.receive("never", writes="label")
    again = process.receive("again", channel="answer", writes="answer")
    process.flow(process.within(SECOND_US, [first, never], otherwise=[again]))
    stage = Rehearsal(process)
    stage.start("o")
    stage.signal("o", "answer", "yes")
    end = stage.finish("o")
    assert (end.variables["answer"], end.variables["label"]) == ("yes", "")
    stage.check()


def raced(undo: bool = True, works: bool = True) -> Process:
    """A child that wraps, a customer who may call, and a second of patience."""
    parcel = Process("parcel", state=Order, services=[Service("mail")])

    @parcel.action(service="mail", write=True, writes="label")
    async def wrap(item: str) -> str:
        return item

    parcel.flow(wrap, *([] if works else [parcel.receive("never")]))
    recall = Process("recall", state=Order, services=[Service("mail")])

    @recall.action(service="mail", write=True)
    async def unwrap(item: str) -> None: ...

    recall.flow(unwrap)
    process = Process("order", state=Order)
    wrapping = process.child(
        "wrapping",
        parcel,
        {"item": "item"},
        returns="label",
        writes="label",
        undo=recall if undo else None,
        compensable=undo,
    )
    called = process.receive("called", writes="answer")
    return process.flow(process.first([wrapping], [called], [process.sleep("patience", SECOND_US)]))


def racing(process: Process, seed: int = 0) -> Rehearsal:
    fakes = {"wrap": lambda item: f"[{item}]", "unwrap": lambda item: None}
    stage = Rehearsal(process, {"mail": fakes}, seed=seed)
    stage.start("o", item="bolt")
    return stage


def test_a_child_that_ends_first_wins() -> None:
    stage = racing(raced())
    assert stage.finish("o").variables["label"] == "[bolt]"
    assert stage.effects("mail") == ["wrap"]
    stage.check()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("called", [False, True])
def test_a_child_that_loses_is_cancelled_and_undone_first(called: bool, seed: int) -> None:
    stage = racing(raced(works=False), seed)
    stage.run_until(lambda: stage.effects("mail") == ["wrap"])
    if called:
        stage.signal("o", "called", "never mind")
    end = stage.finish("o")
    assert end.status == "completed"
    assert end.variables["answer"] == ("never mind" if called else "")
    assert stage.effects("mail") == []
    stage.check()


def test_blocks_are_explained_and_drawn() -> None:
    assert "within-1: after 1 s it is undone, and late taken" in process_text(shop())
    assert "◔" in draw(shop())


def test_an_instance_that_fails_in_its_block_is_undone_as_any() -> None:
    def refuse(answer: str) -> None:
        raise Refused("no", for_good=True)

    stage = staged(shop(), book=refuse)
    stage.start("o", item="bolt")
    stage.signal("o", "answer", "yes")
    assert stage.finish("o").status == "failed"
    assert stage.effects("mail") == []
    stage.check()


def test_what_cannot_be_is_refused_when_it_is_built() -> None:
    with pytest.raises(ProcessError, match="child wrapping races, so it must be possible to undo it"):
        raced(undo=False)
    process = Process("order", state=Order)

    @process.action(writes="label")
    async def act(item: str) -> str:
        return item

    @process.action(writes="answer")
    async def other(item: str) -> str:
        return item

    with pytest.raises(ProcessError, match=r"block within-1 has no time; give within\(\) a duration"):
        process.flow(process.within(0, [act]), other)
    with pytest.raises(ProcessError, match="other runs beside block within-3, which would undo it if it is late"):
        process.flow(process.both([process.within(SECOND_US, [act])], [other]))
