"""How a replica comes to its state: a peer's, one made of the log, or its own; and what it gives to others."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from tests.correlation.one import CAUGHT_UP, CONFIG, JOINING, Echo, One, event, kinds, member, record_of, to, topology
from tests.correlation.table import schema
from tests.correlation.test_shards import divided
from unerring.correlation import (
    ENGINE,
    MEMBERSHIP,
    OPERATOR,
    Ack,
    Batch,
    Fed,
    NodeSpec,
    Rearrange,
    Resume,
    Role,
    Switch,
    Topology,
    alone,
    side_by_side,
    snapshot as states,
)
from unerring.correlation.engine import HandOver
from unerring.correlation.messages import (
    AskAcks,
    AskConfirmation,
    AskMore,
    AskSnapshot,
    CaughtUp,
    Confirmation,
    Elected,
    Enter,
    Gossip,
    Ping,
    Pong,
    ReadRecord,
    RecordIs,
    Register,
    Registered,
    SnapshotPart,
)
from unerring.correlation.outgoing import StreamPosition
from unerring.correlation.record import Member, Record, Standing
from unerring.correlation.switching import AskLog, FromLog, Lane
from unerring.matching import Row
from unerring.model import (
    BEFORE_ALL,
    TIME_MAX,
    TIME_MIN,
    Deliver,
    Effects,
    Persist,
    ProtocolError,
    Report,
    Send,
    Stamp,
    Stop,
)

# ---- joining ---------------------------------------------------------------------------------------------------


def joining(layout: Topology | None = None, name: str = "N/0", **bounds: int) -> tuple[One, Effects]:
    """It has entered with incarnation 2."""
    one = One(layout, name=name, **bounds)
    others = dict.fromkeys(one.layout.founding().members, Member(1, CAUGHT_UP, "here"))
    record = Record(5, {**others, name: Member(2, JOINING)}, one.layout.upgrade)
    return one, one.enter(record, founding=False, incarnation=2)


def given(version: int = 5) -> list[SnapshotPart]:
    """The snapshot of a peer that has processed two events and whose application has one."""
    peer = member()
    peer.batch(1, 2, 5_000)
    peer.acked(1)
    parts = to(peer.hear("N/1", AskSnapshot(2)), SnapshotPart)
    return [part for _, part in parts]


def test_a_joiner_registers_asks_a_peer_for_its_state_and_is_caught_up_by_the_record() -> None:
    one, effects = joining()
    assert to(effects, Register) == [(name, Register(2, 5)) for name in ("src/0", "src/1")]
    assert one.batch(1, 2) == [], "it has no state yet"
    for message in (Resume("s", BEFORE_ALL, 0, 1, 9, 0), AskMore("s", 0, 9, 0), AskAcks(), Register(1, 1)):
        assert one.hear("app/0", message) == []
    assert one.hear("N/1", AskSnapshot(2)) == []
    assert one.hear("app/0", Ping(7)) == [Send("app/0", Pong(7))]
    marks = (("a", Stamp(1, 0)),)
    assert kinds(one.hear("src/0", Registered(1, marks, (1,)))) == []
    effects = one.hear("src/1", Registered(1, marks, (1,)))
    assert to(effects, AskSnapshot) == [("N/1", AskSnapshot(2))]
    [part] = given()
    assert one.hear("app/0", part) == [], "no peer"
    assert one.hear("N/1", msgspec.structs.replace(part, incarnation=1)) == []
    assert not one.machine.holding
    effects = one.hear("N/1", part)
    caught_up = CaughtUp("N/0", 2, (("src/0", 1), ("src/1", 1)))
    assert to(effects, CaughtUp) == [(MEMBERSHIP, caught_up)]
    ack = Ack("a", Stamp(2, 0), 2, 2, 2 + CONFIG.window_events)
    assert to(effects, Ack) == [("src/0", ack), ("src/1", ack)]
    assert (one.machine.engine.count, one.made, one.machine.holding) == (2, 2, True)
    one.batch(3, 3, 9_000)
    assert (one.machine.engine.count, one.made) == (3, 3), "it works already"
    assert one.hear("N/1", AskSnapshot(3)) == [], "its state is not one to hand on"
    assert one.hear(MEMBERSHIP, AskConfirmation("1", "N/1")) == []
    effects = one.tick(10_000)
    assert len(to(effects, Gossip)) == 1
    assert to(effects, CaughtUp) == [], "said already"
    assert to(one.tick(CONFIG.join_retry_us), CaughtUp) == [(MEMBERSHIP, caught_up)], "it may be lost"
    record = record_of(6, N0=Member(2, CAUGHT_UP))
    assert one.hear(MEMBERSHIP, RecordIs(record)) == [Report("correlation.caught_up", "N/0 is caught up")]
    assert to(one.hear("N/1", AskSnapshot(3)), SnapshotPart) != []
    assert to(one.tick(400_000), CaughtUp) == [], "nothing is left to be done"


def test_a_joiner_tells_again_what_is_not_answered_and_reads_the_record_of_who_answers_from_a_newer_one() -> None:
    one, _ = joining()
    retry_us = CONFIG.join_retry_us
    assert to(one.tick(retry_us - 1), Register) == []
    assert to(one.tick(retry_us), Register) == [(name, Register(2, 5)) for name in ("src/0", "src/1")]
    effects = one.hear("src/0", Registered(2, (("a", Stamp(1, 0)),), (1,)), retry_us)
    assert to(effects, ReadRecord) == [(MEMBERSHIP, ReadRecord(5, 2, 0, passed=False))]
    effects = one.hear("src/0", Registered(1, (("a", Stamp(1, 0)),), (1,)), retry_us)
    assert to(effects, ReadRecord) == []


def test_a_snapshot_that_an_engine_cannot_take_leaves_a_joiner_as_it_was() -> None:
    one, _ = joining()
    marks = (("a", Stamp(1, 0)),)
    for name in ("src/0", "src/1"):
        one.hear(name, Registered(1, marks, (1,)))
    whole = states.decode(given()[0].data)
    [bad] = states.split(states.encode(msgspec.structs.replace(whole, engine=b"no number")), 1 << 20, 2)
    with pytest.raises(ProtocolError, match="a snapshot from N/1 that cannot be restored: ValueError"):
        one.hear("N/1", bad)
    assert (one.machine.holding, one.made, one.machine.engine.count) == (False, 0, 0)
    one.hear("N/1", given()[0])
    assert (one.machine.holding, one.made) == (True, 2)


def test_who_registers_is_answered_and_who_asks_for_a_state_gets_it_in_parts() -> None:
    one = member(snapshot_part_bytes=100)
    one.batch(1, 3, 5_000)
    one.acked(2)
    answer = Registered(1, (("s", Stamp(2, 0)),), (2,))
    assert one.hear("app/1", Register(2, 1)) == [Send("app/1", answer)]
    read = Send(MEMBERSHIP, ReadRecord(1, 1, 0, passed=True))
    assert one.hear("app/1", Register(2, 2)) == [Send("app/1", answer), read]
    assert one.hear("x/1", Register(2, 1)) == []
    assert one.hear("app/1", AskSnapshot(2)) == [], "of another node"
    parts = [part for _, part in to(one.hear("N/1", AskSnapshot(2)), SnapshotPart)]
    assert {len(part.data) for part in parts[:-1]} == {100}
    assert {part.incarnation for part in parts} == {2}
    whole = states.decode(b"".join(part.data for part in parts))
    assert (whole.engine, whole.outputs[0].mark_count) == (b"3", 2)


def test_only_a_caught_up_peer_says_that_it_remains() -> None:
    one = member()
    assert one.hear(MEMBERSHIP, AskConfirmation("7", "N/1")) == [Send(MEMBERSHIP, Confirmation("7", "N/1", 1))]
    assert (
        one.hear(MEMBERSHIP, AskConfirmation("7", "N/0")) == one.hear(MEMBERSHIP, AskConfirmation("7", "app/0")) == []
    )


# ---- upgrades --------------------------------------------------------------------------------------------------


def test_a_replica_hears_of_the_next_nodes_from_its_operator_and_stops_when_it_is_not_among_them() -> None:
    one = member()
    both = side_by_side(topology(), topology(), ("s",), 1)
    assert one.hear("N/1", Rearrange(both)) == []
    assert to(one.hear(OPERATOR, Rearrange(both)), ReadRecord) == [(MEMBERSHIP, ReadRecord(1, 1, 1, passed=True))]
    assert one.machine.topology is both
    assert one.hear(OPERATOR, Rearrange(both)) == one.hear(OPERATOR, Rearrange(topology())) == []
    one.batch(1, 3, 5_000, switch=Switch(1, 2))
    queue = one.machine.outgoing.queues["s"]
    assert ([each.stamp.time for each in queue.events()], one.machine.merge.through) == ([1, 2], 3)
    assert one.machine.intake.switch == Switch(1, 2)
    one.batch(4, 4, 9_000, switch=Switch(1, 9))
    assert one.machine.intake.switch == Switch(1, 2), "it was agreed on once"
    assert one.hear(OPERATOR, Rearrange(alone(both, 2))) == [Stop("the rules of N are not those of this run any more")]


def test_a_replica_of_a_node_that_came_makes_its_first_state_of_the_log() -> None:
    both = side_by_side(topology(), topology(), ("s",), 1)
    one, _ = joining(both, "N-1/0")
    marks = (("a", Stamp(1, 0)),)
    asked: Effects = []
    for name in ("src/0", "src/1"):
        asked = one.hear(name, Registered(1, marks, (1,)))
    assert to(asked, AskSnapshot) == [("N-1/1", AskSnapshot(2))], "a peer may have one"
    asked = one.tick(CONFIG.join_retry_us)
    assert [e.what for e in asked if isinstance(e, Deliver)] == [AskLog(2, {"a": (Stamp(1, 0), 1)})]
    made = FromLog(2, 3, {"a": Lane(Stamp(3, 0), 3, 3, ())}, b"3", None)
    for sender, answer in (("N-1/1", made), (ENGINE, msgspec.structs.replace(made, incarnation=1))):
        assert one.hear(sender, answer) == []
        assert not one.machine.holding
    effects = one.hear(ENGINE, made)
    assert to(effects, CaughtUp) == [(MEMBERSHIP, CaughtUp("N-1/0", 2, (("src/0", 1), ("src/1", 1))))]
    assert (one.machine.engine.count, one.machine.merge.through) == (3, 3)
    assert one.hear(ENGINE, made) == [], "it has one"
    assert member().hear(ENGINE, made) == []
    one.batch(4, 5, 9_000)
    queue = one.machine.outgoing.queues["s"]
    assert (one.made, queue.watermark) == (0, TIME_MIN), "nothing counts before the time is agreed on"
    one.batch(6, 6, 9_001, switch=Switch(1, 9))
    assert (one.made, queue.watermark) == (0, 9), "at once: nothing comes up to it"


def test_a_snapshot_of_who_knows_other_nodes_is_refused_while_an_upgrade_is_under_way() -> None:
    nodes = (*topology().nodes, NodeSpec("more", Role.SOURCE, outputs=("b",), f=1))
    wider = Topology(nodes, (*topology().streams, schema("b")))
    wider = msgspec.structs.replace(
        wider, nodes=tuple(msgspec.structs.replace(n, inputs=("a", "b")) if n.name == "N" else n for n in wider.nodes)
    )
    one, _ = joining(msgspec.structs.replace(wider, upgrade=1))
    [part] = given()
    assert one.hear("N/1", part) == [
        Report("correlation.snapshot_refused", "N/1 has not heard of the same nodes as N/0"),
    ]
    assert not one.machine.holding


def test_a_durable_replica_that_was_started_again_knows_the_time_that_came_with_what_it_had() -> None:
    both = side_by_side(topology(), topology(), ("s",), 1)
    disk: dict[str, bytes] = {}
    one = One(both, disk=disk)
    one.enter()
    one.batch(1, 3, 5_000, switch=Switch(1, 2))
    again = One(both, disk=disk)
    assert again.machine.intake.switch == Switch(1, 2)
    assert [each.stamp.time for each in again.machine.outgoing.queues["s"].events()] == [1, 2]
    assert again.machine.outgoing.queues["s"].watermark == TIME_MAX


class Silent(Echo):
    """Makes nothing."""

    def feed(self, rows: Sequence[Row], through: int) -> Fed:
        super().feed(rows, through)
        return Fed({})


@pytest.mark.parametrize("durable", [False, True])
def test_a_replica_takes_the_parts_of_new_shards_once_it_is_past_the_agreed_time(durable: bool) -> None:
    """On a disk before anybody is told: what was under the old names may be gone then."""
    both = side_by_side(divided(low=2, high=2), divided(low=3, high=2), (), 1)
    one = One(both, Silent, {} if durable else None, "high-s0/0")
    one.enter()

    def hears(name: str, sender: str, watermark: int, now: int) -> list[str]:
        return kinds(one.hear(f"{sender}/0", Batch(name, BEFORE_ALL, 0, (), watermark, Switch(1, 20)), now))

    assert hears("b#0of2", "low-s0", TIME_MAX, 5_000) == ["Persist", "Persist"] * durable, "it has come to its end"
    assert hears("b#0of3", "low-s0-1", 30, 6_000) == [], "not yet"
    assert to(one.tick(7_000), ReadRecord) == [(MEMBERSHIP, ReadRecord(1, 1, 1, passed=False))]
    assert hears("b#1of2", "low-s1", 19, 8_000) == ["Persist"] * durable
    effects = one.hear("low-s1/0", Batch("b#1of2", BEFORE_ALL, 0, (), TIME_MAX), 10_000)
    resumes = ["Resume"] * 6
    assert kinds(effects) == (["Persist", "Persist", *resumes, "Persist"] if durable else resumes)
    assert [name for name, _ in to(effects, Resume)] == [f"low-s{shard}-1/{n}" for shard in range(3) for n in range(2)]
    assert to(one.tick(2_000_000), ReadRecord) == [(MEMBERSHIP, ReadRecord(1, 1, 1, passed=True))]
    for number in range(3):
        hears(f"b#{number}of3", f"low-s{number}-1", 30, 2_100_000)
    assert one.machine.merge.through == 30
    assert hears("b#0of2", "low-s0", TIME_MAX, 2_200_000) == ["Ack"], "of its last event: it may go"


def test_a_replica_that_hears_of_an_upgrade_before_it_has_entered_enters_with_it() -> None:
    both = side_by_side(topology(), topology(), ("s",), 1)
    one = One()
    assert one.hear("N/1", Rearrange(both)) == []
    one.hear(OPERATOR, Rearrange(both))
    [(_, enter)] = to(one.tick(CONFIG.join_retry_us), Enter)
    assert (enter.upgrade, enter.token) == (1, one.token)
    assert to(one.tick(2 * CONFIG.join_retry_us - 1), Enter) == []


def registered(one: One, marks: tuple[tuple[str, Stamp], ...] = (("a", Stamp(1, 0)),)) -> None:
    for name in ("src/0", "src/1"):
        one.hear(name, Registered(1, marks, (1,)))


def test_what_a_snapshot_holds_that_its_giver_had_not_processed_is_processed_without_a_further_event() -> None:
    peer = member()
    peer.batch(1, 2, 5_000)
    peer.batch(3, 4, 5_001)
    [(_, part)] = to(peer.hear("N/1", AskSnapshot(2)), SnapshotPart)
    one, _ = joining()
    registered(one)
    one.hear("N/1", part)
    assert (peer.made, one.made) == (2, 2)
    one.tick(20_000)
    assert (one.made, one.machine.engine.count) == (4, 4)


def test_an_asynchronous_engine_is_told_where_a_joiner_stands_once_it_has_a_state() -> None:
    one, effects = joining(engine=None)
    assert [effect for effect in effects if isinstance(effect, Deliver)] == []
    registered(one)
    effects = one.hear("N/1", given()[0])
    handed = [effect.what for effect in effects if isinstance(effect, Deliver)]
    assert handed == [HandOver({"s": Stamp(2, 0)}, {"s": 2}), StreamPosition("s", Stamp(2, 0), 2, 2)]


def test_a_leader_that_was_evicted_comes_back_as_one_of_many() -> None:
    one = member()
    one.hear("N/1", Elected(1, "N/0"), 1_000)
    [(_, gossip)] = to(one.tick(2_000), Gossip)
    assert gossip.leader
    effects = one.hear(MEMBERSHIP, RecordIs(record_of(4, N0=Member(1, Standing.GONE))), 9_000)
    one.token = to(effects, Enter)[0][1].token
    one.enter(record_of(5, N0=Member(2, JOINING)), founding=False, incarnation=2)
    registered(one)
    one.hear("N/1", given()[0])
    [(_, gossip)] = to(one.tick(100_000), Gossip)
    assert (gossip.incarnation, gossip.leader) == (2, False)


def test_a_crash_between_the_end_of_an_old_node_and_the_next_state_on_disk_loses_nothing() -> None:
    both = side_by_side(topology(), topology(), ("s",), 1)
    disk: dict[str, bytes] = {}
    one = One(both, None, disk, "app/0")
    one.enter()
    events = tuple(event(time, stream="s") for time in (1, 2))
    before = dict(disk)
    effects = one.hear("N/0", Batch("s", BEFORE_ALL, 0, events, TIME_MAX, Switch(1, 2)))
    kept = [effect for effect in effects if isinstance(effect, Persist)]
    assert len(kept) == 2
    before.update(kept[0].puts)
    again = One(both, None, before, "app/0")
    again.enter(founding=False)
    later = Batch("s", BEFORE_ALL, 0, (event(3, stream="s"),), 3)
    assert to(again.hear("N-1/0", later), Ack) == [("N-1/0", Ack("s", Stamp(3, 0), 1, 1, CONFIG.window_events - 2))]
    ended = [("N/0", Ack("s", Stamp(2, 0), 2, 1, 2 + CONFIG.window_events))]
    assert to(again.hear("N/0", Batch("s", Stamp(2, 0), 2, (), TIME_MAX)), Ack) == ended


def test_a_replica_takes_the_streams_of_rules_that_come() -> None:
    wider = (*topology().nodes[:2], NodeSpec("M", Role.CORRELATION, ("a",), ("t",), 1))
    top = msgspec.structs.replace(topology().nodes[2], inputs=("s", "t"))
    both = side_by_side(topology(), Topology((*wider, top), (*topology().streams, schema("t"))), (), 1)
    one = One(engine=None, name="app/0")
    one.enter()
    one.hear(OPERATOR, Rearrange(both))
    one.hear(MEMBERSHIP, RecordIs(Record(2, both.founding().members, 1)))
    batch = Batch("t", BEFORE_ALL, 0, (event(3, stream="t"),), 3)
    assert kinds(one.hear("M-1/0", batch)) == ["Ack"]
    assert one.machine.merge.size("t") == 1
