"""The index of a chain: listings that lag, pages, what is damaged, lost or behind."""

from __future__ import annotations

import pytest

from unerring.log import (
    Chain,
    CompactionConfig,
    Compactor,
    EventLog,
    MemoryStore,
    compact,
    cut,
    index as index_module,
    sweep,
    wall_us,
)
from unerring.log.index import Index, object_name, successor
from unerring.log.parts import part_name
from unerring.log.segments import segment_name
from unerring.model import TIME_MIN, LogError

from .test_compaction import HOUR_US, SMALL, Clock, asleep, fill, names_in, opened, rows_at, times_of
from .worlds import BURST


class Lagging(MemoryStore):
    """A listing does not show what was created last."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self._created: list[str] = []

    def create(self, name: str, data: bytes) -> bool:
        created = super().create(name, data)
        if created:
            self._created.append(name)
        return created

    def names(self, folder: str, after: str = "") -> list[str]:
        late = {name.rpartition("/")[2] for name in self._created[-self.hidden :] if name.startswith(f"{folder}/")}
        return [name for name in super().names(folder, after) if name not in late]


@pytest.mark.parametrize("hidden", [1, 2, 3, 7, 30])
def test_what_a_listing_does_not_show_is_found_by_its_name(hidden: int) -> None:
    store = Lagging(hidden)
    fill(store, range(10, 210, 10))
    wanted = [time for end in range(10, 210, 10) if end % 3 for time in (end - 1, end)]
    assert times_of(opened(store)) == wanted
    compactor = Compactor(opened(store), SMALL)
    while compactor.step():
        assert times_of(opened(store)) == wanted
    for end in range(210, 260, 10):
        assert opened(store).seal(end, rows_at([end])).won
    assert times_of(opened(store)) == [*wanted, *range(210, 260, 10)]


def test_a_hole_in_a_listing_is_filled_by_names() -> None:
    class Holed(MemoryStore):
        def names(self, folder: str, after: str = "") -> list[str]:
            names = super().names(folder, after)
            return names[:5] + names[7:] if folder.endswith("segments") else names

    store = Holed()
    wanted = times_of(fill(store, range(10, 210, 10)))
    chain = opened(store)
    assert chain.count(TIME_MIN, 200) == len(wanted)
    assert times_of(opened(store)) == wanted
    opened(store).check()


@pytest.fixture
def short_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "ENTRIES_MAX", 6)
    monkeypatch.setattr(index_module, "PAGE_ENTRIES", 3)


@pytest.mark.usefixtures("short_pages")
def test_the_oldest_entries_move_into_pages() -> None:
    store, clock = MemoryStore(), Clock()
    config = CompactionConfig(period_us=30, segments_min=2, newest_kept=0)
    wanted = times_of(fill(store, range(10, 810, 10)))
    compactor = Compactor(opened(store), config, clock)
    while compactor.step():
        pass
    chain = opened(store)
    assert len(chain.index.pages) >= 1
    assert len(chain.index.entries) <= 40
    for end in range(810, 1010, 10):
        chain.seal(end, rows_at([end]))
    wanted += range(810, 1010, 10)
    for _ in range(12):
        clock.now_us += HOUR_US + 1
        compactor.step(everything=True)
    sweep(opened(store), clock(), whole=True)
    chain = opened(store)
    assert len(chain.index.pages) > 1
    assert times_of(chain) == wanted
    assert chain.count(TIME_MIN, 1000) == len(wanted)
    assert chain.read(95, 415).column("time").to_pylist() == [time for time in wanted if 95 < time <= 415]
    chain.check()
    before = chain.base.from_us
    cut(chain, 200)
    assert chain.base.from_us > before
    assert times_of(opened(store)) == [time for time in wanted if time > chain.base.from_us]
    opened(store).check()
    pages = {page.name for page in chain.index.pages}
    assert {name.rpartition("/")[2] for name in names_in(store, "index") if "-" in name} == pages
    page = f"Burst/index/{next(iter(sorted(pages)))}"
    store.delete(page)
    with pytest.raises(LogError, match=rf"{page} is missing, but the index names it"):
        times_of(opened(store))


def test_a_sweep_takes_what_no_index_names_and_nothing_else() -> None:
    store = MemoryStore()
    wanted = times_of(fill(store, range(10, 210, 10)))
    compact(opened(store), SMALL)
    late_us = wall_us() + 9 * HOUR_US
    while sweep(opened(store), late_us, whole=True).deleted:
        pass
    index = opened(store).index
    number, through_us = index.number, index.through_us
    before = dict(store._held)
    token = "0123456789abcdef"
    stays = [
        f"compacted/{object_name(5, 9, number + 1)}",
        f"index/{object_name(5, 9, number + 1, 'json')}",
        f"parts/{part_name(5, through_us + 1, 0, token)}",
        "compacted/notes.txt",
        "index/notes.txt",
        "parts/notes.txt",
        "intake/notes/notes.txt",  # no source's folder: nobody claims a part there
    ]
    goes = [
        f"segments/{segment_name(7)}",
        f"compacted/{object_name(5, 9, number)}",
        f"index/{object_name(5, 9, number, 'json')}",
        f"parts/{part_name(5, through_us, 0, token)}",
    ]
    for name in (*stays, *goes):
        store.create(f"Burst/{name}", b"")
    some = sweep(opened(store), late_us, 3, whole=True)
    assert (some.deleted, some.complete) == (3, False)
    rest = sweep(opened(store), late_us, 1, whole=True)
    assert (rest.deleted, rest.complete, rest.pending, rest.swept_us) == (1, True, (), through_us)
    assert set(store._held) == {*before, *(f"Burst/{name}" for name in stays)}
    assert times_of(opened(store)) == wanted


@pytest.mark.usefixtures("short_pages")
def test_a_whole_sweep_looks_at_what_pages_name_and_another_one_behind_it() -> None:
    store = MemoryStore()
    wanted = times_of(fill(store, range(10, 810, 10)))
    compact(opened(store), CompactionConfig(period_us=30, segments_min=2, newest_kept=0))
    late_us = wall_us() + 9 * HOUR_US
    while sweep(opened(store), late_us, whole=True).deleted:
        pass
    chain = opened(store)
    early, late = f"Burst/segments/{segment_name(25)}", f"Burst/segments/{segment_name(chain.index.through_us - 5)}"
    assert 25 < chain.index.pages[-1].through_us < chain.index.through_us - 5
    store.create(early, b"")
    store.create(late, b"")
    assert sweep(opened(store), late_us).deleted == 1
    assert names_in(store, "segments") == [early], "only retention and a whole sweep look at what is long compacted"
    assert sweep(opened(store), late_us, whole=True).deleted == 1
    assert names_in(store, "segments") == []
    assert times_of(opened(store)) == wanted


def test_a_clock_that_is_behind_makes_nothing_old() -> None:
    """An index is kept for the grace time after the next one was made, by whichever clock is ahead."""
    first = successor(Index("Burst"), 10 * HOUR_US)
    second = successor(first, 1)
    third = successor(second, 10 * HOUR_US)
    assert (second.at_us, third.at_us) == (10 * HOUR_US, 10 * HOUR_US)
    assert [number for number, _ in third.kept] == [1, 2]
    assert [number for number, _ in successor(third, 11 * HOUR_US + 1).kept] == [3]


def compacted() -> tuple[MemoryStore, Chain]:
    store = MemoryStore()
    fill(store, range(10, 110, 10))
    compact(opened(store), SMALL)
    sweep(opened(store), wall_us() + 2 * HOUR_US)
    chain = opened(store)
    chain.seal(120, rows_at([115]))
    return store, chain


def test_an_index_that_is_behind_is_named() -> None:
    store, chain = compacted()
    newest = chain.index.number
    for number in range(1, newest + 1):
        store.delete(f"Burst/index/{number:08d}.json")
    with pytest.raises(LogError, match=rf"index/{newest:08d}\.json is missing, but was seen before: .* is behind"):
        opened(store)


def test_an_index_of_another_stream_is_named() -> None:
    store, chain = compacted()
    other = MemoryStore()
    EventLog(other).create(BURST, buckets=2)
    name = f"Burst/index/{chain.index.number:08d}.json"
    data = store.read(name) or b""
    store.create(f"Burst/index/{chain.index.number + 1:08d}.json", data)
    with pytest.raises(LogError, match=rf"index/{chain.index.number + 1:08d}\.json says that it is index"):
        opened(store)


def test_every_byte_of_an_index_and_of_a_compacted_object_is_protected() -> None:
    store, chain = compacted()
    wanted = times_of(opened(store))
    [entry, *_] = chain.index.entries
    for name in (f"Burst/index/{chain.index.number:08d}.json", f"Burst/compacted/{entry.name}"):
        whole = store.read(name) or b""
        for at in range(len(whole)):
            store.replace(name, whole[:at] + bytes([whole[at] ^ (1 << at % 8)]) + whole[at + 1 :])
            with pytest.raises(LogError, match=name.rpartition("/")[2]):
                times_of(opened(store))
        store.replace(name, whole)
    assert times_of(opened(store)) == wanted


def test_a_compacted_object_that_is_lost_or_swapped_is_named() -> None:
    store, chain = compacted()
    other = MemoryStore()
    fill(other, range(10, 110, 10), rule=lambda _: "r")
    compact(opened(other), SMALL)
    [entry, *_] = chain.index.entries
    name = f"Burst/compacted/{entry.name}"
    theirs = next(data for key, data in other._held.items() if "/compacted/" in key)
    store.replace(name, theirs)
    with pytest.raises(LogError, match=rf"{entry.name} (is not the segment that was sealed|says it is)|continues at"):
        times_of(opened(store))
    store.delete(name)
    with pytest.raises(LogError, match=rf"{entry.name} has disappeared; restore it from a copy"):
        times_of(opened(store))


def test_the_chain_asks_a_store_for_little() -> None:
    """One request for each look at a chain that does not grow; the index now and then."""
    store, _ = compacted()
    chain = opened(store)
    asked: list[str] = []
    for what in ("read", "open", "names"):
        plain = getattr(store, what)
        setattr(store, what, lambda *given, what=what, plain=plain: asked.append(what) or plain(*given))
    now_s = chain.indexes.clock_s()
    for look in range(100):
        chain.indexes.clock_s = lambda look=look: now_s + look
        chain.refresh()
    assert asked.count("open") == 100
    assert asked.count("read") <= 10
    assert asked.count("names") == 0
    asleep(chain, 1)
    asked.clear()
    chain.seal(130, rows_at([125]))
    assert len(asked) == 1, "a seal asks once whether it was overtaken"
