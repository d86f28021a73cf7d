"""The outgoing queue of one stream: what was made and is not yet known to be received by all.

The pruning mark is the stamp of the last event that was pruned. It outlives the queue: it is the `prev` of the first
event that is still there, and what a receiver that lacks more is told.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from unerring.correlation.messages import Batch
from unerring.model import BEFORE_ALL, TIME_MIN, Event, Stamp, invariant

_COMPACT_AT = 1024


class Queue:
    """Events by their number in the stream: `mark_count` are pruned, `count` were made."""

    __slots__ = ("_events", "_head", "count", "mark", "mark_count", "stream", "watermark")

    def __init__(
        self,
        stream: str,
        mark: Stamp = BEFORE_ALL,
        mark_count: int = 0,
        events: Sequence[Event] = (),
        watermark: int = TIME_MIN,
    ) -> None:
        self.stream = stream
        self.mark = mark
        self.mark_count = mark_count
        self.watermark = watermark
        """The stream sends nothing more at or before this time."""
        self._events = list(events)
        self._head = 0
        self.count = mark_count + len(self._events)
        """Events the stream has had so far."""

    def __len__(self) -> int:
        return self.count - self.mark_count

    @property
    def last(self) -> Stamp:
        """The stamp of the stream's latest event, pruned or not."""
        return self._events[-1].stamp if self.count > self.mark_count else self.mark

    def events(self) -> list[Event]:
        """All events that are not pruned."""
        return self._events[self._head :]

    def append(self, events: Sequence[Event]) -> None:
        """New outputs: strictly increasing stamps, none at or before the watermark."""
        last = self.last
        for event in events:
            stamp = event.stamp
            if stamp <= last or stamp.time <= self.watermark:  # The sentence is made for the one that needs it.
                invariant(False, f"stream {self.stream}: {stamp} does not come after {last} or {self.watermark}")
            last = stamp
        self._events.extend(events)
        self.count += len(events)

    def advance(self, watermark: int) -> None:
        """The stream's watermark grows, never shrinks."""
        self.watermark = max(self.watermark, watermark)

    def prune(self, through: Stamp) -> None:
        """Drop what all receivers have: by stamp, never by position."""
        if through <= self.mark or self.count == self.mark_count:
            return
        at = bisect_right(self._events, through, lo=self._head, key=_stamp)
        if at == self._head:
            return
        self.mark = self._events[at - 1].stamp
        self.mark_count += at - self._head
        self._head = at
        if at > _COMPACT_AT and at * 2 > len(self._events):
            del self._events[:at]
            self._head = 0

    def allowed(self, start: int, credit: int) -> int:
        """Up to which number a receiver that has `start` may be sent: its credit, and the rest of a time begun."""
        end = max(start, min(credit, self.count))
        if end == self.count:
            return end
        # Credit never ends inside a time: the receiver could not release the part it has.
        time = self._at(end - 1).time
        while end < self.count and self._at(end).time == time:
            end += 1
        return end

    def batch(self, start: int, end: int) -> Batch:
        """The events numbered [start, end) and the watermark that may follow them."""
        invariant(self.mark_count <= start <= end <= self.count, f"stream {self.stream}: [{start}, {end}) is not here")
        at = start - self.mark_count + self._head
        events = tuple(self._events[at : at + end - start])
        return Batch(self.stream, self._at(start - 1), start, events, self.watermark_after(end))

    def watermark_after(self, end: int) -> int:
        """The watermark for one who has `end` events: capped just before the first that it has not."""
        return self.watermark if end == self.count else min(self.watermark, self._at(end).time - 1)

    def _at(self, number: int) -> Stamp:
        """The stamp of an event, or the mark for the last pruned one."""
        if number < self.mark_count:
            invariant(number == self.mark_count - 1, f"stream {self.stream}: event {number} is pruned")
            return self.mark
        return self._events[number - self.mark_count + self._head].stamp

    def follows(self, last: Stamp, count: int) -> bool:
        """Whether this stream's event number `count` can be the one a receiver says it has last."""
        if count > self.count:
            return last > self.last
        if count < self.mark_count:
            return last < self.mark
        return self._at(count - 1) == last


def _stamp(event: Event) -> Stamp:
    return event.stamp
