"""The upstream side: queues, acks, pruning, credit, registrations (Figure 3, lines 19-50).

A receiver here is one incarnation of one replica. Acks, credit and what was sent are kept for that incarnation alone,
so that a replica that comes back without its memory is never taken for the one that had received something.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from unerring.correlation.config import CorrelationConfig
from unerring.correlation.messages import (
    MEMBERSHIP,
    Ack,
    AskAcks,
    AskMore,
    Batch,
    Enough,
    HasMore,
    NotMember,
    Pruned,
    Receipt,
    Register,
    Registered,
    Resume,
    WaitsFor,
)
from unerring.correlation.queue import Queue
from unerring.correlation.record import EMPTY, Record, Standing, node_of
from unerring.correlation.shards import Cuts, applications_of, carried
from unerring.correlation.switching import Span
from unerring.correlation.topology import Topology
from unerring.matching import Piece, first_after
from unerring.model import TIME_MIN, Address, Deliver, Effects, ProtocolError, Send, Stamp

Receiver = tuple[str, int]
"""A replica's name and its incarnation."""

NEVER: Final = -(1 << 62)
ASK: Final = 1 << 62
AHEAD_MAX: Final = 64
"""How many incarnations or versions of the record a receiver may be ahead of what was read here. Nobody is believed to
be further: what it is pinned for would never be superseded."""


class StreamPosition(msgspec.Struct, frozen=True):
    """A machine's report to whoever feeds it: it has the stream up to here, and room for what follows."""

    stream: str
    last: Stamp
    count: int
    watermark: int


class Held:
    """The known position of one receiver of one stream."""

    __slots__ = (
        "ask_until_us",
        "count",
        "credit",
        "flights",
        "last",
        "sent",
        "served_until_us",
        "stuck",
        "watermark_at_us",
        "watermark_sent",
    )

    def __init__(self, last: Stamp, count: int, credit: int) -> None:
        self.last = last
        self.count = count
        self.credit = credit
        self.sent = count
        """Number up to which this replica has sent to it."""
        self.watermark_sent = TIME_MIN
        self.watermark_at_us = NEVER
        self.served_until_us = NEVER
        """A receiver that asked is served until then, leader or not."""
        self.stuck = False
        """It has no credit for the next event, and knows the last watermark before that."""
        self.flights: list[int] = []
        """Batches on the way: the number that each ends at."""
        self.ask_until_us = NEVER
        """A new leader waits so long for its word what it has; ASK: it is still to be asked."""

    def again(self) -> None:
        """Send again what is not acknowledged, and the watermark: both may be lost."""
        self.sent = self.count
        self.watermark_sent = TIME_MIN
        self.watermark_at_us = NEVER
        self.stuck = False
        self.flights.clear()

    def learn(self, last: Stamp, count: int, credit: int) -> None:
        """Cumulative: late, repeated and reordered acks change nothing."""
        if credit > self.credit:
            self.credit = credit
            self.stuck = False
        if last <= self.last:
            return
        self.stuck = False
        self.last, self.count = last, count
        self.sent = max(self.sent, count)
        if self.flights:
            self.flights = [end for end in self.flights if end > count]


class Outgoing:
    """All outgoing streams of a source or a replica."""

    queue_part: type[Queue] = Queue
    span_part: type[Span] = Span

    def __init__(self, name: str, topology: Topology, streams: Sequence[str], config: CorrelationConfig) -> None:
        self.name = name
        self.incarnation = 0
        self.config = config
        self.queues = {stream: self.queue_part(stream) for stream in streams}
        self.schemas = {stream: carried(topology, stream) for stream in streams}
        self.cuts = {stream: Cuts(topology, stream, streams) for stream in streams}
        parts = [name for cuts in self.cuts.values() for name in cuts.names]
        self.own = tuple(stream for stream in streams if stream not in parts)
        """The streams that this node makes, by the names of their queues: the others are cut out of them."""
        self._named = {topology.stream_of(stream): stream for stream in self.own}
        self.record = EMPTY
        self.leading = False
        self.registered: dict[str, tuple[int, int]] = {}
        """By replica: the incarnation that registered, and the version it stood in the record at."""
        self.version_min = 0
        """Nothing is pruned by an older record: one that does not know of somebody who registered here may come late to
        a replica that was started again, and has forgotten who did."""
        self.transmissions = 0
        """Events sent, once for each receiver."""
        self.span = self.span_part(topology, topology.node(node_of(name)))
        self._takers = {stream: topology.takers(stream) for stream in streams}
        self._numbering = {stream: applications_of(topology, stream) for stream in streams}
        """By stream: who has it in the log only when all shards are together."""
        self._held: dict[str, dict[Receiver, Held]] = {stream: {} for stream in streams}
        self._receivers: dict[str, list[Receiver]] = {stream: [] for stream in streams}
        self._taken: dict[str, tuple[Stamp, int]] = {}
        """What was last acknowledged to whoever feeds this node."""

    # ---- making events -----------------------------------------------------------------------------------------

    def take(self, outputs: Mapping[str, Piece], through: int) -> None:
        """What an engine made of all up to a time."""
        for stream, events in outputs.items():
            self.append(stream, events)
        self.advance(through)

    def append(self, stream: str, events: Piece) -> None:
        """Lines 19-22: every replica queues; and what shards take of the stream, part by part."""
        name, events = self._named[stream], self.span.counted(events)
        self.queues[name].append(events)
        for part, piece in self.cuts[name].cut(events):
            queue = self.queues[part]
            # A source that is handed its stream again may have pruned more of one part than of another.
            queue.append(piece[first_after(piece, queue.last) :])

    def advance(self, watermark: int, stream: str | None = None) -> None:
        """Nothing at or before this time comes any more, of one stream, or of all because the node has processed all
        up to it: watermarks go to all parts."""
        if stream is None:
            watermark = self.span.watermark(watermark)
        for name in self.queues if stream is None else (stream, *self.cuts[stream].names):
            queue = self.queues[name]
            queue.advance(watermark)

    @property
    def full(self) -> bool:
        """Whether processing must wait: some receiver does not keep up."""
        return self._has_filled(1)

    def _has_filled(self, part: int) -> bool:
        """Whether some stream's queue is full, or half of it with 2."""
        for stream, queue in self.queues.items():
            if part * (queue.count - queue.mark_count) >= self._events_max(stream):
                return True
        return False

    def _events_max(self, stream: str) -> int:
        """A stream that is cut has what its parts have."""
        return self.config.outgoing_events_max * self.cuts[stream].shards

    def waits_for(self) -> tuple[str, ...]:
        """The receivers on whose account a queue is full."""
        names: dict[str, None] = {}
        for full, queue in self.queues.items():
            if len(queue) < self._events_max(full):
                continue
            for stream in (full, *self.cuts[full].names):
                if not len(self.queues[stream]):
                    continue
                for receiver in self._receivers[stream]:
                    held = self._held[stream].get(receiver)
                    if held is None or held.count <= self.queues[stream].mark_count:
                        names[receiver[0]] = None
        return tuple(names)

    def ask_acks(self) -> Effects:
        """Ask receivers what they have; and where a queue is full, the keeper whether they are still there."""
        effects: Effects = [Send(name, AskAcks()) for name in self.receivers()]
        late = self.waits_for()
        return [*effects, Send(MEMBERSHIP, WaitsFor(late))] if late else effects

    def taken(self, again: bool = False) -> Effects:
        """Tell whoever feeds this node how far its streams are, once for each step; not while they are full."""
        if again:
            self._taken.clear()
        if self.full:
            return []
        effects: Effects = []
        for stream in self.own:
            queue = self.queues[stream]
            if self._taken.get(stream) != (queue.last, queue.watermark):
                self._taken[stream] = queue.last, queue.watermark
                effects.append(Deliver(StreamPosition(stream, queue.last, queue.count, queue.watermark)))
        return effects

    @property
    def filling(self) -> bool:
        """Whether it is time to ask receivers what they have, rather than wait for the peers' word."""
        return self._has_filled(2)

    # ---- sending -----------------------------------------------------------------------------------------------

    def flush(self, now: int) -> Effects:
        """Lines 23-25: only leaders send, and whoever was asked by a receiver, to that receiver."""
        effects: Effects = []
        asked: set[Address] = set()
        for stream, queue in self.queues.items():
            held_by = self._held[stream]
            batches: dict[tuple[int, int], Batch] = {}
            for receiver in self._receivers[stream]:
                held = held_by.get(receiver)
                if held is None or (held.sent == queue.count and held.watermark_sent >= queue.watermark):
                    continue
                if held.ask_until_us > now:
                    self._ask(receiver[0], held, asked, now, effects)
                elif not held.stuck and (self.leading or held.served_until_us > now):
                    self._serve(queue, receiver[0], held, batches, now, effects)
        return effects

    def _ask(self, to: Address, held: Held, asked: set[Address], now: int, effects: Effects) -> None:
        """Once for all streams of a receiver; its acks are the answer, and without one it is served all the same."""
        if held.ask_until_us == ASK:
            held.ask_until_us = now + self.config.ask_us
            if to not in asked:
                asked.add(to)
                effects.append(Send(to, AskAcks()))

    def _serve(
        self,
        queue: Queue,
        to: Address,
        held: Held,
        batches: dict[tuple[int, int], Batch],
        now: int,
        effects: Effects,
    ) -> None:
        if not queue.mark_count <= held.sent <= queue.count:
            return  # It has more than this replica has made so far, or lacks what is pruned here: that Resume tells.
        end = queue.allowed(held.sent, held.credit)
        start = held.sent
        watermark = queue.watermark_after(end)
        paused = now - held.watermark_at_us < self.config.watermark_pause_us
        if start == end and (paused or watermark <= held.watermark_sent):
            held.stuck = end < queue.count and watermark <= held.watermark_sent and watermark < queue.watermark
            return
        if 0 < end - start < self.config.batch_events_max and len(held.flights) >= self.config.flights_max:
            return  # The receiver is busy: what comes meanwhile goes out as one batch, with its next ack.
        while True:
            stop = queue.stop(start, end, self.config.batch_events_max, self.config.batch_bytes_max)
            batch = batches.get((start, stop))
            if batch is None:
                batch = queue.batch(start, stop)
                if self.span.switch is not None:
                    batch = msgspec.structs.replace(batch, switch=self.span.switch)
                batches[start, stop] = batch
            effects.append(Send(to, batch))
            self.transmissions += stop - start
            if stop > start:
                held.flights.append(stop)
            start = stop
            if start == end:
                break
        held.sent = end
        held.watermark_sent = watermark
        held.watermark_at_us = now

    @property
    def watermark_waits(self) -> bool:
        """Whether a watermark was held back because another had just gone out."""
        return self.leading and any(
            held.watermark_sent < queue.watermark and held.sent == queue.count
            for stream, queue in self.queues.items()
            for held in self._held[stream].values()
        )

    def lead(self) -> None:
        """A new leader resends what its queue holds, and repeats its watermark; asking first, only what is lacking."""
        self.leading = True
        for stream in self.queues:
            for held in self._held[stream].values():
                held.again()
                held.ask_until_us = ASK if self.config.ask_us else NEVER

    def reconnected(self, name: str) -> None:
        """Send it again everything that is not acknowledged, and the watermark: what was on the way may be lost."""
        for stream in self.queues:
            for (receiver, _), held in self._held[stream].items():
                if receiver == name:
                    held.again()

    # ---- acks --------------------------------------------------------------------------------------------------

    def ack(self, sender: str, ack: Ack | Resume) -> NotMember | None:
        """Lines 28-35. NotMember: the record read last does not know that incarnation.

        Whoever is in the record is heard, whatever somebody has registered in its name.
        """
        member = self.record.members.get(sender)
        registered = self.registered.get(sender, (0, 0))
        known = member.incarnation if member is not None and member.standing is not Standing.GONE else 0
        gone = member.incarnation if member is not None else 0
        if (
            ack.incarnation < max(known, gone)
            or (ack.incarnation < registered[0] and ack.incarnation != known)
            or (ack.incarnation == gone and not known and registered[0] != ack.incarnation)
            or ack.incarnation > max(gone, registered[0], 1) + AHEAD_MAX
        ):
            return NotMember(self.record.version)
        if ack.stream in self.queues:
            self.learn(Receipt(ack.stream, sender, ack.incarnation, ack.last, ack.count, ack.credit))
            self._held[ack.stream][sender, ack.incarnation].ask_until_us = NEVER
        return None

    def learn(self, receipt: Receipt) -> None:
        """An ack, direct or passed on by a peer. ProtocolError: it names an event that this stream does not have."""
        held_by = self._held.get(receipt.stream)
        if held_by is None:
            return
        if not self.queues[receipt.stream].follows(receipt.last, receipt.count):
            raise ProtocolError(
                f"stream {receipt.stream}: {receipt.receiver} has {receipt.last} as number {receipt.count}, and this "
                "replica another event"
            )
        member = self.record.members.get(receipt.receiver)
        if member is not None and receipt.incarnation < member.incarnation:
            return
        held = held_by.get((receipt.receiver, receipt.incarnation))
        if held is None:
            held_by[receipt.receiver, receipt.incarnation] = Held(receipt.last, receipt.count, receipt.credit)
        else:
            held.learn(receipt.last, receipt.count, receipt.credit)

    def more(self, sender: str, ask: AskMore) -> Effects:
        """Say so if there is more here than a receiver has. It does not begin to serve: what the receiver lacks may be
        on its way, or the leader's next word."""
        queue = self.queues.get(ask.stream)
        if queue is None or not queue.has_more(ask.count, ask.credit, ask.watermark):
            return []
        return [Send(sender, HasMore(ask.stream, queue.count, queue.watermark, self.leading))]

    def resume(self, sender: str, resume: Resume, now: int) -> Effects:
        """A receiver misses something that this replica has had for a while: it is served, for a while."""
        stranger = self.ack(sender, resume)
        if stranger is not None:
            return [Send(sender, stranger)]
        queue = self.queues.get(resume.stream)
        if queue is None:
            return []
        if resume.count < queue.mark_count:
            return [Send(sender, Pruned(resume.stream, queue.mark, self.incarnation))]
        held = self._held[resume.stream][sender, resume.incarnation]
        held.again()
        if queue.has_more(resume.count, resume.credit, resume.watermark):
            held.served_until_us = now + self.config.lease_us
        return []

    def enough(self, sender: str, enough: Enough) -> Effects:
        """A leader serves that receiver again."""
        for (name, _), held in self._held.get(enough.stream, {}).items():
            if name == sender:
                held.served_until_us = NEVER
        return []

    def prune(self) -> None:
        """Drop what every receiver that this replica knows of, or that registered, has acknowledged."""
        for stream in reversed(self.queues):  # parts stand behind their stream, which is kept while one of them is
            queue = self.queues[stream]
            if not len(queue) or self.record.version < max(1, self.version_min):
                continue
            held_by = self._held[stream]
            floor: Stamp | None = queue.last if not self._takers[stream] else None
            for receiver in self._receivers[stream]:
                held = held_by.get(receiver)
                if held is None:
                    floor = None
                    break
                has = held.last
                if node_of(receiver[0]) in self._numbering[stream]:
                    # Else what comes with an upgrade would wait for the log to get where a quicker shard has pruned.
                    has = queue.stamp(min(held.count, held.credit - self.config.window_events))
                floor = has if floor is None else min(floor, has)
            if floor is not None:
                parts = [self.queues[part].floor for part in self.cuts[stream].names]
                queue.prune(min([floor, *(kept for kept in parts if kept is not None)]))

    def receipts(self) -> tuple[Receipt, ...]:
        """Lines 40-45: all acks held, per receiver, for the peers: each prunes by its own membership.

        Who lied about an event that was yet to be made is found out when it is: that ack does not count any more.
        """
        for stream, held_by in self._held.items():
            follows = self.queues[stream].follows
            for receiver in [r for r, held in held_by.items() if not follows(held.last, held.count)]:
                del held_by[receiver]
        return tuple(
            Receipt(stream, name, incarnation, held.last, held.count, held.credit)
            for stream, held_by in self._held.items()
            for (name, incarnation), held in held_by.items()
        )

    # ---- receivers ---------------------------------------------------------------------------------------------

    def rearrange(self, topology: Topology) -> None:
        """The nodes that there are now: whom to serve, and which times count. A part that nobody takes goes."""
        spec = topology.node(node_of(self.name))
        for gone in [stream for stream in self.queues if stream not in spec.outputs]:
            for known in (self.queues, self.schemas, self.cuts, self._held, self._receivers):
                known.pop(gone)
        self.cuts = {stream: Cuts(topology, stream, spec.outputs) for stream in self.queues}
        span = self.span_part(topology, spec)
        span.learn(self.span.switch)
        self.span = span
        self._takers = {stream: topology.takers(stream) for stream in self.queues}
        self._numbering = {stream: applications_of(topology, stream) for stream in self.queues}
        self._arrange()

    def read(self, record: Record) -> None:
        """A newer record: whom to serve, and what to keep for whom."""
        if record.version <= self.record.version:
            return
        self.record = record
        self._arrange()

    def register(self, sender: str, register: Register) -> Registered | NotMember | None:
        """A joiner's pin holds from now on, whatever this replica has read so far; older acks of it are void. None: its
        node is not known here yet; it asks again."""
        node = node_of(sender)
        if all(node not in takers for takers in self._takers.values()):
            return None
        member = self.record.members.get(sender)
        if member is not None and (
            register.incarnation < member.incarnation
            or (register.incarnation == member.incarnation and member.standing is Standing.GONE)
        ):
            return NotMember(self.record.version)
        latest = member.incarnation if member is not None else 1
        if register.version > self.record.version + AHEAD_MAX or register.incarnation > latest + AHEAD_MAX:
            return NotMember(self.record.version)  # it asks again, and by then the record has been read
        if register.incarnation < self.registered.get(sender, (0, 0))[0]:
            if not self.record.holds(sender, register.incarnation):
                return NotMember(self.record.version)
        else:
            self.registered[sender] = (register.incarnation, register.version)
            self.version_min = max(self.version_min, register.version)
            self._arrange()
        taken = [queue for stream, queue in self.queues.items() if node in self._takers[stream]]
        marks = tuple((queue.stream, queue.mark) for queue in taken)
        return Registered(self.incarnation, marks, tuple(queue.mark_count for queue in taken))

    def adopt(self, registered: Iterable[tuple[str, int, int]]) -> None:
        """Registrations that a snapshot brought."""
        for name, incarnation, version in registered:
            if incarnation > self.registered.get(name, (0, 0))[0]:
                self.registered[name] = (incarnation, version)
        self._arrange()

    def _arrange(self) -> None:
        """Pinned and served: whoever is in the record, and whoever registered at a version not yet read."""
        for name, (_, version) in list(self.registered.items()):
            if version <= self.record.version:
                del self.registered[name]
        for stream, takers in self._takers.items():
            incarnations: dict[str, int] = {}
            for taker in takers:
                for name, member in self.record.of(taker).items():
                    incarnations[name] = member.incarnation
            pins = list(incarnations.items())
            for name, (incarnation, _) in self.registered.items():
                if node_of(name) in takers and incarnations.get(name) != incarnation:
                    pins.append((name, incarnation))
            self._receivers[stream] = pins
            held_by = self._held[stream]
            for receiver in list(held_by):
                latest = self.record.members.get(receiver[0])
                if latest is not None and receiver[1] < latest.incarnation and receiver not in pins:
                    del held_by[receiver]

    def receivers(self) -> list[Address]:
        """All of them, once each, in a fixed order."""
        return list(dict.fromkeys(name for pins in self._receivers.values() for name, _ in pins))
