"""Conversations: a receive takes the answer to the question that counts, and no other."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from unerring import Process, Rehearsal, Service
from unerring.model import ProcessError
from unerring.processes import Mail, State, explain, process_text
from unerring.processes.mailbox import Mailbox


class Talk(msgspec.Struct):
    item: str = ""
    answer: str = ""
    items: list[str] = []
    answers: list[str] = []


def asking(rounds: bool = False) -> Process:
    process = Process("talk", state=Talk, services=[Service("partner")])

    @process.send(service="partner")
    async def ask(item: str) -> None: ...

    answer = process.receive("answer", writes="answer", answers=ask)
    if not rounds:
        return process.flow(ask, answer)
    return process.flow(process.each("items", [ask, answer], item="item", collect={"answers": "answer"}))


def staged(process: Process, seed: int = 0, **given: object) -> Rehearsal:
    stage = Rehearsal(process, {"partner": {"ask": lambda item: None}}, seed=seed)
    stage.start("t", **given)
    stage.run_until(lambda: stage.effects("partner") == ["ask"])
    return stage


def test_only_the_answer_to_its_question_is_received() -> None:
    stage = staged(asking(), item="bolt")
    stage.signal("t", "answer", "to nobody in particular")
    stage.signal("t", "answer", "to another one", answers="t/ask/7@3")
    stage.run(seconds=2.0)
    assert stage.query("t")["status"] == "running"
    stage.signal("t", "answer", "yes", answers=stage.journal("partner")[0].iid)
    assert stage.finish("t").variables["answer"] == "yes"
    stage.check()


@pytest.mark.parametrize("seed", range(4))
def test_an_answer_to_an_abandoned_question_is_never_consumed(seed: int) -> None:
    stage = Rehearsal(asking(), {"partner": {"ask": lambda item: None}}, seed=seed, silence={"partner": 1.0})
    stage.start("t", item="bolt")
    stage.run_until(lambda: len(stage.journal("partner")) == 1)
    old = stage.journal("partner")[0].iid
    stage.crash(stage.master("t"), for_s=4.0)
    stage.silence["partner"] = 0.0
    stage.world.crash("service:partner")
    stage.world.start("service:partner")
    stage.signal("t", "answer", "the old one", answers=old)
    stage.run_until(lambda: any(line.iid != old and line.what == "do" for line in stage.journal("partner")))
    new = next(line.iid for line in reversed(stage.journal("partner")) if line.what == "do")
    stage.run(seconds=1.0)
    stage.signal("t", "answer", "the new one", answers=new)
    assert stage.finish("t").variables["answer"] == "the new one"
    stage.check()


def test_each_round_has_a_conversation_of_its_own() -> None:
    stage = staged(asking(rounds=True), items=["a", "b"])
    first = stage.journal("partner")[0].iid
    stage.signal("t", "answer", "one", answers=first, id="1")
    stage.run_until(lambda: len(stage.effects("partner")) == 2)
    stage.signal("t", "answer", "one again", answers=first, id="2")
    stage.run(seconds=1.0)
    stage.signal("t", "answer", "two", answers=stage.journal("partner")[1].iid, id="3")
    assert stage.finish("t").variables["answers"] == ["one", "two"]
    stage.check()


def test_answers_in_a_conversation_that_is_over_do_not_fill_the_mailbox() -> None:
    process = asking(rounds=True)
    stage = staged(process, items=["a", "b"])
    stage.signal("t", "answer", "one", answers=stage.journal("partner")[0].iid)
    stage.run_until(lambda: len(stage.effects("partner")) == 2)
    stage.run(seconds=0.5)
    node = stage.world.machine(stage.master("t"))
    assert node is not None
    state: State = node.instances["t"].decided[1]
    asked = [action.iid for action in state.taken if action.vertex == "ask"]
    over = Mail("over", "answer", "", asked[0])
    outside = Mail("outside", "answer", "", "t/ask'1/0@0")
    present = Mail("present", "answer", "", asked[1])
    unknown = Mail("unknown", "answer", "", "t/ask'9/0@7")
    box = Mailbox([over, outside, present, unknown], 10, 1 << 20)
    dropped = box.drop_over(process.graph, state, decided_in=2)
    assert dropped == ["over"] if asked[1] == outside.answers else ["over", "outside"]
    assert unknown in box.mail


def test_what_cannot_be_is_refused_when_it_is_built() -> None:
    process = Process("talk", state=Talk, services=[Service("partner")])

    @process.send(service="partner")
    async def ask(item: str) -> None: ...

    answer = process.receive("answer", answers="nobody")
    with pytest.raises(ProcessError, match="receive answer answers 'nobody', which is no action before it"):
        process.flow(ask, answer)
    late = process.receive("late", answers=ask)
    with pytest.raises(ProcessError, match="receive late answers ask, which is in a loop that it is not in"):
        process.flow(process.each("items", [ask], item="item"), late, answer)
    keyed = process.receive("keyed", answers=ask, key="item")
    with pytest.raises(ProcessError, match="receive keyed has a key, so nobody answers with it"):
        process.flow(ask, keyed, late, answer)


def test_explain_warns_of_a_receive_that_may_take_the_answer_to_what_was_undone() -> None:
    def talk(**more: Any) -> Process:
        process = Process("talk", state=Talk, services=[Service("partner")])

        @process.send(service="partner")
        async def ask(item: str) -> None: ...

        @process.action(service="partner", write=True)
        async def book(item: str) -> None: ...

        return process.flow(book, ask, process.receive("answer", writes="answer", **more))

    (warning,) = explain(talk())["warnings"]
    assert warning.startswith("answer takes whatever comes on channel 'answer': after a failure ask may be undone")
    assert "warnings\n  answer takes whatever comes" in process_text(talk())
    assert "warnings" not in process_text(talk(answers="ask"))
    assert explain(talk(answers="ask"))["warnings"] == explain(talk(key="item"))["warnings"] == []
    assert explain(asking(rounds=True))["warnings"] == []
    final = Process("talk", state=Talk, services=[Service("partner")])

    @final.send(service="partner", compensable=False)
    async def tell(item: str) -> None: ...

    assert explain(final.flow(tell, final.receive("answer", writes="answer")))["warnings"] == []


MODEL = """<definitions xmlns="http://www.omg.org/spec/BPMN/20100524/MODEL" targetNamespace="t">
  <message id="question" name="question"/><message id="offer" name="offer"/><message id="other" name="other"/>
  <interface id="partner" name="partner"><operation id="ask" name="ask">
    <inMessageRef>t:question</inMessageRef>{out}
  </operation></interface>
  <process id="buy" isExecutable="true">
    <startEvent id="s"/><sendTask id="book"/><sendTask id="request" {request}/>
    <intermediateCatchEvent id="wait"><messageEventDefinition messageRef="{wait}">{operation}</messageEventDefinition>
    </intermediateCatchEvent><endEvent id="z"/>
    <sequenceFlow id="1" sourceRef="s" targetRef="book"/><sequenceFlow id="2" sourceRef="book" targetRef="request"/>
    <sequenceFlow id="3" sourceRef="request" targetRef="wait"/><sequenceFlow id="4" sourceRef="wait" targetRef="z"/>
  </process></definitions>"""
OUT = "<outMessageRef>offer</outMessageRef>"
AS_OPERATION = "<operationRef>ask</operationRef>"


@pytest.mark.parametrize(
    ("request_is", "out", "wait", "operation", "answers"),
    [
        ('operationRef="ask"', OUT, "offer", "", "request"),
        ('messageRef="question"', OUT, "t:offer", "", "request"),
        ('messageRef="question"', OUT, "other", AS_OPERATION, "request"),
        ('messageRef="question"', OUT, "other", "", ""),
        ('messageRef="other"', OUT, "offer", "", ""),
        ('operationRef="ask"', "", "offer", AS_OPERATION, ""),
    ],
)
def test_a_model_s_operation_pairs_a_request_with_its_answer(
    request_is: str, out: str, wait: str, operation: str, answers: str
) -> None:
    text = MODEL.format(request=request_is, out=out, wait=wait, operation=operation)
    process = Process.from_bpmn(text.encode(), service="work")
    assert process.graph.by_name["wait"].answers == answers
    assert bool(explain(process)["warnings"]) is not bool(answers)
    if answers:
        stage = Rehearsal(process, {"work": {"book": lambda: None, "request": lambda: None}})
        stage.start("t")
        stage.run_until(lambda: len(stage.effects("work")) == 2)
        stage.signal("t", process.graph.by_name["wait"].channel, "of nobody in particular")
        stage.run(seconds=1.0)
        assert stage.query("t")["status"] == "running"
        stage.signal("t", process.graph.by_name["wait"].channel, "yes", answers=stage.journal("work")[1].iid)
        assert stage.finish("t").status == "completed"
        stage.check()


@pytest.mark.parametrize(
    ("change", "answers"),
    [
        (("", ""), "request"),
        (('<sendTask id="book"/>', '<sendTask id="book" operationRef="ask"/>'), ""),
        (('id="ask"', ""), ""),
        (('sourceRef="book" targetRef="request"', 'sourceRef="book" targetRef="wait"'), ""),
    ],
)
def test_where_it_is_not_one_request_before_the_answer_nothing_is_paired(change: tuple[str, str], answers: str) -> None:
    """Two that ask the same, an operation that nothing names, and one that asks after its answer."""
    text = MODEL.format(request='operationRef="ask"', out=OUT, wait="offer", operation="").replace(*change)
    if 'targetRef="wait"' in change[1]:
        text = text.replace('sourceRef="request" targetRef="wait"', 'sourceRef="wait" targetRef="request"')
        text = text.replace('sourceRef="wait" targetRef="z"', 'sourceRef="request" targetRef="z"')
    assert Process.from_bpmn(text.encode(), service="work").graph.by_name["wait"].answers == answers


def test_what_a_program_says_of_a_wait_stands() -> None:
    text = MODEL.format(request='operationRef="ask"', out=OUT, wait="offer", operation="")
    process = Process("buy", services=[Service("work")])
    process.receive("wait", channel="own")
    process.flow_from(text.encode(), service="work")
    assert (process.graph.by_name["wait"].answers, process.graph.by_name["wait"].channel) == ("", "own")
