"""A driver in a process of its own, to be killed: runs one level over what its log holds, then ends.

In micro-batches, or, with a fourth argument `resident`, by resident tasks that keep their states often. Further
arguments `key=value` are settings of Spark. At its end it says how many tasks there were at the most.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from unerring.model import schema_of
from unerring.pipeline.intervals import Bounds
from unerring.pipeline.level import Level, levels_of
from unerring.pipeline.resident.pool import Pool
from unerring.pipeline.session import SparkConfig, start
from unerring.pipeline.streaming import detect_available
from unerring.rules.workloads import W1, W2, W3, Typed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUCKETS = 2
ROWS = 400


def level_in(data: Path) -> Level:
    [level] = levels_of((W1.plan, W2.plan, W3.plan), (schema_of(Typed),), str(data), BUCKETS)
    return level


def main(data: Path, master: str, rows: int, resident: bool, more: dict[str, str]) -> None:
    quick: tuple[tuple[str, str], ...] = (
        ("spark.sql.codegen.wholeStage", "false"),
        ("spark.sql.codegen.factoryMode", "NO_CODEGEN"),
        ("spark.executor.memory", "512m"),
        # Executors are killed often here, and one that is only asleep is to be given up soon.
        ("spark.deploy.maxExecutorRetries", "-1"),
        ("spark.executor.heartbeatInterval", "2s"),
        ("spark.network.timeout", "30s"),
        ("spark.network.timeoutInterval", "5s"),
        *more.items(),
    )
    if master.startswith("sc://"):  # a server has what it was started with
        quick = tuple(more.items())
    config = SparkConfig(master=master, memory="700m", log=str(data / "spark.log"), quick=True, more=quick)
    spark = start(config, "killed")
    if resident:
        stay(spark, level_in(data), Bounds(rows_per_batch=rows))
    else:
        detect_available(spark, level_in(data), Bounds(rows_per_batch=rows), restarts_max=100)
    spark.stop()


def stay(spark: SparkSession, level: Level, bounds: Bounds) -> None:
    """Resident tasks, until what the log holds is sealed."""
    end_us = level.chains()[level.inputs[0].name].through_us
    pool = Pool(spark, [level], bounds, keep_s=0.3)
    pool.start()
    try:
        tasks = 0
        while pool.hub.sealed_us(0) < end_us:
            pool.check()
            tasks = max(tasks, len(pool.hub.tasks))
            threading.Event().wait(0.01)
        sys.stdout.write(f"tasks: {tasks}\n")
    finally:
        pool.stop()


if __name__ == "__main__":
    settings = dict(argument.split("=", 1) for argument in sys.argv[4:] if "=" in argument)
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), "resident" in sys.argv[4:], settings)
