"""Compaction: the same rows in fewer objects, whoever reads, writes, compacts, cuts or dies meanwhile."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

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
from unerring.model import SECOND_US, TIME_MIN, LogError, Stamp

from .worlds import BURST, Crash, table

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


# Schedules


@st.composite
def schedules(draw: Any) -> list[tuple[str, int]]:
    kinds = [
        "seal",
        "seal",
        "seal",
        "parts",
        "compact",
        "compact",
        "all",
        "cut",
        "wait",
        "sweep",
        "read",
        "hold",
        "old",
    ]
    return draw(st.lists(st.tuples(st.sampled_from(kinds), st.integers(0, 10**6)), min_size=5, max_size=60))


@settings(deadline=None)
@given(schedules())
def test_random_schedules_read_as_the_plain_list(schedule: list[tuple[str, int]]) -> None:
    World().run(schedule)


class World:
    """A chain with writers, compactors, retention and readers, beside the plain list of what was sealed."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.store = store or MemoryStore()
        EventLog(self.store).create(BURST, buckets=BUCKETS)
        self.clock = Clock()
        self.times: list[int] = []
        self.base_us = TIME_MIN
        self.end_us = 0
        self.sealed_us = TIME_MIN
        self.writers = [opened(self.store) for _ in range(2)]
        self.readers = [opened(self.store) for _ in range(3)]
        self.compactors = [Compactor(opened(self.store), SMALL, self.clock) for _ in range(2)]
        self.held: list[tuple[list[Span], int, int]] = []
        for chain in (*self.writers, *self.readers, *(one.chain for one in self.compactors)):
            began_s, began_us = chain.indexes.clock_s(), self.clock.now_us
            chain.indexes.clock_s = lambda a=began_s, b=began_us: a + (self.clock.now_us - b) / SECOND_US

    def run(self, schedule: list[tuple[str, int]]) -> None:
        for kind, number in schedule:
            self.clock.now_us += number % 20 * SECOND_US
            getattr(self, kind)(random.Random(number))
        self.clock.now_us += 60 * SECOND_US
        fresh = opened(self.store)
        fresh.check()
        assert times_of(fresh) == [time for time in self.times if time > self.base_us]
        for reader in self.readers:
            assert times_of(reader, max(fresh.base.from_us, reader.base.from_us)) == times_of(fresh)

    def seal(self, rng: random.Random) -> None:
        writer = rng.choice(self.writers)
        writer.refresh()
        if TIME_MIN < self.sealed_us != writer.through_us:  # it slept, and where it stands is no segment any more
            assert not writer.seal(writer.through_us + 1, rows_at([])).won
        before_us, self.end_us = self.end_us, self.end_us + rng.randint(1, 60)
        times = sorted(
            rng.sample(range(before_us + 1, self.end_us + 1), rng.randint(0, min(4, self.end_us - before_us)))
        )
        rule = "old" if self.end_us < 200 else "new"
        assert writer.seal(self.end_us, rows_at(times), rule=rule, producers={"p": (0, self.end_us)}).won
        self.times += times
        self.sealed_us = self.end_us

    def parts(self, rng: random.Random) -> None:
        writer = rng.choice(self.writers)
        if TIME_MIN < self.sealed_us != writer.refresh():
            assert not writer.seal(writer.through_us + 1, rows_at([])).won
        from_us = writer.refresh()
        before_us, self.end_us = self.end_us, self.end_us + rng.randint(1, 60)
        times = sorted(
            rng.sample(range(before_us + 1, self.end_us + 1), rng.randint(1, min(9, self.end_us - before_us)))
        )
        for _ in range(2):  # a first attempt, which nobody names, and a second one
            some = [
                write_part(self.store, "Burst", BURST, rows.drop_columns(["ordinal"]), bucket, from_us, self.end_us)
                for bucket, rows in enumerate(split(rows_at(times)))
                if len(rows)
            ]
        assert writer.seal_parts(self.end_us, some, producers={"p": (0, self.end_us)}).won
        self.times += times
        self.sealed_us = self.end_us

    def compact(self, rng: random.Random) -> None:
        rng.choice(self.compactors).step()

    def all(self, rng: random.Random) -> None:
        compactor = rng.choice(self.compactors)
        while compactor.step(everything=True):
            pass

    def cut(self, rng: random.Random) -> None:
        before_us = rng.randint(0, max(self.end_us - 1, 0))
        chain = opened(self.store)
        cut(chain, before_us)
        self.base_us = chain.base.from_us

    def wait(self, rng: random.Random) -> None:
        self.clock.now_us += rng.choice([HOUR_US // 10, HOUR_US, 2 * HOUR_US])

    def sweep(self, rng: random.Random) -> None:
        sweep(opened(self.store), self.clock(), rng.choice([1, 3, 1000]), whole=rng.random() < 0.5)

    def read(self, rng: random.Random) -> None:
        reader = rng.choice(self.readers)
        through_us = reader.refresh() if rng.random() < 0.7 else reader.through_us
        self._compare(reader, rng.randint(-1, max(self.end_us, 1)), rng.randint(-1, max(through_us, 1)))

    def hold(self, rng: random.Random) -> None:
        """Names that a task will be given later."""
        chain = rng.choice(self.readers)
        chain.refresh()
        low = rng.randint(0, max(self.end_us, 1))
        if low >= chain.base.from_us:
            self.held.append((chain.spans(low, chain.through_us), low, chain.through_us))

    def old(self, rng: random.Random) -> None:
        """A task with names from before."""
        if self.held:
            spans, low, high = rng.choice(self.held)
            if spans:
                self._compare(Chain(self.store, "Burst", BURST, BUCKETS, known=list(spans)), low, high)

    def _compare(self, chain: Chain, low: int, high: int) -> None:
        wanted = [time for time in self.times if low < time <= high]
        try:
            had = chain.read(low, high).column("time").to_pylist()
        except LogError as error:
            if "removed by retention" not in str(error) or low >= max(self.base_us, chain.base.from_us):
                raise
        else:
            assert had == wanted
            assert chain.count(low, high) == len(wanted)


# Faults


class Counting(MemoryStore):
    """Something happens at the n-th call: another process works, or this one dies before or after the call."""

    def __init__(self, held: dict[str, bytes]) -> None:
        super().__init__()
        self._held = held
        self.left = -1
        self.happens: Callable[[Callable[[], Any]], Any] = lambda effect: effect()

    def _step(self, effect: Callable[[], Any]) -> Any:
        self.left -= 1
        if self.left == 0:
            return self.happens(effect)
        return effect()

    def create(self, name: str, data: bytes) -> bool:
        return self._step(lambda: MemoryStore.create(self, name, data))

    def replace(self, name: str, data: bytes) -> None:
        self._step(lambda: MemoryStore.replace(self, name, data))

    def note(self, name: str, data: bytes) -> None:
        self._step(lambda: MemoryStore.note(self, name, data))

    def delete(self, name: str) -> None:
        self._step(lambda: MemoryStore.delete(self, name))

    def read(self, name: str) -> bytes | None:
        return self._step(lambda: MemoryStore.read(self, name))

    def open(self, name: str) -> Any:
        return self._step(lambda: MemoryStore.open(self, name))

    def names(self, folder: str, after: str = "") -> list[str]:
        return self._step(lambda: MemoryStore.names(self, folder, after))


def die_before(effect: Callable[[], Any]) -> Any:
    raise Crash


def die_after(effect: Callable[[], Any]) -> Any:
    effect()
    raise Crash


PERIODS = CompactionConfig(rows_max=40, fan=2, segments_min=2, segments_max=5, newest_kept=1, period_us=30)
CUT_US = 50
"""The last end of a period that `life` may cut at."""


def life(store: Any, clock: Clock) -> None:
    """Compact, cut, compact again after the grace time."""
    compactor = Compactor(opened(store), PERIODS, clock)
    while compactor.step(everything=True):
        pass
    cut(opened(store), 65)
    clock.now_us += 2 * HOUR_US
    compactor = Compactor(opened(store), PERIODS, clock)
    while compactor.step(everything=True):
        pass
    sweep(opened(store), clock(), whole=True)


@pytest.mark.parametrize("dies", [die_before, die_after])
def test_death_at_any_call_loses_nothing(dies: Callable[[Callable[[], Any]], Any]) -> None:
    first = MemoryStore()
    fill(first, range(10, 130, 10), parts=True)
    wanted = times_of(opened(first))
    at, died = 0, True
    while died:
        at += 1
        store = Counting(dict(first._held))
        store.left, store.happens = at, dies
        clock, died = Clock(), False
        try:
            life(store, clock)
        except Crash:
            died = True
        found = opened(MemoryStore_of(store._held))
        assert times_of(found, max(found.base.from_us, CUT_US)) == [time for time in wanted if time > CUT_US]
        assert found.base.from_us in (TIME_MIN, CUT_US)
        survivor = MemoryStore_of(store._held)
        life(survivor, clock)
        assert times_of(opened(survivor)) == [time for time in wanted if time > CUT_US]
        alone = opened(survivor).objects.name_of(opened(survivor).spans(110, 120)[0])
        left = [name for name in survivor._held if "/segments/" in name or "/parts/" in name]
        assert [name for name in left if name != alone and "/parts/" not in name] == [], "a dead one left it behind"
        assert len(left) <= 3, "the last segment is alone in its period; it and its parts stay as they were sealed"
    assert at > 60


def MemoryStore_of(held: dict[str, bytes]) -> MemoryStore:
    store = MemoryStore()
    store._held = held
    return store


def test_another_compactor_at_any_call_does_no_harm() -> None:
    first = MemoryStore()
    fill(first, range(10, 130, 10))
    wanted = times_of(opened(first))
    at, met = 0, True
    while met:
        at += 1
        store = Counting(dict(first._held))
        met = False

        def work(effect: Callable[[], Any], store: Counting = store) -> Any:
            nonlocal met
            met = True
            clock = Clock()
            clock.now_us += 3 * HOUR_US
            life(MemoryStore_of(store._held), clock)
            return effect()

        store.left, store.happens = at, work
        life(store, Clock())
        fresh = opened(MemoryStore_of(store._held))
        fresh.check()
        assert times_of(fresh) == [time for time in wanted if time > CUT_US]
    assert at > 60
