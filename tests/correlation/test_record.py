"""What the membership record answers, and who may speak for it."""

from __future__ import annotations

import pytest

from unerring.correlation import MEMBERSHIP, Ack, Batch, Record, RecordIs, Switch
from unerring.correlation.messages import (
    AskConfirmation,
    Challenge,
    Entered,
    Gossip,
    Ping,
    ReadRecord,
    Refused,
    SnapshotPart,
    check_keeper,
    codec,
    is_keeper,
)
from unerring.correlation.record import EMPTY, Member, Standing, node_of
from unerring.model import BEFORE_ALL, TIME_MAX, TIME_MIN, FrameError, ProtocolError, Stamp

JOINS, STAYS, WENT = Member(3, Standing.JOINING), Member(2, Standing.CAUGHT_UP), Member(4, Standing.GONE)
RECORD = Record(7, {"N/0": JOINS, "N/1": STAYS, "N/2": WENT, "N-s0/1": STAYS, "a/b/0": WENT})


def test_the_members_of_a_node_are_those_that_are_not_gone() -> None:
    assert {node: dict(RECORD.of(node)) for node in ("N", "N-s0", "a/b", "x")} == {
        "N": {"N/0": JOINS, "N/1": STAYS},
        "N-s0": {"N-s0/1": STAYS},
        "a/b": {},
        "x": {},
    }
    assert (node_of("a/b/12"), node_of("alone"), EMPTY.version, EMPTY.members) == ("a/b", "", 0, {})


def test_an_incarnation_is_in_the_record_until_it_is_gone_and_counted_on_once_it_is_caught_up() -> None:
    asked = [("N/0", 3), ("N/0", 2), ("N/1", 2), ("N/1", 3), ("N/2", 4), ("x/0", 1)]
    assert [RECORD.holds(*one) for one in asked] == [True, False, True, False, False, False]
    assert [RECORD.caught_up(*one) for one in asked] == [False, False, True, False, False, False]


def test_the_record_is_spoken_for_by_its_keepers_alone() -> None:
    assert [is_keeper(name) for name in (MEMBERSHIP, "membership/b", "membershipb", "N/0", "")] == [True] * 2 + [
        False
    ] * 3
    theirs = [
        RecordIs(RECORD),
        Entered("", 1, True, RECORD),
        Refused("", "no"),
        Challenge("", ""),
        AskConfirmation("", "N/0"),
    ]
    for message in theirs:
        check_keeper("membership/b", message)
        with pytest.raises(ProtocolError, match=f"{type(message).__name__} from N/1, which does not keep"):
            check_keeper("N/1", message)
    for message in (Ping(1), Gossip(1, 1, False, 0, ()), object()):
        check_keeper("N/1", message)


def test_messages_come_back_from_bytes_as_they_went_up_to_the_bound_of_their_size() -> None:
    message = RecordIs(RECORD)
    data = codec(1 << 20).encode(message)
    assert codec(len(data)).decode(data) == message
    with pytest.raises(FrameError):
        codec(len(data) - 1).decode(data)


@pytest.mark.parametrize(
    "message",
    [
        Ping(0),
        Ping(1 << 62),
        ReadRecord(0, 0, 0),
        ReadRecord(1 << 48, 1 << 48, 1 << 48),
        Ack("", BEFORE_ALL, 0, 0, 0),
        Ack("x" * 1024, Stamp(TIME_MAX, 0), 1 << 62, 1 << 48, 1 << 62),
        Batch("a", BEFORE_ALL, 0, (), TIME_MIN),
        Batch("a", BEFORE_ALL, 0, (), TIME_MAX, Switch(0, TIME_MIN)),
        SnapshotPart(0, 0, 1, b"", b""),
        SnapshotPart(0, (1 << 16) - 1, 1 << 16, b"x" * 64, b""),
    ],
)
def test_numbers_pass_up_to_their_bounds(message: object) -> None:
    wire = codec(1 << 20)
    assert wire.decode(wire.encode(message)) == message


@pytest.mark.parametrize(
    "message",
    [
        Ping((1 << 62) + 1),
        ReadRecord(0, (1 << 48) + 1),
        Ack("x" * 1025, BEFORE_ALL, 0, 0, 0),
        Batch("a", BEFORE_ALL, 0, (), TIME_MAX + 1),
        SnapshotPart(0, 0, 0, b"", b""),
        SnapshotPart(0, 1 << 16, 1 << 16, b"", b""),
        SnapshotPart(0, 0, 1, b"x" * 65, b""),
    ],
)
def test_numbers_beyond_their_bounds_are_refused(message: object) -> None:
    wire = codec(1 << 20)
    with pytest.raises(FrameError):
        wire.decode(wire.encode(message))
