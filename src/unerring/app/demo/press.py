"""The demonstration's producer, a process of its own: `python -m unerring.app.demo.press URL FOLDER RATE`.

A line on its standard input makes it fall silent (it still answers consumers), a second one makes it end cleanly.
The journal in FOLDER says what it published: a line is written before the event is, so that the judge knows of every
event that can have been sent.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from unerring.model import stream
from unerring.runtime.channel import AsyncPublisher
from unerring.runtime.storage import SqliteStorage

JOURNAL = "published.txt"


@stream(key="machine")
class Pressed:
    """A part left a press."""

    machine: str
    epoch: int
    number: int


def read_journal(folder: Path) -> dict[int, int]:
    """How many events each epoch has published, at the most."""
    counts: dict[int, int] = {}
    for line in (folder / JOURNAL).read_text().splitlines():
        epoch, number = line.split()
        counts[int(epoch)] = max(counts.get(int(epoch), 0), int(number))
    return counts


async def main(url: str, folder: Path, rate: int) -> None:
    storage = SqliteStorage(folder / "press.sqlite")
    silent, ended = asyncio.Event(), asyncio.Event()
    orders = asyncio.create_task(_take_orders(silent, ended))
    with (folder / JOURNAL).open("a") as journal:
        async with AsyncPublisher(url, Pressed, name="press", storage=storage) as out:
            sys.stdout.write(f"{out.address} {out.epoch}\n")
            sys.stdout.flush()
            number = 0
            while not silent.is_set():
                for _ in range(10):
                    number += 1
                    journal.write(f"{out.epoch} {number}\n")
                    journal.flush()
                    await out.publish(Pressed(f"press-{number % 7}", out.epoch, number))
                await asyncio.sleep(10 / rate)
            await ended.wait()
    await orders
    storage.close()


async def _take_orders(silent: asyncio.Event, ended: asyncio.Event) -> None:
    for order in (silent, ended):
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        order.set()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
