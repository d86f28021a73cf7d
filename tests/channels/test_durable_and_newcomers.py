"""Durable producers, paced and merged repair, newcomers and their initial information (paper, sections 3.2 and 3.4)."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from tests.channels.pair import Pair
from unerring.channels import Asked, ConsumerConfig, Frames, Initial, Nack, Newcomer, Producer, ProducerConfig, Start
from unerring.channels.codec import EVENT_BYTES
from unerring.model import Broadcast, Deliver, Persist, Send

DURABLE = ProducerConfig(durable=True)


def test_a_durable_event_is_on_disk_before_it_is_sent() -> None:
    pair = Pair(DURABLE)
    effects = pair.producer.publish([b"1"], [1], None, pair.now)
    assert effects is not None
    assert [type(effect) for effect in effects[:2]] == [Persist, Broadcast]


def test_a_durable_producer_continues_its_epoch_and_can_still_replay() -> None:
    pair = Pair(DURABLE)
    for n in range(1, 4):
        pair.publish(b"%d" % n)
    pair.pushed.clear()  # all of it was lost on the way
    pair.boot()
    assert (pair.producer.epoch, pair.producer.last) == (1, 3)
    pair.receive_all()
    pair.repair()
    pair.now += 10
    pair.publish(b"4")
    pair.receive_all()
    assert pair.payloads == [b"1", b"2", b"3", b"4"]
    assert pair.losses == []


@given(st.integers(1, 5), st.lists(st.integers(1, 4), max_size=12))
def test_what_is_evicted_leaves_the_disk_too(count_max: int, batches: list[int]) -> None:
    pair = Pair(ProducerConfig(durable=True, buffer_count_max=count_max))
    for size in batches:
        pair.now += 10
        pair.publish(*(b"x" for _ in range(size)))
    before = pair.producer
    pair.boot()
    assert pair.producer.last == before.last
    assert pair.producer.buffered[0] <= max([count_max, *batches]) + max(batches, default=0)
    kept = [key for key in pair.disk if key.startswith("channel/frame/")]
    assert len(kept) <= count_max + 1


def test_stamps_still_increase_after_a_durable_restart() -> None:
    pair = Pair(DURABLE)
    assert pair.producer.publish([b"1"], [1000], None, pair.now) is not None
    pair._run([*pair.producer.start(pair.now)], at_producer=True)
    pair.boot()
    with pytest.raises(Exception, match="is over"):
        pair.producer.publish([b"2"], [1000], None, pair.now)


def test_a_producer_that_is_no_longer_durable_starts_a_new_epoch_and_tells_the_old_ones_end() -> None:
    pair = Pair(DURABLE)
    pair.publish(b"1")
    pair.receive_all()
    pair.publish(b"2")
    pair.pushed.clear()
    pair.producer_config = ProducerConfig()
    pair.boot()
    pair.receive_all()
    (loss,) = pair.losses
    assert (pair.producer.epoch, loss.first, loss.last) == (2, 2, 2)
    assert not [key for key in pair.disk if key.startswith("channel/frame/")]


def test_a_durable_producer_keeps_what_its_registered_consumers_lack_through_a_restart() -> None:
    pair = Pair(
        ProducerConfig(durable=True, buffer_count_max=3), ConsumerConfig(start=Start.EARLIEST, registered="writer")
    )
    pair.receive_all()
    pair._run(pair.consumer.timer("ack", pair.now), at_producer=False)
    pair.ask()
    assert all(pair.publish(b"%d" % n) for n in range(3))
    pair.pushed.clear()
    pair.boot()
    pair.now += 10
    assert not pair.publish(b"3"), "the writer has not said yet what it has"


def test_repair_is_paced_but_never_silent() -> None:
    producer = Producer("press", "here", {}, 1, ProducerConfig(repair_bytes_per_s=10 * (100 + EVENT_BYTES)))
    producer.start(0)
    for n in range(100):
        producer.publish([b"x" * 100], [n + 1], None, 0)

    def answered(now: int) -> int:
        answers = [
            e.message for e in producer.handle("c", Nack(producer.id, 1, ((1, 100),)), now) if isinstance(e, Send)
        ]
        return sum(len(answer.payloads) for answer in answers)

    assert answered(0) == 10, "one second's worth"
    assert answered(1) == 1, "the bucket is empty, but whoever asks sees that somebody is there"
    assert answered(500_001) == 5, "half a second later, half of it"


def test_what_many_lack_is_pushed_to_all_once() -> None:
    producer = Producer("press", "here", {}, 1, ProducerConfig(merge_consumers_min=3, merge_window_us=1000))
    producer.start(0)
    for n in range(5):
        producer.publish([b"%d" % n], [n + 1], None, 0)
    nack = Nack(producer.id, 1, ((2, 3),))
    how = []
    for now, consumer in enumerate("aabcd"):
        effects = [e for e in producer.handle(consumer, nack, now) if isinstance(e, Send | Broadcast)]
        how.append([type(effect).__name__ for effect in effects])
    assert how == [["Send"], ["Send"], ["Send"], ["Broadcast"], []]
    late = [e for e in producer.handle("e", nack, 5000) if isinstance(e, Send | Broadcast)]
    assert [type(effect) for effect in late] == [Send], "after the window it is answered again"


def ask_as_newcomer(pair: Pair, information: bytes) -> Initial:
    name = next(name for name in pair.timers if name.startswith("nack/"))
    pair.now = pair.timers.pop(name)
    pair._run(pair.consumer.timer(name, pair.now), at_producer=False)
    request = pair.requests.pop()
    assert isinstance(request, Newcomer)
    (asked,) = pair.producer.handle("there", request, pair.now)
    assert isinstance(asked, Deliver)
    assert asked.what == Asked("there")
    (answer,) = pair.producer.welcome("there", information, pair.now)
    assert isinstance(answer, Send)
    assert isinstance(answer.message, Initial)
    return answer.message


def test_3_4_a_newcomer_gets_initial_information_at_a_cut_and_then_all_that_follows() -> None:
    pair = Pair(consumer_config=ConsumerConfig(start=Start.INITIAL))
    pair.pushed.clear()
    for n in range(1, 4):
        pair.publish(b"%d" % n)
    for frames in pair.pushed[1:]:
        pair.receive(frames)
    pair.pushed.clear()
    assert pair.told == [], "nothing before the information"
    initial = ask_as_newcomer(pair, b"three so far")
    pair.publish(b"4")
    pair.receive(initial)
    pair.receive_all()
    (information, frames) = pair.told
    assert information.information == b"three so far"  # type: ignore[union-attr]
    assert information.count == 0, "nothing is lost to somebody who was not there"  # type: ignore[union-attr]
    assert isinstance(frames, Frames)
    assert list(frames.payloads) == [b"4"]
    assert pair.consumer.ledger().published == 1


def test_3_4_quit_and_recover_declares_what_lies_between_and_goes_on_behind_the_cut() -> None:
    pair = Pair(ProducerConfig(buffer_count_max=2), accepting=True)
    pair.publish(b"1")
    pair.receive_all()
    for n in range(2, 7):
        pair.publish(b"%d" % n)
    *_, last = [message for message in pair.pushed if isinstance(message, Frames)]
    pair.pushed.clear()
    pair.receive(last)
    for answer in pair.ask():
        pair.receive(answer)
    (loss,) = pair.losses
    assert (loss.first, loss.last) == (2, 4)
    pair._run(pair.consumer.recover(pair.producer.id, pair.now), at_producer=False)
    pair.publish(b"7")
    pair.receive_all()
    assert pair.payloads == [b"1", b"5", b"6"], "what was handed over before stays; nothing more comes for now"
    pair.receive(ask_as_newcomer(pair, b"seven so far"))
    assert pair.losses[-1].information == b"seven so far"
    assert (pair.losses[-1].first, pair.losses[-1].last) == (7, 7), "the information stands for it"
    pair.now += 10
    pair.publish(b"8")
    pair.receive_all()
    assert pair.payloads == [b"1", b"5", b"6", b"8"]
    assert pair.consumer.ledger().balanced


def test_a_late_answer_to_an_earlier_question_is_not_taken() -> None:
    pair = Pair()
    pair.publish(b"1")
    pair.receive_all()
    old = Initial(pair.producer.id, 1, 0, b"nothing yet", "press", "here")
    pair._run(pair.consumer.recover(pair.producer.id, pair.now), at_producer=False)
    pair.receive(old)
    assert pair.losses == []
    pair.receive(ask_as_newcomer(pair, b"one so far"))
    assert pair.losses[0].information == b"one so far"
    pair.receive(ask_again := Initial(pair.producer.id, 1, 1, b"again", "press", "here"))
    assert len(pair.losses) == 1, f"nobody waits for {ask_again}"
