"""Three forms of a state in files, for `bench keys`: what it costs to take the state of some keys and put it back.

Each holds, for a key, the deadline, the beginning and the value of an open match of W1. A step draws keys, adds one to
the deadline of each and writes that back. What is read is checked: every key has the deadline that it must have.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc

from unerring.pipeline import FileRoom

STEPS = 4
RANGES = 64
"""Files of a partition in the form of Arrow: each has a range of the keys' hashes, in their order."""
Step = Callable[[Any], None]


def costs(folder: Path, keys: int, rows: int) -> dict[str, float]:
    """For each form the least wall-clock time of a step."""
    forms = {"mapped_arrays": _mapped, "arrow_files": _arrow, "sqlite": _sqlite}
    return {name: _cost(form(folder, keys), keys, rows) for name, form in forms.items()}


def _cost(step: Step, keys: int, rows: int) -> float:
    random, best = np.random.default_rng(3), float("inf")
    for _ in range(STEPS):
        drawn = np.unique(random.integers(0, keys, rows))
        began = time.perf_counter()
        step(drawn)
        best = min(best, time.perf_counter() - began)
    return best


def _check(deadline: Any, keys: Any, changes: Any) -> None:
    if not np.array_equal(deadline, keys + changes[keys]):
        raise AssertionError("a form of state lost a change")


def _mapped(folder: Path, keys: int) -> Step:
    """Arrays by the key's number, in mapped files; all of them are let go of after each step."""
    room, changes = FileRoom(folder, 1), np.zeros(keys, np.int64)
    deadline, began, value = (room.moved(np.arange(keys, dtype=kind)) for kind in (np.int64, np.int64, np.float64))

    def step(drawn: Any) -> None:
        _check(deadline[drawn], drawn, changes)
        deadline[drawn] += 1
        began[drawn] += 1
        value[drawn] += 1
        changes[drawn] += 1
        room.release()

    return step


def _arrow(folder: Path, keys: int) -> Step:
    """A file of Arrow for each range of hashes, sorted by hash; a range that changes is written anew."""
    hashes = _hash(np.arange(keys))
    order, changes = np.argsort(hashes), np.zeros(keys, np.int64)
    bounds = (np.arange(1, RANGES, dtype=np.float64) * (2.0**64 / RANGES)).astype(np.uint64)
    ends = [0, *np.searchsorted(hashes[order], bounds).tolist(), keys]
    for number, (first, last) in enumerate(pairwise(ends)):
        own = order[first:last]
        _write(folder / f"{number}.arrow", [hashes[own], own.astype(np.int64), own, own.astype(np.float64)])

    def step(drawn: Any) -> None:
        wanted = _hash(drawn)
        by_hash = np.argsort(wanted)
        cuts = [0, *np.searchsorted(wanted[by_hash], bounds).tolist(), len(drawn)]
        for number, (first, last) in enumerate(pairwise(cuts)):
            own = by_hash[first:last]
            path = folder / f"{number}.arrow"
            with pa.memory_map(str(path)) as file:
                held = [column.to_numpy().copy() for column in pa.ipc.open_file(file).read_all().columns]
            at = np.searchsorted(held[0], wanted[own])
            _check(held[1][at], drawn[own], changes)
            for column in held[1:]:
                column[at] += 1
            _write(path, held)
        changes[drawn] += 1

    return step


def _write(path: Path, columns: list[Any]) -> None:
    batch = pa.record_batch(columns, names=["hash", "deadline", "began", "value"])
    whole = path.with_suffix(".new")
    with pa.OSFile(str(whole), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)
    whole.replace(path)


def _hash(keys: Any) -> Any:
    with np.errstate(over="ignore"):
        return keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)


def _sqlite(folder: Path, keys: int) -> Step:
    """A table by key, without a journal: what is in it may be lost with the process."""
    changes = np.zeros(keys, np.int64)
    database = sqlite3.connect(folder / "state.db", isolation_level=None)
    database.execute("PRAGMA journal_mode = OFF")
    database.execute("PRAGMA synchronous = OFF")
    database.execute("CREATE TABLE state (key INTEGER PRIMARY KEY, deadline INTEGER, began INTEGER, value REAL)")
    database.execute("CREATE TEMP TABLE wanted (key INTEGER PRIMARY KEY)")
    for first in range(0, keys, 100_000):
        database.execute("BEGIN")
        some = range(first, min(keys, first + 100_000))
        database.executemany("INSERT INTO state VALUES (?, ?, ?, ?)", ((key, key, key, float(key)) for key in some))
        database.execute("COMMIT")

    def step(drawn: Any) -> None:
        database.execute("BEGIN")
        database.execute("DELETE FROM wanted")
        database.executemany("INSERT INTO wanted VALUES (?)", ((key,) for key in drawn.tolist()))
        found = database.execute("SELECT deadline, began, value, key FROM wanted JOIN state USING (key) ORDER BY key")
        rows = found.fetchall()
        _check(np.array([row[0] for row in rows]), drawn, changes)
        changed = ((deadline + 1, began + 1, value + 1, key) for deadline, began, value, key in rows)
        database.executemany("UPDATE state SET deadline = ?, began = ?, value = ? WHERE key = ?", changed)
        database.execute("COMMIT")
        changes[drawn] += 1

    return step
