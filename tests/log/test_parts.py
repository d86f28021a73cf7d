"""Segments of parts: what tasks wrote under names of their own, made visible by one segment that names them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from unerring.log import PARTS, Chain, EventLog, MemoryStore, Part, buckets_of, part_after, write_part
from unerring.log.parts import part_interval
from unerring.model import TIME_MIN, InvariantBreach, LogError

from .worlds import BURST, table

BUCKETS = 3


def rows_of(times: list[int]) -> pa.Table:
    """Rows of these times, in order; equal times are told apart by their ordinals and machines."""
    ordinals = [times[:at].count(time) for at, time in enumerate(times)]
    rows = table(times, BURST, lambda time: f"m{time % 5}")
    machines = pa.array(
        [f"m{(time + 3 * ordinal) % 7}" for time, ordinal in zip(times, ordinals, strict=True)], pa.string()
    )
    place = rows.column_names.index
    rows = rows.set_column(place("ordinal"), rows.schema.field("ordinal"), pa.array(ordinals, pa.int64()))
    return rows.set_column(place("machine"), rows.schema.field("machine"), machines)


def parts_of(
    store: MemoryStore, rows: pa.Table, from_us: int, through_us: int, pieces: int = 1
) -> tuple[list[Part], list[tuple[np.ndarray, np.ndarray]]]:
    """What tasks write of these rows: a part for each bucket, or several; and their ordinals."""
    owner = buckets_of([rows.column("machine")], len(rows), BUCKETS)
    parts, ordinals = [], []
    for bucket in range(BUCKETS):
        for piece in range(pieces):
            wanted = (owner == bucket) & (np.arange(len(rows)) % pieces == piece)
            some = rows.filter(pa.array(wanted))
            if len(some):
                parts.append(
                    write_part(store, "Burst", BURST, some.drop_columns(["ordinal"]), bucket, from_us, through_us)
                )
                ordinals.append((np.arange(len(some)), some.column("ordinal").to_numpy()))
    return parts, ordinals


def sealed(times: list[int], pieces: int = 1) -> tuple[MemoryStore, Chain]:
    store = MemoryStore()
    chain = EventLog(store).create(BURST, buckets=BUCKETS)
    parts, ordinals = parts_of(store, rows_of(times), TIME_MIN, 100, pieces)
    assert chain.seal_parts(100, parts, ordinals, rule="r").won
    return store, EventLog(store).chain("Burst")


@given(
    times=st.lists(st.integers(1, 40), max_size=60).map(sorted),
    cut=st.integers(0, 40),
    ends=st.tuples(st.integers(-1, 41), st.integers(-1, 41)),
    pieces=st.integers(1, 3),
    columns=st.sampled_from([None, ["machine", "_producer"], []]),
    coded=st.booleans(),
)
def test_parts_are_read_as_one_file_is(
    times: list[int], cut: int, ends: tuple[int, int], pieces: int, columns: list[str] | None, coded: bool
) -> None:
    plain = EventLog(MemoryStore()).create(BURST, buckets=BUCKETS)
    store = MemoryStore()
    chain = EventLog(store).create(BURST, buckets=BUCKETS)
    before_us = TIME_MIN
    for end_us in (cut, 50):
        rows = rows_of([time for time in times if before_us < time <= end_us])
        plain.seal(end_us, rows)
        chain.seal_parts(end_us, *parts_of(store, rows, before_us, end_us, pieces))
        before_us = end_us
    again = EventLog(store).chain("Burst")
    again.check()
    low, high = min(ends), max(ends)
    for bucket in (None, *range(BUCKETS)):
        wanted, had = (one.read(low, high, bucket, columns, coded=coded) for one in (plain, again))
        assert had.to_pylist() == wanted.to_pylist()
        assert had.schema.equals(wanted.schema)
    assert sum(again.footer(span).rows for span in again.spans(TIME_MIN, 50)) == len(times)


def test_a_bucket_is_read_from_its_own_part_alone() -> None:
    store, chain = sealed(list(range(1, 40)))
    parts = chain.footer(chain.spans(TIME_MIN, 100)[0]).parts
    assert [part.bucket for part in parts] == [0, 1, 2]
    whole = chain.read(TIME_MIN, 100, 1)
    for part in parts:
        if part.bucket != 1:
            store.delete(f"Burst/{PARTS}/{part.name}")
    assert EventLog(store).chain("Burst").read(TIME_MIN, 100, 1).equals(whole)
    with pytest.raises(LogError, match=rf"{parts[0].name} is missing, but a sealed segment names it"):
        chain.read(TIME_MIN, 100, 0)
    with pytest.raises(LogError, match=rf"{parts[0].name} is missing"):
        EventLog(store).chain("Burst").check()


def test_rows_that_another_driver_sealed_are_left_out_of_a_part() -> None:
    store = MemoryStore()
    times = [3, 8, 8, 8, 12, 15, 15, 21]
    slow, fast = EventLog(store).create(BURST, BUCKETS), EventLog(store).create(BURST, BUCKETS)
    parts, _ = parts_of(store, rows_of(times), TIME_MIN, 30)
    fast.seal(10, rows_of([3, 8, 8, 8]))
    assert not slow.seal_parts(30, parts).won
    rest, ordinals = [], []
    for part in parts:
        own = slow.objects.parts.part(part, ["time"]).column("time").to_numpy()
        done = int((own <= 10).sum())
        if done < part.rows:
            rest.append(part_after(part, done, int(own[done])))
            owner = buckets_of([rows_of(times).column("machine")], len(times), BUCKETS)
            mine = rows_of(times).filter(pa.array(owner == part.bucket)).slice(done)
            ordinals.append((np.arange(len(mine)), mine.column("ordinal").to_numpy()))
    assert slow.seal_parts(30, rest, ordinals).won
    assert EventLog(store).chain("Burst").read(TIME_MIN, 30).equals(rows_of(times))


def test_a_second_attempt_writes_beside_the_first() -> None:
    store = MemoryStore()
    first, _ = parts_of(store, rows_of([1, 2, 3]), 0, 10)
    second, _ = parts_of(store, rows_of([1, 2, 3]), 0, 10)
    assert not {part.name for part in first} & {part.name for part in second}
    assert [part.digest for part in first] == [part.digest for part in second], "the same rows give the same bytes"
    assert {part_interval(part.name) for part in first} == {(0, 10)}
    assert part_interval("notes.txt") is None


def test_what_does_not_belong_into_a_segment_is_refused() -> None:
    store, chain = sealed([1, 2, 3])
    parts, _ = parts_of(store, rows_of([90, 120]), 80, 200)
    with pytest.raises(InvariantBreach, match="holds its own interval's events"):
        chain.seal_parts(200, parts)
    late, _ = parts_of(store, rows_of([120]), 100, 200)
    with pytest.raises(InvariantBreach, match=r"ordinals of .* are of its rows"):
        chain.seal_parts(200, late, [(np.array([7]), np.array([1]))])


def test_a_part_of_another_segment_is_found() -> None:
    store, chain = sealed([1, 2, 3])
    [first, *_] = chain.footer(chain.spans(TIME_MIN, 100)[0]).parts
    others, _ = parts_of(store, rows_of(list(range(1, 20))), TIME_MIN, 100)
    other = next(part for part in others if part.bucket == first.bucket)
    store.replace(f"Burst/{PARTS}/{first.name}", store.read(f"Burst/{PARTS}/{other.name}") or b"")
    with pytest.raises(LogError, match=rf"{first.name} is not the part that its segment names"):
        chain.read(TIME_MIN, 100)


def test_every_byte_of_a_part_and_of_its_segment_is_protected() -> None:
    store, chain = sealed([1, 2, 2, 3, 3, 3])
    whole = chain.read(TIME_MIN, 100)
    names = [name for name in store._held if f"/{PARTS}/" in name or "/segments/" in name]
    assert len(names) > 2
    for name in names:
        data = store.read(name) or b""
        for at in range(len(data)):
            store.replace(name, data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :])
            with pytest.raises(LogError, match=name.rsplit("/", 1)[1]):
                EventLog(store).chain("Burst").read(TIME_MIN, 100)
        store.replace(name, data)
    assert EventLog(store).chain("Burst").read(TIME_MIN, 100).equals(whole)
