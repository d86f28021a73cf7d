"""An application, message by message: what is on its disk, what it hands up, and what it answers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.correlation.test_upgrades import rules
from unerring.correlation import (
    MEMBERSHIP,
    OPERATOR,
    Application,
    Batch,
    CorrelationConfig,
    Forget,
    Rearrange,
    Topology,
    alone,
    committed,
    moved,
    numbered,
    position_of,
    side_by_side,
)
from unerring.correlation.messages import (
    SEALER,
    Ack,
    AskAcks,
    HasMore,
    NotMember,
    Ping,
    Pong,
    ReadRecord,
    RecordIs,
    Resume,
    Switch,
)
from unerring.correlation.record import Record
from unerring.matching import Chunk
from unerring.model import (
    BEFORE_ALL,
    TIME_MIN,
    Connected,
    Deliver,
    Effects,
    Event,
    Persist,
    ProtocolError,
    Report,
    Send,
    SetTimer,
    Stamp,
)

CONFIG = CorrelationConfig(window_events=100)
PLAIN = rules("X", "Y")
MS = 1_000


class Disk(dict[str, bytes]):
    def take(self, effects: Effects) -> list[Any]:
        """Keep what is persisted; what was never written cannot be deleted. All the effects."""
        for effect in effects:
            if isinstance(effect, Persist):
                self.update(effect.puts)
                for key in effect.deletes:
                    del self[key]
        return list(effects)

    def of(self, stream: str) -> list[int]:
        """The times of the events that are kept."""
        return [event.stamp.time for event in committed(self, stream)]


def started(disk: Disk, topology: Topology = PLAIN) -> Application:
    app = Application(dict(disk), "app/0", topology, CONFIG)
    app.handle(MEMBERSHIP, RecordIs(topology.founding()), 0)
    return app


def event(time: int, stream: str = "x") -> Event:
    return Event(stream, Stamp(time), (), {"v": time})


def batch(first: int, last: int, stream: str = "x", **fields: Any) -> Batch:
    """Events number `first` to `last`, at these times; none if `last` is before `first`."""
    prev = Stamp(first - 1) if first > 1 else BEFORE_ALL
    events = tuple(event(time, stream) for time in range(first, last + 1))
    return Batch(stream, prev, first - 1, events, fields.pop("watermark", TIME_MIN), **fields)


def in_columns(whole: Batch) -> Batch:
    packed = Chunk.of_events(PLAIN.schema(whole.stream), list(whole.events)).packed()
    return msgspec.structs.replace(whole, events=packed)


def ack(count: int, stream: str = "x", credit: int | None = None) -> Ack:
    last = Stamp(count) if count else BEFORE_ALL
    return Ack(stream, last, count, 1, count + 100 if credit is None else credit)


def test_situations_are_on_disk_with_their_position_before_they_are_acknowledged_and_handed_up() -> None:
    disk = Disk()
    app = started(disk)
    persist, *rest = disk.take(app.handle("X/0", batch(1, 2, watermark=7), 0))
    assert [key for key, _ in persist.puts] == [
        "application/x/position",
        "application/x/event/000000000000",
        "application/x/event/000000000001",
    ]
    assert rest == [Deliver(event(1)), Deliver(event(2)), Send("X/0", ack(2))]
    assert app.handle("X/1", batch(1, 2), 0) == [Send("X/1", ack(2))]
    assert app.handle("X/1", batch(3, 2, watermark=9), 0) == [], "a watermark alone needs no answer"
    assert app.watermark("x") == 9
    assert app.handle("X/1", batch(4, 4), 0) == [
        Report("correlation.gap"),
        Send("X/1", Resume("x", Stamp(2), 2, 1, 102, 9)),
    ]
    assert app.handle("Y/0", batch(1, 1), 0) == []
    assert app.handle("X/0", batch(1, 1, "unknown"), 0) == []
    again = started(disk)
    assert again.count("x") == 2
    assert again.watermark("x") == 1, "more of its last event's time may come"
    assert disk.take(again.handle("X/0", batch(1, 1), 0)) == [Send("X/0", ack(2))]
    disk.take(again.handle("X/0", batch(3, 3), 0))
    assert disk.of("x") == [1, 2, 3]
    assert list(numbered(disk, "x")) == [(number, (event(number + 1),)) for number in range(3)]
    assert (position_of(disk, "x"), position_of(disk, "y")) == (3, 0)
    assert list(again.streams) == ["x", "y"]
    assert again.streams["x"].last == Stamp(3)


def test_it_reads_the_record_often_until_it_has_one_and_then_now_and_then() -> None:
    app = Application({}, "app/0", PLAIN, CONFIG)
    asked = Send(MEMBERSHIP, ReadRecord(0, 1, 0, True))
    tick = CONFIG.tick_us
    assert app.start(5) == [SetTimer("tick", 5 + tick), asked]

    def reads(now: int) -> list[Any]:
        first, *effects = app.timer("tick", now)
        assert first == SetTimer("tick", now + tick)
        return [e for e in effects if isinstance(e, Send) and e.to == MEMBERSHIP]

    assert reads(100) == [asked]
    assert reads(100 + CONFIG.join_retry_us - 1) == []
    assert reads(100 + CONFIG.join_retry_us) == [asked]
    first = app.handle(MEMBERSHIP, RecordIs(PLAIN.founding()), 0)
    assert first == [Send(f"{node}/{n}", ack(0, node.lower())) for node in "XY" for n in (0, 1)]
    assert app.handle(MEMBERSHIP, RecordIs(Record(2, PLAIN.founding().members)), 0) == [], "it has begun"
    assert reads(100 + CONFIG.join_retry_us + CONFIG.record_poll_us - 1) == []
    since = Send(MEMBERSHIP, ReadRecord(2, 1, 0, True))
    assert reads(100 + CONFIG.join_retry_us + CONFIG.record_poll_us) == [since]
    with pytest.raises(ProtocolError, match="does not keep"):
        app.handle("X/0", RecordIs(Record(3, {})), 0)


def test_each_message_has_its_answer() -> None:
    app = started(Disk())
    app.handle("X/0", batch(1, 1), 0)
    x, y = ack(1), ack(0, "y")
    assert app.handle("Y/1", AskAcks(), 0) == [Send("Y/1", y)]
    assert app.handle("driver", Connected("X/1", 1), 0) == [Send("X/1", x)]
    assert app.handle("Y/0", Ping(77), 0) == [Send("Y/0", Pong(77))]
    assert app.handle("X/0", NotMember(9), 0) == [Send(MEMBERSHIP, ReadRecord(1, 1, 0, True))]
    assert app.handle("X/0", HasMore("unknown", 5, 5, True), 0) == []
    assert app.handle("X/0", "hello", 0) == []
    assert app.handle("X/0", Pong(400), 800) == []
    assert app.intake.latency_us == 100
    late = CONFIG.patience_us
    app.timer("tick", late)
    assert app.handle("X/1", HasMore("x", 5, 5, True), late) == []
    resumed = [e for e in app.timer("tick", 2 * late) if isinstance(e, Send) and isinstance(e.message, Resume)]
    assert resumed == [Send("X/1", Resume("x", Stamp(1), 1, 1, 101, TIME_MIN))]


def test_who_answers_a_ping_lives() -> None:
    app = started(Disk())
    late = CONFIG.suspect_us_min + 1
    assert app.intake.deaf(late)
    for name in ("X/0", "Y/0"):
        app.handle(name, Pong(0), late)
    assert not app.intake.deaf(late)


@pytest.mark.parametrize("restarted", [False, True])
def test_records_go_when_all_their_events_are_kept_elsewhere(restarted: bool) -> None:
    disk = Disk()
    app = started(disk)
    disk.take(app.handle("X/0", batch(1, 2), 0))
    disk.take(app.handle("X/0", in_columns(batch(3, 5)), 0))
    disk.take(app.handle("X/0", batch(6, 6), 0))
    assert len(disk) == 5
    pieces = [(first, [one.stamp.time for one in piece]) for first, piece in numbered(disk, "x")]
    assert pieces == [(0, [1]), (1, [2]), (2, [3, 4, 5]), (5, [6])]
    again = started(disk) if restarted else app
    assert again.handle("X/0", Forget("x", 6), 0) == []
    assert again.handle(SEALER, Forget("x", 0), 0) == []
    first = "application/x/event/000000000000"
    assert disk.take(again.handle(SEALER, Forget("x", 1), 0)) == [Persist((), (first,))]
    disk.take(again.handle(SEALER, Forget("x", 4), 0))
    assert disk.of("x") == [3, 4, 5, 6], "of one record all or nothing"
    disk.take(again.handle(SEALER, Forget("x", 5), 0))
    assert disk.of("x") == [6]
    assert again.handle(SEALER, Forget("x", 5), 0) == []
    disk.take(again.handle(SEALER, Forget("x", 6), 0))
    assert list(disk) == ["application/x/position"]
    again = started(disk)
    assert again.count("x") == 6
    disk.take(again.handle("X/0", batch(7, 7), 0))
    assert list(numbered(disk, "x")) == [(6, (event(7),))]


def test_columns_are_handed_up_as_they_are_and_committed_in_one_record() -> None:
    disk = Disk()
    app = started(disk)
    persist, deliver, send = disk.take(app.handle("X/0", in_columns(batch(1, 3)), 0))
    assert [key for key, _ in persist.puts] == ["application/x/position", "application/x/columns/000000000000"]
    assert [one.stamp.time for one in deliver.what] == [1, 2, 3]
    assert send == Send("X/0", ack(3))
    assert disk.of("x") == [1, 2, 3]


# Upgrades: the rules of X take over as X-1 at time 2.


BOTH = side_by_side(rules("X"), rules("X"), ("x",), 1)
SWITCH = Switch(1, 2)


def test_a_stream_goes_on_with_the_node_that_takes_over_also_after_a_restart() -> None:
    disk = Disk()
    app = started(disk, rules("X"))
    assert app.handle("X/0", Rearrange(BOTH), 0) == [], "no peer says which nodes there are"
    assert app.handle(OPERATOR, Rearrange(BOTH), 0) == [Send(MEMBERSHIP, ReadRecord(1, 1, 1, False))]
    assert app.handle(OPERATOR, Rearrange(BOTH), 0) == [], "it knows"
    assert app.handle(OPERATOR, Rearrange(rules("X")), 0) == [], "that was before"
    app.handle(MEMBERSHIP, RecordIs(msgspec.structs.replace(BOTH.founding(), version=2)), 0)
    disk.take(app.handle("X/0", batch(1, 2), 0))
    assert app.handle("X/0", batch(3, 2, switch=Switch(2, 2), watermark=9), 0) == [], "of an upgrade not known here"
    assert app.watermark("x") < 9
    effects = app.handle("X/0", batch(3, 2, switch=SWITCH, watermark=9), 0)
    nothing = Ack("x", BEFORE_ALL, 0, 1, 100)
    assert effects == [Send("X-1/0", nothing), Send("X-1/1", nothing)]
    assert app.start(0)[1] == Send(MEMBERSHIP, ReadRecord(2, 1, 1, True)), "it needs nothing any more of the old one"
    assert app.count("x") == 2
    after = Batch("x", BEFORE_ALL, 0, (event(7),), 7)
    disk.take(app.handle("X-1/0", after, 0))
    assert app.count("x") == 3
    for topology in (BOTH, alone(BOTH, 2)):
        again = started(disk, topology)
        assert (again.count("x"), position_of(disk, "x"), disk.of("x")) == (3, 3, [1, 2, 7])
        assert again.start(0)[1] == Send(MEMBERSHIP, ReadRecord(1, 1, 1, True))
        assert again.handle("X-1/0", after, 0) == [Send("X-1/0", Ack("x", Stamp(7), 1, 1, 101))]
    again = started(disk, BOTH)
    assert again.handle("X/0", batch(2, 2), 0) == [Send("X/0", ack(2))], "the old node's last ack"
    disk.take(again.handle("X-1/1", Batch("x", Stamp(7), 1, (event(8),), 8), 0))
    assert disk.of("x") == [1, 2, 7, 8]
    assert [first for first, _ in numbered(disk, "x")] == [0, 1, 2, 3]
    disk.take(again.handle(SEALER, Forget("x", 3), 0))
    assert disk.of("x") == [8]


def test_a_restart_before_it_went_over_goes_on_with_the_old_node_or_where_that_is_gone_after_it() -> None:
    disk = Disk()
    app = started(disk, BOTH)
    assert app.start(0)[1] == Send(MEMBERSHIP, ReadRecord(1, 1, 1, False))
    disk.take(app.handle("X/0", batch(1, 2), 0))
    again = started(disk, BOTH)
    assert again.intake.maker("x") == "X"
    assert again.handle("X/0", batch(1, 2), 0) == [Send("X/0", ack(2))]
    gone = started(disk, alone(BOTH, 2))
    assert gone.intake.maker("x") == "X-1"
    assert gone.count("x") == 2, "numbers go on"
    assert gone.intake.credit("x") == 100
    disk.take(gone.handle("X-1/0", Batch("x", BEFORE_ALL, 0, (event(7),), 7), 0))
    assert [first for first, _ in numbered(disk, "x")] == [0, 1, 2]
    assert position_of(disk, "x") == 3


def test_one_that_told_so_and_was_killed_goes_over_when_the_old_node_is_gone() -> None:
    """It said that it needs nothing any more of X, and nothing on its disk says so, since nothing has come of X-1. The
    record believes what it said, and X is gone before the next process of this name hears of X's end again."""
    disk = Disk()
    app = started(disk, BOTH)
    disk.take(app.handle("X/0", batch(1, 2), 0))
    app.handle("X/0", batch(3, 2, switch=SWITCH, watermark=9), 0)
    again = started(disk, BOTH)
    assert again.handle(OPERATOR, Rearrange(alone(BOTH, 2)), 0) == [Send(MEMBERSHIP, ReadRecord(1, 1, 1, True))]
    assert (again.count("x"), again.intake.maker("x"), again.intake.credit("x")) == (2, "X-1", 100)
    assert again.watermark("x") == 1
    again.handle(MEMBERSHIP, RecordIs(msgspec.structs.replace(alone(BOTH, 2).founding(), version=2)), 0)
    disk.take(again.handle("X-1/0", Batch("x", BEFORE_ALL, 0, (event(7),), 7), 0))
    assert disk.of("x") == [1, 2, 7]
    assert [first for first, _ in numbered(disk, "x")] == [0, 1, 2]
    assert started(disk, alone(BOTH, 2)).count("x") == 3


def test_a_stream_that_comes_with_an_upgrade_begins_at_nothing() -> None:
    disk = Disk()
    app = started(disk, rules("X"))
    disk.take(app.handle("X/0", batch(1, 2), 0))
    more = side_by_side(rules("X"), rules("X", "Q"), ("q",), 1)
    app.handle(OPERATOR, Rearrange(more), 0)
    app.handle(MEMBERSHIP, RecordIs(msgspec.structs.replace(more.founding(), version=2)), 0)
    assert (app.count("x"), app.count("q")) == (2, 0)
    disk.take(app.handle("Q-1/0", Batch("q", BEFORE_ALL, 0, (event(5, "q"),), 5), 0))
    disk.take(app.handle("X/0", batch(3, 3), 0))
    assert (disk.of("x"), disk.of("q")) == ([1, 2, 3], [5])
    assert disk.take(app.handle(SEALER, Forget("q", 1), 0)) != []


@pytest.mark.parametrize(
    ("sealed", "sealed_us", "last", "count", "left"),
    [
        (0, 0, 3, 3, [1, 2, 3]),
        (2, 2, 3, 3, [3]),
        (3, 3, 3, 3, []),
        (0, 3, None, 0, []),  # another stream, which has nothing of it
        (1, 2, 3, 2, [3]),
        (5, 2, 3, 6, [3]),
    ],
)
def test_records_move_to_another_beginning_of_their_stream(
    sealed: int, sealed_us: int, last: int | None, count: int, left: list[int]
) -> None:
    """`sealed` events of the stream are in the log, up to `sealed_us`; what comes after is kept under new numbers."""
    disk = Disk()
    app = started(disk)
    disk.take(app.handle("X/0", batch(1, 1), 0))
    disk.take(app.handle("X/0", in_columns(batch(2, 3)), 0))
    disk.take(app.handle("Y/0", batch(1, 1, "y"), 0))
    disk["application/x#0of2/position"] = b"of a part that comes again"
    asked: list[Stamp] = []

    def count_sealed(stamp: Stamp) -> int:
        asked.append(stamp)
        return sealed

    effect = moved(dict(disk), "x", count_sealed, sealed_us)
    for key in effect.deletes:
        del disk[key]
    disk.update(effect.puts)
    assert asked == [Stamp(3)]
    assert disk.of("x") == left
    assert [first for first, _ in numbered(disk, "x")] == list(range(sealed, sealed + len(left)))
    assert disk.of("y") == [1]
    assert not [key for key in disk if "#" in key]
    again = started(disk)
    assert (again.count("x"), position_of(disk, "x")) == (count, count)
    assert again.intake.streams["x"].last == (BEFORE_ALL if last is None else Stamp(last))


def test_records_of_a_stream_without_a_position_are_dropped() -> None:
    disk = Disk(
        {"application/x#0of2/position": b"", "application/x/event/000000000000": msgspec.msgpack.encode(event(1))}
    )
    effect = moved(disk, "x", lambda _: 0, 0)
    assert effect.puts == ()
    assert sorted(effect.deletes) == ["application/x#0of2/position", "application/x/event/000000000000"]
