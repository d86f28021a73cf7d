"""A replica's state as it travels: whole, for whom it fits, and what one of the log or of before an upgrade lacks."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest

from tests.correlation.table import schema
from unerring.correlation import (
    Ack,
    Batch,
    CorrelationConfig,
    FromLog,
    NodeSpec,
    Role,
    Switch,
    Topology,
    side_by_side,
    snapshot as states,
)
from unerring.correlation.course import Course
from unerring.correlation.intake import Intake
from unerring.correlation.messages import Receipt, Register
from unerring.correlation.outgoing import Outgoing
from unerring.correlation.snapshot import Assembly, InputState, OutputState, Snapshot
from unerring.correlation.switching import Lane
from unerring.matching import Merge, MergeState, Waiting
from unerring.model import BEFORE_ALL, TIME_MAX, TIME_MIN, Event, FrameError, ProtocolError, Stamp

CONFIG = CorrelationConfig()


def topology(taken: str = "ab", sources: str = "ab") -> Topology:
    """A node N that makes one stream."""
    made = [NodeSpec(f"src_{stream}", Role.SOURCE, outputs=(stream,), f=1) for stream in sources]
    node = NodeSpec("N", Role.CORRELATION, tuple(taken), ("s",), 1)
    top = NodeSpec("app", Role.APPLICATION, ("s",), f=1)
    return Topology((*made, node, top), tuple(schema(name) for name in f"{sources}s"))


class Parts:
    """What of a replica goes into a snapshot, but for its engine."""

    def __init__(self, layout: Topology, name: str = "N/0") -> None:
        node = name.partition("/")[0]
        self.intake = Intake(node, layout, CONFIG)
        self.course = Course(node, layout)
        self.merge = self.course.merge(Merge)
        self.outgoing = Outgoing(name, layout, layout.node(node).outputs, CONFIG)
        self.intake.read(layout.founding(), 0)
        self.outgoing.read(layout.founding())

    def take(self, stream: str, times: Iterable[int], watermark: int) -> None:
        events = tuple(event(stream, time) for time in times)
        incoming = self.intake.streams[stream]
        batch = Batch(stream, incoming.last, incoming.count, events, watermark)
        taken, _ = self.intake.take(f"{self.intake.maker(stream)}/0", batch, 0)
        self.course.push(stream, taken.events, self.merge, self.intake)

    def snapshot(self) -> Snapshot:
        return states.decode(states.encode(states.take(self.intake, self.merge, b"engine", self.outgoing)))

    def put_back(self, snapshot: Snapshot) -> None:
        states.put_back(snapshot, self.intake, self.merge, self.outgoing)


def event(stream: str, time: int) -> Event:
    return Event(stream, Stamp(time, 0), (), {"v": time})


def playing() -> Parts:
    """Inputs that have got differently far, outputs pruned in part, a receiver behind, a joiner registered."""
    one = Parts(topology())
    one.take("a", (1, 2, 3, 9), 9)
    one.take("b", (2, 5), 5)
    one.merge.release()
    one.intake.consume(one.merge)
    one.outgoing.append("s", [event("s", time) for time in (1, 2, 3, 4)])
    one.outgoing.advance(5)
    one.outgoing.ack("app/0", Ack("s", Stamp(2, 0), 2, 1, 99))
    one.outgoing.ack("app/1", Ack("s", Stamp(3, 0), 3, 1, 98))
    one.outgoing.prune()
    one.outgoing.register("app/1", Register(2, 5))
    return one


def test_a_state_comes_back_whole() -> None:
    one, other = playing(), Parts(topology(), "N/1")
    kept = one.snapshot()
    assert kept.inputs == (
        InputState("a", Stamp(9, 0), 4, 9, "src_a"),
        InputState("b", Stamp(5, 0), 2, 5, "src_b"),
    )
    assert kept.outputs[0].mark == Stamp(2, 0)
    assert (kept.outputs[0].mark_count, kept.outputs[0].watermark) == (2, 5)
    assert kept.receipts == (Receipt("s", "app/0", 1, Stamp(2, 0), 2, 99), Receipt("s", "app/1", 1, Stamp(3, 0), 3, 98))
    assert (kept.registered, kept.version_min, kept.engine) == ((("app/1", 2, 5),), 5, b"engine")
    assert [len(lane[3]) for lane in kept.merge.lanes] == [1, 0], "that of time 9 waits"
    other.put_back(kept)
    assert other.snapshot() == kept
    assert other.intake.consumed == {"a": 3, "b": 2}
    assert other.outgoing.queues["s"].events() == [event("s", 3), event("s", 4)]
    other.outgoing.ack("app/0", Ack("s", Stamp(4, 0), 4, 1, 99))
    other.outgoing.ack("app/1", Ack("s", Stamp(4, 0), 4, 1, 99))
    other.outgoing.prune()
    assert other.outgoing.queues["s"].mark_count == 2, "somebody has registered at a version not yet read"


def test_who_gets_a_state_goes_on_with_the_makers_that_its_giver_had_gone_over_to() -> None:
    one, other = (Parts(upgraded(), f"app/{number}") for number in range(2))
    one.outgoing.span.learn(Switch(1, 3))
    one.intake.switch = one.outgoing.span.switch
    one.take("s", (1, 2), TIME_MAX)
    one.intake.go_over("s", 0)
    one.take("s", (5,), 6)
    kept = one.snapshot()
    assert kept.inputs == (InputState("s", Stamp(5, 0), 1, 6, "N-1", ("N", Stamp(2, 0), 2)),)
    other.put_back(kept)
    assert other.snapshot() == kept
    assert (other.intake.maker("s"), other.intake.passed) == ("N-1", True)
    assert (other.intake.switch, other.intake.consumed) == (Switch(1, 3), {"s": -2}), "what waits is not consumed"


def test_a_receipt_that_does_not_follow_from_the_queue_beside_it_is_left_out() -> None:
    """What a receiver claimed may have turned out a lie: a snapshot with it would never be restored."""
    kept = playing().snapshot()
    lie = Receipt("s", "app/0", 1, Stamp(7, 0), 3, 99)
    gone = Receipt("x", "app/0", 1, Stamp(7, 0), 3, 99)
    other = Parts(topology())
    other.put_back(msgspec.structs.replace(kept, receipts=(lie, gone, *kept.receipts[1:])))
    assert other.outgoing.receipts() == kept.receipts[1:]


def test_a_snapshot_of_another_node_is_refused_and_one_with_more_streams_is_not() -> None:
    kept = playing().snapshot()
    inputs, outputs, merge = kept.inputs, kept.outputs, kept.merge
    for wrong in (
        {"inputs": inputs[:1]},
        {"inputs": (*inputs, inputs[0])},
        {"inputs": (), "merge": MergeState(5, ())},
        {"outputs": ()},
        {"merge": MergeState(5, merge.lanes[:1])},
    ):
        with pytest.raises(ProtocolError, match="which are not those of this node"):
            Parts(topology()).put_back(msgspec.structs.replace(kept, **wrong))
    fewer = Parts(topology("a"))
    fewer.put_back(msgspec.structs.replace(kept, outputs=(*outputs, OutputState("t", BEFORE_ALL, 0, 0, ()))))
    assert list(fewer.intake.streams) == ["a"]
    assert list(fewer.outgoing.queues) == ["s"]
    for layout, takes in ((topology(), True), (topology("a"), False)):
        other = Parts(layout)
        assert states.fits(kept, other.intake, other.outgoing) is takes
    other = Parts(topology())
    more = msgspec.structs.replace(kept, outputs=(*outputs, OutputState("t", BEFORE_ALL, 0, 0, ())))
    assert not states.fits(more, other.intake, other.outgoing)
    assert states.fits(msgspec.structs.replace(kept, inputs=inputs[::-1]), other.intake, other.outgoing)


def upgraded() -> Topology:
    """Another rule for `s`, and a source for it that is new."""
    return side_by_side(topology(), topology("abc", "abc"), ("s",), 1)


def test_a_state_of_the_log_is_that_of_a_replica_that_has_made_nothing_yet() -> None:
    other = Parts(upgraded(), "N-1/0")
    waiting = (event("b", 6), event("b", 7))
    lanes = {"a": Lane(Stamp(3, 0), 3, 5, ()), "b": Lane(Stamp(7, 0), 4, TIME_MIN, waiting, 8)}
    made = FromLog(2, 5, lanes, b"of the log", Switch(1, 20))
    kept = states.born(made, other.intake, other.merge, other.outgoing)
    assert kept == Snapshot(
        inputs=(
            InputState("a", Stamp(3, 0), 3, 5, "src_a"),
            InputState("b", Stamp(7, 0), 4, TIME_MIN, "src_b"),
            InputState("c", BEFORE_ALL, 0, TIME_MIN, "src_c"),
        ),
        merge=MergeState(
            5,
            (
                ("a", Stamp(3, 0), 5, ()),
                ("b", Stamp(7, 0), 8, (Waiting(Stamp(6, 0), (), {"v": 6}), Waiting(Stamp(7, 0), (), {"v": 7}))),
                ("c", BEFORE_ALL, 5, ()),
            ),
        ),
        engine=b"of the log",
        outputs=(OutputState("s", BEFORE_ALL, 0, TIME_MIN, ()),),
        receipts=(),
        registered=(),
        switch=Switch(1, 20),
    )
    other.put_back(kept)
    assert (other.intake.switch, other.outgoing.span.switch) == (Switch(1, 20), Switch(1, 20))
    assert other.intake.consumed == {"a": 3, "b": 2, "c": 0}, "what waits is not processed"
    assert other.merge.through == 5


def test_a_state_of_before_an_upgrade_is_completed_with_the_names_that_came() -> None:
    kept = playing().snapshot()
    wider = upgraded()
    assert states.completed(kept, Parts(topology()).merge) == kept
    whole = states.completed(kept, Parts(wider, "N-1/0").merge)
    assert whole.inputs == (*kept.inputs, InputState("c", BEFORE_ALL, 0, TIME_MIN))
    assert whole.merge == MergeState(kept.merge.through, (*kept.merge.lanes, ("c", BEFORE_ALL, TIME_MIN, ())))
    assert msgspec.structs.replace(whole, inputs=kept.inputs, merge=kept.merge) == kept
    fresh = Parts(wider, "N-1/0")
    fresh.put_back(whole)
    assert fresh.snapshot().inputs[2] == InputState("c", BEFORE_ALL, 0, TIME_MIN, "src_c")


def test_parts_are_of_the_size_asked_for_and_come_together_in_any_order() -> None:
    data = states.encode(playing().snapshot())
    whole = states.decode(data)
    for size, count in ((1, len(data)), (len(data) - 1, 2), (len(data), 1), (len(data) + 1, 1)):
        parts = states.split(data, size, 7)
        assert [(part.incarnation, part.number, part.parts) for part in parts] == [(7, n, count) for n in range(count)]
        assert b"".join(part.data for part in parts) == data
        assembly = Assembly()
        for _ in range(2):  # another one may be asked for afterwards
            assert [assembly.add(part) for part in reversed(parts)] == [None] * (count - 1) + [whole]
    [empty] = states.split(b"", 5, 1)
    with pytest.raises(FrameError, match="invalid snapshot"):
        Assembly().add(empty)


def test_parts_of_another_snapshot_begin_anew_and_a_corrupt_one_is_refused() -> None:
    kept = playing().snapshot()
    one, other = (
        states.split(states.encode(state), 100, 1) for state in (kept, msgspec.structs.replace(kept, engine=b"x"))
    )
    assert 2 < len(one) == len(other)
    assembly = Assembly()
    assert [assembly.add(part) for part in (one[0], *other[1:])] == [None] * len(other), "its first part is lacking"
    assert assembly.add(other[0]) == states.decode(b"".join(part.data for part in other))
    assert [assembly.add(part) for part in (*one[:-1], one[0])] == [None] * len(one), "a part that comes twice is one"
    with pytest.raises(FrameError, match="corrupt"):
        assembly.add(msgspec.structs.replace(one[-1], data=b"?"))
    assert [assembly.add(part) for part in one] == [None] * (len(one) - 1) + [kept]
    for number, parts in ((3, 3), (4, 3)):
        with pytest.raises(FrameError, match=f"invalid part {number} of a snapshot of {parts} parts"):
            assembly.add(msgspec.structs.replace(one[0], number=number, parts=parts))
