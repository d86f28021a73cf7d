"""Pieces of the log beside plain twins, on many small cases: lists, sets and files in memory."""

from __future__ import annotations

import io
from itertools import pairwise
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from unerring.log import (
    Chain,
    EventLog,
    Got,
    MemoryStore,
    Positions,
    Retention,
    Taken,
    compact,
    cut,
    cut_at,
)
from unerring.log.producers import Run
from unerring.log.sealing import PartRows, agree_on, seal_interval
from unerring.log.segments import Part
from unerring.log.store import reading
from unerring.log.store.reading import ObjectFile
from unerring.model import TIME_MAX, TIME_MIN, DiskError, RuleError, Stamp

from .test_compaction import SMALL
from .worlds import BURST, READING, table, times_in

# --- objects of a store, read in pieces ---


def _opened(data: bytes, first: int) -> ObjectFile:
    def piece(start: int, end: int) -> Got:
        assert 0 <= start < end <= len(data), "nothing outside of the object is asked for"
        assert end - start <= reading.PIECE_BYTES
        return Got(data[start:end], len(data), "tag", None)

    return ObjectFile(Got(data[:first], len(data), "tag", None), piece, "here")


def test_a_file_over_pieces_reads_as_any_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PIECE_BYTES", 7)
    for seed in range(300):
        random = Random(seed)
        data = random.randbytes(random.choice([0, 1, 6, 7, 8, 50]))
        file, plain = _opened(data, random.choice([0, 1, 5, 50])), io.BytesIO(data)
        assert (file.readable(), file.seekable(), file.size()) == (True, True, len(data))
        for _ in range(20):
            match random.randrange(5):
                case 0:
                    whence, offset = random.randrange(3), random.randrange(-60, 60)
                    at = max(0, [0, plain.tell(), len(data)][whence] + offset)
                    assert file.seek(offset, whence) == plain.seek(at)
                case 1:
                    buffer, other = bytearray(random.randrange(20)), bytearray()
                    other.extend(plain.read(len(buffer)))
                    assert file.readinto(memoryview(buffer)) == len(other)
                    assert buffer[: len(other)] == other
                case 2:
                    assert file.readall() == plain.read()
                case _:
                    size = random.choice([None, -1, 0, 1, 2, 7, 8, 30])
                    assert file.read(size) == plain.read(size), (seed, size)
            assert file.tell() == plain.tell()


@pytest.mark.parametrize("now", [None, Got(b"other", 10, "new", None)])
def test_a_file_that_changes_while_it_is_read_is_named(now: Got | None) -> None:
    file = ObjectFile(Got(b"12345", 10, "old", None), lambda start, end: now, "s3://log/x")
    assert file.read(5) == b"12345"
    with pytest.raises(DiskError, match="s3://log/x was deleted or replaced while it was read"):
        file.read(1)


# --- outputs that several drivers seal ---


def _parts(random: Random) -> tuple[PartRows, list[tuple[int, int]]]:
    """Parts of tasks, and their stamps in a plain list."""
    parts, times, ordinals, plain = [], [], [], []
    for number in range(random.randrange(4)):
        own = sorted(random.randrange(1, 12) for _ in range(random.randint(1, 6)))
        noted = sorted(random.sample(range(len(own)), random.randint(0, len(own))))
        numbers = [random.randint(1, 5) for _ in noted]
        parts.append(Part(f"p{number}", 0, len(own), "", own[0], own[-1], skip=random.randrange(3)))
        times.append(np.array(own, np.int64))
        pair = (np.array(noted, np.int64), np.array(numbers, np.int64))
        ordinals.append(pair if noted or random.random() < 0.5 else None)
        plain += [(time, dict(zip(noted, numbers, strict=True)).get(row, 0)) for row, time in enumerate(own)]
    return PartRows(tuple(parts), tuple(times), tuple(ordinals)), sorted(plain)


def _stamps(rows: PartRows) -> list[tuple[int, int]]:
    stamps = rows.stamps()
    return list(zip(stamps.column("time").to_pylist(), stamps.column("ordinal").to_pylist(), strict=True))


def test_the_stamps_of_parts_and_what_is_left_of_them_after_a_time() -> None:
    for seed in range(100):
        rows, plain = _parts(Random(seed))
        assert _stamps(rows) == plain, seed
        for time_us in range(13):
            left = rows.after(time_us)
            assert _stamps(left) == [stamp for stamp in plain if stamp[0] > time_us], (seed, time_us)
            assert len(left) == sum(stamp[0] > time_us for stamp in plain)
            for part, times in zip(left.parts, left.times, strict=True):
                [whole] = [each for each in rows.parts if each.name == part.name]
                assert (part.rows, part.first_us, part.last_us) == (len(times), times[0], times[-1])
                assert part.skip == whole.skip + whole.rows - part.rows


def _sealed(times: list[int], ends: list[int]) -> MemoryStore:
    store = MemoryStore()
    chain = EventLog(store).create(READING)
    for before, end in pairwise([0, *ends]):
        chain.seal(end, table([time for time in times if before < time <= end]))
    return store


def test_whatever_another_driver_sealed_before_the_rest_is_added_once() -> None:
    for seed in range(60):
        random = Random(seed)
        times = sorted(random.sample(range(1, 40), 8))
        ends = sorted(random.sample(range(1, 40), 3))
        store = _sealed(times, ends)
        through_us = random.randint(1, 40)
        outputs = [time for time in times if time <= through_us]
        added = seal_interval(EventLog(store).chain("Reading"), table(outputs), through_us, "r")
        chain = EventLog(store).chain("Reading")
        assert chain.through_us == max(through_us, ends[-1])
        late = [time for time in outputs if ends[-1] < time]
        assert added == len(late), seed
        assert times_in(chain) == [time for time in times if time <= ends[-1]] + late


def test_an_interval_without_outputs_is_sealed_empty() -> None:
    store = _sealed([5], [10])
    assert seal_interval(EventLog(store).chain("Reading"), None, 30, "r") == 0
    chain = EventLog(store).chain("Reading")
    assert (chain.through_us, times_in(chain)) == (30, [5])


class _Faster(MemoryStore):
    """Another driver is faster: it seals just before this one does."""

    first: Chain | None = None
    sealed: tuple[int, list[int]] = (0, [])

    def create(self, name: str, data: bytes) -> bool:
        if self.first is not None and "/segments/" in name:
            first, self.first = self.first, None
            first.seal(self.sealed[0], table(self.sealed[1]))
        return super().create(name, data)


@pytest.mark.parametrize(
    ("end", "theirs", "added"),
    [(30, [5, 25], 0), (20, [5], 1), (30, [5], None), (30, [5, 24], None), (30, [5, 25, 26], None), (20, [6], 1)],
)
def test_two_drivers_that_seal_at_once_agree_or_the_rule_is_at_fault(
    end: int, theirs: list[int], added: int | None
) -> None:
    """Of another interval than this one's nothing can be said but what follows it."""
    store = _Faster()
    EventLog(store).create(READING)
    chain = EventLog(store).chain("Reading")
    store.first, store.sealed = EventLog(store).chain("Reading"), (end, theirs)
    if added is None:
        with pytest.raises(RuleError, match="the rule is not deterministic"):
            seal_interval(chain, table([5, 25]), 30, "r")
        return
    assert seal_interval(chain, table([5, 25]), 30, "r") == added
    assert times_in(EventLog(store).chain("Reading")) == [*theirs, *([25] if added else [])]


def test_drivers_are_compared_where_the_chain_still_has_rows() -> None:
    store = _sealed([5, 15, 25], [10, 20, 30])
    chain = EventLog(store).chain("Reading")
    agree_on(chain, TIME_MIN, 30, table([5, 15, 25]))
    with pytest.raises(RuleError, match=r"sealed \(10, 30\]"):
        agree_on(chain, 10, 30, table([5, 16, 25]))
    with pytest.raises(RuleError, match="not deterministic"):
        agree_on(chain, 10, 30, None)
    cut(chain, 20)
    agree_on(chain, TIME_MIN, 30, table([5, 16, 25]))
    agree_on(chain, TIME_MIN, 20, table([5, 16]))
    with pytest.raises(RuleError):
        agree_on(chain, TIME_MIN, 30, table([5, 16, 26]))


# --- retention, counting ---


def _chain(random: Random) -> tuple[MemoryStore, list[tuple[int, list[int]]]]:
    """Segments with their ends and times, some of them compacted."""
    store, ends = MemoryStore(), sorted(random.sample(range(1, 60), random.randint(2, 9)))
    chain = EventLog(store).create(READING)
    plain = []
    for before, end in pairwise([0, *ends]):
        times = sorted(random.sample(range(before + 1, end + 1), min(end - before, random.randrange(4))))
        chain.seal(end, table(times))
        plain.append((end, times))
    if random.random() < 0.5:
        compact(chain, SMALL)
    return store, plain


def test_counting_is_as_reading() -> None:
    for seed in range(10):
        store, plain = _chain(Random(seed))
        chain = EventLog(store).chain("Reading")
        times = [time for _, each in plain for time in each]
        random = Random(seed)
        for _ in range(12):
            low, high = sorted(random.choices(range(-1, 62), k=2))
            inside = [time for time in times if low < time <= high]
            assert chain.count(low, high) == len(inside), (seed, low, high)
            assert chain.read(low, high).column("time").to_pylist() == inside
        assert chain.count(TIME_MIN, TIME_MAX) == len(times)


def test_what_is_cut_ends_at_or_before_the_time_and_what_readers_need_stays() -> None:
    for seed in range(60):
        random = Random(seed)
        store, plain = _chain(random)
        chain = EventLog(store).chain("Reading")
        ends = [span.through_us for span in chain.spans(TIME_MIN, TIME_MAX)]
        readers = random.sample(range(ends[-1] + 1), random.randrange(3))
        for number, at in enumerate(readers):
            Positions(store, "Reading").commit(f"r{number}", Stamp(at, 0))
        before_us = random.choice([*ends, *(end - 1 for end in ends), 60])
        limit_us = min([before_us, *readers])
        segments = cut(chain, before_us)
        base_us = max([end for end in ends if end <= limit_us], default=TIME_MIN)
        again = EventLog(store).chain("Reading")
        assert again.base.from_us == base_us, (seed, before_us, readers)
        assert segments == sum(end <= base_us for end, _ in plain), "each that was sealed counts, merged or not"
        assert times_in(again) == [time for _, each in plain for time in each if time > base_us]
        assert all(entry.from_us >= base_us for entry in again.index.entries), "nothing is named that is gone"
        assert cut(again, before_us) == 0


def test_by_size_the_newest_stay_that_fit_together() -> None:
    for seed in range(20):
        store, _ = _chain(Random(seed))
        chain = EventLog(store).chain("Reading")
        named = {entry.through_us: entry.bytes for entry in chain.entries(TIME_MIN, TIME_MAX)}
        sizes = named | {span.through_us: chain.objects.size(span) for span in chain.tail()}
        newest = sorted(sizes, reverse=True)
        for kept in range(1, len(newest) + 1):
            fits = sum(sizes[end] for end in newest[:kept])
            gone = newest[kept] if kept < len(newest) else TIME_MIN
            assert cut_at({"Reading": chain}, Retention(bytes_max=fits)) == gone, (seed, kept)
            assert cut_at({"Reading": chain}, Retention(bytes_max=fits - 1)) == newest[kept - 1]


def test_by_age_and_size_what_either_lets_go_goes() -> None:
    store = _sealed([5, 15, 25], [10, 20, 30])
    chains = {"Reading": EventLog(store).chain("Reading")}
    size = chains["Reading"].objects.size(chains["Reading"].tail()[-1])
    assert cut_at(chains, Retention(age_us=5)) == 25
    assert cut_at(chains, Retention(bytes_max=size)) == 20
    assert cut_at(chains, Retention(age_us=5, bytes_max=size)) == 25
    assert cut_at(chains, Retention(age_us=15, bytes_max=size)) == 20
    assert cut_at(chains, Retention()) == TIME_MIN


# --- producers ---


def test_what_was_taken_without_some_and_with_one_more() -> None:
    runs: tuple[Run, ...] = (((0, 7), (0, 8)),)
    taken = Taken({"a": (0, 4), "b": (0, 2)}, {"a": runs}, frozenset("b"))
    assert taken.awaited == ["a"]
    assert [taken.has("a", (0, number)) for number in range(4, 10)] == [True, False, False, True, True, False]
    assert not taken.has("c", (0, 0))
    more = taken.with_mark("c", (1, 1))
    assert (more.marks["c"], more.awaited, more.above) == ((1, 1), ["a"], {"a": runs})
    assert Taken({"a": (0, 4)}).with_mark("c", (1, 1)).away is None
    assert Taken({"a": (0, 4)}).awaited == [], "not known: nobody is waited for"
    left = taken.without(["a"])
    assert (left.marks, left.above, left.away) == ({"b": (0, 2)}, {}, frozenset("b"))
    assert list(Taken({}, {"c": (((0, 2), (0, 3)),)}).holes("c")) == [((-1, 0), (0, 1))]


def test_a_chain_of_another_stream_has_its_own_segments() -> None:
    store = _sealed([5], [10])
    other = EventLog(store).create(BURST)
    assert (other.through_us, other.last()) == (TIME_MIN, None)
    assert pa.types.is_int64(other.read(TIME_MIN, TIME_MAX).column("time").type)
