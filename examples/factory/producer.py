"""The plant's events on reliable channels, one for each stream, over lines that lose, double and reorder.

    python -m factory.producer FOLDER [--seed 1] [--events 20000] [--rate 500] [--loss 0.02] [--hold]

Prints the channels' addresses as one line of JSON; then, now and then, how many events it has published and how many
messages the lines have lost. When all are published every stream is complete, and it stays to answer consumers until
its standard input ends. With --hold it makes a break in the middle of its day, until a line comes there. Killed and
started again, it goes on where it was: its channels are durable.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

from factory.plant import Plant
from factory.streams import STREAMS
from unerring import AsyncPublisher, ProducerConfig, SqliteStorage
from unerring.runtime import Faults, lossy_outlet, open_outlet

DURABLE = ProducerConfig(durable=True, heartbeat_idle_us=100_000, heartbeat_pause_us_max=500_000)
TOGETHER = 50
BEHIND_US = 1_000
"""Events of one moment differ by microseconds, and their streams are not in step."""


async def produce(folder: Path, seed: int, events: int, rate: int, loss: float, port: int, hold: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    faults = Faults(loss=loss, duplication=loss, reordering=loss)
    async with AsyncExitStack() as stack:
        out: dict[str, AsyncPublisher] = {}
        lines = []
        for number, stream in enumerate(STREAMS):
            storage = SqliteStorage(folder / f"{stream.__name__}.sqlite")
            stack.callback(storage.close)
            line = lossy_outlet(open_outlet(f"tcp://127.0.0.1:{port + number if port else 0}"), faults, seed + number)
            lines.append(line)
            out[stream.__name__] = await stack.enter_async_context(
                AsyncPublisher(line, stream, name=f"plant {stream.__name__}", storage=storage, config=DURABLE)
            )
        _say({name: publisher.address for name, publisher in out.items()})
        async for published in _publish(out, Plant(seed), events, rate):
            _say((published, sum(line.lost for line in lines)))
            if hold and published >= events // 2:
                hold = not await asyncio.to_thread(sys.stdin.readline)
        await asyncio.to_thread(sys.stdin.read)


def _say(what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


async def _publish(out: dict[str, AsyncPublisher], plant: Plant, count: int, rate: int) -> AsyncIterator[int]:
    kinds = {stream.__name__: stream for stream in STREAMS}
    done = {name: publisher.last_time for name, publisher in out.items()}
    for number, event in enumerate(plant.events(count)):
        name, time_us = event.stream, event.stamp.time
        if time_us > done[name]:  # what an earlier incarnation has published is in its buffer
            await out[name].publish(kinds[name](**event.payload), at=time_us)
        if number % TOGETHER == TOGETHER - 1:
            # Every stream says that its past is complete: nobody waits for a stream that is rarely used.
            for publisher in out.values():
                await publisher.watermark(time_us - BEHIND_US)
            if number + 1 < count:
                yield number + 1
            await asyncio.sleep(TOGETHER / rate)
    for publisher in out.values():
        await publisher.end()
    yield count


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m factory.producer", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the channels keep what they may have to send again")
    parser.add_argument("--seed", type=int, default=1, help="another seed, another plant")
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--rate", type=int, default=500, help="events a second")
    parser.add_argument("--loss", type=float, default=0.02, help="how many messages the lines lose, of one")
    parser.add_argument("--port", type=int, default=0, help="the first of five ports; 0: any")
    parser.add_argument("--hold", action="store_true", help="half of them, then wait for a line on standard input")
    told = parser.parse_args()
    asyncio.run(produce(told.folder, told.seed, told.events, told.rate, told.loss, told.port, told.hold))


if __name__ == "__main__":
    main()
