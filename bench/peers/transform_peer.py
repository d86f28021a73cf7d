"""W1, W2 and W3 written for Spark's own `transformWithState` in Python. One call a workload, in a process of its own:

    python transform_peer.py WORKLOAD CORES EVENTS FEW RESULTS ROUNDS

EVENTS and FEW are folders of Parquet files, the segments of our log as they are; RESULTS is a folder. The few run
first, twice: the second time is what a query costs before it does anything. Then all so many times, of which the
quickest counts. Prints one JSON object.

Written once: data frames rather than rows, what a rule ignores filtered before the shuffle, one value of state a key,
and for absences one timer a key. A key's rows of a micro-batch come in any order, so they are sorted first. State
is RocksDB's with changelogs, and the sink is Spark's exactly-once Parquet.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Match = tuple[int, int, float, float]
"""Began, ended, and two measures."""
PER_BATCH = 4
"""Files in a micro-batch: four million events, as many as on our side."""
WITHIN_US = {"W1": 10_000_000, "W2": 30_000_000, "W3": 5_000_000}
WANTED = {"W1": ("A", "B"), "W2": ("A", "B", "C"), "W3": ("A", "B")}
MEASURES = {"W1": ("a_v", "b_v"), "W2": ("top", "b_v"), "W3": ("a_v", "unused")}
STATES = {
    "W1": "began LONG, v DOUBLE",
    "W2": "began LONG, top DOUBLE",
    "W3": "times ARRAY<LONG>, vs ARRAY<DOUBLE>, timer LONG",
}
NONE = -1


class W1:
    """The latest A waits for a B."""

    def __init__(self, began: int = NONE, v: float = 0.0) -> None:
        self.began, self.v = began, v

    def state(self) -> tuple[Any, ...]:
        return self.began, self.v

    def feed(self, times: Sequence[int], kinds: Sequence[str], vs: Sequence[float]) -> list[Match]:
        matches: list[Match] = []
        began, a_v = self.began, self.v
        for at, kind, v in zip(times, kinds, vs, strict=True):
            if kind == "A":
                began, a_v = at, v
            else:
                if began != NONE and at - began <= WITHIN_US["W1"]:
                    matches.append((began, at, a_v, v))
                began = NONE
        self.began, self.v = began, a_v
        return matches


class W2:
    """An A, then C with rising values, then a B. `top` below every value: no C yet."""

    def __init__(self, began: int = NONE, top: float = NONE) -> None:
        self.began, self.top = began, top

    def state(self) -> tuple[Any, ...]:
        return self.began, self.top

    def feed(self, times: Sequence[int], kinds: Sequence[str], vs: Sequence[float]) -> list[Match]:
        matches: list[Match] = []
        began, top = self.began, self.top
        for at, kind, v in zip(times, kinds, vs, strict=True):
            if kind == "A":
                began, top = at, NONE
            elif kind == "C":
                if v > top:
                    top = v
                else:
                    began = NONE
            else:
                if began != NONE and top != NONE and at - began <= WITHIN_US["W2"]:
                    matches.append((began, at, top, v))
                began = NONE
        self.began, self.top = began, top
        return matches


class W3:
    """Every A waits 5 s, and is a match if no B came. `passed` tells what time alone brings: that of the watermark."""

    def __init__(self, times: Sequence[int] = (), vs: Sequence[float] = (), timer: int = 0) -> None:
        self.open = list(zip(times, vs, strict=True))
        self.timer = timer

    def state(self) -> tuple[Any, ...]:
        return [at for at, _ in self.open], [v for _, v in self.open], self.timer

    def feed(self, times: Sequence[int], kinds: Sequence[str], vs: Sequence[float]) -> list[Match]:
        matches: list[Match] = []
        waiting, within_us = self.open, WITHIN_US["W3"]
        for at, kind, v in zip(times, kinds, vs, strict=True):
            if kind == "A":
                waiting.append((at, v))
            elif waiting:
                matches += [(a, a + within_us, a_v, 0.0) for a, a_v in waiting if a + within_us < at]
                waiting.clear()
        return matches

    def passed(self, until_us: int) -> list[Match]:
        within_us = WITHIN_US["W3"]
        due = [(a, a + within_us, a_v, 0.0) for a, a_v in self.open if a + within_us <= until_us]
        del self.open[: len(due)]
        return due


MACHINES: dict[str, Any] = {"W1": W1, "W2": W2, "W3": W3}


def processor(workload: str) -> Any:
    import numpy as np
    import pandas as pd
    from pyspark.sql.streaming import StatefulProcessor

    class Processor(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self._handle = handle
            self._state = handle.getValueState("open", STATES[workload])

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            machine, times, kinds, vs = self._machine(), [], [], []
            for frame in rows:
                times.append(frame["time"].to_numpy())
                kinds.append(frame["type"].to_numpy())
                vs.append(frame["v"].to_numpy())
            at = np.concatenate(times)
            order = at.argsort()
            columns = [column[order].tolist() for column in (at, np.concatenate(kinds), np.concatenate(vs))]
            matches = machine.feed(*columns)
            if workload == "W3":
                self._set_timer(machine)
            self._state.update(machine.state())
            yield from self._found(key, matches)

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
            machine = self._machine()
            matches = machine.passed(timerValues.getCurrentWatermarkInMs() * 1000)
            machine.timer = 0
            self._set_timer(machine)
            self._state.update(machine.state())
            yield from self._found(key, matches)

        def close(self) -> None: ...

        def _machine(self) -> Any:
            state = self._state.get() if self._state.exists() else ()
            return MACHINES[workload](*state)

        def _set_timer(self, machine: Any) -> None:
            if machine.open and not machine.timer:
                machine.timer = (machine.open[0][0] + WITHIN_US["W3"]) // 1000
                self._handle.registerTimer(machine.timer)

        def _found(self, key: Any, matches: list[Match]) -> Iterator[Any]:
            if matches:
                frame = pd.DataFrame(matches, columns=["began", "ended", *MEASURES[workload]])
                frame.insert(0, "key", key[0])
                yield frame

    return Processor()


def query(spark: SparkSession, workload: str, events: str, result: str) -> None:
    from pyspark.sql import functions as fn

    frame = (
        spark.readStream.schema("time LONG, key LONG, type STRING, v DOUBLE")
        .option("maxFilesPerTrigger", PER_BATCH)
        .parquet(events)
        .where(fn.col("type").isin(*WANTED[workload]))
    )
    if workload == "W3":
        frame = frame.withColumn("at", fn.timestamp_micros("time")).withWatermark("at", "0 seconds")
    first, second = MEASURES[workload]
    found = frame.groupBy("key").transformWithStateInPandas(
        statefulProcessor=processor(workload),
        outputStructType=f"key LONG, began LONG, ended LONG, {first} DOUBLE, {second} DOUBLE",
        outputMode="Append",
        timeMode="EventTime" if workload == "W3" else "None",
    )
    writing = found.writeStream.format("parquet").option("path", result).option("checkpointLocation", f"{result}-state")
    writing.trigger(availableNow=True).start().awaitTermination()


def session(cores: str) -> SparkSession:
    from pyspark.sql import SparkSession

    store = "spark.sql.streaming.stateStore"
    settings = {
        f"{store}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        f"{store}.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.shuffle.partitions": cores,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
    }
    builder = SparkSession.builder.master(f"local[{cores}]").appName("transformWithState")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def timed(work: Callable[[], None]) -> tuple[float, float]:
    """Seconds by the wall clock, and of the processor in this process and all below it."""
    import psutil

    def cpu_s() -> float:
        own = psutil.Process()
        return sum(sum(process.cpu_times()[:4]) for process in [own, *own.children(recursive=True)])

    used_s, began = cpu_s(), time.perf_counter()
    work()
    return time.perf_counter() - began, cpu_s() - used_s


def main(workload: str, cores: str, events: str, few: str, results: str, rounds: str) -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = session(cores)
    query(spark, workload, few, f"{results}/warming")
    start_up_s, start_up_cpu_s = timed(lambda: query(spark, workload, few, f"{results}/start-up"))
    ran = [timed(lambda n=n: query(spark, workload, events, f"{results}/round-{n}")) for n in range(int(rounds))]
    took_s, took_cpu_s = min(ran)
    spark.stop()
    told = {"took_s": took_s, "start_up_s": start_up_s, "took_cpu_s": took_cpu_s, "start_up_cpu_s": start_up_cpu_s}
    print(json.dumps({"workload": workload, **told}))


if __name__ == "__main__":
    main(*sys.argv[1:7])
