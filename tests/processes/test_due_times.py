"""Schedules: due times against counting them one by one, and how far a node's timetable has come."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from unerring.model import SECOND_US, Persist, ProcessError, Report
from unerring.processes import Process
from unerring.processes.config import ProcessesConfig
from unerring.processes.out import Out
from unerring.processes.schedules import MARK, Schedule, Timetable


@given(
    st.integers(1, 4), st.integers(-6, 9), st.integers(0, 20), st.booleans(), st.integers(-20, 25), st.integers(-20, 30)
)
@settings(max_examples=200)
def test_due_times_are_those_that_counting_finds(
    period: int, first: int, length: int, ends: bool, mark: int, now: int
) -> None:
    last = first + length if ends else 0
    unit = 1 if last else SECOND_US  # only what ends may be due more often than every second
    schedule = Schedule("s", "p", period * unit, first * unit, last * unit)
    times = [first + number * period for number in range(80)]
    due = [at for at in times if not last or at <= last]
    following = next((at for at in due if at > mark), None)
    assert schedule.due_after(mark * unit) == (None if following is None else following * unit)
    assert schedule.missed(mark * unit, now * unit) == sum(mark < at <= now for at in due)


@pytest.mark.parametrize(
    ("fields", "fits"),
    [
        ((SECOND_US, 0, 0), True),
        ((SECOND_US - 1, 0, 0), False),
        ((1, 0, 1), True),
        ((0, 0, 1), False),
        ((-1, 0, 1), False),
    ],
)
def test_a_period_has_a_least_length(fields: tuple[int, int, int], fits: bool) -> None:
    if fits:
        assert Schedule("s", "p", *fields).due_after(fields[1] - 1) == fields[1]
    else:
        with pytest.raises(ProcessError, match=r"too short|give it a period"):
            Schedule("s", "p", *fields)
    for name in ("", "a/b", "a\n"):
        with pytest.raises(ProcessError, match="a printable name"):
            Schedule(name, "p", SECOND_US)


def timetable(catch_up_max: int = 3) -> tuple[Timetable, Any]:
    process = Process("tick")
    process.flow(process.sleep("pause", 7))
    process.every("hourly", SECOND_US)
    process.every("other", 7 * SECOND_US)
    out = Out()
    table = Timetable([process], out, ProcessesConfig(catch_up_max=catch_up_max))

    def written() -> tuple[dict[str, int], list[str]]:
        """What went to disk, and what was reported."""
        effects = out.take()
        disk = {key: msgspec.msgpack.decode(data) for e in effects if isinstance(e, Persist) for key, data in e.puts}
        return disk, [e.detail for e in effects if isinstance(e, Report)]

    return table, written


def due(table: Timetable, wall_s: float) -> list[str]:
    """The times of the first schedule that are due."""
    starts = table.due(int(wall_s * SECOND_US))
    return [start.instance.rpartition("T")[2] for start in starts if start.instance.startswith("hourly")]


def test_a_schedule_begins_when_it_is_deployed_and_goes_on_when_the_last_one_has_begun() -> None:
    table, written = timetable()
    assert due(table, 10.5) == []
    assert written() == ({f"hourly|{MARK}": 10_500_000, f"other|{MARK}": 10_500_000}, [])
    assert due(table, 10.999999) == []
    for _ in range(2):  # asked for again until it exists
        assert due(table, 11) == ["000011.000000Z"]
    assert written() == ({}, [])
    [hourly] = [id for id in table.starting if id.startswith("hourly")]
    table.started("another")
    table.started(hourly)
    table.started(hourly)
    assert written() == ({f"hourly|{MARK}": 11_000_000}, [])
    assert due(table, 11.5) == []
    assert due(table, 14.0) == ["000012.000000Z"], "three were missed, and all are made up for"
    assert written() == ({}, [])
    table.set_mark("hourly", 12_000_000)  # other nodes say so
    table.set_mark("unknown", 1)
    assert written() == ({f"hourly|{MARK}": 12_000_000}, [])
    [late] = [id for id in table.starting if id.startswith("hourly")]
    table.started(late)  # it is known already
    assert written() == ({}, [])
    assert due(table, 14) == ["000013.000000Z"]
    table.set_mark("hourly", 14_000_000)
    written()
    table.started(next(id for id in table.starting if id.startswith("hourly")))  # of an earlier time than that
    assert written() == ({}, [])
    assert due(table, 15) == ["000015.000000Z"]


def test_after_a_long_outage_only_the_last_due_times_are_made_up_for() -> None:
    table, written = timetable()
    due(table, 10.5)
    written()
    assert due(table, 20) == ["000018.000000Z"]
    assert written() == ({f"hourly|{MARK}": 17_500_000}, ["hourly: 7 due times are too long ago"])
    assert due(table, 20) == ["000018.000000Z"]
    assert written() == ({}, [])
