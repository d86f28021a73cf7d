"""Compaction: the same rows in fewer objects, whoever reads, writes, compacts, cuts or dies meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from unerring.log import (
    Chain,
    CompactionConfig,
    Compactor,
    EventLog,
    MemoryStore,
    Positions,
    Span,
    compact,
    cut,
    write_part,
)
from unerring.log.index import GRACE_S
from unerring.log.sweeping import sweep, wall_us
from unerring.model import SECOND_US, TIME_MIN, Stamp

from .worlds import BURST, table

BUCKETS = 2
HOUR_US = int(GRACE_S * SECOND_US)
SMALL = CompactionConfig(rows_max=40, fan=2, segments_min=2, segments_max=5, newest_kept=1, period_us=1000)


class Clock:
    """Wall time, moved by hand."""

    def __init__(self) -> None:
        self.now_us = wall_us()

    def __call__(self) -> int:
        return self.now_us


def opened(store: Any) -> Chain:
    return EventLog(store).chain("Burst")


def asleep(chain: Chain, seconds: float) -> None:
    """The process was stopped for some time; it finds that out by its clock."""
    now_s = chain.indexes.clock_s() + seconds
    chain.indexes.clock_s = lambda: now_s


def rows_at(times: list[int]) -> pa.Table:
    return table(times, BURST)


def fill(store: MemoryStore, ends: range, rule: Callable[[int], str] = lambda _: "", parts: bool = False) -> Chain:
    chain = EventLog(store).create(BURST, buckets=BUCKETS)
    before_us = chain.through_us
    for end in ends:
        times = [end - 1, end] if end % 3 else []
        if parts and times:
            some = [
                write_part(store, "Burst", BURST, rows.drop_columns(["ordinal"]), bucket, before_us, end)
                for bucket, rows in enumerate(split(rows_at(times)))
                if len(rows)
            ]
            chain.seal_parts(end, some, producers={"p": (0, end)}, rule=rule(end))
        else:
            chain.seal(end, rows_at(times), producers={"p": (0, end)}, rule=rule(end))
        before_us = end
    return chain


def split(rows: pa.Table) -> list[pa.Table]:
    from unerring.log import buckets_of

    owner = buckets_of([rows.column("machine")], len(rows), BUCKETS)
    return [rows.filter(pa.array(owner == bucket)) for bucket in range(BUCKETS)]


def times_of(chain: Chain, from_us: int | None = None) -> list[int]:
    chain.refresh()
    from_us = chain.base.from_us if from_us is None else from_us
    return chain.read(from_us, chain.through_us).column("time").to_pylist()


def names_in(store: MemoryStore, folder: str) -> list[str]:
    return sorted(name for name in store._held if name.startswith(f"Burst/{folder}/"))


@pytest.mark.parametrize("parts", [False, True])
def test_the_same_rows_lie_in_fewer_objects(parts: bool) -> None:
    store = MemoryStore()
    chain = fill(store, range(10, 410, 10), parts=parts)
    before = chain.read(TIME_MIN, 400)
    producers = chain.producers()
    compact(chain, SMALL)
    again = opened(store)
    assert len(again.spans(TIME_MIN, 400)) < 5
    assert again.read(TIME_MIN, 400).equals(before)
    for bucket in range(BUCKETS):
        assert again.read(35, 215, bucket).equals(opened(store).read(35, 215, bucket))
    assert again.producers() == producers
    assert again.count(TIME_MIN, 400) == len(before)
    assert again.count(35, 215) == len(again.read(35, 215))
    again.check()
    sealed = again.seal(420, rows_at([415]))
    assert sealed.won
    assert sealed.footer.before == chain.index.sealed, "the next segment names what was sealed before it"
    assert times_of(opened(store)) == [*before.column("time").to_pylist(), 415]


def test_replaced_objects_go_after_the_grace_time() -> None:
    store, clock = MemoryStore(), Clock()
    chain = fill(store, range(10, 210, 10), parts=True)
    before = times_of(chain)
    compactor = Compactor(opened(store), SMALL, clock)
    while compactor.step(everything=True):
        pass
    segments, parts = len(names_in(store, "segments")), len(names_in(store, "parts"))
    assert (segments, parts > 0) == (20, True), "slow readers still find them"
    clock.now_us += HOUR_US + 1
    compactor = Compactor(opened(store), SMALL, clock)
    while compactor.step(everything=True):
        pass
    named = {entry.name for entry in opened(store).index.entries}
    assert names_in(store, "segments") == []
    assert names_in(store, "parts") == []
    assert names_in(store, "compacted") == sorted(f"Burst/compacted/{name}" for name in named)
    assert times_of(opened(store)) == before


def test_compacted_objects_that_were_merged_again_go_after_the_grace_time() -> None:
    store, clock = MemoryStore(), Clock()
    chain = fill(store, range(10, 50, 10))
    compactor = Compactor(opened(store), SMALL, clock)
    while compactor.step(everything=True):
        pass
    slow = opened(store)
    [replaced] = names_in(store, "compacted")
    chain.seal(60, rows_at([55]))
    compactor = Compactor(opened(store), SMALL, clock)
    while compactor.step(everything=True):
        pass
    [entry] = opened(store).index.entries
    assert entry.through_us == 60
    assert names_in(store, "compacted") == sorted([replaced, f"Burst/compacted/{entry.name}"])
    assert times_of(slow, TIME_MIN) == times_of(opened(store)), "slow readers still find them"
    clock.now_us += HOUR_US + 1
    sweep(opened(store), clock())
    assert names_in(store, "compacted") == [f"Burst/compacted/{entry.name}"]


def test_what_all_registered_readers_have_passed_goes_earlier() -> None:
    store, clock = MemoryStore(), Clock()
    fill(store, range(10, 210, 10))
    Positions(store, "Burst").commit("one", Stamp(200, 0))
    compactor = Compactor(opened(store), SMALL, clock)
    while compactor.step(everything=True):
        pass
    clock.now_us += HOUR_US // 10
    assert sweep(opened(store), clock()).deleted
    assert names_in(store, "segments") == []
    store = MemoryStore()
    fill(store, range(10, 210, 10))
    Positions(store, "Burst").commit("one", Stamp(200, 0))
    Positions(store, "Burst").commit("slow", Stamp(20, 0))
    clock = Clock()
    compactor = Compactor(opened(store), SMALL, clock)
    while compactor.step(everything=True):
        pass
    clock.now_us += HOUR_US // 10
    sweep(opened(store), clock())
    assert len(names_in(store, "segments")) == 20


def test_the_bytes_do_not_depend_on_the_steps() -> None:
    """(a, c] has the same bytes whether it was made of segments at once or in levels."""
    made = []
    for segments_max in (3, 1000):
        store = MemoryStore()
        chain = fill(store, range(10, 210, 10))
        config = CompactionConfig(rows_max=1000, segments_max=segments_max, segments_min=2, fan=2)
        compact(chain, config)
        [entry] = opened(store).index.entries
        made.append(store.read(f"Burst/compacted/{entry.name}"))
    assert made[0] == made[1]


def test_versions_of_a_rule_stay_apart() -> None:
    store = MemoryStore()
    chain = fill(store, range(10, 210, 10), rule=lambda end: "old" if end <= 100 else "new")
    compact(chain, SMALL)
    again = opened(store)
    assert 100 in {span.through_us for span in again.spans(TIME_MIN, 200)}
    for span in again.spans(TIME_MIN, 200):
        assert again.footer(span).rule == ("old" if span.through_us <= 100 else "new")


def test_objects_end_with_their_period() -> None:
    store = MemoryStore()
    compact(fill(store, range(10, 410, 10)), CompactionConfig(period_us=100))
    assert [entry.through_us for entry in opened(store).index.entries] == [90, 190, 290, 390, 400]
    assert cut(opened(store), 200) == 19
    assert opened(store).base.from_us == 190


def test_marks_of_ingested_files_are_kept() -> None:
    store = MemoryStore()
    chain = EventLog(store).create(BURST, buckets=BUCKETS)
    for number in range(1, 7):
        chain.seal(number, rows_at([number]), ingest=("file:b" if number < 4 else "file:a", number, number == 3))
    compact(chain, SMALL)
    again = opened(store)
    [span] = again.spans(TIME_MIN, 6)
    assert again.footer(span).ingests == (("file:a", 6, False), ("file:b", 3, True))


def test_a_large_segment_is_left_as_it_was_sealed() -> None:
    store = MemoryStore()
    chain = EventLog(store).create(BURST, buckets=BUCKETS)
    chain.seal(100, rows_at(list(range(1, 90))))
    chain.seal(110, rows_at([105]))
    chain.seal(120, rows_at([115]))
    compact(chain, SMALL)
    assert [(entry.name != "", entry.rows) for entry in opened(store).index.entries] == [(False, 89), (True, 2)]
    sweep(opened(store), wall_us() + 2 * HOUR_US, whole=True)
    assert times_of(opened(store)) == [*range(1, 90), 105, 115]


# What readers hold


def test_a_task_with_names_from_before_reads_on() -> None:
    """`known` spans name segments; after compaction the index says where their rows are."""
    store = MemoryStore()
    fill(store, range(10, 210, 10))
    spans = opened(store).spans(25, 145)
    wanted = opened(store).read(25, 145)
    compact(opened(store), SMALL)
    sweep(opened(store), wall_us() + 2 * HOUR_US)
    assert names_in(store, "segments") == []
    task = Chain(store, "Burst", BURST, BUCKETS, known=list(spans))
    assert task.read(25, 145).equals(wanted)
    known = Chain(store, "Burst", BURST, BUCKETS, known=[Span(*spans[0:1][0].__struct_fields__ and (20, 30))])
    assert known.read(25, 30).equals(opened(store).read(25, 30))


def test_tasks_may_be_given_compacted_objects() -> None:
    store = MemoryStore()
    fill(store, range(10, 210, 10))
    compact(opened(store), SMALL)
    spans = opened(store).spans(25, 145)
    assert any(span.name for span in spans)
    task = Chain(store, "Burst", BURST, BUCKETS, known=spans)
    assert task.read(25, 145).equals(opened(store).read(25, 145))


def test_a_reader_that_slept_goes_on() -> None:
    store = MemoryStore()
    fill(store, range(10, 60, 10))
    reader = opened(store)
    writer = opened(store)
    for end in range(60, 210, 10):
        writer.seal(end, rows_at([end]))
    compact(opened(store), SMALL)
    sweep(opened(store), wall_us() + 2 * HOUR_US)
    asleep(reader, 60)
    assert reader.refresh() == 200
    assert times_of(reader) == times_of(opened(store))
    assert reader.count(TIME_MIN, 200) == len(times_of(reader))


def test_a_reader_that_slept_for_hours_finds_the_newest_index() -> None:
    """Index objects between the one it knows and the newest are gone; the next number would tell it nothing."""
    store, clock = MemoryStore(), Clock()
    fill(store, range(10, 60, 10))
    compact(opened(store), SMALL)
    reader = opened(store)
    for _ in range(6):
        chain = opened(store)
        for end in range(chain.through_us + 10, chain.through_us + 60, 10):
            chain.seal(end, rows_at([end]))
        clock.now_us += HOUR_US + 1
        compactor = Compactor(opened(store), SMALL, clock)
        while compactor.step(everything=True):
            pass
    assert len(names_in(store, "index")) < 5
    asleep(reader, 7 * GRACE_S)
    assert reader.refresh() == opened(store).through_us
    assert times_of(reader) == times_of(opened(store))


def test_a_writer_that_slept_does_not_bring_a_name_back() -> None:
    store = MemoryStore()
    fill(store, range(10, 60, 10))
    sleeper = opened(store)
    writer = opened(store)
    for end in range(60, 210, 10):
        writer.seal(end, rows_at([end]), producers={"p": (0, end)})
    compact(opened(store), SMALL)
    sweep(opened(store), wall_us() + 2 * HOUR_US)
    wanted = times_of(opened(store))
    lost = sleeper.seal(65, rows_at([61, 62]))
    assert not lost.won
    assert (lost.footer.through_us, lost.footer.producers) == (200, {"p": (0, 200)})
    assert names_in(store, "segments") == []
    assert times_of(opened(store)) == times_of(sleeper) == wanted
    assert sleeper.seal(210, rows_at([205])).won


def test_compaction_rewrites_what_was_bucketed_otherwise() -> None:
    store = MemoryStore()
    wanted = fill(store, range(10, 210, 10)).read(TIME_MIN, 200)
    EventLog(store).respread("Burst", 3)
    chain = opened(store)
    chain.seal(210, rows_at([205]))
    shares = [chain.read(TIME_MIN, 200, bucket).to_pylist() for bucket in range(3)]
    compact(opened(store), SMALL)
    again = opened(store)
    assert {again.footer(span).buckets for span in again.spans(TIME_MIN, 200)} == {3}
    assert again.read(TIME_MIN, 200).equals(wanted)
    assert [again.read(TIME_MIN, 200, bucket).to_pylist() for bucket in range(3)] == shares


def test_a_chain_holds_eight_bytes_for_each_segment_that_is_not_compacted() -> None:
    store = MemoryStore()
    chain = EventLog(store).create(BURST, buckets=1)
    for end in range(1, 1001):
        chain.seal(end, rows_at([]))
    again = opened(store)
    assert again._starts.itemsize * len(again._starts) == 8000
    assert len(again._footers) < 10
    compact(again, CompactionConfig(period_us=1 << 60))
    assert (len(again._starts), len(again.index.entries)) == (0, 1)
