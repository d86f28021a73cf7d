"""Intakes: what tasks and drivers write, killed at any moment and started again, is one canonical stream."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from unerring.log import (
    Answer,
    Chain,
    EventLog,
    Intaker,
    MemoryStore,
    Order,
    Quarantine,
    TakeConfig,
    Taker,
    Times,
    Watermark,
    compact,
    producer_of,
    sweep,
    waiting,
)
from unerring.log.chain import REACHED
from unerring.log.intakes import Waiting
from unerring.model import TIME_MAX, TIME_MIN, CallerError, Column, ColumnType, LogError, StreamSchema

SCHEMA = StreamSchema(
    "Reading", (Column("machine", ColumnType.TEXT), Column("value", ColumnType.INT, nullable=True)), ("machine",)
)
STRICT = StreamSchema("Reading", SCHEMA.columns, SCHEMA.key, strict=True)
TIMES = Times("at", "us")
SMALL = TakeConfig(rows_per_run=5)
Row = tuple[int, str, int]
Batch = list[list[Row]]
"""Rows of each lane: time, machine, value."""


def job_of(store: Any, batch: Batch, piece: int = 3) -> Any:
    """The tasks of a micro-batch, run one after the other."""

    def run(order: Order) -> Sequence[Answer]:
        answers = []
        for lane, rows in enumerate(batch):
            taker = Taker(store, order, lane)
            for low in range(0, len(rows), piece):
                taker.take(table_of(rows[low : low + piece]))
            answers.append(taker.finish())
        return answers

    return run


def table_of(rows: Sequence[Row]) -> pa.Table:
    kinds = {"at": pa.int64(), "machine": pa.string(), "value": pa.int64()}
    return pa.table({name: pa.array([row[i] for row in rows], kind) for i, (name, kind) in enumerate(kinds.items())})


def ingest(
    store: Any,
    batches: Sequence[Batch],
    lateness_us: int,
    schema: StreamSchema = SCHEMA,
    first: int = 1,
    source: str = "s",
) -> Chain:
    """One driver, from the micro-batch that Spark would repeat on."""
    chain = EventLog(store).create(schema, 3)
    intaker = Intaker(chain, source, TIMES, SMALL)
    for number, batch in enumerate(batches, start=1):
        if number >= first:
            intaker.take(number, str(batch), job_of(store, batch), Watermark(lateness_us))
    last = len(batches) + 1
    intaker.take(last, "end", job_of(store, []), Watermark(end=True))
    return chain


def expected(
    batches: Sequence[Batch], lateness_us: int, strict: bool = False
) -> tuple[list[tuple[int, int, str, int]], int]:
    """The definition: which rows are late follows from the micro-batches before; the rest is sorted by time,
    micro-batch, lane and place."""
    kept: list[tuple[int, int, int, int, str, int]] = []
    watermark = newest = TIME_MIN
    late = 0
    for number, batch in enumerate(batches):
        for lane, rows in enumerate(batch):
            for place, (time, machine, value) in enumerate(rows):
                if time <= watermark:
                    late += 1
                else:
                    kept.append((time, number, lane, place, machine, value))
        newest = max([newest, *(row[0] for rows in batch for row in rows)])
        if newest > TIME_MIN:
            watermark = max(watermark, newest - lateness_us - (0 if strict else 1))
    out: list[tuple[int, int, str, int]] = []
    for time, _, _, _, machine, value in sorted(kept):
        ordinal = out[-1][1] + 1 if out and out[-1][0] == time else 0
        if strict and ordinal:
            late += 1
        else:
            out.append((time, ordinal, machine, value))
    return out, late


def rows_of(chain: Chain) -> list[tuple[int, int, str, int]]:
    chain.refresh()
    table = chain.read(chain.base.from_us, TIME_MAX, columns=["machine", "value"])
    return list(zip(*(table.column(name).to_pylist() for name in table.column_names), strict=True))


def sealed(store: MemoryStore) -> dict[str, bytes]:
    names = store.names("Reading/segments")
    return {name: store.read(f"Reading/segments/{name}") or b"" for name in names}


rows = st.tuples(st.integers(1, 40), st.sampled_from("abcdef"), st.integers(0, 9))
batches = st.lists(st.lists(st.lists(rows, max_size=12), min_size=1, max_size=3), min_size=1, max_size=5)


@settings(max_examples=25, deadline=None)
@given(batches, st.integers(0, 30), st.booleans())
def test_the_stream_is_the_canonical_merge(some: list[Batch], lateness_us: int, strict: bool) -> None:
    store = MemoryStore()
    chain = ingest(store, some, lateness_us, STRICT if strict else SCHEMA)
    wanted, late = expected(some, lateness_us, strict)
    assert rows_of(chain) == wanted
    bad = Quarantine(store, "Reading").events()
    assert len(bad) == late
    assert len(wanted) + len(bad) == sum(len(lane) for batch in some for lane in batch)


class Killed(Exception):
    """The process is gone."""


class Mortal:
    """A store whose user dies at its n-th change: before it is made, or right after."""

    def __init__(self, store: MemoryStore, dies_at: int, after: bool) -> None:
        self._store, self._left, self._after = store, dies_at, after

    def __getattr__(self, name: str) -> Any:
        own = getattr(self._store, name)
        if name not in ("create", "replace", "replace_if", "delete", "note"):
            return own

        def change(*given: Any) -> Any:
            self._left -= 1
            if self._left == 0 and not self._after:
                raise Killed
            answer = own(*given)
            if self._left == 0:
                raise Killed
            return answer

        return change


def random_batches(seed: int) -> list[Batch]:
    draw = random.Random(seed)
    drawn: list[Batch] = []
    for number in range(4):
        low = number * 25
        drawn.append(
            [
                [
                    (draw.randint(low, low + 40), draw.choice("abcdef"), draw.randint(0, 9))
                    for _ in range(draw.randint(0, 11))
                ]
                for _ in range(draw.randint(1, 3))
            ]
        )
    return drawn


def kill_at_changes(seed: int, stride: int) -> int:
    """Kill a driver at every change of the store (or every few), start another one, and compare; how many changes."""
    some = random_batches(seed)
    perfect = MemoryStore()
    ingest(perfect, some, 12)
    wanted, counts = sealed(perfect), Quarantine(perfect, "Reading").counts()
    assert len(wanted) >= 2
    for at in range(1 + seed % stride, 1000, stride):
        for after in (False, True):
            store = MemoryStore()
            try:
                ingest(Mortal(store, at, after), some, 12)
                return at
            except Killed:
                ingest(store, some, 12)
                assert sealed(store) == wanted, (at, after)
                assert Quarantine(store, "Reading").counts() == counts
    raise AssertionError("it never ends")


def test_kills_at_any_change_leave_the_same_bytes() -> None:
    assert kill_at_changes(seed=1, stride=4) > 20


@pytest.mark.parametrize("seed", range(2))
def test_a_zombie_that_wakes_anywhere_changes_nothing(seed: int) -> None:
    """A driver sleeps between its tasks' end and its commit, while another one does all that there is to do."""
    some = random_batches(seed)
    perfect = MemoryStore()
    ingest(perfect, some, 12)
    store = MemoryStore()
    for dies_at in random.Random(seed).sample(range(2, 40), 6):
        zombie = EventLog(store).create(SCHEMA, 3)
        asleep = Intaker(zombie, "s", TIMES, SMALL)
        number = random.Random(dies_at).randint(1, len(some))

        def late_job(order: Order, number: int = number) -> Sequence[Answer]:
            answers = job_of(store, some[number - 1])(order)
            ingest(store, some, 12)  # the other driver does everything before this one commits
            return list(answers)

        with contextlib.suppress(Killed):
            ingest(Mortal(store, dies_at, False), some, 12)
        newest = asleep.intakes.newest()
        if newest is not None and newest.number >= number:
            continue
        for before in range((newest.number if newest else 0) + 1, number):
            asleep.take(before, str(some[before - 1]), job_of(store, some[before - 1]), Watermark(12))
        asleep.take(number, str(some[number - 1]), late_job, Watermark(12))
    ingest(store, some, 12)
    assert sealed(store) == sealed(perfect)
    assert Quarantine(store, "Reading").counts() == Quarantine(perfect, "Reading").counts()


def test_another_writer_makes_rows_late_and_none_is_lost() -> None:
    store = MemoryStore()
    chain = EventLog(store).create(SCHEMA, 3)
    intaker = Intaker(chain, "s", TIMES, SMALL)
    intaker.take(1, "1", job_of(store, [[(10, "a", 1), (20, "b", 2), (30, "c", 3)]]), Watermark(5))
    assert chain.through_us == 24
    other = EventLog(store).chain("Reading")
    other.seal(28, chain.read(0, 0))
    other.seal(35, chain.read(0, 0))
    intaker.take(2, "2", job_of(store, [[(34, "a", 4), (50, "b", 5)]]), Watermark(5))
    intaker.take(3, "end", job_of(store, []), Watermark(end=True))
    assert [row[0] for row in rows_of(chain)] == [10, 20, 50]
    assert sorted(bad.time_us or 0 for bad in Quarantine(store, "Reading").events()) == [30, 34]


def test_two_sources_of_one_stream_share_it() -> None:
    store = MemoryStore()
    one, two = ([[[(t, "a", t) for t in range(first, 60, 2)]]] for first in (1, 2))
    chain = EventLog(store).create(SCHEMA, 3)
    Intaker(chain, "one", TIMES).take(1, "1", job_of(store, one[0]), Watermark(100))
    Intaker(chain, "two", TIMES).take(1, "1", job_of(store, two[0]), Watermark(100))
    assert rows_of(chain) == []
    Intaker(chain, "one", TIMES).take(2, "2", job_of(store, [[(70, "b", 1)]]), Watermark())
    assert [row[0] for row in rows_of(chain)] == [*range(1, 60, 2), 70]
    Intaker(chain, "two", TIMES).take(2, "2", job_of(store, [[(80, "b", 1)]]), Watermark())
    assert rows_of(chain)[-1][0] == 80
    assert {bad.producer[-2:] for bad in Quarantine(store, "Reading").events()} == {"/0"}
    assert Quarantine(store, "Reading").counts() == {"late": 29}


def test_rows_that_do_not_fit_are_kept_with_their_bytes() -> None:
    store = MemoryStore()
    schema = StreamSchema("Reading", SCHEMA.columns, SCHEMA.key, max_ahead_us=1_000_000)
    chain = EventLog(store).create(schema, 2)
    ahead = 2**60
    table = pa.table(
        {
            "at": pa.array([5, None, 6, 7, ahead, 8, 9], pa.int64()),
            "machine": pa.array(["a", "b", None, "c" * 100_000, "d", "e", None]),
            "value": pa.array(["1", "2", "3", "4", "5", "x", None]),
            "_corrupt_record": pa.array([None, None, None, None, None, None, '{"at": 9,']),
        }
    )

    def run(order: Order) -> Sequence[Answer]:
        taker = Taker(store, order, 0)
        taker.take(table)
        return [taker.finish()]

    config = TakeConfig(event_bytes_max=50_000)
    made, already = Intaker(chain, "s", TIMES, config).take(1, "1", run, Watermark())
    assert not already
    assert made.rows == 7
    assert rows_of(chain) == [(5, 0, "a", 1)]
    bad = {event.sequence: event for event in Quarantine(store, "Reading").events()}
    reasons = {sequence: event.reason.value for sequence, event in bad.items()}
    assert reasons == {1: "schema", 2: "schema", 3: "too large", 4: "ahead", 5: "schema", 6: "undecodable"}
    assert bad[6].raw == b'{"at": 9,'
    assert b'"x"' in bad[5].raw
    assert made.quarantined == {"ahead": 1, "schema": 3, "too large": 1, "undecodable": 1}


def test_other_offsets_under_a_number_that_is_taken_are_refused() -> None:
    store = MemoryStore()
    some: list[Batch] = [[[(10, "a", 1)]]]
    chain = ingest(store, some, 0)
    with pytest.raises(CallerError, match="in the log with other offsets"):
        Intaker(chain, "s", TIMES).take(1, "elsewhere", job_of(store, some[0]), Watermark(0))
    with pytest.raises(LogError, match="the log has only 2 of them"):
        Intaker(chain, "s", TIMES).take(9, "9", job_of(store, some[0]), Watermark(0))


def test_a_run_that_is_lost_or_swapped_is_named() -> None:
    store = MemoryStore()
    chain = ingest(store, [[[(10, "a", 1), (11, "b", 2)]]], 0)
    [name] = store.names("Reading/parts")
    data = store.read(f"Reading/parts/{name}") or b""
    store.delete(f"Reading/parts/{name}")
    with pytest.raises(LogError, match="is missing, but a sealed segment names it"):
        rows_of(EventLog(store).chain("Reading"))
    store.create(f"Reading/parts/{name}", data[:-40] + bytes(40))
    with pytest.raises(LogError, match=r"damaged|not a whole"):
        rows_of(chain)


def test_compaction_and_sweeping_keep_what_waits() -> None:
    store = MemoryStore()
    some: list[Batch] = [[[(t, "a", t), (t + 3, "b", t)]] for t in range(0, 1500, 10)]
    chain = EventLog(store).create(SCHEMA, 3)
    intaker = Intaker(chain, "s", TIMES, SMALL)
    for number, batch in enumerate(some, start=1):
        intaker.take(number, str(number), job_of(store, batch), Watermark(25))
    compact(chain)
    sweep(chain, 2**62, whole=True)
    held = waiting(store, "Reading", chain.producers())
    assert held.names
    assert held.names <= set(store.names("Reading/parts"))
    assert len(store.names("Reading/parts")) < len(some)
    assert len(intaker.intakes.numbers()) <= 65
    intaker.take(len(some) + 1, "end", job_of(store, []), Watermark(end=True))
    assert [row[0] for row in rows_of(EventLog(store).chain("Reading"))] == sorted(
        row[0] for batch in some for lane in batch for row in lane
    )


def test_a_claim_keeps_what_tasks_write() -> None:
    """Another writer and a compactor pass by while a driver's tasks write: what they wrote is not garbage."""
    store = MemoryStore()
    chain = EventLog(store).create(SCHEMA, 3)
    intaker = Intaker(chain, "s", TIMES, SMALL)

    def slow(order: Order) -> Sequence[Answer]:
        answers = job_of(store, [[(10, "a", 1), (5000, "b", 2)]])(order)
        other = EventLog(store).chain("Reading")
        for at in range(1, 600):
            other.seal(at * 10, other.read(0, 0))
        compact(other)
        sweep(other, 2**62, whole=True)
        return list(answers)

    intaker.take(1, "1", slow, Watermark())
    assert rows_of(chain) == []
    assert [bad.reason.value for bad in Quarantine(store, "Reading").events()] == ["late", "late"]


def test_what_tasks_wrote_is_claimed_until_the_intake_names_it() -> None:
    store = MemoryStore()
    intaker = Intaker(EventLog(store).create(SCHEMA, 3), "s", TIMES, SMALL)
    assert waiting(store, "Reading", {}) == Waiting(claimed=False, runs=())

    def seen(order: Order) -> Sequence[Answer]:
        answers = job_of(store, [[(10 * order.number, "a", 1), (10 * order.number + 30, "b", 2)]])(order)
        assert waiting(store, "Reading", {}).claimed
        return answers

    intaker.take(1, "1", seen, Watermark(25))
    held = waiting(store, "Reading", {})
    assert (held.claimed, [run.rows for _, run in held.runs]) == (False, [2])
    intaker.take(2, "2", seen, Watermark(25))
    held = waiting(store, "Reading", {})
    assert (held.claimed, [(run.first_us, run.last_us) for _, run in held.runs]) == (False, [(10, 40), (20, 50)])
    producer = producer_of("s")
    last = max(settled_us for settled_us, _ in held.runs)
    marks = [{producer: (2, 39)}, {producer: (2, 40)}, {producer: (2, 50)}, {"other": (2, 50)}]
    left = [len(waiting(store, "Reading", mark).runs) for mark in marks]
    assert (last, left) == (14, [2, 1, 0, 2]), "what the chain has settled since waits no more"


def test_an_intake_that_is_settled_is_looked_up_and_not_settled_again() -> None:
    class Counting(MemoryStore):
        def read(self, name: str) -> bytes | None:
            asked.append(name)
            return MemoryStore.read(self, name)

        def open(self, name: str) -> Any:
            asked.append(name)
            return MemoryStore.open(self, name)

    asked: list[str] = []
    store = Counting()
    intaker = Intaker(EventLog(store).create(SCHEMA, 3), "s", TIMES, SMALL)
    made, _ = intaker.take(1, "1", job_of(store, [[(10, "a", 1), (40, "b", 2)]]), Watermark(25))
    asked.clear()
    assert intaker.newest() == made
    assert asked
    assert {name.rpartition("/")[0] for name in asked} == {intaker.intakes.folder}, "the chain is not asked"


def test_a_large_intake_becomes_several_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unerring.log.settling.ROWS_PER_SEGMENT", 50)
    store = MemoryStore()
    draw = random.Random(5)
    batch: Batch = [[(draw.randint(0, 200), draw.choice("abcdef"), 0) for _ in range(200)] for _ in range(2)]
    chain = EventLog(store).create(SCHEMA, 3)
    Intaker(chain, "s", TIMES, TakeConfig(rows_per_run=20)).take(1, "1", job_of(store, batch), Watermark())
    assert len(store.names("Reading/segments")) >= 4
    wanted, _ = expected([batch], 0)
    assert rows_of(chain) == wanted
    footers = [chain.footer(span) for span in chain.spans(TIME_MIN, TIME_MAX)]
    assert all(one.through_us == two.from_us for one, two in pairwise(footers))
    assert store.read(f"Reading/{REACHED}")
