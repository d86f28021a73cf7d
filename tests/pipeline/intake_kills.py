"""Killing what brings files into a stream, at chosen moments, and starting it again until all is in."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from unerring.log import Answer, EventLog, Intaker, MemoryStore, Order, Quarantine, Taker, Times, Watermark

from .intake_driver import LATENESS_US, SCHEMA
from .kills import Driver, Window

MODULE = "pipeline.intake_driver"


def prepare(data: Path, seed: int, batches: int, rows: int = 400) -> list[pa.Table]:
    """Files of which each is a micro-batch: they overlap in time, have equal times, and some rows are late."""
    incoming = data / "incoming"
    incoming.mkdir(parents=True)
    draw = random.Random(seed)
    tables = []
    for number in range(batches):
        low = number * 200
        at = [draw.randint(low, low + 260) if draw.random() > 0.01 else draw.randint(0, low + 1) for _ in range(rows)]
        table = pa.table(
            {
                "at": pa.array(at, pa.int64()),
                "machine": [draw.choice("abcdefgh") if draw.random() > 0.01 else None for _ in range(rows)],
                "value": pa.array([draw.randint(0, 9) for _ in range(rows)], pa.int64()),
            }
        )
        tables.append(table)
        pq.write_table(table, incoming / f"{number}.parquet")
        os.utime(incoming / f"{number}.parquet", (1_000_000 + number, 1_000_000 + number))
    return tables


def undisturbed(tables: Sequence[pa.Table]) -> tuple[dict[str, bytes], dict[str, int]]:
    """What an intake without failures seals, byte by byte, and what it keeps out: the same steps, in this process."""
    store = MemoryStore()
    chain = EventLog(store).create(SCHEMA, 3)
    intaker = Intaker(chain, "stream", Times("at", "us"))
    for number, table in enumerate(tables, start=1):

        def tasks(order: Order, table: pa.Table = table) -> Sequence[Answer]:
            taker = Taker(store, order, 0)
            taker.take(table)
            return [taker.finish()]

        intaker.take(number, str(number), tasks, Watermark(LATENESS_US))
    folder = "Reading/segments"
    sealed = {name: store.read(f"{folder}/{name}") or b"" for name in store.names(folder)}
    return sealed, Quarantine(store, "Reading").counts()


def sealed_bytes(data: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((data / "log/Reading/segments").glob("*.parquet"))}


# Windows: what is on disk says where a micro-batch stands.


def runs_written(data: Path, batch: int) -> bool:
    return len(list((data / "log/Reading/parts").glob("*.parquet"))) > batch


def intake_made(data: Path, batch: int) -> bool:
    return any(data.glob(f"log/Reading/intake/*/{batch + 1:010d}.json"))


def sealed(data: Path, batch: int) -> bool:
    return len(list((data / "log/Reading/segments").glob("*.parquet"))) > batch


def planned(data: Path, batch: int) -> bool:
    return any(data.glob(f"ingest/*/offsets/{batch}"))


WINDOWS: dict[str, Window] = {
    "planned": planned,
    "runs written": runs_written,
    "intake made": intake_made,
    "sealed": sealed,
}


def storm(data: Path, master: str, blows: Sequence[tuple[str, str, int]]) -> list[tuple[str, str, int]]:
    """Kill victims (who, in which window, of which micro-batch); then run to the end. Which of them were hit."""
    hit: list[tuple[str, str, int]] = []
    for who, window, batch in blows:
        with Driver(data, master, 1, module=MODULE) as driver:
            if driver.kill_at(WINDOWS[window], batch, who):
                hit.append((who, window, batch))
            if not who.startswith("driver's") and driver.wait() == 0:
                return hit
    run_to_the_end(data, master)
    return hit


def run_to_the_end(data: Path, master: str, tries: int = 4) -> None:
    for _ in range(tries):
        with Driver(data, master, 1, module=MODULE) as driver:
            if driver.wait() == 0:
                return
    raise AssertionError((data / "driver.log").read_text()[-4000:])
