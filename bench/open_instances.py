"""Many open instances on three nodes: what they take in memory, a burst of starts, and a node that was killed; and
many that have ended, in the history of one node.

Each open instance waits for a message. Nodes have their usual settings. Ended instances are put on a node's disk as it
would have put them there, since a million executions would take hours; the node then starts, and is asked.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from unerring.model import Persist
from unerring.processes import Outline, Process, ProcessesConfig, State
from unerring.runtime import Embedded, SqliteStorage

NODES = ("n0", "n1", "n2")
SETTLE_S = 20.0
"""After a hundred thousand starts, until what followed them is over."""
STARTED_AT_ONCE = 5_000
FILLED_AT_ONCE = 10_000
LOOKED_AT_A_S = 50_000
"""Instances: to count them takes a node's time, too."""


def burst(
    quick: bool, folder: Path, trio_of: Callable[..., Any], figure: Callable[..., dict[str, Any]]
) -> Iterator[Any]:
    """A burst of starts, and a node that was killed; `trio_of` starts three nodes, `figure` makes a figure."""
    count = 20 if quick else 1_000
    with trio_of(folder / "burst", "usual", 2) as trio:
        before = totals(trio)
        took_s = float(trio.ask("n0", {"burst": "b", "count": count})["took_s"])
        yield figure("burst.starts_per_s", count / took_s, "instances/s")
        wait_open(trio, count)
        after = totals(trio)
        yield figure("burst.cpu_ms_a_start", (after["cpu_s"] - before["cpu_s"]) * 1000 / count, "ms")
        yield figure("burst.view_changes", after["view_changes"] - before["view_changes"], "views")
        yield figure("recovery.s", statistics.median(_recoveries(trio, count, 1 if quick else 3)), "s")


def opened(
    quick: bool, folder: Path, trio_of: Callable[..., Any], figure: Callable[..., dict[str, Any]], count: int = 100_000
) -> Iterator[Any]:
    """So many open instances, in two halves: what each takes must not grow with their number."""
    count = 60 if quick else count
    name = f"open_instances.{count}"
    with trio_of(folder / "open", "usual", 2) as trio:
        trio.ask("n0", {"burst": "warm", "count": 10})
        wait_open(trio, 10)
        sizes, began = [memory_mib(trio)], time.perf_counter()
        before = _idle_cpu(trio, 1.0 if quick else 5.0)
        for part in range(2):
            _start(trio, f"part{part}", count // 2, began)
            wait_open(trio, 10 + (part + 1) * count // 2)
            sizes.append(memory_mib(trio))
        yield figure(f"{name}.opened_s", time.perf_counter() - began, "s")
        yield figure(f"{name}.mib", sizes[-1] - sizes[0], "MiB")
        yield figure(f"{name}.kib_each_on_a_node", (sizes[-1] - sizes[0]) * 1024 / count / len(NODES), "KiB")
        grown = (sizes[2] - sizes[1]) / max(sizes[1] - sizes[0], 0.001)
        yield figure(f"{name}.second_half_over_first", grown, "ratio")
        if not quick:
            time.sleep(SETTLE_S)
        yield figure(f"{name}.idle_cpu", _idle_cpu(trio, 1.0 if quick else 20.0), "cores")
        yield figure(f"{name}.idle_cpu_with_ten_open", before, "cores")


def ended(
    quick: bool, folder: Path, trio_of: Callable[..., Any], figure: Callable[..., dict[str, Any]]
) -> Iterator[Any]:
    """Many instances in the history of a node, a thousand machines, one in a hundred failed."""
    count = 1_000 if quick else 1_000_000
    name = "history.million" if count == 1_000_000 else f"history.{count}"
    path = folder / "history.db"
    began = time.perf_counter()
    _fill(path, count)
    yield figure(f"{name}.filled_s", time.perf_counter() - began, "s")
    told = json.loads(subprocess.check_output([sys.executable, __file__, str(path), str(count)], text=True))
    yield figure(f"{name}.query_ms", told["query_ms"], "ms", 100.0)
    yield figure(f"{name}.query_rows", told["rows"], "rows")
    yield figure(f"{name}.query_without_index_ms", told["scan_ms"], "ms")
    yield figure(f"{name}.open_s", told["open_s"], "s")
    yield figure(f"{name}.mib", told["mib"], "MiB")


def _start(trio: Any, name: str, count: int, began: float) -> None:
    """In steps, so that whoever waits sees that it goes on."""
    for at in range(0, count, STARTED_AT_ONCE):
        trio.ask("n0", {"burst": f"{name}.{at}", "count": min(STARTED_AT_ONCE, count - at)})
        done = min(at + STARTED_AT_ONCE, count)
        sys.stderr.write(f"{name}: {done:,} of {count:,} started, {time.perf_counter() - began:.0f} s\n")


class Repair(msgspec.Struct):
    machine: str = ""
    n: int = 0


def _repairs() -> Process:
    process = Process("repair", state=Repair, attributes=["machine"])

    @process.action(writes="n")
    async def act(n: int) -> int:
        return n + 1

    return process.flow(act)


def _fill(path: Path, count: int) -> None:
    """An outline and a history of each, as a node keeps them."""
    process = _repairs()
    storage = SqliteStorage(path)
    for at in range(0, count, FILLED_AT_ONCE):
        puts: list[tuple[str, bytes]] = []
        for number in range(at, min(at + FILLED_AT_ONCE, count)):
            variables = {"machine": f"press-{number % 1_000}", "n": 1}
            status = "failed" if number % 100 == 0 else "completed"
            outline = Outline("repair", status, "", variables, "", process.graph.version, number)
            state = State(f"r{number}", "repair", process.graph.version, 1, (), (), variables, status=status)
            puts.append((f"r{number}|outline", msgspec.msgpack.encode(outline)))
            puts.append((f"r{number}|history", msgspec.msgpack.encode(state)))
        storage.write([Persist(tuple(puts))])
    storage.close()


async def _asked(path: str, count: int) -> dict[str, float]:
    """A node that starts with this history: until it is there, and what an answer takes; the median of some."""
    began = time.perf_counter()
    async with Embedded([_repairs()], path, config=ProcessesConfig(finished_max=2 * count)) as node:
        found = {"open_s": time.perf_counter() - began}
        took: list[float] = []
        for number in range(20):
            began = time.perf_counter()
            rows = await node.list(f"machine = 'press-{number * 37 % 1_000}' and status = 'completed'")
            took.append((time.perf_counter() - began) * 1000)
        began = time.perf_counter()
        scanned = await node.list("machine like 'press-77%' and ended_us < 100")
        found |= {"query_ms": statistics.median(took), "rows": len(rows)}
        found |= {"scan_ms": (time.perf_counter() - began) * 1000, "scanned": len(scanned)}
    status = Path("/proc/self/status").read_text().splitlines()
    return found | {"mib": next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024}


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
        time.sleep(max(0.02, count / LOOKED_AT_A_S))


def memory_mib(trio: Any) -> float:
    """What the three nodes have in memory."""
    return totals(trio)["rss_kib"] / 1024


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(_asked(sys.argv[1], int(sys.argv[2])))) + "\n")
