"""Segments that were bucketed in different ways, in one chain: every reader finds its own keys' rows, and no others."""

from __future__ import annotations

from hypothesis import given, settings, strategies as st

from unerring.log import Chain, EventLog, MemoryStore, Spread
from unerring.log.eventlog import Declaration
from unerring.model import TIME_MAX, TIME_MIN, protect_json

from .worlds import READING, table

SPREADS = st.builds(Spread, st.integers(1, 7), st.booleans())


@settings(max_examples=60)
@given(
    written=st.lists(SPREADS, min_size=1, max_size=5), wanted=SPREADS, columns=st.sampled_from([None, ["celsius"], []])
)
def test_a_bucket_of_any_spread_is_read_from_segments_of_any(
    written: list[Spread], wanted: Spread, columns: list[str] | None
) -> None:
    store = MemoryStore()
    EventLog(store).create(READING, 4)
    for number, spread in enumerate(written):
        chain = Chain(store, READING.name, READING, spread.buckets, ranges=spread.ranges)
        times = list(range(number * 20 + 1, number * 20 + 15))
        chain.seal((number + 1) * 20, table(times, machine=lambda time: f"m{time * 7 % 11}"))
        assert chain.footer(chain.spans(number * 20, TIME_MAX)[0]).spread == spread
    reader = Chain(store, READING.name, READING, wanted.buckets, ranges=wanted.ranges)
    whole = reader.read(TIME_MIN, TIME_MAX, None, ["machine", *(columns or [])] if columns is not None else None)
    assert whole.column("time").to_pylist() == sorted(whole.column("time").to_pylist())
    names = reader.read(TIME_MIN, TIME_MAX, None, columns).column_names
    for bucket in range(wanted.buckets):
        own = [row for row in whole.to_pylist() if wanted.of((row["machine"],)) == bucket]
        found = reader.read(TIME_MIN, TIME_MAX, bucket, columns)
        assert found.column_names == names
        assert found.to_pylist() == [{name: row[name] for name in names} for row in own]


def test_a_stream_of_an_earlier_release_stays_as_it_was_declared() -> None:
    store = MemoryStore()
    log = EventLog(store)
    log.create(READING, 3)
    store.replace("Reading/stream.json", protect_json(Declaration(READING, 3)))
    assert log.chain("Reading").spread == Spread(3, ranges=False)
    log.chain("Reading").seal(10, table([1, 2, 3]))
    log.respread("Reading", 5)
    assert log.chain("Reading").spread == Spread(5)
    log.chain("Reading").seal(20, table([11, 12, 13]))
    chain = log.chain("Reading")
    assert [chain.footer(span).spread for span in chain.spans(TIME_MIN, 20)] == [Spread(3, ranges=False), Spread(5)]
    assert chain.read(TIME_MIN, 20).column("time").to_pylist() == [1, 2, 3, 11, 12, 13]
