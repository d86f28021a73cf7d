"""Applications: where situations leave the query trees, each once.

Position and effect commit together: what a situation changes (here, its own record) and the position behind it are one
write on stable storage, and only then is it acknowledged and handed up. Handing up alone is at least once, with
a stable id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from unerring.correlation.config import CorrelationConfig
from unerring.correlation.incoming import Incoming, Verdict
from unerring.correlation.intake import NEVER, Intake
from unerring.correlation.messages import (
    MEMBERSHIP,
    SEALER,
    AskAcks,
    Batch,
    Forget,
    NotMember,
    Ping,
    Pong,
    ReadRecord,
    RecordIs,
    check_keeper,
)
from unerring.correlation.topology import Topology
from unerring.model import BEFORE_ALL, Address, Connected, Deliver, Effects, Event, Persist, Send, SetTimer, Stamp


class _Position(msgspec.Struct, frozen=True, array_like=True):
    last: Stamp
    count: int


class Application:
    """Takes the streams it asked for, commits, delivers."""

    intake_part: type[Intake] = Intake

    def __init__(self, records: Mapping[str, bytes], name: str, topology: Topology, config: CorrelationConfig) -> None:
        self.name = name
        self.config = config
        self.intake = self.intake_part(name.rpartition("/")[0], topology, config)
        self.intake.incarnation = 1
        self._polled_us = NEVER
        self._oldest = dict.fromkeys(self.intake.streams, 0)
        """Number of the first event that is kept."""
        for stream in self.intake.streams:
            data = records.get(f"application/{stream}/position")
            if data is not None:
                position = msgspec.msgpack.decode(data, type=_Position)
                incoming = self.intake.streams[stream]
                incoming.last, incoming.count = position.last, position.count
                self.intake.consumed[stream] = position.count
                self._oldest[stream] = next((number for number, _ in numbered(records, stream)), position.count)

    def start(self, now: int) -> Effects:
        return [SetTimer("tick", now + self.config.tick_us), Send(MEMBERSHIP, ReadRecord(0))]

    def timer(self, name: str, now: int) -> Effects:
        effects: Effects = [SetTimer(name, now + self.config.tick_us)]
        poll_us = self.config.record_poll_us if self.intake.record.version else self.config.join_retry_us
        if now - self._polled_us >= poll_us:
            self._polled_us = now
            effects.append(Send(MEMBERSHIP, ReadRecord(self.intake.record.version)))
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
            case AskAcks():
                return [Send(sender, self.intake.ack(stream)) for stream in self.intake.streams]
            case Connected(peer):
                return self.intake.reconnected(peer)
            case Forget(stream, count) if sender == SEALER:
                return self._forget(stream, count)
            case NotMember():
                return [Send(MEMBERSHIP, ReadRecord(self.intake.record.version))]
            case Ping(sent_us):
                return [Send(sender, Pong(sent_us))]
            case Pong():
                self.intake.hear(sender, now)
                self.intake.pong(message, now)
        return []

    def _batch(self, sender: Address, batch: Batch, now: int) -> Effects:
        if batch.stream not in self.intake.streams:
            return []
        taken, effects = self.intake.take(sender, batch, now)
        if taken.verdict is Verdict.GAP:
            return effects
        if taken.events:
            incoming = self.intake.streams[batch.stream]
            self.intake.consumed[batch.stream] = incoming.count
            effects.append(self._commit(incoming, taken.events))
            effects += [Deliver(event) for event in taken.events]
        if batch.events:
            effects.append(Send(sender, self.intake.ack(batch.stream)))
        return effects

    def _forget(self, stream: str, count: int) -> Effects:
        first, self._oldest[stream] = self._oldest[stream], max(count, self._oldest[stream])
        return [Persist((), tuple(_key(stream, number) for number in range(first, count)))] if first < count else []

    def _commit(self, incoming: Incoming, events: tuple[Event, ...]) -> Persist:
        position = _Position(incoming.last, incoming.count)
        first = incoming.count - len(events)
        puts = [(f"application/{incoming.stream}/position", msgspec.msgpack.encode(position))]
        for at, event in enumerate(events):
            puts.append((_key(incoming.stream, first + at), msgspec.msgpack.encode(event)))
        return Persist(tuple(puts))


def position_of(records: Mapping[str, bytes], stream: str) -> int:
    """How many events of a stream an application has committed."""
    data = records.get(f"application/{stream}/position")
    return 0 if data is None else msgspec.msgpack.decode(data, type=_Position).count


def moved(records: Mapping[str, bytes], stream: str, sealed: Callable[[Stamp], int], sealed_us: int) -> Persist:
    """The records of an application whose stream has another beginning now. `sealed`: how many of its events up to a
    stamp are in the log, where everything up to `sealed_us` is; what comes after, the application keeps itself."""
    data = records.get(f"application/{stream}/position")
    kept = list(numbered(records, stream))
    deletes = tuple(_key(stream, number) for number, _ in kept)
    if data is None:
        return Persist((), deletes)
    last = msgspec.msgpack.decode(data, type=_Position).last
    left = [event for _, event in kept if event.stamp.time > sealed_us]
    first = sealed(last)
    position = _Position(last if first or left else BEFORE_ALL, first + len(left))
    puts = [(f"application/{stream}/position", msgspec.msgpack.encode(position))]
    puts += [(_key(stream, first + at), msgspec.msgpack.encode(event)) for at, event in enumerate(left)]
    return Persist(tuple(puts), deletes)


def numbered(records: Mapping[str, bytes], stream: str) -> Iterator[tuple[int, Event]]:
    """The events of a stream in an application's stable storage, in order, each with its number in the stream."""
    prefix = f"application/{stream}/event/"
    decoder = msgspec.msgpack.Decoder(Event)
    for key in sorted(records):
        if key.startswith(prefix):
            yield int(key.removeprefix(prefix)), decoder.decode(records[key])


def committed(records: Mapping[str, bytes], stream: str) -> list[Event]:
    """The events that an application has received, by its stable storage, in order."""
    return [event for _, event in numbered(records, stream)]


def _key(stream: str, number: int) -> str:
    return f"application/{stream}/event/{number:012d}"
