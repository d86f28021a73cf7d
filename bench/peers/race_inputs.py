"""The events of a race, in the form that each side reads: sealed segments of a log, lines of CSV, fields in binary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from unerring.log import EventLog, with_origin
from unerring.model import schema_of
from unerring.rules import Typed

SCHEMA = schema_of(Typed)
BUCKETS = 2
PER_SEGMENT = 1_000_000
READERS = 2
"""Files for a peer that reads them in parallel; each in the order of time."""

Drawn = dict[str, Any]

IN_BINARY = np.dtype([("ms", "<i8"), ("key", "<i4"), ("type", "u1"), ("v", "<f8")])
"""What FlinkCep.java reads: 21 bytes an event."""


def draw(count: int) -> Drawn:
    rng = np.random.default_rng(7)
    return {
        "ms": np.cumsum(rng.integers(1, 5, count)),
        "key": rng.integers(0, 1000, count),
        "type": rng.choice(["A", "B", "C", "D"], count),
        "v": rng.random(count),
    }


def write_log(log: Path, drawn: Drawn, count: int) -> None:
    chain = EventLog(log).create(SCHEMA, BUCKETS)
    for first in range(0, count, PER_SEGMENT):
        part = slice(first, min(first + PER_SEGMENT, count))
        times = drawn["ms"][part] * 1000
        columns = {"time": times, "ordinal": np.zeros(len(times), np.int64), "key": drawn["key"][part]}
        table = pa.table({**columns, "v": drawn["v"][part], "type": pa.array(drawn["type"][part])})
        chain.seal(int(times[-1]), with_origin(table, SCHEMA))


def write_csv(folder: Path, drawn: Drawn, count: int) -> None:
    folder.mkdir(parents=True)
    plain = pyarrow.csv.WriteOptions(include_header=False, quoting_style="none")
    for reader in range(READERS):
        table = pa.table({name: pa.array(values[reader:count:READERS]) for name, values in drawn.items()})
        pyarrow.csv.write_csv(table, folder / f"{reader}.csv", plain)


def write_binary(folder: Path, drawn: Drawn, count: int) -> None:
    folder.mkdir(parents=True)
    for reader in range(READERS):
        part = slice(reader, count, READERS)
        rows = np.empty(len(drawn["ms"][part]), IN_BINARY)
        rows["ms"], rows["key"], rows["v"] = drawn["ms"][part], drawn["key"][part], drawn["v"][part]
        rows["type"] = drawn["type"][part].view(np.uint32)  # one letter each: its code
        rows.tofile(folder / f"{reader}.bin")
