"""A driver in a process of its own, to be killed: runs one level over what its log holds, then ends."""

from __future__ import annotations

import sys
from pathlib import Path

from unerring.model import schema_of
from unerring.pipeline.intervals import Bounds
from unerring.pipeline.level import Level, levels_of
from unerring.pipeline.session import SparkConfig, start
from unerring.pipeline.streaming import detect_available
from unerring.rules.workloads import W1, W2, W3, Typed

BUCKETS = 2
ROWS = 400


def level_in(data: Path) -> Level:
    [level] = levels_of((W1.plan, W2.plan, W3.plan), (schema_of(Typed),), str(data), BUCKETS)
    return level


def main(data: Path, master: str, rows: int = ROWS) -> None:
    quick = (
        ("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss8m"),
        ("spark.sql.codegen.wholeStage", "false"),
        ("spark.sql.codegen.factoryMode", "NO_CODEGEN"),
        ("spark.executor.memory", "512m"),
        # Executors are killed often here, and one that is only asleep is to be given up soon.
        ("spark.deploy.maxExecutorRetries", "-1"),
        ("spark.executor.heartbeatInterval", "2s"),
        ("spark.network.timeout", "30s"),
        ("spark.network.timeoutInterval", "5s"),
    )
    spark = start(SparkConfig(master=master, memory="700m", log=str(data / "spark.log"), more=quick), "killed")
    detect_available(spark, level_in(data), Bounds(rows_per_batch=rows), restarts_max=100)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
