"""A bad peer costs its link, never the process: what no peer can mean is refused before anything of it is believed."""

from __future__ import annotations

import random

import msgspec
import pytest

from tests.channels.pair import Pair
from unerring.channels import ChannelConfig, Consumer, ConsumerConfig, Frames, Producer, ProducerConfig, Start
from unerring.channels.codec import CONTROL, ChannelCodec
from unerring.channels.messages import EPOCH_MAX, SEQUENCE_MAX, Ack, Heartbeat, Nack, Newcomer, Stale
from unerring.model import Deliver, FrameError, Persist, ProtocolError, Send, Stop

PRESENT = 1_000_000


def present(now: int) -> int:
    return PRESENT


AHEAD = PRESENT + ProducerConfig().epoch_ahead_us_max // 1000


@pytest.mark.parametrize("epoch", [AHEAD + 1, EPOCH_MAX])
def test_a_successor_from_the_far_future_does_not_stop_a_producer(epoch: int) -> None:
    producer = Producer("press", "here", {}, PRESENT - 5, present=present)
    for message in (
        Stale(producer.id, producer.epoch, epoch),
        Nack(producer.id, epoch, ()),
        Ack(producer.id, epoch, "log", 0),
        Newcomer(producer.id, epoch),
    ):
        with pytest.raises(ProtocolError, match="check the sender's clock"):
            producer.handle("there", message, 0)
    assert isinstance(producer.handle("there", Stale(producer.id, producer.epoch, PRESENT), 0)[-1], Stop)


def test_a_word_for_another_producer_does_not_stop_this_one() -> None:
    producer = Producer("press", "here", {}, 1)
    for message in (Stale(42, 1, 7), Ack(42, 7, "log", 3), Newcomer(42, 7)):
        (report,) = producer.handle("there", message, 0)
        assert report.what == "channel.not_mine"
    assert producer.registered == {}


@pytest.mark.parametrize("durable", [False, True])
def test_a_producer_that_was_succeeded_begins_above_that_epoch_when_it_is_started_again(durable: bool) -> None:
    """Otherwise a producer whose name was once used with a clock ahead could not be heard until then."""
    pair = Pair(producer_config=ProducerConfig(durable=durable))
    pair.publish(b"one")
    pair.receive_all()
    old = pair.producer
    persist, stop = old.handle("there", Stale(old.id, old.epoch, 700), pair.now)
    assert isinstance(persist, Persist)
    assert isinstance(stop, Stop)
    pair.disk.update(persist.puts)
    pair.boot()
    assert pair.producer.epoch == 701
    pair.now += 1
    pair.publish(b"two")
    pair.receive_all()
    pair.repair()
    assert pair.payloads == [b"one", b"two"]
    before = pair.producer
    pair.boot()
    assert pair.producer.epoch == (before.epoch if durable else before.epoch + 1), "it is succeeded once"


@pytest.mark.parametrize("epoch", [AHEAD + 1, EPOCH_MAX])
def test_an_epoch_from_the_far_future_does_not_shut_out_the_right_producer(epoch: int) -> None:
    consumer = Consumer(random.Random(1), ConsumerConfig(start=Start.EARLIEST), present=present)
    consumer.handle("here", Frames(7, PRESENT, 1, (1,), (b"one",)), 0)
    for message in (Heartbeat(7, epoch, 3, "press", "here"), Frames(7, epoch, 1, (1,), (b"x",))):
        with pytest.raises(ProtocolError, match="check the sender's clock"):
            consumer.handle("there", message, 1)
        with pytest.raises(ProtocolError, match="check the sender's clock"):
            Consumer(random.Random(1), present=present).handle("there", message, 1)
    (told,) = consumer.handle("here", Frames(7, PRESENT, 2, (2,), (b"two",)), 2)
    assert isinstance(told, Deliver)


def test_a_last_sequence_that_its_producer_never_had_is_not_waited_for() -> None:
    """Before, the range up to it was declared lost, and everything the producer published then was a duplicate."""
    pair = Pair(consumer_config=ConsumerConfig(start=Start.EARLIEST, nack_attempts_max=4))
    pair.publish(b"one")
    pair.receive_all()
    pair.receive(Heartbeat(pair.producer.id, 1, 2**40, "press", "here"))
    pair.receive(Frames(pair.producer.id, 1, 2**41, (9,), (b"forged",)))
    pair.repair()
    pair.publish(b"two")
    pair.receive_all()
    pair.repair()
    assert pair.payloads == [b"one", b"two"]


@pytest.mark.parametrize(
    "fields",
    [
        ["Nack", 7, 1, [[2, 1]]],
        ["Nack", 7, 1, [[0, 1]]],
        ["Nack", 7, 1, [[5, 9], [1, 2]]],
        ["Nack", 7, 1, [[1, 9]] * 3],
        ["Nack", 7, -1, []],
        ["Nack", 7, EPOCH_MAX + 1, []],
        ["Ack", 7, 1, "log", -1],
        ["Ack", 7, 1, "log", 2**64 - 1],
        ["Ack", 7, 1, "x" * 2000, 1],
        ["Evicted", 7, 1, 0],
        ["Heartbeat", 7, 1, SEQUENCE_MAX + 1, "press", "here"],
        ["Heartbeat", 7, 5, 0, "press", "here", 4, 1, b"", [], 2**63],
        ["Initial", 7, 1, -1, b"", "press", "here"],
    ],
)
def test_numbers_that_cannot_be_are_refused_when_they_are_decoded(fields: list[object]) -> None:
    with pytest.raises(FrameError):
        ChannelCodec(ChannelConfig()).decode(bytes((CONTROL,)) + msgspec.msgpack.encode(fields))


@pytest.mark.parametrize("first", [0, SEQUENCE_MAX])
def test_frames_have_sequences_that_a_producer_can_give(first: int) -> None:
    codec = ChannelCodec(ChannelConfig())
    with pytest.raises(FrameError, match="sequences go from 1 to"):
        codec.decode(codec.encode(Frames(7, 1, first, (1, 2), (b"a", b"b"))))


def test_a_request_beyond_the_last_event_is_answered_with_what_there_is() -> None:
    producer = Producer("press", "here", {}, 1)
    producer.publish([b"one"], [1], None, 0)
    (answer,) = producer.handle("there", Nack(producer.id, 1, ((2, 2**40),)), 1)
    assert isinstance(answer, Send)
    assert answer.message.last == 1
