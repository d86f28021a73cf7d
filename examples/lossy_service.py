"""One event service after the other, with a consumer that is cut off for a while: alone it loses, a channel does not.

python examples/lossy_service.py nats://127.0.0.1:4222/readings     (or redis://, mqtt://, zmq://, udp://, multicast://)
"""

from __future__ import annotations

import asyncio
import sys

from unerring import AsyncPublisher, AsyncSubscriber
from unerring.channels import ConsumerConfig, ProducerConfig, Start
from unerring.runtime.transports import Faults, lossy_inlet, open_inlet, open_outlet

QUICK = ProducerConfig(heartbeat_idle_us=20_000, heartbeat_pause_us_max=50_000)
PATIENT = ConsumerConfig(start=Start.EARLIEST, nack_pause_us_max=50_000, nack_attempts_max=1000)


async def alone(url: str, count: int) -> int:
    """How many of `count` messages come through the service itself, whose consumer is away for a third of them."""
    outlet, inlet, got = open_outlet(url), open_inlet(url), []
    await outlet.open(lambda sender, data: None)
    consumer = await _subscribe(inlet, got)
    for n in range(count):
        if n == count // 3:
            await inlet.close()  # a broken connection: the service keeps nothing for whoever is not there
        if n == 2 * count // 3:
            await asyncio.sleep(0)
            consumer = await _subscribe(open_inlet(url), got)
        outlet.push(b"%d" % n)
        await outlet.ready()
        await asyncio.sleep(0.001 if n % 10 == 0 else 0)
    while (b"%d" % (count - 1)) not in got:
        outlet.push(b"%d" % (count - 1))
        await asyncio.sleep(0.01)
    await consumer.close()
    await outlet.close()
    return len(set(got))


async def _subscribe(inlet, got):
    await inlet.open(lambda sender, data: got.append(data))
    return inlet


async def with_a_channel(url: str, count: int) -> int:
    """The same through a channel: its consumer is cut off from everything for a third of the events."""
    inlet = lossy_inlet(open_inlet(url), Faults(), seed=1)
    async with AsyncPublisher[bytes](url, name="press", config=QUICK) as out:
        async with AsyncSubscriber[bytes](inlet, config=PATIENT) as events:
            for n in range(count):
                inlet.cut(count // 3 <= n < 2 * count // 3)
                await out.publish(b"%d" % n)
                await asyncio.sleep(0.001 if n % 10 == 0 else 0)
            got = [(await anext(events)).value async for _ in _times(count)]
            assert got == [b"%d" % n for n in range(count)]
            assert events.ledger().declared_lost == 0
            return len(got)


async def _times(count):
    for n in range(count):
        yield n


def main(url: str, count: int = 300) -> tuple[int, int]:
    """Messages that came: without and with a channel."""
    return asyncio.run(alone(url, count)), asyncio.run(with_a_channel(url, count))


if __name__ == "__main__":
    bare, reliable = main(sys.argv[1])
    print(f"alone: {bare} of 300 came; with a channel: {reliable} of 300, in order, once")
