"""A bad peer costs its link, never the node: what no peer can mean is refused before anything of it is believed."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from tests.processes.table import one_write
from unerring.model import FrameError, Persist, ProtocolError, Report, Send
from unerring.processes.config import ClusterBounds
from unerring.processes.grouping import Grouping
from unerring.processes.messages import (
    AGAIN,
    CHILD,
    VIEW_MAX,
    Accepted,
    Ack,
    Decided,
    Heartbeat,
    Lead,
    Mail,
    MailBag,
    Post,
    Promise,
    Reject,
    Replicate,
    Reply,
    Request,
    RequestView,
    Settled,
    Start,
    State,
    Step,
    Taken,
    Vote,
    codec,
)
from unerring.processes.node import ProcessNode
from unerring.processes.plausible import VIEW_STEP_MAX
from unerring.processes.recovery import sweep

NODES = ("a", "b", "c")
PROCESS = one_write()
GRAPH = PROCESS.graph
FIRST = State("i", "p", GRAPH.version, 0, (), GRAPH.start, {"r": 0, "x": 0, "y": 0})


def done_in(group: int) -> Taken:
    return Taken("w", "i/w/0", None, None, True, group, 0)


def a_node(records: dict[str, bytes] | None = None) -> ProcessNode:
    return ProcessNode("a", NODES, [PROCESS], records or {}, Random(1), 0, ClusterBounds(f=1))


def kept(effects: list[Any]) -> dict[str, bytes]:
    return {key: data for effect in effects if isinstance(effect, Persist) for key, data in effect.puts}


@pytest.mark.parametrize("view", [VIEW_STEP_MAX + 1, VIEW_MAX])
def test_a_view_that_no_election_came_to_is_not_promised(view: int) -> None:
    """Seen: a view of 2**64 - 1 was kept as a promise, and then overflowed: also after a restart."""
    state = msgspec.structs.replace(FIRST)
    for message in (
        RequestView("i", view),
        Reject("i", view),
        Replicate(view, state),
        Decided(view, state),
        Heartbeat((Lead("i", view, 0, False),)),
    ):
        node = a_node()
        with pytest.raises(ProtocolError, match="is the highest that is known here"):
            node.handle("b", message, 1)
        assert node.instances["i"].acceptor.view == VIEW_STEP_MAX, "a step in that direction, and no further"
        assert node.instances["i"].acceptor.accepted is None


def test_a_node_that_was_away_for_very_many_elections_comes_to_the_present_view_in_steps() -> None:
    node, view, refused = a_node(), 10 * VIEW_STEP_MAX + 7, 0
    while True:
        try:
            effects = node.handle("b", Replicate(view, FIRST), 1)
            break
        except ProtocolError:
            refused += 1
    assert refused == 10
    assert msgspec.msgpack.decode(kept(effects)["i|promise"], type=Promise).view == view
    assert any(isinstance(e, Send) and e.message == Ack("i", view, 0) for e in effects)


@pytest.mark.parametrize(
    "fields",
    [
        ["RequestView", "i", 2**64 - 1],
        ["RequestView", "i", 2**63],
        ["RequestView", "x" * 20_000, 1],
        ["Ack", "i", 1, -2],
        ["Heartbeat", [], 2**62],
        ["Heartbeat", [["i", 2**60, 0, False]], 0],
        ["Vote", "i", 1, 2**60, None, [], 0],
        ["Vote", "i", 1, 1, None, [], -1],
    ],
)
def test_numbers_that_cannot_be_are_refused_when_they_are_decoded(fields: list[object]) -> None:
    with pytest.raises(FrameError):
        codec().decode(msgspec.msgpack.encode(fields))


def test_a_promise_of_an_earlier_release_that_cannot_be_left_is_repaired() -> None:
    records = {"i|promise": msgspec.msgpack.encode(Promise(2**64 - 1, "b"))}
    records["i|accepted"] = msgspec.msgpack.encode(Accepted(3, FIRST, False))
    node = a_node(records)
    assert node.instances["i"].acceptor.view == 3 + VIEW_STEP_MAX
    effects = node.start(1)
    assert msgspec.msgpack.decode(kept(effects)["i|promise"], type=Promise).view == 3 + VIEW_STEP_MAX
    assert [e.what for e in effects if isinstance(e, Report)] == ["process.promise_repaired"]
    asked = node.handle("b", RequestView("i", 4 + VIEW_STEP_MAX), 2)
    assert any(isinstance(e, Send) and isinstance(e.message, Vote) for e in asked)


def test_an_instance_accepted_in_a_view_that_cannot_be_is_left_to_the_others() -> None:
    records = {"i|accepted": msgspec.msgpack.encode(Accepted(2**64 - 1, FIRST, False))}
    node = a_node(records)
    (said,) = [e for e in node.start(1) if isinstance(e, Report)]
    assert said.what == "process.set_aside"
    assert "this node leaves the instance to the others" in said.detail
    assert not [e for e in node.handle("b", RequestView("i", 1), 2) if isinstance(e, Send)]
    assert [e for e in node.handle("b", RequestView("j", 1), 2) if isinstance(e, Send)], "the others go on here too"


@pytest.mark.parametrize(
    "changes",
    [
        {"group": 1},
        {"lineage": (Step(0, (0,)),)},
        {"cut": (99,)},
        {"cut": (-1,)},
        {"status": "lost"},
        {"announced": "nothing"},
        {"variables": {"r": 0}},
        {"variables": {"r": "text", "x": 0, "y": 0}},
        {"taken": (Taken("nothing", "i/n/0", None, None, False, 0, 0),)},
        {"taken": (Taken("w", "i/w/0", None, None, True, 9, 0),)},
        {"group": 2, "lineage": (Step(0, (0,)),) * 2, "taken": tuple(done_in(group) for group in (2, 1))},
        {"rewound": ((1, 2**31),)},
        {"rewind": 5},
        {"moved": 5},
        {"given": {"unknown": 1}},
    ],
)
def test_a_state_that_its_process_does_not_come_to_is_refused(changes: dict[str, Any]) -> None:
    node = a_node()
    state = msgspec.structs.replace(FIRST, **changes)
    for message in (Replicate(0, state), Decided(0, state), Vote("i", 0, 0, state, (), 0)):
        with pytest.raises(ProtocolError, match="state"):
            node.handle("b", message, 1)
    assert node.instances == {}


def test_another_state_of_the_same_view_and_group_stops_nobody() -> None:
    """Seen: "there is one state for each view and group" was a broken invariant of whoever heard both."""
    node = a_node()
    node.handle("b", Replicate(0, FIRST), 1)
    other = msgspec.structs.replace(FIRST, variables={"r": 1, "x": 0, "y": 0})
    with pytest.raises(ProtocolError, match="another state of view 0"):
        node.handle("c", Replicate(0, other), 2)
    assert node.instances["i"].acceptor.accepted.state == FIRST


def test_who_has_no_right_to_say_something_is_not_heard() -> None:
    node = a_node()
    for message in (Settled("i"), RequestView("i", 1), Heartbeat(()), MailBag("i", ())):
        with pytest.raises(ProtocolError, match="may not send it"):
            node.handle("stranger", message, 1)
    for sender, message in (("b", Reply("i", "i/w/0", "do", "done")), ("b", Request("i", "i/w/0", "bank", "x", {}))):
        with pytest.raises(ProtocolError, match="may not send it"):
            node.handle(sender, message, 1)
    assert node.handle("client", Start("i", "p", {}), 1), "anybody may start something"


@pytest.mark.parametrize(
    "message",
    [
        Post("i", Mail("a|b", "c", 1)),
        Post("i", Mail("i+child", CHILD, 7)),
        Post("i", Mail("i+child", CHILD, {"status": "running", "reason": "", "value": 1})),
        Post("i", Mail("w", AGAIN, ["step"])),
        Post("a/b", Mail("w", "c", 1)),
        Post("", Mail("w", "c", 1)),
        RequestView("a|b", 1),
        Vote("i", 1, 0, msgspec.structs.replace(FIRST, instance="j"), (), 0),
        Vote("i", 1, 2, FIRST, (), 0),
    ],
)
def test_messages_that_nobody_can_mean_are_refused(message: object) -> None:
    node = a_node()
    with pytest.raises(ProtocolError):
        node.handle("b", message, 1)
    assert node.instances == {}


@pytest.mark.parametrize(("answer", "mode"), [("perhaps", "do"), ("done", "redo")])
def test_a_reply_that_no_service_gives_is_refused(answer: str, mode: str) -> None:
    with pytest.raises(ProtocolError, match="invalid reply"):
        a_node().handle("service:bank", Reply("i", "i/w/0", mode, answer), 1)


@pytest.mark.parametrize(("again", "decided_in"), [(0, 1 << 33), ((1 << 31) - 1, 2)])
def test_survivors_do_not_cancel_for_views_and_repetitions_without_end(again: int, decided_in: int) -> None:
    """It ate all memory of its machine. `tests/campaign/test_hostile_campaign.py` came to it with seed 78."""
    state = msgspec.structs.replace(FIRST, again=again)
    steps, blocked = sweep(GRAPH, Grouping(), state, decided_in)
    assert (steps, blocked) == ([], ["w"])
    steps, blocked = sweep(GRAPH, Grouping(), FIRST, 3)
    assert (len(steps) >= 3, blocked) == (True, [])
