"""Two stretches of a stream side by side: random mutations of the delivered one are counted exactly."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings, strategies as st

from unerring.audit.comparison import Stretch, compare, missing
from unerring.audit.intake import check_intake
from unerring.audit.strong_reliability import (
    COMPLETENESS,
    DUPLICATION,
    FALSE_NEGATIVE,
    FALSE_ORDERING,
    FALSE_POSITIVE,
    check_strong_reliability,
)
from unerring.model import Column, ColumnType, Event, Stamp, StreamSchema

SCHEMA = StreamSchema("Alarm", (Column("k", ColumnType.INT), Column("v", ColumnType.FLOAT, True)), ("k",))
Row = dict[str, Any]


def table(rows: list[Row]) -> pa.Table:
    columns = [pa.field("time", pa.int64()), pa.field("ordinal", pa.int64())]
    return pa.Table.from_pylist(rows, schema=pa.schema([*columns, *SCHEMA.arrow()]))


def judged(delivered: list[Row], perfect: list[Row]) -> Stretch:
    return compare(SCHEMA, [table(delivered)], table(perfect), 0, 10_000)[0]


@st.composite
def streams(draw: st.DrawFn) -> list[Row]:
    steps = draw(st.lists(st.integers(0, 3), min_size=2, max_size=12))
    values = st.sampled_from([0.0, -0.0, 1.5, math.nan, None])
    rows: list[Row] = []
    time, ordinal = 1, -1
    for step in steps:
        time, ordinal = time + step, 0 if step else ordinal + 1
        rows.append({"time": time, "ordinal": ordinal, "k": draw(st.integers(0, 2)), "v": draw(values)})
    return rows


@settings(max_examples=20)
@given(streams(), st.data())
def test_each_mutation_breaks_its_own_promise(perfect: list[Row], data: st.DataObject) -> None:
    assert judged(perfect, perfect).counts == {}
    at = data.draw(st.integers(0, len(perfect) - 1))
    without = perfect[:at] + perfect[at + 1 :]
    assert judged(without, perfect).counts == {FALSE_NEGATIVE: 1}
    assert judged([*perfect[:at], perfect[at], *perfect[at:]], perfect).counts == {DUPLICATION: 1}
    other = {**perfect[at], "k": perfect[at]["k"] + 1}
    assert judged([*perfect[:at], other, *perfect[at + 1 :]], perfect).counts == {FALSE_POSITIVE: 1}
    assert judged(perfect, without).counts == {FALSE_POSITIVE: 1}
    if at:
        swapped = [*perfect[: at - 1], perfect[at], perfect[at - 1], *perfect[at + 1 :]]
        [found] = [one for one in judged(swapped, perfect).findings if one.promise == FALSE_ORDERING]
        early, late = ((row["time"], row["ordinal"]) for row in (perfect[at - 1], perfect[at]))
        assert found.delivered is not None
        assert tuple(found.delivered.stamp) == early
        assert f"after {late}" in found.detail


@settings(max_examples=25)
@given(streams(), streams())
def test_it_agrees_with_the_checker_that_simulations_use(delivered: list[Row], perfect: list[Row]) -> None:
    """Which promises are broken, of two unrelated streams: the same as by Definition 1 written down plainly."""

    def events(rows: list[Row]) -> list[Event]:
        return [
            Event("Alarm", Stamp(row["time"], row["ordinal"]), (row["k"],), {"k": row["k"], "v": repr(row["v"])})
            for row in rows
        ]

    ours = judged(delivered, perfect).counts
    theirs = check_strong_reliability(events(delivered), events(perfect), complete=True)
    promises = {violation.promise for violation in theirs}
    assert (FALSE_POSITIVE in ours) == (FALSE_POSITIVE in promises)
    assert (FALSE_NEGATIVE in ours) == (COMPLETENESS in promises)


def test_a_row_in_a_segment_of_another_time_is_not_where_readers_look() -> None:
    row = {"time": 20_000, "ordinal": 0, "k": 1, "v": 1.0}
    found = judged([row], [])
    assert found.counts == {FALSE_POSITIVE: 1}
    assert "where its time does not belong" in found.findings[0].detail


def test_a_stretch_has_its_end_and_not_its_beginning() -> None:
    inside, outside = [1, 10_000], [0, 10_001]
    rows = [{"time": time, "ordinal": 0, "k": 1, "v": 1.0} for time in sorted(inside + outside)]
    stretch, times = compare(SCHEMA, [table(rows)], table([rows[1], rows[2]]), 0, 10_000)
    assert (stretch.counts, times) == ({FALSE_POSITIVE: 2}, outside)


def test_stretches_add_up_in_every_figure() -> None:
    one = Stretch(1, 2, {FALSE_NEGATIVE: 3}, [], [1, 2], [3, 4], [5], 6)
    other = Stretch(10, 20, {FALSE_NEGATIVE: 30, DUPLICATION: 1}, [], [10, 20], [], [50], 60)
    one.add(other)
    assert one == Stretch(11, 22, {FALSE_NEGATIVE: 33, DUPLICATION: 1}, [], [11, 22], [3, 4], [55], 66)


def test_many_rows_are_compared_in_pieces_and_stretches_add_up() -> None:
    n = np.arange(50_000)
    perfect = pa.table({"time": 1 + n // 3, "ordinal": n % 3, "k": n % 7, "v": n.astype(float)})
    sides = [perfect.filter((n % 7 % 2 == side) & (n != 100) & (n != 45_000)) for side in (0, 1)]
    stretch, times = compare(SCHEMA, sides, perfect, 0, 1 << 40)
    assert stretch.counts == {FALSE_NEGATIVE: 2}
    assert times == [34, 15_001]
    more, _ = missing(SCHEMA, perfect.slice(0, 7), COMPLETENESS, "nothing after 0")
    stretch.add(more)
    assert stretch.counts == {FALSE_NEGATIVE: 2, COMPLETENESS: 7}
    assert len(stretch.findings) == 2 + 5


def test_an_account_counts_every_number_once() -> None:
    taken = {("p", 1): [(5, 9), (1, 3)], ("p", 2): [(1, 4), (4, 6)], ("q", 0): [(0, 0), (4, 4)]}
    marks = [("p", 1, 4, "schema"), ("p", 2, 9, "lost"), ("q", 0, 3, "lost"), ("r", 7, 2, "late")]
    accounts, violations = check_intake("s", taken, marks)
    told = {(a.producer, a.epoch): (a.in_stream, a.quarantined, a.lost, a.missing, a.doubled) for a in accounts}
    assert told == {
        ("p", 1): (8, {"schema": 1}, 0, 0, 0),
        ("p", 2): (6, {}, 3, 0, 1),
        ("q", 0): (2, {}, 3, 0, 0),
        ("r", 7): (0, {"late": 1}, 0, 0, 0),
    }
    assert [violation.witness[0] for violation in violations] == [
        "stream s, producer p, epoch 2: twice in the stream: number 4"
    ]
    _, nothing = check_intake("s", {("p", 1): [(1, 2), (5, 6)]}, [], {("p", 1): [(3, 4), (6, 99)]})
    assert nothing == [], "a writer still holds them"
    accounts, nothing = check_intake("s", {("p", 1): [(1, 3)]}, [("p", 1, 2, "ahead"), ("p", 1, 4, "ahead")])
    assert (nothing, accounts[0].quarantined) == ([], {"ahead": 1}), "another writer let the second one in"
    _, nothing = check_intake("s", {("p", 1): [(1, 2)]}, [("p", 1, 5, "late"), ("p", 1, 8, "lost")])
    assert nothing == [], "one writer lost 3 to 8, and another had 5 of them"
    _, [gap] = check_intake("s", {("p", 1): [(1, 2), (5, 6)]}, [])
    assert gap.witness == ("stream s, producer p, epoch 1: no record of numbers 3 to 4",)


def test_an_account_knows_what_was_declared_lost_together() -> None:
    """One writer declared 16 to 30 lost, the other one had sealed 18 by then."""
    taken, marks = {("p", 1): [(1, 15), (18, 18), (31, 40)]}, [("p", 1, 30, "lost")]
    _, [gap] = check_intake("s", taken, marks)
    assert gap.witness == ("stream s, producer p, epoch 1: no record of numbers 16 to 17",)
    [account], nothing = check_intake("s", taken, marks, declared={("p", 1): [(16, 30)]})
    assert nothing == []
    assert (account.in_stream, account.lost, account.missing) == (26, 14, 0)
    [account], [gap] = check_intake("s", taken, marks, declared={("p", 1): [(17, 30)]})
    assert (account.lost, account.missing) == (13, 1), gap
