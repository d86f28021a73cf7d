"""What a live source publishes: the event log of the run's folder, from where its queue ends, in whole times.

So both gears see the same events, and a source keeps none of them itself: what it must send again, it reads again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from unerring.correlation.messages import Publish
from unerring.correlation.source import PRODUCER
from unerring.log import EventLog
from unerring.model import TIME_MIN, Event, StreamSchema
from unerring.runtime.live import Host

LOOK_S = 0.002
LOOK_S_MAX = 0.016
"""Nothing comes for a while: look less often. Somebody seals a segment every tenth of a second at most."""
PUBLISH_EVENTS = 1024


async def follow(data: Path, schema: StreamSchema, buckets: int, host: Host) -> None:
    """Hand the source what the log holds after its own position, as fast as receivers take it; for ever."""
    chain = EventLog(data / "log").create(schema, buckets)
    source: Any = host.driver.machine
    queue = source.outgoing.queues[schema.name]
    chain.check_reached(queue.watermark, f"the source of {schema.name}")
    done_us = max(queue.watermark, chain.base.from_us)
    pause_s = LOOK_S
    while True:
        reached_us = chain.refresh()
        if reached_us <= done_us:
            await asyncio.sleep(pause_s)
            pause_s = min(LOOK_S_MAX, pause_s * 1.5)
            continue
        pause_s = LOOK_S
        for span in chain.spans(done_us, reached_us):
            for events in pieces(chain, schema, max(done_us, span.from_us), span.through_us):
                fresh = tuple(event for event in events if event.stamp > queue.last)
                await _hand_over(host, source, queue, fresh, TIME_MIN)
            await _hand_over(host, source, queue, (), span.through_us)
            done_us = span.through_us


def pieces(chain: Any, schema: StreamSchema, from_us: int, through_us: int) -> Iterator[list[Event]]:
    """The events of an interval in pieces of about `PUBLISH_EVENTS`, none of which ends inside a time."""
    from unerring.log.tables import events_of

    table = chain.read(from_us, through_us)
    piece: list[Event] = []
    first = 0
    while first < len(table):
        part = table.slice(first, PUBLISH_EVENTS)
        first += len(part)
        piece += events_of(part, schema)
        cut = len(piece)
        if first < len(table):
            while cut and piece[cut - 1].stamp.time == piece[-1].stamp.time:
                cut -= 1
        if cut:
            yield piece[:cut]
            piece = piece[cut:]
    if piece:
        yield piece


async def _hand_over(host: Host, source: Any, queue: Any, events: tuple[Event, ...], progress: int) -> None:
    while source.full:
        await asyncio.sleep(LOOK_S)
    wanted = events[-1].stamp if events else None
    await host.driver.put(PRODUCER, Publish(queue.stream, events, progress))
    while (wanted is not None and queue.last < wanted) or queue.watermark < progress:
        await asyncio.sleep(0)
