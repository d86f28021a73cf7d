"""Merge: several streams become one order, `(time, stream rank, ordinal)`, released in whole times.

A time t is released once the watermark of every stream is at t. An event of a stream with strictly increasing times is
itself a watermark at its time; an event of any other is a watermark just before its time, since more of that time may
follow. The result depends on the streams alone, not on how they arrive.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple, overload

import msgspec

from unerring.matching.outputs import Row, merge_order
from unerring.matching.packed import Packed
from unerring.matching.pieces import OBJECTS_MAX, Piece, first_after, first_fault, stamp_at, times_of
from unerring.model import ORDINAL_MAX, TIME_MAX, TIME_MIN, CallerError, Event, SchemaError, Stamp, StreamSchema

if TYPE_CHECKING:
    from unerring.matching.chunks import Chunk
    from unerring.matching.kernel.columns import Columns

ROWS_MAX: Final = 1_000_000


class _Lane:
    """One stream's waiting events and its watermark."""

    __slots__ = ("head", "last", "rank", "schema", "size", "waiting", "watermark")

    def __init__(self, schema: StreamSchema, rank: int) -> None:
        self.schema = schema
        self.rank = rank
        self.waiting: deque[Piece] = deque()
        self.head = 0
        """Events of the first piece that have been released."""
        self.size = 0
        """Events that wait."""
        self.last = Stamp(TIME_MIN, 0)
        self.watermark = TIME_MIN

    def add(self, event: Event) -> None:
        """One more."""
        if self.waiting and isinstance(self.waiting[-1], list) and len(self.waiting[-1]) < OBJECTS_MAX:
            self.waiting[-1].append(event)
        else:
            self.waiting.append([event])
        self.size += 1

    def add_all(self, piece: Piece) -> None:
        if len(piece):
            self.waiting.append(piece)
            self.size += len(piece)

    def pieces(self) -> list[Piece]:
        """What waits."""
        rest = list(self.waiting)
        if self.head:
            rest[0] = rest[0][self.head :]
        return rest

    def time_of(self, number: int) -> int:
        """The time of the so-manieth event that waits; TIME_MAX if fewer wait."""
        at = number + self.head
        for piece in self.waiting if number <= self.size else ():
            if at <= len(piece):
                return stamp_at(piece, at - 1).time
            at -= len(piece)
        return TIME_MAX

    def drop(self, count: int) -> None:
        """The first so many."""
        while count and self.waiting:
            here = len(self.waiting[0]) - self.head
            gone = min(here, count)
            count -= gone
            self.size -= gone
            self.head += gone
            if gone == here:
                self.waiting.popleft()
                self.head = 0

    def release(self, through: int) -> list[Piece]:
        """Take what waits up to this time."""
        released: list[Piece] = []
        while self.waiting:
            piece = self.waiting[0]
            whole = stamp_at(piece, -1).time <= through
            end = len(piece) if whole else first_after(piece, Stamp(through, ORDINAL_MAX), self.head)
            if end > self.head:
                released.append(piece if whole and not self.head else piece[self.head : end])
                self.size -= end - self.head
            self.head = end
            if not whole:
                break
            self.waiting.popleft()
            self.head = 0
        return released


class Merged(Sequence[Row]):
    """Released rows of which some are columns: rows for whoever wants objects, columns for a kernel."""

    def __init__(self, lanes: Sequence[tuple[StreamSchema, int, list[Piece]]]) -> None:
        """`lanes`: each stream with its rank and its pieces, all of them whole times."""
        self._lanes = {schema.name: (schema, rank, pieces) for schema, rank, pieces in lanes}
        self.counts = {name: sum(map(len, pieces)) for name, (_, _, pieces) in self._lanes.items()}
        """How many rows of each stream."""
        self._rows: list[Row] | None = None
        self._chunks: dict[str, Chunk] = {}
        self._columns: dict[tuple[str, ...], Columns] = {}

    def __len__(self) -> int:
        return sum(self.counts.values())

    @overload
    def __getitem__(self, at: int) -> Row: ...
    @overload
    def __getitem__(self, at: slice) -> list[Row]: ...
    def __getitem__(self, at: int | slice) -> Row | list[Row]:
        return self.rows()[at]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows())

    def rows(self) -> list[Row]:
        """As objects, in order."""
        if self._rows is None:
            self._rows = _in_order((rank, pieces) for _, rank, pieces in self._lanes.values())
        return self._rows

    def times(self) -> dict[str, list[Any]]:
        """The times of each stream's rows, piece by piece; no object is made of a row in columns."""
        return {name: [times_of(piece) for piece in pieces] for name, (_, _, pieces) in self._lanes.items() if pieces}

    def columns(self, streams: Sequence[str]) -> Columns:
        """The rows of some streams as columns, in order; a row's source is its stream's place here."""
        from unerring.matching.kernel.columns import Columns, merged

        asked = tuple(streams)
        if asked not in self._columns:
            parts = []
            for number, stream in enumerate(asked):
                batch = self._chunk(stream).batch
                parts.append(Columns(batch.time, batch.columns, self._lanes[stream][1], batch.ordinal, number))
            self._columns[asked] = parts[0] if len(parts) == 1 else merged(parts)
        return self._columns[asked]

    def has_null(self, stream: str, names: Iterable[str]) -> bool:
        """Whether a row of a stream has NULL in one of some columns."""
        return self._chunk(stream).has_null(names)

    def _chunk(self, stream: str) -> Chunk:
        from unerring.matching.chunks import Chunk

        if stream not in self._chunks:
            schema, _, pieces = self._lanes[stream]
            self._chunks[stream] = Chunk.joined(schema, pieces)
        return self._chunks[stream]


def _in_order(lanes: Iterable[tuple[int, list[Piece]]]) -> list[Row]:
    """Rows of some lanes as objects."""
    rows: list[Row] = []
    some = 0
    for rank, pieces in lanes:
        rows += map(Row, repeat(rank), chain.from_iterable(pieces))
        some += bool(pieces)
    if some > 1:  # One lane is in order already.
        rows.sort(key=merge_order)
    return rows


class Waiting(msgspec.Struct, frozen=True, array_like=True):
    """An event in a state: its stream is its lane's."""

    stamp: Stamp
    key: tuple[Any, ...]
    payload: dict[str, Any]


class MergeState(msgspec.Struct, frozen=True, array_like=True):
    """The state of a merge: the time released, and by stream the last stamp, the watermark and the waiting events."""

    through: int
    lanes: tuple[tuple[str, Stamp, int, tuple[Waiting, ...] | Packed], ...]


class Lanes(NamedTuple):
    """How a stream comes that comes under other names than its own."""

    names: tuple[str, ...]
    schema: StreamSchema
    """Of what comes in them."""
    joined: Callable[[Sequence[Piece]], Piece] | None = None
    """Makes whole times of the stream of all that came in its lanes. None: the one lane has the stream itself."""


class _Stream(NamedTuple):
    schema: StreamSchema
    rank: int
    lanes: list[str]
    joined: Callable[[Sequence[Piece]], Piece] | None


class Merge:
    """Feed `push` and `advance` in any interleaving of the streams; take whole times with `release`."""

    def __init__(
        self,
        streams: Iterable[tuple[StreamSchema, int]],
        rows_max: int = ROWS_MAX,
        lanes: Mapping[str, Lanes] | None = None,
    ) -> None:
        """`streams`: each with the rank that the application gave it. `rows_max` bounds what waits of each stream (one
        bound for all would let a quick stream shut out the slow one that it waits for); only the rest of a time already
        begun may go beyond it. `lanes`: for a stream that does not come under its own name, those it comes under."""
        self._lanes: dict[str, _Lane] = {}
        self._streams: list[_Stream] = []
        self._rows_max = rows_max
        self.through = TIME_MIN
        """All times up to here have been released."""
        self.rearrange(streams, lanes)

    def rearrange(
        self,
        streams: Iterable[tuple[StreamSchema, int]],
        lanes: Mapping[str, Lanes] | None = None,
        watermark: int = TIME_MIN,
    ) -> None:
        """Other streams, or some under other names: what comes as before stays as it is, and the rest begins. Nothing
        may wait any more under a name that goes. `watermark`: what comes anew has nothing up to this time."""
        before, self._lanes, self._streams = self._lanes, {}, []
        for schema, rank in streams:
            names, sent, joined = (lanes or {}).get(schema.name) or Lanes((schema.name,), schema)
            for name in names:
                self._lanes[name] = before.get(name) or _Lane(sent, rank)
                if name not in before:
                    self._lanes[name].watermark = watermark
            self._streams.append(_Stream(schema, rank, list(names), joined))
        ranks = [stream.rank for stream in self._streams]
        if len(ranks) != len(set(ranks)):
            raise CallerError(
                "two streams have one rank: their events of one time would have no order; give each its own"
            )

    def room(self, stream: str, time: int) -> bool:
        """Whether an event of this time may be pushed now. At the bound a sender waits for a `release`."""
        lane = self._lane(stream)
        return lane.size < self._rows_max or lane.last.time == time

    def size(self, stream: str) -> int:
        """How many events of a stream wait."""
        return self._lane(stream).size

    def watermark(self, stream: str) -> int:
        """What a stream has up to here is released, or waits."""
        return self._lane(stream).watermark

    def push(self, event: Event) -> None:
        """One event, above the stream's last stamp and its watermark."""
        self._push(event.stream, event)

    def _push(self, name: str, event: Event) -> None:
        lane = self._lane(name)
        time = event.stamp.time
        if not self.room(name, time):
            raise CallerError(
                f"stream {event.stream}: {lane.size} events wait to be merged, which is the limit; "
                "release before you push more"
            )
        if event.stamp <= lane.last or time <= lane.watermark:
            raise SchemaError(
                f"stream {event.stream}: event {tuple(event.stamp)} does not come after {tuple(lane.last)} and the "
                f"watermark {lane.watermark}; stamps must increase"
            )
        lane.last = event.stamp
        lane.add(event)
        lane.watermark = time if lane.schema.strict else time - 1

    def push_all(self, stream: str, events: Piece) -> None:
        """Several events of one stream, as if pushed one by one. A sequence must not be changed afterwards."""
        lane = self._lane(stream)
        if not events or lane.size + len(events) > self._rows_max or stamp_at(events, 0).time <= lane.watermark:
            for event in events:
                self._push(stream, event)
            return
        fault = first_fault(events, lane.last)
        if fault is not None:
            before = stamp_at(events, fault - 1) if fault else lane.last
            raise SchemaError(
                f"stream {stream}: {tuple(stamp_at(events, fault))} follows {tuple(before)}; stamps must increase"
            )
        lane.last = stamp_at(events, -1)
        if len(events) == 1 and isinstance(events, list | tuple):
            lane.add(events[0])
        else:
            lane.add_all(events if not isinstance(events, list) else tuple(events))
        lane.watermark = lane.last.time if lane.schema.strict else lane.last.time - 1

    def advance(self, stream: str, time: int) -> None:
        """The stream will send nothing at or before `time`. An older watermark changes nothing."""
        lane = self._lane(stream)
        lane.watermark = max(lane.watermark, time)

    def end(self, stream: str) -> None:
        """The stream is over."""
        self.advance(stream, TIME_MAX)

    @property
    def complete(self) -> int:
        """Up to which time all are whole by now."""
        return min((lane.watermark for lane in self._lanes.values()), default=TIME_MAX)

    def release(self, rows_max: int | None = None) -> tuple[Sequence[Row], int]:
        """All rows of the times that are whole by now, in order, and the time up to which they are. `rows_max`: as many
        of these times as have about so many rows of one stream, and one at least."""
        through = self.complete
        if rows_max is not None:
            through = min([through, *(lane.time_of(rows_max) for lane in self._lanes.values())])
        released = [(stream.schema, stream.rank, self._release(stream, through)) for stream in self._streams]
        self.through = max(self.through, through)
        if all(isinstance(piece, list | tuple) for _, _, pieces in released for piece in pieces):
            return _in_order((rank, pieces) for _, rank, pieces in released), self.through
        return Merged(released), self.through

    def waiting(self, stream: str) -> list[Piece]:
        """What waits of one stream, under the name it comes under."""
        return self._lane(stream).pieces()

    @property
    def names(self) -> Collection[str]:
        """The names under which streams come."""
        return self._lanes

    @property
    def streams(self) -> list[str]:
        """The streams that are merged, by their own names."""
        return [stream.schema.name for stream in self._streams]

    def lanes(self, stream: str) -> list[str]:
        """The names that a stream comes under."""
        return next(one.lanes for one in self._streams if one.schema.name == stream)

    def whole(self, stream: str, through: int) -> list[Piece]:
        """What waits of one stream up to a time that is whole, as it would be released; it still waits."""
        last = Stamp(through, ORDINAL_MAX)
        waiting = [piece for name in self.lanes(stream) for piece in self.waiting(name)]
        pieces = [piece[:end] for piece in waiting if (end := first_after(piece, last))]
        joined = next(one.joined for one in self._streams if one.schema.name == stream)
        return _joined(pieces, joined)

    def drop(self, stream: str, count: int) -> None:
        """The first so many that wait of a stream are needed no more: somebody has them who takes it by itself."""
        self._lane(stream).drop(count)

    def release_pieces(self) -> tuple[list[Piece], int]:
        """The same of one stream alone, as pieces."""
        through = self.complete
        pieces = [piece for stream in self._streams for piece in self._release(stream, through)]
        self.through = max(self.through, through)
        return pieces, self.through

    def _release(self, stream: _Stream, through: int) -> list[Piece]:
        return _joined([piece for name in stream.lanes for piece in self._lanes[name].release(through)], stream.joined)

    def state(self) -> MergeState:
        """The state, for a snapshot."""
        lanes = ((name, lane.last, lane.watermark, _kept(lane)) for name, lane in self._lanes.items())
        return MergeState(self.through, tuple(lanes))

    def restore(self, state: MergeState) -> None:
        """Become the merge that gave this state."""
        self.through = state.through
        for name, last, watermark, waiting in state.lanes:
            lane = self._lanes[name] = _Lane(self._lane(name).schema, self._lane(name).rank)
            lane.last, lane.watermark = last, watermark
            if isinstance(waiting, Packed):
                from unerring.matching.chunks import Chunk

                lane.add_all(Chunk.unpacked(lane.schema, waiting))
            for one in waiting if isinstance(waiting, tuple) else ():
                lane.add(Event(lane.schema.name, one.stamp, one.key, one.payload))

    def _lane(self, stream: str) -> _Lane:
        lane = self._lanes.get(stream)
        if lane is None:
            raise CallerError(f"stream {stream!r} is not merged here; use one of {', '.join(self._lanes)}")
        return lane


def _joined(pieces: list[Piece], joined: Callable[[Sequence[Piece]], Piece] | None) -> list[Piece]:
    if joined is None or not pieces:
        return pieces
    whole = joined(pieces)
    return [whole] if len(whole) else []


def _kept(lane: _Lane) -> tuple[Waiting, ...] | Packed:
    """What waits, for a snapshot."""
    pieces = lane.pieces()
    if all(isinstance(piece, list | tuple) for piece in pieces):
        return tuple(Waiting(e.stamp, e.key, e.payload) for e in chain.from_iterable(pieces))
    from unerring.matching.chunks import Chunk

    return Chunk.joined(lane.schema, pieces).packed()
