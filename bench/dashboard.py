"""What watching costs: the status document of a run with a hundred nodes, ten thousand instances and a thousand
situations a second, as the dashboard reads and encodes it twice a second.

CPU time, all threads: what a dashboard takes away from the machine that it watches.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from unerring.app import RunStatus
from unerring.dashboard import LOOK_S, Watch

PER_S = 1_000
BURST = 100_000
SHARE_MAX = 0.1
"""Of one core."""


def run(quick: bool = False) -> Iterator[dict[str, Any]]:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from tests.dashboard.crowd import Writer, many_instances, many_nodes

    with tempfile.TemporaryDirectory(prefix="unerring-watch-") as name:
        data = Path(name)
        many_nodes(data)
        many_instances(data, 100 if quick else 10_000)
        writer = Writer(data, "R0")
        writer.seal(100 if quick else 20_000)
        yield from asyncio.run(_watched(data, writer.seal, quick))


async def _watched(data: Path, seal: Callable[[int], None], quick: bool) -> list[dict[str, Any]]:
    watch = Watch(RunStatus(data))
    first_s = await _cpu_s(watch.look)
    quiet_s = [await _cpu_s(watch.look) for _ in range(3 if quick else 40)]
    busy_s = []
    for _ in range(3 if quick else 40):
        seal(round(PER_S * LOOK_S))
        busy_s.append(await _cpu_s(watch.look))
    burst = 1_000 if quick else BURST
    seal(burst)
    burst_s = await _cpu_s(watch.look) - statistics.median(quiet_s)
    look_s = statistics.median(busy_s)
    return [
        _figure("first_look", first_s * 1e3, "ms"),
        _figure("look.quiet", statistics.median(quiet_s) * 1e3, "ms"),
        _figure("look.thousand_situations_per_s", look_s * 1e3, "ms"),
        _figure("share_of_a_core", look_s / LOOK_S, "ratio", SHARE_MAX),
        _figure("situations", burst / max(burst_s, 1e-6), "situations/s"),
        _figure("document", len(msgspec.json.encode(watch.document)) / 1024, "KiB"),
    ]


async def _cpu_s(action: Callable[[], Awaitable[Any]]) -> float:
    began_s = time.process_time()
    await action()
    return time.process_time() - began_s


def _figure(name: str, value: float, unit: str, goal: float | None = None) -> dict[str, Any]:
    met = None if goal is None else value <= goal
    said = None if goal is None else f"≤ {goal:g}"
    return {"bench": "dashboard", "figure": name, "value": value, "unit": unit, "goal": said, "met": met}
