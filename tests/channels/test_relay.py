"""Relays keep ids, cache, repair, and tell exactly what is lost to them; channels chained over real transports."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from unerring import AsyncPublisher, AsyncSubscriber
from unerring.channels import (
    Consumer,
    ConsumerConfig,
    Evicted,
    Frames,
    Gone,
    Heartbeat,
    Loss,
    Nack,
    Peer,
    Producer,
    ProducerConfig,
    Relay,
    Start,
)
from unerring.model import Broadcast, Deliver, Effects, Send, SetTimer
from unerring.runtime.channel.relay import AsyncRelay
from unerring.runtime.transports import Faults, lossy_inlet, open_inlet

EARLIEST = ConsumerConfig(start=Start.EARLIEST)


def sent(effects: Effects, kind: type) -> list[Any]:
    return [effect.message for effect in effects if isinstance(effect, kind)]


def published(count: int, config: ProducerConfig | None = None) -> tuple[Producer, list[Frames]]:
    producer = Producer("press", "press", {}, 1, config)
    producer.start(0)
    return producer, [
        sent(producer.publish([b"%d" % n], [n], None, n) or [], Broadcast)[0] for n in range(1, count + 1)
    ]


def test_a_relay_keeps_ids_and_answers_from_its_cache() -> None:
    producer, frames = published(3)
    relay = Relay("relay", random.Random(1), None, EARLIEST)
    passed = [message for frame in frames for message in sent(relay.handle("press", frame, 10), Broadcast)]
    assert passed == frames
    (answer,) = sent(relay.handle("till", Nack(producer.id, 1, ((2, 2),)), 20), Send)
    assert list(answer.payloads) == [b"2"]


def test_what_is_below_its_cache_it_asks_for_upstream_and_passes_the_answer_on() -> None:
    producer, frames = published(5)
    relay = Relay("relay", random.Random(1), None, ConsumerConfig())
    beat = producer._heartbeat()
    relay.handle("press", frames[3], 10)
    relay.handle("press", beat, 11)
    (request,) = [
        m for m in sent(relay.handle("till", Nack(producer.id, 1, ((2, 3),)), 20), Send) if isinstance(m, Nack)
    ]
    assert request.ranges == ((2, 3),)
    (answer,) = sent(producer.handle("relay", request, 30), Send)
    passed = [message for message in sent(relay.handle("press", answer, 40), Send) if isinstance(message, Frames)]
    assert [list(message.payloads) for message in passed] == [[b"2", b"3"]]


def test_what_is_lost_to_the_relay_is_told_exactly_to_those_behind_it() -> None:
    producer, frames = published(6, ProducerConfig(buffer_count_max=2))
    relay = Relay("relay", random.Random(1), None, EARLIEST)
    till = Consumer(random.Random(2), EARLIEST)
    told: list[Any] = []

    def hear(message: Any) -> None:
        for effect in till.handle("relay", message, 50):
            if isinstance(effect, Deliver):
                told.append(effect.what)
                through = effect.what.last or effect.what.first
                till.accepted(effect.what.producer, effect.what.epoch, through, 50)

    for message in [m for frame in (frames[0], frames[5]) for m in sent(relay.handle("press", frame, 10), Broadcast)]:
        hear(message)
    evicted = Evicted(producer.id, 1, 5)
    (replayed,) = sent(producer.handle("relay", Nack(producer.id, 1, ((5, 5),)), 20), Send)
    for upstream in (evicted, replayed):
        for message in sent(relay.handle("press", upstream, 30), Broadcast):
            hear(message)
    for answer in sent(relay.handle("till", Nack(producer.id, 1, ((2, 4),)), 40), Send):
        assert isinstance(answer, Gone)
        hear(answer)
    losses = [(item.first, item.last, item.cause) for item in told if isinstance(item, Loss)]
    assert losses == [(2, 4, "lost on the way to a relay")]
    assert [payload for item in told if isinstance(item, Frames) for payload in item.payloads] == [b"1", b"5", b"6"]


def test_a_relay_has_heartbeats_of_its_own() -> None:
    _, frames = published(1)
    relay = Relay("relay", random.Random(1), None, EARLIEST)
    effects = relay.handle("press", frames[0], 10)
    (timer,) = [effect for effect in effects if type(effect).__name__ == "SetTimer"]
    later = relay.timer(timer.name, timer.at_us)
    while not sent(later, Broadcast):
        (timer,) = [effect for effect in later if type(effect).__name__ == "SetTimer"]
        later = relay.timer(timer.name, timer.at_us)
    (beat,) = sent(later, Broadcast)
    assert isinstance(beat, Heartbeat)
    assert (beat.last, beat.direct) == (1, "relay")


@pytest.mark.parametrize(
    "faults", [Faults(), Faults(loss=0.1, duplication=0.05, reordering=0.1)], ids=["calm", "harsh"]
)
def test_two_channels_chained(faults: Faults) -> None:
    quick = ProducerConfig(heartbeat_idle_us=10_000, heartbeat_pause_us_max=50_000)
    patient = ConsumerConfig(start=Start.EARLIEST, nack_pause_us_max=50_000, nack_attempts_max=1000)

    async def main() -> list[bytes]:
        async with AsyncPublisher[bytes]("tcp://127.0.0.1:0", name="press", config=quick) as out:
            first = lossy_inlet(open_inlet(out.address), faults, 1)
            async with AsyncRelay(first, "tcp://127.0.0.1:0", config=quick, upstream=patient) as relay:
                second = lossy_inlet(open_inlet(relay.address), faults, 2)
                async with AsyncSubscriber[bytes](second, config=patient) as events:
                    for n in range(300):
                        await out.publish(b"%d" % n)
                    async with asyncio.timeout(600):
                        return [(await anext(events)).value for _ in range(300)]

    assert asyncio.run(main()) == [b"%d" % n for n in range(300)]


def test_an_epoch_without_events_is_passed_on() -> None:
    """Those behind a relay that missed an epoch's end must not wait for it (seed 131 of the simulation)."""
    producer, frames = published(3)
    relay = Relay("relay", random.Random(1), None, EARLIEST)
    till = Consumer(random.Random(2), EARLIEST)
    for effect in till.handle("relay", frames[0], 5):
        assert isinstance(effect, Deliver)
    till.accepted(producer.id, 1, 1, 5)
    later = Producer("press", "press", {"channel/epoch": b"1", "channel/closed_at": b"3"}, 1)
    effects = relay.handle("press", later._heartbeat(), 10)
    timer = next(effect.name for effect in effects if isinstance(effect, SetTimer))
    (beat,) = sent(relay.timer(timer, 1_000_000), Broadcast)
    assert (beat.epoch, beat.last, beat.previous_epoch, beat.previous_last) == (2, 0, 1, 3)
    (loss,) = [effect.what for effect in till.handle("relay", beat, 1_000_010) if isinstance(effect, Deliver)]
    assert (loss.epoch, loss.first, loss.last) == (1, 2, 3)


def beat_of(relay: Relay, effects: Effects) -> Heartbeat:
    """The next heartbeat that it sends."""
    while True:
        timer = next(effect for effect in effects if isinstance(effect, SetTimer))
        effects = relay.timer(timer.name, timer.at_us)
        for beat in sent(effects, Broadcast):
            assert isinstance(beat, Heartbeat)
            return beat


def test_a_relay_names_the_newest_peers_each_once() -> None:
    producer, frames = published(1)
    relay = Relay("relay", random.Random(1), ProducerConfig(peers_max=2), EARLIEST)
    effects = relay.handle("press", frames[0], 10)
    for address in ("a", "b", "a", "c", "c"):
        assert relay.handle(address, Peer(producer.id, 1, address), 20) == []
    assert beat_of(relay, effects).peers == ("a", "c")


def test_a_heartbeat_of_an_epoch_that_is_over_changes_nothing_behind_a_relay() -> None:
    producer, _ = published(3)
    relay = Relay("relay", random.Random(1), None, EARLIEST)
    later = Producer("press", "press", {"channel/epoch": b"1", "channel/closed_at": b"3"}, 1)
    timer = next(each for each in relay.handle("press", later._heartbeat(), 10) if isinstance(each, SetTimer))
    assert sent(relay.handle("press", producer._heartbeat(), 20), Broadcast) == []
    (beat,) = sent(relay.timer(timer.name, 1_000_000), Broadcast)
    assert (beat.epoch, beat.last, beat.previous_epoch, beat.previous_last) == (2, 0, 1, 3)
