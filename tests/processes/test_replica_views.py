"""What a replica says of itself to its node, to its leader and to people, in each of its roles."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from unerring import Process, Service
from unerring.model import SECOND_US, Persist, Report, Send
from unerring.processes.config import ClusterBounds, ProcessesConfig
from unerring.processes.messages import (
    AGAIN,
    CANCEL,
    Accepted,
    Answer,
    Clean,
    Decided,
    Fetch,
    GroupLog,
    Heartbeat,
    Intent,
    Lead,
    Mail,
    Post,
    Replicate,
    Reply,
    Request,
    RequestView,
    Settled,
    Start,
    State,
    Status,
    Step,
    Stored,
)
from unerring.processes.node import ProcessNode
from unerring.processes.replica import Replica

NOW = 10 * SECOND_US
NODES = ("n0", "n1", "n2")
CONFIG = ProcessesConfig(undo_attempts_max=1, undo_attempt_us=100_000)


class Order(msgspec.Struct):
    item: str = ""
    answer: str = ""


def asking() -> Process:
    process = Process("asking", state=Order, services=[Service("mail")])

    @process.action(service="mail", write=True)
    async def ask(item: str) -> None: ...

    return process.flow(ask, process.receive("answer", writes="answer"))


PROCESS = asking()
GRAPH = PROCESS.graph
[WAITING] = [number for number, edge in enumerate(GRAPH.edges) if edge.target == "answer"]


def a_node(names: tuple[str, ...] = NODES, records: dict[str, bytes] | None = None) -> ProcessNode:
    f = len(names) // 2
    return ProcessNode("n0", names, [PROCESS], records or {}, Random(1), NOW, ClusterBounds(f=f), CONFIG)


def state_of(instance: str = "i", group: int = 1, **fields: Any) -> State:
    lineage = (Step(0, (WAITING,)),) * group
    variables = {"item": "x", "answer": ""}
    return State(instance, "asking", GRAPH.version, group, lineage, (WAITING,), variables, **fields)


def sent(effects: list[Any], kind: type) -> list[tuple[str, Any]]:
    return [(e.to, e.message) for e in effects if isinstance(e, Send) and isinstance(e.message, kind)]


def a_follower(state: State | None = None) -> tuple[ProcessNode, Replica]:
    """Of n1, which leads."""
    node = a_node()
    node.handle("n1", Decided(0, state or state_of()), NOW)
    node.handle("n1", Heartbeat((Lead("i", 0, 1, False),)), NOW)
    return node, node.instances["i"]


def test_a_follower_sleeps_until_its_leader_ought_to_have_named_it() -> None:
    node, replica = a_follower()
    assert (replica.role, replica.leading, replica.busy, replica.lead()) == ("follower", False, False, None)
    assert replica.asleep_until_us == replica.watch.named_until_us(started=True) > NOW + CONFIG.suspect_us
    assert replica.next_us(NOW) == min(replica.asleep_until_us, NOW + node.shared.idle_us)
    assert not replica.suspects(replica.watch.led_until_us(started=True) - 1)
    assert replica.suspects(replica.watch.led_until_us(started=True))
    node.handle("partner", Post("i", Mail("m", "later", 1)), NOW)
    assert replica.asleep_until_us == 0, "it has to offer a message"
    assert replica.next_us(NOW) == min(replica.inbox.offer_us, replica.watch.named_until_us(started=True))


def test_a_replica_without_a_state_suspects_nobody_unless_somebody_wants_the_instance() -> None:
    node = a_node()
    replica = node.roster.create("i", NOW)
    assert replica is not None
    far_us = NOW + 100 * SECOND_US
    assert not replica.suspects(far_us)
    replica.propose_start(state_of(group=0), False, NOW)
    assert replica.suspects(far_us)
    replica.election.ask_again(far_us)
    assert (replica.role, replica.asleep_until_us) == ("candidate", 0)
    later_us = far_us + 100 * SECOND_US
    assert replica.suspects(later_us)
    replica.give_way()
    assert (replica.role, replica.election.votes) == ("follower", None)


def test_whether_a_replica_is_clean_is_said_to_who_asks() -> None:
    node, replica = a_follower()
    assert replica.clean() == Clean("i", 0, 1)
    assert sent(node.handle("n1", Heartbeat((Lead("i", 0, 1, True),)), NOW), Clean) == [("n1", Clean("i", 0, 1))]
    assert sent(node.handle("n1", Heartbeat((Lead("i", 0, 1, False),)), NOW), Clean) == []
    assert sent(node.handle("n1", Heartbeat((Lead("i", 1, 1, True),)), NOW), Clean) == [], "that view is not known here"
    replica.recovery.lose(3)
    replica.acceptor.decided = (4, state_of())
    assert replica.clean() == Clean("i", 4, 1, lost=3)
    replica.acceptor.decided = (4, state_of(swept=4))
    assert replica.clean() == Clean("i", 4, 1)
    empty = a_node().roster.create("j", NOW)
    assert empty is not None
    assert (empty.clean(), empty.final, empty.known, empty.may_settle()) == (None, False, None, False)


def test_of_an_instance_that_is_settled_only_that_is_said() -> None:
    node, _ = a_follower(state_of(status=Status.COMPLETED))
    node.handle("n1", Settled("i"), NOW)
    assert (list(node.instances), list(node.finished)) == ([], ["i"])
    answers = []
    for sender, message in (
        ("n1", RequestView("i", 3)),
        ("n2", Fetch("i", 0, 0)),
        ("n1", Clean("i", 0, 1)),
        ("service:mail", Reply("i", "i/ask/0@0", "do", Answer.DONE)),
        ("partner", Post("i", Mail("m", "later", 1))),
        ("n1", Heartbeat((Lead("i", 0, 1, True),))),
    ):
        answers += [(e.to, type(e.message)) for e in node.handle(sender, message, NOW) if isinstance(e, Send)]
    assert answers == [("n1", Settled), ("n2", Settled), ("partner", Stored), ("n1", Clean)]
    rows = node.counts()
    assert [(row["process"], row["status"], row["ended"], row["count"]) for row in rows] == [
        ("asking", "completed", True, 1)
    ]


@pytest.mark.parametrize(
    ("own", "ahead", "view", "log", "shows"),
    [
        (True, False, 0, None, True),
        (True, True, 0, None, False),
        (False, False, 0, None, False),
        (True, False, 1, None, False),
        (False, False, 0, (0, 2, False), True),
        (True, True, 0, (0, 2, False), True),
        (False, False, 0, (0, 2, True), False),
        (False, False, 0, (0, 1, False), False),
    ],
)
def test_after_a_restart_its_maker_shows_a_state_and_who_executed_on_it(
    own: bool, ahead: bool, view: int, log: tuple[int, int, bool] | None, shows: bool
) -> None:
    records = {"i|accepted": msgspec.msgpack.encode(Accepted(0, state_of(), own, ahead))}
    records["i|promise"] = msgspec.msgpack.encode((view, ""))
    if log is not None:
        in_view, group, abandoned = log
        kept = GroupLog(in_view, group, (0,), ("ask",), {}, (), (), abandoned)
        records[f"i|group/{in_view}/{group}"] = msgspec.msgpack.encode(kept)
    node = a_node(records=records)
    assert node.instances["i"].may_show is shows
    shown = [to for to, _ in sent(node.start(NOW), Replicate)]
    assert sorted(shown) == (["n1", "n2"] if shows else [])


def test_what_people_see_of_an_instance_follows_its_work() -> None:
    node = a_node(("n0",))
    effects = node.begin(Start("i", "asking", {"item": "x"}), NOW)
    [(to, request)] = sent(effects, Request)
    replica = node.instances["i"]

    def seen(*names: str) -> list[Any]:
        told = node.query("i")
        return [told[name] for name in names]

    def counted() -> list[tuple[Any, ...]]:
        return [tuple(row[name] for name in ("status", "waits", "stuck", "count")) for row in node.counts()]

    assert (to, request.iid, replica.busy) == ("service:mail", "i/ask/0@0", True)
    assert seen("role", "group", "status", "unanswered", "asks", "history", "waits_for") == [
        "master",
        0,
        "running",
        [],
        ["i/ask/0@0: asked 1 times; no answer came"],
        [],
        [],
    ]
    assert counted() == [("running", (), False, 1)]
    assert [row["ended"] for row in node.counts()] == [False]
    again = [r for n in range(40) for _, r in sent(node.timer("tick", NOW + 2 * SECOND_US + n * 20_000), Request)]
    assert again == [request]
    assert seen("unanswered") == [["mail"]]
    assert counted() == [("running", ("mail",), False, 1)]
    now = NOW + 3 * SECOND_US
    node.handle("service:mail", Reply("i", request.iid, "do", Answer.DONE), now)
    waits = [{"wait": "answer", "kind": "signal", "channel": "answer"}]
    assert seen("role", "group", "history", "waits_for", "unanswered", "clean") == [
        "planner",
        1,
        ["ask"],
        waits,
        [],
        True,
    ]
    assert (replica.busy, replica.leading) == (False, True)
    assert replica.lead() == Lead("i", 0, 1, ask_clean=False)
    effects = node.post("i", Mail("c", CANCEL, None), now)
    [(_, undo)] = sent(effects, Request)
    assert (undo.mode, undo.iid) == ("cancel", request.iid)
    assert seen("status", "reason", "waits_for", "stuck", "unanswered") == ["undoing", "cancelled", [], [], []]
    repeated = [r for n in range(1, 8) for _, r in sent(node.timer("tick", now + n * 20_000), Request)]
    assert repeated == [undo]
    assert seen("stuck", "unanswered") == [[request.iid], ["mail"]]
    assert counted() == [("undoing", ("mail",), True, 1)]
    assert [r for _, r in sent(node.retry("i", now + 150_000), Request)] == [undo]
    assert seen("stuck", "unanswered") == [[], []]
    effects = node.handle("service:mail", Reply("i", undo.iid, "cancel", Answer.DONE), now + 160_000)
    assert (list(node.finished), list(node.instances)) == (["i"], [])
    assert seen("status", "clean") == ["cancelled", True]
    gone = {key for e in effects if isinstance(e, Persist) for key in e.deletes}
    assert {"i|promise", "i|accepted", "i|naming"} <= gone
    kept = {key for e in effects if isinstance(e, Persist) for key, _ in e.puts}
    assert {"i|outline", "i|history"} <= kept
    assert counted() == [("cancelled", (), False, 1)]
    assert not node.knows("j")
    assert node.knows("i")


def test_what_a_later_view_excludes_is_abandoned_on_disk_before_it_is_undone() -> None:
    log = GroupLog(0, 1, (), ("ask",), {}, (Intent("ask", 0, {"item": "x"}),), ())
    begun = msgspec.structs.replace(state_of(group=0), cut=GRAPH.start)
    records = {"i|accepted": msgspec.msgpack.encode(Accepted(0, begun, own=True))}
    records["i|group/0/1"] = msgspec.msgpack.encode(log)
    node = a_node(records=records)
    node.start(NOW)
    later = msgspec.structs.replace(state_of(), lineage=(Step(1, (WAITING,)),))
    effects = node.handle("n1", Decided(1, later), NOW)
    kept = dict(pair for e in effects if isinstance(e, Persist) for pair in e.puts)
    assert msgspec.msgpack.decode(kept["i|group/0/1"], type=GroupLog) == msgspec.structs.replace(log, abandoned=True)
    [(to, asked)] = sent(effects, Request)
    assert (to, asked.mode, asked.iid, asked.view) == ("service:mail", "cancel", "i/ask/0@0", 1)
    [told] = [e.detail for e in effects if isinstance(e, Report) and e.what == "process.compensating"]
    assert told == "i: group 1 of view 0: i/ask/0@0"
    replica = node.instances["i"]
    assert (replica.clean(), node.query("i")["compensating"]) == (None, ["group 1 of view 0"])
    effects = node.handle("service:mail", Reply("i", asked.iid, "cancel", Answer.DONE), NOW + 5)
    assert [key for e in effects if isinstance(e, Persist) for key in e.deletes] == ["i|group/0/1"]
    assert replica.clean() == Clean("i", 1, 1)


def test_a_process_goes_back_before_its_first_step() -> None:
    node = a_node(("n0",))
    [(_, first)] = sent(node.begin(Start("i", "asking", {"item": "x"}), NOW), Request)
    node.handle("service:mail", Reply("i", first.iid, "do", Answer.DONE), NOW)
    [(_, undo)] = sent(node.post("i", Mail("b", AGAIN, "ask"), NOW), Request)
    assert (undo.mode, undo.iid) == ("cancel", first.iid)
    [(_, again)] = sent(node.handle("service:mail", Reply("i", undo.iid, "cancel", Answer.DONE), NOW), Request)
    assert (again.mode, again.operation, again.payload) == ("do", first.operation, first.payload)
    assert again.iid != first.iid
    assert node.query("i")["status"] == "running"
    node.handle("service:mail", Reply("i", again.iid, "do", Answer.DONE), NOW)
    node.handle("partner", Post("i", Mail("m", "answer", "yes")), NOW)
    assert node.finished["i"].status == "completed"
