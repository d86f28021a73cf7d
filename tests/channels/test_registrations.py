"""A registration that nobody stands behind expires; one of a consumer that is away does not, unless that is wanted."""

from __future__ import annotations

from unerring.channels import Ack, Producer, ProducerConfig
from unerring.model import SECOND_US, Persist, Report

SMALL = ProducerConfig(buffer_count_max=2, unconfirmed_us_max=10 * SECOND_US)
DURABLE = ProducerConfig(buffer_count_max=2, unconfirmed_us_max=10 * SECOND_US, durable=True)


def ack(producer: Producer, consumer: str, now: int, accepted: int = 0) -> list:
    return producer.handle("tcp://somewhere:1", Ack(producer.id, producer.epoch, consumer, accepted), now)


def fill(producer: Producer, now: int) -> bool:
    """Whether one more event has room."""
    return producer.publish([b"event"], [producer.last + 1], None, now) is not None


def test_one_message_of_somebody_who_never_comes_again_blocks_nobody_for_good() -> None:
    producer = Producer("press", "press", {}, 1, SMALL)
    producer.start(0)
    ack(producer, "ghost", 0)
    assert fill(producer, 1)
    assert fill(producer, 1)
    assert not fill(producer, SECOND_US), "it is kept for a while"
    assert not fill(producer, 10 * SECOND_US)
    assert fill(producer, 11 * SECOND_US)
    assert producer.registered == {}


def test_it_is_told_and_the_heartbeat_is_enough_for_it() -> None:
    producer = Producer("press", "press", {}, 1, SMALL)
    producer.start(0)
    ack(producer, "ghost", 0)
    effects = producer.timer("heartbeat", 11 * SECOND_US)
    (report,) = [effect for effect in effects if isinstance(effect, Report)]
    assert report.what == "channel.registration_expired"
    assert report.detail.startswith("ghost has not been heard of again")


def test_a_consumer_that_was_heard_of_twice_may_be_away_for_ever() -> None:
    producer = Producer("press", "press", {}, 1, SMALL)
    producer.start(0)
    ack(producer, "log", 0)
    ack(producer, "log", SECOND_US // 10)
    assert fill(producer, 1)
    assert fill(producer, 1)
    assert not fill(producer, 10**6 * SECOND_US)
    ack(producer, "log", 10**6 * SECOND_US, accepted=2)
    assert fill(producer, 10**6 * SECOND_US)


def test_unless_a_limit_is_set_for_that() -> None:
    producer = Producer(
        "press", "press", {}, 1, ProducerConfig(buffer_count_max=2, registered_silence_us_max=60 * SECOND_US)
    )
    producer.start(0)
    ack(producer, "log", 0)
    ack(producer, "log", 1)
    assert fill(producer, 1)
    assert fill(producer, 1)
    assert not fill(producer, 60 * SECOND_US)
    assert fill(producer, 61 * SECOND_US)


def test_a_durable_producer_remembers_who_was_confirmed() -> None:
    disk: dict[str, bytes] = {}

    def keep(effects: list) -> None:
        for effect in effects:
            if isinstance(effect, Persist):
                disk.update(effect.puts)
                for key in effect.deletes:
                    disk.pop(key, None)

    first = Producer("press", "press", {}, 1, DURABLE)
    keep(first.start(0))
    for consumer, times in (("log", 2), ("ghost", 1)):
        for now in range(times):
            keep(ack(first, consumer, now))
    again = Producer("press", "press", dict(disk), 1, DURABLE)
    keep(again.start(0))
    assert sorted(again.registered) == ["ghost", "log"]
    keep(again.timer("heartbeat", 11 * SECOND_US))
    keep(again.close(12 * SECOND_US))
    assert sorted(again.registered) == ["log"]
    assert list(Producer("press", "press", disk, 1, DURABLE).registered) == ["log"]


def test_a_place_that_a_ghost_held_is_free_again() -> None:
    producer = Producer("press", "press", {}, 1, ProducerConfig(registered_max=1, unconfirmed_us_max=SECOND_US))
    producer.start(0)
    ack(producer, "ghost", 0)
    ack(producer, "log", 1)
    assert list(producer.registered) == ["ghost"]
    ack(producer, "log", 2 * SECOND_US)
    assert list(producer.registered) == ["log"]
