"""Matches of two sides, compared before anything is said of speed: how many there are, and a digest of all of them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from unerring.log import Chain
from unerring.model import TIME_MAX, WorldError

IN_BINARY = np.dtype([("key", "<i8"), ("began", "<i8"), ("ended", "<i8")])
"""What FlinkCep.java writes."""


@dataclass(frozen=True, slots=True)
class Matches:
    """Of each match: key, time of its first event, time at which it was complete. Milliseconds."""

    key: Any
    began: Any
    ended: Any

    def __len__(self) -> int:
        return len(self.key)

    def digest(self) -> str:
        """The same for the same matches, in whatever order they were written."""
        columns = [np.asarray(column, np.int64) for column in (self.key, self.began, self.ended)]
        order = np.lexsort(columns)
        return hashlib.sha256(b"".join(column[order].tobytes() for column in columns)).hexdigest()[:16]

    def ended_by(self, ms: int) -> Matches:
        """Without those that were complete only after a time: the ones that are open when the events end."""
        kept = np.asarray(self.ended) <= ms
        return Matches(self.key[kept], self.began[kept], self.ended[kept])


def of_chain(chain: Chain) -> Matches:
    """Ours: sealed situations."""
    table = chain.read(chain.base.from_us, TIME_MAX, columns=["key", "began"])
    key, began, time = (table.column(name).to_numpy() for name in ("key", "began", "time"))
    return Matches(key, began.astype(np.int64) // 1000, time // 1000)


def of_binary(folder: Path) -> Matches:
    """Flink's: three numbers a match, in files that its tasks or its file sink wrote."""
    files = [path for path in sorted(folder.rglob("part-*")) if path.is_file()]
    parts = [np.fromfile(path, IN_BINARY) for path in files]
    rows = np.concatenate(parts) if parts else np.empty(0, IN_BINARY)
    return Matches(rows["key"], rows["began"], rows["ended"])


def of_parquet(path: Path) -> Matches:
    """DuckDB's and Polars': one file, times in microseconds."""
    table = pq.read_table(path, columns=["key", "began", "ended"])
    key, began, ended = (table.column(name).to_numpy() for name in ("key", "began", "ended"))
    return Matches(key, began // 1000, ended // 1000)


def must_be_equal(workload: str, ours: Matches, theirs: Matches, peer: str) -> int:
    """How many; a difference ends the race."""
    if len(ours) != len(theirs):
        raise WorldError(f"{workload}: {len(ours)} matches here and {len(theirs)} on {peer}; the race is void")
    if ours.digest() != theirs.digest():
        raise WorldError(f"{workload}: as many matches as on {peer} ({len(ours)}), but not the same ones")
    return len(ours)
