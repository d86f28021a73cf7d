"""Applications: where situations leave the query trees, each once.

Position and effect commit together: what a situation changes (here, its own record) and the position behind it are one
write on stable storage, and only then is it acknowledged and handed up. Handing up alone is at least once, with
a stable id.

What shards make comes in parts. It is kept as it comes, and acknowledged; it is a situation, with a stamp, once every
shard has a watermark of its time. What is committed of the stream so far says by its last time what of the parts is in
it, so that a part that begins anew, under this name or another, repeats nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from unerring.correlation.config import CorrelationConfig
from unerring.correlation.incoming import Incoming, Verdict
from unerring.correlation.intake import NEVER, Intake
from unerring.correlation.messages import (
    MEMBERSHIP,
    OPERATOR,
    SEALER,
    AskAcks,
    Batch,
    Forget,
    HasMore,
    NotMember,
    Ping,
    Pong,
    ReadRecord,
    RecordIs,
    check_keeper,
)
from unerring.correlation.shards import BOUNDED_BY_CREDIT, lanes_after, lanes_of
from unerring.correlation.switching import Rearrange, is_ahead
from unerring.correlation.topology import Topology
from unerring.matching import Lanes, Merge, Packed, Piece, first_after, stamp_at, unpack
from unerring.model import (
    BEFORE_ALL,
    ORDINAL_MAX,
    Address,
    Connected,
    Deliver,
    Effects,
    Event,
    Persist,
    Send,
    SetTimer,
    Stamp,
    StreamSchema,
)


class _Position(msgspec.Struct, frozen=True, array_like=True):
    last: Stamp
    count: int
    """By the node that the stream comes from now…"""
    maker: str = ""
    base: int = 0
    """…and of those before it."""
    ended: tuple[str, Stamp, int] | None = None
    parts: tuple[str, ...] = ()
    """The names of the parts that it came in; then the count is of all that the stream has had."""


class _Columns(msgspec.Struct, frozen=True, array_like=True):
    """Several events in one record, which can be read without knowing the stream."""

    schema: StreamSchema
    events: Packed


class _Joining(NamedTuple):
    """A stream that comes in parts."""

    stream: str
    merge: Merge
    parts: tuple[str, ...]


class Application:
    """Takes the streams it asked for, commits, delivers."""

    intake_part: type[Intake] = Intake

    def __init__(self, records: Mapping[str, bytes], name: str, topology: Topology, config: CorrelationConfig) -> None:
        self.name = name
        self.config = config
        self.intake = self.intake_part(name.rpartition("/")[0], topology, config)
        self.intake.incarnation = 1
        self.topology = topology
        self._polled_us = NEVER
        self._bases = dict.fromkeys(self.intake.streams, 0)
        """How many events of each stream came from nodes that have gone with an upgrade."""
        self._kept: dict[str, deque[tuple[str, int]]] = {stream: deque() for stream in self.intake.streams}
        """The keys of the events that are kept, in order, each with the number after its last event."""
        self._joined: dict[str, Incoming] = {}
        """Where streams stand that come in parts, as far as they are put together."""
        self._joining: dict[str, _Joining] = {}
        """The same streams, by the names of their parts."""
        self._later: dict[str, Lanes] = {}
        """Streams that come under other names after the agreed time of an upgrade."""
        for stream in self.intake.streams:
            position = _position(records, stream)
            if position is not None:
                self._go_on(stream, position)
                self._kept[stream].extend((key, first + len(piece)) for first, key, piece in _read(records, stream))
        self._join(records)

    def _join(self, records: Mapping[str, bytes]) -> None:
        """Go on with streams that come in parts, and with what waits of these."""
        node = self.name.rpartition("/")[0]
        lanes, self._later = lanes_of(self.topology, node), lanes_after(self.topology, node)
        for stream, later in list(self._later.items()):
            position = _position(records, stream)
            came = (stream,) if position is None or not position.parts else position.parts
            if position is None or came != later.names:
                continue
            if not position.maker or position.maker in self.intake.makers(stream):
                for name in lanes[stream].names if stream in lanes else (stream,):
                    self.intake.end(name)  # it had gone over
                lanes[stream] = self._later.pop(stream)
        for stream, taken in lanes.items():
            if stream in self._joined or taken.names == (stream,):
                continue
            whole = Incoming(stream)
            position = _position(records, stream)
            if position is not None:
                whole.last, whole.count = position.last, position.base + position.count
            self._kept[stream] = deque((key, first + len(piece)) for first, key, piece in _read(records, stream))
            self._begin_parts(whole, taken, records)

    def _begin_parts(self, whole: Incoming, lanes: Lanes, records: Mapping[str, bytes]) -> None:
        """Put a stream together from its parts from now on."""
        stream = whole.stream
        [schema] = [schema for schema in self.topology.streams if schema.name == stream]
        merge = Merge([], BOUNDED_BY_CREDIT)
        merge.rearrange([(schema, 0)], {stream: lanes}, whole.watermark)
        joining = _Joining(stream, merge, lanes.names)
        self._joined[stream] = whole
        for part in joining.parts:
            self._joining[part] = joining
            for _, piece in numbered(records, part):
                waits = _after(piece, whole.last.time)
                if len(waits):
                    merge.push_all(part, waits)
        self._consume(joining)

    def _go_over(self) -> Effects:
        """Streams that come under other names after the agreed time: all up to it is taken, so go on with those."""
        effects: Effects = []
        switch = self.intake.switch
        for stream, lanes in list(self._later.items()) if switch is not None else ():
            joined = self._joined.get(stream)
            parts = self._parts(stream)
            if switch is None or any(map(self.intake.makers, parts or [stream])):
                continue
            if joined is not None and joined.watermark < switch.at_us:
                continue
            del self._later[stream]
            if lanes.names == (stream,):
                self._put_together(stream)
                self.intake.streams[stream].watermark = max(self.intake.streams[stream].watermark, switch.at_us)
            else:
                for part in parts:
                    del self._joining[part]
                last = self.intake.ended[stream][1] if joined is None else joined.last
                whole = Incoming(stream, last, self.count(stream), switch.at_us)
                self._begin_parts(whole, lanes, {})
                # Else a restart would not look for what is kept of these parts.
                effects.append(self._commit(whole, ()))
            effects += [effect for name in lanes.names for effect in self.intake.ask_all(name)]
        return [*effects, self._read_record()] if effects else []

    def _parts(self, stream: str) -> list[str]:
        """The names of the parts that a stream comes in."""
        return [part for part, joining in self._joining.items() if joining.stream == stream]

    def _put_together(self, stream: str) -> None:
        """No part of a stream comes any more: it goes on as a whole."""
        for part in self._parts(stream):
            del self._joining[part]
        self._bases[stream] = self._joined.pop(stream).count

    @property
    def _passed_all(self) -> bool:
        """Whether nothing is needed any more of nodes that go with the upgrade."""
        return self.intake.passed and not self._later

    def _consume(self, joining: _Joining) -> None:
        for part in joining.parts:
            self.intake.consumed[part] = self.intake.streams[part].count - joining.merge.size(part)

    def _go_on(self, stream: str, position: _Position) -> None:
        """Where a stream was when it was committed; or, if that node is gone, where the next one's begins."""
        if position.parts or (position.maker and position.maker not in self.intake.makers(stream)):
            self._bases[stream] = position.base + position.count
            return
        incoming = self.intake.streams[stream]
        incoming.last, incoming.count = position.last, position.count
        # Nothing comes before its last event any more: new nodes may wait for a log that knows so.
        incoming.watermark = max(incoming.watermark, position.last.time - 1)
        self.intake.consumed[stream] = position.count
        self._bases[stream] = position.base
        self.intake.go_on_with(stream, position.maker, position.ended)

    def count(self, stream: str) -> int:
        """How many events of a stream were taken, whoever made them."""
        joined = self._joined.get(stream)
        return self._bases[stream] + self.intake.streams[stream].count if joined is None else joined.count

    @property
    def streams(self) -> dict[str, Incoming]:
        """Where each stream stands, whether it comes in parts or not."""
        names = [schema.name for schema, _ in self.topology.inputs(self.name.rpartition("/")[0])]
        return {name: self._joined.get(name) or self.intake.streams[name] for name in names}

    def watermark(self, stream: str) -> int:
        """Of a stream, whoever makes it, whether it comes in parts or not."""
        joined = self._joined.get(stream)
        return self.intake.watermark(stream) if joined is None else joined.watermark

    def start(self, now: int) -> Effects:
        return [SetTimer("tick", now + self.config.tick_us), self._read_record()]

    def _read_record(self) -> Send:
        return Send(MEMBERSHIP, ReadRecord(self.intake.record.version, 1, self.topology.upgrade, self._passed_all))

    def _rearrange(self, topology: Topology, now: int) -> Effects:
        """The nodes that there are now. Those of before may have gone before this process went over to others: the one
        before it had told so, and was killed."""
        if topology.upgrade < self.topology.upgrade or topology == self.topology:
            return []
        self.topology = topology
        known = dict(self.intake.streams)
        self.intake.rearrange(topology, now)
        for stream, incoming in self.intake.streams.items():
            if stream not in known:
                self._kept.setdefault(stream, deque())
                self._bases.setdefault(stream, 0)
            elif incoming is not known[stream]:
                self._bases[stream] += known[stream].count
        for stream in [one for one in self._joined if self.intake.streams.keys().isdisjoint(self._parts(one))]:
            self._put_together(stream)
        self._join({})
        return [self._read_record()]

    def timer(self, name: str, now: int) -> Effects:
        effects: Effects = [SetTimer(name, now + self.config.tick_us)]
        poll_us = self.config.record_poll_us if self.intake.record.version else self.config.join_retry_us
        if now - self._polled_us >= poll_us:
            self._polled_us = now
            effects.append(self._read_record())
        return effects + self.intake.tick(now)

    def handle(self, sender: Address, message: Any, now: int) -> Effects:
        match message:
            case Batch():
                return self._batch(sender, message, now)
            case RecordIs(record):
                check_keeper(sender, message)
                began = not self.intake.record.version
                self.intake.read(record, now)
                return self.intake.begin(now) if began else []
            case HasMore(stream) if stream in self.intake.streams:
                return self.intake.has_more(sender, message)
            case AskAcks():
                return self.intake.answers(sender)
            case Rearrange(topology) if sender == OPERATOR:
                return self._rearrange(topology, now)
            case Connected(peer):
                return self.intake.reconnected(peer)
            case Forget(stream, count) if sender == SEALER:
                return self._forget(stream, count)
            case NotMember():
                return [self._read_record()]
            case Ping(sent_us):
                return [Send(sender, Pong(sent_us))]
            case Pong():
                self.intake.hear(sender, now)
                self.intake.pong(message, now)
        return []

    def _batch(self, sender: Address, batch: Batch, now: int) -> Effects:
        if batch.stream not in self.intake.streams or is_ahead(batch.switch, self.topology):
            return []
        if batch.switch is not None and batch.switch.number == self.topology.upgrade:
            self.intake.switch = batch.switch
        if any(batch.stream in lanes.names for lanes in self._later.values()):
            return []  # it is asked for when all before it is taken
        taken, effects = self.intake.take(sender, batch, now)
        if taken.verdict >= Verdict.GAP:
            return effects
        joining = self._joining.get(batch.stream)
        if joining is not None:
            effects += self._take_part(batch.stream, taken.events, joining)
        elif len(taken.events):
            incoming = self.intake.streams[batch.stream]
            self.intake.consumed[batch.stream] = incoming.count
            effects += [self._commit(incoming, taken.events), *_delivered(taken.events)]
        if len(batch.events):
            effects.append(Send(sender, self.intake.ack(batch.stream)))
        count, maker = self.intake.streams[batch.stream].count, self.intake.maker(batch.stream)
        effects += self.intake.go_over(batch.stream, now)
        if self.intake.maker(batch.stream) != maker:
            self._bases[batch.stream] += count
        if joining is not None:
            effects += self.intake.announce()
        return effects + self._go_over()

    def _take_part(self, part: str, events: Piece, joining: _Joining) -> Effects:
        """Some of what one shard made: committed with all that is whole by now."""
        joining.merge.push_all(part, events)
        joining.merge.advance(part, self.intake.watermark(part))
        pieces, through = joining.merge.release_pieces()
        self._consume(joining)
        whole = self._joined[joining.stream]
        whole.watermark = max(whole.watermark, through)
        puts: list[tuple[str, bytes]] = []
        delivered: Effects = []
        for piece in pieces:
            fresh = _after(piece, whole.last.time)
            if len(fresh):
                whole.last, whole.count = stamp_at(fresh, -1), whole.count + len(fresh)
                puts += self._commit(whole, fresh).puts
                delivered += _delivered(fresh)
        if len(events):
            puts += self._commit(self.intake.streams[part], _after(events, through)).puts
        taken = {name: self._bases[name] + self.intake.consumed[name] for name in joining.parts}
        deletes = [key for name, count in taken.items() for key in self._passed(name, count)]
        return [*([Persist(tuple(puts), tuple(deletes))] if puts or deletes else []), *delivered]

    def _forget(self, stream: str, count: int) -> Effects:
        deletes = self._passed(stream, count)
        return [Persist((), tuple(deletes))] if deletes else []

    def _passed(self, stream: str, count: int) -> list[str]:
        """A record goes when all its events are kept elsewhere."""
        kept, deletes = self._kept[stream], []
        while kept and kept[0][1] <= count:
            deletes.append(kept.popleft()[0])
        return deletes

    def _commit(self, incoming: Incoming, events: Piece) -> Persist:
        """A record for each event, or one for all that came as columns: the last ones that were taken."""
        stream, first = incoming.stream, self.count(incoming.stream) - len(events)
        position = _Position(incoming.last, incoming.count)
        if stream not in self._joined:
            maker, ended = self.intake.maker(stream), self.intake.ended.get(stream)
            position = _Position(incoming.last, incoming.count, maker, self._bases[stream], ended)
        else:
            position = _Position(incoming.last, incoming.count, parts=tuple(self._parts(stream)))
        puts = [(f"application/{stream}/position", msgspec.msgpack.encode(position))]
        if isinstance(events, list | tuple):
            puts += [(_key(stream, first + at), msgspec.msgpack.encode(event)) for at, event in enumerate(events)]
            self._kept[stream].extend((key, first + at) for at, (key, _) in enumerate(puts) if at)
        else:
            puts.append((_columns_key(stream, first), msgspec.msgpack.encode(_Columns(events.schema, events.packed()))))
            self._kept[stream].append((puts[-1][0], self.count(stream)))
        return Persist(tuple(puts))


def _delivered(events: Piece) -> Effects:
    """Hand up events one by one, and columns as they are."""
    return [Deliver(one) for one in (events if isinstance(events, list | tuple) else (events,))]


def _after(piece: Piece, time: int) -> Piece:
    return piece[first_after(piece, Stamp(time, ORDINAL_MAX)) :]


def position_of(records: Mapping[str, bytes], stream: str) -> int:
    """How many events of a stream an application has committed."""
    position = _position(records, stream)
    return 0 if position is None else position.base + position.count


def _position(records: Mapping[str, bytes], stream: str) -> _Position | None:
    data = records.get(f"application/{stream}/position")
    return None if data is None else msgspec.msgpack.decode(data, type=_Position)


def moved(records: Mapping[str, bytes], stream: str, sealed: Callable[[Stamp], int], sealed_us: int) -> Persist:
    """The records of an application whose stream has another beginning now. `sealed`: how many of its events up to a
    stamp are in the log, where everything up to `sealed_us` is; what comes after, the application keeps itself. Of its
    parts, if it came in such, nothing is left: all of them come again."""
    data = records.get(f"application/{stream}/position")
    parts = [key for key in records if key.startswith(f"application/{stream}#")]
    deletes = (*(key for _, key, _ in _read(records, stream)), *parts)
    if data is None:
        return Persist((), deletes)
    last = msgspec.msgpack.decode(data, type=_Position).last
    left = [event for event in committed(records, stream) if event.stamp.time > sealed_us]
    first = sealed(last)
    position = _Position(last if first or left else BEFORE_ALL, first + len(left))
    puts = [(f"application/{stream}/position", msgspec.msgpack.encode(position))]
    puts += [(_key(stream, first + at), msgspec.msgpack.encode(event)) for at, event in enumerate(left)]
    return Persist(tuple(puts), deletes)


def numbered(records: Mapping[str, bytes], stream: str) -> Iterator[tuple[int, Piece]]:
    """The events of a stream in an application's stable storage, in order, each piece with its first one's number."""
    return ((first, piece) for first, _, piece in _read(records, stream))


def _read(records: Mapping[str, bytes], stream: str) -> Iterator[tuple[int, str, Piece]]:
    """In order of their numbers, with their keys."""
    found: list[tuple[int, str]] = []
    for prefix in (_key(stream), _columns_key(stream)):
        found += [(int(key.removeprefix(prefix)), key) for key in records if key.startswith(prefix)]
    for first, key in sorted(found):
        if key.startswith(_key(stream)):
            yield first, key, (msgspec.msgpack.decode(records[key], type=Event),)
        else:
            columns = msgspec.msgpack.decode(records[key], type=_Columns)
            yield first, key, unpack(columns.schema, columns.events)


def committed(records: Mapping[str, bytes], stream: str) -> list[Event]:
    """The events that an application has received, by its stable storage, in order."""
    return [event for _, piece in numbered(records, stream) for event in piece]


def _key(stream: str, number: int | None = None) -> str:
    return f"application/{stream}/event/" + ("" if number is None else f"{number:012d}")


def _columns_key(stream: str, first: int | None = None) -> str:
    return f"application/{stream}/columns/" + ("" if first is None else f"{first:012d}")
