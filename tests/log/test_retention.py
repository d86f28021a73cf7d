"""Retention as a function of the log: by age, by size, and never what a reader still needs."""

from __future__ import annotations

import pytest

from unerring.log import EventLog, MemoryStore, Positions, Retention, compact, cut_at, retain
from unerring.model import TIME_MAX, TIME_MIN, CallerError, Stamp

from .test_compaction import SMALL, fill, names_in, opened, rows_at, times_of
from .worlds import READING, table


def test_by_age_what_is_older_than_the_newest_event_by_so_much_goes() -> None:
    store = MemoryStore()
    fill(store, range(10, 210, 10))
    log = EventLog(store)
    assert retain(log, Retention(age_us=75)) == {"Burst": 12}
    assert opened(store).base.from_us == 120
    assert retain(log, Retention(age_us=75)) == {"Burst": 0}
    assert opened(store).base.producers == {"p": (0, 120)}


def test_a_stream_that_has_ended_is_as_old_as_its_last_event() -> None:
    store = MemoryStore()
    fill(store, range(10, 110, 10)).seal(TIME_MAX, rows_at([]))
    assert cut_at({"Burst": opened(store)}, Retention(age_us=50)) == 50
    empty = EventLog(MemoryStore()).create(READING)
    assert cut_at({"Reading": empty}, Retention(age_us=50)) == TIME_MIN


@pytest.mark.parametrize("merged", [False, True])
def test_by_size_the_oldest_go_until_the_rest_is_small_enough(merged: bool) -> None:
    store = MemoryStore()
    chain = fill(store, range(10, 410, 10), parts=True)
    if merged:
        compact(chain, SMALL)

    def held() -> int:
        if merged:
            return sum(entry.bytes for entry in opened(store).index.entries)
        return sum(len(store._held[name]) for folder in ("segments", "parts") for name in names_in(store, folder))

    whole = held()
    retain(EventLog(store), Retention(bytes_max=whole * 2 // 3))
    assert 0 < held() <= whole * 2 // 3
    assert times_of(opened(store)) == [
        time for end in range(10, 410, 10) if end % 3 for time in (end - 1, end) if time > opened(store).base.from_us
    ]
    assert retain(EventLog(store), Retention(bytes_max=10**9)) == {"Burst": 0}


def test_size_is_that_of_all_streams_together() -> None:
    store = MemoryStore()
    fill(store, range(10, 210, 10))
    chain = EventLog(store).create(READING)
    for end in range(1000, 1020):
        chain.seal(end, table([end]))
    held = sum(len(store._held[name]) for name in store._held if "/segments/" in name)
    removed = retain(EventLog(store), Retention(bytes_max=held // 3))
    assert removed["Burst"] == 20
    assert 0 < removed["Reading"] < 20


def test_what_somebody_needs_stays() -> None:
    store = MemoryStore()
    fill(store, range(10, 210, 10))
    Positions(store, "Burst").commit("slow", Stamp(55, 0))
    assert retain(EventLog(store), Retention(age_us=10)) == {"Burst": 5}
    Positions(store, "Burst").commit("slow", Stamp(200, 0))
    assert retain(EventLog(store), Retention(age_us=10), needed_after={"Burst": 101}) == {"Burst": 5}
    assert opened(store).base.from_us == 100


def test_a_retention_of_nothing_is_refused() -> None:
    with pytest.raises(CallerError, match="age_us is 0; give a number above 0"):
        Retention(age_us=0)
