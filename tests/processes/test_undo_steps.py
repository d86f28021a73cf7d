"""What is undone, in which order and how patiently: the steps of a log, of a process and of survivors, one by one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.processes.shops import order
from tests.processes.table import action, sequence
from tests.processes.test_long_loops import metering, played
from tests.processes.test_scale import NAMES, Three
from unerring import Process, Service
from unerring.processes.acceptor import Acceptor
from unerring.processes.config import ProcessesConfig
from unerring.processes.context import Context
from unerring.processes.graph import Graph, Retry, Service as Declared
from unerring.processes.grouping import Grouping
from unerring.processes.logs import Logs
from unerring.processes.messages import (
    Answer,
    Clean,
    GroupLog,
    Intent,
    Outcome,
    Reply,
    State,
    Status,
    Step,
    Taken,
    Undone,
)
from unerring.processes.packing import unpacked
from unerring.processes.recovery import Recovery, excluded, kept, place_before, sweep
from unerring.processes.undo import Undo, UndoStep, steps_of_log, steps_of_taken
from unerring.processes.waits import due_us, late_block, lost_child, waits_for
from unerring.processes.watch import Watch

PATIENCE = ProcessesConfig(undo_attempt_us=100, undo_pause_us_max=1_000, undo_attempts_max=3)


class Trip(msgspec.Struct):
    item: str = ""
    price: int = 0
    note: str = ""
    parts: list[str] = []


def trip() -> Process:
    services = [Service("bank"), Service("mail", cancels=False), Service("old", cancels=False, filters=False)]
    process = Process("trip", state=Trip, services=services)

    @process.action(service="bank", writes="price", write=True)
    async def reserve(item: str) -> int: ...

    @process.action(service="bank", writes="price")
    async def look(item: str) -> int: ...

    @process.action(service="mail", writes="note", write=True, compensation="release")
    async def ask(item: str) -> str: ...

    @process.action(service="old", write=True, compensation="untell")
    async def tell(item: str) -> None: ...

    @process.action(service="bank", write=True, compensable=False)
    async def ship(item: str) -> None: ...

    return process.flow(reserve, look, ask, tell, ship)


GRAPH = trip().graph


def step(vertex: str, unknown: bool = False) -> UndoStep:
    return UndoStep("i", vertex, f"i/{vertex}/0@1", {"item": "x"}, "r", 2, (0,), unknown)


# --- one after the other ---


def test_a_compensation_is_asked_for_ever_more_seldom_and_shown_as_stuck() -> None:
    undo = Undo(GRAPH, [step("reserve")], 4, PATIENCE)
    assert undo.next_us == 0
    asked, stuck = [], []
    for now in range(0, 4_000, 50):
        if undo.tick(now) is not None:
            asked.append(now)
            stuck.append(undo.stuck)
    assert asked == [0, 100, 300, 700, 1_500, 2_500, 3_500]
    assert stuck == [False] * 3 + [True] * 4
    assert undo.next_us == 4_500
    undo.hurry()
    assert (undo.tick(4_001) is not None, undo.stuck, undo.next_us) == (True, False, 4_101)


@pytest.mark.parametrize(
    ("answer", "mode", "recorded", "progress"),
    [
        (Answer.DONE, "cancel", True, True),
        (Answer.DONE, "do", True, False),  # of the interaction itself, long ago
        (Answer.REFUSED, "cancel", True, False),
        (Answer.UNKNOWN, "cancel", True, False),
        (Answer.UNREACHED, "cancel", True, False),
        (Answer.DONE, "cancel", False, False),
    ],
)
def test_only_what_the_service_confirmed_is_undone(answer: str, mode: str, recorded: bool, progress: bool) -> None:
    undo = Undo(GRAPH, [step("reserve"), step("look")], 4, PATIENCE)
    assert not undo.reply(Reply("i", "i/reserve/0@1", "cancel", Answer.DONE), 0), "nothing was asked yet"
    asked = undo.tick(5)
    assert asked is not None
    assert (asked.iid, asked.mode, asked.view, asked.group, asked.basis) == ("i/reserve/0@1", "cancel", 4, 2, (0,))
    assert not undo.reply(Reply("i", "i/look/0@1", mode, answer, None, recorded), 30), "another one's"
    assert undo.reply(Reply("i", asked.iid, mode, answer, None, recorded), 30) is progress
    assert (undo.done, undo.took) == (([asked.iid], [Undone("reserve", asked.iid, 25)]) if progress else ([], []))
    following = undo.tick(31)
    assert (following is not None and following.iid) == ("i/look/0@1" if progress else False)
    assert undo.next_us == (131 if progress else 105)
    assert not undo.finished


def test_whose_turn_has_not_come_asks_again_then_and_that_is_no_attempt() -> None:
    undo = Undo(GRAPH, [step("reserve")], 4, PATIENCE)
    now = 0
    for _ in range(5):
        asked = undo.tick(now)
        assert asked is not None
        assert not undo.reply(Reply("i", asked.iid, asked.mode, Answer.WAIT, 70), now + 3)
        assert undo.next_us == now + 73
        assert undo.tick(now + 72) is None
        now += 73
    assert not undo.stuck
    undo.tick(now)
    assert undo.next_us == now + 100, "the first attempt that counts"
    undo.tick(now + 100)
    undo.reply(Reply("i", "i/reserve/0@1", "cancel", Answer.WAIT, 70), now + 101)
    undo.tick(now + 171)
    assert undo.next_us == now + 371, "and of two one is taken back"


def test_what_may_have_happened_is_settled_before_it_is_undone() -> None:
    for answer, undone in ((Answer.DONE, False), (Answer.REFUSED, True), (Answer.FENCED, True)):
        undo = Undo(GRAPH, [step("ask", unknown=True)], 4, PATIENCE)
        asked = undo.tick(0)
        assert asked is not None
        assert (asked.settle, asked.mode, asked.operation) == (True, "do", "ask")
        assert undo.reply(Reply("i", asked.iid, "do", answer, "known"), 1) is undone
        assert undo.finished is undone, answer
        if not undone:
            asked = undo.tick(1)
            assert asked is not None
            assert (asked.settle, asked.mode, asked.operation) == (False, "undo", "release")
            assert asked.payload == {"request": {"item": "x"}, "reply": "known"}
            assert undo.reply(Reply("i", asked.iid, "undo", Answer.DONE), 2)
            assert undo.finished
    unfiltered = Undo(GRAPH, [step("tell", unknown=True)], 4, PATIENCE).tick(0)
    assert unfiltered is not None
    assert (unfiltered.settle, unfiltered.mode, unfiltered.operation) == (False, "undo", "untell")


# --- the steps ---


def test_of_a_masters_log_all_writes_are_undone_that_may_have_happened_the_last_first() -> None:
    names = (("reserve", 0), ("look", 0), ("reserve", 1), ("ask", 0), ("tell", 0), ("ship", 0))
    intents = tuple(Intent(name, number, {"of": name}) for name, number in names)
    outcomes = (
        Outcome("reserve", 0, Answer.REFUSED, None),
        Outcome("reserve", 1, Answer.DONE, 7),
        Outcome("look", 0, Answer.DONE, 8),
        Outcome("ask", 0, Answer.UNKNOWN, "lost"),
    )
    log = GroupLog(3, 2, (0,), (), {}, intents, outcomes)
    steps = steps_of_log(GRAPH, "i", log)
    assert [(s.vertex, s.iid, s.request, s.reply, s.group, s.basis, s.unknown) for s in steps] == [
        ("tell", "i/tell/0@3", {"of": "tell"}, None, 2, (0,), True),
        ("ask", "i/ask/0@3", {"of": "ask"}, "lost", 2, (0,), True),
        ("reserve", "i/reserve/1@3", {"of": "reserve"}, 7, 2, (0,), False),
    ]
    for answer, without in ((Answer.FINAL, True), (Answer.UNREACHED, True), (Answer.FENCED, False)):
        other = msgspec.structs.replace(log, outcomes=(*outcomes, Outcome("tell", 0, answer, None)))
        assert (steps_of_log(GRAPH, "i", other) == steps[1:]) is without, answer
    undone = msgspec.structs.replace(log, undone=("i/ask/0@3",))
    assert steps_of_log(GRAPH, "i", undone) == [steps[0], steps[2]]


def after(graph: Graph, views: tuple[int, ...], before: str, *taken: Taken, **fields: Any) -> State:
    """A decided state whose mark lies before a vertex."""
    cut = tuple(number for number, edge in enumerate(graph.edges) if edge.target == before)
    lineage = tuple(Step(view, graph.start) for view in views)
    return State("i", graph.name, graph.version, len(views), lineage, cut, fields.pop("variables", {}), taken, **fields)


def took(vertex: str, group: int, write: bool = True, unknown: bool = False, reply: Any = None) -> Taken:
    return Taken(vertex, f"i/{vertex}/0", {"item": "x"}, reply, write, group, 0, unknown)


def test_a_process_is_undone_back_to_where_it_goes_on_or_to_what_is_done_for_good() -> None:
    taken = (took("reserve", 1), took("look", 1, write=False), took("ask", 2, unknown=True), took("tell", 3))
    state = after(GRAPH, (0, 0, 1), "ship", *taken)
    steps = steps_of_taken(GRAPH, state, 10)
    assert [(s.vertex, s.iid, s.group, s.basis, s.unknown) for s in steps] == [
        ("tell", "i/tell/0", 3, (0, 0), False),
        ("ask", "i/ask/0", 2, (0,), True),
        ("reserve", "i/reserve/0", 1, (), False),
    ]
    for rewind, count in ((-1, 3), (0, 3), (1, 2), (2, 1), (3, 0)):
        rewound = msgspec.structs.replace(state, rewind=rewind)
        assert steps_of_taken(GRAPH, rewound, 10) == steps[:count], rewind
    shipped = after(GRAPH, (0, 0, 1), "", *taken[:2], took("ship", 2), took("tell", 3))
    assert [s.vertex for s in steps_of_taken(GRAPH, shipped, 10)] == ["tell"]


def test_children_are_undone_in_reverse_with_their_own_results() -> None:
    graph = order(pay=False).graph
    given = {"customer": "ann", "items": ["a", "b"], "labels": [], "paid": 0, "receipt": "", "note": ""}
    reserved = took("reserve", 1)
    for views, names in (((0, 0), ["i+send_all+1", "i+send_all+0", "i/reserve/0"]), ((0,), None)):
        state = after(graph, views, "send_all", reserved, variables=given)
        steps = steps_of_taken(graph, state, 10)
        names = names or ["i/reserve/0", "i+send_all+1", "i+send_all+0"]  # the group that failed may have built on them
        assert [s.iid for s in steps] == names
        children = [s for s in steps if s.vertex == "send_all"]
        assert [(s.unknown, s.reply, s.group, s.request.given) for s in children] == [
            (True, None, len(views), {"item": "b"}),
            (True, None, len(views), {"item": "a"}),
        ]
        assert [s.iid for s in steps_of_taken(graph, state, 1)] == ["i/reserve/0"], "more than may be begun"
    sent = Taken("send_all", "i+send_all", given, ["l-a", "l-b"], True, 2, 0)
    state = after(graph, (0, 0, 0), "close", reserved, sent, variables=given)
    assert [(s.iid, s.reply, s.unknown) for s in steps_of_taken(graph, state, 10)] == [
        ("i+send_all+1", "l-b", False),
        ("i+send_all+0", "l-a", False),
        ("i/reserve/0", None, False),
    ]
    for views, unknown in (((0, 0, 0), False), ((0, 0), True)):
        failed = msgspec.structs.replace(sent, reply=None)
        state = after(graph, views, "send_all", reserved, failed, variables=given)
        assert [(s.iid, s.reply, s.unknown) for s in steps_of_taken(graph, state, 10)] == [
            ("i+send_all+1", None, unknown),
            ("i+send_all+0", None, unknown),
            ("i/reserve/0", None, False),
        ], "those at the cut are these"


# --- what survivors cancel ---


def three_writes(cancels: bool = True) -> Graph:
    actions = [
        msgspec.structs.replace(
            action(f"w{n}", "r", "x", write=True, alone=True), retry=Retry(occurrences_max=2), compensation="undo"
        )
        for n in range(3)
    ]
    return sequence(*actions, service=Declared("bank", cancels=cancels)).graph


def test_survivors_cancel_in_each_older_view_the_one_group_that_it_may_have_executed_outside() -> None:
    graph = three_writes()
    lineage = (Step(0, (1,)), Step(3, (2,)))
    state = State("i", "p", graph.version, 2, lineage, (2,), {})

    def swept(**changes: Any) -> list[str]:
        steps, blocked = sweep(graph, Grouping(), msgspec.structs.replace(state, **changes), 4)
        assert blocked == []
        assert all(one.unknown and one.reply is None for one in steps)
        assert [one.basis for one in steps] == [(0,) if one.group == 2 else (0, 3) for one in steps]
        return [f"{one.group}: {one.iid}" for one in steps]

    nxt = ["3: i/w2/1@3", "3: i/w2/0@3"]
    older = [f"2: i/w1/{number}@{view}" for view in (2, 1, 0) for number in (1, 0)]
    assert swept() == nxt + older
    assert swept(swept=1) == nxt + older[:4]
    assert swept(swept=4) == []
    assert swept(again=1)[:4] == [f"3: i/w2/{number}@3" for number in (3, 2, 1, 0)]
    for change in ({"status": Status.UNDOING}, {"announced": "w2"}):  # what follows repeats the same interactions
        assert swept(**change) == older
    assert sweep(three_writes(cancels=False), Grouping(), state, 4) == ([], ["w2"])


def test_survivors_cancel_writes_alone() -> None:
    graph = sequence(action("w", "r", "x", write=True), action("look", "r", "y")).graph
    state = State("i", "p", graph.version, 0, (), graph.start, {})
    steps, blocked = sweep(graph, Grouping(), state, 1)
    assert ({one.vertex for one in steps}, blocked) == ({"w"}, [])


def test_views_in_which_nothing_was_written_are_passed_over_at_once() -> None:
    """However many somebody says that there were: node by node and tick by tick, a million took minutes."""
    graph = sequence(action("look", "r", "y"), action("see", "r", "x")).graph
    state = State("i", "p", graph.version, 1, (Step(1 << 61, (1,)),), (1,), {})
    assert sweep(graph, Grouping(), state, 1 << 62) == ([], [])


def test_where_a_group_began_is_found_in_a_packed_history_too() -> None:
    process = metering(50)
    state = played(process, 8, 30)
    whole = unpacked(state)
    assert state.unpacked_from > 8
    places = [place_before(process.graph, state, group) for group in range(1, 32)]
    assert places == [place_before(process.graph, whole, group) for group in range(1, 32)]
    assert places[0] == (process.graph.start, {})
    assert [rounds for _, rounds in places[1:]] == [step.rounds for step in whole.lineage]


def test_an_execution_is_kept_or_excluded_by_the_lineage() -> None:
    graph = three_writes()
    state = State("i", "p", graph.version, 2, (Step(0, (1,)), Step(3, (2,))), (2,), {})
    table = {(group, view): (kept(group, view, state), excluded(group, view, 3, state)) for group in (1, 2, 3)
             for view in (0, 2, 3)}  # fmt: skip
    assert table == {
        (1, 0): (True, False),
        (1, 2): (False, True),
        (1, 3): (False, False),
        (2, 0): (False, True),
        (2, 2): (False, True),
        (2, 3): (True, False),
        (3, 0): (False, True),
        (3, 2): (False, True),
        (3, 3): (False, False),
    }


def test_a_replica_counts_as_clean_by_its_latest_word_or_once_survivors_have_seen_to_what_it_forgot() -> None:
    context = Context(Three().nodes["n0"].shared, "i", NAMES)
    nobody: Any = None
    acceptor = Acceptor(context, Watch(context, 0), nobody, {})
    logs = Logs(context, {})
    recovery = Recovery(context, acceptor, logs, nobody, {})
    assert not recovery.is_clean(), "it knows of no decided state"
    state = State("i", "p", "v", 5, tuple(Step(0, (0,)) for _ in range(5)), (0,), {})
    acceptor.decided = (2, state)
    assert recovery.is_clean()
    assert not recovery.all_clean(1)
    for view, group, clean in ((2, 6, True), (0, 1, True), (1, 1, False), (1, 6, False)):
        logs.keep(GroupLog(view, group, (), (), {}, (), ()))
        assert recovery.is_clean() is clean, "what is under way, or in the lineage, is nothing to undo"
        logs.drop(view, group)
    recovery.on_clean("n1", Clean("i", 1, 4), 0)
    recovery.on_clean("n2", Clean("i", 1, 3), 0)
    recovery.on_clean("n2", Clean("i", 0, 9), 0)  # an earlier word that comes late
    assert [recovery.all_clean(view, group) for view, group in ((1, -1), (1, 3), (1, 4), (2, -1))] == [
        True,
        True,
        False,
        False,
    ]
    assert recovery.wants_clean()
    recovery.on_clean("n1", Clean("i", 2, 5), 0)
    recovery.on_clean("n2", Clean("i", 2, 5, lost=1), 0)
    recovery.on_clean("n2", Clean("i", 1, 9, lost=0), 0)
    assert not recovery.all_clean(2, 5)
    assert not recovery.outside_undone()
    acceptor.decided = (2, msgspec.structs.replace(state, swept=2))
    assert recovery.all_clean(2, 5), "what it forgot is cancelled"
    assert not recovery.all_clean(2, 6)
    assert recovery.outside_undone()
    assert not recovery.wants_clean()
    acceptor.decided = (2, msgspec.structs.replace(state, swept=1))
    assert not recovery.all_clean(2, 5)
    recovery.lose(0)
    recovery.on_clean("n2", Clean("i", 2, 5), 0)
    assert recovery.all_clean(2, 5), "nothing that this one forgot is of a view from 1 on"
    recovery.lose(1)
    assert not recovery.all_clean(2, 5)
    assert recovery.all_clean(1, 5), "the view that the instance was in then"
    acceptor.decided = (2, msgspec.structs.replace(state, status=Status.COMPLETED, swept=2))
    assert recovery.wants_clean(), "before it is settled all are asked"


# --- blocks and races that are over ---


def test_of_several_late_blocks_the_first_one_that_can_be_undone_is() -> None:
    process = Process("nested", state=Trip, services=[Service("mail")])

    @process.action(service="mail", write=True, compensable=False)
    async def ship(item: str) -> None: ...

    @process.action(service="mail", write=True)
    async def ask(item: str) -> None: ...

    inner = process.within(9, [ask, process.receive("answer", writes="note")])
    graph = process.flow(process.within(99, [ship, inner])).graph
    outer_name, inner_name = sorted(graph.blocks, key=graph.rank.__getitem__)
    blocks = {inner_name: (3, 800), outer_name: (1, 500)}

    def undone(wall_us: int, shipped: int) -> int | None:
        late = late_block(graph, after(graph, (0,) * 4, "answer", took("ship", shipped), blocks=blocks), wall_us)
        if late is None:
            return None
        assert graph.edges[late.turn].source == (outer_name if late.rewind == 1 else inner_name)
        return late.rewind

    assert [undone(wall_us, 1) for wall_us in (499, 500, 800)] == [None, 1, 1]
    assert [undone(wall_us, 2) for wall_us in (500, 799, 800)] == [None, None, 3]


def test_a_child_that_lost_its_race_is_undone_before_the_way_of_the_winner_is_taken() -> None:
    process, part = Process("racing", state=Trip), Process("part", state=Trip)
    unmake = Process("unmake", state=Trip)
    child = process.child(
        "making", part.flow(part.sleep("pause", 7)), {"item": "item"}, undo=unmake.flow(unmake.sleep("pause", 7))
    )
    stop, patience = process.receive("stop", writes="note"), process.sleep("patience", 9)
    graph = process.flow(process.first([child], [stop], [patience])).graph
    cut = tuple(number for number, edge in enumerate(graph.edges) if edge.target in ("making", "stop", "patience"))
    state = msgspec.structs.replace(after(graph, (0, 0), "stop"), cut=cut, held="x")
    assert waits_for(graph, msgspec.structs.replace(state, held="", due={"patience": 77})) == [
        {"wait": "making", "kind": "child"},
        {"wait": "stop", "kind": "signal", "channel": "stop"},
        {"wait": "patience", "kind": "time", "until_us": 77},
    ]
    assert due_us(graph, graph.by_name["patience"], state) == 0, "of one that nobody has begun"
    for winner in ("stop", "patience"):
        lost = lost_child(graph, state, [winner])
        assert lost is not None
        assert (lost.status, lost.rewind, lost.held) == (Status.UNDOING, 2, "")
        assert graph.edges[lost.turn].target == winner
    assert lost_child(graph, state, []) is None
    assert lost_child(graph, state, ["making"]) is None, "it has won"
    gone = tuple(number for number in cut if graph.edges[number].target != "making")
    assert lost_child(graph, msgspec.structs.replace(state, cut=gone), ["stop"]) is None
