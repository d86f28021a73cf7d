"""Answers of partitions: whether outputs travel or are written as parts, the sealed rows are the same."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from unerring.log import PartRows, with_origin
from unerring.log.sealing import agree_on, seal_interval
from unerring.model import TIME_MAX, RuleError
from unerring.pipeline import answers
from unerring.pipeline.answers import outputs_of, stage, unstage
from unerring.pipeline.batch import detect_batch
from unerring.pipeline.intervals import next_end, spans_of
from unerring.pipeline.level import Level, levels_of
from unerring.pipeline.partition import Partition
from unerring.pipeline.sealing import numbered, ordinals_of
from unerring.pipeline.streaming import detect_available, outputs_in, seal_outputs
from unerring.pipeline.versions import enter

from .random_rules import cases
from .worlds import OTHER, TYPED, missing, pair, random_events, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLANS = (pair("Pairs", TYPED, "A", "B", 40), missing("Misses", OTHER, "A", "B", 15))
END_US = 400


def advance(level: Level, partitions: list[Partition], end_us: int, random: Random) -> dict[str, PartRows | pa.Table]:
    """A micro-batch in this process, with some of the answers in parts."""
    from_us = partitions[0].through_us
    spans = spans_of(level.chains(), from_us, end_us)
    chains = outputs_in(level).chains
    found: dict[str, list[bytes]] = {name: [] for name in chains}
    for partition in partitions:
        for name, table in partition.advance(end_us, spans).items():
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(answers, "INLINE_BYTES_MAX", random.choice((0, 0, 1 << 20)))
                found[name].append(stage(level, name, table.slice(0), from_us, end_us))
    outputs = {name: outputs_of(chain, found[name], from_us, end_us) for name, chain in chains.items()}
    seal_outputs(outputs_in(level), outputs, end_us)
    return outputs


@pytest.mark.parametrize("first", range(0, 120, 40))
def test_outputs_in_parts_are_the_oracles_events(tmp_path: Path, first: int) -> None:
    spoke = in_parts = 0
    for case in cases(tmp_path, range(first, first + 40), lambda seed: seed % 2 == 1):
        level, random = case.level, case.random
        partitions = [Partition(level, bucket) for bucket in range(level.buckets)]
        rows = random.choice((3, 100))
        while partitions[0].through_us < case.through_us:
            end_us = next_end(level.chains(), partitions[0].through_us, case.through_us, rows)
            outputs = advance(level, partitions, end_us, random)
            in_parts += any(isinstance(found, PartRows) for found in outputs.values())
        case.check()
        spoke += bool(case.wanted)
    assert spoke > 10
    assert in_parts > 10


@settings(max_examples=60)
@given(
    rows=st.lists(
        st.tuples(st.integers(1, 4), st.sampled_from((0, 1, 2**31 - 1)), st.integers(0, 1), st.integers(0, 5)),
        max_size=24,
    ),
    parts=st.integers(1, 4),
)
def test_parts_are_numbered_as_the_rows_together_are(rows: list[tuple[int, int, int, int]], parts: int) -> None:
    """Each key in one part, deadlines of one time in several."""
    index = dict.fromkeys(rows, 0)
    places: list[list[dict[str, int]]] = [[] for _ in range(parts)]
    for row in sorted(rows):
        time, rank, ordinal, key = row
        own = key % parts if rank > 1 else (time + rank + ordinal) % parts
        values = {"time": time, "_rank": rank, "_ordinal": ordinal, "_index": index[row], "_key0": key}
        places[own].append(values)
        index[row] += 1
    names = ("time", "_rank", "_ordinal", "_index", "_key0")
    tables = [pa.table({name: pa.array([row[name] for row in some], pa.int64()) for name in names}) for some in places]
    whole = numbered(
        [table.append_column("x", table.column("_key0")) for table in tables if len(table)]
        or [tables[0].append_column("x", tables[0].column("_key0"))]
    )
    found: list[tuple[int, int, int]] = []
    for table, noted in zip(tables, ordinals_of(tables), strict=True):
        ordinals = dict(zip(*(column.tolist() for column in noted), strict=True)) if noted else {}
        keys = table.column("_key0").to_pylist()
        found += [(time, ordinals.get(row, 0), keys[row]) for row, time in enumerate(table.column("time").to_pylist())]
        assert 0 not in ordinals.values()
    wanted = zip(*(whole.column(name).to_pylist() for name in ("time", "ordinal", "x")), strict=True)
    assert sorted(found) == list(wanted)


def test_what_another_driver_sealed_of_parts_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [level] = levels_of(PLANS, (TYPED, OTHER), str(tmp_path), 2)
    enter(level)
    for schema in (TYPED, OTHER):
        write(level.log.create(schema, 2), random_events(3, 120, 6, schema), [100], END_US)
    chains = outputs_in(level).chains
    monkeypatch.setattr(answers, "INLINE_BYTES_MAX", 0)
    partitions = [Partition(level, bucket) for bucket in range(2)]
    spans = spans_of(level.chains(), partitions[0].through_us, END_US)
    tables = [partition.advance(END_US, spans)["Misses"] for partition in partitions]
    staged = [stage(level, "Misses", table, 0, END_US) for table in tables]
    assert all(unstage(data).parts for data in staged)
    rows = numbered(tables)
    times = rows.column("time").to_pylist()
    middle_us = next(a for a, b in pairwise(times[10:]) if a == b)
    assert seal_interval(chains["Misses"], rows.slice(0, sum(t <= middle_us for t in times)), middle_us, "r")
    found = outputs_of(chains["Misses"], staged, 0, END_US)
    assert isinstance(found, PartRows)
    assert seal_interval(chains["Misses"], found, END_US, "r") == sum(t > middle_us for t in times)
    again = chains["Misses"].read(0, END_US)
    assert again.column("time").to_pylist() == times
    assert again.column("ordinal").to_pylist() == rows.column("ordinal").to_pylist()
    agree_on(chains["Misses"], 0, END_US, found)
    fewer = PartRows(found.parts[:1], found.times[:1], found.ordinals[:1])
    with pytest.raises(RuleError, match="with other outputs than this one has"):
        agree_on(chains["Misses"], 0, END_US, fewer)


def write_many(level: Level, count: int) -> None:
    """Many events in two segments."""
    rng = np.random.default_rng(7)
    columns = {"time": np.cumsum(rng.integers(1, 5, count)), "ordinal": np.zeros(count, np.int64)}
    columns |= {"key": rng.integers(0, 1000, count), "v": rng.random(count), "type": rng.choice(["A", "B"], count)}
    table, chain = with_origin(pa.table(columns), TYPED), level.log.create(TYPED, 2)
    for half in (table.slice(0, count // 2), table.slice(count // 2)):
        chain.seal(half.column("time")[-1].as_py(), half)


def test_on_spark_large_answers_are_sealed_as_parts(spark: SparkSession, tmp_path: Path) -> None:
    large_answers_are_parts(spark, tmp_path, "batch")


def large_answers_are_parts(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    tables: dict[int, pa.Table] = {}
    in_parts: dict[int, bool] = {}
    for buckets in (2, 16):
        [level] = levels_of((pair("Pairs", TYPED, "A", "B", 10**6),), (TYPED,), str(tmp_path / str(buckets)), buckets)
        write_many(level, 200_000)
        if kind == "batch":
            detect_batch(spark, level)
        else:
            detect_available(spark, level)
        chain = level.log.chain("Pairs")
        tables[buckets] = chain.read(chain.base.from_us, TIME_MAX)
        in_parts[buckets] = any(chain.footer(span).parts for span in chain.spans(chain.base.from_us, TIME_MAX))
    assert in_parts == {2: True, 16: False}, "a large answer is written by its task, small ones travel"
    assert len(tables[2]) > 40_000
    assert tables[2].equals(tables[16])
