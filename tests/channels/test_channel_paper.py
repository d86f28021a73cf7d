"""The channel paper, section by section."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings, strategies as st

from tests.channels.pair import Pair
from unerring.channels import Consumer, ConsumerConfig, Evicted, Frames, Heartbeat, Nack, ProducerConfig, Stale, Start
from unerring.model import SchemaError, StaleEpoch, Stop


def frames_only(pair: Pair) -> list[Frames]:
    taken = [message for message in pair.pushed if isinstance(message, Frames)]
    pair.pushed.clear()
    return taken


# --- 3.1 Notification of message loss


def test_3_1_sequence_numbers_show_a_lost_message() -> None:
    pair = Pair()
    for payload in (b"1", b"2", b"3"):
        pair.publish(payload)
    one, _two, three = frames_only(pair)
    pair.receive(one)
    assert not pair.timers.keys() - {"producer/heartbeat"}, "no gap, nothing to ask for"
    pair.receive(three)
    (answer,) = pair.ask()
    assert isinstance(answer, Frames)
    assert list(answer.payloads) == [b"2"]


def test_3_1_a_late_message_after_its_replay_is_a_duplicate() -> None:
    pair = Pair()
    pair.publish(b"1")
    pair.publish(b"2")
    one, two = frames_only(pair)
    pair.receive(two)
    pair.repair()
    pair.receive(one)
    assert pair.payloads == [b"1", b"2"]
    assert pair.consumer.ledger().duplicates == 1


def test_3_1_a_loss_at_the_end_of_a_burst_is_shown_by_the_heartbeat() -> None:
    pair = Pair()
    pair.publish(b"1")
    pair.receive_all()
    pair.publish(b"2")
    pair.pushed.clear()
    pair.receive(pair.beat())
    pair.repair()
    assert pair.payloads == [b"1", b"2"]


def test_3_1_heartbeats_pause_longer_and_longer_but_never_stop() -> None:
    pair = Pair()
    pair.publish(b"1")
    moments = []
    for _ in range(30):
        pair.beat()
        moments.append(pair.now)
    pauses = [later - earlier for earlier, later in itertools.pairwise(moments)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == ProducerConfig().heartbeat_pause_us_max
    pair.publish(b"2")
    before = pair.now
    pair.beat()
    assert pair.now - before <= 2 * ProducerConfig().heartbeat_idle_us, "a new burst starts with short pauses again"


def test_3_1_strict_zero_overhead_sends_nothing_but_events() -> None:
    pair = Pair(ProducerConfig(strict_zero_overhead=True))
    for n in range(5):
        pair.publish(b"%d" % n)
    assert [type(message) for message in pair.pushed] == [Frames] * 5
    assert not pair.timers


# --- 3.2 Message replay


def test_3_2_without_loss_no_message_is_added() -> None:
    pair = Pair()
    pair.pushed.clear()
    for n in range(100):
        pair.publish(b"%d" % n)
    assert len(pair.pushed) == 100
    pair.receive_all()
    assert pair.requests == []
    assert len(pair.payloads) == 100


def test_3_2_evicted_messages_are_answered_with_the_lowest_available() -> None:
    pair = Pair(ProducerConfig(buffer_count_max=3))
    for n in range(1, 7):
        pair.publish(b"%d" % n)
    *_lost, last = frames_only(pair)
    pair.receive(last)
    answers = pair.ask()
    assert answers[0] == Evicted(pair.producer.id, 1, lowest=4)
    for answer in answers:
        pair.receive(answer)
    assert pair.payloads == [b"4", b"5", b"6"]
    (loss,) = pair.losses
    assert (loss.first, loss.last, loss.cause) == (1, 3, "evicted from the producer's buffer")


def test_3_2_a_producer_that_does_not_answer_makes_the_gap_a_loss() -> None:
    pair = Pair(consumer_config=ConsumerConfig(start=Start.EARLIEST, nack_attempts_max=3))
    for n in range(4):
        pair.publish(b"%d" % n)
    first, *_, last = frames_only(pair)
    pair.receive(first)
    pair.receive(last)
    asked = 0
    while not pair.losses:
        name = next(name for name in pair.timers if name.startswith("nack/"))
        pair.now = pair.timers.pop(name)
        pair._run(pair.consumer.timer(name, pair.now), at_producer=False)
        asked += len(pair.requests)
        pair.requests.clear()
    assert asked == 3
    assert (pair.losses[0].first, pair.losses[0].last) == (2, 3)
    assert pair.payloads == [b"0", b"3"]


def test_3_2_one_answer_is_bounded_and_the_consumer_asks_for_the_rest() -> None:
    pair = Pair(ProducerConfig(replay_bytes_max=1024))
    for _ in range(20):
        pair.publish(b"x" * 200)
    *_lost, last = frames_only(pair)
    pair.receive(last)
    (answer,) = pair.ask()
    assert isinstance(answer, Frames)
    assert 1 <= len(answer.payloads) <= 5
    pair.receive(answer)
    pair.repair()
    assert len(pair.payloads) == 20


def test_3_2_many_small_frames_are_replayed_as_one() -> None:
    pair = Pair()
    for n in range(50):
        pair.publish(b"%d" % n)
    pair.receive(frames_only(pair)[-1])
    (answer,) = pair.ask()
    assert isinstance(answer, Frames)
    assert len(answer.payloads) == 49


# --- 3.3 Ensuring FIFO ordering


@settings(max_examples=150, deadline=None)
@given(data=st.data(), count=st.integers(1, 30))
def test_3_3_any_loss_duplication_and_reordering_is_delivered_in_order_and_once(
    data: st.DataObject, count: int
) -> None:
    pair = Pair()
    sent = 0
    while sent < count:
        size = data.draw(st.integers(1, 4))
        pair.publish(*(b"%d" % n for n in range(sent, sent + size)))
        sent += size
    frames = frames_only(pair)
    for frame in data.draw(st.lists(st.sampled_from(frames), max_size=3 * count)):
        pair.receive(frame)
    pair.receive(pair.beat())
    pair.repair(rounds=200)
    assert pair.payloads == [b"%d" % n for n in range(sent)]
    assert pair.losses == []
    assert pair.consumer.ledger().balanced


def test_3_3_a_message_is_not_passed_before_the_application_accepted_it() -> None:
    pair = Pair(consumer_config=ConsumerConfig(start=Start.EARLIEST, in_hand_max=2), accepting=False)
    for n in range(5):
        pair.publish(b"%d" % n)
    pair.receive_all()
    assert pair.payloads == [b"0", b"1"]
    assert pair.consumer.positions() == {pair.producer.id: (1, 0)}
    pair.accepting = True
    pair.accept_all()
    assert pair.payloads == [b"0", b"1", b"2", b"3", b"4"]
    assert pair.consumer.positions() == {pair.producer.id: (1, 5)}


def test_3_3_hold_back_is_bounded_and_what_it_drops_is_asked_for_again() -> None:
    pair = Pair(consumer_config=ConsumerConfig(start=Start.EARLIEST, hold_count_max=3))
    for n in range(20):
        pair.publish(b"%d" % n)
    for frame in frames_only(pair)[1:]:
        pair.receive(frame)
    feed_kept = pair.consumer._feeds[pair.producer.id].kept_count
    assert feed_kept == 3
    pair.repair(rounds=100)
    assert pair.payloads == [b"%d" % n for n in range(20)]


# --- 3.4 Appropriate reaction


def test_3_4_a_loss_stands_in_its_place_in_the_stream() -> None:
    pair = Pair(ProducerConfig(buffer_count_max=1))
    for n in range(1, 5):
        pair.publish(b"%d" % n)
    one, _, three, four = frames_only(pair)
    for frame in (one, three, four):
        pair.receive(frame)
    pair.repair()
    assert [(type(item).__name__, item.first) for item in pair.told] == [
        ("Frames", 1),
        ("Loss", 2),
        ("Frames", 3),
        ("Frames", 4),
    ]
    ledger = pair.consumer.ledger()
    assert (ledger.published, ledger.delivered, ledger.declared_lost, ledger.pending) == (4, 3, 1, 0)


# --- epochs


def test_a_producer_that_crashed_starts_a_higher_epoch_and_the_old_end_is_open() -> None:
    pair = Pair()
    pair.publish(b"1")
    pair.receive_all()
    pair.publish(b"2")
    pair.pushed.clear()
    pair.boot()
    assert pair.producer.epoch == 2
    pair.publish(b"3")
    pair.receive_all()
    pair.repair()
    assert pair.payloads == [b"1", b"3"]
    (loss,) = pair.losses
    assert (loss.epoch, loss.first, loss.last) == (1, 2, None)


def test_a_producer_that_closed_leaves_a_mark_that_closes_the_range() -> None:
    pair = Pair()
    pair.publish(b"1")
    pair.receive_all()
    pair.publish(b"2")
    pair._run(pair.producer.close(pair.now), at_producer=True)
    pair.pushed.clear()
    pair.boot()
    pair.receive_all()
    (loss,) = pair.losses
    assert (loss.epoch, loss.first, loss.last) == (1, 2, 2)


def test_frames_of_a_new_epoch_wait_until_the_old_end_is_known() -> None:
    """The heartbeat that tells the old end was lost: the consumer asks for it before it goes on."""
    pair = Pair()
    pair.publish(b"1")
    pair.receive_all()
    pair._run(pair.producer.close(pair.now), at_producer=True)
    pair.pushed.clear()
    pair.boot()
    pair.pushed.clear()
    pair.publish(b"2")
    pair.receive_all()
    assert pair.payloads == [b"1"]
    (answer,) = pair.ask()
    assert isinstance(answer, Heartbeat)
    assert answer.previous_last == 1
    pair.receive(answer)
    pair.repair()
    assert pair.payloads == [b"1", b"2"]
    assert pair.losses == []


def test_real_events_after_a_restart_are_not_eaten_as_duplicates() -> None:
    pair = Pair()
    for n in range(3):
        pair.publish(b"old %d" % n)
    pair.receive_all()
    pair.boot()
    for n in range(3):
        pair.publish(b"new %d" % n)
    pair.receive_all()
    pair.repair()
    assert pair.payloads == [b"old 0", b"old 1", b"old 2", b"new 0", b"new 1", b"new 2"]


def test_a_frame_of_a_lower_epoch_is_answered_stale_and_its_sender_stops() -> None:
    pair = Pair()
    zombie = pair.producer
    pair.boot()
    pair.receive_all()
    effects = zombie.publish([b"x"], [1], None, pair.now)
    assert effects is not None
    pair.receive(effects[0].message)
    stale = pair.requests[-1]
    assert isinstance(stale, Stale)
    *_, stop = zombie.handle("there", stale, pair.now)
    assert isinstance(stop, Stop)
    assert isinstance(stop.error, StaleEpoch)
    assert pair.payloads == []


def test_a_position_in_an_old_epoch_is_kept_until_all_of_it_is_accepted() -> None:
    pair = Pair(accepting=False)
    pair.publish(b"1")
    pair.receive_all()
    pair.boot()
    pair.publish(b"2")
    pair.receive_all()
    pair.repair()
    assert pair.consumer.positions() == {pair.producer.id: (1, 0)}
    pair.accept_all()
    assert pair.consumer.positions() == {pair.producer.id: (2, 1)}


# --- where a consumer starts


def test_the_cut_of_a_newcomer_is_the_first_event_it_hears_of() -> None:
    pair = Pair(consumer_config=ConsumerConfig())
    for n in range(1, 4):
        pair.publish(b"%d" % n)
    *_, last = frames_only(pair)
    pair.receive(last)
    pair.repair()
    assert pair.payloads == [b"3"]
    assert pair.consumer.ledger().published == 1


def test_a_consumer_goes_on_from_its_position() -> None:
    pair = Pair()
    for n in range(1, 4):
        pair.publish(b"%d" % n)
    pair.receive_all()
    position = pair.consumer.positions()
    pair.publish(b"4")
    pair.publish(b"5")
    pair.consumer = Consumer(random.Random(2), ConsumerConfig(), position)
    pair.told.clear()
    pair.receive(frames_only(pair)[-1])
    pair.repair()
    assert pair.payloads == [b"4", b"5"]


# --- registered consumers and back-pressure


def test_what_a_registered_consumer_has_not_acknowledged_is_never_evicted() -> None:
    pair = Pair(ProducerConfig(buffer_count_max=3), ConsumerConfig(start=Start.EARLIEST, registered="writer"))
    pair.receive_all()
    pair._run(pair.consumer.timer("ack", pair.now), at_producer=False)
    pair.ask()
    assert pair.producer.registered == {"writer": 0}
    assert [pair.publish(b"%d" % n) for n in range(4)] == [True, True, True, False], "the fourth has no room"
    pair.receive_all()
    pair._run(pair.consumer.timer("ack", pair.now), at_producer=False)
    pair.ask()
    assert pair.publish(b"3")


# --- bad input


@pytest.mark.parametrize(
    ("payloads", "times"),
    [([b"a"], []), ([], []), ([b"a", b"b"], [2, 1]), ([b"x" * 2_000_000], [1])],
)
def test_a_batch_that_is_wrong_is_refused_whole(payloads: list[bytes], times: list[int]) -> None:
    pair = Pair()
    with pytest.raises(SchemaError):
        pair.producer.publish(payloads, times, None, pair.now)
    assert pair.producer.last == 0


def test_a_stamp_must_exceed_the_one_before() -> None:
    pair = Pair()
    assert pair.producer.publish([b"a"], [10], None, pair.now, more=True) is not None
    with pytest.raises(SchemaError, match="must increase"):
        pair.producer.publish([b"a"], [9], None, pair.now)
    with pytest.raises(SchemaError, match="leave the ordinal out"):
        pair.producer.publish([b"a"], [10], [0], pair.now)
    assert pair.producer.publish([b"a"], [10], [1], pair.now) is not None, "an ordinal tells two of one time apart"


def test_a_message_for_somebody_else_is_counted_and_harms_nobody() -> None:
    pair = Pair()
    effects = pair.producer.handle("there", Nack(42, 1, ((1, 2),)), pair.now)
    assert [type(effect).__name__ for effect in effects] == ["Report"]
    effects = pair.consumer.handle("here", Nack(42, 1, ((1, 2),)), pair.now)
    assert [type(effect).__name__ for effect in effects] == ["Report"]


def test_one_producer_too_many_is_refused_and_counted() -> None:
    consumer = Consumer(random.Random(1), ConsumerConfig(producers_max=2))
    for producer in (1, 2):
        consumer.handle("x", Frames(producer, 1, 1, (1,), (b"",)), 0)
    (report,) = consumer.handle("x", Frames(3, 1, 1, (1,), (b"",)), 0)
    assert report.what == "channel.producers_max"
