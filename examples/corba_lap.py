"""A lap of the ring: a CORBA event channel (omniEvents) loses 1024 events, and nothing shows. With the channel: none.

python examples/corba_lap.py        starts omniEvents privately (apt install omnievents) and stops it again
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator

from unerring import AsyncPublisher, AsyncSubscriber, ConsumerConfig, Start
from unerring.runtime import EventChannel, GiopClient, GiopConfig, channel_named, open_inlet, read_pulled, write_event

LAP = 1024
PORT_WITHIN_S = 30.0


@contextlib.asynccontextmanager
async def omnievents() -> AsyncIterator[int]:
    """A private omniEvents; its port."""
    program = shutil.which("omniEvents", path="/usr/sbin:/usr/bin:/usr/local/sbin")
    if program is None:
        raise SystemExit("omniEvents is not there; apt install omnievents")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "-f", "-p", str(port), "-l", folder, "-t", f"{folder}/trace.txt"]
        process = subprocess.Popen(command)
        try:
            async with asyncio.timeout(PORT_WITHIN_S):
                while not await _answers(port):
                    await asyncio.sleep(0.02)
            yield port
        finally:
            process.kill()
            process.wait()


async def _answers(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    await writer.wait_closed()
    return True


@contextlib.asynccontextmanager
async def bare_channel(port: int, name: str) -> AsyncIterator[EventChannel]:
    """The event service alone, as any CORBA program uses it."""
    client = GiopClient("127.0.0.1", port, GiopConfig())
    await client.connect()
    try:
        yield await channel_named(client, name)
    finally:
        await client.close()


async def pass_on(channel: EventChannel, data: bytes) -> None:
    """Push an event, and wait until the channel has passed it on, and with it all that came before."""
    watcher, supplier = await channel.pull_supplier(), await channel.push_consumer()
    await channel.client.call(supplier, "push", write_event(data))
    seen: bytes | None = None
    while seen != data:
        seen, there = read_pulled(await channel.client.call(watcher, "try_pull"))
        if not there:
            await asyncio.sleep(0.001)


async def without_us(port: int) -> list[int]:
    """An idle pull consumer, 1024 events pushed, then one more; what the consumer gets."""
    async with bare_channel(port, "bare") as channel:
        call = channel.client.call
        reader, supplier = await channel.pull_supplier(), await channel.push_consumer()
        for number in range(1, LAP + 1):
            await call(supplier, "push", write_event(b"%d" % number))
        await pass_on(channel, b"%d" % (LAP + 1))
        got: list[int] = []
        while not got or got[-1] != LAP + 1:
            data, there = read_pulled(await call(reader, "try_pull"))
            if there and data is not None:
                got.append(int(data))
        return got


async def with_us(port: int) -> tuple[list[int], int]:
    """The same over the reliable channel: what the consumer gets, and how many of it were repaired."""
    url = f"corba-pull://127.0.0.1:{port}/reliable"
    inlet = open_inlet(url)
    earliest = ConsumerConfig(start=Start.EARLIEST)
    async with AsyncPublisher[bytes](url) as out, AsyncSubscriber[bytes](inlet, config=earliest) as events:
        inlet.pause_reading()
        for number in range(1, LAP + 2):
            await out.publish(b"%d" % number)
            await asyncio.sleep(0)  # or all of them would travel as few messages, and there would be no lap
        async with bare_channel(port, "reliable") as channel:
            await pass_on(channel, b"another program's")
        inlet.resume_reading()
        got = [int((await anext(events)).value) for _ in range(LAP + 1)]
        return got, out.reports["channel.replayed"]


async def demonstrate() -> tuple[list[int], list[int]]:
    async with omnievents() as port:
        bare = await without_us(port)
        print(f"without the channel: {LAP + 1} events pushed, {len(bare)} pulled, the first is number {bare[0]}")
        reliable, repaired = await with_us(port)
        in_order = reliable == list(range(1, LAP + 2))
        print(f"with the channel:    {LAP + 1} events published, {len(reliable)} received, in order: {in_order}")
        print(f"                     {repaired} of them were lost by the service and repaired by the producer")
        return bare, reliable


if __name__ == "__main__":
    asyncio.run(demonstrate())
