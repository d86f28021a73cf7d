"""One fault, and a CORBA event channel (omniEvents) unsubscribes a push consumer for ever. With us: it goes on.

python examples/corba_eviction.py   starts omniEvents privately (apt install omnievents) and stops it again
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from corba_lap import bare_channel, omnievents
from unerring import AsyncPublisher, AsyncSubscriber, ConsumerConfig, Start
from unerring.runtime import GiopConfig, PushConsumer, Reference, Reports, corba, read_pulled, write_event

COUNT = 100
FAULT_AT = 10


class Unlucky(PushConsumer):
    """A push consumer whose network fails for a moment, in the midst of its tenth push."""

    def __init__(
        self,
        config: GiopConfig,
        reports: Reports,
        on_event: Callable[[bytes], None],
        on_disconnect: Callable[[], None],
    ) -> None:
        self.pushes = 0

        def fail_once(data: bytes) -> None:
            self.pushes += 1
            if self.pushes == FAULT_AT:
                self.cut()
            else:
                on_event(data)

        super().__init__(config, reports, fail_once, on_disconnect)


async def without_us(port: int) -> list[int]:
    """What a bare push consumer gets of a hundred events."""
    got: list[int] = []
    consumer = Unlucky(GiopConfig(), Reports(), lambda data: got.append(int(data)), lambda: None)
    async with bare_channel(port, "bare") as channel:
        call = channel.client.call
        reference: Reference = await consumer.open("127.0.0.1")
        await channel.push_supplier(reference)
        supplier, watcher = await channel.push_consumer(), await channel.pull_supplier()
        for number in range(1, COUNT + 1):
            await call(supplier, "push", write_event(b"%d" % number))
            while not read_pulled(await call(watcher, "try_pull"))[1]:  # the channel has passed it on
                await asyncio.sleep(0.001)
        await consumer.close()
    return got


async def with_us(port: int) -> tuple[list[int], int]:
    """The same unlucky consumer under a reliable channel: what it gets, and how often it was unsubscribed."""
    url = f"corba://127.0.0.1:{port}/reliable"
    corba.PushConsumer = Unlucky  # type: ignore[misc]
    try:
        earliest = ConsumerConfig(start=Start.EARLIEST)
        async with AsyncPublisher[bytes](url) as out, AsyncSubscriber[bytes](url, config=earliest) as events:
            for number in range(1, COUNT + 1):
                await out.publish(b"%d" % number)
                await asyncio.sleep(0)  # or all of them would travel as few messages
            got = [int((await anext(events)).value) for _ in range(COUNT)]
            while not events.reports["corba.evicted"]:  # noticed at the latest after half a second of silence
                await asyncio.sleep(0.01)
            return got, events.reports["corba.evicted"]
    finally:
        corba.PushConsumer = PushConsumer  # type: ignore[misc]


async def demonstrate() -> tuple[list[int], list[int]]:
    async with omnievents() as port:
        bare = await without_us(port)
        print(f"without the channel: {COUNT} events pushed, one fault, {len(bare)} received: 1 to {bare[-1]}")
        reliable, evicted = await with_us(port)
        in_order = reliable == list(range(1, COUNT + 1))
        print(f"with the channel:    {COUNT} events published, {len(reliable)} received, in order: {in_order}")
        print(f"                     unsubscribed by the service {evicted} times, subscribed again each time")
        return bare, reliable


if __name__ == "__main__":
    asyncio.run(demonstrate())
