"""Merge: several streams become one order, `(time, stream rank, ordinal)`, released in whole times.

A time t is released once the watermark of every stream is at t. An event of a stream with strictly increasing times is
itself a watermark at its time; an event of any other is a watermark just before its time, since more of that time may
follow. The result depends on the streams alone, not on how they arrive.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any, Final

import msgspec

from unerring.matching.outputs import Row, merge_order
from unerring.model import TIME_MAX, TIME_MIN, CallerError, Event, SchemaError, Stamp, StreamSchema

ROWS_MAX: Final = 1_000_000


class _Lane:
    """One stream's waiting events and its watermark."""

    __slots__ = ("last", "rank", "schema", "waiting", "watermark")

    def __init__(self, schema: StreamSchema, rank: int) -> None:
        self.schema = schema
        self.rank = rank
        self.waiting: deque[Event] = deque()
        self.last = Stamp(TIME_MIN, 0)
        self.watermark = TIME_MIN

    def release(self, through: int) -> list[Event]:
        """Take what waits up to this time."""
        waiting = self.waiting
        if waiting and waiting[-1].stamp.time <= through:
            released = list(waiting)
            waiting.clear()
            return released
        released = []
        while waiting and waiting[0].stamp.time <= through:
            released.append(waiting.popleft())
        return released


class Waiting(msgspec.Struct, frozen=True, array_like=True):
    """An event in a state: its stream is its lane's."""

    stamp: Stamp
    key: tuple[Any, ...]
    payload: dict[str, Any]


class MergeState(msgspec.Struct, frozen=True, array_like=True):
    """The state of a merge: the time released, and by stream the last stamp, the watermark and the waiting events."""

    through: int
    lanes: tuple[tuple[str, Stamp, int, tuple[Waiting, ...]], ...]


class Merge:
    """Feed `push` and `advance` in any interleaving of the streams; take whole times with `release`."""

    def __init__(self, streams: Iterable[tuple[StreamSchema, int]], rows_max: int = ROWS_MAX) -> None:
        """`streams`: each with the rank that the application gave it. `rows_max` bounds what waits of each stream (one
        bound for all would let a quick stream shut out the slow one that it waits for); only the rest of a time already
        begun may go beyond it."""
        self._lanes = {schema.name: _Lane(schema, rank) for schema, rank in streams}
        self._rows_max = rows_max
        self.through = TIME_MIN
        """All times up to here have been released."""
        ranks = [lane.rank for lane in self._lanes.values()]
        if len(ranks) != len(set(ranks)):
            raise CallerError(
                "two streams have one rank: their events of one time would have no order; give each its own"
            )

    def room(self, stream: str, time: int) -> bool:
        """Whether an event of this time may be pushed now. At the bound a sender waits for a `release`."""
        lane = self._lane(stream)
        return len(lane.waiting) < self._rows_max or lane.last.time == time

    def push(self, event: Event) -> None:
        """One event, above the stream's last stamp and its watermark."""
        lane = self._lane(event.stream)
        time = event.stamp.time
        if not self.room(event.stream, time):
            raise CallerError(
                f"stream {event.stream}: {len(lane.waiting)} events wait to be merged, which is the limit; "
                "release before you push more"
            )
        if event.stamp <= lane.last or time <= lane.watermark:
            raise SchemaError(
                f"stream {event.stream}: event {tuple(event.stamp)} does not come after {tuple(lane.last)} and the "
                f"watermark {lane.watermark}; stamps must increase"
            )
        lane.last = event.stamp
        lane.waiting.append(event)
        lane.watermark = time if lane.schema.strict else time - 1

    def push_all(self, stream: str, events: Sequence[Event]) -> None:
        """Several events of one stream, as if pushed one by one."""
        lane = self._lane(stream)
        if not events or len(lane.waiting) + len(events) > self._rows_max or events[0].stamp.time <= lane.watermark:
            for event in events:
                self.push(event)
            return
        last = lane.last
        for event in events:
            if event.stamp <= last:
                raise SchemaError(f"stream {stream}: {tuple(event.stamp)} follows {tuple(last)}; stamps must increase")
            last = event.stamp
        lane.last = last
        lane.waiting.extend(events)
        lane.watermark = last.time if lane.schema.strict else last.time - 1

    def advance(self, stream: str, time: int) -> None:
        """The stream will send nothing at or before `time`. An older watermark changes nothing."""
        lane = self._lane(stream)
        lane.watermark = max(lane.watermark, time)

    def end(self, stream: str) -> None:
        """The stream is over."""
        self.advance(stream, TIME_MAX)

    def release(self) -> tuple[list[Row], int]:
        """All rows of the times that are whole by now, in order, and the time up to which they are."""
        through = min((lane.watermark for lane in self._lanes.values()), default=TIME_MAX)
        rows: list[Row] = []
        lanes = 0
        for lane in self._lanes.values():
            released = lane.release(through)
            if released:
                rows += map(Row, repeat(lane.rank), released)
                lanes += 1
        self.through = max(self.through, through)
        if lanes > 1:  # One lane is in order already.
            rows.sort(key=merge_order)
        return rows, self.through

    def state(self) -> MergeState:
        """The state, for a snapshot."""
        lanes = (
            (name, lane.last, lane.watermark, tuple(Waiting(e.stamp, e.key, e.payload) for e in lane.waiting))
            for name, lane in self._lanes.items()
        )
        return MergeState(self.through, tuple(lanes))

    def restore(self, state: MergeState) -> None:
        """Become the merge that gave this state."""
        self.through = state.through
        for name, last, watermark, waiting in state.lanes:
            lane = self._lane(name)
            lane.last, lane.watermark = last, watermark
            lane.waiting = deque(Event(name, one.stamp, one.key, one.payload) for one in waiting)

    def _lane(self, stream: str) -> _Lane:
        lane = self._lanes.get(stream)
        if lane is None:
            raise CallerError(f"stream {stream!r} is not merged here; use one of {', '.join(self._lanes)}")
        return lane
