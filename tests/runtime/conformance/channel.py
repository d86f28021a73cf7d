"""What a reliable channel must do over any transport: one body, for every event service, fake and real.

A transport joins by calling `Service` with the URL of its outlet; consumers dial what `inlet_url` makes of the open
outlet's address (the same URL unless the port was chosen by the system).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from unerring import AsyncPublisher, AsyncSubscriber, stream
from unerring.channels import ConsumerConfig, ProducerConfig, Start
from unerring.runtime.transports import Faults, lossy_inlet, open_inlet, open_outlet

WITHIN_S = 600.0
HARSH = Faults(loss=0.1, duplication=0.1, reordering=0.2, delay=0.1)


@stream(key="machine")
class Reading:
    machine: str
    number: int


@dataclass(frozen=True)
class Service:
    """One event service under test."""

    outlet_url: str
    inlet_url: Callable[[str], str] = lambda address: address


async def collect(events: AsyncSubscriber[Reading], count: int) -> list[int]:
    got = []
    async with asyncio.timeout(WITHIN_S):
        while len(got) < count:
            got.append((await anext(events)).value.number)
    return got


async def everything_arrives_once_and_in_order(service: Service, faults: Faults | None) -> None:
    """Many consumers, each with its own mischief on its way, get all of it."""
    count, consumers = 600, 3
    quick = ProducerConfig(heartbeat_idle_us=20_000, heartbeat_pause_us_max=100_000)
    patient = ConsumerConfig(start=Start.EARLIEST, nack_pause_us_max=100_000, nack_attempts_max=1000)
    async with AsyncPublisher(service.outlet_url, Reading, name="press", config=quick) as out:
        url = service.inlet_url(out.address)
        subscribers = []
        for seed in range(consumers):
            inlet = open_inlet(url)
            wrapped = inlet if faults is None else lossy_inlet(inlet, faults, seed)
            subscribers.append(await AsyncSubscriber(wrapped, Reading, config=patient, seed=seed).open())
        await out.publish_many([Reading("press-1", n) for n in range(count // 2)])
        for n in range(count // 2, count):
            await out.publish(Reading("press-1", n))
            if n % 3:
                await asyncio.sleep(0)  # in a turn of its own it is a message of its own
        for events in subscribers:
            assert await collect(events, count) == list(range(count))
        for events in subscribers:
            ledger = events.ledger()
            assert ledger.balanced
            assert ledger.declared_lost == 0
            await events.close()


async def a_cut_off_consumer_catches_up(service: Service) -> None:
    """Nothing passes for a while, then everything does."""
    quick = ProducerConfig(heartbeat_idle_us=20_000, heartbeat_pause_us_max=50_000)
    patient = ConsumerConfig(start=Start.EARLIEST, nack_pause_us_max=50_000, nack_attempts_max=1000)
    async with AsyncPublisher(service.outlet_url, Reading, name="press", config=quick) as out:
        inlet = lossy_inlet(open_inlet(service.inlet_url(out.address)), Faults(), 1)
        async with AsyncSubscriber(inlet, Reading, config=patient) as events:
            await out.publish(Reading("press-1", 0))
            assert await collect(events, 1) == [0]
            inlet.cut(True)
            await out.publish_many([Reading("press-1", n) for n in range(1, 100)])
            await out._outlet.ready()
            inlet.cut(False)
            await out.publish(Reading("press-1", 100))
            assert await collect(events, 100) == list(range(1, 101))


async def foreign_bytes_are_counted_and_harm_nobody(service: Service) -> None:
    """Another program pushes what is not ours on the same service."""
    outlet = open_outlet(service.outlet_url)
    publisher: AsyncPublisher[Reading] = AsyncPublisher(outlet, Reading, name="press")
    async with publisher as out:
        patient = ConsumerConfig(start=Start.EARLIEST, nack_attempts_max=1000)
        async with AsyncSubscriber(service.inlet_url(out.address), Reading, config=patient) as events:
            await out.publish(Reading("press-1", 0))
            assert await collect(events, 1) == [0]
            for garbage in (b"", b"\xe1short", b"\xe4" * 40, b"\xe3\xff\xff", b"hello"):
                outlet.push(garbage)
            await out.publish(Reading("press-1", 1))
            assert await collect(events, 1) == [1]
            assert events.reports["channel.bad_frame"] >= 4
