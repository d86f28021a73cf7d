"""A partition and the sealing of its outputs, without Spark: any spread over buckets and any cut gives the same."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from unerring.matching.oracle import run_tree
from unerring.model import TIME_MIN, RuleError
from unerring.pipeline.intervals import next_end
from unerring.pipeline.level import levels_of
from unerring.pipeline.partition import Partition, read_state
from unerring.pipeline.sealing import numbered
from unerring.pipeline.staging import INLINE_BYTES_MAX, stage, unstage
from unerring.pipeline.versions import enter

from .worlds import OTHER, TYPED, advance, missing, pair, random_events, sealed, write

PLANS = (
    pair("Pairs", TYPED, "A", "B", 40),
    missing("Misses", TYPED, "A", "B", 15),
    pair("Others", OTHER, "C", "D", 60),
)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10_000),
    buckets=st.integers(1, 4),
    log_buckets=st.integers(1, 4),
    cuts=st.lists(st.integers(1, 200), max_size=6),
    rows=st.integers(1, 60),
    restored=st.booleans(),
)
def test_any_spread_and_any_cut_give_the_oracles_events(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    buckets: int,
    log_buckets: int,
    cuts: list[int],
    rows: int,
    restored: bool,
) -> None:
    data = tmp_path_factory.mktemp("partition")
    events = {TYPED.name: random_events(seed, 40, 4), OTHER.name: random_events(seed + 1, 30, 3, OTHER)}
    [level] = levels_of(PLANS, (TYPED, OTHER), str(data), buckets)
    enter(level)
    for schema in (TYPED, OTHER):
        write(level.log.create(schema, log_buckets), events[schema.name], cuts, 400)
    partitions = [Partition(level, bucket) for bucket in range(buckets)]
    while partitions[0].through_us < 400:
        end = next_end(level.chains(), partitions[0].through_us, 400, rows)
        advance(level, partitions, end)
        if restored:
            states = [partition.snapshot() for partition in partitions]
            partitions = [Partition(level, bucket) for bucket in range(buckets)]
            for partition, state in zip(partitions, states, strict=True):
                partition.restore([[read_state(state, level, partition.bucket, buckets, end, "here")]], end)
    wanted = run_tree(PLANS, [*events[TYPED.name], *events[OTHER.name]], dict(level.ranks), 400)
    for plan in PLANS:
        assert sealed(data, plan.name) == [event for event in wanted if event.stream == plan.name]


def test_a_state_of_other_rules_is_refused(tmp_path: Path) -> None:
    [one] = levels_of(PLANS, (TYPED, OTHER), str(tmp_path), 2)
    [two] = levels_of((*PLANS[:2], pair("Others", OTHER, "C", "D", 61)), (TYPED, OTHER), str(tmp_path), 2)
    with pytest.raises(RuleError, match="here is a state of other rules"):
        read_state(Partition(one, 0).snapshot(), two, 0, 2, TIME_MIN, "here")
    with pytest.raises(RuleError, match="here is a state of other rules"):
        read_state(Partition(one, 0).snapshot(), one, 1, 2, TIME_MIN, "here")


NAN = float("nan")


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        (pa.float64(), [2.0, NAN, None, 1.0, NAN]),
        (pa.string(), ["b", "c", None, "a", "c"]),
        (pa.binary(), [b"b", b"c", None, b"a", b"c"]),
        (pa.int64(), [2, 3, None, -1, 3]),
        (pa.timestamp("us", tz="UTC"), [2, 3, None, -1, 3]),
    ],
)
def test_keys_order_outputs_of_one_deadline(kind: pa.DataType, keys: list[object]) -> None:
    """NULL first, NaN last, and everything that came before in the position counts first."""
    table = pa.table(
        {
            "time": [5, 5, 5, 5, 4],
            "_rank": [7] * 5,
            "_ordinal": [0] * 5,
            "_index": [0] * 5,
            "_key0": pa.array(keys, kind),
            "x": [0, 1, 2, 3, 4],
        }
    )
    found = numbered([table.slice(0, 2), table.slice(2)])
    assert found.column("x").to_pylist() == [4, 2, 3, 0, 1]
    assert found.column("ordinal").to_pylist() == [0, 0, 1, 2, 3]


def test_staged_outputs_travel_inline_or_aside(tmp_path: Path) -> None:
    small = pa.table({"x": [1, 2]})
    assert unstage(stage(small, str(tmp_path))).equals(small)
    assert list(tmp_path.iterdir()) == []
    large = pa.table({"x": pa.array(range(INLINE_BYTES_MAX // 8 + 1))})
    told = stage(large, str(tmp_path))
    assert len(told) < 500
    assert unstage(told).equals(large)
    assert list(tmp_path.iterdir()) == []
