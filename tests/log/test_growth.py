"""Streams that grow: new columns that may be NULL, and wider types; everything that reads them, and what is refused."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from unerring import schema_of, stream
from unerring.log import (
    Answer,
    Chain,
    EventLog,
    Intaker,
    LogWriter,
    MemoryStore,
    Order,
    Taker,
    Times,
    Watermark,
    compact,
    events_of,
    with_origin,
    write_part,
)
from unerring.log.payloads import Payloads
from unerring.model import TIME_MAX, LogError, SchemaError, Stamp


@stream(key="machine", name="Reading")
class Old:
    machine: str
    celsius: int


@stream(key="machine", name="Reading", added="humidity")
class New:
    machine: str
    celsius: int
    humidity: float | None = None


@stream(key="machine", name="Reading", added=("humidity", "checked"))
class Newer:
    machine: str
    celsius: int
    humidity: float | None = None
    checked: datetime | None = None


@stream(key="machine", name="Reading")
class Wider:
    machine: str
    celsius: float | None


def seal(chain: Chain, time: int, **columns: Any) -> None:
    schema = chain.schema
    values = {name: pa.array([value], schema.arrow().field(name).type) for name, value in columns.items()}
    table = pa.table({"time": pa.array([time]), "ordinal": pa.array([0]), **values})
    assert chain.seal(time, with_origin(table, schema)).won


def test_old_events_read_as_null() -> None:
    log = EventLog(MemoryStore())
    old = log.create(schema_of(Old), 2)
    seal(old, 10, machine="a", celsius=1)
    chain = log.create(schema_of(New), 2)
    seal(chain, 20, machine="a", celsius=2, humidity=0.5)
    again = log.create(schema_of(Newer), 2)
    seal(again, 30, machine="b", celsius=3, humidity=None, checked=0)
    table = log.chain("Reading").read(0, TIME_MAX, columns=["celsius", "humidity", "checked"])
    assert table.column("celsius").to_pylist() == [1, 2, 3]
    assert table.column("humidity").to_pylist() == [None, 0.5, None]
    assert table.column("checked").cast(pa.int64()).to_pylist() == [None, None, 0]
    coded = log.chain("Reading").read(0, TIME_MAX, columns=["machine", "humidity"], coded=True)
    assert coded.column("machine").to_pylist() == ["a", "a", "b"]
    payloads = [event.payload for event in events_of(log.chain("Reading").read(0, TIME_MAX), schema_of(Newer))]
    assert payloads[0] == {"machine": "a", "celsius": 1, "humidity": None, "checked": None}
    declared = log.declaration("Reading")
    assert declared is not None
    assert [declared.since_us(name) for name in ("celsius", "humidity", "checked")] == [None, 10, 20]


def test_a_program_that_knows_an_earlier_version_reads_and_writes_on() -> None:
    log = EventLog(MemoryStore())
    sleeper = log.create(schema_of(Old), 2)  # opened before the stream grew
    grown = log.create(schema_of(New), 2)
    seal(grown, 10, machine="a", celsius=1, humidity=0.5)
    sleeper.refresh()
    assert sleeper.read(0, TIME_MAX, columns=["celsius"]).column("celsius").to_pylist() == [1]
    seal(sleeper, 20, machine="b", celsius=2)
    writer = LogWriter(log, schema_of(Old), buckets=2)  # started again, and still of the earlier version
    writer.append("p", (1, 1), Stamp(30), {"machine": "c", "celsius": 3}, 0)
    writer.advance(30, 0)
    writer.seal()
    table = log.chain("Reading").read(0, TIME_MAX)
    assert table.column("humidity").to_pylist() == [0.5, None, None]
    assert table.column("machine").to_pylist() == ["a", "b", "c"]


def test_a_publisher_that_knows_an_earlier_version_is_understood() -> None:
    payloads = Payloads(schema_of(New), 1 << 20)
    records: list[list[Any]] = [["a", 1], ["b", 2, 0.5], ["c"], ["d", 4, 0.5, 1]]
    table, bad = payloads.read([msgspec.msgpack.encode(record) for record in records[:2]])
    assert (table.column("humidity").to_pylist(), bad) == ([None, 0.5], [])
    table, bad = payloads.read([msgspec.msgpack.encode(record) for record in records])
    assert table.column("humidity").to_pylist() == [None, 0.5]
    assert [at for at, _, _ in bad] == [2, 3]


def test_wider_types_keep_their_values() -> None:
    log = EventLog(MemoryStore())
    seal(log.create(schema_of(Old), 2), 10, machine="a", celsius=2**53)
    chain = log.create(schema_of(Wider), 2)
    seal(chain, 20, machine="a", celsius=None)
    seal(chain, 30, machine="a", celsius=1.5)
    assert chain.read(0, TIME_MAX, columns=["celsius"]).column("celsius").to_pylist() == [2.0**53, None, 1.5]
    other = EventLog(MemoryStore())
    seal(other.create(schema_of(Old), 2), 10, machine="a", celsius=2**53 + 1)
    with pytest.raises(LogError, match="has a value that this cannot hold exactly"):
        other.create(schema_of(Wider), 2).read(0, TIME_MAX)


def test_compaction_parts_and_runs_of_every_version_are_read_together() -> None:
    store = MemoryStore()
    log = EventLog(store)
    old = log.create(schema_of(Old), 1)
    for time in range(1, 150):
        seal(old, time, machine="a", celsius=time)
    rows = pa.table({"time": [200], "machine": ["p"], "celsius": [200]})
    part = write_part(store, "Reading", old.schema, rows, 0, old.through_us, 200)
    old.seal_parts(200, [part])
    intaker = Intaker(old, "s", Times("at", "us"))

    def tasks(order: Order) -> list[Answer]:
        taker = Taker(store, order, 0)
        taker.take(pa.table({"at": [210, 220], "machine": ["r", "r"], "celsius": [210, 220]}))
        return [taker.finish()]

    intaker.take(1, "1", tasks, Watermark(5))
    chain = log.create(schema_of(New), 1)
    Intaker(chain, "s", Times("at", "us")).take(2, "2", lambda order: [], Watermark())  # a run from before, sealed now
    for time in range(300, 450):
        seal(chain, time, machine="b", celsius=time, humidity=0.5)
    wanted = chain.read(0, TIME_MAX).to_pylist()
    assert [row["humidity"] for row in wanted[-151:]] == [None, *[0.5] * 150]
    assert [row["time"] for row in wanted[149:152]] == [200, 210, 220]
    compact(chain)
    assert store.names("Reading/compacted")
    assert log.chain("Reading").read(0, TIME_MAX).to_pylist() == wanted


@pytest.mark.parametrize(
    ("hints", "options", "why"),
    [
        ({"machine": str}, {}, "column 'celsius' is gone"),
        ({"machine": str, "celsius": str}, {}, "was int and cannot become text"),
        ({"machine": str, "warmth": int}, {}, "is 'warmth' now; columns keep their names"),
        ({"machine": str, "celsius": int, "humidity": float | None}, {}, r"column 'humidity' is new.*added='humidity'"),
        ({"machine": str, "celsius": int}, {"key": "celsius"}, "its key is"),
    ],
)
def test_other_changes_are_refused_with_the_reason(hints: dict[str, Any], options: dict[str, Any], why: str) -> None:
    log = EventLog(MemoryStore())
    log.create(schema_of(Old), 2)
    declared: Any = stream(**{"key": "machine", "name": "Reading", **options})(
        type("Other", (), {"__annotations__": hints})
    )
    with pytest.raises(SchemaError, match=why):
        log.create(schema_of(declared), 2)
    assert log.chain("Reading").schema.columns == schema_of(Old).columns


def test_added_columns_are_last_and_may_be_null() -> None:
    with pytest.raises(SchemaError, match="added columns come last"):
        stream(added="a")(type("S", (), {"__annotations__": {"a": int | None, "b": int}}))
    with pytest.raises(SchemaError, match="added column 'b' must be nullable"):
        stream(added="b")(type("S", (), {"__annotations__": {"a": int, "b": int}}))


def test_a_column_that_nobody_declared_is_still_an_error() -> None:
    """A version that the declaration does not have: the file was put there by something else."""
    store = MemoryStore()
    log = EventLog(store)
    stranger = EventLog(MemoryStore()).create(schema_of(Newer), 2)
    seal(stranger, 10, machine="a", celsius=1)
    log.create(schema_of(New), 2)
    [name] = stranger.store.names("Reading/segments")
    store.create(f"Reading/segments/{name}", stranger.store.read(f"Reading/segments/{name}") or b"")
    with pytest.raises(LogError, match="column 'checked' is not declared"):
        log.chain("Reading")


def test_two_programs_that_let_it_grow_at_once_agree() -> None:
    """The second one finds the declaration changed between its reading and its writing."""
    store = MemoryStore()
    log = EventLog(store)
    log.create(schema_of(Old), 2)
    replace_if = store.replace_if
    raced: list[str] = []

    def slow(name: str, data: bytes, tag: str | None) -> str | None:
        if not raced:
            raced.append(name)
            EventLog(store).create(schema_of(New), 2)
        return replace_if(name, data, tag)

    store.replace_if = slow  # type: ignore[method-assign]
    chain = log.create(schema_of(Newer), 2)
    assert chain.schema.columns == schema_of(Newer).columns
    declared = log.declaration("Reading")
    assert declared is not None
    assert [len(version.columns) for version in declared.versions] == [2, 3]
