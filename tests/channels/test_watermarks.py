"""Watermarks: a quiet stream says that time passes, in its place among the events, and keeps its word."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given, strategies as st

from tests.channels.pair import Pair
from unerring import AsyncPublisher, AsyncSubscriber
from unerring.channels import Frames, Heartbeat, Producer, ProducerConfig, Relay
from unerring.model import Broadcast, Persist, SchemaError


def hear(pair: Pair) -> list[object]:
    """What the consumer's application was told: payloads, and watermarks."""
    told: list[object] = []
    for item in pair.told:
        told.extend(list(item.payloads) if isinstance(item, Frames) else [item.watermark_us])  # type: ignore[union-attr]
    return told


def quiet_pair(config: ProducerConfig | None = None) -> Pair:
    pair = Pair(config or ProducerConfig(), accepting=False)
    pair.receive_all()
    return pair


def send_watermark(pair: Pair, time_us: int) -> None:
    pair._run(pair.producer.advance(time_us, pair.now), at_producer=True)


@given(st.integers(0, 2**16), st.integers(1, 20))
def test_a_watermark_is_told_behind_everything_before_it_whatever_is_lost(seed: int, count: int) -> None:
    rng, pair = random.Random(seed), quiet_pair()
    wanted: list[object] = []
    for number in range(count):
        pair.now += 10
        if rng.random() < 0.5:
            pair.publish(b"%d" % number)
            wanted.append(b"%d" % number)
        else:
            send_watermark(pair, pair.now * 1000 + 999)
            wanted.append(pair.now * 1000 + 999)
    sent, pair.pushed = pair.pushed, []
    last = pair.producer._heartbeat()
    for message in [*(m for m in sent if rng.random() < 0.6), last]:
        pair.receive(message)
    pair.repair()
    told = hear(pair)
    assert [item for item in told if isinstance(item, bytes)] == [item for item in wanted if isinstance(item, bytes)]
    # A later watermark may replace one, but none stands before an event of its past, and the last one is told.
    for at, item in enumerate(told):
        if isinstance(item, int):
            assert set(told[:at]) >= set(wanted[: wanted.index(item)]) - {w for w in wanted if isinstance(w, int)}
    watermarks = [item for item in wanted if isinstance(item, int)]
    assert [item for item in told if isinstance(item, int)][-1:] == watermarks[-1:]


def test_nothing_is_published_at_or_before_a_watermark() -> None:
    pair = quiet_pair()
    send_watermark(pair, 5000)
    with pytest.raises(SchemaError, match="is over"):
        pair.producer.publish([b"1"], [5000], None, pair.now)
    assert pair.producer.publish([b"1"], [5001], None, pair.now) is not None
    assert pair.producer.advance(5001, pair.now) == [], "an event at a time is itself a watermark at it"


def test_a_durable_producer_keeps_its_watermark_before_it_tells_it_and_after_a_restart() -> None:
    pair = quiet_pair(ProducerConfig(durable=True))
    effects = pair.producer.advance(7000, pair.now)
    assert [type(effect) for effect in effects] == [Persist, Broadcast]
    pair._run(effects, at_producer=True)
    pair.boot()
    assert pair.producer._heartbeat().watermark_us == 7000, "who died before hearing it learns it now"
    assert pair.producer.advance(7000, pair.now) == []
    with pytest.raises(SchemaError, match="is over"):
        pair.producer.publish([b"1"], [7000], None, pair.now)


def test_a_relay_passes_a_watermark_on_behind_what_it_has_passed_on() -> None:
    producer = Producer("press", "press", {}, 1)
    relay = Relay("relay", random.Random(1))
    sent = [*producer.start(0), *(producer.publish([b"1"], [10], None, 1) or []), *producer.advance(99, 2)]
    passed = [
        effect.message
        for message in [effect.message for effect in sent if isinstance(effect, Broadcast)]
        for effect in relay.handle("press", message, 5)
        if isinstance(effect, Broadcast)
    ]
    assert [type(message) for message in passed] == [Frames, Heartbeat]
    assert (passed[1].last, passed[1].watermark_us) == (1, 99)


def test_a_subscriber_hears_watermarks_over_tcp() -> None:
    heard: list[object] = []

    async def talk() -> None:
        async with AsyncPublisher("tcp://127.0.0.1:0", name="press", watermark_every_us=20_000) as out:
            async with AsyncSubscriber(out.address, on_watermark=heard.append) as events:
                async with asyncio.timeout(600), asyncio.TaskGroup() as group:
                    taking = group.create_task(_take(events, heard))
                    while not any(isinstance(item, int) for item in heard):
                        await asyncio.sleep(0.01)
                    await out.publish(b"now")
                    while b"now" not in heard or not isinstance(heard[-1], int):
                        await asyncio.sleep(0.01)
                    await out.end()
                    while heard[-1] != 2**62:
                        await asyncio.sleep(0.01)
                    taking.cancel()

    asyncio.run(talk())
    times = [item for item in heard if isinstance(item, int)]
    assert times == sorted(set(times))


async def _take(events: AsyncSubscriber[object], heard: list[object]) -> None:
    async for event in events:
        heard.append(event.value)
        watermarks = [item for item in heard if isinstance(item, int)]
        assert not watermarks or event.time > watermarks[-1]


def test_a_closed_producer_sends_no_more_watermarks() -> None:
    """`unerring simulate channels` from 4 000 000 on: the heartbeat after a clean close raised."""
    producer = Producer("press", "press", {}, 1)
    producer.start(0)
    producer.publish([b"one"], [1], None, 0)
    producer.close(0)
    beats = [effect for effect in producer.timer("heartbeat", 10_000_000) if isinstance(effect, Broadcast)]
    assert [beat.message.last for beat in beats] == [1]
