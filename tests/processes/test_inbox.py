"""Messages of partners on one replica: what is stored, acknowledged, handed on, received, and forgotten."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.processes.alone import INSTANCE, Alone
from unerring import Process, Service
from unerring.processes.config import ProcessesConfig
from unerring.processes.context import IDLE_US
from unerring.processes.mailbox import Mailbox, conversation
from unerring.processes.messages import (
    CANCEL,
    CHILD,
    Ack,
    AskMail,
    Mail,
    MailBag,
    Post,
    Publish,
    Replicate,
    State,
    Step,
    Stored,
    Taken,
)
from unerring.processes.packing import packed


class Talk(msgspec.Struct):
    item: str = "bolt"
    answer: str = ""
    paid: int = 0


def talk() -> Process:
    """Asks, and waits for the answer and for a payment of its key."""
    process = Process("talk", state=Talk, services=[Service("mail")])

    @process.send(service="mail")
    async def ask(item: str) -> None: ...

    answer = process.receive("answer", writes="answer", answers=ask)
    paid = process.receive("paid", writes="paid", key="item")
    return process.flow(ask, process.both([answer], [paid]))


def asked(*iids: str, **fields: Any) -> State:
    taken = tuple(Taken("ask", iid, None, None, True, group, 0) for group, iid in enumerate(iids, 1))
    return msgspec.structs.replace(State("i", "talk", "v", len(iids), (), (), {}, taken), **fields)


# --- the mailbox ---


def test_a_receive_gets_the_first_message_that_counts() -> None:
    plain, good, stray, other = (
        Mail("m1", "answer", 1),
        Mail("m2", "answer", 2, "i/ask/0@0"),
        Mail("m3", "answer", 3, "i/ask/0@7"),
        Mail("m4", "other", 4),
    )
    box = Mailbox([plain, good, stray, other], 10, 1 << 20)
    state = asked("i/ask/0@0")
    assert box.waiting("answer", state) == plain
    assert box.waiting("answer", state, ["m1"]) == good
    assert box.waiting("answer", state, ["m1", "m2"]) is None, "the third answers what does not count"
    assert box.waiting("answer", asked("i/ask/0@0", consumed=("m1", "m2"))) is None
    assert box.waiting("answer", asked("i/ask/0@7", consumed=("m1",))) == stray
    assert box.waiting("answer", state, asked="i/ask/0@0") == good
    assert box.waiting("answer", state, asked="i/ask/0@7") is None
    assert box.waiting("nothing", state) is None
    assert list(box.all_of(("answer", "other"), ["m2"])) == [plain, stray, other]
    assert list(box.all_of(("other",), [])) == [other]
    assert list(Mailbox([], 1, 1).all_of(("other",), [])) == []


def test_commands_and_ends_of_children_always_find_room() -> None:
    box = Mailbox([Mail("m1", "answer", 1)], 1, 1 << 20)
    assert [box.store(Mail("c", CANCEL, None)), box.store(Mail("i+a", CHILD, {}))] == [True, True]
    assert [box.store(Mail("c", CANCEL, None)), box.store(Mail("m1", "answer", 9))] == [False, False]
    assert (box.store(Mail("m2", "answer", 2)), box.store(Mail("m2", "answer", 2), beyond=True)) == (None, True)
    assert [mail.id for mail in box.mail] == ["m1", "c", "i+a", "m2"]
    first = Mail("m1", "answer", "x")
    size = len(msgspec.msgpack.encode(first))
    assert Mailbox([Mail("c", CANCEL, "y" * 100)], 9, size).store(first), "a command takes no room from partners"


def test_what_was_consumed_goes_and_children_of_a_list_go_together() -> None:
    kept = [
        Mail("m2", "answer", 1),
        Mail("list+0~1", CHILD, {}),
        Mail("list+7", "answer", 1),
        Mail("other+0", CHILD, {}),
    ]
    gone = [Mail("m1", "answer", 1), Mail("list+0", CHILD, {}), Mail("list+1", CHILD, {})]
    box = Mailbox([*kept, *gone], 100, 1 << 20)
    assert box.drop(("m1", "list")) == ["m1", "list+0", "list+1"]
    assert box.mail == tuple(kept)
    assert box.drop(("m1", "list")) == []
    assert Mailbox([], 1, 1).drop(("m1",)) == []


def test_answers_in_conversations_that_are_over_are_forgotten() -> None:
    graph = talk().graph
    state = asked("i/ask'0/0@1", "i/ask'1/0@3")
    over = {"again": "i/ask'0/0@1", "outside": "i/ask'1/0@2"}
    live = {
        "now": "i/ask'1/0@3",
        "may come": "i/ask'2/0@3",
        "no view": "i/ask'2/0",
        "backup": "i/ask'2/0@b1",
        "none": "",
    }
    mail = [Mail(id, "answer", 1, answers) for id, answers in (over | live).items()]
    elsewhere = [Mail("elsewhere", "paid", 1, "i/ask'0/0@1"), Mail("nowhere", "x", 1, "i/ask'0/0@1")]
    box = Mailbox([*mail, *elsewhere], 100, 1 << 20)
    assert box.drop_over(graph, state, decided_in=3) == ["again", "outside"]
    assert [mail.id for mail in box.mail] == [*live, "elsewhere", "nowhere"]
    assert box.drop_over(graph, state, decided_in=4) == ["may come"]
    assert Mailbox([Mail("m", "answer", 1)], 1, 1).drop_over(graph, state, 9) == []


def test_a_conversation_is_about_the_last_question_however_long_ago() -> None:
    vertex = talk().graph.by_name["answer"]
    state = asked("i/ask'0/0@1", "i/ask'1/0@3", rounds={"l": 1})
    assert conversation(vertex, state) == "i/ask'1/0@3"
    assert conversation(vertex, asked()) == ""
    assert conversation(talk().graph.by_name["paid"], state) == ""
    steps = tuple(Step(0, ()) for _ in range(2))
    long_ago = packed(msgspec.structs.replace(state, lineage=steps), 2)
    assert (len(long_ago.past), len(long_ago.taken)) == (1, 1)
    assert conversation(vertex, long_ago) == "i/ask'1/0@3"
    assert conversation(vertex, msgspec.structs.replace(long_ago, taken=())) == "i/ask'0/0@1"


# --- the inbox ---


def waiting(**bounds: int) -> Alone:
    """A replica of an instance that has asked, and waits for both messages; its leader is the first of the others."""
    process = talk()
    it = Alone(process, **bounds)
    graph = process.graph
    cut = tuple(number for number, edge in enumerate(graph.edges) if edge.target in ("answer", "paid"))
    taken = (Taken("ask", "i/ask/0@0", {"item": "bolt"}, None, True, 1, 0),)
    state = it.state(1, cut=cut, taken=taken)
    assert it.hear(it.others[0], Replicate(0, state)) == [(it.others[0], Ack(INSTANCE, 0, 1))]
    return it


def received(it: Alone, *used: str) -> dict[str, str | None]:
    state = it.replica.acceptor.accepted
    assert state is not None
    found = {
        name: it.replica.inbox.mail_for(it.process.graph.by_name[name], state.state, list(used))
        for name in ("answer", "paid")
    }
    return {name: mail.id if mail is not None else None for name, mail in found.items()}


def test_a_message_is_on_disk_before_it_is_acknowledged() -> None:
    it = waiting()
    answer = Mail("m1", "answer", "yes", "i/ask/0@0")
    for _ in range(2):
        assert (("partner", Stored(INSTANCE, "m1")) in it.hear("partner", Post(INSTANCE, answer))) is True
        assert it.record("mail/m1", Mail) == answer
        it.restart()
    assert it.replica.inbox.keys == ["mail/m1"]
    assert received(it) == {"answer": "m1", "paid": None}
    state = it.replica.acceptor.accepted
    assert state is not None
    assert received(it, "m1") == {"answer": None, "paid": None}
    done = msgspec.structs.replace(it.state(2, cut=state.state.cut), taken=state.state.taken, consumed=("m1",))
    it.hear(it.others[0], Replicate(0, done))
    it.hear(it.others[0], Replicate(0, msgspec.structs.replace(it.state(3), taken=done.taken, consumed=("m1",))))
    assert it.record("mail/m1", Mail) is None, "a decided state has it"
    assert ("partner", Stored(INSTANCE, "m1")) in it.hear("partner", Post(INSTANCE, answer))
    assert it.record("mail/m1", Mail) is None


def test_without_room_only_what_is_waited_for_is_taken() -> None:
    it = waiting(mail_max=1)
    early = Mail("e1", "later", 1)
    assert ("partner", Stored(INSTANCE, "e1")) in it.hear("partner", Post(INSTANCE, early))
    assert it.hear("partner", Post(INSTANCE, Mail("e2", "later", 1))) == []
    assert it.reports.count("mailbox_full") == 1
    assert it.hear("partner", Post(INSTANCE, Mail("e3", "answer", "no", "i/ask/0@9"))) == []
    answer = Mail("m1", "answer", "yes", "i/ask/0@0")
    assert ("partner", Stored(INSTANCE, "m1")) in it.hear("partner", Post(INSTANCE, answer))
    assert it.hear("partner", Post(INSTANCE, Mail("m2", "paid=bolt", 3))) == [], "one that it can go on with is there"
    assert it.reports.count("mailbox_full") == 3
    assert it.replica.inbox.keys == ["mail/e1", "mail/m1"]


def test_what_was_received_before_going_back_comes_first() -> None:
    it = waiting()
    it.hear("partner", Post(INSTANCE, Mail("m1", "answer", "yes", "i/ask/0@0")))
    assert received(it)["answer"] == "m1"
    accepted = it.replica.acceptor.accepted
    assert accepted is not None
    back = Mail("m0'1", "answer", "as before", "i/ask/0@0")
    receive = it.process.graph.by_name["answer"]

    def first(*returned: Mail, used: tuple[str, ...] = (), **fields: Any) -> str:
        state = msgspec.structs.replace(accepted.state, returned=returned, **fields)
        mail = it.replica.inbox.mail_for(receive, state, list(used))
        return mail.id if mail is not None else ""

    assert first(back) == "m0'1"
    assert first(back, used=("m0'1",)) == first(back, consumed=("m0'1",)) == "m1"
    for other in ({"channel": "paid"}, {"answers": "i/ask/0@9"}, {"answers": ""}):
        assert first(msgspec.structs.replace(back, **other)) == "m1"
    assert first(back, taken=()) == "", "nobody asked"


def test_what_was_published_with_its_key_becomes_its_mail() -> None:
    it = waiting()
    it.hear("partner", Publish("p1", "paid", "nut", 1))
    it.hear("partner", Publish("p2", "answer", "bolt", 2))
    assert it.hear(it.others[1], AskMail(INSTANCE)) == []
    it.hear("partner", Publish("p3", "paid", "bolt", 3))
    [(to, bag)] = it.hear(it.others[1], AskMail(INSTANCE))
    assert (to, bag) == (it.others[1], MailBag(INSTANCE, (Mail("p3", "paid=bolt", 3),)))
    assert received(it) == {"answer": None, "paid": "p3"}
    accepted = it.replica.acceptor.accepted
    assert accepted is not None
    state = it.state(2, cut=accepted.state.cut, taken=accepted.state.taken, consumed=("p3",))
    it.hear(it.others[0], Replicate(0, state))
    it.do("inbox.drop", state, 0)
    assert it.hear(it.others[1], AskMail(INSTANCE)) == []


@pytest.mark.parametrize("pause_us_max", [1_000_000, 5_000_000])
def test_who_waits_long_offers_and_asks_seldom(pause_us_max: int) -> None:
    config = ProcessesConfig(mail_pause_us_max=pause_us_max, mail_ask_us_max=60_000_000)
    it = Alone(talk(), config=config)
    it.hear(it.others[0], Replicate(0, it.state()))
    inbox = it.replica.inbox
    assert it.do("inbox.offer", 10**9) == [], "there is nothing to offer"
    mail = Mail("m1", "answer", "yes", "i/ask/0@0")
    it.hear("partner", Post(INSTANCE, mail))
    began_us = it.now
    pauses = []
    for _ in range(7):
        due_us = inbox.offer_us
        pauses.append(due_us - began_us)
        assert it.do("inbox.offer", due_us - 1) == []
        assert it.do("inbox.offer", due_us) == [(it.others[0], MailBag(INSTANCE, (mail,)))]
        began_us = due_us
    assert pauses == [min(200_000 << number, pause_us_max) for number in range(7)]
    it.now = began_us
    it.hear("partner", Post(INSTANCE, Mail("m2", "answer", "yes", "i/ask/0@0")))
    assert inbox.offer_us == began_us + 200_000, "what is new is offered soon"
    it.hear("partner", Post(INSTANCE, mail))
    asks = []
    began_us = inbox.ask_us - 200_000
    for _ in range(8):
        due_us = inbox.ask_us
        asks.append(due_us - began_us)
        assert it.do("inbox.ask", due_us - 1) == []
        assert it.do("inbox.ask", due_us) == [(other, AskMail(INSTANCE)) for other in it.others]
        began_us = due_us
    assert asks == [min(50_000 << 2 * number, 60_000_000) for number in range(1, 9)]
    it.do("inbox.ask_soon")
    assert inbox.ask_us == began_us + 200_000
    assert IDLE_US <= 60_000_000
