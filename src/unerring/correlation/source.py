"""Sources: where primary streams enter the query trees, on stable storage, without replicas.

An event is on disk before it is sent, so a source that restarts goes on where it was. Every watermark is
covered by a bound on disk, and a restarted source begins above it: it could otherwise break a watermark that it has
forgotten.

A source that *follows* a producer which gives the same events again (the event log: sealed, never changed) keeps only
where its queue begins. After a restart it is handed what comes after that, again; receivers drop what they have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from unerring.correlation.config import CorrelationConfig
from unerring.correlation.dead_links import DeadLinks
from unerring.correlation.messages import (
    MEMBERSHIP,
    OPERATOR,
    Ack,
    AskMore,
    Ping,
    Pong,
    Publish,
    ReadRecord,
    RecordIs,
    Register,
    Resume,
    check_keeper,
)
from unerring.correlation.outgoing import NEVER, Outgoing
from unerring.correlation.queue import Queue
from unerring.correlation.switching import Rearrange
from unerring.correlation.topology import Topology
from unerring.matching import Piece, first_after, stamp_at
from unerring.model import (
    BEFORE_ALL,
    TIME_MAX,
    TIME_MIN,
    Address,
    CallerError,
    Connected,
    Disconnected,
    Effects,
    Event,
    Persist,
    Send,
    SetTimer,
    Stamp,
)

PRODUCER = "log"
"""The address under which its driver hands a source what to publish."""


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    """A source's record of a stream besides its events."""

    mark: Stamp
    mark_count: int
    bound: int
    version: int = 0
    """Of the record, before which nothing is pruned."""


def _decoded(kept: bytes | None) -> _Kept:
    return _Kept(BEFORE_ALL, 0, TIME_MIN) if kept is None else msgspec.msgpack.decode(kept, type=_Kept)


def kept_key(stream: str) -> str:
    """Under which key a source keeps where a stream's queue begins."""
    return f"source/{stream}/state"


def needs_after(kept: bytes | None) -> int:
    """The time after which a source that follows its producer may need events again, by its record."""
    record = None if kept is None else msgspec.msgpack.decode(kept, type=_Kept)
    # More of the mark's own time may follow it.
    return record.mark.time - 1 if record is not None and record.mark_count else TIME_MIN


class Source:
    """All streams of one producer."""

    outgoing_part: type[Outgoing] = Outgoing
    links_part: type[DeadLinks] = DeadLinks

    def __init__(
        self,
        records: Mapping[str, bytes],
        name: str,
        topology: Topology,
        config: CorrelationConfig,
        follows: bool = False,
    ) -> None:
        self.name = name
        self.config = config
        self.follows = follows
        """Whether the producer hands over again, after a restart, whatever comes after `queue.last`."""
        self.topology = topology
        spec = topology.node(name.rpartition("/")[0])
        self.outgoing = self.outgoing_part(name, topology, spec.outputs, config)
        self.outgoing.incarnation = 1
        self.outgoing.lead()
        self.links = self.links_part(config)
        self.bounds = dict.fromkeys(self.outgoing.own, TIME_MIN)
        """Nothing at or before it may be published after a restart."""
        self._oldest = dict.fromkeys(self.outgoing.own, 0)
        self._kept_us = NEVER
        self._asked_us = NEVER
        self._polled_us = NEVER
        self._flush_set = False
        for stream in self.outgoing.own:
            self._load(stream, records)

    def _load(self, stream: str, records: Mapping[str, bytes]) -> None:
        data = records.get(kept_key(stream))
        kept = _decoded(data)
        events: list[Event] = []
        number = kept.mark_count
        decoder = msgspec.msgpack.Decoder(Event)
        while (encoded := records.get(_key(stream, number))) is not None:
            events.append(decoder.decode(encoded))
            number += 1
        self._oldest[stream] = kept.mark_count
        self.bounds[stream] = kept.bound
        self.outgoing.version_min = max(self.outgoing.version_min, kept.version)
        # Everything of a time is published at once, so that the last event is a watermark, also when it is pruned. If
        # the source follows, the producer's own record has the watermark and sends it again.
        last = events[-1].stamp if events else kept.mark
        watermark = needs_after(data) if self.follows else max(kept.bound, last.time)
        queues = self.outgoing.queues
        queues[stream] = Queue(stream, kept.mark, kept.mark_count, events, watermark)
        for part, piece in self.outgoing.cuts[stream].cut(events):
            of_part = _decoded(records.get(kept_key(part)))
            rest = piece[first_after(piece, of_part.mark) :]
            queues[part] = Queue(part, of_part.mark, of_part.mark_count, rest, watermark)

    # ---- the producer's own calls ------------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        """Whether the producer must wait: registered consumers slow it down rather than lose anything."""
        return self.outgoing.full

    def next_time(self, stream: str) -> int:
        """The first time that may still be published."""
        return self.outgoing.queues[stream].watermark + 1

    def publish(self, events: Piece, now: int) -> Effects:
        """Events of one stream, in order; on disk, then sent. All of one time must come in one call."""
        if not len(events):
            return []
        stream = events[0].stream if isinstance(events, list | tuple) else events.schema.name
        queue = self.outgoing.queues[stream]
        if self.full:
            raise CallerError(f"{self.name}: stream {stream} is full; wait until its receivers have caught up")
        first = queue.count
        if stamp_at(events, 0).time <= queue.watermark:
            raise CallerError(
                f"{self.name}: {stamp_at(events, 0)} on stream {stream} is not after its watermark {queue.watermark}"
            )
        self.outgoing.append(stream, events)
        self.outgoing.advance(stamp_at(events, -1).time, stream)
        if self.follows:
            return self._flush(now)
        puts = tuple((_key(stream, first + at), msgspec.msgpack.encode(event)) for at, event in enumerate(events))
        return [Persist(puts), *self._flush(now)]

    def advance(self, stream: str, time: int, now: int) -> Effects:
        """Nothing at or before `time` will come; a bound above it is on disk before anybody is told."""
        time = min(time, TIME_MAX)
        queue = self.outgoing.queues[stream]
        if time <= queue.watermark:
            return []
        effects: Effects = []
        if time > self.bounds[stream] and not self.follows:
            self.bounds[stream] = min(time + self.config.bound_ahead_us, TIME_MAX)
            effects.append(self._keep(stream))
        self.outgoing.advance(time, stream)
        return effects + self._flush(now)

    def end(self, stream: str, now: int) -> Effects:
        """The stream is over for good."""
        return self.advance(stream, TIME_MAX, now)

    def _keep(self, stream: str) -> Persist:
        queue = self.outgoing.queues[stream]
        kept_events = () if self.follows else range(self._oldest[stream], queue.mark_count)
        deletes = tuple(_key(stream, number) for number in kept_events)
        self._oldest[stream] = queue.mark_count
        # Together: of each part, the stream has from its mark on whatever the part has from its own.
        bound, version = self.bounds[stream], self.outgoing.version_min
        kept = {
            name: _Kept(self.outgoing.queues[name].mark, self.outgoing.queues[name].mark_count, bound, version)
            for name in (stream, *self.outgoing.cuts[stream].names)
        }
        return Persist(tuple((kept_key(name), msgspec.msgpack.encode(one)) for name, one in kept.items()), deletes)

    # ---- the machine -------------------------------------------------------------------------------------------

    def start(self, now: int) -> Effects:
        """A source that follows its producer says where to begin, and again after each step what it has taken."""
        return [SetTimer("tick", now + self.config.tick_us), self._read_record(), *self._taken()]

    def timer(self, name: str, now: int) -> Effects:
        if name == "flush":
            self._flush_set = False
            return self._flush(now)
        effects: Effects = [SetTimer("tick", now + self.config.tick_us)]
        poll_us = self.config.record_poll_us if self.outgoing.record.version else self.config.join_retry_us
        if now - self._polled_us >= poll_us:
            self._polled_us = now
            effects.append(self._read_record())
        if self.outgoing.filling and now - self._asked_us >= self.config.patience_us:
            self._asked_us = now
            effects += self.outgoing.ask_acks()
        self.outgoing.prune()
        if now - self._kept_us >= self.config.record_poll_us:
            self._kept_us = now
            pruned = [stream for stream, kept in self._oldest.items() if self._pruned(stream, kept)]
            effects += [self._keep(stream) for stream in pruned]
        effects += self.links.tell(self.outgoing, now)
        return effects + self._flush(now) + self._taken()

    def _pruned(self, stream: str, kept: int) -> bool:
        """Whether more is pruned of a stream than its record says."""
        return self.outgoing.queues[stream].mark_count > kept

    def _rearrange(self, topology: Topology, now: int) -> Effects:
        """The nodes that there are now."""
        if topology.upgrade < self.topology.upgrade:
            return []
        self.topology = topology
        self.outgoing.rearrange(topology)
        return [self._read_record(), *self._flush(now)]

    def _read_record(self) -> Send:
        return Send(MEMBERSHIP, ReadRecord(self.outgoing.record.version, 1, self.topology.upgrade, True))

    def handle(self, sender: Address, message: Any, now: int) -> Effects:
        effects: Effects = []
        self.links.hear(sender, now)
        match message:
            case Publish(stream, events, watermark, switch) if sender == PRODUCER:
                self.outgoing.span.learn(switch)
                return [*self.publish(events, now), *self.advance(stream, watermark, now), *self._taken()]
            case Connected(peer):
                self.outgoing.reconnected(peer)
            case Disconnected(peer):
                self.links.ended(peer)
                effects = self.links.tell(self.outgoing, now)
            case Ack():
                stranger = self.outgoing.ack(sender, message)
                effects = [] if stranger is None else [Send(sender, stranger)]
            case Resume():
                effects = self.outgoing.resume(sender, message, now)
            case AskMore():
                effects = self.outgoing.more(sender, message)
            case Register():
                known, answer = self.outgoing.version_min, self.outgoing.register(sender, message)
                new = self.outgoing.version_min > known
                effects = [
                    self._keep(stream) for stream, kept in self._oldest.items() if new or self._pruned(stream, kept)
                ]
                effects += [] if answer is None else [Send(sender, answer)]
            case Rearrange(topology) if sender == OPERATOR:
                return self._rearrange(topology, now)
            case RecordIs(record):
                check_keeper(sender, message)
                self.outgoing.read(record)
            case Ping(sent_us):
                return [Send(sender, Pong(sent_us))]
            case _:
                return []
        self.outgoing.prune()
        return effects + self._flush(now) + self._taken()

    def _taken(self) -> Effects:
        return self.outgoing.taken() if self.follows else []

    def _flush(self, now: int) -> Effects:
        effects = self.outgoing.flush(now)
        if not self._flush_set and self.outgoing.watermark_waits:
            self._flush_set = True
            effects.append(SetTimer("flush", now + self.config.watermark_pause_us))
        return effects


def _key(stream: str, number: int) -> str:
    return f"source/{stream}/event/{number:012d}"
