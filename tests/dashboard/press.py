"""The plant's presses on a channel: `python -m tests.dashboard.press FOLDER EVENTS`.

Prints its address as the factory's producer does, and publishes once it is told to by a line, so that the run that
subscribes gets all of it. It stays to answer until its standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from factory.plant import Plant
from factory.producer import DURABLE
from factory.streams import Produced
from unerring import AsyncPublisher
from unerring.runtime.storage import SqliteStorage
from unerring.runtime.transports import Faults, lossy_outlet, open_outlet


async def produce(folder: Path, events: int) -> None:
    storage = SqliteStorage(folder / "press.sqlite")
    line = lossy_outlet(open_outlet("tcp://127.0.0.1:0"), Faults(loss=0.02, duplication=0.05), 3)
    async with AsyncPublisher(line, Produced, name="press", storage=storage, config=DURABLE) as out:
        print(json.dumps({"Produced": out.address}), flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        for event in Plant(seed=3).events(events):
            if event.stream == "Produced":
                await out.publish(Produced(**event.payload), at=event.stamp.time)
        await out.end()
        await asyncio.to_thread(sys.stdin.read)
    storage.close()


if __name__ == "__main__":
    asyncio.run(produce(Path(sys.argv[1]), int(sys.argv[2])))
