"""The pipeline on S3 beside a folder: W1 in batch and streaming, in one run, taking turns.

S3 is a SeaweedFS of this run, on this machine: it takes its share of the same cores, and there is no network. A figure
is the best of its rounds, since other work on the machine only ever makes a round slower.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent))

from pipeline import BUCKETS, SCHEMA, write_events
from tests.s3 import S3Server
from unerring.log import EventLog
from unerring.model import TIME_MAX
from unerring.pipeline import Level, SparkConfig, detect_available, detect_batch, levels_of, start
from unerring.rules import W1

KINDS = {"batch": detect_batch, "stream": detect_available}


def run(quick: bool = False) -> Iterator[dict[str, Any]]:
    events, rounds = (200_000, 1) if quick else (8_000_000, 3)
    folder = Path(tempfile.mkdtemp(prefix="unerring-store-"))
    place = folder / "s3"
    place.mkdir()
    server = S3Server.start(place)
    before = dict(os.environ)
    os.environ.update(server.environment())  # before Spark starts: its workers have what it had
    try:
        spark = start(SparkConfig(master="local[2]", memory="2g", log=str(folder / "spark.log")), "bench")
        try:
            yield from _measure(spark, folder, events, rounds)
        finally:
            spark.stop()
    finally:
        os.environ.clear()
        os.environ.update(before)
        server.end()
        shutil.rmtree(folder, ignore_errors=True)


def _measure(spark: Any, folder: Path, events: int, rounds: int) -> Iterator[dict[str, Any]]:
    addresses = {"folder": str(folder / "data"), "s3": "s3://unerring/bench"}
    for address in addresses.values():
        write_events(f"{address}/events/log", events)
    best: dict[tuple[str, str], float] = {}
    found: set[int] = set()
    for number in range(-1, rounds):  # the first round only warms up
        for kind, play in KINDS.items():
            for where, address in addresses.items():
                name = f"{kind}-{number}"
                level = _level(f"{address}/{name}", f"{address}/events/log", folder / f"{where}-{name}")
                began = time.perf_counter()
                play(spark, level)
                took = time.perf_counter() - began
                if number >= 0 or rounds == 1:
                    best[where, kind] = min(best.get((where, kind), took), took)
                chain = level.log.chain("W1")
                found.add(sum(chain.footer(span).rows for span in chain.spans(chain.base.from_us, TIME_MAX)))
    if len(found) != 1:
        raise AssertionError(f"the rounds found {found} situations")
    for kind in KINDS:
        yield _figure(f"W1.{kind}.folder.rate", events / best["folder", kind], "events/s")
        yield _figure(f"W1.{kind}.s3.rate", events / best["s3", kind], "events/s")
        yield _figure(f"W1.{kind}.s3_over_folder", best["folder", kind] / best["s3", kind], "ratio", 0.7)


def _level(address: str, log: str, scratch: Path) -> Level:
    """The rule in a place of its own, whose log has the events by reference."""
    [level] = levels_of((W1.plan,), (SCHEMA,), address, BUCKETS, str(scratch))
    level.log.link(SCHEMA.name, EventLog(log))
    return level


def _figure(name: str, value: float, unit: str, goal: float | None = None) -> dict[str, Any]:
    return {
        "bench": "store",
        "figure": name,
        "value": value,
        "unit": unit,
        "goal": None if goal is None else f"≥ {goal}",
        "met": None if goal is None else value >= goal,
    }
