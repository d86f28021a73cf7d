"""Sources that follow a log, and batches that grow with the load."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.correlation.table import Table, line
from unerring.correlation import CorrelationConfig, Source
from unerring.correlation.messages import Ack, Batch, Publish, Register, Registered
from unerring.correlation.outgoing import StreamPosition
from unerring.correlation.source import PRODUCER
from unerring.model import TIME_MIN, CallerError, Deliver, Event, Persist, Send, Stamp

SECOND = 1_000_000


def event(time: int, ordinal: int = 0) -> Event:
    return Event("a", Stamp(time, ordinal), (), {"v": time})


class Disk(dict[str, bytes]):
    def take(self, effects: list[Any]) -> list[Any]:
        """Keep what is persisted; the rest."""
        for effect in effects:
            if isinstance(effect, Persist):
                self.update(effect.puts)
        return [effect for effect in effects if not isinstance(effect, Persist)]


def test_a_source_that_follows_a_log_keeps_its_mark_alone_and_is_handed_the_rest_again() -> None:
    table = Table(line())
    table.run(SECOND)
    record = table.record()
    disk = Disk()

    def source() -> Source:
        made = Source(disk, "src/0", table.topology, CorrelationConfig(), follows=True)
        made.outgoing.read(record)
        return made

    log = [event(1), event(2, 0), event(2, 1), event(2, 2), event(3)]
    first = source()
    disk.take(first.publish(log, 0))
    assert disk == {}
    for replica in ("N1/0", "N1/1"):
        disk.take(first.handle(replica, Ack("a", Stamp(2, 1), 3, 1, 99), 0))
    disk.take(first.timer("tick", 10 * SECOND))
    assert list(disk) == ["source/a/state"]
    again = source()
    queue = again.outgoing.queues["a"]
    assert (queue.last, queue.count, queue.watermark) == (Stamp(2, 1), 3, 1), "more of time 2 follows the mark"
    disk.take(again.handle("N1/0", Ack("a", Stamp(3), 5, 1, 99), 0))
    rest = [one for one in log if one.stamp > queue.last]
    sent = disk.take(again.publish(rest, 0))
    assert not [s for s in sent if isinstance(s, Send) and s.to == "N1/0" and getattr(s.message, "events", ())]
    assert queue.batch(3, 5).prev == Stamp(2, 1)
    assert queue.count == 5


def test_a_source_whose_events_are_all_acknowledged_goes_on_after_them_when_it_restarts() -> None:
    table = Table(line())
    table.run(SECOND)
    disk = Disk()
    first = Source(disk, "src/0", table.topology, CorrelationConfig())
    first.outgoing.read(table.record())
    disk.take(first.publish([event(29)], 0))
    for replica in ("N1/0", "N1/1"):
        disk.take(first.handle(replica, Ack("a", Stamp(29), 1, 1, 99), 0))
    for effect in first.timer("tick", 10 * SECOND):
        if isinstance(effect, Persist):
            disk.take([effect])
            for key in effect.deletes:
                del disk[key]
    assert list(disk) == ["source/a/state"]
    again = Source(disk, "src/0", table.topology, CorrelationConfig())
    assert again.next_time("a") == 30
    with pytest.raises(CallerError, match="is not after its watermark 29"):
        again.publish([event(0)], 0)


def test_a_source_that_was_started_again_prunes_nothing_by_a_record_from_before_a_joiner() -> None:
    """DESIGN 9.5: who registers is pinned from the answer on, and the answer outlives the process."""
    table = Table(line())
    table.run(SECOND)
    record, disk = table.record(), Disk()

    def source() -> Source:
        made = Source(disk, "src/0", table.topology, CorrelationConfig())
        made.outgoing.read(record)
        return made

    first = source()
    disk.take(first.publish([event(1)], 0))
    effects = first.handle("N1/1", Register(2, record.version + 1), 0)
    assert [type(effect) for effect in effects] == [Persist, Send], "on disk before it is told"
    assert isinstance(effects[1].message, Registered)
    disk.take(effects)
    assert [e for e in first.handle("N1/1", Register(2, record.version + 1), 0) if isinstance(e, Persist)] == []
    again = source()  # the record comes late: it does not know of the joiner
    for replica in ("N1/0", "N1/1"):
        disk.take(again.handle(replica, Ack("a", Stamp(1), 1, 1, 99), 0))
    disk.take(again.timer("tick", 10 * SECOND))
    assert again.outgoing.queues["a"].mark_count == 0
    again.outgoing.read(msgspec.structs.replace(record, version=record.version + 1))
    disk.take(again.timer("tick", 11 * SECOND))
    assert again.outgoing.queues["a"].mark_count == 1


def test_a_source_tells_its_producer_what_it_has_taken_once_there_is_room_for_more() -> None:
    table = Table(line(f=0), CorrelationConfig())
    table.run(SECOND)
    source = Source({}, "src/0", table.topology, CorrelationConfig(outgoing_events_max=3), follows=True)
    source.outgoing.read(table.record())

    def taken(effects: list[Any]) -> list[Any]:
        return [effect.what for effect in effects if isinstance(effect, Deliver)]

    assert taken(source.start(0)) == [StreamPosition("a", source.outgoing.queues["a"].last, 0, TIME_MIN)]
    two = Publish("a", (event(1), event(2)), 5)
    assert taken(source.handle(PRODUCER, two, 0)) == [StreamPosition("a", Stamp(2), 2, 5)]
    assert taken(source.timer("tick", 1)) == [], "each step is told once"
    assert taken(source.handle(PRODUCER, Publish("a", (event(6), event(7)), 7), 1)) == [], "four wait: it is full"
    assert taken(source.handle("N1/0", Ack("a", Stamp(2), 2, 1, 99), 2)) == [StreamPosition("a", Stamp(7), 4, 7)]


def test_events_travel_alone_at_low_load_and_together_at_high_load() -> None:
    table = Table(line(f=0), CorrelationConfig(flights_max=2))
    table.run(SECOND)
    source = table.machines["src/0"]

    def sizes(time: int) -> list[int]:
        table.publish(time)
        batches = [message for _, to, message in table.waiting if to == "N1/0" and isinstance(message, Batch)]
        return [len(batch.events) for batch in batches if batch.events]

    assert sizes(10) == [1]
    table.run(SECOND)
    assert sizes(20) == [1], "acknowledged: nothing is on the way any more"
    assert sizes(30) == [1, 1]
    assert [sizes(time) for time in range(40, 100, 10)] == [[1, 1]] * 6, "two are on the way: the others wait"
    table.perform("src/0", source.handle("N1/0", Ack("a", Stamp(20), 2, 1, 999), table.now))
    batches = [message for _, to, message in table.waiting if to == "N1/0" and isinstance(message, Batch)]
    assert [len(batch.events) for batch in batches if batch.events] == [1, 1, 6]
    assert source.outgoing.queues["a"].watermark > TIME_MIN
