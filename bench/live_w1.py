"""W1 in the live engine, for the benchmark of correlation: the app, and processes that pace and record.

Called as a program it is one process of such a run, `python live_w1.py DATA NAME EVENTS_PER_S PAUSE_S`. The source
publishes so many a second, one by one, or in bursts with so long a pause between two, each with the moment at which it
did so in `v`; the application writes down that moment and the one at which it had committed the situation.
"""

from __future__ import annotations

import asyncio
import struct
import sys
import time
from pathlib import Path
from typing import Any

from unerring.app import App, live, place_of
from unerring.correlation import PRODUCER, Application, Publish, Role, Source, node_of
from unerring.model import TIME_MIN, Event, Stamp
from unerring.rules import W1, Typed, last, rule, step, time_of
from unerring.runtime import Host, SqliteStorage, cluster as clusters, dotted

app = App("w1", rules=[W1], streams=[Typed], buckets=4)
_a, _b = step("a", Typed, Typed.type == "A"), step("b", Typed, Typed.type == "B")
Longer = (
    rule("W1")
    .pattern(_a.then(_b).within(seconds=11))
    .select("recent")
    .emit(began=time_of(last(_a)), a_v=last(_a).v, b_v=last(_b).v)
)
longer = App("w1", rules=[Longer], streams=[Typed], buckets=4)
"""The same with a second more, for an upgrade."""
DELIVERED = struct.Struct("<dd")
"""When the deciding event was published, and when the situation was committed: seconds of the machine's clock."""


async def run_node(data: Path, name: str, rate: float, pause_s: float) -> None:
    cluster = clusters.read(data / "live")
    role = cluster.topology.node(node_of(name)).role
    if role is Role.CORRELATION:
        await live.run_node(place_of(data), name)
        return
    storage = SqliteStorage(data / "live" / f"{dotted(name)}.db")
    beside: Any = None
    deliver: Any = None
    machine: Any
    if role is Role.SOURCE:
        machine = Source(storage.load(), name, cluster.topology, cluster.config, follows=True)
        beside = lambda: _pace(host, machine, rate, pause_s)  # noqa: E731
    else:
        machine = Application(storage.load(), name, cluster.topology, cluster.config)
        record = (data / "delivered").open("ab", buffering=0)

        def deliver(event: Event) -> None:
            record.write(DELIVERED.pack(event.payload["b_v"], time.monotonic()))

    host = Host(cluster, name, machine, storage, deliver)
    await host.run(data / "live" / "status" / f"{dotted(name)}.json", beside)


async def _pace(host: Host, source: Any, rate: float, pause_s: float) -> None:
    """A, B, A, B, two of a key at a time: every second event decides a situation."""
    began_s, number = time.monotonic(), 0
    burst = max(1, int(rate * pause_s))
    while True:
        due = int((time.monotonic() - began_s) * rate) // burst * burst
        while number < due and not source.full:
            kind = "A" if number % 2 == 0 else "B"
            key = number // 2 % 1000
            stamp = Stamp(1 + int(number * 1_000_000 / rate))
            event = Event("Typed", stamp, (key,), {"key": key, "type": kind, "v": time.monotonic()})
            host.driver.offer(PRODUCER, Publish("Typed", (event,), TIME_MIN))
            number += 1
        await asyncio.sleep(max(0.0, began_s + (number + burst) / rate - time.monotonic()))


if __name__ == "__main__":
    asyncio.run(run_node(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), float(sys.argv[4])))
