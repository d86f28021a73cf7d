"""The very moments of waits and deadlines, and the small parts of a replica: records, rows, names, patience."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from tests.processes.test_scale import CONFIG, NAMES, Three, waiting
from unerring import Process, Rehearsal, Service
from unerring.model import SECOND_US, Event, Persist, ProcessError, Report, Send, Stamp
from unerring.processes.acceptor import Acceptor
from unerring.processes.commands import back, here, irrevocable, overdue
from unerring.processes.config import ClusterBounds, ProcessesConfig
from unerring.processes.context import Context
from unerring.processes.graph import LATE, Graph
from unerring.processes.inbox import Inbox
from unerring.processes.logs import Logs
from unerring.processes.mailbox import Mailbox
from unerring.processes.messages import GroupLog, Mail, MailBag, Publish, State, Status, Stored, Taken
from unerring.processes.node import ProcessNode
from unerring.processes.parent import Parent
from unerring.processes.reactions import Reaction
from unerring.processes.undo import Undo, UndoStep
from unerring.processes.waits import blocks_at, due_at, key_of, keyed, late_block, sleep_until, waits_for
from unerring.processes.watch import START_US, Watch


class Order(msgspec.Struct):
    item: str = ""
    answer: str = ""
    label: str = ""
    at: int = 0


# --- moments ---


def patient(final: bool = False, **options: Any) -> Process:
    """Reserves, and waits for an answer and a pause, a second at most."""
    process = Process("patient", state=Order, services=[Service("mail")], **options)

    @process.action(service="mail", write=True, compensable=not final)
    async def reserve(item: str) -> None: ...

    answer = process.receive("answer", writes="answer")
    return process.flow(process.within(SECOND_US, [reserve, answer, process.sleep("pause", 7)], otherwise=[]))


def at(process: Process, before: str, **fields: Any) -> State:
    """A state whose mark lies before a vertex."""
    graph = process.graph
    cut = tuple(number for number, edge in enumerate(graph.edges) if edge.target == before)
    return State("i", graph.name, graph.version, 1, (), cut, process.initial({}), **fields)


def did(graph: Graph, name: str, group: int) -> Taken:
    return Taken(name, f"i/{name}/0", None, None, True, group, 0)


def test_a_deadline_has_passed_when_its_time_is_there() -> None:
    process = patient(deadline=SECOND_US)
    state = at(process, "answer", deadline_us=1_000)
    assert overdue(process, state, 999) is None
    late = overdue(process, state, 1_000)
    assert late is not None
    assert (late.status, late.reason) == (Status.UNDOING, "its deadline of 1 s has passed")
    assert overdue(process, at(process, "answer"), 10**15) is None, "none was given"


def test_a_block_is_late_when_its_time_is_there() -> None:
    process = patient()
    [block] = process.graph.blocks
    state = at(process, "answer", blocks={block: (3, 1_000)}, held="x", reason="y")
    assert late_block(process.graph, state, 999) is None
    late = late_block(process.graph, state, 1_000)
    assert late is not None
    assert (late.status, late.rewind, late.held, late.reason) == (Status.UNDOING, 3, "", "")
    assert process.graph.edges[late.turn].label == LATE
    assert process.graph.edges[late.turn].source == block
    assert late_block(process.graph, at(process, "answer"), 10**15) is None


@pytest.mark.parametrize(("group", "is_late"), [(3, True), (4, False)])
def test_a_block_in_which_something_final_was_done_goes_on(group: int, is_late: bool) -> None:
    process = patient(final=True)
    [block] = process.graph.blocks
    taken = (did(process.graph, "reserve", group),)
    state = at(process, "answer", blocks={block: (3, 1_000)}, taken=taken)
    assert (late_block(process.graph, state, 1_000) is not None) == is_late, "what was done before it does not count"


def test_what_had_begun_keeps_its_time() -> None:
    process = patient()
    graph, [block] = process.graph, process.graph.blocks
    [pause] = [vertex for vertex in graph.vertices if vertex.name == "pause"]
    here_, there = at(process, "pause").cut, at(process, "reserve").cut
    assert due_at(graph, here_, {}, {}, {}, 100) == {"pause": 107}
    assert due_at(graph, here_, {}, {}, {"pause": 50}, 100) == {"pause": 50}
    assert due_at(graph, there, {}, {}, {"pause": 50}, 100) == {}
    assert blocks_at(graph, here_, {}, 4, 100) == {block: (4, 100 + SECOND_US)}
    assert blocks_at(graph, here_, {block: (1, 5)}, 4, 100) == {block: (1, 5)}
    assert blocks_at(graph, graph.start, {block: (1, 5)}, 4, 100) == {}
    until = msgspec.structs.replace(pause, reads=("at",))
    assert sleep_until(until, {"at": 42}, 100) == 42
    assert sleep_until(until, {"at": None}, 100) == 107, "a variable without a time: its own duration"
    assert (keyed("paid", "ann"), key_of("ann"), key_of(7)) == ("paid=ann", "ann", "7")


def test_what_an_instance_waits_for_is_told_with_the_end_of_its_block() -> None:
    process = patient()
    [block] = process.graph.blocks
    state = at(process, "answer", blocks={block: (3, 1_000)})
    late = {"wait": block, "kind": "time", "until_us": 1_000}
    assert waits_for(process.graph, state) == [{"wait": "answer", "kind": "signal", "channel": "answer"}, late]
    pausing = at(process, "pause", blocks=state.blocks, due={"pause": 77})
    assert waits_for(process.graph, pausing) == [{"wait": "pause", "kind": "time", "until_us": 77}, late]
    assert waits_for(process.graph, at(process, "reserve", blocks=state.blocks)) == [], "it works"
    for change in ({"held": "x"}, {"status": Status.UNDOING}):
        assert waits_for(process.graph, msgspec.structs.replace(state, **change)) == []


# --- commands ---


def steps(final: str = "") -> Process:
    process = Process("steps", state=Order, services=[Service("mail")])

    @process.action(service="mail", write=True, compensable=final != "a")
    async def a(item: str) -> None: ...

    @process.action(service="mail", write=True, compensable=final != "b")
    async def b(item: str) -> None: ...

    @process.action(service="mail", write=True)
    async def c(item: str) -> None: ...

    return process.flow(a, b, c)


def test_going_back_before_a_step_ends_at_the_group_before() -> None:
    process = steps()
    taken = (did(process.graph, "a", 1), did(process.graph, "b", 2))
    state = at(process, "c", taken=taken, held="x")
    for step, rewind in (("a", 0), ("b", 1)):
        went = back(process, state, step)
        assert (went.status, went.rewind, went.held) == (Status.UNDOING, rewind, "")
    again = back(process, state, "c")
    assert (again.status, again.again, again.held) == (Status.RUNNING, 1, ""), "it is the next one anyway"
    assert here(process, state) == again
    with pytest.raises(ProcessError, match="cannot go back before 'd': that was not done; it did a, b"):
        back(process, state, "d")
    for moved, refused in ((0, False), (1, True)):
        changed = msgspec.structs.replace(state, moved=moved)
        if refused:
            with pytest.raises(ProcessError, match="moved to another version"):
                back(process, changed, "a")
        assert back(process, changed, "b").rewind == 1, "what came after the move can be undone"


def test_what_was_done_for_good_is_not_gone_back_on() -> None:
    for final in ("a", "b"):
        process = steps(final)
        taken = (did(process.graph, "a", 1), did(process.graph, "b", 2))
        state = at(process, "c", taken=taken)
        assert irrevocable(process, state) == f"{final} was done, and cannot be undone"
        with pytest.raises(ProcessError, match=f"before a: {final} was done since, for good"):
            back(process, state, "a")
        if final == "a":
            assert back(process, state, "b").rewind == 1
    assert irrevocable(process, at(process, "b", taken=taken[:1])) == ""


# --- who leads ---


def watching() -> tuple[Watch, Context]:
    shared = Three().nodes["n0"].shared
    context = Context(shared, "i", NAMES)
    return Watch(context, 10 * SECOND_US), context


def test_whose_heartbeats_come_late_is_trusted_so_much_longer() -> None:
    for leader in ("", "n1"):
        watch, context = watching()
        hearing, config = context.shared.hearing, context.config
        watch.led(10 * SECOND_US, leader)
        base_us = watch.named_until_us(True)
        assert 0 <= base_us - 10 * SECOND_US - config.suspect_us <= config.backoff_us
        assert watch.named_until_us(False) - base_us == (START_US if leader else 0), "a start may take longer"
        hearing.beat("n1", 300, 8 * SECOND_US)
        hearing.beat("n1", 300, 8 * SECOND_US + config.suspect_us)
        slack_us = hearing.slack_us(leader)
        assert slack_us > 0
        assert watch.named_until_us(True) - base_us == slack_us + 300, leader
        hearing.slept(10 * SECOND_US + 7)
        assert watch.named_until_us(True) - base_us == slack_us + 300 + 7, "what came meanwhile is unread"


def test_without_a_leader_for_a_while_the_gap_is_told_once() -> None:
    watch, context = watching()
    watch.led(10 * SECOND_US, "n1")
    assert watch.won(11 * SECOND_US) is None, "nobody was missed"
    watch.lost()
    context.shared.hearing.hear("n1", 12 * SECOND_US)
    watch.lost()
    assert watch.won(13 * SECOND_US) == 3 * SECOND_US, "from when it was first missed"
    assert watch.won(13 * SECOND_US) is None
    watch.lost()
    assert watch.won(11 * SECOND_US) == 0
    watch.lost()
    watch.led(13 * SECOND_US, "n2")
    assert (watch.won(14 * SECOND_US), watch.elections) == (None, 0)
    assert {leader: list(led) for leader, led in context.shared.followed.items()} == {"n1": [], "n2": ["i"]}


# --- records and rows ---


def records(context: Context) -> dict[str, bytes | None]:
    [kept] = [effect for effect in context.out.take() if isinstance(effect, Persist)]
    return dict(kept.puts) | dict.fromkeys(kept.deletes)


def test_a_log_that_is_dropped_is_no_longer_on_disk() -> None:
    _, context = watching()
    context.out.take()
    logs = Logs(context, {})
    for view, group in ((0, 1), (0, 2), (3, 1)):
        logs.keep(GroupLog(view, group, (), (), {}, (), ()))
    assert logs.keys == ["group/0/1", "group/0/2", "group/3/1"]
    disk = {key.removeprefix("i|"): data for key, data in records(context).items() if data is not None}
    assert Logs(context, disk | {"naming": b""}).kept == logs.kept
    logs.drop(0, 1)
    assert records(context) == {"i|group/0/1": None}
    assert logs.keys == ["group/0/2", "group/3/1"]


def test_of_an_instance_without_a_state_nothing_is_told() -> None:
    node = Three().nodes["n0"]
    assert node.roster.create("i", 1_000_000) is not None
    [(instance, field)] = node.listing.fields()
    row = node.listing.row("i")
    assert instance == "i"
    assert row is not None
    for name in ("instance", "process", "version", "status", "reason", "role", "view", "group", "parent"):
        assert field(name) == row[name], name
    assert (field("group"), field("n")) == (-1, None)


def publishing(**bounds: int) -> tuple[ProcessNode, Any]:
    node = ProcessNode("n0", NAMES, [waiting()], {}, Random(1), 0, ClusterBounds(**bounds), CONFIG)
    node.start(0)

    def publish(id: str, now: int) -> tuple[bool, bool, list[str]]:
        """Whether it was acknowledged, whether there was no room, and what is kept."""
        effects = node.handle("partner", Publish(id, "c", "k", 1), now)
        stored = any(isinstance(effect, Send) and isinstance(effect.message, Stored) for effect in effects)
        full = [e.detail for e in effects if isinstance(e, Report) and e.what == "process.published_full"]
        assert full in ([], [f"{bounds['published_max']} published messages wait for an instance"])
        return stored, bool(full), list(node.shared.published)

    return node, publish


def test_what_is_published_without_room_is_told_and_not_acknowledged() -> None:
    _, publish = publishing(published_max=2, published_keep_us=100)
    assert publish("a", 1_000) == (True, False, ["a"])
    assert publish("b", 1_050) == (True, False, ["a", "b"])
    assert publish("b", 1_060) == (True, False, ["a", "b"]), "it is kept already"
    assert publish("c", 1_060) == (False, True, ["a", "b"])
    assert publish("c", 1_100) == (False, True, ["a", "b"]), "as old as it may be"
    assert publish("c", 1_101) == (True, False, ["b", "c"])


# --- names ---


def test_an_instance_names_the_situation_that_started_it() -> None:
    reaction = Reaction("Alarm", "re-act", (("k", "column"),))
    for time, ordinal in ((5, 0), (-7, 12), (0, 3)):
        stamp = Stamp(time, ordinal)
        id = reaction.instance(Event("Alarm", stamp, (), {"column": 1}))
        assert reaction.stamp_of(id) == stamp
    for other in ("re-act-Alarm-5", "re-act-Alarm-5--1", "re-act-Alarms-5-0", "re-act-Alarm-5-0x", "xre-act-Alarm-5-0"):
        assert reaction.stamp_of(other) is None, other


class Parcel(msgspec.Struct):
    item: str = ""
    other: str = ""
    label: str = ""


class Recalled(msgspec.Struct):
    label: str = ""
    other: str = ""


def test_what_undoes_a_child_gets_what_it_has_variables_for() -> None:
    def child(undo: type | None) -> tuple[str, ...]:
        parcel = Process("parcel", state=Parcel)
        parcel.flow(parcel.receive("go"))
        recall = Process("recall", state=undo) if undo else None
        if recall is not None:
            recall.flow(recall.receive("went"))
        process = Process("order", state=Order)
        given = {"item": "item", "other": "answer"}
        process.flow(process.child("send", parcel, given, returns="label", writes="label", undo=recall))
        return process.graph.by_name["send"].undo_given

    assert child(Recalled) == ("other", "label")
    assert child(Parcel) == ("item", "other", "label")


def test_what_undoes_a_child_is_numbered_from_zero() -> None:
    """Whoever leads after a crash asks for the same instance, and a release after this one does."""
    parcel = Process("parcel", state=Order, services=[Service("mail")])

    @parcel.action(service="mail", write=True)
    async def wrap(item: str) -> None: ...

    parcel.flow(wrap)
    recall = Process("recall", state=Order, services=[Service("mail")])

    @recall.action(service="mail", write=True)
    async def unwrap(item: str) -> None: ...

    recall.flow(unwrap)
    process = Process("order", state=Order)
    wrapping = process.child("wrapping", parcel, {"item": "item"}, undo=recall)
    process.flow(wrapping, process.receive("never"))
    stage = Rehearsal(process, {"mail": {"wrap": lambda item: None, "unwrap": lambda item: None}})
    stage.start("o", item="bolt")
    stage.run_until(lambda: stage.effects("mail") == ["wrap"])
    stage.run(seconds=1.0)
    stage.cancel("o")
    assert stage.finish("o").status == "cancelled"
    nodes = [stage.world.machine(name) for name in stage.names]
    known = {id for node in nodes for id in (*node.instances, *(row["instance"] for row in node.list()))}
    assert known == {"o", "o+wrapping", "o+wrapping~0"}


# --- bounds, offers, and what is not known ---


def test_a_mailbox_takes_what_fills_it_exactly() -> None:
    first, second = (Mail(f"m{n}", "paid", n) for n in range(2))
    size = len(msgspec.msgpack.encode(first)) + len(msgspec.msgpack.encode(second))
    for bytes_max, takes in ((size, True), (size - 1, None)):
        assert Mailbox((first,), 2, bytes_max).store(second) is takes
    for most, takes in ((2, True), (1, None)):
        assert Mailbox((first,), most, size).store(second) is takes
    assert Mailbox((), 0, 0).store(first) is True, "an empty one has room for anything"


def inbox_of(watch: Watch, context: Context) -> Inbox:
    nobody: Any = None  # a replica in a role would be told of decided states
    return Inbox(context, Acceptor(context, watch, nobody, {}), watch, {})


def test_mail_is_offered_to_the_leader_when_the_next_offer_is_due() -> None:
    watch, context = watching()
    inbox = inbox_of(watch, context)
    assert inbox.store(Mail("m", "paid", 1))
    watch.led(0, "n1")
    context.out.take()
    due_us = inbox.offer_us
    inbox.offer(due_us - 1)
    assert context.out.take() == []
    inbox.offer(due_us)
    [sent] = context.out.take()
    assert isinstance(sent, Send)
    assert (sent.to, type(sent.message)) == ("n1", MailBag)
    assert inbox.offer_us > 2 * due_us, "the next pause is longer"


def test_what_may_have_happened_is_asked_for_and_not_done_to_be_undone() -> None:
    """At a service that cannot cancel, and repeats its answers, an unknown outcome is settled first; a known one is
    undone by its compensation."""
    process = Process("books", state=Order, services=[Service("mail", cancels=False)])

    @process.action(service="mail", write=True, compensation="release")
    async def reserve(item: str) -> None: ...

    graph = process.flow(reserve).graph
    for unknown in (True, False):
        step = UndoStep("i", "reserve", "i/reserve/0", {"item": "x"}, None, 1, (), unknown)
        asked = Undo(graph, [step], 0, ProcessesConfig()).tick(0)
        assert asked is not None
        assert (asked.settle, asked.mode, asked.iid == step.iid) == (unknown, "do" if unknown else "undo", unknown)


def test_a_child_is_asked_for_again_after_a_while() -> None:
    process = Process("parent", state=Order)
    child = Process("child", state=Order)
    given = {"item": "item"}
    graph = process.flow(process.child("part", child.flow(child.sleep("pause", 7)), given, compensable=False)).graph
    watch, context = watching()
    inbox = inbox_of(watch, context)
    parent = Parent(context, inbox._acceptor, inbox)
    state = at(process, "part")
    children = context.shared.children
    for now, asked in ((10, 1), (10 + context.config.tend_us - 1, 1), (10 + context.config.tend_us, 2)):
        parent.tend(graph, state, now)
        assert len(children) == asked
    assert parent.due_us == [10 + 2 * context.config.tend_us]
