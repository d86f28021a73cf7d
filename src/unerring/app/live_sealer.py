"""The sealer of a live run: situations that the application has committed are sealed into the run's log.

So they are read as those of the Spark engine are, and an audit finds them. The file in which position and effect commit
together keeps only what is not sealed yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

from unerring.app.live_rules import LiveRules
from unerring.app.place import Place, Where, place_of
from unerring.correlation import SEALER, Application, Forget, committed, numbered
from unerring.log import events_of, seal_interval, table_of
from unerring.matching import Piece, first_after, stamp_at
from unerring.model import ORDINAL_MAX, TIME_MIN, Event, Stamp, StreamSchema
from unerring.runtime import Host, SqliteStorage

if TYPE_CHECKING:
    import pyarrow as pa

    from unerring.app.application import App

SEAL_S = 0.2


class _Lane:
    """One stream: what is committed and not sealed, each piece with its first event's number in the stream."""

    def __init__(self, chain: Any, kept: Iterable[tuple[int, Piece]], count: int) -> None:
        self.chain = chain
        self.pieces = list(kept)
        self.count = count
        """How many were committed since the stream began."""
        self.forget(chain.through_us)

    def add(self, piece: Piece) -> None:
        """What was committed next."""
        if stamp_at(piece, -1).time > self.chain.through_us:
            self.pieces.append((self.count, piece))
        self.count += len(piece)

    def between(self, from_us: int, through_us: int) -> list[Piece]:
        """What is not sealed and has these times."""
        found: list[Piece] = []
        for _, piece in list(self.pieces):
            start, end = (first_after(piece, Stamp(time_us, ORDINAL_MAX)) for time_us in (from_us, through_us))
            if end > start:
                found.append(piece[start:end])
            if end < len(piece):
                break
        return found

    def forget(self, through_us: int) -> int:
        """Drop what is sealed; the number after its last event, 0 if there is none."""
        number = 0
        while self.pieces:
            first, piece = self.pieces[0]
            end = first_after(piece, Stamp(through_us, ORDINAL_MAX))
            if end:
                number = first + end
            if end < len(piece):
                self.pieces[0] = number or first, piece[end:]
                break
            del self.pieces[0]
        return number


class LiveSealer:
    """Takes committed situations in order, and seals them a few times a second."""

    def __init__(
        self, run: Place, app: App, machine: Application, records: Mapping[str, bytes], seal_s: float = SEAL_S
    ) -> None:
        self._seal_s = seal_s
        self._log = run.log
        self._rules = LiveRules(run.log, app)
        self._buckets = app.buckets
        self.machine = machine
        self.lanes: dict[str, _Lane] = {}
        for stream in machine.streams:
            self._lane(stream, numbered(records, stream), machine.count(stream))

    def _lane(self, stream: str, kept: Iterable[tuple[int, Piece]] = (), count: int = 0) -> _Lane:
        """Of a stream, which may have come with an upgrade."""
        if stream not in self.lanes:
            chain = self._log.create(self._rules.schema(stream), self._buckets)
            self.lanes[stream] = _Lane(chain, kept, count)
        return self.lanes[stream]

    def deliver(self, what: Any) -> None:
        """Take an event, or several as columns, after their commit."""
        if isinstance(what, Event):
            self._lane(what.stream).add((what,))
        else:
            self._lane(what.schema.name).add(what)

    async def run(self, host: Host) -> None:
        try:
            while True:
                await asyncio.sleep(self._seal_s)
                for stream in [self._lane(stream).chain.name for stream in self.machine.streams]:
                    await self._seal(stream, host)
        finally:
            for stream in [stream for stream in self.lanes if stream in self.machine.streams]:
                self._seal_now(stream, self._safe_us(stream))

    async def _seal(self, stream: str, host: Host) -> None:
        lane, safe_us = self.lanes[stream], self._safe_us(stream)
        if safe_us <= lane.chain.through_us:
            return
        await asyncio.to_thread(self._seal_now, stream, safe_us)
        through_us = lane.chain.through_us  # Perhaps further: another run may seal the same.
        number = lane.forget(through_us)
        if number:
            host.driver.offer(SEALER, Forget(stream, number))

    def _safe_us(self, stream: str) -> int:
        """Up to which time everything is committed. The machine may know of more, whose commit is under way."""
        lane = self.lanes[stream]
        if lane.count == self.machine.count(stream):
            return self.machine.watermark(stream)
        return stamp_at(lane.pieces[-1][1], -1).time - 1 if lane.pieces else TIME_MIN

    def _seal_now(self, stream: str, through_us: int) -> None:
        lane = self.lanes[stream]
        from_us = lane.chain.refresh()
        for end_us, version in self._rules.versions(stream, from_us, through_us):
            pieces = table_of_pieces(lane.between(from_us, end_us), lane.chain.schema)
            seal_interval(lane.chain, pieces, end_us, rule=version)
            from_us = end_us


def table_of_pieces(pieces: Sequence[Piece], schema: StreamSchema) -> pa.Table:
    """Pieces of a stream as a segment's columns."""
    import pyarrow as pa

    tables: list[pa.Table] = []
    for objects, some in groupby(pieces, lambda piece: isinstance(piece, list | tuple)):
        if objects:
            tables.append(table_of(list(chain.from_iterable(some)), schema))
        else:
            tables += [piece.table() for piece in some if not isinstance(piece, list | tuple)]
    return pa.concat_tables(tables).combine_chunks() if tables else table_of((), schema)


def live_situations(where: Where, stream: str) -> list[Event]:
    """What the live engine has delivered of a stream so far, in order: sealed, and committed but not sealed yet."""
    place = place_of(where)
    chain = place.log.chain(stream)
    through_us = chain.refresh()
    sealed = list(events_of(chain.read(chain.base.from_us, through_us), chain.schema))
    storage = SqliteStorage(place.live / "situations.0.db")
    try:
        kept = committed(storage.load(f"application/{stream}/"), stream)
    finally:
        storage.close()
    return sealed + [event for event in kept if event.stamp.time > through_us]
