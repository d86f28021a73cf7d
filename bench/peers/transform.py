"""W1, W2 and W3 on Spark's own `transformWithState` in Python (transform_peer.py) and on our pipeline, in one run.

The same Spark, the same files, two cores each, streaming with checkpoints and exactly-once output on both sides, in
micro-batches of four million events. Both are warm: a query ran in the same session. Figures are as in flink_java.py:
net of the start-up, over the same events with nothing subtracted (`whole`), and by processor time. Before all that, the
matches must be equal.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
from race_inputs import SCHEMA, Drawn, draw, write_log
from race_matches import must_be_equal, of_chain, of_parquet
from race_sides import (
    CORES,
    Cost,
    Usage,
    cost_here,
    cost_there,
    figure,
    figures_of,
    level_of,
    session,
    streamed,
    told_by,
)
from transform_peer import WANTED

from unerring.rules import W1, W2, W3, Rule

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent
RULES: dict[str, Rule] = {"W1": W1, "W2": W2, "W3": W3}
EVENTS, PEER_EVENTS, FEW, ROUNDS = 20_000_000, 4_000_000, 2_000, 2


def race(_peer: str, quick: bool = False) -> Iterator[dict[str, Any]]:
    """Every figure of the race."""
    events, peer_events, rounds = (200_000, 200_000, 1) if quick else (EVENTS, PEER_EVENTS, ROUNDS)
    with tempfile.TemporaryDirectory(prefix="unerring-race-") as name:
        folder = Path(name)
        drawn = draw(events)
        for size, where in ((events, "all"), (peer_events, "some"), (FEW, "few")):
            write_log(folder / where / "log", drawn, size)
        peers = {workload: _on_spark(folder, workload, peer_events, rounds) for workload in RULES}
        with session(folder) as spark:
            for workload, theirs in peers.items():
                yield from _against(spark, folder, workload, drawn, theirs, events, rounds)


def _on_spark(folder: Path, workload: str, events: int, rounds: int) -> Cost:
    where = [str(folder / which / "log" / SCHEMA.name / "segments") for which in ("some", "few")]
    command = [sys.executable, str(HERE / "transform_peer.py"), workload, str(CORES), *where]
    told, memory_mib = told_by([*command, str(folder / workload), str(rounds)], "transformWithState")
    return cost_there(told, events, memory_mib)


def _against(
    spark: SparkSession, folder: Path, workload: str, drawn: Drawn, theirs: Cost, events: int, rounds: int
) -> Iterator[dict[str, Any]]:
    rule_ = RULES[workload]
    few, full = partial(level_of, folder, "few", rule_), partial(level_of, folder, "all", rule_)
    ours = cost_here(spark, streamed, few, full, events, rounds)
    level = level_of(folder, "some", rule_, "compared")
    with Usage(psutil.Process()) as same:
        streamed(spark, level)
    # Its time ends with the last event that the filter lets pass: what was complete only later is left out on both.
    last_ms = int(drawn["ms"][: theirs.events][np.isin(drawn["type"][: theirs.events], WANTED[workload])][-1])
    found = of_chain(level.log.chain(workload)).ended_by(last_ms)
    told = of_parquet(folder / workload / "round-0").ended_by(last_ms)
    count = must_be_equal(workload, found, told, "transformWithState")
    yield figure(f"{workload}.matches_compared", count, "matches")
    yield figure(f"{workload}.transform_ratio", ours.rate / theirs.rate, "ratio")
    yield figure(f"{workload}.transform_ratio.cpu", theirs.cpu_us / ours.cpu_us, "ratio")
    yield figure(f"{workload}.transform_ratio.whole", theirs.took_s / same.took_s, "ratio")
    yield figure(f"{workload}.memory_ratio", ours.memory_mib / theirs.memory_mib, "ratio")
    yield from figures_of(workload, "ours", ours)
    yield from figures_of(workload, "transform", theirs)
