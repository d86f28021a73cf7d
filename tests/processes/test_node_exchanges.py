"""Whole exchanges of one node with others, message by message: starts, repetitions, pages for who lost a disk."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from tests.processes.table import INSTANCE, Table, action, one_write, sequence
from unerring.model import SECOND_US, Deliver, Disconnected, ProcessError, ProtocolError, Report, Send, Vanished
from unerring.processes.build import Process
from unerring.processes.config import ClusterBounds, ProcessesConfig
from unerring.processes.messages import (
    Ack,
    Decided,
    Heartbeat,
    Lead,
    Mail,
    Memory,
    Name,
    Named,
    Outline,
    Post,
    Publish,
    Published,
    Recall,
    Recalled,
    Replicate,
    RequestView,
    Start,
    Started,
    State,
    Step,
    Vote,
)
from unerring.processes.node import ProcessNode
from unerring.processes.rejoin import ASK_US, PAGE_BYTES, REPORT_US, TakesPart
from unerring.processes.starts import FORWARD_US, ID_MAX, check_id, check_message_id

THREE = ("n0", "n1", "n2")
FIVE = ("n0", "n1", "n2", "n3", "n4")
NOW = 1_000_000


class Text(msgspec.Struct):
    text: str = ""


def texting() -> Process:
    process = Process("texting", state=Text)
    process.every("daily", 86_400 * SECOND_US)
    return process.flow(process.receive("go", writes="text"))


PROCESS = texting()


def a_node(
    names: tuple[str, ...] = THREE, f: int = 1, asks_first: bool = False, most: int = 1 << 20, **config: int
) -> ProcessNode:
    bounds = ClusterBounds(f=f, state_bytes_max=most)
    return ProcessNode(
        "n0", names, [PROCESS], {}, Random(1), NOW, bounds, ProcessesConfig(**config), asks_first=asks_first
    )


def sent(effects: list[Any], kind: type) -> list[tuple[str, Any]]:
    return [(e.to, e.message) for e in effects if isinstance(e, Send) and isinstance(e.message, kind)]


def led_by(node: ProcessNode, first: str, *others: str) -> str:
    """An instance whose first replica is this one."""
    ids = (str(number) for number in range(999))
    return next(i for i in ids if (m := node.shared.members_of(i))[0] == first and all(o in m for o in others))


def state_of(instance: str, text: str = "", group: int = 0) -> State:
    graph = PROCESS.graph
    lineage = (Step(0, graph.start),) * group
    return State(instance, "texting", graph.version, group, lineage, graph.start, {"text": text})


# --- starts ---


def test_a_start_is_handed_on_at_once_and_now_and_then_and_all_who_asked_are_answered() -> None:
    node = a_node(FIVE)
    instance = led_by(node, "n1", "n0")
    start = Start(instance, "texting", {"text": "x"})
    assert sent(node.handle("client", start, NOW), Start) == [("n1", start)]
    other = Start(instance, "texting", {"text": "y"})
    assert sent(node.handle("other", other, NOW + 10), Start) == [("n1", start)], "the first one's"
    assert sent(node.handle("client", start, NOW + 10), Start) == [("n1", start)]
    at = NOW + 10
    assert sent(node.timer("tick", at + FORWARD_US - 1), Start) == []
    assert sent(node.timer("tick", at + FORWARD_US), Start) == [("n1", start)]
    began = msgspec.structs.replace(state_of(instance, "x"), given={"text": "x"})
    assert sent(node.handle("n1", Replicate(0, began), at), Started) == [], "nobody else has it yet"
    last = next(m for m in node.shared.members_of(instance) if m not in ("n0", "n1"))
    effects = node.handle(last, Started(instance), at)
    assert sent(effects, Started) == [("client", Started(instance)), ("other", Started(instance))]
    assert sent(node.timer("tick", at + 9 * FORWARD_US), Start) == []


def test_a_node_without_a_part_hands_a_start_to_all_replicas_but_not_back_to_who_sent_it() -> None:
    node = a_node(FIVE)
    instance = next(i for i in map(str, range(99)) if "n0" not in node.shared.members_of(i))
    one, two, three = node.shared.members_of(instance)
    start = Start(instance, "texting", {})
    assert [to for to, _ in sent(node.handle(two, start, NOW), Start)] == [one, three]
    assert instance not in node.instances


def test_starts_that_wait_have_a_bound_and_a_child_is_taken_all_the_same() -> None:
    node = a_node(instances_max=2)
    names = [i for i in map(str, range(99)) if node.shared.members_of(i)[0] == "n1"][:4]
    taken = []
    for instance in (*names[:3], names[0]):
        effects = node.handle("client", Start(instance, "texting", {}), NOW)
        taken.append([e.detail for e in effects if isinstance(e, Report)])
    assert taken == [[], [], [f"{names[2]} is not taken: 2 starts wait"], []]
    child = Start(f"{names[0]}+made", "texting", {}, names[0])
    node.handle("n1", child, NOW)
    assert list(node.starts.starters) == [*names[:2], child.instance]


def test_ids_and_inputs_fit_up_to_their_bounds() -> None:
    check_id(Start("x" * ID_MAX, "p", {}))
    check_id(Start("parent+" + "x" * ID_MAX, "p", {}, "parent+"))
    check_message_id("x" * ID_MAX)
    check_message_id("")
    for bad in ("x" * (ID_MAX + 1), "", "a/b", "a+b", "a\n"):
        with pytest.raises(ProcessError, match="instance id"):
            check_id(Start(bad, "p", {}))
    for bad in ("x" * (ID_MAX + 1), "a|b", "a\n"):
        with pytest.raises(ProcessError, match="message id"):
            check_message_id(bad)
    with pytest.raises(ProcessError, match="invalid instance id 'parent'"):
        check_id(Start("parent", "p", {}, "parent"))
    node = a_node(most=1_000)
    size = 500 - len(msgspec.msgpack.encode({"text": "x" * 400})) + 400
    node.check_start(Start("i", "texting", {"text": "x" * size}))
    with pytest.raises(ProcessError, match="has 501 bytes, which exceeds the limit of 500 bytes"):
        node.check_start(Start("i", "texting", {"text": "x" * (size + 1)}))


def test_who_starts_is_told_whether_it_is_the_same_start_and_why_it_is_refused() -> None:
    node = a_node(("n0",), f=0)

    def started(effects: list[Any]) -> list[Started]:
        return [e.what for e in effects if isinstance(e, Deliver) and isinstance(e.what, Started)]

    start = Start("i", "texting", {"text": "x"})
    assert started(node.begin(start, NOW)) == [Started("i")]
    assert started(node.begin(start, NOW)) == [Started("i")]
    other = Start("i", "texting", {"text": "y"})
    assert started(node.begin(other, NOW)) == [Started("i", same=False)]
    told = [sent(node.handle("client", one, NOW), Started) for one in (start, other)]
    assert told == [[("client", Started("i"))], [("client", Started("i", same=False))]]
    effects = node.handle("client", Start("j", "unknown", {}), NOW)
    [report] = [e for e in effects if isinstance(e, Report)]
    assert report.what == "process.start_refused"
    assert report.detail == "there is no process 'unknown' on this node; it has texting"
    assert "j" not in node.starts.starters


def test_who_asks_for_a_child_that_has_ended_gets_its_end() -> None:
    node = a_node()
    ended = Outline("texting", "completed", "", {"text": "x"}, parent="p", returns="text")
    node.roster.add_finished("p+made", ended)
    for parent, ends in (("p", [("p+made", {"status": "completed", "reason": "", "value": "x"})]), ("", [])):
        effects = node.handle("n1", Start("p+made", "texting", {}, parent), NOW)
        told = [message.mail for _, message in sent(effects, Post)]
        assert [(mail.id, mail.payload) for mail in told] == ends
        assert [to for to, _ in sent(effects, Started)] == ["n1"]


# --- a leader that died ---


def test_of_the_instances_of_a_dead_node_few_are_asked_for_at_once() -> None:
    """Otherwise the others would drown in elections."""
    node = a_node(candidacies_max=3)
    node.start(NOW)
    names = [f"i{number}" for number in range(10)]
    for name in names:
        node.handle("n1", Decided(0, state_of(name)), NOW)
    node.handle("n1", Heartbeat(tuple(Lead(name, 0, 0, False) for name in names)), NOW)
    wanted: dict[str, None] = {}
    for number in range(100):
        now = NOW + number * 20_000
        node.handle("n2", Heartbeat(()), now)
        wanted |= {message.instance: None for _, message in sent(node.timer("tick", now), RequestView)}
    assert len(wanted) == 3
    for name in list(wanted):
        node.handle("n2", Vote(name, node.instances[name].acceptor.view, 0, state_of(name), (), 0), now)
    for number in range(5):
        wanted |= {m.instance: None for _, m in sent(node.timer("tick", now + number * 20_000), RequestView)}
    assert len(wanted) == 6, "the next ones, when those are led again"


def test_the_place_of_a_node_that_vanished_is_taken_at_once() -> None:
    node = a_node()
    node.start(NOW)
    next_in_turn = (("n1", "n0", "n2"), ("n2", "n1", "n0"))
    names = [name for name in map(str, range(40)) if node.shared.members_of(name) in next_in_turn]
    for name in names:
        node.handle("n1", Decided(0, state_of(name)), NOW)
    node.handle("n1", Heartbeat(tuple(Lead(name, 0, 0, False) for name in names)), NOW)
    node.handle("n2", Heartbeat(()), NOW)
    assert sent(node.timer("tick", NOW + 1), RequestView) == []
    assert sent(node.handle("n1", Disconnected("n1", "closed"), NOW + 2), RequestView) == []
    asked_for = sent(node.handle("n1", Vanished("n1"), NOW + 3), RequestView)
    assert {message.instance for _, message in asked_for} == set(names) != set()


# --- a state on its way ---


def test_a_state_goes_out_as_what_it_adds_to_those_that_have_nearly_all_of_it() -> None:
    table = Table(sequence(*(action(f"w{n}", "r", "x", write=True, alone=True) for n in range(4))))
    a, b, c = table.members
    bases: dict[tuple[str, int], int] = {}

    def lost(to: str, message: Any) -> bool:
        if isinstance(message, Replicate):
            bases.setdefault((to, message.state.group), message.base)
            assert len(message.state.lineage) == message.state.group - max(message.base, 0)
        senders = [sender for sender, _, lying in table.lying if lying is message]
        return isinstance(message, Ack) and message.group in (0, 2, 3) and to == a and senders == [c]

    table.start()
    table.deliver([a, b, c], lose=lost)
    assert bases == {
        **{(b, group): group - 1 for group in range(1, 5)},
        (b, 0): -1,
        (c, 0): -1,
        (c, 1): -1,
        (c, 2): 1,
        (c, 3): 2,
        (c, 4): -1,
    }, "of c nothing is known after group 1"
    assert table.violations() == []


def test_who_is_named_says_so_as_often_as_it_is_named() -> None:
    node = a_node()
    instance = led_by(node, "n1")
    state = state_of(instance, "x", 2)

    def named(view: int, one: State, master: str = "n0") -> list[tuple[str, Any]]:
        return sent(node.handle("n1", Name(view, one, master), NOW), Named)

    with pytest.raises(ProtocolError, match="n2 was named master"):
        named(1, state, "n2")
    assert not node.instances[instance].leading
    unknown = msgspec.structs.replace(state, version="other")
    assert named(1, unknown) == [], "the planner will go on without this replica"
    other = a_node()
    taken_up = []
    for _ in range(2):
        effects = other.handle("n1", Name(1, state, "n0"), NOW)
        assert sent(effects, Named) == [("n1", Named(instance, 1, 3))]
        assert other.instances[instance].leading
        taken_up.append([e.detail for e in effects if isinstance(e, Report) and e.what == "process.named"])
    assert taken_up == [[f"{instance}: n1 named n0"], []]
    earlier = state_of(instance, "x", 1)
    assert sent(other.handle("n1", Name(1, earlier, "n0"), NOW), Named) == [("n1", Named(instance, 1, 2))], "long since"
    assert sent(other.handle("n1", Name(0, state, "n0"), NOW), Named) == [], "of a view that is over"
    other.handle("n2", RequestView(instance, 2), NOW)
    assert not other.instances[instance].leading
    assert sent(other.handle("n1", Name(1, state, "n0"), NOW), Named) == []


def test_a_master_is_named_again_until_it_shows_that_it_leads() -> None:
    table = Table(one_write(), naming="rotate")
    a, b, c = table.members
    for name in (a, b, c):
        for other in {a, b, c} - {name}:
            table.nodes[name].shared.hearing.hear(other, table.now)
    table.start()
    table.deliver([a, b, c], lose=lambda to, message: isinstance(message, Name))
    assert f"{INSTANCE}|naming" in table.disks[a], "before another one hears of it"
    began = table.now
    times = []
    for _ in range(30):
        table.tick(a, 10_000)
        named = [item for item in table.lying if isinstance(item[2], Name)]
        times += [table.now - began for _ in named]
        assert all(to == b and message.master == b for _, to, message in named)
        table.lying = []
    assert times == list(range(60_000, 301_000, 60_000))
    table.tick(a, 60_000)
    table.deliver([a, b, c])
    assert INSTANCE in table.nodes[a].finished or table.replica(b).final
    assert [line.what for line in table.journal] == ["do"]
    assert table.violations() == []


def test_a_state_is_sent_again_ever_more_seldom_to_those_that_have_not_acknowledged_it() -> None:
    node = a_node(FIVE, f=2, resend_us=60_000, resend_us_max=300_000)
    instance = led_by(node, "n0")
    effects = node.begin(Start(instance, "texting", {}), NOW)
    others = node.instances[instance].others
    assert [to for to, _ in sent(effects, Replicate)] == list(others)
    node.handle(others[0], Ack(instance, 0, 0), NOW)
    node.handle(others[1], Ack(instance, 0, 1), NOW)  # of another group
    again = []
    for number in range(1, 200):
        now = NOW + number * 10_000
        if to := [name for name, _ in sent(node.timer("tick", now), Replicate)]:
            assert to == list(others[1:])
            again.append(now - NOW)
    assert again == [60_000, 180_000, 420_000, *range(720_000, 2_000_000, 300_000)]
    assert node.query(instance)["group"] == 0
    assert not sent(node.handle("client", Start(instance, "texting", {}), NOW), Started)
    own = Ack(instance, 0, 0)
    node.handle("n0", own, NOW)
    effects = node.handle(others[2], own, NOW)
    assert ("client", Started(instance)) in sent(effects, Started), "three of five have it"


# --- pages for a node that lost its disk ---


def asked(node: ProcessNode, incarnation: int, after: str = "", by: str = "n1") -> Recalled:
    [(to, page)] = sent(node.handle(by, Recall(incarnation, after), NOW), Recalled)
    assert (to, page.incarnation, page.after) == (by, incarnation, after)
    assert isinstance(page, Recalled)
    return page


def test_what_a_node_knows_is_told_page_by_page_within_their_bound() -> None:
    node = a_node()
    texts = {"a": 100_000, "b": 100_000, "c": 100_000, "d": 2 * PAGE_BYTES, "e": 10}
    for instance, size in texts.items():
        node.handle("n2", Replicate(0, state_of(instance, "x" * size)), NOW)
    node.roster.add_finished("done", Outline("texting", "completed", "", {}))
    node.handle("partner", Publish("p", "c", "k", 7), NOW)
    node.timetable.set_mark("daily", 77)
    pages = [asked(node, 5)]
    node.handle("n2", Replicate(0, state_of("new")), NOW)  # of this one the new incarnation hears by itself
    while not pages[-1].last:
        pages.append(asked(node, 5, pages[-1].through))
    assert [[memory.instance for memory in page.memories] for page in pages] == [
        ["a", "b"],
        ["c"],
        ["d"],
        ["done", "e"],
    ]
    assert [list(page.published) for page in pages] == [[], [], [], ["p"]]
    assert [page.marks for page in pages] == [{}, {}, {}, {"daily": 77}]
    assert all(page.whole and page.known == {"n1": 5} for page in pages)
    known = {memory.instance: memory for page in pages for memory in page.memories}
    assert known["a"] == Memory("a", 0, 0, state_of("a", "x" * 100_000), ())
    assert known["done"] == Memory("done", 0, -1, None, (), Outline("texting", "completed", "", {}))
    assert [m.instance for m in asked(node, 5).memories] == ["a", "b"], "asked anew it tells all again"
    older = asked(node, 4)
    assert (older.memories, older.last, older.known) == ((), False, {"n1": 5}), "a later incarnation has asked"
    assert [m.instance for m in asked(node, 6, "ie").memories] == ["new"]


@pytest.mark.parametrize(("more", "pages"), [(0, [["a", "b"]]), (1, [["a"], ["b"]])])
def test_a_page_may_be_full_to_the_last_byte(more: int, pages: list[list[str]]) -> None:
    node = a_node()
    half = state_of("a", "x" * (PAGE_BYTES // 2))
    rest = PAGE_BYTES - len(msgspec.msgpack.encode(Memory("a", 0, 0, half, ())))
    length = rest - len(msgspec.msgpack.encode(Memory("b", 0, 0, state_of("b", "x" * 70_000), ()))) + 70_000
    for state in (half, state_of("b", "x" * (length + more))):
        node.handle("n2", Replicate(0, state), NOW)
    told = [asked(node, 5)]
    while not told[-1].last:
        told.append(asked(node, 5, told[-1].through))
    assert [[memory.instance for memory in page.memories] for page in told] == pages


def test_only_instances_that_the_asking_node_has_a_part_in_are_told() -> None:
    node = a_node(FIVE)
    ours = [i for i in map(str, range(60)) if "n0" in node.shared.members_of(i)]
    for instance in ours:
        node.handle("n2", Replicate(0, state_of(instance)), NOW)
    both = [i for i in ours if "n1" in node.shared.members_of(i)]
    assert 0 < len(both) < len(ours)
    assert sorted(memory.instance for memory in asked(node, 5).memories) == sorted(both)


def test_a_node_with_an_empty_disk_asks_until_enough_have_told_it_everything() -> None:
    node = a_node(asks_first=True)
    node.start(NOW)

    def asks(effects: list[Any]) -> list[tuple[str, str]]:
        return [(to, message.after) for to, message in sent(effects, Recall)]

    assert asks(node.timer("tick", NOW)) == [("n1", ""), ("n2", "")]
    mine = node.shared.incarnations.lives.mine
    assert mine == NOW
    assert asks(node.timer("tick", NOW + ASK_US - 1)) == []
    assert asks(node.timer("tick", NOW + ASK_US)) == [("n1", ""), ("n2", "")]
    one, two = Mail("one", "go", 1), Mail("two", "go", 2)
    first = Memory("a", 4, 1, state_of("a", "later view"), (one,))
    second = Memory("a", 3, 0, state_of("a", "further group", 3), (two,))
    ended = Memory("b", 0, -1, None, (), Outline("texting", "failed", "", {}))
    page = Recalled(mine, 0, True, through="ia", memories=(first,), marks={"daily": 50})
    assert asks(node.handle("n1", page, NOW)) == [("n1", "ia")]
    for other in (page, Recalled(mine + 1, 0, True, last=True), Recalled(mine, 0, True, after="ib", last=True)):
        assert asks(node.handle("n1", other, NOW)) == [], "it came already, is for another, or does not follow"
    assert node.rejoin.missing == ["n1", "n2"]
    node.handle("n1", Recalled(mine, 0, True, after="ia", through="ib", last=True, memories=(ended,)), NOW)
    assert node.rejoin.missing == ["n2"]
    assert "n2" in node.rejoin.why_absent
    assert "n1" not in node.rejoin.why_absent
    reported = [
        now
        for now in range(NOW + ASK_US, NOW + 25 * SECOND_US, ASK_US)
        for e in node.timer("tick", now)
        if isinstance(e, Report) and e.what == "process.absent"
    ]
    assert [round((now - NOW) / REPORT_US) for now in reported] == [1, 2]
    assert node.instances == {}
    published = {"p": Published("c", "k", 7, NOW)}
    last = Recalled(
        mine, 0, True, last=True, memories=(second, Memory("b", 0, 0, state_of("b"), ())), published=published,
        marks={"daily": 40},
    )  # fmt: skip
    effects = node.handle("n2", last, NOW)
    assert sum(isinstance(e, Deliver) and e.what == TakesPart() for e in effects) == 1
    assert (node.rejoin.missing, node.rejoin.why_absent) == ([], "")
    [replica] = node.instances.values()
    assert (replica.acceptor.view, replica.acceptor.rank) == (4, (1, 0))
    assert replica.known is not None
    assert replica.known.variables == {"text": "later view"}
    assert {mail.id for mail in replica.inbox.mailbox.mail} == {"one", "two"}
    assert list(node.finished) == ["b"], "what is settled was final"
    assert (node.shared.published, node.timetable.marks["daily"]) == (published, 50)
    assert node.shared.incarnations.known == {"n0": mine}
    assert asks(node.timer("tick", NOW + 30 * SECOND_US)) == []


def test_a_node_begins_anew_where_a_later_incarnation_of_it_was_heard_of() -> None:
    node = a_node(asks_first=True)
    node.start(NOW)
    node.timer("tick", NOW)
    mine = node.shared.incarnations.lives.mine
    node.handle("n1", Recalled(mine, 0, True, through="ia", memories=(Memory("a", 0, -1, None, ()),)), NOW)
    effects = node.handle("n2", Recalled(mine, 0, True, {"n0": mine + 5}, last=True), NOW)
    assert sent(effects, Recall) == [("n1", Recall(mine + 6)), ("n2", Recall(mine + 6))]
    assert node.rejoin.missing == ["n1", "n2"], "what was told to the one before does not count"
    assert (node.rejoin.number(7, -node.shared.wall_offset_us), node.rejoin.number(-9, -5)) == (8, 1)
    assert node.rejoin.number(7, 1_000 - node.shared.wall_offset_us) == 1_000


def test_nodes_that_are_all_empty_found_a_cluster_together() -> None:
    node = a_node(asks_first=True)
    node.start(NOW)
    node.timer("tick", NOW)
    mine = node.shared.incarnations.lives.mine
    assert not any(isinstance(e, Deliver) for e in node.handle("n1", Recalled(mine, 5, False), NOW))
    effects = node.handle("n2", Recalled(mine, 6, False), NOW)
    assert [e.what for e in effects if isinstance(e, Deliver)] == [TakesPart()]
    founders = {"n0": mine, "n1": 5, "n2": 6}
    assert node.shared.incarnations.lives.founders == founders
    assert asked(node, 5).founders == founders, "whoever missed that moment hears of it"
    assert asked(node, 7).founders == {}
    late = a_node(asks_first=True)
    late.start(NOW)
    late.timer("tick", NOW)
    effects = late.handle("n1", Recalled(mine, 0, True, founders=founders), NOW)
    assert [e.what for e in effects if isinstance(e, Deliver)] == [TakesPart()]
