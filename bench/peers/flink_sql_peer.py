"""W1, W2 and W3 on Apache Flink's MATCH_RECOGNIZE. Runs in Flink's own environment (`make peers`), one call a workload:

    python flink_sql_peer.py WORKLOAD EVENTS SMALL RESULTS

EVENTS and SMALL are folders of CSV files (time in ms, key, type, v), each file in the order of time; RESULTS is a
folder for the matches. The small input runs first, in the same process: what it takes is Flink's start-up. Prints one
JSON object. Event time, parallelism 2, exactly-once checkpoints every five seconds on the hashmap backend.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

CHECKPOINT = "5 s"
PARALLELISM = "2"

# Each filters what its pattern ignores before the match, as somebody who knows Flink would.
MATCHES = {
    # Flink's WITHIN is exclusive, ours inclusive.
    "W1": """
        SELECT * FROM (SELECT * FROM events WHERE kind IN ('A', 'B')) MATCH_RECOGNIZE (
            PARTITION BY k ORDER BY ts
            MEASURES A.ms AS began, B.ms AS ended
            ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW
            PATTERN (A B) WITHIN INTERVAL '10' SECOND
            DEFINE A AS kind = 'A', B AS kind = 'B')""",
    "W2": """
        SELECT * FROM (SELECT * FROM events WHERE kind <> 'D') MATCH_RECOGNIZE (
            PARTITION BY k ORDER BY ts
            MEASURES A.ms AS began, B.ms AS ended
            ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW
            PATTERN (A C+ B) WITHIN INTERVAL '30' SECOND
            DEFINE A AS kind = 'A', B AS kind = 'B',
                   C AS kind = 'C' AND (LAST(C.v, 1) IS NULL OR C.v > LAST(C.v, 1)))""",
    # There is no absence in Flink's SQL: the key's next event after the deadline has to tell that time has passed. So
    # it is told later, and never for a key that falls silent.
    "W3": """
        SELECT * FROM events MATCH_RECOGNIZE (
            PARTITION BY k ORDER BY ts
            MEASURES A.ms AS began, E.ms AS ended
            ONE ROW PER MATCH AFTER MATCH SKIP TO NEXT ROW
            PATTERN (A N* E)
            DEFINE A AS kind = 'A',
                   N AS kind <> 'B' AND N.ms <= A.ms + 5000,
                   E AS E.ms > A.ms + 5000)""",
}


def run(workload: str, events: Path, results: Path) -> float:
    """One job over all files of a folder; seconds from submission to its end."""
    config = Configuration()
    for key, value in {
        "parallelism.default": PARALLELISM,
        "execution.checkpointing.interval": CHECKPOINT,
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        "execution.checkpointing.storage": "filesystem",
        "execution.checkpointing.dir": f"file://{results}/checkpoints",
        "state.backend.type": "hashmap",
        "table.local-time-zone": "UTC",
    }.items():
        config.set_string(key, value)
    settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(config).build()
    table = TableEnvironment.create(settings)
    table.execute_sql(
        "CREATE TABLE events (ms BIGINT, k BIGINT, kind STRING, v DOUBLE, ts AS TO_TIMESTAMP_LTZ(ms, 3), "
        f"WATERMARK FOR ts AS ts) WITH ('connector' = 'filesystem', 'path' = 'file://{events}', 'format' = 'csv')"
    )
    table.execute_sql(
        "CREATE TABLE found_rows (k BIGINT, began BIGINT, ended BIGINT) "
        f"WITH ('connector' = 'filesystem', 'path' = 'file://{results}/{events.name}', 'format' = 'csv')"
    )
    began = time.perf_counter()
    table.execute_sql(f"INSERT INTO found_rows {MATCHES[workload]}").wait()
    return time.perf_counter() - began


def main(workload: str, events: Path, small: Path, results: Path) -> None:
    start_up = run(workload, small, results)
    took = run(workload, events, results)
    print(json.dumps({"workload": workload, "took_s": took, "start_up_s": start_up}))


if __name__ == "__main__":
    main(sys.argv[1], *(Path(folder).absolute() for folder in sys.argv[2:5]))
