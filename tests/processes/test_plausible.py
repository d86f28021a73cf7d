"""What may be believed of a message, at the very bounds: the last state that can be, and the first that cannot."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from unerring import Process, Service
from unerring.model import ProtocolError
from unerring.processes.messages import (
    CANCEL,
    CHILD,
    FINAL,
    Decided,
    Mail,
    MailBag,
    Memory,
    Outline,
    Post,
    Publish,
    Published,
    Recalled,
    Replicate,
    State,
    Step,
    Taken,
    Vote,
)
from unerring.processes.packing import packed
from unerring.processes.plausible import AHEAD_US_MAX, check_known, check_message, check_sender, check_state

CHILDREN_MAX = 3


class Part(msgspec.Struct):
    item: str = ""
    note: str = ""


class Order(msgspec.Struct):
    item: str = ""
    items: list[str] = []
    notes: list[str] = []
    note: str = ""
    rounds: int = 0


def ordering() -> Process:
    """A block with a deadline, a loop of four rounds, and children over a list."""
    part, undo = Process("part", state=Part), Process("unpart", state=Part)
    part.flow(part.receive("go", writes="note"))
    undo.flow(undo.receive("went"))
    process = Process("ordering", state=Order, services=[Service("mail")])

    @process.action(service="mail", write=True)
    async def ask(item: str) -> None: ...

    @process.action(service="mail", write=True, writes="rounds")
    async def again(rounds: int) -> int: ...

    @process.condition
    def enough(rounds: int) -> bool:
        return rounds > 2

    return process.flow(
        process.within(9, [ask, process.receive("answer", writes="note")]),
        process.repeat([again], until=enough, at_most=4),
        process.child("parts", part, {"item": "items"}, returns="note", writes="notes", undo=undo, over="items"),
    )


PROCESS = ordering()
GRAPH = PROCESS.graph
KNOWN = {f"ordering@{GRAPH.version}": PROCESS}
[BLOCK] = GRAPH.blocks
[LOOP] = GRAPH.ends
EDGES = len(GRAPH.edges)
STEP = Step(0, GRAPH.start)
FIRST = State("i", "ordering", GRAPH.version, 3, (STEP,) * 3, GRAPH.start, PROCESS.initial({}))
BEYOND = Step(0, (EDGES,))
AT_PARTS = tuple(number for number, edge in enumerate(GRAPH.edges) if edge.target == "parts")


def in_round(number: int) -> Step:
    return Step(0, (0,), rounds={LOOP: number})


def done(group: int, vertex: str = "ask", request: Any = None, reply: Any = None) -> Taken:
    return Taken(vertex, f"i/{vertex}/0", request, reply, True, group, 0)


def believed(state: State, before: State | None = None, base: int = -1) -> bool:
    try:
        check_state(state, KNOWN, before, CHILDREN_MAX, base)
    except ProtocolError:
        return False
    return True


def with_items(*items: str) -> dict[str, Any]:
    return PROCESS.initial({}) | {"items": list(items)}


@pytest.mark.parametrize(
    ("can_be", "cannot_be"),
    [
        ({"group": 3}, {"group": 4}),
        ({"rewind": 3}, {"rewind": 4}),
        ({"moved": 3}, {"moved": 4}),
        ({"rewound": ((1, 3),)}, {"rewound": ((1, 4),)}),
        ({"cut": (EDGES - 1,)}, {"cut": (EDGES,)}),
        ({"cut": (0,)}, {"cut": (-1,)}),
        ({"lineage": (Step(0, (EDGES - 1,)),) * 3}, {"lineage": (STEP, STEP, Step(0, (EDGES,)))}),
        ({"lineage": (STEP, BEYOND, STEP), "moved": 2}, {"lineage": (STEP, STEP, BEYOND), "moved": 2}),
        ({"rounds": {LOOP: 3}}, {"rounds": {LOOP: 4}}),
        ({"rounds": {LOOP: 0}}, {"rounds": {LOOP: -1}}),
        ({"lineage": (STEP, STEP, in_round(3))}, {"lineage": (STEP, STEP, in_round(4))}),
        ({"turn": EDGES - 1}, {"turn": EDGES}),
        ({"blocks": {BLOCK: (3, 1)}}, {"blocks": {BLOCK: (4, 1)}}),
        ({"blocks": {}}, {"blocks": {"ask": (1, 1)}}),
        ({"announced": "ask"}, {"announced": "nothing"}),
        ({"taken": (done(1), done(1), done(3))}, {"taken": (done(1), done(4))}),
        ({"taken": (done(1),)}, {"taken": (done(0),)}),
        ({"taken": (done(1), done(2))}, {"taken": (done(2), done(1))}),
        ({"taken": (done(1), done(2), done(3))}, {"taken": (done(1), done(3), done(2))}),
        ({"variables": PROCESS.initial({}) | {"rounds": None}}, {"variables": PROCESS.initial({}) | {"rounds": "x"}}),
        ({"variables": with_items("a"), "cut": AT_PARTS}, {"variables": {"items": []}, "cut": AT_PARTS}),
        ({"status": FINAL[-1]}, {"status": "over"}),
        ({"given": {"item": "x"}}, {"given": {"item": 7}}),
        ({"given": {"item": 7}, "moved": 1}, {"given": {"unknown": 7}}),
    ],
)  # fmt: skip
def test_the_last_state_that_can_be_is_believed_and_the_first_that_cannot_is_not(
    can_be: dict[str, Any], cannot_be: dict[str, Any]
) -> None:
    assert believed(msgspec.structs.replace(FIRST, **can_be))
    assert not believed(msgspec.structs.replace(FIRST, **cannot_be))


@pytest.mark.parametrize(
    ("request_", "reply", "is_believed"),
    [
        (with_items("a", "b"), ["x", "y"], True),
        (with_items("a", "b"), None, True),  # one of them failed
        (with_items("a", "b"), ["x"], False),
        (with_items("a", "b"), ["x", "y", "z"], False),
        (with_items(*"abc"), ["x"] * 3, True),
        (with_items(*"abcd"), ["x"] * 4, False),
        ({}, None, False),
    ],
)
def test_children_that_were_done_have_as_many_ends_as_there_were(request_: Any, reply: Any, is_believed: bool) -> None:
    state = msgspec.structs.replace(FIRST, taken=(done(2, "parts", request_, reply),))
    assert believed(state) is is_believed


def test_what_a_state_shares_with_the_one_before_is_not_looked_at_again() -> None:
    strange = {
        "variables": PROCESS.initial({}) | {"rounds": "x"},
        "taken": (done(1, "parts", {}),),
        "given": {"unknown": 7},
    }
    for name, value in strange.items():
        before = msgspec.structs.replace(FIRST, **{name: value})
        assert not believed(before)
        assert believed(before, before), name
    two = msgspec.structs.replace(FIRST, taken=(done(1), done(2)))
    assert believed(two, msgspec.structs.replace(FIRST, taken=two.taken[:1])), "what is new is looked at, and fits"
    changed = msgspec.structs.replace(FIRST, taken=(done(1, "parts", {}), done(2, "parts", {})))
    assert not believed(changed, msgspec.structs.replace(FIRST, taken=changed.taken[:1]))
    other = msgspec.structs.replace(FIRST, variables=strange["variables"], version="other")
    assert not believed(msgspec.structs.replace(FIRST, variables=strange["variables"]), other), (
        "types of another version"
    )


def test_a_state_that_only_adds_to_a_group_begins_there() -> None:
    rest = msgspec.structs.replace(FIRST, lineage=(STEP,), taken=(done(3),), given={"unknown": 7})
    assert [believed(rest, FIRST, base) for base in (1, 2, 3)] == [False, True, False]
    strange = msgspec.structs.replace(rest, taken=(done(3, "parts", {}),))
    assert not believed(strange, msgspec.structs.replace(FIRST, taken=strange.taken), 2), (
        "it stands at another place there"
    )
    whole = msgspec.structs.replace(FIRST, taken=strange.taken, given={"unknown": 7})
    assert not believed(whole, whole, 0)
    assert believed(msgspec.structs.replace(whole, taken=()), FIRST, 0), "its input comes from the one before"
    rest = msgspec.structs.replace(rest, lineage=(BEYOND,))
    assert [believed(msgspec.structs.replace(rest, moved=moved), FIRST, 2) for moved in (2, 3)] == [False, True]
    for message in (Replicate(0, rest, 2), Decided(0, rest)):
        with pytest.raises(ProtocolError, match="state"):
            check_message(message, KNOWN, FIRST, CHILDREN_MAX)


def test_of_a_process_that_is_not_here_only_the_frame_is_known() -> None:
    other = msgspec.structs.replace(FIRST, version="other", cut=(EDGES,), variables={})
    assert believed(other)
    for change in ({"group": 4}, {"taken": (done(4),)}, {"taken": (done(0),)}):
        assert not believed(msgspec.structs.replace(other, **change))


def test_a_packed_history_is_looked_at_once_and_whole() -> None:
    def a_round(number: int, **fields: Any) -> Taken:
        return msgspec.structs.replace(done(number, "again"), **fields)

    def packing(*taken: Taken, lineage: tuple[Step, ...] = (in_round(0),) * 3) -> State:
        return packed(msgspec.structs.replace(FIRST, lineage=lineage, taken=taken, rounds={LOOP: 3}), 2)

    good = packing(a_round(1), a_round(2), a_round(3))
    assert (good.unpacked_from, len(good.lineage), len(good.taken)) == (2, 1, 1)
    assert believed(good)
    for bad in (
        packing(a_round(1), a_round(2, vertex="nothing"), a_round(3)),
        packing(a_round(1), lineage=(in_round(0), BEYOND, in_round(2))),
        packing(a_round(1), lineage=(in_round(0), in_round(4), in_round(2))),
    ):
        assert bad.past
        assert not believed(bad)
        assert not believed(bad, good)
        assert believed(bad, bad), "it was looked at when it came"
    beyond = packing(a_round(1), lineage=(in_round(0), in_round(1), BEYOND))
    assert [believed(msgspec.structs.replace(beyond, moved=moved)) for moved in (2, 3)] == [False, True]


MEMORY = Memory("i", 2, 1, FIRST, (Mail("m", "go", 1),))
END = {"status": "failed", "reason": "", "value": None}


@pytest.mark.parametrize(
    ("can_be", "cannot_be"),
    [
        (Vote("i", 2, 2, FIRST, (), 0), Vote("i", 2, 3, FIRST, (), 0)),
        (Vote("i", 2, -1, None, (), 0), Vote("j", 2, 1, FIRST, (), 0)),
        (Vote("i", 2, 1, None, MEMORY.mail, 0), Vote("i", 2, 1, None, (Mail("a|b", "go", 1),), 0)),
        (Vote("i", 2, 1, FIRST, (), 0), Vote("i", 2, 1, msgspec.structs.replace(FIRST, turn=EDGES), (), 0)),
        (MailBag("i", MEMORY.mail), MailBag("i", (*MEMORY.mail, Mail("a|b", "go", 1)))),
        (Post("i", Mail("i+c", CHILD, END)), Post("i", Mail("i+c", CHILD, END | {"status": "running"}))),
        (Post("i", Mail("i+c", CHILD, END | {"more": 1})), Post("i", Mail("i+c", CHILD, {"status": "failed"}))),
        (Post("i", Mail("m", "go", [1])), Post("i", Mail("m", CANCEL, [1]))),
        (Post("i", Mail("m", CANCEL, None)), Post("i", Mail("m", CANCEL, 7))),
        (Post("i", Mail("m", CANCEL, "why")), Post("i|j", Mail("m", CANCEL, "why"))),
        (Publish("p", "c|d", "k|l", 1), Publish("p|q", "c", "k", 1)),
    ],
)
def test_messages_are_believed_up_to_what_nobody_can_mean(can_be: Any, cannot_be: Any) -> None:
    check_message(can_be, KNOWN, None, CHILDREN_MAX)
    with pytest.raises(ProtocolError):
        check_message(cannot_be, KNOWN, None, CHILDREN_MAX)


@pytest.mark.parametrize(
    ("changes", "is_believed"),
    [
        ({}, True),
        ({"accepted_in": 2}, True),
        ({"accepted_in": 3}, False),
        ({"instance": "j"}, False),
        ({"instance": "j", "state": None}, True),
        ({"instance": "j/k", "state": None}, False),
        ({"state": msgspec.structs.replace(FIRST, turn=EDGES)}, False),
        ({"state": None, "outline": Outline("ordering", "failed", "", {})}, True),
        ({"mail": (Mail("a|b", "go", 1),)}, False),
    ],
)
def test_a_memory_that_contradicts_itself_is_not_believed(changes: dict[str, Any], is_believed: bool) -> None:
    page = Recalled(1, 0, True, memories=(MEMORY, msgspec.structs.replace(MEMORY, **changes)))
    if is_believed:
        check_message(page, KNOWN, None, CHILDREN_MAX)
        return
    with pytest.raises(ProtocolError):
        check_message(page, KNOWN, None, CHILDREN_MAX)


def test_ids_of_publications_on_a_page_are_looked_at() -> None:
    one = Published("c", "k", 1, 0)
    check_message(Recalled(1, 0, True, published={"p": one}), KNOWN, None, CHILDREN_MAX)
    with pytest.raises(ProtocolError, match="invalid message id"):
        check_message(Recalled(1, 0, True, published={"p": one, "p|q": one}), KNOWN, None, CHILDREN_MAX)


def test_incarnations_are_those_of_nodes_and_not_of_a_far_future() -> None:
    nodes = ("a", "b")
    check_known({"a": 7 + AHEAD_US_MAX, "b": 1}, nodes, 7)
    for known in ({"b": 1, "a": 8 + AHEAD_US_MAX}, {"a": 1, "c": 1}):
        with pytest.raises(ProtocolError, match="which cannot be"):
            check_known(known, nodes, 7)


def test_publications_and_posts_may_come_from_anybody_and_words_of_nodes_from_nodes_alone() -> None:
    for sender in ("a", "partner", "service:mail"):
        for message in (Post("i", Mail("m", "go", 1)), Publish("p", "c", "k", 1)):
            check_sender(sender, message, ("a",))
    check_sender("a", MailBag("i", ()), ("a",))
    with pytest.raises(ProtocolError, match="MailBag from 'b', which may not send it"):
        check_sender("b", MailBag("i", ()), ("a",))
