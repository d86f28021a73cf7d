"""A level of a pool under random tasks: they come, end, stall, answer late; every interval is sealed once, in order."""

from __future__ import annotations

import math
from collections import deque
from random import Random

import pytest

from unerring.log import Span
from unerring.model import ProtocolError
from unerring.pipeline.level import Level, levels_of
from unerring.pipeline.resident.line import (
    FIRST_S,
    ROWS_AT_ONCE,
    STALL_S,
    UNNUMBERED_MAX,
    UNSEALED_MAX,
    WINDOW,
    Line,
    Numbered,
)
from unerring.pipeline.resident.wire import Advance, Answered, Drop, Kept, Take, ToTask
from unerring.pipeline.shuffling import Interval

from ..worlds import TYPED, pair

BUCKETS = 3
NOTHING = Numbered({}, 1, 1)
FROM_US = 100


class Worker:
    """A task that is right: it knows where its partitions stand, and that it is never told to jump."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.inbox: deque[ToTask] = deque()
        self.at: dict[int, int] = {}
        self.tenures: dict[int, int] = {}
        self.waiting = 0

    def send(self, message: ToTask) -> None:
        self.inbox.append(message)

    def work(self, states: dict[int, set[int]]) -> list[Answered | Kept]:
        """Do the next thing that was asked for."""
        message = self.inbox.popleft()
        match message:
            case Take(_, bucket, at_us, tenure, sealed):
                self.tenures[bucket] = tenure
                assert at_us == FROM_US or at_us in states[bucket], "a state that nobody has kept"
                self.at[bucket] = at_us
                if sealed is not None:
                    assert sealed.from_us == at_us
                    self.at[bucket] = sealed.ends_us[-1]
            case Advance(_, bucket, interval, keep):
                assert self.at[bucket] == interval.from_us
                self.at[bucket] = through_us = interval.ends_us[-1]
                answer = Answered(
                    0, bucket, self.tenures[bucket], interval.from_us, through_us, {"Pairs": b"%d" % bucket}, 1, 1
                )
                if not keep:
                    return [answer]
                states[bucket].add(through_us)
                return [answer, Kept(0, bucket, through_us)]
            case Drop(_, bucket):
                del self.at[bucket]
        return []


def level() -> Level:
    [one] = levels_of((pair("Pairs", TYPED, "A", "B", 40),), (TYPED,), "nowhere", BUCKETS)
    return one


def interval(from_us: int, through_us: int) -> Interval:
    return Interval(from_us, (through_us,), {})


def answer(bucket: int, from_us: int, through_us: int, tenure: int = 1) -> Answered:
    return Answered(0, bucket, tenure, from_us, through_us, {}, 1, 1)


class Play:
    """A line and its tasks, on one clock."""

    def __init__(self, seed: int, copies: int) -> None:
        self.random = Random(seed)
        self.line = Line(0, level(), FROM_US, copies, self.random.choice((UNNUMBERED_MAX, 8, 64)))
        self.workers: list[Worker] = []
        self.asleep: set[Worker] = set()
        self.states: dict[int, set[int]] = {bucket: set() for bucket in range(BUCKETS)}
        self.sealed: list[tuple[int, int]] = []
        self.now_s = 0.0
        self.made = self.taken_over = 0

    def assign(self) -> None:
        for bucket in list(self.line.vacant(self.now_s)):
            held = [holding.member for holding in self.line.holdings[bucket]]
            free = [worker for worker in self.workers if worker not in held]
            if free:
                self.taken_over += bool(self.made > BUCKETS)
                self.made += 1
                self.line.take(bucket, self.random.choice(free), self.now_s)

    def plan(self, keep: bool) -> None:
        if self.line.has_room:
            end_us = self.line.end_us + self.random.choice((1, 5, 20))
            self.line.plan(interval(self.line.end_us, end_us), 1, keep, self.now_s)

    def work(self, worker: Worker) -> None:
        for reply in worker.work(self.states):
            if worker not in self.workers:
                continue  # said into a connection that is closed
            if isinstance(reply, Answered):
                self.line.answered(worker, reply, self.now_s)
            else:
                self.line.kept(reply.bucket, reply.at_us, self.now_s)

    def seal(self) -> None:
        while (step := self.line.ready()) is not None:
            assert sorted(step.answers) == list(range(BUCKETS))
            self.line.was_numbered(NOTHING)
        if self.random.random() < 0.5:  # the disk is busy
            return
        steps = self.line.to_seal(self.random.choice((1, 3, 100)))
        self.sealed += [(step.interval.from_us, step.through_us) for step in steps]
        self.line.was_sealed(len(steps), self.now_s)

    def fail(self) -> None:
        victim = self.random.choice(self.workers)
        if self.random.random() < 0.5:
            self.asleep ^= {victim}
        elif len(self.workers) > 1:
            self.workers.remove(victim)
            self.asleep.discard(victim)
            self.line.lost(victim)

    def go_on(self, failing: bool) -> None:
        self.now_s += self.random.choice((0.001, 0.01, 0.3))
        chance = self.random.random()
        if chance < 0.05 and len(self.workers) < 5:
            self.workers.append(Worker(f"task {self.made}"))
        elif chance < 0.08 and failing:
            self.fail()
        elif chance < 0.3:
            self.plan(keep=self.random.random() < 0.1)
        self.assign()
        busy = [worker for worker in self.workers if worker.inbox and worker not in self.asleep]
        if busy:
            self.work(self.random.choice(busy))
        self.seal()


@pytest.mark.parametrize("copies", [1, 2])
def test_whatever_tasks_do_every_interval_is_sealed_once_and_in_order(copies: int) -> None:
    taken_over = remembered = 0
    for seed in range(60):
        play = Play(seed, copies)
        play.workers = [Worker("first"), Worker("second")]
        for _ in range(600):
            play.go_on(failing=True)
            remembered = max(remembered, len(play.line._steps))
        play.asleep.clear()
        for _ in range(80 * (UNNUMBERED_MAX + 100)):
            if play.line.sealed == play.line.planned:
                break
            play.now_s += 0.01
            play.assign()
            for worker in [worker for worker in play.workers if worker.inbox]:
                play.work(worker)
            play.seal()
        assert play.line.sealed == play.line.planned > 20, f"seed {seed}: it does not end"
        assert play.sealed[0][0] == FROM_US
        assert all(before[1] == after[0] for before, after in zip(play.sealed, play.sealed[1:], strict=False))
        assert play.sealed[-1][1] == play.line.end_us
        taken_over += play.taken_over
    assert taken_over > 300
    assert remembered > 40


def test_a_holder_gets_a_window_of_intervals_and_planning_waits_for_sealing() -> None:
    line, worker = Line(0, level(), FROM_US, ahead=20), Worker("one")
    for bucket in range(BUCKETS):
        line.take(bucket, worker, 0.0)
    for number in range(UNSEALED_MAX):
        assert line.has_room
        line.plan(interval(FROM_US + number, FROM_US + number + 1), 1, False, 0.0)
    assert not line.has_room
    assert sum(isinstance(message, Advance) for message in worker.inbox) == WINDOW * BUCKETS


def test_one_that_owes_an_answer_for_too_long_gets_company_and_is_dropped_when_that_has_caught_up() -> None:
    line, slow, quick = Line(0, level(), FROM_US), Worker("slow"), Worker("quick")
    states: dict[int, set[int]] = {bucket: set() for bucket in range(BUCKETS)}
    for bucket in range(BUCKETS):
        line.take(bucket, slow, 0.0)
    line.plan(interval(FROM_US, 110), 1000, False, 0.0)
    assert list(line.vacant(STALL_S)) == []
    assert list(line.vacant(STALL_S + 0.021)) == [0, 1, 2], "20 µs for each event"
    line.take(1, quick, 1.0)
    assert list(line.vacant(1.0)) == [0, 2]
    assert list(line.vacant(STALL_S + FIRST_S)) == [0, 2], "one that has to load is waited for longer"
    while quick.inbox:
        for reply in quick.work(states):
            assert isinstance(reply, Answered)
            line.answered(quick, reply, 1.1)
    assert [holding.member for holding in line.holdings[1]] == [quick]
    assert slow.inbox[-1] == Drop(0, 1)
    line.answered(slow, answer(1, FROM_US, 110), 2.0)
    assert [len(held) for held in line.holdings] == [1, 1, 1], "what comes late from one that was dropped is ignored"


@pytest.mark.parametrize(
    "wrong",
    [answer(0, FROM_US + 1, 110), answer(0, 110, 120), answer(0, FROM_US, 120)],
    ids=["another beginning", "not its turn", "an interval that is two"],
)
def test_an_answer_out_of_turn_is_refused(wrong: Answered) -> None:
    line, worker = Line(0, level(), FROM_US), Worker("one")
    line.take(0, worker, 0.0)
    line.plan(interval(FROM_US, 110), 1, False, 0.0)
    line.plan(interval(110, 120), 1, False, 0.0)
    with pytest.raises(ProtocolError, match="one answers for"):
        line.answered(worker, wrong, 0.1)


def test_a_new_holder_begins_with_the_last_state_that_all_have_kept() -> None:
    line, worker, other = Line(0, level(), FROM_US), Worker("one"), Worker("other")
    states: dict[int, set[int]] = {bucket: set() for bucket in range(BUCKETS)}
    for bucket in range(BUCKETS):
        line.take(bucket, worker, 0.0)
    for number in range(6):
        line.plan(interval(FROM_US + number, FROM_US + number + 1), 1, number == 3, 0.0)
    while worker.inbox:
        for reply in worker.work(states):
            if isinstance(reply, Answered):
                line.answered(worker, reply, 0.1)
            else:
                line.kept(reply.bucket, reply.at_us, 0.1)
    while line.ready() is not None:
        line.was_numbered(NOTHING)
    line.was_sealed(5, 0.2)
    assert (line.state_us, line.since_state, len(line._steps)) == (104, 2, 2)
    assert [len(line.to_seal(rows)) for rows in (0, 1, 9)] == [1, 1, 1]
    line.lost(worker)
    line.take(0, other, 1.0)
    assert list(other.inbox) == [
        Take(0, 0, 104, 4, interval(104, 105)),
        Advance(0, 0, interval(105, 106), False),
    ]
    assert line.holdings[0][0].owes_s < math.inf


def test_what_is_sealed_is_run_as_one_by_a_new_holder_and_what_was_handed_over_is_looked_for() -> None:
    line, worker, other = Line(0, level(), FROM_US, ahead=9), Worker("one"), Worker("other")
    spans = [[Span(100, 105), Span(105, 107)], [Span(105, 107)], [Span(107, 109)], [Span(90, 120, "compacted")]]
    for bucket in range(BUCKETS):
        line.take(bucket, worker, 0.0)
    for number, ends in enumerate([(FROM_US, 106), (106, 107), (107, 109), (109, 110)]):
        read = {"Typed": spans[number]} | ({"Straight": [Span(*ends)]} if number else {})
        handed = {} if number else {"Straight": b"rows"}
        line.plan(Interval(ends[0], ends[1:], read), ROWS_AT_ONCE // 3, False, 0.0, handed)
    assert isinstance(advance := worker.inbox[BUCKETS], Advance)
    assert advance.handed == {"Straight": b"rows"}
    line.settled("Straight", 105)
    assert line._steps[0].handed
    line.settled("Straight", 106)
    assert not line._steps[0].handed
    for step in list(line._steps):
        step.answers.update({bucket: answer(bucket, step.interval.from_us, step.through_us) for bucket in range(3)})
        line.was_numbered(NOTHING)
    line.was_sealed(3, 0.1)
    line.take(0, other, 0.2)
    joined = Interval(FROM_US, (109,), {"Typed": [Span(100, 105), Span(105, 107), Span(107, 109)]})
    assert other.inbox[0] == Take(0, 0, FROM_US, 4, joined)
    line.was_sealed(1, 0.1)
    line.take(1, other, 0.2)
    assert other.inbox[-1] == Take(0, 1, FROM_US, 5, Interval(FROM_US, (109, 110), {})), "compaction has cut otherwise"


def test_a_task_that_others_are_taking_over_from_counts_as_having_less() -> None:
    line, old, new = Line(0, level(), FROM_US), Worker("old"), Worker("new")
    for bucket in range(BUCKETS):
        line.take(bucket, old, 0.0)
    line.take(0, new, 0.0)
    assert (line.holds(old), line.holds(new)) == (2, 1)


def test_the_bounds_are_the_ones_the_documentation_names() -> None:
    assert (WINDOW, UNNUMBERED_MAX, UNSEALED_MAX) == (8, 2, 16)
