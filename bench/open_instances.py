"""Many open instances on three nodes: what they take in memory, a burst of starts, and a node that was killed.

Each instance waits for a message. Nodes have their usual settings.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

NODES = ("n0", "n1", "n2")


def figures(
    quick: bool, folder: Path, trio_of: Callable[..., Any], figure: Callable[..., dict[str, Any]]
) -> Iterator[Any]:
    """All figures; `trio_of` starts three nodes, `figure` makes a figure."""
    count, burst = (60, 20) if quick else (10_000, 1_000)
    with trio_of(folder / "open", "usual", 2) as trio:
        trio.ask("n0", {"burst": "warm", "count": 10})
        wait_open(trio, 10)
        sizes = [memory_mib(trio)]
        for part in range(2):
            trio.ask("n0", {"burst": f"part{part}", "count": count // 2})
            wait_open(trio, 10 + (part + 1) * count // 2)
            sizes.append(memory_mib(trio))
        yield figure("open_instances.count", count, "instances")
        yield figure("open_instances.mib", sizes[-1] - sizes[0], "MiB")
        yield figure("open_instances.kib_each_on_a_node", (sizes[-1] - sizes[0]) * 1024 / count / len(NODES), "KiB")
        grown = (sizes[2] - sizes[1]) / max(sizes[1] - sizes[0], 0.001)
        yield figure("open_instances.second_half_over_first", grown, "ratio")
        yield figure("open_instances.idle_cpu_of_a_node", _idle_cpu(trio, 1.0 if quick else 10.0), "cores")
    with trio_of(folder / "burst", "usual", 2) as trio:
        before = totals(trio)
        took_s = float(trio.ask("n0", {"burst": "b", "count": burst})["took_s"])
        yield figure("burst.starts_per_s", burst / took_s, "instances/s")
        wait_open(trio, burst)
        after = totals(trio)
        yield figure("burst.cpu_ms_a_start", (after["cpu_s"] - before["cpu_s"]) * 1000 / burst, "ms")
        yield figure("burst.view_changes", after["view_changes"] - before["view_changes"], "views")
        yield figure("recovery.s", statistics.median(_recoveries(trio, burst, 1 if quick else 3)), "s")


def _recoveries(trio: Any, count: int, times: int) -> list[float]:
    """From kill -9 of a node until it is back, knows what is decided of every instance, and each is led by somebody."""
    found = []
    for number in range(times):
        name = NODES[number % len(NODES)]
        trio.running[name].kill()
        began = time.perf_counter()
        trio.running.pop(name).wait()
        trio.start(name)
        wait_open(trio, count)
        found.append(time.perf_counter() - began)
    return found


def totals(trio: Any) -> dict[str, float]:
    """Of the three nodes together."""
    told = [trio.ask(name, {"open": True}) for name in NODES]
    return {key: sum(float(one[key]) for one in told) for key in told[0]}


def _idle_cpu(trio: Any, seconds: float) -> float:
    """What a node does while all instances wait."""
    before, began = totals(trio), time.perf_counter()
    time.sleep(seconds)
    return (totals(trio)["cpu_s"] - before["cpu_s"]) / (time.perf_counter() - began) / len(NODES)


def wait_open(trio: Any, count: int) -> None:
    """Every node knows what is decided of all, and together they lead all."""
    while True:
        told = [trio.ask(name, {"open": True}) for name in NODES]
        if all(one["decided"] >= count for one in told) and sum(one["led"] for one in told) >= count:
            return
        time.sleep(0.02)


def memory_mib(trio: Any) -> float:
    """What the three nodes have in memory."""
    return totals(trio)["rss_kib"] / 1024
