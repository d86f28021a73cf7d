"""The race: W1, W2 and W3 on Apache Flink's MATCH_RECOGNIZE and on our pipeline, in one run, on the same events.

Both stream with exactly-once checkpoints on two cores and write what they find to files. Both are taken net of their
start-up: the time that the same job takes over a few events, in the same process, is subtracted. Flink reads the
first events of the ones that we read, since it would need long for all; the rates are events a second.
Before anything is said of speed, the matches are compared: they must be equal where the two mean the same.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv
from race_inputs import Drawn, draw, write_csv, write_log
from race_sides import batched, cost_here, figure, level_of, net, session, streamed, told_by

from unerring.model import TIME_MAX, CallerError, WorldError
from unerring.rules import W1, W2, W3, Rule, Typed, fn, last, rule, step, time_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent
PYTHON = HERE / "flink" / "bin" / "python"
EVENTS, FLINK_EVENTS, FEW = 20_000_000, 2_000_000, 2_000

_a = step("a", Typed, Typed.type == "A")
_b = step("b", Typed, Typed.type == "B")
_c = step("c", Typed, lambda c: (Typed.type == "C") & (fn.is_null(last(c, 1).v) | (Typed.v > last(c, 1).v)))


def _exclusive(seconds: int) -> timedelta:
    """Flink's WITHIN excludes its end, ours does not; event times here are whole milliseconds."""
    return timedelta(seconds=seconds) - timedelta(milliseconds=1)


AS_FLINK_MEANS: dict[str, Rule] = {
    "W1": rule("W1").pattern(_a.then(_b).within(_exclusive(10))).select("recent").emit(began=time_of(last(_a))),
    "W2": rule("W2")
    .where(Typed, Typed.type != "D")
    .pattern(_a.next(_c.one_or_more(gap="strict")).next(_b).within(_exclusive(30)))
    .emit(began=time_of(last(_a))),
    "W3": W3,
}


def race(_peer: str, quick: bool = False) -> Iterator[dict[str, Any]]:
    """Every figure of the race."""
    if not PYTHON.exists():
        raise CallerError("Flink is not installed; run `make peers` (it needs its own environment, about 600 MB)")
    events, flink_events = (20_000, 20_000) if quick else (EVENTS, FLINK_EVENTS)
    with tempfile.TemporaryDirectory(prefix="unerring-race-") as name:
        folder = Path(name)
        drawn = draw(events)
        for size, where in ((events, "all"), (flink_events, "some"), (FEW, "few")):
            write_log(folder / where / "log", drawn, size)
        write_csv(folder / "csv", drawn, flink_events)
        write_csv(folder / "csv-few", drawn, FEW)
        peers = {workload: on_flink(folder, workload, flink_events) for workload in ("W1", "W2", "W3")}
        with session(folder) as spark:
            for workload, rule_ in (("W1", W1), ("W2", W2), ("W3", W3)):
                found = compare(spark, folder, workload, drawn, flink_events)
                ours = on_spark(spark, folder, rule_, events)
                yield from _figures(workload, ours, peers[workload], found)


# --- the two ---


def on_flink(folder: Path, workload: str, events: int) -> dict[str, float]:
    """One process: a few events for the start-up, then all."""
    results = folder / f"flink-{workload}"
    results.mkdir()
    command = [str(PYTHON), str(HERE / "flink_sql_peer.py"), workload, str(folder / "csv"), str(folder / "csv-few")]
    told, memory_mib = told_by([*command, str(results)], f"Flink, {workload}")
    rate = events / net(told["took_s"], told["start_up_s"])
    return {"rate": rate, "memory": memory_mib, "start_up_s": told["start_up_s"]}


def on_spark(spark: SparkSession, folder: Path, rule_: Rule, events: int) -> dict[str, float]:
    """The pipeline, streaming."""
    few, full = partial(level_of, folder, "few", rule_), partial(level_of, folder, "all", rule_)
    cost = cost_here(spark, streamed, few, full, events)
    return {"rate": cost.rate, "memory": cost.memory_mib, "start_up_s": cost.start_up_s}


# --- the same matches? ---


def compare(spark: SparkSession, folder: Path, workload: str, drawn: Drawn, count: int) -> dict[str, int]:
    """Matches of both over the same events; a difference that meaning does not explain ends the race."""
    level = level_of(folder, "some", AS_FLINK_MEANS[workload], "compared")
    batched(spark, level)
    chain = level.log.chain(workload)
    table = chain.read(chain.base.from_us, TIME_MAX, columns=["key", "began"])
    began = table.column("began").cast(pa.int64()).to_numpy() // 1000
    ours = set(zip(table.column("key").to_pylist(), began.tolist(), strict=True))
    theirs = _flink_matches(folder / f"flink-{workload}" / "csv")
    unexplained = ours ^ theirs
    if workload == "W3":
        # Flink learns that a deadline has passed from the key's next event; a key that fell silent has none.
        latest = dict(zip(drawn["key"][:count].tolist(), drawn["ms"][:count].tolist(), strict=True))
        unexplained = (theirs - ours) | {(key, ms) for key, ms in ours - theirs if latest[key] > ms + 5000}
    if unexplained:
        raise WorldError(f"{workload}: {len(unexplained)} matches differ, such as {sorted(unexplained)[:3]}")
    return {"ours": len(ours), "flink": len(theirs)}


def _flink_matches(folder: Path) -> set[tuple[int, int]]:
    found: set[tuple[int, int]] = set()
    for path in folder.rglob("part-*"):
        if path.stat().st_size:
            read = pyarrow.csv.ReadOptions(column_names=["key", "began", "ended"])
            table = pyarrow.csv.read_csv(path, read_options=read)
            found |= set(zip(table.column("key").to_pylist(), table.column("began").to_pylist(), strict=True))
    return found


def _figures(
    workload: str, ours: dict[str, float], theirs: dict[str, float], found: dict[str, int]
) -> Iterator[dict[str, Any]]:
    ratio, memory = ours["rate"] / theirs["rate"], ours["memory"] / theirs["memory"]
    yield figure(f"{workload}.flink_ratio", ratio, "ratio", "≥ 10", ratio >= 10)
    yield figure(f"{workload}.memory_ratio", memory, "ratio", "< 1", memory < 1)
    for name, side in (("ours", ours), ("flink", theirs)):
        yield figure(f"{workload}.{name}.rate", side["rate"], "events/s")
        yield figure(f"{workload}.{name}.peak_memory", side["memory"], "MiB")
        yield figure(f"{workload}.{name}.start_up", side["start_up_s"], "s")
        yield figure(f"{workload}.{name}.matches_compared", found[name], "matches")
