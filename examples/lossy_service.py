"""One event service after the other, with a consumer that goes away, or does not read, for a while: alone the service
loses, a channel over it does not. Both have the same consumer with the same fault.

python examples/lossy_service.py nats://127.0.0.1:4222/readings          (redis://, mqtt://, zmq://, udp://, multicast://)
python examples/lossy_service.py nats://127.0.0.1:4222/readings --slow   (subscribed, but not reading for a while)
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable

from unerring import AsyncPublisher, AsyncSubscriber, ConsumerConfig, ProducerConfig, Start, TransportConfig
from unerring.runtime import open_inlet, open_outlet

AWAY = 300, 20
"""Messages, and bytes of each."""
SLOW = 6000, 20_000
MIB = 1024 * 1024
HASTY = TransportConfig(patience_us=100_000)
"""A producer that waits for nobody longer than a tenth of a second."""
KEEPING = ProducerConfig(buffer_bytes_max=256 * MIB, heartbeat_idle_us=20_000, heartbeat_pause_us_max=50_000)
PATIENT = ConsumerConfig(start=Start.EARLIEST, nack_pause_us_max=50_000, nack_attempts_max=1000)


def message(n: int, size: int) -> bytes:
    return (b"%d " % n).ljust(size, b".")


async def alone(url: str, count: int, size: int, slow: bool) -> int:
    """How many different messages come through the service itself."""
    outlet, got = open_outlet(url, HASTY), set()
    await outlet.open(lambda sender, data: None)

    async def subscribe():
        inlet = open_inlet(url)
        await inlet.open(lambda sender, data: got.add(int(data.split()[0])))
        return inlet

    inlet = await subscribe()
    for n in range(count):
        if n == count // 3:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(5):
                    await _until(lambda: count // 3 - 1 in got)  # what comes, has come
            if slow:
                inlet.pause_reading()
            else:
                await inlet.close()
        if n == 2 * count // 3 and not slow:
            inlet = await subscribe()
        await outlet.ready()
        outlet.push(message(n, size))
        await asyncio.sleep(0)
    inlet.resume_reading()
    while count - 1 not in got:  # the last one may be lost too: it is sent until it comes, behind all others
        outlet.push(message(count - 1, size))
        await asyncio.sleep(0.05)
    await inlet.close()
    await outlet.close()
    return len(got)


class Reader:
    """A consumer of a channel that can go away and come back to where it was, or stop reading for a while."""

    def __init__(self, url: str) -> None:
        self.got: list[int] = []
        self._url = url
        self._positions = {}
        self._reading = asyncio.Event()
        self._reading.set()

    async def come(self) -> None:
        self._events = await AsyncSubscriber[bytes](self._url, positions=self._positions, config=PATIENT).open()
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for event in self._events:
            self.got.append(int(event.value.split()[0]))
            self._events.accept(event)
            await self._reading.wait()

    def stop_reading(self) -> None:
        self._reading.clear()

    def go_on_reading(self) -> None:
        self._reading.set()

    async def go_away(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._positions = self._events.positions()
        await self._events.close()


async def with_a_channel(url: str, count: int, size: int, slow: bool) -> int:
    """The same through a channel: all of them, in order, once, or an exception."""
    async with AsyncPublisher[bytes](url, name="press", config=KEEPING, transport=HASTY) as out:
        reader = Reader(url)
        await reader.come()
        for n in range(count):
            if n == count // 3:
                if slow:
                    reader.stop_reading()
                else:
                    await _until(lambda: bool(reader.got))  # it has begun: its position is where it comes back to
                    await reader.go_away()
            if n == 2 * count // 3 and not slow:
                await reader.come()
            await out.publish(message(n, size))
            await asyncio.sleep(0)
        reader.go_on_reading()
        await _until(lambda: len(reader.got) >= count)
        await reader.go_away()
    assert reader.got == list(range(count)), "in order, once"
    return len(reader.got)


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def main(url: str, slow: bool = False) -> None:
    count, size = SLOW if slow else AWAY
    bare = asyncio.run(alone(url, count, size, slow))
    print(f"alone: {bare} of {count} came")
    reliable = asyncio.run(with_a_channel(url, count, size, slow))
    print(f"with a channel: {reliable} of {count}, in order, once")


if __name__ == "__main__":
    main(sys.argv[1], "--slow" in sys.argv[2:])
