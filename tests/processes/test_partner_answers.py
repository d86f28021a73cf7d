"""A partner's answer to a message that a failed master had sent. A compensable send has another interaction id in each
view, so the partner may be asked twice and answer twice: only the answer to the one that counts may be received."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.processes.table import INSTANCE, Table, action
from unerring import Process as Built
from unerring.audit import Acted, Model, check_one_copy
from unerring.processes.build import Process
from unerring.processes.graph import Edge, Graph, Kind, Service, Variable, Vertex
from unerring.processes.messages import Mail, Replicate
from unerring.runtime.process_node import Embedded
from unerring.testing import Rehearsal

FIRST, SECOND = f"{INSTANCE}/ask/0@0", f"{INSTANCE}/ask/0@1"


def asks_and_waits() -> Process:
    """Reads a price, asks a partner whether it is accepted, waits for the answer."""
    ask = Vertex("ask", Kind.SEND, service="bank", operation="write", reads=("r",), write=True)
    answer = Vertex("answer", Kind.RECEIVE, channel="answer", writes=("x",))
    edges = (Edge("", "read"), Edge("read", "ask"), Edge("ask", "answer"), Edge("answer", ""))
    state = tuple(Variable(name, "int", 0) for name in "rxy")
    graph = Graph("p", (action("read", "", "r"), ask, answer), edges, state, (Service("bank"),))
    return Process.of(graph, {}, dict.fromkeys("rxy", int))


def asked_twice() -> Table:
    """The master of view 0 asks its partner, and nobody hears of it; the one of view 1 asks again."""
    table = Table(asks_and_waits())
    a, b, c = table.members
    table.start()
    table.deliver([a, b, c], lose=lambda to, message: isinstance(message, Replicate) and message.state.group > 1)
    table.ask_view(b)
    table.deliver([b, c])
    assert [line.iid for line in table.journal if line.what == "do"] == [FIRST, SECOND]
    return table


def post(table: Table, id: str, payload: int, answers: str) -> None:
    _, b, c = table.members
    for name in (b, c):
        table.post(name, Mail(id, "answer", payload, answers))
    table.deliver([b, c])


def received(table: Table) -> Any:
    replica = table.replica(table.members[1])
    assert replica.decided is not None
    return {action.vertex: action.reply for action in replica.decided[1].taken}.get("answer")


def test_the_answer_to_an_abandoned_send_is_not_received() -> None:
    table = asked_twice()
    post(table, "m0", 100, FIRST)
    assert received(table) is None, "it answers a question that does not count"
    post(table, "m1", 200, SECOND)
    assert received(table) == 200
    assert table.violations() == []


def test_also_not_by_a_replica_that_takes_over_with_the_mail_of_others() -> None:
    table = asked_twice()
    _, b, c = table.members
    post(table, "m0", 100, FIRST)
    table.restart(b)
    table.ask_view(c)
    table.deliver([b, c])
    replica = table.replica(c)
    assert replica.decided is not None
    assert [taken.vertex for taken in replica.decided[1].taken] == ["read", "ask"]
    assert [mail.id for mail in replica.inbox.mailbox.mail] == ["m0"]


def test_without_the_id_the_channel_alone_decides() -> None:
    """What docs/limits.md says: a partner that does not say what it answers is believed."""
    table = asked_twice()
    post(table, "m0", 100, "")
    assert received(table) == 100


def test_the_audit_finds_an_answer_to_what_does_not_count() -> None:
    process = asks_and_waits()
    graph = process.graph
    model = Model(graph.vertices, graph.edges, process.initial({}), process.choose, process.fit)
    acted = [
        Acted("read", f"{INSTANCE}/read/0@1", {}, 2, False),
        Acted("ask", SECOND, {"r": 2}, 1, False),
        Acted("answer", "m0", FIRST, 100, False),
    ]
    (found,) = check_one_copy(INSTANCE, model, "completed", acted, [])
    assert f"answer received m0, an answer to {FIRST}, which does not count" in str(found)
    acted[-1] = msgspec.structs.replace(acted[-1], request=SECOND)
    assert check_one_copy(INSTANCE, model, "completed", acted, []) == []


class Deal(msgspec.Struct):
    item: str = ""
    yes: int = 0
    done: int = 0


def deal() -> Built:
    process = Built("deal", state=Deal, services=[Service("partner"), Service("bank")])

    @process.send(service="partner")
    async def ask(item: str) -> None: ...

    @process.action(service="bank", writes="done", write=True)
    async def close(yes: int) -> int: ...

    return process.flow(ask, process.receive("answer", writes="yes"), process.receive("go"), close)


def test_going_back_over_a_send_does_not_give_its_answer_again() -> None:
    stage = Rehearsal(deal(), {"partner": {"ask": lambda item: None}, "bank": {"close": lambda yes: yes}})
    stage.start("d", item="bolt")
    stage.run_until(lambda: len(stage.journal("partner")) == 1)
    stage.signal("d", "answer", 1, answers=stage.journal("partner")[0].iid)
    stage.run_until(lambda: stage.query("d").get("variables", {}).get("yes") == 1)
    stage.retry("d", "ask")
    stage.run_until(lambda: stage.effects("partner").count("ask") == 1 and len(stage.journal("partner")) == 3)
    stage.signal("d", "go")
    stage.run(seconds=2.0)
    assert stage.query("d")["variables"]["yes"] == 0, "the old answer was to the old question"
    stage.signal("d", "answer", 2, answers=stage.journal("partner")[-1].iid)
    assert stage.finish("d").variables["done"] == 2
    stage.check()


def test_what_is_answered_must_be_an_interaction_of_the_instance(tmp_path: Any) -> None:
    import asyncio

    from unerring.model import ProcessError

    async def main() -> None:
        async with Embedded([deal()], tmp_path / "n.db") as engine:
            with pytest.raises(ProcessError, match="'e/ask/0@0' is not an interaction of d; give the Idempotency-Key"):
                await engine.signal("d", "answer", 1, answers="e/ask/0@0")

    asyncio.run(main())
