"""The log on a folder and on S3: what sealing costs, how long opening takes after many segments, and how much it holds.

A log of 1 000 segments is sealed and compacted as it is. Of one of 100 000 and more, what the first step of compaction
leaves (an object for each 1024 segments) is written at once, and compaction does the rest; the newest segments are
sealed. S3 is a SeaweedFS of this run, on this machine: its figures are of one host without a network.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent))

import scale
import secret
import state
from tests.s3 import S3Server
from unerring.app import RootSealer, place_of, verify
from unerring.log import (
    COMPACTED,
    Chain,
    Compactor,
    EventLog,
    Footer,
    LocalStore,
    Merged,
    Store,
    arrow_schema,
    compact,
    encode_buckets,
    entry_of,
    object_name,
    requests_made,
    store_at,
    with_origin,
)
from unerring.model import schema_of
from unerring.rules import Typed

SCHEMA = schema_of(Typed)
BUCKETS = 4
STEP_US = 100_000
"""A segment each tenth of a second."""
PER_SEGMENT = 50
PER_OBJECT = 1024
"""As many segments as compaction merges at once."""
NEWEST = 64
LATER_US = 2 * 3600 * 1_000_000


def run(quick: bool = False) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="unerring-log-") as name:
        yield from _measure("", LocalStore(Path(name) / "folder"), quick)
        yield from _verifying(Path(name) / "run", 20 if quick else 400)
        with _s3(Path(name)) as store:
            yield from _measure("s3.", store, quick)
    for figures in (state.run(quick), scale.run(quick), secret.run(quick)):
        for figure in figures:
            yield {**figure, "bench": "log"}


def _measure(prefix: str, store: Store, quick: bool) -> Iterator[dict[str, Any]]:
    sizes = [100, 2048] if quick else [1000, 100_000, 1_000_000]
    yield from _sealing(prefix, store.within("sealing"), 50 if quick else 1000)
    sealed = _sealed(store.within("sealed"), sizes[0])
    yield _figure(f"{prefix}open.{sizes[0]}.ms", _open_ms(store.within("sealed")), "ms")
    yield _figure(f"{prefix}bytes_per_event_ratio", _bytes_ratio(sealed), "ratio", 1.2)
    for segments in sizes[1:]:
        inside = store.within(f"log-{segments}")
        _long(inside, segments)
        yield _figure(f"{prefix}open.{segments}.ms", _open_ms(inside), "ms", 1000 if segments >= 1_000_000 else None)
    before = sum(requests_made().values())
    _open_ms(store.within(f"log-{sizes[-1]}"), 1)
    if prefix:
        yield _figure(f"{prefix}open.{sizes[-1]}.requests", sum(requests_made().values()) - before, "requests")


@contextmanager
def _s3(folder: Path) -> Iterator[Store]:
    place = folder / "s3"
    place.mkdir()
    server = S3Server.start(place)
    before = dict(os.environ)
    os.environ.update(server.environment())
    try:
        yield store_at("s3://unerring/bench")
    finally:
        os.environ.clear()
        os.environ.update(before)
        server.end()


# ---- sealing ----------------------------------------------------------------------------------------------------


def _sealing(prefix: str, store: Store, count: int) -> Iterator[dict[str, Any]]:
    chain = EventLog(store).create(SCHEMA, BUCKETS)
    taken: list[float] = []
    for number in range(count):
        table = _rows(number, 1, PER_SEGMENT)
        began = time.perf_counter()
        chain.seal((number + 1) * STEP_US, table)
        taken.append(1000 * (time.perf_counter() - began))
    p50, p99 = np.percentile(taken, [50, 99])
    yield _figure(f"{prefix}seal.p50_ms", float(p50), "ms")
    yield _figure(f"{prefix}seal.p99_ms", float(p99), "ms")


def _rows(first: int, segments: int, per_segment: int) -> pa.Table:
    """Events of so many segments, from one on: an event each few milliseconds, of a thousand keys."""
    drawn = np.random.default_rng(first)
    count = segments * per_segment
    times = np.sort(drawn.integers(first * STEP_US + 1, (first + segments) * STEP_US, count))
    same = np.concatenate([[False], times[1:] == times[:-1]])
    run_start = np.maximum.accumulate(np.where(same, 0, np.arange(count)))
    table = pa.table(
        {
            "time": times,
            "ordinal": np.arange(count) - run_start,
            "key": drawn.integers(0, 1000, count),
            "type": pa.array(np.array(["A", "B", "C", "D"])[drawn.integers(0, 4, count)]),
            "v": drawn.random(count),
        }
    )
    return with_origin(table, SCHEMA)


# ---- opening ----------------------------------------------------------------------------------------------------


def _open_ms(store: Store, rounds: int = 5) -> float:
    """Opening a log as a process does that starts: what is there, and its newest segment."""
    taken: list[float] = []
    for _ in range(rounds):
        began = time.perf_counter()
        EventLog(store).chain(SCHEMA.name).last()
        taken.append(1000 * (time.perf_counter() - began))
    return statistics.median(taken)


def _sealed(store: Store, segments: int) -> Chain:
    chain = EventLog(store).create(SCHEMA, BUCKETS)
    for number in range(segments):
        chain.seal((number + 1) * STEP_US, _rows(number, 1, PER_SEGMENT))
    compact(chain)
    _sweep(chain)
    return chain


def _sweep(chain: Chain) -> None:
    """Let go what compaction replaced, as after the grace time."""
    later = Compactor(chain, now_us=lambda: time.time_ns() // 1000 + LATER_US)
    while later.step():
        pass


def _long(store: Store, segments: int) -> None:
    """A log after so many segments: merged ones, and the newest as they were sealed."""
    chain = EventLog(store).create(SCHEMA, BUCKETS)
    compactor = Compactor(chain)
    entries, before = [], ""
    from_us = chain.through_us
    for first in range(0, segments - NEWEST, PER_OBJECT):
        merged = min(PER_OBJECT, segments - NEWEST - first)
        through_us = (first + merged) * STEP_US
        entry = _object(chain, from_us, through_us, _rows(first, merged, 5), merged, before)
        from_us, before = through_us, entry.sealed
        entries.append(entry)
        if len(entries) == 64:
            compactor.commit(entries)
            entries = []
    compactor.commit(entries)
    while compactor.step():
        pass
    _sweep(chain)
    for number in range(segments - NEWEST, segments):
        chain.seal((number + 1) * STEP_US, _rows(number, 1, 5))


def _object(chain: Chain, from_us: int, through_us: int, rows: pa.Table, segments: int, before: str) -> Any:
    """The object that compaction makes of so many segments."""
    columns = arrow_schema(SCHEMA)
    buckets = chain.spread.of_columns([rows.column(name) for name in SCHEMA.key], len(rows))
    tables = [rows.filter(pa.array(buckets == bucket)).combine_chunks() for bucket in range(BUCKETS)]
    sealed = f"{through_us:032x}"
    draft = Footer(
        stream=SCHEMA.name,
        from_us=from_us,
        through_us=through_us,
        rows=len(rows),
        groups=(),
        before=before,
        ranges=chain.spread.ranges,
        merged=Merged(segments, sealed, ()),
    )
    data, footer = encode_buckets(tables, columns, draft)
    name = object_name(from_us, through_us, chain.index.number + 1)
    chain.store.create(f"{chain.folder}/{COMPACTED}/{name}", data)
    return entry_of(footer, len(data), name)


# ---- verifying --------------------------------------------------------------------------------------------------


def _verifying(folder: Path, segments: int) -> Iterator[dict[str, Any]]:
    """`unerring verify` of a run with its roots, over reading all of its events, in turns: fresh segments of 5 000
    events, and then the same log compacted."""
    chain = EventLog(folder / "log").create(SCHEMA, BUCKETS)
    for number in range(segments):
        chain.seal((number + 1) * STEP_US, _rows(number, 1, 5000))
    RootSealer(place_of(folder)).seal()
    yield _figure("verify_over_read.ratio", _verify_ratio(folder), "ratio", 1.3)
    compact(chain)
    _sweep(chain)
    yield _figure("verify_over_read.compacted.ratio", _verify_ratio(folder), "ratio", 1.3)


def _verify_ratio(folder: Path) -> float:
    reading: list[float] = []
    verifying: list[float] = []
    for _ in range(5):
        began = time.perf_counter()
        chain = EventLog(folder / "log").chain(SCHEMA.name)
        for span in chain.spans(chain.base.from_us, chain.through_us):
            chain.read(span.from_us, span.through_us)
        reading.append(time.perf_counter() - began)
        began = time.perf_counter()
        assert not verify(folder).damage
        verifying.append(time.perf_counter() - began)
    return statistics.median(verifying) / statistics.median(reading)


# ---- bytes ------------------------------------------------------------------------------------------------------


def _bytes_ratio(chain: Chain) -> float:
    """All bytes of a stream's folder over those of its rows in one Parquet file of the same kind."""
    table = chain.read(chain.base.from_us, chain.through_us)
    plain = pa.BufferOutputStream()
    texts = [field.name for field in table.schema if pa.types.is_string(field.type)]
    pq.write_table(table, plain, compression="lz4", use_dictionary=texts)
    return _bytes_below(chain.store, chain.folder) / plain.tell()


def _bytes_below(store: Store, folder: str) -> int:
    total = 0
    for name in store.names(folder):
        data = store.read(f"{folder}/{name}") if "." in name else None
        total += _bytes_below(store, f"{folder}/{name}") if data is None else len(data)
    return total


def _figure(name: str, value: float, unit: str, goal: float | None = None) -> dict[str, Any]:
    met = None if goal is None else value <= goal
    shown = None if goal is None else f"≤ {goal:g}"
    return {"bench": "log", "figure": name, "value": round(value, 4), "unit": unit, "goal": shown, "met": met}
