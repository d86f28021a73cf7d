"""The reference system R of the correlation paper: the same rules on the same primary events, without failures.

No replicas, no network, no batches: each node is fed everything its inputs ever bring, once, in merge order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from unerring.matching import Merge, Row
from unerring.model import TIME_MAX, Event, StreamSchema, invariant


class Stage(msgspec.Struct, frozen=True):
    """One node: its inputs with their ranks, and its rules: fed rows up to a time, they answer events by stream."""

    inputs: tuple[tuple[StreamSchema, int], ...]
    feed: Callable[[Sequence[Row], int], Mapping[str, Sequence[Event]]]


def perfect_run(
    stages: Sequence[Stage], primary: Mapping[str, Sequence[Event]], through: int = TIME_MAX
) -> dict[str, list[Event]]:
    """Every stream of the perfect run, primary ones included. `stages` in an order in which inputs come first."""
    streams: dict[str, list[Event]] = {name: list(events) for name, events in primary.items()}
    for stage in stages:
        merge = Merge(stage.inputs, rows_max=1 << 62)
        for schema, _ in stage.inputs:
            invariant(schema.name in streams, f"the reference run has no stream {schema.name!r}; order the stages")
            for event in streams[schema.name]:
                merge.push(event)
            merge.advance(schema.name, through)
        rows, reached = merge.release()
        for stream, events in stage.feed(rows, reached).items():
            streams.setdefault(stream, []).extend(events)
    return streams


def describe(event: Event) -> str:
    """One line of a witness."""
    payload: dict[str, Any] = event.payload
    return f"{event.stream} {tuple(event.stamp)} key {event.key} {payload}"
