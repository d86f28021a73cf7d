"""W1, W2 and W3 as queries of DuckDB and of Polars. Runs in their own environment (`make peers`), one call a workload:

    python tables_peer.py ENGINE WORKLOAD THREADS EVENTS FEW RESULT ROUNDS

EVENTS and FEW are folders of Parquet files, the segments of our log as they are; RESULT is the Parquet file of the
matches, with the measures that our rules emit. The few run first, twice: the second time is what a query costs before
it does anything. Then all of them so many times, of which the quickest counts. Prints one JSON object.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable

# A rising C goes on with what was before it. Without those rows, a match of W2 is an A with a B right after it.
QUERIES = {
    "W1": """
        SELECT key, lag(time) OVER w AS began, time AS ended, lag(v) OVER w AS a_v, v AS b_v
        FROM events WHERE type IN ('A', 'B')
        WINDOW w AS (PARTITION BY key ORDER BY time)
        QUALIFY type = 'B' AND lag(type) OVER w = 'A' AND time - lag(time) OVER w <= 10000000""",
    "W2": """
        WITH near AS (
            SELECT key, time, type, v, lag(type) OVER w AS before, lag(v) OVER w AS top
            FROM events WHERE type <> 'D'
            WINDOW w AS (PARTITION BY key ORDER BY time)),
        ends AS (
            SELECT * FROM near
            WHERE (type = 'C' AND (before = 'A' OR before = 'C' AND v > top)) IS NOT TRUE)
        SELECT key, lag(time) OVER w AS began, time AS ended, top, v AS b_v
        FROM ends
        WINDOW w AS (PARTITION BY key ORDER BY time)
        QUALIFY type = 'B' AND before = 'C' AND lag(type) OVER w = 'A' AND time - lag(time) OVER w <= 30000000""",
    "W3": """
        SELECT a.key, a.time AS began, a.time + 5000000 AS ended, a.v AS a_v
        FROM (SELECT * FROM events WHERE type = 'A') a
        ASOF LEFT JOIN (SELECT * FROM events WHERE type = 'B') b ON a.key = b.key AND a.time < b.time
        WHERE (b.time IS NULL OR b.time > a.time + 5000000)
          AND a.time + 5000000 <= (SELECT max(time) FROM events)""",
}


def on_duckdb(workload: str, threads: int) -> Callable[[str, str], None]:
    import duckdb

    base = duckdb.connect(config={"threads": threads})

    def query(events: str, result: str) -> None:
        base.execute(f"CREATE OR REPLACE VIEW events AS FROM read_parquet('{events}/*.parquet')")
        base.execute(f"COPY ({QUERIES[workload]}) TO '{result}' (FORMAT parquet)")

    return query


def on_polars(workload: str, threads: int) -> Callable[[str, str], None]:
    os.environ["POLARS_MAX_THREADS"] = str(threads)  # read once, when it is loaded
    import polars as pl

    kind, time_, v, before = pl.col("type"), pl.col("time"), pl.col("v"), pl.col("before")

    def previous(column: str) -> pl.Expr:
        """Of the same key. Rows of a key are in the order of time in our segments, so nothing must be sorted."""
        return pl.col(column).shift(1).over("key")

    def w1(events: pl.LazyFrame) -> pl.LazyFrame:
        pairs = events.filter(kind.is_in(["A", "B"])).with_columns(
            began=previous("time"), before=previous("type"), a_v=previous("v")
        )
        found = pairs.filter((kind == "B") & (before == "A") & (time_ - pl.col("began") <= 10_000_000))
        return found.select("key", "began", ended="time", a_v="a_v", b_v="v")

    def w2(events: pl.LazyFrame) -> pl.LazyFrame:
        near = events.filter(kind != "D").with_columns(before=previous("type"), top=previous("v"))
        goes_on = (kind == "C") & ((before == "A") | ((before == "C") & (v > pl.col("top"))))
        ends = near.filter(~goes_on.fill_null(False)).with_columns(began=previous("time"), first=previous("type"))
        whole = (kind == "B") & (before == "C") & (pl.col("first") == "A")
        found = ends.filter(whole & (time_ - pl.col("began") <= 30_000_000))
        return found.select("key", "began", ended="time", top="top", b_v="v")

    def w3(events: pl.LazyFrame) -> pl.LazyFrame:
        last = events.select(time_.max()).collect().item()
        a = events.filter(kind == "A").select("key", "time", "v")
        b = events.filter(kind == "B").select("key", "time", b="time")
        options = {"strategy": "forward", "allow_exact_matches": False, "check_sortedness": False}
        late = pl.col("b").is_null() | (pl.col("b") > time_ + 5_000_000)
        found = a.join_asof(b, on="time", by="key", **options).filter(late & (time_ + 5_000_000 <= last))
        return found.select("key", began="time", ended=time_ + 5_000_000, a_v="v")

    def query(events: str, result: str) -> None:
        scanned = pl.scan_parquet(f"{events}/*.parquet").select("time", "key", "type", "v")
        {"W1": w1, "W2": w2, "W3": w3}[workload](scanned).sink_parquet(result)

    return query


def timed(work: Callable[[], None]) -> tuple[float, float]:
    """Seconds by the wall clock, and of the processor in all threads."""
    used, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    work()
    took_s, now = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
    return took_s, now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime


def main(engine: str, workload: str, threads: str, events: str, few: str, result: str, rounds: str) -> None:
    query = {"duckdb": on_duckdb, "polars": on_polars}[engine](workload, int(threads))
    query(few, result)
    start_up_s, start_up_cpu_s = timed(lambda: query(few, result))
    took_s, took_cpu_s = min(timed(lambda: query(events, result)) for _ in range(int(rounds)))
    told = {"took_s": took_s, "start_up_s": start_up_s, "took_cpu_s": took_cpu_s, "start_up_cpu_s": start_up_cpu_s}
    print(json.dumps({"workload": workload, **told}))


if __name__ == "__main__":
    main(*sys.argv[1:8])
