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
from unerring.matching import Piece, first_after, first_fault, stamp_at, unpack
from unerring.model import BEFORE_ALL, TIME_MIN, ProtocolError, Stamp


class Verdict(IntEnum):
    NEXT = 0
    DUPLICATE = 1
    GAP = 2
    ELSEWHERE = 3
    """Not from the node that the stream comes from now."""


class Taken(NamedTuple):
    verdict: Verdict
    events: Piece
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
        given = self.read(batch)
        if not len(given) and batch.prev < self.last:
            return Taken(Verdict.DUPLICATE, (), False)
        if len(given) and stamp_at(given, -1) < self.last:
            return Taken(Verdict.DUPLICATE, (), False)
        events = given if batch.prev == self.last else self._beyond(batch.prev, given)
        if batch.index + len(given) != self.count + len(events):
            raise ProtocolError(
                f"stream {self.stream}: event {self.last} is number {self.count} here, but has another number at "
                "the sender"
            )
        if len(events):
            self._check(events)
            self.last = stamp_at(events, -1)
            self.count += len(events)
        advanced = len(events) > 0 or batch.watermark > self.watermark
        # A watermark counts only behind the event it follows: that event is `last` now.
        self.watermark = max(self.watermark, batch.watermark)
        return Taken(Verdict.NEXT if advanced else Verdict.DUPLICATE, events, advanced)

    def read(self, batch: Batch) -> Piece:
        """The events of a batch. ProtocolError: they cannot be of this stream."""
        if isinstance(batch.events, tuple):
            return batch.events
        if self.shapes is None:
            raise ProtocolError(f"stream {self.stream}: columns of unknown types")
        return unpack(self.shapes.schema, batch.events)

    def _beyond(self, prev: Stamp, events: Piece) -> Piece:
        """The events after `last` of a batch that begins before it."""
        known = self.last
        if isinstance(events, tuple):
            at = len(events)
            while at and events[at - 1].stamp > known:
                at -= 1
        else:
            if first_fault(events, BEFORE_ALL) is not None:
                raise ProtocolError(f"stream {self.stream}: stamps that do not rise")
            at = first_after(events, known)
        before = stamp_at(events, at - 1) if at else prev
        if before != known:  # then there is one after it: the last one here is not below `last`
            raise ProtocolError(
                f"stream {self.stream}: {stamp_at(events, at)} follows {before} at the sender and {known} here; "
                "replicas have diverged"
            )
        return events[at:]

    def _check(self, events: Piece) -> None:
        """Check that events rise, come after the watermark, and are of this stream."""
        stream, shapes = self.stream, self.shapes
        if stamp_at(events, 0).time <= self.watermark:
            raise ProtocolError(f"stream {stream}: {stamp_at(events, 0)} is not after the watermark {self.watermark}")
        fault = first_fault(events, self.last)
        if fault is not None:
            before = stamp_at(events, fault - 1) if fault else self.last
            raise ProtocolError(f"stream {stream}: {stamp_at(events, fault)} cannot follow {before}")
        named = stream if shapes is None else shapes.schema.name  # a part's events are of its stream
        for event in events if isinstance(events, tuple) else ():
            if event.stream != named:
                raise ProtocolError(f"stream {stream}: {event.stamp} is of {event.stream}")
            if shapes is not None and not shapes.fits(event):
                raise ProtocolError(f"stream {stream}: event {event.stamp} does not have the columns of its stream")
