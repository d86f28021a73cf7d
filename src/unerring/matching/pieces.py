"""Pieces of a stream: events as objects or as columns (a `Chunk`), and what is asked of both.

A few events are quicker as objects, many as columns. Nothing but the time it takes depends on which they are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from unerring.matching.packed import Packed
from unerring.model import Event, Stamp, StreamSchema

if TYPE_CHECKING:
    from unerring.matching.chunks import Chunk

    Piece = list[Event] | tuple[Event, ...] | Chunk
else:
    Piece = Sequence

COLUMNS_MIN: Final = 64
"""From so many events on columns are quicker: below, making the arrays costs more than the objects."""
OBJECTS_MAX: Final = 1024
"""Objects in one piece, and in one message. What is read of a piece is freed when all of it was read."""


def stamp_at(piece: Piece, at: int) -> Stamp:
    """The stamp of one event."""
    return piece[at].stamp if isinstance(piece, list | tuple) else piece.stamp(at)


def times_of(piece: Piece) -> Any:
    """The times of its events, in order: a list, or an array."""
    return [event.stamp.time for event in piece] if isinstance(piece, list | tuple) else piece.batch.time


def first_after(piece: Piece, stamp: Stamp, lo: int = 0) -> int:
    """The place of the first event above a stamp, at `lo` or later."""
    if isinstance(piece, list | tuple):
        return bisect_right(piece, stamp, lo=lo, key=_stamp)
    return piece.first_after(stamp, lo)


def first_fault(piece: Piece, last: Stamp) -> int | None:
    """The place of the first event that does not come after the one before it, the first one after `last`."""
    if not isinstance(piece, list | tuple):
        return piece.first_fault(last)
    for at, event in enumerate(piece):
        if event.stamp <= last:
            return at
        last = event.stamp
    return None


def pack(pieces: Sequence[Piece]) -> tuple[Event, ...] | Packed:
    """Several pieces in a row, for a message or a record: objects if all are."""
    columns = next((piece for piece in pieces if not isinstance(piece, list | tuple)), None)
    if columns is None:
        return tuple(chain.from_iterable(pieces))
    if len(pieces) == 1:
        return columns.packed()
    return columns.joined(columns.schema, pieces).packed()


def unpack(schema: StreamSchema, events: tuple[Event, ...] | Packed) -> Piece:
    """ProtocolError: columns that cannot be events of this stream. Of objects nothing is looked at."""
    if not isinstance(events, Packed):
        return events
    from unerring.matching.chunks import Chunk

    return Chunk.unpacked(schema, events) if events.count else ()


def _stamp(event: Event) -> Stamp:
    return event.stamp
