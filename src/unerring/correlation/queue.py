"""The outgoing queue of one stream: what was made and is not yet known to be received by all.

The pruning mark is the stamp of the last event that was pruned. It outlives the queue: it is the `prev` of the first
event that is still there, and what a receiver that lacks more is told.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import chain

from unerring.correlation.messages import Batch
from unerring.matching import OBJECTS_MAX, Packed, Piece, first_after, first_fault, pack, stamp_at
from unerring.model import BEFORE_ALL, ORDINAL_MAX, TIME_MIN, Event, Stamp, invariant


class Queue:
    """Events by their number in the stream: `mark_count` are pruned, `count` were made.

    They lie in pieces, in the form in which they came. The first piece may begin before the mark.
    """

    __slots__ = ("_firsts", "_pieces", "count", "mark", "mark_count", "stream", "watermark")

    def __init__(
        self,
        stream: str,
        mark: Stamp = BEFORE_ALL,
        mark_count: int = 0,
        events: Piece = (),
        watermark: int = TIME_MIN,
    ) -> None:
        self.stream = stream
        self.mark = mark
        self.mark_count = mark_count
        self.watermark = watermark
        """The stream sends nothing more at or before this time."""
        self._pieces: list[Piece] = []
        self._firsts: list[int] = []
        """The number of each piece's first event."""
        self.count = mark_count
        """Events the stream has had so far."""
        self._add(events)

    def __len__(self) -> int:
        return self.count - self.mark_count

    @property
    def last(self) -> Stamp:
        """The stamp of the stream's latest event, pruned or not."""
        return stamp_at(self._pieces[-1], -1) if self.count > self.mark_count else self.mark

    @property
    def floor(self) -> Stamp | None:
        """Just before the oldest event that is not pruned; None: there is none."""
        if not len(self):
            return None
        oldest = self._at(self.mark_count)
        return Stamp(oldest.time, oldest.ordinal - 1)

    def stamp(self, count: int) -> Stamp:
        """The stamp of the event with that number; the mark, if that is pruned, and the last one, if it is to come."""
        return self._at(min(count, self.count) - 1) if count > self.mark_count else self.mark

    def events(self) -> list[Event]:
        """All events that are not pruned."""
        return list(chain.from_iterable(self._between(self.mark_count, self.count)))

    def kept(self) -> tuple[Event, ...] | Packed:
        """The same, for a snapshot."""
        return pack(self._between(self.mark_count, self.count))

    def append(self, events: Piece) -> None:
        """New outputs: strictly increasing stamps, none at or before the watermark."""
        if not len(events):
            return
        last = self.last
        fault = 0 if stamp_at(events, 0).time <= self.watermark else first_fault(events, last)
        if fault is not None:
            before = stamp_at(events, fault - 1) if fault else last
            stamp = stamp_at(events, fault)
            invariant(False, f"stream {self.stream}: {stamp} does not come after {before} or {self.watermark}")
        self._add(events)

    def _add(self, events: Piece) -> None:
        pieces = self._pieces
        if not isinstance(events, list | tuple):
            pieces.append(events)
            self._firsts.append(self.count)
            self.count += len(events)
            return
        for first in range(0, len(events), OBJECTS_MAX):
            some = events[first : first + OBJECTS_MAX]
            if pieces and isinstance(pieces[-1], list) and len(pieces[-1]) + len(some) <= OBJECTS_MAX:
                pieces[-1].extend(some)
            else:
                pieces.append(list(some))
                self._firsts.append(self.count)
            self.count += len(some)

    def advance(self, watermark: int) -> None:
        """The stream's watermark grows, never shrinks."""
        self.watermark = max(self.watermark, watermark)

    def prune(self, through: Stamp) -> None:
        """Drop what all receivers have: by stamp, never by position."""
        if through <= self.mark or self.count == self.mark_count:
            return
        gone = 0
        for piece in self._pieces:
            if stamp_at(piece, -1) > through:
                break
            gone += 1
        if gone:
            self.mark = stamp_at(self._pieces[gone - 1], -1)
            self.mark_count = self._firsts[gone] if gone < len(self._firsts) else self.count
            del self._pieces[:gone], self._firsts[:gone]
        if self._pieces:
            at = first_after(self._pieces[0], through)
            if self._firsts[0] + at > self.mark_count:
                self.mark = stamp_at(self._pieces[0], at - 1)
                self.mark_count = self._firsts[0] + at

    def allowed(self, start: int, credit: int) -> int:
        """Up to which number a receiver that has `start` may be sent: its credit, and the rest of a time begun."""
        end = max(start, min(credit, self.count))
        if end == self.count:
            return end
        # Credit never ends inside a time: the receiver could not release the part it has.
        rest = Stamp(self._at(end - 1).time, ORDINAL_MAX)
        if self._at(end) > rest:
            return end
        while end < self.count:
            number = self._piece_of(end)
            piece, first = self._pieces[number], self._firsts[number]
            end = first + first_after(piece, rest, end - first)
            if end < first + len(piece):
                break
        return end

    def stop(self, start: int, end: int, events_max: int, bytes_max: int) -> int:
        """Up to which of the events numbered [start, end) one message goes: they are all objects or all columns."""
        stop = start
        room_bytes = bytes_max
        columns = False
        while stop < end:
            number = self._piece_of(stop)
            piece, first = self._pieces[number], self._firsts[number]
            is_list = isinstance(piece, list | tuple)
            room = (min(events_max, OBJECTS_MAX) if is_list else events_max) - (stop - start)
            if stop > start and (columns is is_list or room <= 0):
                break
            columns = not is_list
            if not isinstance(piece, list | tuple):
                room = min(room, max(room_bytes // piece.row_bytes, stop == start))
            last = min(end, first + len(piece), stop + room)
            if not isinstance(piece, list | tuple):
                room_bytes -= (last - stop) * piece.row_bytes
            stop = last
            if stop < min(end, first + len(piece)):
                break
        return stop

    def batch(self, start: int, end: int) -> Batch:
        """The events numbered [start, end) and the watermark that may follow them."""
        invariant(self.mark_count <= start <= end <= self.count, f"stream {self.stream}: [{start}, {end}) is not here")
        events = pack(self._between(start, end))
        return Batch(self.stream, self._at(start - 1), start, events, self.watermark_after(end))

    def watermark_after(self, end: int) -> int:
        """The watermark for one who has `end` events: capped just before the first that it has not."""
        return self.watermark if end == self.count else min(self.watermark, self._at(end).time - 1)

    def has_more(self, count: int, credit: int, watermark: int) -> bool:
        """Whether one who has so many events, this credit and this watermark could be sent anything new."""
        if not self.mark_count <= count <= self.count:
            return count < self.count
        end = self.allowed(count, credit)
        return end > count or self.watermark_after(end) > watermark

    def _piece_of(self, number: int) -> int:
        return bisect_right(self._firsts, number) - 1

    def _between(self, start: int, end: int) -> list[Piece]:
        """The events numbered [start, end)."""
        found: list[Piece] = []
        while start < end:
            number = self._piece_of(start)
            piece, first = self._pieces[number], self._firsts[number]
            last = min(end, first + len(piece))
            found.append(piece[start - first : last - first])
            start = last
        return found

    def _at(self, number: int) -> Stamp:
        """The stamp of an event, or the mark for the last pruned one."""
        if number < self.mark_count:
            invariant(number == self.mark_count - 1, f"stream {self.stream}: event {number} is pruned")
            return self.mark
        piece = self._piece_of(number)
        return stamp_at(self._pieces[piece], number - self._firsts[piece])

    def follows(self, last: Stamp, count: int) -> bool:
        """Whether this stream's event number `count` can be the one a receiver says it has last."""
        if count > self.count:
            return last > self.last
        if count < self.mark_count:
            return last < self.mark
        return self._at(count - 1) == last
