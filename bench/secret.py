"""What a secret column costs: sealing and reading a stream that has one, over the same stream without, in turns."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from unerring.log import KEYS_VARIABLE, EventLog, MemoryStore, new_ring, with_origin
from unerring.model import Column, ColumnType, StreamSchema

COLUMNS = (
    Column("key", ColumnType.INT),
    Column("type", ColumnType.TEXT),
    Column("v", ColumnType.FLOAT, True),
)
BUCKETS, SEGMENTS, ROUNDS = 4, 20, 5


def run(quick: bool = False) -> Iterator[dict[str, Any]]:
    """Ratios, and the CPU time of one value: keys of streams are a thousand, so each is looked up in memory."""
    count = 4_000 if quick else 200_000
    plain, secret = (StreamSchema("Typed", COLUMNS, ("key",), secret=hidden) for hidden in ((), ("v",)))
    before = os.environ.get(KEYS_VARIABLE)
    with tempfile.TemporaryDirectory(prefix="unerring-secret-") as folder:
        new_ring(Path(folder) / "ring")
        os.environ[KEYS_VARIABLE] = str(Path(folder) / "ring")
        try:
            rounds = [(_cpu_s(plain, count), _cpu_s(secret, count)) for _ in range(1 if quick else ROUNDS)]
        finally:
            os.environ.pop(KEYS_VARIABLE)
            if before is not None:
                os.environ[KEYS_VARIABLE] = before
    for at, what in enumerate(("seal", "read")):
        ours, theirs = min(one[1][at] for one in rounds), min(one[0][at] for one in rounds)
        yield _figure(f"secret.{what}_over_plain.ratio", ours / theirs, "ratio")
        yield _figure(f"secret.{what}.us_per_value", (ours - theirs) / count * 1e6, "µs")


def _cpu_s(schema: StreamSchema, count: int) -> tuple[float, float]:
    rng = np.random.default_rng(7)
    columns = {
        "time": np.cumsum(rng.integers(1, 5, count)),
        "ordinal": np.zeros(count, np.int64),
        "key": rng.integers(0, 1000, count),
        "type": rng.choice(["A", "B", "C", "D"], count),
        "v": rng.random(count),
    }
    rows = with_origin(pa.table(columns), schema)
    chain = EventLog(MemoryStore()).create(schema, BUCKETS)
    began = time.process_time()
    for first in range(0, count, count // SEGMENTS):
        part = rows.slice(first, count // SEGMENTS)
        chain.seal(part.column("time")[-1].as_py(), part)
    sealed = time.process_time()
    for bucket in range(BUCKETS):
        chain.read(chain.base.from_us, chain.through_us, bucket, ["key", "type", "v"], coded=True)
    return sealed - began, time.process_time() - sealed


def _figure(name: str, value: float, unit: str) -> dict[str, Any]:
    return {"bench": "log", "figure": name, "value": round(value, 4), "unit": unit, "goal": None, "met": None}
