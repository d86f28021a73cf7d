"""What the live engine delivered, as a chain that an audit can read: what it has sealed, and then what stands only in
the application's own file yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from unerring.app.place import Place
from unerring.audit import DUPLICATION, FALSE_ORDERING, WITNESSES_MAX, Finding, Stretch
from unerring.correlation import Role, committed, position_of
from unerring.log import Chain, EventLog, with_origin
from unerring.model import BEFORE_ALL, ColumnType, Event, StreamSchema
from unerring.runtime import SqliteStorage, cluster

FILE: Final = "situations.0.db"
_DIGITS: Final = 12
_PAGE_DIGITS: Final = 5
"""Deliveries are numbered with twelve digits; so many of them are one page."""


def ran_live(place: Place, stream: str) -> bool:
    """Whether the run's application was handed this stream and keeps a part of it itself. What drivers of Spark made
    is sealed by them; and an application with replicas keeps nothing but what is sealed."""
    if not (place.live / cluster.FILE).exists():
        return False
    topology = cluster.read(place.live).topology
    alone = [node for node in topology.nodes if node.role is Role.APPLICATION and node.stands_alone]
    return any(schema.name == stream for node in alone for schema, _ in topology.inputs(node.name))


def ranked_otherwise_live(place: Place, ranks: Mapping[str, int]) -> bool:
    """Whether live nodes merged their inputs in another order of equal times than these ranks give."""
    if not (place.live / cluster.FILE).exists():
        return False
    streams = cluster.read(place.live).topology.streams
    merged = [ranks[schema.name] for schema in streams if schema.name in ranks]
    return merged != sorted(merged)


def as_chain(place: Place, schema: StreamSchema, log: EventLog, buckets: int) -> tuple[Chain, Stretch]:
    """The deliveries of one stream, in order, and what is wrong with their order already."""
    chain = log.create(schema, buckets)
    _copy(place.log.create(schema, buckets), chain)
    sealed_us = chain.through_us
    seen = Stretch(counts={}, findings=[])
    storage = SqliteStorage(place.live / FILE)
    last = BEFORE_ALL
    held: list[Event] = []
    try:
        for page in _pages(storage, schema.name):
            for event in page:
                if event.stamp.time <= sealed_us:
                    continue
                if event.stamp > last:
                    held.append(event)
                    last = event.stamp
                elif event.stamp == last:
                    _note(seen, DUPLICATION, event, "it was delivered twice in a row")
                else:
                    _note(seen, FALSE_ORDERING, event, f"it was delivered after {tuple(last)}, which is later")
            # A page may end inside a time, and segments hold whole times.
            ready = [event for event in held if event.stamp.time < last.time]
            held = held[len(ready) :]
            _seal(chain, ready, last.time - 1)
        _seal(chain, held, last.time)
    finally:
        storage.close()
    return chain, seen


def _copy(sealed: Chain, chain: Chain) -> None:
    for span in sealed.spans(sealed.base.from_us, sealed.refresh()):
        chain.seal(span.through_us, sealed.read(max(span.from_us, sealed.base.from_us), span.through_us))


def _pages(storage: SqliteStorage, stream: str) -> Iterator[list[Event]]:
    """From the position backwards nothing is missing, but what is sealed is no longer kept."""
    counted = position_of(storage.load(f"application/{stream}/position"), stream)
    for page in range(counted // 10**_PAGE_DIGITS + 1):
        number = f"{page:0{_DIGITS - _PAGE_DIGITS}d}"
        events = committed(storage.load(f"application/{stream}/event/{number}"), stream)
        if events:
            yield events


def _note(seen: Stretch, promise: str, event: Event, detail: str) -> None:
    seen.delivered += 1
    seen.counts[promise] = seen.counts.get(promise, 0) + 1
    if seen.counts[promise] <= WITNESSES_MAX:
        seen.findings.append(Finding(promise, event, None, detail))


def _seal(chain: Chain, events: list[Event], through_us: int) -> None:
    if events:
        chain.seal(through_us, with_origin(_table(events, chain.schema), chain.schema))


def _table(events: list[Event], schema: StreamSchema) -> pa.Table:
    columns: dict[str, Any] = {
        "time": pa.array([event.stamp.time for event in events], pa.int64()),
        "ordinal": pa.array([event.stamp.ordinal for event in events], pa.int64()),
    }
    for column, field in zip(schema.columns, schema.arrow(), strict=True):
        values = [event.payload[column.name] for event in events]
        if column.type is ColumnType.TIME:
            columns[column.name] = pa.array(values, pa.int64()).cast(field.type)
        else:
            columns[column.name] = pa.array(values, field.type)
    return pa.table(columns)
