"""Rows in, outputs out: what a matcher is fed, what it answers, and how answers become numbered events.

An output is decided at a *position* of the merged input: an event's `(time, rank, ordinal)`, or a deadline's
`(time, RANK_DEADLINE, 0)`, which comes after all events of its time. Since a time is released as a whole, sorting the
outputs of one time by (rank, ordinal, key, index) and counting them gives the same ordinals everywhere, however the
keys were spread over matchers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from unerring.model import Event, Key, Stamp, StreamSchema, Value

RANK_DEADLINE: Final = 2**31 - 1
"""A rank after that of every stream."""


class Row(NamedTuple):
    """One event at its place in the merged order."""

    rank: int
    event: Event


class Output(msgspec.Struct, frozen=True):
    """One complex event, before its ordinal is known. `index` counts what one key gave at one position."""

    stream: str
    time: int
    rank: int
    ordinal: int
    key: Key
    index: int
    payload: dict[str, Any]


def merge_order(row: Row) -> tuple[int, int, int]:
    """Where a row stands in the merged input."""
    return row.event.stamp.time, row.rank, row.event.stamp.ordinal


def key_order(key: Key) -> tuple[tuple[int, Any], ...]:
    """A total order of keys of one rule: NULL first, NaN last among floats."""
    return tuple((0, 0) if value is None else (2, 0) if value != value else (1, value) for value in key)


def canonical_key(values: Iterable[Value]) -> Key:
    """Equal keys as equal tuples: -0.0 is 0.0, and there is one NaN."""
    return tuple(_canonical_float(value) if isinstance(value, float) else value for value in values)


def _canonical_float(value: float) -> float:
    return math.nan if value != value else value + 0.0


def output_order(output: Output) -> tuple[int, int, int, tuple[tuple[int, Any], ...], int]:
    return output.time, output.rank, output.ordinal, key_order(output.key), output.index


def number(outputs: Iterable[Output], schemas: Mapping[str, StreamSchema]) -> list[Event]:
    """The outputs of whole times as events, in order. Each output stream counts for itself."""
    events: list[Event] = []
    counted: dict[str, Stamp] = {}
    for output in sorted(outputs, key=output_order):
        last = counted.get(output.stream)
        stamp = Stamp(output.time, last.ordinal + 1 if last and last.time == output.time else 0)
        counted[output.stream] = stamp
        key = tuple(output.payload[name] for name in schemas[output.stream].key)
        events.append(Event(output.stream, stamp, key, output.payload))
    return events
