"""How much later a situation comes around the moment at which other rules take over in a live run.

The log is fed as time goes by, in small segments; each event carries the moment at which it was sealed. A situation has
come when it is sealed, and the worst around the switch is compared with the worst before it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import live_w1
from unerring.app import LiveUpgrade, agree_on_upgrade, live, live_cluster, note_first, place_of, remember
from unerring.log import EventLog, LogWriter
from unerring.model import Event, Stamp, schema_of
from unerring.pipeline import agreed_upgrades
from unerring.rules import Typed
from unerring.runtime import LiveSupervisor

FEED_S = 0.02
BEFORE_S = 4.0
AFTER_S = 2.0
PATIENCE_S = 240.0


class _Feed:
    """Pairs of A and B of one key, one pair a segment."""

    def __init__(self, data: Path) -> None:
        self.writer = LogWriter(EventLog(data / "log"), schema_of(Typed), None, 1)
        self.number = 0
        self.stopped = False

    async def run(self) -> None:
        while not self.stopped:
            now_us, key = time.time_ns() // 1000, self.number % 1000
            events = [
                Event("Typed", Stamp(now_us + at), (key,), {"key": key, "type": kind, "v": time.monotonic()})
                for at, kind in enumerate("AB")
            ]
            for event in events:
                self.writer.append("0123456789abcdef", (0, self.number), event.stamp, event.payload, 0)
                self.number += 1
            self.writer.advance(events[-1].stamp.time, 0)
            self.writer.seal()
            await asyncio.sleep(FEED_S)


async def pause_s(data: Path, quick: bool = False) -> float:
    """Seconds by which the slowest situation around the switch is slower than the slowest before it."""
    place = place_of(data)
    remember(place, "live_w1:app")
    cluster = live_cluster.make_cluster("live_w1:app", 1, data)
    note_first(place, "live_w1:app", live_w1.app)
    supervisor = LiveSupervisor(cluster, data / "live", lambda name: live.command(data, name))
    running, feed = asyncio.create_task(supervisor.run()), _Feed(data)
    feeding = asyncio.create_task(feed.run())
    seen: list[tuple[int, float]] = []
    watching = asyncio.create_task(_watch(data, seen))
    step = LiveUpgrade(place, supervisor, 1, lambda callback: callback())
    try:
        await _until(lambda: len(seen) > (5 if quick else BEFORE_S / FEED_S))
        agree_on_upgrade(place, "live_w1:longer", live_w1.longer, prepared=True)
        await _until(lambda: bool(step.look()))
        step.conclude()
        at_us = agreed_upgrades(place.log)[-1].at_us
        await _until(lambda: seen[-1][0] > at_us + int(AFTER_S * 1e6))
    finally:
        feed.stopped = True
        watching.cancel()
        await asyncio.gather(watching, feeding, return_exceptions=True)
        supervisor.stop()
        await running
    near = [late_s for time_us, late_s in seen if abs(time_us - at_us) <= AFTER_S * 1e6]
    before = [late_s for time_us, late_s in seen[len(seen) // 10 :] if time_us < at_us - AFTER_S * 1e6]
    return max(0.0, max(near) - max(before, default=0.0))


async def _watch(data: Path, seen: list[tuple[int, float]]) -> None:
    """Note of each situation its time, and how long after its last event it was sealed."""
    chain = EventLog(data / "log").chain("W1")
    known_us = chain.refresh()
    while True:
        through_us = chain.refresh()
        if through_us > known_us:
            now_s, table = time.monotonic(), chain.read(known_us, through_us, None, ["b_v"])
            for time_us, published_s in zip(
                table.column("time").to_pylist(), table.column("b_v").to_pylist(), strict=True
            ):
                seen.append((time_us, now_s - published_s))
            known_us = through_us
        await asyncio.sleep(0.002)


async def _until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise TimeoutError("the upgrade does not get on")
        await asyncio.sleep(0.02)
