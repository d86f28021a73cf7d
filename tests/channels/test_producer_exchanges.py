"""Whole exchanges of a producer, effect for effect: what it keeps, sends and refuses, and where its bounds lie."""

from __future__ import annotations

from typing import Any

import pytest

from unerring.channels import (
    Ack,
    ChannelCodec,
    ChannelConfig,
    Evicted,
    Frames,
    Heartbeat,
    Nack,
    Producer,
    ProducerConfig,
    Signer,
    Stale,
)
from unerring.channels.messages import ORDINAL_MAX, Initial, Newcomer, Peer, producer_id
from unerring.model import (
    SECOND_US,
    Broadcast,
    CallerError,
    ConfigError,
    Effects,
    HandshakeError,
    Persist,
    Report,
    SchemaError,
    Send,
    SetTimer,
    Stop,
)

PRESS = producer_id("press")
IDLE = ProducerConfig().heartbeat_idle_us
BEGUN = ("channel/closed_at", "channel/succeeded")
"""The marks that a new incarnation takes away."""


def producer_of(records: dict[str, bytes] | None = None, seed: bytes = b"", **config: Any) -> Producer:
    return Producer("press", "here", records or {}, 1, ProducerConfig(**config), signing_seed=seed)


def events(first: int, last: int, size: int = 1, epoch: int = 1, more: bool = False) -> Frames:
    """An event is stamped by its sequence."""
    times, payloads = list(range(first, last + 1)), [b"x" * size] * (last - first + 1)
    return Frames(PRESS, epoch, first, times, payloads, None, size * len(payloads), more=more)


def publish(producer: Producer, count: int = 1, size: int = 1, now: int = 0, **more: Any) -> Effects | None:
    first = producer.last + 1
    return producer.publish([b"x" * size] * count, list(range(first, first + count)), None, now, **more)


def beat(last: int, epoch: int = 1, **more: Any) -> Heartbeat:
    return Heartbeat(PRESS, epoch, last, "press", "here", **more)


def answers(producer: Producer, *ranges: tuple[int, int], by: str = "till", now: int = 0, **more: Any) -> list[Any]:
    effects = producer.handle(by, Nack(PRESS, producer.epoch, ranges, **more), now)
    return [effect.message for effect in effects if isinstance(effect, Send)]


def spans(producer: Producer, *ranges: tuple[int, int], **more: Any) -> list[tuple[int, int]]:
    return [(frames.first, frames.last) for frames in answers(producer, *ranges, **more)]


def acknowledge(producer: Producer, consumer: str, accepted: int, now: int = 0) -> Effects:
    return producer.handle("there", Ack(PRESS, producer.epoch, consumer, accepted), now)


# --- incarnations


def test_a_producer_keeps_its_epoch_before_it_says_it() -> None:
    assert producer_of().start(100) == [
        Persist((("channel/epoch", b"1"),), BEGUN),
        Broadcast(beat(0)),
        SetTimer("heartbeat", 100 + IDLE),
    ]
    quiet = producer_of(strict_zero_overhead=True)
    assert quiet.start(100) == [Persist((("channel/epoch", b"1"),), BEGUN)]
    assert publish(quiet) == [Broadcast(events(1, 1))]
    assert quiet.close(0) == [Persist((("channel/closed_at", b"1"),))]
    seed = b"s" * 32
    assert producer_of(seed=seed).start(0)[0] == Persist((("channel/epoch", b"1"), ("channel/signing", seed)), BEGUN)


@pytest.mark.parametrize(
    ("records", "fresh", "begins"),
    [
        ({"channel/epoch": b"7"}, 8, beat(0, 8, previous_epoch=7)),
        ({"channel/epoch": b"7", "channel/closed_at": b"4"}, 5, beat(0, 8, previous_epoch=7, previous_last=4)),
        ({"channel/epoch": b"7", "channel/succeeded": b"9"}, 9, beat(0, 10, previous_epoch=7)),
        ({"channel/epoch": b"7"}, 20, beat(0, 20, previous_epoch=7)),
        ({}, 20, beat(0, 20)),
    ],
)
def test_its_epoch_is_above_all_that_were_before(records: dict[str, bytes], fresh: int, begins: Heartbeat) -> None:
    producer = Producer("press", "here", records, fresh)
    assert producer.start(0)[1] == Broadcast(begins)


def test_a_name_may_be_as_long_as_the_wire_takes_it() -> None:
    assert Producer("n" * 1024, "here", {}, 1).name == "n" * 1024
    with pytest.raises(ConfigError, match="exceeds the limit of 1024 characters"):
        Producer("n" * 1025, "here", {}, 1)


class Disk:
    """Carries out what a producer wants kept."""

    def __init__(self) -> None:
        self.records: dict[str, bytes] = {}

    def keep(self, effects: Effects | None) -> None:
        for effect in effects or []:
            if isinstance(effect, Persist):
                self.records.update(effect.puts)
                for key in effect.deletes:
                    self.records.pop(key, None)


def frame(frames: Frames) -> tuple[str, bytes]:
    return f"channel/frame/{frames.first:015d}", ChannelCodec(ChannelConfig()).encode(frames)


def last(sequence: int, time: int, ordinal: int = ORDINAL_MAX) -> tuple[str, bytes]:
    return "channel/last", f"{sequence} {time} {ordinal}".encode()


def test_a_durable_producer_has_on_disk_what_it_could_be_asked_for_and_no_more() -> None:
    disk, producer = Disk(), producer_of(durable=True, buffer_count_max=3)
    begun = producer.start(0)
    assert begun[0] == Persist((("channel/epoch", b"1"), last(0, 0, 0)), BEGUN)
    disk.keep(begun)
    for effects, frames, deletes in (
        (publish(producer, 2), events(1, 2), ()),
        (publish(producer, more=True), events(3, 3, more=True), ()),
        (publish(producer), events(4, 4), ("channel/frame/000000000000001",)),
    ):
        stamp = last(frames.last, frames.last, 0 if frames.more else ORDINAL_MAX)
        assert effects == [Persist((frame(frames), stamp), deletes), Broadcast(frames)]
        disk.keep(effects)
    assert producer.advance(9, 0) == [Persist((last(4, 9),)), Broadcast(beat(4, watermark_us=9))]
    disk.keep(producer.advance(10, 0))
    for who in ("log", "ghost", "log"):
        disk.keep(acknowledge(producer, who, 2))
    again = producer_of(disk.records, durable=True, buffer_count_max=3)
    assert (again.epoch, again.last, again.last_time, again.goes_on) == (1, 4, 10, False)
    assert again.registered == {"ghost": 0, "log": 0}
    assert again.start(0)[1] == Broadcast(beat(4, watermark_us=10))
    assert spans(again, (3, 4)) == [(3, 4)]
    assert again.close(0) == [Persist((("channel/closed_at", b"4"),)), Broadcast(beat(4, watermark_us=10))]


def test_a_buffer_that_is_of_no_more_use_is_cleared_away_with_the_next_write() -> None:
    disk, producer = Disk(), producer_of(durable=True)
    disk.keep(producer.start(0))
    disk.keep(publish(producer, 2))
    disk.keep(publish(producer))
    disk.keep(acknowledge(producer, "log", 0))
    gone = ("channel/frame/000000000000001", "channel/frame/000000000000003", "channel/registered/log")
    plain = producer_of(disk.records).start(0)
    assert plain[:2] == [
        Persist((("channel/epoch", b"2"),), (*BEGUN, *gone, "channel/last")),
        Broadcast(beat(0, 2, previous_epoch=1, previous_last=3)),
    ]
    disk.keep(producer.handle("there", Stale(PRESS, 1, 4), 0)[:1])
    above = producer_of(disk.records, durable=True)
    assert above.start(0)[:2] == [
        Persist((("channel/epoch", b"5"), last(0, 3)), (*BEGUN, *gone)),
        Broadcast(beat(0, 5, previous_epoch=1, previous_last=3, watermark_us=3)),
    ]
    assert above.registered == {}
    with pytest.raises(SchemaError, match="time 3 is over"):
        above.publish([b"x"], [3], None, 0)


def test_a_producer_that_was_succeeded_keeps_that_and_stops() -> None:
    kept, stop = producer_of().handle("there", Nack(PRESS, 2, ()), 0)
    assert kept == Persist((("channel/succeeded", b"2"),))
    assert isinstance(stop, Stop)
    assert producer_of().handle("there", Stale(PRESS, 1, 1), 0) == [], "its own epoch is no successor"
    assert producer_of().handle("there", Peer(PRESS, 9, "there"), 0) == []


# --- heartbeats


def test_the_heartbeat_behind_a_burst_ends_its_time_and_later_ones_only_repeat_it() -> None:
    producer = producer_of()
    producer.start(0)
    assert publish(producer, 2, more=True, now=10) == [Broadcast(events(1, 2, more=True))]
    assert producer.timer("heartbeat", IDLE) == [SetTimer("heartbeat", IDLE + 10)]
    over = Broadcast(beat(2, watermark_us=2))
    assert producer.timer("heartbeat", IDLE + 10) == [over, SetTimer("heartbeat", 3 * IDLE + 10)]
    assert producer.timer("heartbeat", 3 * IDLE + 10) == [over, SetTimer("heartbeat", 7 * IDLE + 10)]
    now = 3 * IDLE + 20
    assert publish(producer, now=now) == [Broadcast(events(3, 3)), SetTimer("heartbeat", now + IDLE)]
    assert producer.timer("heartbeat", now + IDLE)[0] == Broadcast(beat(3, watermark_us=2)), "3 was over at once"


def test_a_time_in_whole_seconds_is_over_after_a_second() -> None:
    producer = producer_of()
    producer.publish([b"x"], [5 * SECOND_US], None, 100, more=True)
    assert producer.timer("heartbeat", 100 + SECOND_US - 1)[0] == Broadcast(beat(1))
    assert producer.goes_on
    assert producer.timer("heartbeat", 100 + SECOND_US)[0] == Broadcast(beat(1, watermark_us=5 * SECOND_US))
    assert not producer.goes_on


def test_a_watermark_is_said_once_and_never_after_the_end() -> None:
    producer = producer_of()
    publish(producer, 5, more=True)
    assert producer.advance(4, 0) == []
    assert producer.advance(5, 0) == [Broadcast(beat(5, watermark_us=5))], "the last time is over"
    assert producer.advance(5, 0) == []
    assert producer.advance(6, 0) == [Broadcast(beat(5, watermark_us=6))]
    assert producer.close(0) == [Persist((("channel/closed_at", b"5"),)), Broadcast(beat(5, watermark_us=6))]
    for late in (lambda: producer.advance(9, 0), lambda: producer.publish([b"x"], [9], None, 0)):
        with pytest.raises(CallerError, match="is closed"):
            late()


def test_the_newest_peers_are_told_to_the_others_each_once() -> None:
    seed = b"s" * 32
    producer = producer_of(seed=seed, peers_max=2)
    for address in ("a", "b", "a", "c", "c"):
        assert producer.handle(address, Peer(PRESS, 1, address), 0) == []
    (told,) = answers(producer)
    assert (told.peers, told.key) == (("a", "c"), Signer(seed).key)
    for nobody in (producer_of(), producer_of(seed=seed, peers_max=0)):
        nobody.handle("a", Peer(PRESS, 1, "a"), 0)
        assert answers(nobody)[0].peers == ()


# --- repairs


def test_a_request_is_answered_in_frames_within_its_bounds() -> None:
    def producer() -> Producer:
        made = producer_of(replay_bytes_max=1024)
        publish(made, 2, 400)  # 420 bytes each with what an event takes besides
        for _ in range(4):
            publish(made, 1, 400)
        return made

    first = producer().handle("till", Nack(PRESS, 1, ((1, 6),)), 0)
    assert first == [Send("till", events(1, 2, 400, more=True)), Report("channel.replayed", count=2)]
    assert spans(producer(), (2, 2), (4, 6)) == [(2, 2), (4, 4)], "what is left is less than two"
    assert spans(producer(), (1, 6), bytes_max=420) == [(1, 1), (2, 2), (3, 3)]
    assert spans(producer(), (1, 6), bytes_max=840) == [(1, 2), (3, 3)]
    assert spans(producer(), (1, 6), bytes_max=839) == [(1, 1), (2, 2)]
    assert spans(producer(), (1, 6), bytes_max=10) == [(1, 1), (2, 2), (3, 3)], "an event is sent whatever it weighs"
    assert spans(producer(), (1, 6), bytes_max=9_999) == [(1, 2)]
    large = producer_of(replay_bytes_max=1024)
    publish(large, 2, 502)
    assert spans(large, (1, 2)) == [(1, 1)]
    fits = producer_of(replay_bytes_max=1024)
    publish(fits, 3, 492)
    assert spans(fits, (1, 3)) == [(1, 2)], "1 024 bytes are within the bound"


def test_repairs_take_from_what_a_second_allows() -> None:
    producer = producer_of(repair_bytes_per_s=1050)
    publish(producer, 6, 400)
    assert [spans(producer, (1, 6), by=by) for by in "ab"] == [[(1, 2)], [(1, 1)]]
    assert spans(producer, (2, 3), by="e", now=SECOND_US) == [(2, 3)]


def test_what_cannot_be_answered_gets_the_heartbeat() -> None:
    producer = producer_of({"channel/epoch": b"3", "channel/closed_at": b"8"})
    publish(producer, 3)
    present = Send("till", beat(3, 4, previous_epoch=3, previous_last=8))
    for nack in (Nack(PRESS, 3, ((1, 1),)), Nack(PRESS, 4, ()), Nack(PRESS, 4, ((1, 4),))):
        assert producer.handle("till", nack, 0) == [present]
    assert spans(producer, (1, 3)) == [(1, 3)]


def test_what_is_evicted_is_told_before_the_rest_is_sent() -> None:
    producer = producer_of(buffer_count_max=3)
    for _ in range(5):
        publish(producer)
    assert answers(producer, (1, 1), (2, 4)) == [Evicted(PRESS, 1, 3), events(3, 4)]
    assert answers(producer, (3, 5)) == [events(3, 5)]
    assert answers(producer, (1, 2)) == [Evicted(PRESS, 1, 3)]
    old = producer_of(buffer_age_us_max=1_000)
    publish(old, now=0)
    publish(old, now=500)
    assert answers(old, (1, 2), now=1_000) == [events(1, 2)]
    assert answers(old, (1, 2), now=1_001) == [Evicted(PRESS, 1, 2), events(2, 2)]
    assert answers(old, (1, 2), now=9_999) == [Evicted(PRESS, 1, 3)]


def test_an_answer_keeps_stamps_and_whether_more_of_its_time_may_follow() -> None:
    producer = producer_of()
    producer.publish([b"a", b"b"], [5, 5], None, 0, more=True)
    producer.publish([b"c", b"d"], [5, 6], None, 0)
    whole = Frames(PRESS, 1, 1, [5, 5, 5, 6], [b"a", b"b", b"c", b"d"], [0, 1, 2, 0], 4)
    assert answers(producer, (1, 4)) == [whole]
    for low, high, more in ((1, 2, True), (1, 3, True), (2, 4, False), (4, 4, False)):
        (answer,) = answers(producer, (low, high))
        assert (answer.first, answer.last, answer.more) == (low, high, more)
        assert answer.ordinals == (whole.ordinals[low - 1 : high] if low < 4 else None)  # type: ignore[index]
    (short,) = answers(producer, (3, 4), bytes_max=1)[:1]
    assert (short.first, short.last, short.more) == (3, 3, True), "cut short where a batch goes on"


# --- registered consumers


def test_a_consumer_registers_with_its_first_word_and_confirms_it_with_the_second() -> None:
    durable = producer_of(durable=True, registered_max=2)
    publish(durable, 3)
    assert acknowledge(durable, "log", 9) == [
        Persist((("channel/registered/log", b"once"),)),
        Send("there", beat(3)),
    ]
    assert durable.registered == {"log": 3}, "nobody has what was not published"
    assert acknowledge(durable, "log", 1) == [Persist((("channel/registered/log", b""),))]
    assert acknowledge(durable, "log", 1) == []
    assert durable.handle("there", Ack(PRESS, 0, "old", 2), 0)[1:] == [Send("there", beat(3))]
    assert durable.registered == {"log": 3, "old": 0}, "a word of another epoch says nothing of this one"
    (full,) = acknowledge(durable, "third", 1)
    assert isinstance(full, Report)
    assert full.what == "channel.register_refused"
    assert acknowledge(producer_of(), "log", 0) == [Send("there", beat(0))]


def test_an_operator_can_end_what_is_kept_for_a_consumer() -> None:
    producer = producer_of(durable=True, buffer_count_max=1)
    with pytest.raises(HandshakeError, match="registered are: none"):
        producer.deregister("log")
    publish(producer)
    acknowledge(producer, "log", 0)
    acknowledge(producer, "till", 1)
    assert publish(producer) is None
    with pytest.raises(HandshakeError, match="registered are: log, till"):
        producer.deregister("nobody")
    producer.deregister("log")
    effects = publish(producer)
    assert effects is not None
    assert isinstance(effects[0], Persist)
    assert effects[0].deletes == ("channel/registered/log", "channel/frame/000000000000001")
    assert producer.registered == {"till": 1}


def test_room_is_made_of_what_all_registered_consumers_have() -> None:
    producer = producer_of(buffer_count_max=4)
    publish(producer, 2)
    publish(producer, 2)
    acknowledge(producer, "log", 1)
    acknowledge(producer, "till", 9)
    assert publish(producer) is None
    assert producer.buffered == (4, 4)
    acknowledge(producer, "log", 2)
    assert publish(producer) is not None
    assert producer.buffered == (3, 3)
    bytes_only = producer_of(buffer_bytes_max=1024)
    for size, buffered in ((512, (1, 512)), (512, (2, 1024)), (1, (2, 513)), (5_000, (1, 5_000)), (1, (1, 1))):
        assert publish(bytes_only, 1, size) is not None
        assert bytes_only.buffered == buffered
    aged = producer_of(buffer_age_us_max=1_000)
    publish(aged)
    acknowledge(aged, "log", 0)
    assert answers(aged, (1, 1), now=9_000) == [events(1, 1)], "however old it is"


def test_a_time_that_goes_on_is_not_shut_out_by_its_own_beginning() -> None:
    def full(**more: Any) -> Producer:
        made = producer_of(buffer_count_max=2)
        acknowledge(made, "log", 0)
        assert made.publish([b"x", b"x"], [7, 7], None, 0, **more) is not None
        return made

    assert full(more=True).publish([b"x"], [7], None, 0) is not None, "nobody can acknowledge a part of a time"
    assert full().publish([b"x"], [8], None, 0) is None
    passed = full(more=True)
    assert passed.publish([b"x"], [8], None, 0, more=True) is not None
    assert passed.publish([b"x"], [8], None, 0, more=True) is None, "7 can be acknowledged by now"


# --- what is refused


def test_payloads_and_batches_are_refused_beyond_what_a_frame_takes() -> None:
    def takes(*sizes: int) -> bool:
        config = ChannelConfig(frame_bytes_max=4096, payload_bytes_max=2_000)
        producer = Producer("press", "here", {}, 1, channel=config)
        payloads = [b"x" * size for size in sizes]
        try:
            return producer.publish(payloads, range(1, len(sizes) + 1), None, 0) is not None
        except SchemaError:
            assert producer.last == 0
            return False

    assert (takes(2_000), takes(2_001), takes(1_999, 1_999)) == (True, False, False)
    assert (takes(1_964, 1_964), takes(1_964, 1_965)) == (True, False), "4 096 bytes with the stamps and a header"


@pytest.mark.parametrize(
    ("times", "ordinals", "taken"),
    [
        ([11], None, True),
        (range(11, 13), None, True),
        (range(12, 10, -1), None, False),
        ([11, 11], None, True),
        ([12, 11], None, False),
        ([9], None, False),
        ([10], None, True),
        ([10], [3], False),
        ([10], [4], True),
        ([9], [9], False),
        ([11, 11], [0, 1], True),
        ([11, 11], [1, 1], False),
        ([11, 12], [1, 0], True),
        ([11], [0, 1], False),
        ([11, 12], None, True),
        ([11, 12, 13], None, False),
    ],
)
def test_stamps_increase(times: Any, ordinals: list[int] | None, taken: bool) -> None:
    producer = producer_of()
    assert producer.publish([b"x"], [10], [3], 0, more=True) is not None
    payloads = [b"x"] * min(len(times), 2)
    if taken:
        assert producer.publish(payloads, times, ordinals, 0) is not None
    else:
        with pytest.raises(SchemaError):
            producer.publish(payloads, times, ordinals, 0)
    assert producer.last == 1 + taken * len(payloads)


@pytest.mark.parametrize(
    ("times", "numbered"),
    [([10], (4,)), ([10, 10, 11], (4, 5, 0)), ([11, 11], (0, 1)), ([11, 12], None), ([10, 11], (4, 0))],
)
def test_events_of_one_time_go_on_with_its_numbers(times: list[int], numbered: tuple[int, ...] | None) -> None:
    producer = producer_of()
    producer.publish([b"x"], [10], [3], 0, more=True)
    (pushed,) = producer.publish([b"x"] * len(times), times, None, 0) or []
    assert isinstance(pushed, Broadcast)
    assert pushed.message.ordinals == (None if numbered is None else list(numbered))


def test_late_events_are_taken_as_long_as_their_time_is_not_over() -> None:
    def late(*times: int) -> Effects | None:
        return producer.publish([b"x"] * len(times), list(times), None, 0)

    producer = producer_of(lateness_us=100)
    assert late(1_000, 900) == [
        Broadcast(Frames(PRESS, 1, 1, [1_000, 900], [b"x", b"x"], None, 2, more=True)),
    ]
    assert (producer.last_time, producer.goes_on) == (899, False)
    for times in ((899,), (1_101, 1_000), (950, 899)):
        with pytest.raises(SchemaError, match="is over"):
            late(*times)
    assert late(900) is not None
    assert late(1_050, 950) is not None
    assert late(1_000, 1_050) is not None
    assert producer.last_time == 949
    assert producer.timer("heartbeat", IDLE)[0] == Broadcast(beat(7)), "nothing is promised by silence"
    assert producer.advance(960, 0) == [Broadcast(beat(7, watermark_us=960))]
    with pytest.raises(SchemaError, match="is over"):
        late(960)
    assert late(961) is not None
    with pytest.raises(SchemaError, match="leave ordinals out"):
        producer.publish([b"x"], [1_000], [0], 0)
    assert producer.last_time == 960
    assert producer.close(0)[1:] == [Broadcast(beat(8, watermark_us=1_050))]


# --- what else it hears


def test_a_newcomer_is_welcomed_at_the_cut_between_two_publishes() -> None:
    producer = producer_of()
    publish(producer, 2)
    assert producer.handle("till", Newcomer(PRESS, 1), 0) != []
    assert producer.welcome("till", b"state", 0) == [Send("till", Initial(PRESS, 1, 2, b"state", "press", "here"))]
    for message, what in ((beat(3), "channel.unexpected"), (Ack(PRESS + 1, 1, "log", 0), "channel.not_mine")):
        (report,) = producer.handle("till", message, 0)
        assert isinstance(report, Report)
        assert report.what == what
