"""What happens to topics beside a sink, on librdkafka's mock cluster.

The mock does not fence: what a broker answers to a driver that was overtaken is told to it by the test.
"""

from __future__ import annotations

import threading

import pytest

from tests.kafka import MockCluster, produce
from tests.sinks.places import KafkaPlace
from tests.sinks.world import SCHEMA, STORE, Fault, chain_with, delivery, record_of, wrong_in
from unerring.audit import DUPLICATION, FALSE_ORDERING
from unerring.model import CallerError, ConfigError, NetworkError, Stamp
from unerring.sinks import Overtaken, Target, address_of, open_target
from unerring.sinks.chunks import chunks

NOW = threading.Event()
PRODUCE = 0
"""Kafka's number of the request."""
REQUEST_TIMED_OUT, NOT_LEADER = 7, 6
TOPIC_AUTHORIZATION_FAILED, INVALID_PRODUCER_EPOCH = 29, 47


@pytest.fixture
def topics(kafka: MockCluster) -> KafkaPlace:
    return KafkaPlace(kafka)


def test_a_broker_that_loses_answers_gets_nothing_twice(topics: KafkaPlace) -> None:
    record = record_of(topics, "answers")
    chain = chain_with(120)
    topics.url("answers")
    topics.cluster.fail(PRODUCE, REQUEST_TIMED_OUT, NOT_LEADER, REQUEST_TIMED_OUT)
    delivery(chain, record, lambda: topics.open("answers", record)).run(NOW, follow=False)
    target = topics.open("answers", record)
    assert wrong_in(target, chain) == {}
    target.close()


def test_a_driver_that_the_broker_fences_looks_at_the_topic_again(topics: KafkaPlace) -> None:
    record = record_of(topics, "fenced")
    chain = chain_with(60)
    first, second = chunks(chain, None, 30)
    target = topics.open("fenced", record)
    assert target.position() is None
    target.write(first, None)
    topics.cluster.fail(PRODUCE, INVALID_PRODUCER_EPOCH)
    with pytest.raises((Overtaken, NetworkError)):
        target.write(second, target.position())
    target.close()
    delivery(chain, record, lambda: topics.open("fenced", record)).run(NOW, follow=False)
    target = topics.open("fenced", record)
    assert wrong_in(target, chain) == {}
    target.close()


def test_messages_of_others_are_passed_over(topics: KafkaPlace) -> None:
    record = record_of(topics, "shared")
    chain = chain_with(90)
    first, second, third = chunks(chain, None, 30)
    target = topics.open("shared", record)
    assert target.position() is None
    target.write(first, None)
    theirs = [{"value": b"theirs", "partition": 0} for _ in range(20)]
    produce(topics.cluster.address, topics.table("shared"), theirs)
    target.write(second, target.position())
    produce(topics.cluster.address, topics.table("shared"), theirs)
    target.close()
    work = delivery(chain, record, lambda: topics.open("shared", record))
    work.run(NOW, follow=False)
    assert work.progress.delivered == len(third)
    target = topics.open("shared", record)
    assert wrong_in(target, chain) == {}
    target.close()


def test_what_a_rewound_sink_sends_again_is_found_by_the_audit(topics: KafkaPlace) -> None:
    # A topic takes nothing back: a message says where the sink went on from, and what is after it comes twice.
    record = record_of(topics, "back")
    chain = chain_with(60)
    first, second = chunks(chain, None, 30)
    work = delivery(chain, record, lambda: topics.open("back", record))
    work.run(NOW, follow=False)
    to_us = first.column("time")[-1].value
    work.rewind(to_us)
    target = topics.open("back", record)
    assert target.position() == Stamp(to_us, 1 << 62)
    target.close()
    delivery(chain, record, lambda: topics.open("back", record)).run(NOW, follow=False)
    target = topics.open("back", record)
    assert wrong_in(target, chain) == {DUPLICATION: len(second), FALSE_ORDERING: 1}
    target.close()


def test_a_topic_whose_messages_were_removed_needs_to_be_told_where_to_go_on(topics: KafkaPlace) -> None:
    record = record_of(topics, "removed")
    chain = chain_with(60)
    first, second = chunks(chain, None, 30)
    target = topics.open("removed", record)
    target.write(first, target.position())
    topics.cluster.delete_records(topics.table("removed"), 0, len(first) + 1)
    target.close()
    work = delivery(chain, record, lambda: topics.open("removed", record))
    with pytest.raises(CallerError, match="has no message of this sink among its last ones"):
        work.run(NOW, follow=False)
    work.rewind(first.column("time")[-1].value)
    work.run(NOW, follow=False)
    target = topics.open("removed", record)
    assert len(target.read(0, chain.through_us)) == len(second)
    target.close()


def test_a_topic_without_the_right_is_told_so(topics: KafkaPlace) -> None:
    url = topics.url("closed")
    topics.cluster.fail_topic(topics.table("closed"), TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(ConfigError, match="may not write"):
        open_target(address_of(url), SCHEMA, record_of(topics, "closed"), STORE)


def test_a_right_that_ends_in_the_middle_stops_the_sink_until_it_is_given_again(topics: KafkaPlace) -> None:
    record = record_of(topics, "expired")
    chain = chain_with(90)

    def opening() -> Target:
        target = topics.open("expired", record)
        return Fault(target, lambda: "" if target.position() is None else expire(), NetworkError)

    def expire() -> str:
        topics.cluster.fail(PRODUCE, TOPIC_AUTHORIZATION_FAILED)
        return ""

    work = delivery(chain, record, opening)
    with pytest.raises(ConfigError, match="sink expired may not write to kafka"):
        work.run(NOW, follow=False)
    assert work.progress.state == "stopped"
    assert 30 <= work.progress.delivered < 45
    delivery(chain, record, lambda: topics.open("expired", record)).run(NOW, follow=False)
    target = topics.open("expired", record)
    assert wrong_in(target, chain) == {}
    target.close()


def test_a_broker_that_is_down_is_waited_for(topics: KafkaPlace) -> None:
    record = record_of(topics, "down")
    chain = chain_with(30)
    topics.url("down")
    topics.cluster.down()
    tries = threading.Event()

    def opening() -> object:
        try:
            return topics.open("down", record)
        except NetworkError:
            tries.set()
            topics.cluster.up()
            raise

    work = delivery(chain, record, opening)
    work.run(NOW, follow=False)
    assert tries.is_set()
    assert work.progress.delivered == 30


@pytest.mark.parametrize(
    ("options", "sentence"),
    [("?partition=9", "has no partition 9"), ("?acks=1", "config= and partition= only"), ("?partition=x", "only")],
)
def test_an_address_that_does_not_fit_is_a_mistake(topics: KafkaPlace, options: str, sentence: str) -> None:
    record = record_of(topics, "odd")
    with pytest.raises(ConfigError, match=sentence):
        open_target(address_of(topics.url("odd") + options), SCHEMA, record, STORE)
