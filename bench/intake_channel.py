"""Events from publishers to sealed segments: how many one writer takes, what many producers cost it, how long it takes.

The publisher is a process of its own. What counts is the CPU time of the process that takes, merges and seals: beside
other load, wall time says little.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from unerring import Publisher, Start, schema_of
from unerring.app import Feeds
from unerring.log import EventLog, LogWriter, MemoryStore
from unerring.rules import Typed

EVENTS_PER_S_GOAL = 300_000
RATIO_GOAL = 1.5
LATENCY_MS_GOAL = 150.0
_BATCH = 1000

PUBLISH = """
import sys
from unerring import Publisher
from unerring.rules import Typed
count = int(sys.argv[1])
with Publisher("tcp://127.0.0.1:0", Typed, name="bench") as out:
    print(out.address, flush=True)
    sys.stdin.readline()
    for first in range(0, count, 1000):
        out.publish_many([Typed(i % 997, "ABCD"[i % 4], 0.5) for i in range(first, first + 1000)])
    out.watermark()
    print("done", flush=True)
    sys.stdin.readline()
"""


def _until(condition: Callable[[], bool]) -> None:
    quiet = threading.Event()
    while not condition():
        quiet.wait(0.005)


def throughput(count: int) -> float:
    """Events for each second of CPU time, from the socket to the sealed segment."""
    with tempfile.TemporaryDirectory() as folder:
        log = EventLog(folder)
        publisher = subprocess.Popen(
            [sys.executable, "-c", PUBLISH, str(count)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert publisher.stdin is not None
        assert publisher.stdout is not None
        address = publisher.stdout.readline().strip()
        feeds = Feeds(log, {"Typed": address}, {"Typed": schema_of(Typed)}, 4, start=Start.EARLIEST)
        feeds.start()
        chain = log.create(schema_of(Typed), 4)
        began_s = time.process_time()
        publisher.stdin.write("\n")
        publisher.stdin.flush()
        publisher.stdout.readline()
        last_us = time.time_ns() // 1000 - 2_000_000
        rows = 0
        while rows < count:
            threading.Event().wait(0.05)
            if chain.refresh() > last_us:
                rows = chain.count(chain.base.from_us, chain.through_us)
        spent_s = time.process_time() - began_s
        feeds.stop()
        publisher.stdin.close()
        publisher.wait()
        return count / spent_s


def merging_cpu_s(producers: int, count: int) -> float:
    """CPU seconds to merge and seal the same events, dealt out to some producers in batches of the same size."""
    payload = msgspec.msgpack.encode([1, "A", 0.5])
    writer = LogWriter(EventLog(MemoryStore()), schema_of(Typed), buckets=4)
    sequences = [1] * producers
    began_s = time.process_time()
    for number, first in enumerate(range(0, count, 100)):
        who = number % producers
        writer.take(f"{who:016x}", 1, sequences[who], range(first, first + 100), [payload] * 100, None, number)
        sequences[who] += 100
        if number % 200 == 199:
            writer.seal()
    for who in range(producers):
        writer.end(count, f"{who:016x}")
    writer.seal()
    assert writer.chain.count(writer.chain.base.from_us, writer.chain.through_us) == count
    return time.process_time() - began_s


def latency_ms(count: int) -> float:
    """The median time from publishing an event to its being sealed, one at a time."""
    taken: list[float] = []
    with tempfile.TemporaryDirectory() as folder, Publisher("tcp://127.0.0.1:0", Typed) as out:
        log = EventLog(folder)
        feeds = Feeds(log, {"Typed": out.address}, {"Typed": schema_of(Typed)}, 4, start=Start.EARLIEST)
        feeds.start()
        chain = log.create(schema_of(Typed), 4)
        for _ in range(count):
            began_s, at_us = time.monotonic(), time.time_ns() // 1000
            out.publish(Typed(1, "A", 0.5))
            _until(lambda: chain.refresh() >= at_us)  # noqa: B023
            taken.append((time.monotonic() - began_s) * 1000)
        feeds.stop()
    return statistics.median(taken)


def channel_figures(quick: bool) -> Iterator[dict[str, Any]]:
    count = 20_000 if quick else 400_000
    yield _figure("channel.events_per_s", throughput(count), "events/s of CPU time", EVENTS_PER_S_GOAL, more=True)
    merging_cpu_s(10, 10_000)  # imports are no part of it
    rounds = [(merging_cpu_s(1000, count), merging_cpu_s(1, count)) for _ in range(1 if quick else 3)]
    yield _figure("producers.1000.cpu_ratio", min(many / one for many, one in rounds), "ratio", RATIO_GOAL)
    yield _figure("latency.p50_ms", latency_ms(5 if quick else 100), "ms", LATENCY_MS_GOAL)


def _figure(figure: str, value: float, unit: str, goal: float, more: bool = False) -> dict[str, Any]:
    met = value >= goal if more else value <= goal
    return {"bench": "intake", "figure": figure, "value": value, "unit": unit, "goal": goal, "met": met}
