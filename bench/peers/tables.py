"""W1, W2 and W3 in batch: as a query of DuckDB or Polars, and as rules on our pipeline, in one run.

Both read the same Parquet files, the segments of our log, with two threads, and write what they find to Parquet, with
the same measures. Files are in the machine's memory after the first round, for both. A ratio above 1 means that the
pipeline is quicker. A query of these engines says what was in a table; it cannot go on when more events come.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from race_inputs import SCHEMA, draw, write_log
from race_matches import must_be_equal, of_chain, of_parquet
from race_sides import CORES, Cost, batched, cost_here, cost_there, figure, figures_of, level_of, session, told_by

from unerring.log import EventLog
from unerring.model import CallerError
from unerring.pipeline import Level
from unerring.rules import W1, W2, W3, Rule

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent
PYTHON = HERE / "tables" / "bin" / "python"
NAMES = {"duckdb": "DuckDB", "polars": "Polars"}
RULES: dict[str, Rule] = {"W1": W1, "W2": W2, "W3": W3}
SIZES, FEW = (200_000, 2_000_000, 20_000_000), 2_000
"""The largest has all figures; the others show from which size on the pipeline is quicker, start-up and all."""


def race(engine: str, quick: bool = False) -> Iterator[dict[str, Any]]:
    """Every figure of the race."""
    if not PYTHON.exists():
        raise CallerError(f"{NAMES[engine]} is not installed; run `make peers` (it has an environment of its own)")
    sizes, rounds = (SIZES[:1], 1) if quick else (SIZES, 3)
    with tempfile.TemporaryDirectory(prefix="unerring-race-") as name:
        folder = Path(name)
        drawn = draw(sizes[-1])
        for events in (*sizes, FEW):
            write_log(folder / str(events) / "log", drawn, events)
        peers = {
            workload: [_on_peer(folder, engine, workload, events, rounds) for events in sizes] for workload in RULES
        }
        with session(folder, "1g" if quick else "4g") as spark:  # only now: an idle JVM, too, takes memory and time
            for workload, theirs in peers.items():
                yield from _against(spark, folder, engine, workload, theirs, rounds)


def _on_peer(folder: Path, engine: str, workload: str, events: int, rounds: int) -> Cost:
    where = [str(folder / str(size) / "log" / SCHEMA.name / "segments") for size in (events, FEW)]
    command = [str(PYTHON), str(HERE / "tables_peer.py"), engine, workload, str(CORES), *where]
    told, memory_mib = told_by([*command, str(_result(folder, workload, events)), str(rounds)], NAMES[engine])
    return cost_there(told, events, memory_mib)


def _result(folder: Path, workload: str, events: int) -> Path:
    return folder / f"{workload}-{events}.parquet"


def _against(
    spark: SparkSession, folder: Path, engine: str, workload: str, theirs: list[Cost], rounds: int
) -> Iterator[dict[str, Any]]:
    ours = []
    for cost in theirs:
        few, full = (partial(_level, folder, size, workload, cost.events) for size in (FEW, cost.events))
        ours.append(cost_here(spark, batched, few, full, cost.events, rounds))
        found = of_chain(EventLog(folder / f"{cost.events}-{workload}-{cost.events}-round-0" / "log").chain(workload))
        told = of_parquet(_result(folder, workload, cost.events))
        count = must_be_equal(workload, found, told, NAMES[engine])
    yield figure(f"{workload}.matches_compared", count, "matches")
    yield from figures(engine, workload, ours[-1], theirs[-1])
    for here, there in zip(ours[:-1], theirs[:-1], strict=True):
        yield figure(f"{workload}.{engine}_ratio.whole.{here.events}", there.took_s / here.took_s, "ratio")
    events = crossover(ours[-1], theirs[-1])
    if events is not None:
        yield figure(f"{workload}.{engine}_crossover", events, "events")


def _level(folder: Path, size: int, workload: str, beside: int, use: str) -> Level:
    return level_of(folder, str(size), RULES[workload], f"{beside}-{use}")


def crossover(ours: Cost, theirs: Cost) -> float | None:
    """From how many events on our side is quicker, start-up and all, if both go on as they went. None: never."""
    gained_s = 1 / theirs.rate - 1 / ours.rate
    return max(ours.start_up_s - theirs.start_up_s, 0.0) / gained_s if gained_s > 0 else None


def figures(engine: str, workload: str, ours: Cost, theirs: Cost) -> Iterator[dict[str, Any]]:
    yield figure(f"{workload}.{engine}_ratio", ours.rate / theirs.rate, "ratio")
    yield figure(f"{workload}.{engine}_ratio.whole", theirs.took_s / ours.took_s, "ratio")
    yield figure(f"{workload}.{engine}_ratio.cpu", theirs.cpu_us / ours.cpu_us, "ratio")
    yield figure(f"{workload}.memory_ratio", ours.memory_mib / theirs.memory_mib, "ratio")
    yield from figures_of(workload, "ours", ours)
    yield from figures_of(workload, engine, theirs)
