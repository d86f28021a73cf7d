"""What compaction merges next: neighbours that are alike, small ones first, in objects of a bounded size."""

from __future__ import annotations

import pytest

from unerring.log import CompactionConfig, Entry, EventLog, MemoryStore, compact, merge
from unerring.log.compaction import _groups
from unerring.model import TIME_MIN

from .worlds import BURST, table, times_in


def entries(rows: list[int], rules: str = "", ends: list[int] | None = None) -> list[Entry]:
    """They follow each other, unless an end is given after which there is a gap."""
    made, at = [], 0
    for number, count in enumerate(rows):
        through = at + 10 if ends is None else ends[number]
        rule = rules[number] if rules else "r"
        made.append(Entry(at, through, f"{number}", count, 100, 1, "d", "b", "s", rule))
        at = through
    return made


def groups(of: list[Entry], fan: int = 2, everything: bool = False) -> list[str]:
    config = CompactionConfig(rows_max=40, fan=fan, segments_min=2, segments_max=5, newest_kept=1, period_us=1000)
    return ["".join(entry.name for entry in group) for group in _groups(of, config, everything=everything)]


@pytest.mark.parametrize(
    ("rows", "fan", "merged"),
    [
        ([], 2, []),
        ([1], 2, []),
        ([1, 1, 1], 2, ["012"]),
        ([1, 1, 1], 3, ["012"]),
        ([1, 1], 3, []),
        ([10, 1, 1], 2, ["12"]),  # the small ones alone: a large one is not written again for them
        ([9, 1, 1], 2, ["012"]),
        ([10, 10, 1], 2, ["012"]),
        ([1, 1, 10, 1, 1], 2, ["01", "34"]),
        ([1, 10, 1], 2, ["012"]),
        ([10, 1], 3, []),
        ([1, 1, 20], 3, ["01"]),  # nothing will be added to what is before a large one
        ([1, 1, 20, 1, 1], 3, ["01"]),
        ([1, 1, 20, 1, 1], 2, ["01", "34"]),
        ([19, 19, 2], 2, ["012"]),
        ([19, 19, 3], 2, ["01"]),
        ([20, 20], 2, []),
        ([20, 1, 20], 2, []),
    ],
)
def test_small_neighbours_become_one(rows: list[int], fan: int, merged: list[str]) -> None:
    assert groups(entries(rows), fan) == merged


@pytest.mark.parametrize(
    ("rows", "merged"),
    [([1, 1], ["01"]), ([10, 1], ["01"]), ([19, 19, 3, 4], ["01", "23"]), ([15, 15, 15], ["01"]), ([20, 1], [])],
)
def test_everything_that_fits_is_merged_if_that_is_asked_for(rows: list[int], merged: list[str]) -> None:
    assert groups(entries(rows), fan=9, everything=True) == merged


def test_of_another_rule_or_period_or_behind_a_gap_nothing_is_merged() -> None:
    assert groups(entries([1] * 5, "aabbb")) == ["01", "234"]
    assert groups(entries([1] * 4, ends=[990, 999, 1000, 1999])) == ["01", "23"]
    gap = entries([1] * 4)
    assert groups([*gap[:2], *entries([1] * 5)[3:]], everything=True) == ["01", "34"]


@pytest.mark.parametrize(
    ("rows", "objects"),
    [
        ([15, 15, 10], [40]),
        ([15, 15, 11], [30, 11]),
        ([1, 20, 1, 1], [1, 20, 2]),  # a large one stays as it was sealed
        ([19, 0, 19], [38]),
        ([19, 19, 19, 19], [38, 38]),
        ([0, 0], [0]),
    ],
)
def test_neighbours_are_merged_up_to_so_many_rows(rows: list[int], objects: list[int]) -> None:
    chain = EventLog(MemoryStore()).create(BURST, 2)
    times = []
    for end, count in enumerate(rows, 1):
        moments = [100 * end - count + at for at in range(count)]
        chain.seal(100 * end, table(moments, BURST))
        times += moments
    config = CompactionConfig(rows_max=40, fan=2, segments_min=2, segments_max=9, newest_kept=0)
    merged = merge(chain, chain.tail(), config)
    assert [entry.rows for entry in merged] == objects
    assert (merged[0].from_us, merged[-1].through_us) == (TIME_MIN, 100 * len(rows))
    assert sum(entry.segments for entry in merged) == len(rows)
    compact(chain, config)
    assert times_in(EventLog(chain.store).chain("Burst")) == times
