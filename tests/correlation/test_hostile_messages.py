"""A bad peer costs its link, never the process: what no peer can mean is refused before anything of it is believed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.correlation.table import Table, line, schema
from unerring.correlation.incoming import Incoming
from unerring.correlation.messages import (
    MEMBERSHIP,
    Ack,
    Batch,
    Entered,
    Gossip,
    NotMember,
    Receipt,
    RecordIs,
    Refused,
    Register,
    Registered,
    SnapshotPart,
    codec,
)
from unerring.correlation.record import Record
from unerring.correlation.shapes import Shapes
from unerring.correlation.snapshot import Assembly
from unerring.model import BEFORE_ALL, Column, ColumnType, Event, FrameError, ProtocolError, Stamp, StreamSchema

SECOND = 1_000_000


def event(time: int, stream: str = "a", **payload: Any) -> Event:
    return Event(stream, Stamp(time), (), payload or {"v": time})


def playing() -> Table:
    table = Table(line(), durable=True)
    table.run(SECOND)
    for time in (10, 20, 30):
        table.publish(time)
    table.run(SECOND)
    return table


@pytest.mark.parametrize(
    "events",
    [
        (event(5), event(5)),
        (event(7), event(6)),
        (event(5, "b"),),
        (event(3),),
        (event(5, w=1),),
        (event(5, v="text"),),
        (event(5, v=2**63),),
        (event(5, v=[1]),),
        (event(5, v=1, w=2),),
    ],
)
def test_events_that_are_not_of_the_stream_are_refused_and_leave_it_as_it_was(events: tuple[Event, ...]) -> None:
    incoming = Incoming("a", Stamp(2), 1, 3, Shapes(schema("a")))
    with pytest.raises(ProtocolError):
        incoming.take(Batch("a", Stamp(2), 1, events, 9))
    assert (incoming.last, incoming.count, incoming.watermark) == (Stamp(2), 1, 3)


def test_all_types_of_columns_fit_and_so_does_a_loss() -> None:
    columns = tuple(Column(kind.value, kind, nullable=True) for kind in ColumnType if kind is not ColumnType.TIME)
    shapes = Shapes(StreamSchema("a", columns))
    whole = {"bool": True, "int": -(2**63), "float": 1, "text": "x", "bytes": b"x"}
    for payload in (whole, dict.fromkeys(whole), {**whole, "float": float("nan")}):
        assert shapes.fits(Event("a", Stamp(1), (), payload))
    assert not shapes.fits(Event("a", Stamp(1), (), {**whole, "int": 1.5}))


def test_numbers_fit_up_to_the_bounds_of_64_bits_however_often_such_an_event_has_come() -> None:
    columns = tuple(Column(kind.value, kind, nullable=True) for kind in (ColumnType.INT, ColumnType.FLOAT))
    shapes = Shapes(StreamSchema("a", (*columns, Column("n", ColumnType.INT))))
    for _ in range(2):  # what was found right is remembered, not what was found wrong
        for fitting in (2**63 - 1, -(2**63), 0, True, None):
            assert shapes.fits(Event("a", Stamp(1), (), {"int": fitting, "float": fitting, "n": fitting}))
        for wrong in (2**63, -(2**63) - 1, 2**64):
            for name in ("int", "float", "n"):
                assert not shapes.fits(Event("a", Stamp(1), (), {"int": 1, "float": 1, "n": 1, name: wrong}))
        for real in (1e300, -float("inf")):
            assert shapes.fits(Event("a", Stamp(1), (), {"int": 1, "float": real, "n": 1}))
            assert not shapes.fits(Event("a", Stamp(1), (), {"int": real, "float": 1, "n": 1}))
        for payload in ({"int": 1, "n": 1}, {"int": 1, "float": 1, "n": 1, "m": 1}, {"int": 1, "float": 1, "m": 1}, {}):
            assert not shapes.fits(Event("a", Stamp(1), (), payload))


def test_an_ack_for_an_event_that_the_stream_does_not_have_stops_nobody() -> None:
    """Seen: an ack of (2**62, 0) as number 0 was a broken invariant, and the source's process stopped."""
    table = playing()
    for ack in (Ack("a", Stamp(2**62), 0, 1, 9), Ack("a", Stamp(31), 1, 1, 9), Ack("a", Stamp(1), 99, 1, 9)):
        with pytest.raises(ProtocolError, match="another event"):
            table.machines["src/0"].handle("N1/0", ack, table.now)
    lie = Gossip(1, 1, False, 0, (Receipt("s1", "app/0", 1, Stamp(1), 0, 9),))
    with pytest.raises(ProtocolError, match="another event"):
        table.machines["N1/0"].handle("N1/1", lie, table.now)


def test_an_incarnation_that_nobody_has_does_not_lock_its_owner_out() -> None:
    """Seen: a Register of incarnation 2**63 - 1 in a replica's name, and its own acks counted never again."""
    table = playing()
    source = table.machines["src/0"]
    far = source.handle("N1/0", Register(2**48, 2**48), table.now)[0].message
    assert isinstance(far, NotMember)
    source.handle("N1/0", Register(60, 60), table.now)
    assert isinstance(source.handle("N1/0", Register(1, 1), table.now)[0].message, Registered)
    assert not [e for e in source.handle("N1/0", Ack("a", Stamp(30), 3, 1, 99), table.now) if has_not_member(e)]
    assert isinstance(source.handle("N1/0", Ack("a", Stamp(30), 3, 2**48, 9), table.now)[0].message, NotMember)


def has_not_member(effect: Any) -> bool:
    return isinstance(getattr(effect, "message", None), NotMember)


def test_only_a_keeper_speaks_for_the_record() -> None:
    """A forged record of version 2**48 would be the last one that is read."""
    table = playing()
    record = Record(2**48, {})
    for message in (RecordIs(record), Entered("", 1, True, record), Refused("", "no")):
        for name in ("src/0", "N1/0", "app/0"):
            if name == "N1/0" or isinstance(message, RecordIs):
                with pytest.raises(ProtocolError, match="does not keep"):
                    table.machines[name].handle("N1/1", message, table.now)


def test_a_record_without_the_one_who_entered_is_refused() -> None:
    table = Table(line())
    replica = table.machines["N1/0"]
    with pytest.raises(ProtocolError, match="does not have"):
        replica.handle(MEMBERSHIP, Entered(replica._entering.token, 1, True, Record(1, {})), table.now)


def test_parts_of_a_snapshot_that_do_not_belong_together_are_refused() -> None:
    assembly = Assembly()
    assert assembly.add(SnapshotPart(1, 1, 2, b"d", b"x")) is None
    with pytest.raises(FrameError):
        assembly.add(SnapshotPart(1, 5, 2, b"d", b"x"))
    assert assembly.add(SnapshotPart(1, 0, 3, b"d", b"x")) is None, "another number of parts begins anew"


@pytest.mark.parametrize(
    "fields",
    [
        ["Ack", "a", [2**63, 0], 0, 1, 9],
        ["Ack", "a", [1, -1], 0, 1, 9],
        ["Ack", "a", [1, 0], -1, 1, 9],
        ["Ack", "a", [1, 0], 1, 2**63 - 1, 9],
        ["Batch", "a", [1, 0], 2**64 - 1, [], 9],
        ["Batch", "a", [1, 0], 0, [], 2**63 - 1],
        ["Register", -1, 1],
        ["Vote", 2**63, ""],
        ["Pong", -1],
        ["SnapshotPart", 1, 0, 2**31, b"", b""],
        ["RecordIs", {"version": 2**63 - 1, "members": {}}],
        ["RecordIs", {"version": 1, "members": {"N1/0": {"incarnation": -1, "standing": "gone"}}}],
        ["LeaderDead", "x" * 2000],
    ],
)
def test_numbers_that_cannot_be_are_refused_when_they_are_decoded(fields: list[object]) -> None:
    with pytest.raises(FrameError):
        codec(1 << 20).decode(msgspec.msgpack.encode(fields))


def test_a_durable_replica_starts_again_with_an_ack_that_turned_out_a_lie() -> None:
    """An ack ahead of what this replica has made cannot be judged yet; on disk it kept the replica from starting, and
    told to its peers it would cost this replica its links."""
    table = playing()
    replica = table.machines["N1/0"]
    queue = replica.outgoing.queues["s1"]
    lie = Ack("s1", Stamp(2**61), queue.count + 1, 1, 99)
    replica.handle("app/0", lie, table.now)
    for time in range(40, 400, 10):
        table.publish(time)
        table.run(SECOND)
    assert queue.count > lie.count
    table.crash("N1/0")
    table.start("N1/0")
    table.run(SECOND)
    assert table.machines["N1/0"].intake.streams["a"].last > Stamp(300)
    assert table.machines["N1/0"].outgoing.queues["s1"].last > BEFORE_ALL
