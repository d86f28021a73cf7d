"""Streams that are read by another key than their own: read once, and each partition is handed what is its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from unerring.log import Chain
from unerring.matching.oracle import run_tree
from unerring.model import ColumnType, InvariantBreach
from unerring.pipeline.batch import detect_batch
from unerring.pipeline.intervals import Bounds, spans_of, steps_of
from unerring.pipeline.level import Level, levels_of
from unerring.pipeline.partition import Partition
from unerring.pipeline.sealing import numbered
from unerring.pipeline.shuffling import Handed, Interval, readings, split
from unerring.pipeline.spreading import columns_read, owners_of, shuffled_lanes
from unerring.pipeline.streaming import detect_available, outputs_in, seal_outputs
from unerring.pipeline.versions import enter
from unerring.rules.expressions import KeyValue
from unerring.rules.plan import Input, Measure
from unerring.rules.tree import ranks_of

from .random_rules import cases
from .worlds import OTHER, TYPED, missing, pair, random_events, sealed, write

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

BY_TYPE = replace(
    pair("ByType", TYPED, "A", "A", 40),
    inputs=(Input(TYPED, ("type",)),),
    measures=(Measure("type", KeyValue(0, "type", ColumnType.TEXT)),),
)
PLANS = (pair("Own", TYPED, "A", "B", 40), BY_TYPE, missing("Misses", OTHER, "A", "B", 15))
END_US = 400


def interval_of(level: Level, from_us: int, through_us: int, rows: int) -> tuple[dict[str, Chain], Interval]:
    chains = level.chains()
    ends = steps_of(chains, from_us, through_us, rows)
    return chains, Interval(from_us, tuple(ends), spans_of(chains, from_us, through_us))


def shuffled(level: Level, chains: dict[str, Chain], interval: Interval, tasks: int) -> list[Handed]:
    """What Spark does: the batches of all tasks, each partition's rows to its own, by step."""
    import pyarrow as pa

    lanes = shuffled_lanes(level)
    tables = [
        pa.Table.from_batches([batch])
        for reading in readings(chains, interval, lanes, tasks)
        for batch in split(level, interval, lanes, reading)
    ]
    rows = pa.concat_tables(tables).sort_by([("part", "ascending"), ("step", "ascending")])
    numbers = rows.column("part").to_pylist()
    parts = [rows.filter(pa.array([part == own for part in numbers])) for own in range(level.buckets)]
    return [Handed(part.to_batches(max_chunksize=3), lanes) for part in parts]


def test_each_row_is_read_once_and_handed_to_the_partition_that_owns_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [level] = levels_of(PLANS, (TYPED, OTHER), str(tmp_path), 3)
    enter(level)
    for schema in (TYPED, OTHER):
        write(level.log.create(schema, 2), random_events(3, 90, 6, schema), [20, 70, 90, 200], END_US)
    assert shuffled_lanes(level) == ((TYPED.name, ("type",)),)
    chains, interval = interval_of(level, 10, END_US, 20)
    assert len(interval.ends_us) > 2
    monkeypatch.setattr("unerring.pipeline.shuffling.ROWS_PER_READER_MIN", 7)
    rows_read: list[int] = []
    whole = chains[TYPED.name].read(10, END_US, None, columns_read(level)[TYPED.name])
    read = Chain.read

    def counted(self: Chain, *args: Any, **more: Any) -> pa.Table:
        table = read(self, *args, **more)
        rows_read.append(len(table))
        return table

    monkeypatch.setattr(Chain, "read", counted)
    parts = shuffled(level, chains, interval, 4)
    assert sum(rows_read) == len(whole), "not once for each partition"
    owners = owners_of(whole, ("type",), level.spread)
    times = whole.column("time").to_pylist()
    for own, handed in enumerate(parts):
        assert handed.part == own
        rows: list[Any] = []
        for step, (from_us, through_us) in enumerate(interval.steps):
            for table in [table for table in handed.tables(step).values() if table is not None]:
                assert all(from_us < time <= through_us for time in table.column("time").to_pylist())
                rows += table.to_pylist()
        assert rows == [row for row, owner in zip(whole.to_pylist(), owners, strict=True) if owner == own]
    assert times == sorted(times)


def handed_over(level: Level, through_us: int, rows: int) -> Iterator[int]:
    """What driver and tasks do in one micro-batch, in this process, with the rows of other keys handed over."""
    partitions = [Partition(level, bucket) for bucket in range(level.buckets)]
    chains, interval = interval_of(level, partitions[0].through_us, through_us, rows)
    parts = shuffled(level, chains, interval, 3)
    outputs = outputs_in(level)
    for step, end_us in enumerate(interval.ends_us):
        answers = [
            partition.run(end_us, partition.read(partition.through_us, end_us, interval.spans, handed.tables(step)))
            for partition, handed in zip(partitions, parts, strict=True)
        ]
        staged = {name: [answer[name] for answer in answers] for name in outputs.chains}
        tables = {name: numbered(part) if any(map(len, part)) else None for name, part in staged.items()}
        seal_outputs(outputs, tables, end_us)
        yield end_us


@pytest.mark.parametrize("first", range(1, 121, 40))
def test_random_rules_that_are_handed_their_rows_agree_with_the_oracle(tmp_path: Path, first: int) -> None:
    spoke = 0
    for case in cases(tmp_path, range(first, first + 40, 2), lambda seed: True, (2, 3)):
        if not shuffled_lanes(case.level):
            continue
        assert list(handed_over(case.level, case.through_us, case.random.choice((1, 3, 100))))[-1] == case.through_us
        case.check()
        spoke += bool(case.wanted)
    assert spoke > 2


def test_a_partition_that_was_not_told_its_interval_stops() -> None:
    import pyarrow as pa

    batch = pa.RecordBatch.from_pydict({"part": [1], "step": [0], "lane": [0], "rows": [b""]})
    with pytest.raises(InvariantBreach, match="partition 1 is told its interval"):
        Handed([batch], ())
    assert Handed([], ()).interval is None


@pytest.mark.parametrize("kind", ["streaming", "batch"])
def test_on_spark_rules_with_a_key_of_their_own_give_the_oracles_events(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    events = {TYPED.name: random_events(5, 80, 5), OTHER.name: random_events(6, 60, 4, OTHER)}
    [level] = levels_of(PLANS, (TYPED, OTHER), str(tmp_path), 3)
    for schema in (TYPED, OTHER):
        write(level.log.create(schema, 2), events[schema.name], [50, 120, 300], END_US)
    if kind == "batch":
        detect_batch(spark, level, Bounds(rows_per_batch=40))
    else:
        detect_available(spark, level, Bounds(rows_per_batch=60, rows_at_once=20))
    every = [event for some in events.values() for event in some]
    wanted = run_tree(PLANS, every, ranks_of(PLANS, (TYPED, OTHER)), END_US)
    for plan in PLANS:
        mine = [event for event in wanted if event.stream == plan.name]
        assert mine, "the draw must make every rule speak"
        assert sealed(tmp_path, plan.name) == mine
