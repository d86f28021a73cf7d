"""A master by itself: what it keeps before it asks, and what becomes of a group that cannot go on."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.processes.alone import INSTANCE, Alone
from unerring import Process, Service
from unerring.model import MILLISECOND_US, Persist
from unerring.processes.config import ProcessesConfig
from unerring.processes.graph import Retry
from unerring.processes.messages import (
    Ack,
    Answer,
    Fetch,
    GroupLog,
    Replicate,
    Reply,
    Request,
    RequestView,
    State,
    Status,
    Taken,
    Vote,
)

ONCE = Retry(attempt_us=100 * MILLISECOND_US, attempts_max=1, occurrences_max=1)
Sent = list[tuple[str, Any]]


class Order(msgspec.Struct):
    item: str = "bolt"
    paid: str = ""
    label: str = ""


def shop(final: bool = False, slow: bool = True, write: bool = True, **options: Any) -> Process:
    """Pays, and sticks a label on it."""
    process = Process("order", state=Order, services=[Service("bank"), Service("press")], **options)
    time = 1_000_000 if slow else 1_000

    @process.action(service="bank", write=write, retry=ONCE, time=time, compensable=not final)
    async def pay(item: str) -> str: ...

    @process.action(service="press", writes="label", retry=ONCE)
    async def stick(item: str) -> str: ...

    return process.flow(pay, stick)


class Master(Alone):
    """The first replica: everything that it sends is acknowledged by one of the others, until it asks a service."""

    def __init__(self, process: Process, **more: Any) -> None:
        super().__init__(process, place=0, **more)
        self.states: list[State] = []
        self.asked: list[Request] = []
        self.views: list[int] = []

    def go_on(self, sent: Sent) -> list[Request]:
        """What it asks services in the end."""
        asked: list[Request] = []
        while sent:
            to, message = sent.pop(0)
            if isinstance(message, Request):
                asked.append(message)
            elif to == self.me:
                sent += self.hear(self.me, message)
            elif to == self.others[0] and isinstance(message, Replicate):
                state = message.state
                self.states.append(state)
                sent += self.hear(to, Ack(INSTANCE, message.view, state.group))
            elif to == self.others[0] and isinstance(message, RequestView):
                self.views.append(message.view)
                accepted = self.replica.acceptor.accepted
                assert accepted is not None
                sent += self.hear(to, Vote(INSTANCE, message.view, accepted.view, accepted.state, (), 0))
        self.asked += asked
        return asked

    def answer(self, asked: Request, kind: str, value: Any = None) -> list[Request]:
        reply = Reply(INSTANCE, asked.iid, "do", kind, value)
        return self.go_on(self.hear(f"service:{asked.service}", reply))

    def log(self, view: int, group: int) -> GroupLog | None:
        log: GroupLog | None = self.record(f"group/{view}/{group}", GroupLog)
        return log


def test_a_write_is_asked_for_behind_its_state_and_its_intent_on_disk() -> None:
    it = Master(shop())
    [pay] = it.go_on(it.begin(item="nut"))
    assert [state.group for state in it.states] == [0]
    waiting = Reply(INSTANCE, pay.iid, "do", Answer.WAIT, 1_000)
    effects = it.node.handle("service:bank", waiting, it.now)
    assert [effect for effect in effects if isinstance(effect, Persist)] == [], "what changes nothing is not written"
    log = it.log(0, 1)
    assert log is not None
    assert [intent.request for intent in log.intents] == [{"item": "nut"}]
    assert (log.outcomes, log.vertices, log.abandoned) == ((), ("pay", "stick"), False)
    [stick] = it.answer(pay, Answer.DONE)
    kept = it.log(0, 1)
    assert kept is not None
    assert [outcome.vertex for outcome in kept.outcomes] == ["pay"], "so a restarted master has the reply that it had"
    assert it.answer(stick, Answer.DONE, "l") == []
    [_, end] = it.states
    assert (end.status, end.group, end.lineage[-1].master) == (Status.COMPLETED, 1, it.me)
    assert it.log(0, 1) is None
    assert it.replica.known == msgspec.structs.replace(end, given={"item": "nut"})


def test_a_restarted_master_resumes_its_group_and_asks_again_under_the_same_id() -> None:
    it = Master(shop())
    [pay] = it.go_on(it.begin())
    assert it.replica.role == "master"
    sent = it.restart()
    assert [message for _, message in sent if isinstance(message, Request)] == []
    sent += it.tick(1)
    assert it.go_on(sent) == [pay]
    assert it.replica.master.has_begun(1)
    assert not it.replica.master.has_begun(2)
    [stick] = it.answer(pay, Answer.DONE)
    it.answer(stick, Answer.DONE, "l")
    assert it.states[-1].status == Status.COMPLETED


def test_what_another_master_may_do_better_changes_views_until_it_is_too_often() -> None:
    """Fig. 6: aborts are counted with the group, and the last one fails the process."""
    it = Master(shop(), config=ProcessesConfig(abort_views_max=3))
    [asked] = it.go_on(it.begin())
    for view in (0, 1, 2):
        assert asked.iid == f"i/pay/0@{view}"
        assert it.views == list(range(1, view + 1))
        assert (it.replica.acceptor.view, it.states[-1].status) == (view, Status.RUNNING)
        [*_, asked] = [*it.answer(asked, Answer.REFUSED, "no"), asked]
        following = [request for request in it.asked if request.iid.endswith(f"@{view + 1}")]
        if view < 2:
            assert it.record("aborts", tuple[int, int, str]) == (1, view + 1, "bank refused pay: no")
            [asked] = [request for request in following if request.mode == "do"]
    assert following == []
    assert it.reports.count("aborted") == 3
    assert it.reports.count("failed") == 1
    assert (it.states[-1].status, it.states[-1].reason) == (Status.UNDOING, "bank refused pay: no")


def test_a_master_that_gives_up_does_not_resume_after_a_crash() -> None:
    it = Master(shop())
    [pay] = it.go_on(it.begin())
    sent = it.hear("service:bank", Reply(INSTANCE, pay.iid, "do", Answer.REFUSED, "no"))
    assert [message.view for _, message in sent if isinstance(message, RequestView)] == [1, 1]
    log = it.log(0, 1)
    assert log is not None
    assert (log.abandoned, [outcome.answer for outcome in log.outcomes]) == (True, [Answer.REFUSED])
    assert [message for _, message in it.restart() if isinstance(message, Request)] == []
    assert it.record("aborts", tuple[int, int, str]) == (1, 1, "bank refused pay: no")


def test_of_a_group_that_only_reads_nothing_is_kept() -> None:
    it = Master(shop(write=False))
    [pay] = it.go_on(it.begin())
    [again] = it.answer(pay, Answer.REFUSED, "no")
    assert (again.iid, it.views) == ("i/pay/0@1", [1])
    it.answer(again, Answer.FINAL, "no")
    assert [key for key in it.disk if "group/" in key] == []
    known = it.replica.known
    assert known is not None
    assert (known.status, known.taken) == (Status.UNDOING, ())


def test_a_refusal_for_good_undoes_what_was_done_in_the_group() -> None:
    process = shop()
    it = Master(process)
    [pay] = it.go_on(it.begin())
    [stick] = it.answer(pay, Answer.DONE)
    [cancel] = it.answer(stick, Answer.FINAL, "no ink")
    assert (cancel.mode, cancel.iid) == ("cancel", pay.iid)
    undoing = it.states[-1]
    assert (undoing.status, undoing.reason, undoing.group) == (Status.UNDOING, "press refused stick: no ink", 1)
    assert undoing.taken == (Taken("pay", "i/pay/0@0", {"item": "bolt"}, None, True, 1, 0),)
    assert it.views == []


def test_what_may_have_been_done_is_part_of_what_is_undone() -> None:
    """Of what is under way one write is done, one is refused for good, and of the other nobody knows."""
    process = Process("order", state=Order, services=[Service("bank")])

    @process.action(service="bank", write=True, writes="paid", retry=ONCE)
    async def pay(item: str) -> str: ...

    @process.action(service="bank", write=True, writes="label", retry=ONCE)
    async def book(item: str) -> str: ...

    @process.action(service="bank", retry=ONCE, cost=1)
    async def look(item: str) -> None: ...

    @process.action(service="bank", write=True, retry=ONCE)
    async def tell(item: str) -> None: ...

    process.flow(process.both([pay], [look], [book], [tell]))
    it = Master(process)
    asked = {request.operation: request for request in it.go_on(it.begin())}
    assert list(asked) == ["pay", "look", "book", "tell"]
    it.answer(asked["pay"], Answer.DONE, "p")
    it.answer(asked["tell"], Answer.FINAL, "no")
    undoing = next(state for state in it.states if state.status == Status.UNDOING)
    assert undoing.taken == (
        Taken("pay", "i/pay/0@0", {"item": "bolt"}, "p", True, 1, 0),
        Taken("book", "i/book/0@0", {"item": "bolt"}, None, True, 1, 0, True),
    )


def test_who_is_fenced_leaves_the_group_to_a_higher_view() -> None:
    it = Master(shop())
    [pay] = it.go_on(it.begin())
    assert it.answer(pay, Answer.FENCED) == []
    assert (it.replica.role, it.reports.count("fenced"), len(it.states)) == ("follower", 1, 1)


@pytest.mark.parametrize("holds", [False, True])
def test_what_is_for_good_is_announced_and_refused_with_occurrences(holds: bool) -> None:
    """A refusal is not for good: the next occurrence is a decided state of its own. The last one takes the promise back
    and asks an operator, or fails the process."""
    twice = Retry(attempt_us=100_000, attempts_max=1, occurrences_max=2)
    process = Process("order", state=Order, services=[Service("bank")], on_failure="hold" if holds else "undo")

    @process.action(service="bank", write=True, retry=twice, compensable=False)
    async def pay(item: str) -> None: ...

    process.flow(pay)
    it = Master(process)
    [pay_] = it.go_on(it.begin())
    assert [(state.announced, state.occurrence) for state in it.states] == [("", 0), ("pay", 0)]
    sent = it.hear("service:bank", Reply(INSTANCE, pay_.iid, "do", Answer.REFUSED, "no"))
    log = it.log(0, 2)
    assert log is not None
    assert log.abandoned, "after a crash it does not go on with this occurrence"
    [again] = it.go_on(sent)
    assert (again.iid, it.states[-1].announced, it.states[-1].occurrence) == ("i/pay/1", "pay", 1)
    it.answer(again, Answer.REFUSED, "n" * 300)
    last = it.states[3]
    assert (last.announced, last.occurrence == 0, last.group) == ("", holds, 3)
    why = "bank refused pay: " + "n" * 300
    if holds:
        assert (last.status, last.held, it.reports.count("held")) == (Status.RUNNING, why[:200], 1)
    else:
        assert (last.status, last.reason, last.held) == (Status.UNDOING, why, "")


@pytest.mark.parametrize("value", ["p", 7])
def test_nobody_is_asked_about_what_was_done_for_good(value: object) -> None:
    """Its answer cannot be used: to try again would do it twice."""
    process = Process("order", state=Order, services=[Service("bank")], on_failure="hold")

    @process.action(service="bank", write=True, writes="paid", retry=ONCE, compensable=False)
    async def pay(item: str) -> str: ...

    process.flow(pay)
    it = Master(process)
    [asked] = it.go_on(it.begin())
    it.answer(asked, Answer.DONE, value)
    known = it.replica.known
    assert known is not None
    assert (known.status, known.held) == (Status.COMPLETED if value == "p" else Status.PARKED, "")
    assert [taken.reply for taken in known.taken] == [value]


def test_a_held_process_counts_its_aborts_to_the_last_and_waits() -> None:
    it = Master(shop(on_failure="hold"), config=ProcessesConfig(abort_views_max=2))
    [pay] = it.go_on(it.begin())
    it.answer(pay, Answer.FINAL, "no")
    assert it.record("aborts", tuple[int, int, str]) == (1, 2, "bank refused pay: no")
    assert it.views == [1]
    state = it.replica.known
    assert state is not None
    assert (state.held, state.status) == ("bank refused pay: no", Status.RUNNING)


@pytest.mark.parametrize("over", [0, 1])
def test_a_state_may_take_its_bound_and_not_a_byte_more(over: int) -> None:
    most = 2_000
    process = shop(write=False)

    def ends(size: int) -> State:
        it = Master(process, state_bytes_max=most)
        [pay] = it.go_on(it.begin())
        [stick] = it.answer(pay, Answer.DONE, "x" * size)
        it.answer(stick, Answer.DONE, "l")
        known = it.replica.known
        assert known is not None
        assert [state.status for state in it.states if state.group == 1] == [
            Status.COMPLETED if known.status == Status.COMPLETED else Status.UNDOING
        ]
        return known

    def bytes_of(state: State) -> int:
        """Measured piece by piece: before the first group there was an empty one."""
        before = msgspec.msgpack.encode(((), (), ()))
        history = msgspec.msgpack.encode((state.lineage, state.taken, state.consumed))
        return len(before) + len(history) + len(msgspec.msgpack.encode(state.variables))

    size = 1_000 + most - bytes_of(ends(1_000)) + over
    state = ends(size)
    if over:
        assert state.status == Status.FAILED
        assert state.reason == "its state takes more than 2000 bytes; store less in it"
    else:
        assert (bytes_of(state), state.status) == (most, Status.COMPLETED)


@pytest.mark.parametrize("crash", [False, True])
def test_what_a_group_has_taken_counts_after_a_crash_too(crash: bool) -> None:
    """A request and a reply that had room together have it again, and what had none has none."""
    it = Master(shop(), state_bytes_max=2_000)
    [pay] = it.go_on(it.begin())
    [stick] = it.answer(pay, Answer.DONE, "x" * 1_200)
    if crash:
        [stick] = it.go_on([*it.restart(), *it.tick(1)])
    it.answer(stick, Answer.DONE, "y" * 800)
    assert it.states[-1].reason.startswith("the state has no room for 803 bytes more, by stick")
    assert it.states[-1].status == Status.UNDOING


def test_a_process_that_fails_keeps_what_it_may_have_written_before_it_says_so() -> None:
    it = Master(shop())
    [pay] = it.go_on(it.begin())
    sent = it.hear("service:bank", Reply(INSTANCE, pay.iid, "do", Answer.FINAL, "no"))
    assert [message.state.status for _, message in sent if isinstance(message, Replicate)] == [Status.UNDOING] * 2
    log = it.log(0, 1)
    assert log is not None
    assert (log.abandoned, [outcome.answer for outcome in log.outcomes]) == (True, [Answer.FINAL])
    reads = Master(shop(write=False))
    [pay] = reads.go_on(reads.begin())
    reads.hear("service:bank", Reply(INSTANCE, pay.iid, "do", Answer.FINAL, "no"))
    assert reads.log(0, 1) is None


def test_a_state_is_measured_with_all_of_its_history() -> None:
    """What is measured as it grows is what measuring all of it gives."""
    process = Process("order", state=Order, services=[Service("press")])
    names = [f"read{number}" for number in range(6)]
    for name in names:

        @process.action(name=name, service="press", writes="label", alone=True, time=1_000_000)
        async def read(item: str) -> str: ...

    process.flow(*names)
    it = Master(process, state_bytes_max=2_000)
    [asked] = it.go_on(it.begin())
    groups = 0
    while it.states[-1].status == Status.RUNNING:
        reply = it.answer(asked, Answer.DONE, "x" * 500)
        [asked] = reply or [asked]
        groups += 1
    assert groups == 3
    known = it.replica.known
    assert known is not None
    assert (known.status, len(known.taken)) == (Status.FAILED, 3)


@pytest.mark.parametrize("why", ["", "write", "slow", "naming"])
def test_a_quick_read_is_asked_for_before_anybody_has_heard_of_the_instance(why: str) -> None:
    config = ProcessesConfig(naming="rotate" if why == "naming" else "self")
    it = Master(shop(write=why == "write", slow=why == "slow"), config=config)
    sent = it.begin()
    first = [message for _, message in sent if isinstance(message, Request)]
    assert (first != []) == (why == ""), why
    if why:
        return
    assert it.replica.acceptor.accepted is None
    assert it.replica.next_us(it.now) == it.now
    assert [message for _, message in it.tick(config.tick_us - 1) if isinstance(message, Replicate)] == []
    assert it.replica.role == "master"
    late = it.go_on(it.tick(1))
    assert [state.group for state in it.states] == [0], "it took too long: the start is replicated first"
    assert [request.iid for request in late] == [first[0].iid]


def test_a_first_group_that_was_read_in_time_is_one_state() -> None:
    it = Master(shop(write=False, slow=False))
    [pay] = it.go_on(it.begin())
    [stick] = it.answer(pay, Answer.DONE)
    it.answer(stick, Answer.DONE, "l")
    assert [(state.group, state.status) for state in it.states] == [(1, Status.COMPLETED)]
    assert it.replica.slot.named(1) == it.me, "nobody else is named for it in this view"
    failed = Master(shop(write=False, slow=False))
    [pay] = failed.go_on(failed.begin())
    [again] = failed.answer(pay, Answer.FINAL, "no")
    assert (again.iid, [state.group for state in failed.states]) == (pay.iid, [0]), "it is done again behind its start"
    assert failed.hear(failed.others[0], Fetch(INSTANCE, -1, -1)) != []
