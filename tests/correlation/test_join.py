"""Joining step by step: what a joiner asks, of whom, how often, and when it may say that it has caught up."""

from __future__ import annotations

import pytest

from tests.correlation.table import line
from unerring.correlation import CorrelationConfig
from unerring.correlation.intake import Intake
from unerring.correlation.join import Join
from unerring.correlation.messages import (
    MEMBERSHIP,
    AskSnapshot,
    CaughtUp,
    Register,
    Registered,
    SnapshotPart,
    WaitsFor,
)
from unerring.correlation.record import Member, Record, Standing
from unerring.correlation.snapshot import Snapshot, encode, split
from unerring.correlation.switching import AskLog
from unerring.matching import MergeState
from unerring.model import Deliver, Effects, ProtocolError, Report, Send, Stamp

RETRY_US = 100
WHOLE = Snapshot((), MergeState(0, ()), b"", (), (), ())


def record(**members: tuple[int, Standing, str]) -> Record:
    """`N1_0=(incarnation, standing, token)`: what is not said is caught up in its first incarnation, with a token."""
    names = ("N1/0", "N1/1", "N2/0", "N2/1", "N2/2")
    usual = dict.fromkeys(names, (1, Standing.CAUGHT_UP, "a token"))
    usual["N2/1"] = (2, Standing.JOINING, "a token")
    given = {name.replace("_", "/"): member for name, member in members.items()}
    return Record(5, {name: Member(*member) for name, member in sorted({**usual, **given}.items())})


def joining(read: Record, from_log: bool = False) -> tuple[Join, Intake]:
    """N2/1, which has entered as incarnation 2, and takes s1 from N1."""
    intake = Intake("N2", line(levels=2), CorrelationConfig())
    intake.read(read, 0)
    return Join("N2/1", 2, RETRY_US, from_log), intake


def registered(join: Join, read: Record, mark: int = 10, count: int = 1) -> None:
    """All upstream replicas have answered."""
    for name in ("N1/0", "N1/1"):
        answer = Registered(read.members[name].incarnation, (("s1", Stamp(mark)),), (count,))
        assert not join.registered(name, answer, read)


def registers(*names: str) -> Effects:
    return [Send(name, Register(2, 5)) for name in names]


def asked(name: str) -> Effects:
    return [Send(name, AskSnapshot(2))]


def test_an_answer_with_more_numbers_than_marks_is_refused() -> None:
    read = record()
    join, _ = joining(read)
    with pytest.raises(ProtocolError, match="1 marks from N1/0, and the numbers of 2"):
        join.registered("N1/0", Registered(1, (("s1", Stamp(10)),), (1, 1)), read)


def test_it_registers_at_all_upstream_replicas_again_and_again_until_they_answer() -> None:
    read = record()
    join, intake = joining(read)
    assert not join.holding
    assert join.carry_on(read, intake, 1_000) == registers("N1/0", "N1/1")
    assert join.carry_on(read, intake, 1_000 + RETRY_US - 1) == []
    assert join.carry_on(read, intake, 1_000 + RETRY_US) == registers("N1/0", "N1/1")
    assert not join.registered("N1/0", Registered(1, (("s1", Stamp(10)),), (3,)), read)
    assert join.carry_on(read, intake, 1_110, at_once=True) == [], "the answer of N1/1 may be on its way"
    assert join.carry_on(read, intake, 1_110 + RETRY_US - 1) == []
    assert join.carry_on(read, intake, 1_110 + RETRY_US) == registers("N1/1")
    join.registered("N1/1", Registered(1, (("s1", Stamp(10)),), (3,)), read)
    assert join.carry_on(read, intake, 1_220, at_once=True) == asked("N2/0")


def test_an_upstream_replica_that_came_back_is_asked_at_once_and_its_old_answer_is_nothing() -> None:
    read = record()
    join, intake = joining(read)
    join.carry_on(read, intake, 0)
    registered(join, read)
    newer = record(N1_1=(2, Standing.JOINING, "another token"))
    assert join.registered("N1/1", Registered(2, ()), read), "it stands in a newer record"
    assert join.registered("N1/2", Registered(1, ()), read), "as one that is not in this one"
    join, intake = joining(newer)
    join.carry_on(read, intake, 0)
    registered(join, read)
    assert join.carry_on(newer, intake, 1, at_once=True) == registers("N1/1")


def test_founding_members_that_never_came_are_told_of_to_the_keeper() -> None:
    read = record(N1_1=(1, Standing.CAUGHT_UP, ""))
    join, intake = joining(read)
    waits = [Send(MEMBERSHIP, WaitsFor(("N1/1",)))]
    assert join.carry_on(read, intake, 0) == registers("N1/0", "N1/1") + waits
    assert join.carry_on(read, intake, 1, at_once=True) == waits
    registered(join, read)
    assert join.carry_on(read, intake, 2, at_once=True) == asked("N2/0")


def test_one_caught_up_replica_of_its_node_after_the_other_is_asked_for_a_snapshot() -> None:
    read = record(N2_3=(1, Standing.CAUGHT_UP, "t"), N2_4=(1, Standing.JOINING, "t"), N2_5=(1, Standing.GONE, "t"))
    join, intake = joining(read)
    registered(join, read)
    givers = ["N2/0", "N2/2", "N2/3", "N2/0"]
    assert [join.carry_on(read, intake, at * RETRY_US) for at in range(4)] == [asked(name) for name in givers]


def test_it_says_so_where_nobody_is_left_to_join() -> None:
    alone = record(N2_0=(1, Standing.JOINING, "t"), N2_2=(1, Standing.GONE, "t"), N2_1=(2, Standing.CAUGHT_UP, "t"))
    join, intake = joining(alone)
    registered(join, alone)
    nobody = Report("correlation.nobody_to_join", "N2/1: no caught-up replica of its node is left")
    assert join.carry_on(alone, intake, 0) == [nobody]


def test_a_node_that_came_with_an_upgrade_joins_by_the_log_in_turn_with_its_peers() -> None:
    read = record()
    join, intake = joining(read, from_log=True)
    join.registered("N1/0", Registered(1, (("s1", Stamp(20)), ("unknown", Stamp(90))), (2, 9)), read)
    join.registered("N1/1", Registered(1, (("s1", Stamp(10)),), (1,)), read)
    join.registered("src/0", Registered(1, (("s1", Stamp(99)),), (9,)), read)
    log = [Deliver(AskLog(2, {"s1": (Stamp(20), 2)}))]
    answers = [join.carry_on(read, intake, at * RETRY_US) for at in range(4)]
    assert answers == [asked("N2/0"), asked("N2/2"), log, asked("N2/0")]
    alone = record(N2_0=(1, Standing.GONE, "t"), N2_2=(1, Standing.GONE, "t"))
    join, intake = joining(alone, from_log=True)
    registered(join, alone)
    assert join.carry_on(alone, intake, 0) == [Deliver(AskLog(2, {"s1": (Stamp(10), 1)}))]


def test_it_has_caught_up_with_a_state_at_all_marks_and_not_before() -> None:
    read = record(N1_1=(4, Standing.CAUGHT_UP, "t"))
    join, intake = joining(read)
    join.carry_on(read, intake, 0)
    join.holding = True
    assert join.carry_on(read, intake, RETRY_US) == registers("N1/0", "N1/1")
    assert join.holding, "no mark says that the state in place is too old"
    registered(join, read)
    intake.streams["s1"].last = Stamp(10)
    confirmed = (("N1/0", 1), ("N1/1", 4))
    assert join.carry_on(read, intake, 2 * RETRY_US) == [Send(MEMBERSHIP, CaughtUp("N2/1", 2, confirmed))]
    join.registered("N1/0", Registered(1, (("unknown", Stamp(90)), ("s1", Stamp(11))), (9, 2)), read)
    assert join.carry_on(read, intake, 3 * RETRY_US) == asked("N2/0"), "what lies between may be pruned"
    assert not join.holding
    intake.streams["s1"].last = Stamp(11)
    assert join.carry_on(read, intake, 4 * RETRY_US) == asked("N2/2"), "it holds none until another one is in place"
    join.holding = True
    assert join.carry_on(read, intake, 5 * RETRY_US) == [Send(MEMBERSHIP, CaughtUp("N2/1", 2, confirmed))]
    newer = record(N1_1=(5, Standing.JOINING, "t"))
    assert join.carry_on(newer, intake, 6 * RETRY_US) == registers("N1/1"), "who came back has not confirmed"
    assert join.holding


def test_marks_without_numbers_count_too() -> None:
    read = record()
    join, intake = joining(read, from_log=True)
    join.registered("N1/0", Registered(1, (("s1", Stamp(20)),)), read)
    join.registered("N1/1", Registered(1, (("s1", Stamp(10)),)), read)
    join.carry_on(read, intake, 0)
    join.carry_on(read, intake, RETRY_US)
    assert join.carry_on(read, intake, 2 * RETRY_US) == [Deliver(AskLog(2, {"s1": (Stamp(20), 0)}))]


def test_a_snapshot_is_put_together_of_its_parts_for_this_incarnation() -> None:
    read = record()
    join, intake = joining(read)
    registered(join, read)
    assert join.carry_on(read, intake, 0) == asked("N2/0")
    first, *others, last = split(encode(WHOLE), 2, 2)
    assert others
    for part in (first, *others):
        assert join.part(part) == (None, [])
    old = SnapshotPart(1, last.number, last.parts, last.digest, last.data)
    assert join.part(old) == (None, []), "for the incarnation before"
    assert join.part(last) == (WHOLE, [])
    join.holding = True
    for part in (first, *others, last):
        assert join.part(part) == (None, []), "there is one already"
    join.holding = False
    spoilt = SnapshotPart(2, 0, 1, b"another digest", encode(WHOLE))
    snapshot, effects = join.part(spoilt)
    assert snapshot is None
    assert [type(effect) for effect in effects] == [Report]
    assert join.carry_on(read, intake, 1) == asked("N2/2"), "another one is asked at once"
