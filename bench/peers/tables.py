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
from unerring.rules import W1, W2, W3, Rule

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent
PYTHON = HERE / "tables" / "bin" / "python"
NAMES = {"duckdb": "DuckDB", "polars": "Polars"}
RULES: dict[str, Rule] = {"W1": W1, "W2": W2, "W3": W3}
EVENTS, FEW = 20_000_000, 2_000


def race(engine: str, quick: bool = False) -> Iterator[dict[str, Any]]:
    """Every figure of the race."""
    if not PYTHON.exists():
        raise CallerError(f"{NAMES[engine]} is not installed; run `make peers` (it has an environment of its own)")
    events, rounds = (200_000, 1) if quick else (EVENTS, 3)
    with tempfile.TemporaryDirectory(prefix="unerring-race-") as name:
        folder = Path(name)
        drawn = draw(events)
        write_log(folder / "all" / "log", drawn, events)
        write_log(folder / "few" / "log", drawn, FEW)
        peers = {workload: _on_peer(folder, engine, workload, events, rounds) for workload in RULES}
        with session(folder, "1g" if quick else "4g") as spark:  # only now: an idle JVM, too, takes memory and time
            for workload, theirs in peers.items():
                yield from _against(spark, folder, engine, workload, theirs, rounds)


def _on_peer(folder: Path, engine: str, workload: str, events: int, rounds: int) -> Cost:
    where = [str(folder / which / "log" / SCHEMA.name / "segments") for which in ("all", "few")]
    command = [str(PYTHON), str(HERE / "tables_peer.py"), engine, workload, str(CORES), *where]
    told, memory_mib = told_by([*command, str(folder / f"{workload}.parquet"), str(rounds)], NAMES[engine])
    return cost_there(told, events, memory_mib)


def _against(
    spark: SparkSession, folder: Path, engine: str, workload: str, theirs: Cost, rounds: int
) -> Iterator[dict[str, Any]]:
    rule_ = RULES[workload]
    few, full = partial(level_of, folder, "few", rule_), partial(level_of, folder, "all", rule_)
    ours = cost_here(spark, batched, few, full, theirs.events, rounds)
    chain = EventLog(folder / f"all-{workload}-round-0" / "log").chain(workload)
    count = must_be_equal(workload, of_chain(chain), of_parquet(folder / f"{workload}.parquet"), NAMES[engine])
    yield figure(f"{workload}.matches_compared", count, "matches")
    yield from figures(engine, workload, ours, theirs)


def figures(engine: str, workload: str, ours: Cost, theirs: Cost) -> Iterator[dict[str, Any]]:
    yield figure(f"{workload}.{engine}_ratio", ours.rate / theirs.rate, "ratio")
    yield figure(f"{workload}.{engine}_ratio.whole", theirs.took_s / ours.took_s, "ratio")
    yield figure(f"{workload}.{engine}_ratio.cpu", theirs.cpu_us / ours.cpu_us, "ratio")
    yield figure(f"{workload}.memory_ratio", ours.memory_mib / theirs.memory_mib, "ratio")
    yield from figures_of(workload, "ours", ours)
    yield from figures_of(workload, engine, theirs)
