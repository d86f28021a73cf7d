"""The duplicate filter of one input stream (Figure 3, lines 7-18), which also sees every gap.

| what arrives | what it is |
|---|---|
| prev = last | the next events: accepted |
| stamp <= last | a duplicate: dropped, answered with the cumulative ack |
| prev > last | a gap: what lies between is asked for |
| prev < last < stamp | two replicas made different streams: one of them is wrong, and the sender is not believed |
| stamps that do not rise, another stream's event | a protocol error of the sender |

Space: one stamp, one count, one time for a stream, whatever passes through it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from unerring.correlation.messages import Batch
from unerring.correlation.shapes import Shapes
from unerring.model import BEFORE_ALL, TIME_MIN, Event, ProtocolError, Stamp


class Verdict(IntEnum):
    NEXT = 0
    DUPLICATE = 1
    GAP = 2


class Taken(NamedTuple):
    verdict: Verdict
    events: tuple[Event, ...]
    advanced: bool
    """Events or a watermark that were not known before."""


class Incoming:
    """Where one input stream stands."""

    __slots__ = ("count", "last", "shapes", "stream", "watermark")

    def __init__(
        self,
        stream: str,
        last: Stamp = BEFORE_ALL,
        count: int = 0,
        watermark: int = TIME_MIN,
        shapes: Shapes | None = None,
    ) -> None:
        self.stream = stream
        self.last = last
        self.count = count
        """Events accepted since the stream began."""
        self.watermark = watermark
        self.shapes = shapes
        """The shapes that its events must have; None: the events are this process's own."""

    def take(self, batch: Batch) -> Taken:
        """Judge a batch; move on if it is what comes next. ProtocolError: no replica has it from this stream."""
        if batch.prev > self.last:
            return Taken(Verdict.GAP, (), False)
        events = batch.events if batch.prev == self.last else self._beyond(batch)
        if batch.events and batch.events[-1].stamp < self.last:
            return Taken(Verdict.DUPLICATE, (), False)
        if not batch.events and batch.prev < self.last:
            return Taken(Verdict.DUPLICATE, (), False)
        if batch.index + len(batch.events) != self.count + len(events):
            raise ProtocolError(
                f"stream {self.stream}: event {self.last} is number {self.count} here, but has another number at "
                "the sender"
            )
        if events:
            self._check(events)
            self.last = events[-1].stamp
            self.count += len(events)
        advanced = bool(events) or batch.watermark > self.watermark
        # A watermark counts only behind the event it follows: that event is `last` now.
        self.watermark = max(self.watermark, batch.watermark)
        return Taken(Verdict.NEXT if advanced else Verdict.DUPLICATE, events, advanced)

    def _beyond(self, batch: Batch) -> tuple[Event, ...]:
        """The events after `last` of a batch that begins before it."""
        known, events = self.last, batch.events
        at = len(events)
        while at and events[at - 1].stamp > known:
            at -= 1
        if at < len(events):
            before = events[at - 1].stamp if at else batch.prev
            if before != known:
                raise ProtocolError(
                    f"stream {self.stream}: {events[at].stamp} follows {before} at the sender and {known} here; "
                    "replicas have diverged"
                )
        return events[at:]

    def _check(self, events: tuple[Event, ...]) -> None:
        """Check that events rise, come after the watermark, and are of this stream."""
        last, stream, shapes = self.last, self.stream, self.shapes
        if events[0].stamp.time <= self.watermark:
            raise ProtocolError(f"stream {stream}: {events[0].stamp} is not after the watermark {self.watermark}")
        for event in events:
            if event.stamp <= last or event.stream != stream:
                raise ProtocolError(f"stream {stream}: {event.stamp} of {event.stream} cannot follow {last}")
            last = event.stamp
            if shapes is not None and not shapes.fits(event):
                raise ProtocolError(f"stream {stream}: event {last} does not have the columns of its stream")
