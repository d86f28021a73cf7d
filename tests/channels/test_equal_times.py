"""Equal times are normal: they are numbered in their order, and a time is over as soon as no more of it can come."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

import unerring
from tests.channels.pair import Pair
from unerring.channels import Ack, ChannelCodec, ChannelConfig, ConsumerConfig, Frames, Heartbeat, ProducerConfig, Start
from unerring.channels.messages import joined
from unerring.model import SECOND_US, Effects, SchemaError

EARLIEST = ConsumerConfig(start=Start.EARLIEST)
T = 1_700_000_000_123_456


def publish(pair: Pair, times: list[int], *, more: bool = True, holds: bool = False) -> None:
    first = pair.producer.last + 1
    payloads = [b"%d" % (first + at) for at in range(len(times))]
    pair.published.setdefault((pair.producer.id, pair.producer.epoch), []).extend(payloads)
    effects: Effects | None = pair.producer.publish(payloads, times, None, pair.now, more=more, holds=holds)
    assert effects is not None
    pair._run(effects, at_producer=True)


def stamps(pair: Pair) -> list[tuple[int, int]]:
    return [
        (time, frames.ordinals[at] if frames.ordinals else 0)
        for frames in pair.told
        if isinstance(frames, Frames)
        for at, time in enumerate(frames.times)
    ]


def watermarks(pair: Pair) -> Iterator[tuple[int, int]]:
    """What the consumer's application knows: so many events came, and nothing at or before this time is to follow."""
    events = 0
    for item in pair.told:
        if isinstance(item, Frames):
            events += len(item.payloads)
            yield events, item.times[-1] - 1 if item.more else item.times[-1]
        else:
            yield events, item.watermark_us  # type: ignore[attr-defined]


def test_events_of_one_time_are_numbered_within_a_batch_and_over_batches() -> None:
    pair = Pair(ProducerConfig())
    publish(pair, [T, T, T + 5])
    publish(pair, [T + 5])
    publish(pair, [T + 5, T + 6])
    publish(pair, [T + 7])
    pair.receive_all()
    assert stamps(pair) == [(T, 0), (T, 1), (T + 5, 0), (T + 5, 1), (T + 5, 2), (T + 6, 0), (T + 7, 0)]


def test_a_time_is_over_with_the_heartbeat_that_follows_a_burst_and_not_before() -> None:
    pair = Pair(ProducerConfig(), accepting=False)
    pair.receive_all()
    publish(pair, [T, T])
    pair.receive_all()
    assert list(watermarks(pair)) == [(2, T - 1)]
    publish(pair, [T])
    beat = pair.beat()
    assert isinstance(beat, Heartbeat)
    assert beat.watermark_us == T
    with pytest.raises(SchemaError, match=f"time {T} is over"):
        publish(pair, [T])
    publish(pair, [T + 1])


def test_a_time_is_not_over_while_the_rest_of_it_waits_for_room() -> None:
    pair = Pair(ProducerConfig(), accepting=False)
    publish(pair, [T, T], holds=True)
    for _ in range(3):
        beat = pair.beat()
        assert isinstance(beat, Heartbeat)
        assert beat.watermark_us is None
    publish(pair, [T])
    beat = pair.beat()
    assert isinstance(beat, Heartbeat)
    assert beat.watermark_us == T


def test_a_clock_that_counts_seconds_has_a_second_for_each() -> None:
    whole = T // SECOND_US * SECOND_US
    pair = Pair(ProducerConfig(), accepting=False)
    publish(pair, [whole])
    published = pair.now
    while (beat := pair.beat()).watermark_us is None:  # type: ignore[attr-defined]
        publish(pair, [whole])
        published = pair.now
        pair.pushed.clear()
        if pair.producer.last == 3:
            break
    assert pair.producer.last == 3, "ties keep coming for as long as they come within a second of each other"
    while (beat := pair.beat()).watermark_us is None:  # type: ignore[attr-defined]
        assert pair.now - published < SECOND_US
    assert beat.watermark_us == whole  # type: ignore[attr-defined]
    assert pair.now - published >= SECOND_US


def test_what_declares_its_time_at_once_does_not_wait() -> None:
    pair = Pair(ProducerConfig(), accepting=False)
    pair.receive_all()
    publish(pair, [T, T], more=False)
    pair.receive_all()
    assert list(watermarks(pair)) == [(2, T)]
    beat = pair.beat()
    assert isinstance(beat, Heartbeat)
    assert beat.watermark_us is None, "nothing is added where nothing is missing"


def test_closing_ends_the_last_time() -> None:
    pair = Pair(ProducerConfig(durable=True), accepting=False)
    publish(pair, [T])
    pair._run(pair.producer.close(pair.now), at_producer=True)
    beat = pair.pushed[-1]
    assert isinstance(beat, Heartbeat)
    assert beat.watermark_us == T
    pair.boot()
    with pytest.raises(SchemaError, match="is over"):
        publish(pair, [T])


@given(st.integers(0, 2**32))
def test_no_watermark_is_ever_wrong_whatever_is_lost_cut_and_sent_again(seed: int) -> None:
    rng = random.Random(seed)
    pair = Pair(ProducerConfig(replay_bytes_max=1024), accepting=False)
    time = T
    for _ in range(rng.randrange(1, 12)):
        times = []
        for _ in range(rng.randrange(1, 6)):
            times.append(time)
            time += rng.choice([0, 0, 1, 7])
        more = rng.random() < 0.7
        publish(pair, times, more=more)
        if not more:
            time = max(time, times[-1] + 1)
    sent, pair.pushed = pair.pushed, []
    for message in [*(m for m in sent if rng.random() < 0.5), pair.producer._heartbeat()]:
        pair.receive(message)
    pair.repair()
    found = stamps(pair)
    assert len(found) == pair.producer.last
    assert all(one < next_one for one, next_one in pairwise(found))
    for events, through_us in watermarks(pair):
        assert all(stamp[0] > through_us for stamp in found[events:])
    pair.receive(pair.beat())
    assert max(through_us for _, through_us in watermarks(pair)) == found[-1][0], "and the last time ends"


@given(st.lists(st.booleans(), min_size=2, max_size=4), st.booleans())
def test_more_may_follow_survives_the_wire_cutting_and_joining(batches: list[bool], with_ordinals: bool) -> None:
    codec = ChannelCodec(ChannelConfig())
    parts = []
    for number, more in enumerate(batches):
        ordinals = (3, 4) if with_ordinals else None
        frames = Frames(7, 1, 1 + 2 * number, (T + number, T + number + 1), (b"a", b"b"), ordinals, 2, more=more)
        back = codec.decode(codec.encode(frames))
        assert back.more is more
        assert codec.decode(codec.encode(frames.cut(frames.last, frames.last))).more is more
        assert codec.decode(codec.encode(frames.cut(frames.first, frames.first))).more, "what was cut off may follow"
        parts.append(back)
    [whole] = joined(parts)
    assert whole.more is batches[-1]


def test_no_bound_ends_inside_a_time_since_nobody_can_accept_a_part_of_one() -> None:
    config = ConsumerConfig(start=Start.EARLIEST, in_hand_max=5, registered="log")
    pair = Pair(ProducerConfig(buffer_count_max=5), config, accepting=False)
    pair.producer.handle("there", Ack(pair.producer.id, pair.producer.epoch, "log", 0), pair.now)
    assert pair.producer.registered == {"log": 0}
    pair.receive_all()
    publish(pair, [T - 1, T, T])
    for _ in range(10):
        publish(pair, [T, T])
    pair.receive_all()
    assert len(pair.payloads) == 5, "what is before it can be accepted, so the bound holds"
    pair._run(pair.consumer.accepted(pair.producer.id, pair.producer.epoch, 1, pair.now), at_producer=False)
    publish(pair, [T + 1])
    pair.receive_all()
    assert len(pair.payloads) == 24, "all of that time, and the event that ends it"
    assert pair.producer.publish([b"no"], [T + 2], None, pair.now) is None, "from here on the bound holds again"


# --- as a user does it


@unerring.stream(key="card")
class Payment:
    card: int
    amount: float


@unerring.stream(key="card", strict=True)
class Tick:
    card: int


def test_publish_and_publish_many_number_events_of_one_time() -> None:
    with unerring.Publisher("tcp://127.0.0.1:0", Payment) as out:
        with unerring.Subscriber(out.address, Payment, config=EARLIEST) as events:
            out.publish(Payment(1, 1.0), at=T)
            out.publish(Payment(2, 1.0), at=T)
            out.publish_many([Payment(3, 1.0), Payment(4, 1.0), Payment(5, 1.0)], at=[T, T, T + 1])
            out.publish(Payment(6, 1.0), at=T + 1, ordinal=7)
            assert out.try_publish(Payment(7, 1.0), at=T + 1)
            found = [next(events) for _ in range(7)]
    expected = [(T, 0), (T, 1), (T, 2), (T, 3), (T + 1, 0), (T + 1, 7), (T + 1, 8)]
    assert [(event.time, event.ordinal) for event in found] == expected
    assert [event.value.card for event in found] == [1, 2, 3, 4, 5, 6, 7]


def test_a_strict_stream_refuses_equal_times_and_ordinals_at_the_source() -> None:
    with unerring.Publisher("tcp://127.0.0.1:0", Tick) as out:
        with pytest.raises(SchemaError, match="is strict: no two of its events have one time"):
            out.publish(Tick(1), at=T, ordinal=1)
        with pytest.raises(SchemaError, match="strict, and two of these events have one time"):
            out.publish_many([Tick(1), Tick(2)], at=[T, T])
        out.publish(Tick(1), at=T)
        with pytest.raises(SchemaError, match="is over"):
            out.publish(Tick(2), at=T)
        out.publish(Tick(2), at=T + 1)


def test_an_ordinal_without_its_time_or_below_one_before_it_is_refused() -> None:
    with unerring.Publisher("tcp://127.0.0.1:0", Payment) as out:
        with pytest.raises(SchemaError, match="give that time with at="):
            out.publish(Payment(1, 1.0), ordinal=1)
        out.publish(Payment(1, 1.0), at=T, ordinal=5)
        with pytest.raises(SchemaError, match="leave the ordinal out"):
            out.publish(Payment(1, 1.0), at=T, ordinal=5)
