"""Compaction under random schedules, deaths at any call, other compactors at any call, and on real stores."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from unerring.log import (
    Chain,
    CompactionConfig,
    Compactor,
    EventLog,
    MemoryStore,
    Span,
    Store,
    compact,
    cut,
    store_at,
    write_part,
)
from unerring.log.sweeping import sweep, wall_us
from unerring.model import SECOND_US, TIME_MIN, LogError

from .test_compaction import BUCKETS, HOUR_US, SMALL, Clock, fill, opened, rows_at, split, times_of
from .worlds import BURST, Crash

KINDS = ("seal", "seal", "seal", "parts", "compact", "compact", "all", "cut", "wait", "sweep", "read", "hold", "old")
SCHEDULES = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 10**6)), min_size=5, max_size=60)


@settings(deadline=None)
@given(SCHEDULES)
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
        cut(chain, before_us, self.clock)
        self.base_us = chain.base.from_us

    def wait(self, rng: random.Random) -> None:
        self.clock.now_us += rng.choice([HOUR_US // 10, HOUR_US, 2 * HOUR_US])

    def sweep(self, rng: random.Random) -> None:
        sweep(opened(self.store), self.clock(), rng.choice([1, 3, 1000]), whole=rng.random() < 0.5)

    def read(self, rng: random.Random) -> None:
        reader = rng.choice(self.readers)
        through_us = reader.refresh() if rng.random() < 0.7 else reader.through_us
        low, high = rng.randint(-1, max(self.end_us, 1)), rng.randint(-1, max(through_us, 1))
        self._compare(reader, low, min(high, through_us))

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


@pytest.mark.parametrize("dies", [die_before, pytest.param(die_after, marks=pytest.mark.long)])
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


# Real stores


@pytest.fixture(params=["folder", "s3"])
def real(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    place = str(tmp_path) if request.param == "folder" else f"{request.getfixturevalue('s3_bucket')}/{tmp_path.name}"
    return store_at(place)


def test_writers_compactors_and_readers_at_once(real: Store) -> None:
    """Real concurrency: two compactors delete at once what they replaced, while others seal and read."""
    log = EventLog(real)
    log.create(BURST, buckets=BUCKETS)
    ended, failed = threading.Event(), []

    def guarded(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                failed.append(error)
                ended.set()

        return run

    def write() -> None:
        chain = log.chain("Burst")
        for end in range(10, 410, 10):
            assert chain.seal(end, rows_at([end - 1, end])).won
        ended.set()

    def compacts() -> None:
        compactor = Compactor(log.chain("Burst"), SMALL, lambda: wall_us() + 2 * HOUR_US)
        while not ended.is_set():
            compactor.step()
            sweep(compactor.chain, wall_us() + 5 * HOUR_US)

    def reads() -> None:
        chain = log.chain("Burst")
        seen: list[int] = []
        at_us = TIME_MIN
        while not ended.is_set() or at_us < chain.through_us:
            chain.refresh_index()  # a reader that polls often enough not to be a sleeper
            through_us = chain.refresh()
            seen += chain.read(at_us, through_us).column("time").to_pylist()
            at_us = through_us
        assert seen == [time for time in EVERY if time <= at_us]

    threads = [threading.Thread(target=guarded(work)) for work in (write, compacts, compacts, reads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert not failed, failed
    assert times_of(log.chain("Burst")) == EVERY
    compact(log.chain("Burst"), SMALL)
    log.chain("Burst").check()
    assert times_of(log.chain("Burst")) == EVERY
    assert len(log.chain("Burst").spans(TIME_MIN, 400)) < 5


EVERY = [time for end in range(10, 410, 10) for time in (end - 1, end)]
