"""Streams by name: those of another log that only stand in this one, and rows of a log as events."""

from __future__ import annotations

from pathlib import Path

import pytest

from unerring import Event, Stamp, schema_of, stream
from unerring.log import Base, EventLog, MemoryStore, Removed, Spread, Taken, begin_at, events_of, table_of
from unerring.log.index import index_name
from unerring.model import TIME_MAX, TIME_MIN, ConfigError, LogError

from .worlds import BURST, READING, table, times_in


@stream(key=("who", "where"))
class Visit:
    who: str
    seconds: float
    where: int


def test_a_stream_of_another_log_stands_in_this_one_to_be_read(tmp_path: Path) -> None:
    there, here = EventLog(str(tmp_path / "there")), EventLog(str(tmp_path / "here"))
    chain = there.create(READING)
    chain.seal(10, table([4, 9]))
    here.link("Reading", there)
    here.create(BURST)
    assert here.streams() == ["Burst", "Reading"]
    assert here.declaration("Reading") == there.declaration("Reading")
    assert times_in(here.chain("Reading")) == [4, 9]
    spans = chain.spans(TIME_MIN, 10)
    known = here.known_chain("Reading", spans, Spread(3, True))
    assert (known.through_us, known.spread, known.read(4, 10).column("time").to_pylist()) == (10, Spread(3, True), [9])
    assert there.known_chain("Reading", spans).spread == Spread(there.chain("Reading").buckets, True)
    with pytest.raises(LogError, match="has disappeared; restore it"):
        here.known_chain("Nowhere", spans)
    with pytest.raises(LogError, match=r"there is no stream 'Nowhere' in .*; it has Burst, Reading"):
        here.chain("Nowhere")
    with pytest.raises(LogError, match="it has none"):
        EventLog(MemoryStore()).chain("Nowhere")


@pytest.mark.parametrize(("buckets", "taken"), [(0, False), (1, True), (-1, False)])
def test_a_stream_has_a_bucket_at_least(buckets: int, taken: bool) -> None:
    log = EventLog(MemoryStore())
    if taken:
        assert log.create(READING, buckets).buckets == buckets
    else:
        with pytest.raises(ConfigError, match="choose between 1 and"):
            log.create(READING, buckets)


def test_a_chain_may_begin_where_another_one_ended() -> None:
    log = EventLog(MemoryStore())
    chain = log.create(READING)
    begin_at(chain, Base(20, {"p": (0, 7)}, "d" * 64))
    again = log.chain("Reading")
    assert (again.base.from_us, again.through_us, again.last()) == (20, 20, None)
    assert [again.taken().has("p", (0, number)) for number in (7, 8)] == [True, False]
    with pytest.raises(Removed, match="start at or after 20"):
        again.read(19, 30)
    again.seal(30, table([25]))
    assert times_in(log.chain("Reading")) == [25]
    assert again.objects_held == 1
    again.indexes.delete(1)
    assert log.store.read(f"{again.indexes.folder}/{index_name(1)}") is None


def test_rows_are_events_again_with_as_many_columns_as_were_read() -> None:
    schema = schema_of(Visit)
    events = [
        Event("Visit", Stamp(5, n), (who, n), {"who": who, "seconds": n / 2, "where": n}) for n, who in enumerate("ab")
    ]
    rows = table_of(events, schema)
    assert list(events_of(rows, schema)) == events
    some = list(events_of(rows.select(["time", "ordinal", "where"]), schema))
    assert [(event.stamp, event.key, event.payload) for event in some] == [
        (Stamp(5, n), (n,), {"where": n}) for n in range(2)
    ]
    bare = list(events_of(rows.select(["time", "ordinal"]), schema))
    assert [(event.stamp, event.key, event.payload) for event in bare] == [(Stamp(5, n), (), {}) for n in range(2)]
    assert list(events_of(table_of([], schema), schema)) == []
    assert Taken() == EventLog(MemoryStore()).create(schema).taken()
    assert EventLog(MemoryStore()).create(schema).count(TIME_MIN, TIME_MAX) == 0
