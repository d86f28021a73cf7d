"""A master's execution of one group by itself: what it asks, how long it is patient, and what it makes of answers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from unerring import Process, Service
from unerring.processes.execution import PRIORITY_MAX, Execution, priority_of
from unerring.processes.graph import Retry
from unerring.processes.messages import Answer, Mail, Outcome, Reply, Request, State, Status, Step, Taken

RETRY = Retry(attempt_us=100, attempts_max=3, backoff_us=10, backoff_max_us=35, occurrences_max=2)


class Order(msgspec.Struct):
    item: str = "bolt"
    paid: str = ""
    label: str = ""
    urgent: int = 7


def shop(final: bool = False, retry: Retry = RETRY) -> Process:
    """A payment, which may be for good, and a label."""
    process = Process("order", state=Order, services=[Service("bank"), Service("press")])

    @process.action(
        service="bank", write=True, writes="paid", retry=retry, compensable=not final, key="item", priority="urgent"
    )
    async def pay(item: str) -> str: ...

    @process.action(service="press", writes="label", retry=retry)
    async def stick(paid: str) -> str: ...

    return process.flow(pay, stick)


def begun(process: Process | None = None, view: int | None = 2, **fields: Any) -> Execution:
    process = process or shop()
    graph = process.graph
    state = State("i", "order", graph.version, 3, (), graph.start, process.initial({}))
    state = msgspec.structs.replace(state, **fields)
    return Execution(process, state, view, graph.order, {}, "" if view is not None else "@b1")


def answer(asked: Request, kind: str, value: Any = None, recorded: bool = True) -> Reply:
    return Reply(asked.instance, asked.iid, "do", kind, value, recorded)


def test_a_group_asks_one_after_the_other_and_has_the_state_behind_it() -> None:
    execution = begun(view=2)
    assert (execution.dirty, execution.wrote) == (False, False)
    [pay] = execution.advance(1_000)
    assert pay == Request(
        "i", "i/pay/0@2", "bank", "pay", {"item": "bolt"}, view=2, group=4, version=execution.input.version,
        key="bolt", priority=7,
    )  # fmt: skip
    assert (execution.finished, execution.wrote, execution.dirty) == (False, True, True)
    assert execution.advance(1_001) == [], "it is under way"
    [stick] = execution.reply(answer(pay, Answer.DONE, "paid"), 1_030)
    assert (stick.iid, stick.payload, stick.view, stick.priority) == ("i/stick/0@2", {"paid": "paid"}, -1, 0)
    assert execution.reply(answer(pay, Answer.DONE, "again"), 1_040) == []
    other = Reply("i", stick.iid, "cancel", Answer.DONE, "x")
    assert (execution.reply(other, 1_040), execution.finished) == ([], False)
    assert execution.reply(answer(stick, Answer.DONE, "l"), 1_045) == []
    assert (execution.finished, execution.stopped) == (True, False)
    state = execution.next_state("n1", 77)
    before = execution.input
    assert state == msgspec.structs.replace(
        before,
        group=4,
        lineage=(Step(2, state.cut, "n1", 77),),
        cut=state.cut,
        variables={"item": "bolt", "paid": "paid", "label": "l", "urgent": 7},
        taken=(
            Taken("pay", "i/pay/0@2", {"item": "bolt"}, "paid", True, 4, 2, took_us=30),
            Taken("stick", "i/stick/0@2", {"paid": "paid"}, "l", False, 4, 2, took_us=15),
        ),
        status=Status.COMPLETED,
    )
    assert execution.graph.ended(state.cut)


def test_a_part_of_the_graph_is_not_the_end() -> None:
    execution = begun()
    execution._scope.pop("stick")
    [pay] = execution.advance(0)
    execution.reply(answer(pay, Answer.DONE, "paid"), 0)
    assert execution.finished
    assert execution.next_state("n1", 0).status == Status.RUNNING


def test_what_is_not_answered_is_asked_again_and_its_fate_is_unknown_in_the_end() -> None:
    """Under the same id; pauses double up to their bound."""
    execution = begun()
    [pay] = execution.advance(1_000)
    for due_us in (1_100, 1_220, 1_355):
        assert execution.next_us(9_999) == due_us
        assert execution.tick(due_us - 1) == []
        assert execution.tick(due_us) == ([pay] if due_us < 1_355 else [])
    assert execution.aborted == "what became of pay is unknown: no answer came"
    assert (execution.permanent, execution.finished, execution.stopped) == (False, False, True)
    assert execution.outcomes == []
    assert execution.advance(2_000) == []


def test_what_never_got_there_was_not_done() -> None:
    execution = begun()
    [pay] = execution.advance(0)
    for now, again_us in ((0, 10), (10, 30), (30, 65)):
        assert execution.reply(answer(pay, Answer.UNREACHED, "no link"), now) == []
        assert execution.next_us(9_999) == again_us
        assert execution.tick(again_us - 1) == []
        assert execution.tick(again_us) == ([pay] if now < 30 else [])
    assert execution.aborted == "bank was not reached for pay: no link"
    assert execution.outcomes == [Outcome("pay", 0, Answer.UNREACHED, "no link", 65)]
    assert (execution.dirty, execution.permanent) == (True, False)


@pytest.mark.parametrize("how", ["unknown", "silent"])
def test_one_attempt_that_may_have_had_its_effect_leaves_a_doubt(how: str) -> None:
    """An unrecorded refusal of a later attempt says nothing of an earlier one."""
    execution = begun()
    [pay] = execution.advance(0)
    if how == "unknown":
        execution.reply(answer(pay, Answer.UNKNOWN, "500"), 0)
    assert execution.tick(100) == [pay]
    execution.reply(answer(pay, Answer.REFUSED, "no", recorded=False), 100)
    assert (execution.outcomes, execution.next_us(9_999)) == ([], 120), "it is asked again, soon"
    assert execution.tick(120) == [pay]
    execution.reply(answer(pay, Answer.UNREACHED, "no link"), 121)
    assert execution.tick(156) == []
    assert execution.aborted == "what became of pay is unknown: no link"


def test_an_unrecorded_refusal_of_the_first_attempt_counts() -> None:
    execution = begun()
    [pay] = execution.advance(0)
    [again] = execution.reply(answer(pay, Answer.REFUSED, "no", recorded=False), 5)
    assert again.iid == "i/pay/1@2"
    assert execution.outcomes == [Outcome("pay", 0, Answer.REFUSED, "no", 5)]


def test_to_wait_for_its_turn_is_no_attempt() -> None:
    execution = begun()
    [pay] = execution.advance(0)
    now = 0
    for _ in range(5):
        assert execution.reply(answer(pay, Answer.WAIT, 400), now) == []
        assert execution.next_us(9_999) == now + 400
        [attempt] = execution.open.values()
        assert attempt.why == "waits for its turn at bank"
        now += 400
        assert execution.tick(now) == [pay]
        assert execution.next_us(9_999) == now + 100 + 10, "it counts as the first"
    assert (execution.aborted, execution.finished) == ("", False)
    for again_us in (now + 110, now + 240, now + 375):
        assert execution.tick(again_us) == ([pay] if again_us < now + 375 else [])
        if again_us == now + 110:
            execution.reply(answer(pay, Answer.WAIT, 10), again_us)
            assert execution.tick(again_us + 10) == [pay], "again the second"
    assert execution.aborted.startswith("what became of pay is unknown")


def test_what_waited_for_its_turn_and_did_not_get_there_was_not_done() -> None:
    execution = begun()
    [pay] = execution.advance(0)
    execution.reply(answer(pay, Answer.WAIT, 400), 0)
    for now in (400, 410, 430):
        assert execution.tick(now) == [pay]
        execution.reply(answer(pay, Answer.UNREACHED, "no link"), now)
    assert execution.tick(465) == []
    assert execution.aborted == "bank was not reached for pay: no link"


def test_refusals_have_occurrences_until_they_are_for_good() -> None:
    for last, permanent in ((Answer.REFUSED, False), (Answer.FINAL, True)):
        execution = begun()
        [pay] = execution.advance(0)
        [again] = execution.reply(answer(pay, Answer.REFUSED, "no"), 5)
        assert (again.iid, execution.aborted) == ("i/pay/1@2", "")
        assert execution.reply(answer(again, last, "never"), 9) == []
        assert (execution.aborted, execution.permanent) == ("bank refused pay: never", permanent)
    execution = begun()
    [pay] = execution.advance(0)
    assert execution.reply(answer(pay, Answer.FINAL, "never"), 5) == []
    assert (execution.aborted, execution.permanent) == ("bank refused pay: never", True)
    execution = begun()
    [pay] = execution.advance(0)
    assert execution.reply(answer(pay, Answer.FENCED), 5) == []
    assert (execution.aborted, execution.fenced, execution.stopped, execution.finished) == ("", True, True, False)


def test_what_an_operator_has_tried_again_has_occurrences_of_its_own() -> None:
    execution = begun(again=3)
    [pay] = execution.advance(0)
    assert pay.iid == "i/pay/6@2"
    [again] = execution.reply(answer(pay, Answer.REFUSED, "no"), 0)
    assert again.iid == "i/pay/7@2"
    assert execution.reply(answer(again, Answer.REFUSED, "no"), 0) == []
    assert execution.aborted == "bank refused pay: no"


def test_what_is_for_good_has_one_id_in_all_views_and_is_asked_for_ever() -> None:
    execution = begun(shop(final=True), occurrence=1)
    [pay] = execution.advance(0)
    assert (pay.iid, pay.view) == ("i/pay/1", -1)
    now = 0
    for _ in range(9):
        now = execution.next_us(-1)
        assert execution.tick(now) == [pay]
    assert execution.reply(answer(pay, Answer.REFUSED, "no", recorded=False), now) == [], (
        "an older one may be under way"
    )
    assert execution.reply(answer(pay, Answer.REFUSED, "no"), now) == []
    assert (execution.aborted, execution.permanent) == ("bank refused pay: no", True), "the second of two"
    first = begun(shop(final=True))
    [pay] = first.advance(0)
    first.reply(answer(pay, Answer.REFUSED, "no"), 0)
    assert (first.aborted, first.permanent) == ("bank refused pay: no", False)


@pytest.mark.parametrize(("executed_in", "doubtful"), [(2, False), (1, True)])
def test_an_older_view_may_have_asked_for_what_is_for_good(executed_in: int, doubtful: bool) -> None:
    execution = begun(shop(final=True), lineage=(Step(executed_in, ()),))
    [pay] = execution.advance(0)
    execution.reply(answer(pay, Answer.REFUSED, "no", recorded=False), 5)
    assert (execution.aborted == "") == doubtful


def test_a_restarted_master_resumes_with_the_replies_that_it_had() -> None:
    crashed = begun()
    [pay] = crashed.advance(0)
    [again] = crashed.reply(answer(pay, Answer.REFUSED, "no"), 5)
    log = crashed.log()
    assert (log.view, log.group, log.basis, log.vertices) == (2, 4, (), crashed.vertices)
    assert (log.abandoned, log.outcomes) == (False, (Outcome("pay", 0, Answer.REFUSED, "no", 5),))
    resumed = begun()
    resumed.resume(log.intents, log.outcomes)
    assert resumed.advance(50) == [again]
    resumed.reply(answer(again, Answer.REFUSED, "no", recorded=False), 60)
    assert resumed.aborted == "", "the one before the crash may have had its effect"
    resumed.reply(answer(again, Answer.REFUSED, "no"), 70)
    assert (resumed.aborted, resumed.log().abandoned) == ("bank refused pay: no", True)
    whole = begun()
    done = Outcome("pay", 0, Answer.DONE, "paid", 9)
    whole.resume((msgspec.structs.replace(log.intents[0], request={"item": "as it was"}),), (done,))
    [stick] = whole.advance(100)
    assert stick.payload == {"paid": "paid"}
    assert whole.taken == [Taken("pay", "i/pay/0@2", {"item": "as it was"}, "paid", True, 4, 2, took_us=9)]


def test_a_backup_asks_under_ids_of_its_own() -> None:
    execution = begun(view=None)
    [pay] = execution.advance(0)
    assert (pay.iid, pay.view) == ("i/pay/0@b1", -1)


@pytest.mark.parametrize("short", [0, 1])
def test_a_group_has_room_for_what_its_bound_says_exactly(short: int) -> None:
    sizes = [len(msgspec.msgpack.encode(value)) for value in ({"item": "bolt"}, "paid")]
    execution = begun()
    execution.room = sizes[0] - short
    assert len(execution.advance(0)) == 1 - short
    assert (execution.aborted != "", execution.permanent) == (bool(short), bool(short))
    execution = begun()
    execution.room = sum(sizes) - short
    [pay] = execution.advance(0)
    assert execution.reply(answer(pay, Answer.DONE, "paid"), 0) == [], "no room for the next request in any case"
    refused = "the state has no room for 5 bytes more, by pay" if short else "the state has no room for 11 bytes more"
    assert execution.aborted.startswith(refused)
    assert execution.permanent
    assert execution.outcomes[0].value == (None if short else "paid")


def test_what_cannot_be_stored_or_used_fails_the_process_or_is_undone() -> None:
    execution = begun()
    [pay] = execution.advance(0)
    execution.reply(answer(pay, Answer.DONE, "\ud800"), 0)
    assert execution.aborted.startswith("pay has a value that cannot be stored")
    assert (execution.permanent, execution.outcomes[0].value) == (True, None)
    for final in (False, True):
        execution = begun(shop(final))
        [pay] = execution.advance(0)
        execution.reply(answer(pay, Answer.DONE, 8), 0)
        assert execution.aborted.startswith("pay answered what cannot be used: ")
        assert execution.permanent == final, "it was done, and would be again"
        assert [taken.reply for taken in execution.taken] == [8]


def test_a_reply_for_several_variables_must_have_them_all() -> None:
    process = Process("order", state=Order, services=[Service("bank")])

    @process.action(service="bank", writes=("paid", "label"))
    async def both() -> Any: ...

    process.flow(both)
    for value, fits in (({"paid": "p", "label": "l", "more": 1}, True), ({"paid": "p"}, False), (["p", "l"], False)):
        execution = begun(process)
        [asked] = execution.advance(0)
        execution.reply(answer(asked, Answer.DONE, value), 0)
        assert (execution.aborted == "") == fits
        assert (execution.variables["paid"], execution.variables["label"]) == (("p", "l") if fits else ("", ""))


def test_who_is_urgent_is_so_within_bounds() -> None:
    assert [priority_of(value) for value in (3, 2.9, True, "9", None)] == [3, 2, 1, 0, 0]
    assert [priority_of(value) for value in (10**9, -(10**9))] == [PRIORITY_MAX, -PRIORITY_MAX]


def test_a_message_is_received_once_and_a_child_that_failed_fails_its_parent() -> None:
    process = Process("order", state=Order)
    child = Process("child", state=Order)
    child.flow(child.receive("x"))
    given = {"item": "item"}
    part = process.child("part", child, given, returns="label", writes="label", compensable=False)
    graph = process.flow(process.receive("paid", writes="paid"), part).graph
    state = State("i", "order", graph.version, 3, (), graph.start, process.initial({}))

    def executed(status: str, **more: Any) -> Execution:
        end = {"status": status, "reason": "because", "value": "l", **more}
        mail = {"paid": Mail("m1", "paid", "yes", "asked"), "part": Mail("i+part", "!child", end)}
        execution = Execution(process, state, 0, graph.order, mail)
        assert execution.advance(0) == []
        return execution

    done = executed("completed")
    assert done.consumed == ["m1", "i+part"]
    assert done.taken == [
        Taken("paid", "m1", "asked", "yes", False, 4, 0),
        Taken("part", "i+part", {"item": "bolt"}, "l", False, 4, -1),
    ]
    assert done.next_state("n0", 0).consumed == ("m1", "i+part")
    for more, exhausted in (({}, False), ({"final": True}, True)):
        failed = executed("failed", **more)
        assert (failed.aborted, failed.permanent, failed.exhausted) == ("child part: because", True, exhausted)
        assert failed.consumed == ["m1"]


class Many(msgspec.Struct):
    items: list[str] = []
    item: str = ""
    label: str = ""
    other: str = ""
    labels: list[str] = []


def asked_of(process: Process, **given: Any) -> tuple[Execution, list[Request]]:
    graph = process.graph
    state = State("i", process.name, graph.version, 3, (), graph.start, process.initial(given))
    execution = Execution(process, state, 0, graph.order, {})
    return execution, execution.advance(0)


def test_branches_are_under_way_at_once_and_what_follows_their_join_after_both() -> None:
    process = Process("both", state=Many, services=[Service("press")])

    @process.action(service="press", writes="label")
    async def one(item: str) -> str: ...

    @process.action(service="press", writes="other")
    async def two(item: str) -> str: ...

    @process.action(service="press")
    async def three(label: str, other: str) -> None: ...

    @process.condition
    def empty(item: str) -> bool:
        return item == ""

    skip = process.xor(empty, {True: [], False: [process.sleep("nap", 5)]})
    process.flow(process.both([one], [two]), skip, three)
    execution, requests = asked_of(process)
    assert [request.operation for request in requests] == ["one", "two"]
    execution.reply(answer(requests[0], Answer.WAIT, 9_000_000), 0)
    due_us = process.graph.by_name["two"].retry.attempt_us
    assert execution.tick(due_us) == [requests[1]], "each in its own time"
    assert execution.reply(answer(requests[1], Answer.DONE, "2"), 0) == []
    [last] = execution.reply(answer(requests[0], Answer.DONE, "1"), 0)
    assert last.payload == {"label": "1", "other": "2"}
    execution.reply(answer(last, Answer.DONE), 0)
    assert execution.next_state("n0", 0).status == Status.COMPLETED
    assert [taken.vertex for taken in execution.taken] == ["two", "one", "three"]


@pytest.mark.parametrize(
    ("choice", "why"),
    [("branch", ""), ("nowhere", "there is no branch for 'nowhere'"), ("", "ZeroDivisionError(")],
)
def test_a_condition_that_fails_fails_the_process(choice: str, why: str) -> None:
    process = Process("choice", state=Many)

    @process.condition
    def choose(item: str) -> str:
        return item or str(1 // 0)

    process.flow(process.xor(choose, {"branch": [], "other": []}))
    execution, _ = asked_of(process, item=choice)
    assert execution.finished == (why == "")
    assert execution.aborted.startswith("condition choose failed: ") == (why != "")
    assert why in execution.aborted
    assert (execution.permanent, execution.exhausted) == (why != "", False)


def labelling(width: int = 1, at_most: int = 3) -> Process:
    process = Process("labelling", state=Many, services=[Service("press")])

    @process.action(service="press", writes="label")
    async def stick(item: str) -> str: ...

    loop = process.each("items", [stick], item="item", collect={"labels": "label"}, width=width, at_most=at_most)
    return process.flow(loop)


def test_a_round_ends_a_group_and_its_beginning_and_end_are_part_of_the_history() -> None:
    process = labelling()
    execution, [stick] = asked_of(process, items=["a", "b"])
    assert (stick.iid, stick.payload) == ("i/stick'0/0@0", {"item": "a"})
    assert execution.reply(answer(stick, Answer.DONE, "A"), 0) == [], "the next round is for the next group"
    assert execution.taken == [
        Taken("each-1", "i/each-1/0@0", None, ["a"], False, 4, 0),
        Taken("stick", "i/stick'0/0@0", {"item": "a"}, "A", False, 4, 0),
        Taken("each-1-end", "i/each-1-end'0/0@0", None, {"next": ["b"], "got": ["A"]}, False, 4, 0),
    ]
    state = execution.next_state("n0", 5)
    assert (state.rounds, state.lineage[-1].rounds, state.status) == ({"each-1": 1}, {"each-1": 1}, Status.RUNNING)
    assert (state.variables["item"], state.variables["labels"]) == ("b", ["A"])
    following = Execution(process, state, 0, process.graph.order, {})
    [stick] = following.advance(0)
    assert stick.iid == "i/stick'1/0@0"
    following.reply(answer(stick, Answer.DONE, "B"), 0)
    end = following.next_state("n0", 5)
    assert (end.rounds, end.status, end.variables["labels"]) == ({}, Status.COMPLETED, ["A", "B"])


def test_a_loop_over_nothing_is_left_out_and_one_over_too_much_fails() -> None:
    execution, requests = asked_of(labelling())
    assert (requests, execution.finished, execution.rounds) == ([], True, {})
    assert [taken.reply for taken in execution.taken] == [[]]
    assert execution.next_state("n0", 0).status == Status.COMPLETED
    assert asked_of(labelling(at_most=2), items=["a", "b"])[0].aborted == ""
    execution, requests = asked_of(labelling(at_most=1), items=["a", "b"])
    assert requests == []
    assert execution.aborted == "loop each-1 goes over 2 items; the limit is 1 (at_most)"
    assert (execution.permanent, execution.exhausted, execution.taken) == (True, True, [])


def test_a_time_that_wins_a_race_is_part_of_the_history_and_another_one_leaves_no_trace() -> None:
    process = Process("race", state=Many)
    wait, nap = process.receive("wait", writes="label"), process.sleep("nap", 5)
    process.flow(process.first([wait], [nap]), process.sleep("pause", 5))
    graph = process.graph
    state = State("i", "race", graph.version, 3, (), graph.start, process.initial({}))
    execution = Execution(process, state, 0, tuple(name for name in graph.order if name != "wait"), {})
    assert execution.advance(0) == []
    assert execution.taken == [Taken("nap", "i/nap/0@0", {}, None, False, 4, 0)]
    assert execution.next_state("n0", 0).status == Status.COMPLETED
