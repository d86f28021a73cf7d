"""How a replica comes to its state: a peer's, one made of the log, or its own; and what it gives to others."""

from __future__ import annotations

import msgspec
import pytest

from tests.correlation.one import CAUGHT_UP, CONFIG, JOINING, One, kinds, member, record_of, to, topology
from tests.correlation.table import schema
from unerring.correlation import (
    ENGINE,
    MEMBERSHIP,
    OPERATOR,
    Ack,
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
from unerring.correlation.messages import (
    AskAcks,
    AskConfirmation,
    AskMore,
    AskSnapshot,
    CaughtUp,
    Confirmation,
    Gossip,
    Ping,
    Pong,
    ReadRecord,
    RecordIs,
    Register,
    Registered,
    SnapshotPart,
)
from unerring.correlation.record import Member, Record
from unerring.correlation.switching import AskLog, FromLog, Lane
from unerring.model import (
    BEFORE_ALL,
    Deliver,
    Effects,
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
    assert to(one.tick(10_000), Gossip) != []
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
    assert one.made == 0, "nothing counts before the time is agreed on"


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
