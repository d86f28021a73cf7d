"""A source by itself: what is on its disk before anybody is told, what it says when, and whom it listens to."""

from __future__ import annotations

from typing import Any

import pytest

from tests.correlation.table import schema
from tests.correlation.test_shards import divided
from unerring.correlation import (
    MEMBERSHIP,
    OPERATOR,
    Ack,
    CorrelationConfig,
    NodeSpec,
    Rearrange,
    Role,
    Source,
    Switch,
    Topology,
    side_by_side,
)
from unerring.correlation.messages import (
    AskAcks,
    AskMore,
    Batch,
    HasMore,
    LeaderDead,
    NotMember,
    Ping,
    Pong,
    Publish,
    ReadRecord,
    RecordIs,
    Register,
    Registered,
    Resume,
    WaitsFor,
)
from unerring.correlation.source import PRODUCER, kept_key, needs_after
from unerring.model import (
    BEFORE_ALL,
    TIME_MAX,
    TIME_MIN,
    CallerError,
    Connected,
    Deliver,
    Disconnected,
    Event,
    Persist,
    ProtocolError,
    Send,
    SetTimer,
    Stamp,
)

CONFIG = CorrelationConfig()


def topology(*more: NodeSpec) -> Topology:
    nodes = (
        NodeSpec("src", Role.SOURCE, outputs=("a", "b")),
        NodeSpec("N", Role.CORRELATION, ("a",), ("s",), 1),
        NodeSpec("app", Role.APPLICATION, ("s", "b")),
    )
    return Topology((*nodes, *more), tuple(schema(name) for name in "abs"))


def event(time: int, stream: str = "a", ordinal: int = 0) -> Event:
    return Event(stream, Stamp(time, ordinal), (), {"v": time})


class Process:
    """A source and its disk."""

    def __init__(self, follows: bool = False, layout: Topology | None = None, **bounds: int) -> None:
        self.disk: dict[str, bytes] = {}
        self.follows = follows
        self.layout = layout or topology()
        self.config = CorrelationConfig(**bounds)
        self.start()

    def start(self) -> None:
        self.machine = Source(self.disk, "src/0", self.layout, self.config, self.follows)

    def take(self, effects: list[Any]) -> list[Any]:
        """Keep what is persisted; the rest."""
        for effect in effects:
            if isinstance(effect, Persist):
                self.disk.update(effect.puts)
                for key in effect.deletes:
                    del self.disk[key]
        return [effect for effect in effects if not isinstance(effect, Persist)]

    def hear(self, sender: str, message: object, now: int = 0) -> list[Any]:
        return self.take(self.machine.handle(sender, message, now))

    def acked(self, *counts: int, now: int = 0) -> None:
        """By both receivers of stream a."""
        for name, count in zip(("N/0", "N/1"), counts, strict=True):
            queue = self.machine.outgoing.queues["a"]
            self.hear(name, Ack("a", queue.stamp(count) if count else BEFORE_ALL, count, 1, 99), now)


def sent(effects: list[Any]) -> list[tuple[str, str, list[int], int]]:
    batches = [(e.to, e.message) for e in effects if isinstance(e, Send) and isinstance(e.message, Batch)]
    return [(to, one.stream, [each.stamp.time for each in one.events], one.watermark) for to, one in batches]


def kept(disk: dict[str, bytes]) -> list[str]:
    return sorted(key.removeprefix("source/") for key in disk)


def test_events_are_on_disk_before_they_are_sent_and_until_all_have_them() -> None:
    process = Process()
    process.hear(MEMBERSHIP, RecordIs(topology().founding()))
    process.acked(0, 0)
    effects = process.machine.publish([event(3), event(3, ordinal=1), event(5)], 7)
    assert [type(effect) for effect in effects] == [Persist, Send, Send]
    assert sent(process.take(effects)) == [(name, "a", [3, 3, 5], 5) for name in ("N/0", "N/1")]
    assert process.machine.publish([], 7) == []
    assert kept(process.disk) == [f"a/event/00000000000{number}" for number in range(3)]
    assert (process.machine.next_time("a"), process.machine.next_time("b")) == (6, TIME_MIN + 1)
    with pytest.raises(CallerError, match=r"src/0: .* on stream a is not after its watermark 5"):
        process.machine.publish([event(5, ordinal=1)], 7)
    process.acked(2, 3)
    assert process.machine.outgoing.queues["a"].mark_count == 2
    poll_us = CONFIG.record_poll_us
    process.take(process.machine.timer("tick", 7))
    assert kept(process.disk) == ["a/event/000000000002", "a/state"], "what is pruned goes; where the rest begins stays"
    process.acked(3, 3)
    process.take(process.machine.timer("tick", 7 + poll_us - 1))
    assert len(process.disk) == 2, "not so often"
    process.start()
    queue = process.machine.outgoing.queues["a"]
    assert (queue.mark, queue.mark_count, queue.events(), queue.watermark) == (Stamp(3, 1), 2, [event(5)], 5)
    process.hear(MEMBERSHIP, RecordIs(topology().founding()))
    process.acked(3, 3)
    process.take(process.machine.timer("tick", poll_us))
    assert kept(process.disk) == ["a/state"]
    assert process.take(process.machine.publish([event(6)], 9)) != []
    assert kept(process.disk) == ["a/event/000000000003", "a/state"]
    process.start()
    assert [(e.stamp, n) for n, e in enumerate(process.machine.outgoing.queues["a"].events(), 3)] == [(Stamp(6, 0), 3)]


def test_a_bound_above_every_watermark_is_on_disk_before_it_is_told() -> None:
    process = Process(bound_ahead_us=10)
    process.hear(MEMBERSHIP, RecordIs(topology().founding()))
    process.acked(0, 0)
    effects = process.machine.advance("a", 5, 10**6)
    assert [type(effect) for effect in effects] == [Persist, Send, Send]
    assert sent(process.take(effects)) == [(name, "a", [], 5) for name in ("N/0", "N/1")]
    assert process.machine.advance("a", 5, 2 * 10**6) == [], "nothing new"
    assert [type(e) for e in process.machine.advance("a", 15, 3 * 10**6)] == [Send, Send], "up to the bound"
    assert [type(e) for e in process.take(process.machine.advance("a", 16, 4 * 10**6))] == [Send, Send]
    process.start()
    assert process.machine.next_time("a") == 27, "above what it may have told"
    process.hear(MEMBERSHIP, RecordIs(topology().founding()))
    process.acked(0, 0)
    assert sent(process.take(process.machine.end("a", 5 * 10**6)))[0][3] == TIME_MAX
    process.start()
    assert process.machine.outgoing.queues["a"].watermark == TIME_MAX
    assert process.machine.advance("a", TIME_MAX + 5, 0) == []
    following = Process(follows=True)
    assert following.machine.advance("a", 5, 0) == [], "its producer has it, and says it again"
    assert following.machine.outgoing.queues["a"].watermark == 5
    assert following.disk == {}


def test_a_source_that_follows_needs_again_what_comes_with_its_mark_or_after_it() -> None:
    process = Process(follows=True)
    process.hear(MEMBERSHIP, RecordIs(topology().founding()))
    process.take(process.machine.publish([event(3), event(3, ordinal=1), event(5)], 7))
    assert needs_after(None) == TIME_MIN
    process.hear("N/1", Register(2, 4), 8)
    assert needs_after(process.disk[kept_key("a")]) == TIME_MIN, "nothing is pruned"
    process.hear(MEMBERSHIP, RecordIs(topology().founding()))
    other = Process(follows=True)
    other.hear(MEMBERSHIP, RecordIs(topology().founding()))
    other.take(other.machine.publish([event(3), event(3, ordinal=1), event(5)], 7))
    other.acked(1, 2)
    other.take(other.machine.timer("tick", 10**7))
    assert needs_after(other.disk[kept_key("a")]) == 2
    other.start()
    assert other.machine.next_time("a") == 3


def test_a_producer_waits_while_a_queue_is_full() -> None:
    process = Process(outgoing_events_max=2)
    process.hear(MEMBERSHIP, RecordIs(topology().founding()))
    process.take(process.machine.publish([event(1)], 0))
    assert not process.machine.full
    process.take(process.machine.publish([event(2)], 0))
    assert process.machine.full
    with pytest.raises(CallerError, match="src/0: stream a is full; wait until its receivers have caught up"):
        process.machine.publish([event(3)], 0)
    process.acked(1, 1)
    assert not process.machine.full


def test_what_a_source_does_at_intervals() -> None:
    """It reads the record often until it has one, asks who fills its queue, and repeats a watermark held back."""
    process = Process(outgoing_events_max=2, watermark_pause_us=100)
    machine, retry_us, poll_us = process.machine, CONFIG.join_retry_us, CONFIG.record_poll_us

    def tick(now: int, name: str = "tick") -> list[Any]:
        return process.take(machine.timer(name, now))

    def read(version: int) -> Send:
        return Send(MEMBERSHIP, ReadRecord(version, 1, 0, passed=True))

    def timer(now: int) -> SetTimer:
        return SetTimer("tick", now + CONFIG.tick_us)

    assert machine.start(5) == [timer(5), read(0)]
    assert tick(10) == [timer(10), read(0)]
    assert tick(10 + retry_us - 1) == [timer(10 + retry_us - 1)]
    assert tick(10 + retry_us) == [timer(10 + retry_us), read(0)]
    begun_us = 10 + retry_us
    process.hear(MEMBERSHIP, RecordIs(topology().founding()))
    assert tick(begun_us + poll_us - 1) == [timer(begun_us + poll_us - 1)]
    now = begun_us + poll_us
    assert tick(now) == [timer(now), read(1)]
    process.acked(0, 0, now=now)
    process.take(machine.publish([event(1)], now))
    asked = [Send(name, AskAcks()) for name in ("N/0", "N/1", "app/0")]
    assert tick(now + 1) == [timer(now + 1), *asked], "half full"
    assert tick(now + CONFIG.patience_us) == [timer(now + CONFIG.patience_us)]
    later = now + 1 + CONFIG.patience_us
    process.take(machine.publish([event(2)], later))
    waits = Send(MEMBERSHIP, WaitsFor(("N/0", "N/1")))
    assert tick(later) == [timer(later), *asked, waits]
    process.acked(2, 2, now=later)
    held = machine.advance("a", 3, later)
    assert held[1:] == [SetTimer("flush", later + 100)], "a watermark has just gone out"
    assert machine.advance("a", 4, later + 1) == [], "the timer is set"
    assert [one[2:] for one in sent(tick(later + 100, "flush"))] == [([], 4)] * 2
    assert machine.advance("a", 5, later + 101) == [SetTimer("flush", later + 201)]


def test_whom_a_source_listens_to() -> None:
    process = Process()
    machine, founding = process.machine, topology().founding()
    two = Publish("a", (event(1), event(2)), 5)
    assert process.hear("N/0", two) == []
    assert machine.outgoing.queues["a"].count == 0, "only its own producer publishes"
    process.hear(MEMBERSHIP, RecordIs(founding))
    assert sent(process.hear("N/0", Ack("a", BEFORE_ALL, 0, 1, 99))) == []
    assert sent(process.hear(PRODUCER, two)) == [("N/0", "a", [1, 2], 2)], "and the watermark after a pause"
    assert machine.outgoing.queues["a"].watermark == 5
    assert sent(process.hear(PRODUCER, Connected("N/0", 1), 10**6)) == [("N/0", "a", [1, 2], 5)], "again"
    assert process.hear("N/0", Ping(77)) == [Send("N/0", Pong(77))]
    assert process.hear("N/0", Ack("a", Stamp(1), 1, 99, 9)) == [Send("N/0", NotMember(1))]
    assert process.hear("N/1", AskMore("a", 1, 9, 1)) == [Send("N/1", HasMore("a", 2, 5, leads=True))]
    resume = Resume("a", Stamp(1), 1, 1, 9, 1)
    assert sent(process.hear("N/1", resume, 10**6)) == [("N/1", "a", [2], 5)]
    assert process.hear("N/1", object()) == []
    newer = type(founding)(2, founding.members)
    process.hear(MEMBERSHIP, RecordIs(newer))
    assert machine.outgoing.record is newer
    with pytest.raises(ProtocolError, match="which does not keep the membership record"):
        process.hear("N/1", RecordIs(type(founding)(3, {})))


def test_a_source_tells_the_peers_of_a_receiver_that_it_cannot_reach_once_until_it_is_heard_again() -> None:
    process = Process()
    process.hear(MEMBERSHIP, RecordIs(topology().founding()))
    ended = Disconnected("N/0", "the connection was reset")
    told = [Send("N/1", LeaderDead("N/0"))]
    assert process.hear("N/0", ended, 10) == told
    assert process.hear("N/1", ended, 11) == []
    process.hear("N/0", Ping(12), 12)
    assert process.hear("N/1", ended, 13) == told
    assert process.hear("x", Disconnected("x", "the connection was reset"), 14) == []


def test_what_is_pruned_is_kept_on_disk_no_sooner_than_at_the_next_interval() -> None:
    process, poll_us = Process(), CONFIG.record_poll_us
    process.hear(MEMBERSHIP, RecordIs(topology().founding()))
    process.take(process.machine.publish([event(1), event(2)], 5))
    for count, now, left in ((1, 5, 1), (2, 4 + poll_us, 1), (2, 5 + poll_us, 0)):
        process.acked(count, count, now=now)
        process.take(process.machine.timer("tick", now))
        assert len([key for key in process.disk if "event" in key]) == left


def test_a_source_hears_of_the_next_nodes_from_its_operator_alone_and_passes_their_time_on() -> None:
    process = Process()
    machine, old = process.machine, topology()
    new = topology(NodeSpec("M", Role.CORRELATION, ("a",), (), 0))
    both = side_by_side(old, new, (), 1)
    process.hear(MEMBERSHIP, RecordIs(both.founding()))
    assert process.hear("N/0", Rearrange(both)) == []
    assert machine.topology == old
    assert machine.outgoing.register("M-1/0", Register(2, 2)) is None
    read = Send(MEMBERSHIP, ReadRecord(1, 1, 1, passed=True))
    assert process.hear(OPERATOR, Rearrange(both)) == [read]
    assert process.hear(OPERATOR, Rearrange(both)) == [read], "again, as it may have been lost"
    assert process.hear(OPERATOR, Rearrange(old)) == []
    assert machine.topology is both
    assert machine.outgoing.receivers() == ["N/0", "N/1", "M-1/0"]
    process.hear("M-1/0", Ack("a", BEFORE_ALL, 0, 1, 99))
    switch = Switch(1, 40)
    effects = process.hear(PRODUCER, Publish("a", (event(1),), 1, switch))
    assert [e.message.switch for e in effects if isinstance(e, Send)] == [switch]


def test_a_source_keeps_on_disk_what_it_has_told_a_joiner() -> None:
    """Where its streams begin, and before which record nothing of them is pruned, of those streams that changed."""
    process = Process()
    process.hear(MEMBERSHIP, RecordIs(topology().founding()))
    process.take(process.machine.publish([event(1), event(2)], 0))
    assert isinstance(process.hear("N/1", Register(1, 1))[0].message, Registered)
    assert len(process.disk) == 4, "at the first record, of each stream"
    process.acked(1, 1)
    effects = process.machine.handle("N/1", Register(1, 1), 0)
    assert [type(effect) for effect in effects] == [Persist, Send], "of the one that was pruned meanwhile"
    assert effects[1].message.counts == (1,)
    assert process.take(effects)
    assert kept(process.disk) == ["a/event/000000000001", "a/state", "b/state"]
    assert [type(effect) for effect in process.machine.handle("N/1", Register(1, 1), 0)] == [Send]
    assert [type(effect) for effect in process.machine.handle("x/1", Register(1, 9), 0)] == [], "it takes nothing here"
    process.hear("N/1", Register(2, 5))
    process.start()
    assert process.machine.outgoing.version_min == 5


def test_parts_begin_where_all_their_shards_are_after_a_restart() -> None:
    process = Process(layout=divided(low=2))
    keyed = [Event("a", Stamp(1, n), (n,), {"k": n, "v": n}) for n in range(6)]
    process.take(process.machine.publish(keyed, 0))
    parts = dict(process.machine.outgoing.cuts["a"].cut(keyed))
    process.hear(MEMBERSHIP, RecordIs(divided(low=2).founding()))
    name, part = next((name, part) for name, part in parts.items() if len(part) > 1)
    for number in (0, 1):
        shard = f"low-s{name[-4]}/{number}"
        process.hear(shard, Ack(name, part[-1].stamp, len(part), 1, 99))
    process.hear("low-s0/0", Register(1, 1))
    process.start()
    queues = process.machine.outgoing.queues
    assert (queues[name].events(), queues[name].count, queues[name].last) == ([], len(part), part[-1].stamp)
    assert {queue.watermark for queue in queues.values()} == {1}
    assert all(queues[other].events() == list(rest) for other, rest in parts.items() if other != name)
    assert [e for e in process.machine.start(0) if isinstance(e, Deliver)] == [], "it does not follow"
