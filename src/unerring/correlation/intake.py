"""The receiving side: positions, acks, credit, and asking again (Figure 3, lines 7-12).

An ack means received. It is cumulative, carries the receiver's incarnation, and is repeated to all upstream replicas at
intervals, because nothing else would repeat a lost one. A stream that does not advance is asked for at *all* upstream
replicas, whether or not a leader seems alive: that alone gives liveness. But a pause is no loss, and costs nothing:

| the stream does not advance | what the receiver does |
|---|---|
| for `patience_us` | asks all upstream replicas whether they have more: who has none does not answer |
| and for as long again, and somebody had more | asks the leader to send it; or, if none answered, all who have it |
| and again, although the leader was asked | asks all who have it: they serve it for `lease_us` |
| and a leader serves it again | tells the others that this is enough |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from unerring.correlation.config import CorrelationConfig
from unerring.correlation.detector import Detector
from unerring.correlation.incoming import Incoming, Taken, Verdict
from unerring.correlation.messages import Ack, AskMore, Batch, Enough, HasMore, Ping, Pong, Resume, Switch
from unerring.correlation.record import EMPTY, Record, node_of
from unerring.correlation.shapes import Shapes
from unerring.correlation.shards import carried
from unerring.correlation.topology import Topology
from unerring.matching import Merge
from unerring.model import Address, Effects, Report, Send, Stamp

NEVER = -(1 << 62)


class _Asking:
    """One stream's patience: since when it is quiet, who said to have more of it, and who was asked for that."""

    __slots__ = ("gap_us", "having", "helpers", "leader_asked", "patience_us", "quiet_us")

    def __init__(self, now: int, patience_us: int) -> None:
        self.quiet_us = now
        """When it last advanced or was asked for."""
        self.patience_us = patience_us
        self.gap_us = NEVER
        self.having: dict[Address, HasMore] = {}
        self.leader_asked = False
        """Whether a leader was asked for what it has, and nothing has come since."""
        self.helpers: list[Address] = []
        """Who serves this receiver without leading, because it asked."""


class Intake:
    """All input streams of a replica or an application."""

    incoming_part: type[Incoming] = Incoming

    def __init__(self, node: str, topology: Topology, config: CorrelationConfig) -> None:
        self.config = config
        self.incarnation = 0
        self.record = EMPTY
        self.streams: dict[str, Incoming] = {}
        """By the name under which each comes: its stream's, or that of a part."""
        self.consumed: dict[str, int] = {}
        """Events processed; credit is so many more."""
        self.latency_us = 0
        self.switch: Switch | None = None
        """When the rules of the last upgrade take over, once that is known."""
        self.ended: dict[str, tuple[str, Stamp, int]] = {}
        """By stream: the node that went with the last upgrade, and where the stream stood then."""
        self._node = node
        self._makers: dict[str, list[str]] = {}
        """By stream: the node that it comes from, and the one that takes over."""
        self._upstream: dict[str, tuple[Address, ...]] = {}
        self._servers: dict[str, Address] = {}
        self._announced: dict[str, int] = {}
        self._asking: dict[str, _Asking] = {}
        self._repeated_us = NEVER
        self._pinged_us = NEVER
        self._heard = Detector(config.suspect_us_min, config.suspect_us_max)
        self.rearrange(topology, 0)

    # ---- where streams come from -------------------------------------------------------------------------------

    def rearrange(self, topology: Topology, now: int) -> None:
        """The nodes that there are now. A stream that was taken from one that has ended goes on where it was; from one
        that is not there any more, it begins at its successor's beginning."""
        begins = {stream: self.watermark(stream) for stream, makers in self._makers.items() if makers}
        if self.switch is not None and self.switch.number != topology.upgrade:
            self.switch, self.ended = None, {}
        self._topology = topology
        ranked = [schema.name for schema, _ in topology.inputs(self._node)]
        names = sorted(topology.node(self._node).inputs, key=lambda name: ranked.index(topology.stream_of(name)))
        for stream in names:
            if stream not in self.streams:
                self.streams[stream] = self.incoming_part(stream, shapes=Shapes(carried(topology, stream)))
                self.consumed[stream] = self._announced[stream] = 0
            gone = self.ended.get(stream, ("",))[0]
            makers = [maker for maker in topology.makers(stream) if maker != gone]
            if stream in begins and self._makers[stream][0] not in makers:
                self._begin_anew(stream, begins[stream])
            self._makers[stream] = makers
        for stream in [stream for stream in self.streams if stream not in names]:
            for known in (self.streams, self.consumed, self._announced, self._makers, self._upstream, self._asking):
                known.pop(stream, None)
        self._find_upstream(now)

    def go_on_with(self, stream: str, maker: str, ended: tuple[str, Stamp, int] | None) -> None:
        """By a snapshot, or a record on disk: the stream was taken from that node, and one had ended before it."""
        makers = self._makers[stream]
        if ended is not None:
            self.ended[stream] = ended
            makers[:] = [name for name in makers if name != ended[0]]
        while maker in makers and makers[0] != maker:
            del makers[0]
        self._upstream[stream] = tuple(self.record.of(makers[0])) if makers else ()

    def end(self, stream: str) -> None:
        """Nothing is to be taken under a name any more: by a record on disk, all of it was."""
        self._makers[stream], self._upstream[stream] = [], ()

    def makers(self, stream: str) -> tuple[str, ...]:
        """The node that a stream comes from now, and the one that takes over."""
        return tuple(self._makers[stream])

    def maker(self, stream: str) -> str:
        """The node that a stream comes from now; none, if it has ended."""
        makers = self._makers[stream]
        return makers[0] if makers else ""

    def watermark(self, stream: str) -> int:
        """Of a stream, whoever makes it: the old node's end is not the stream's."""
        watermark, makers = self.streams[stream].watermark, self._makers[stream]
        if self.switch is None or not makers or not self._topology.is_ending(self._topology.node(makers[0])):
            return watermark
        return min(watermark, self.switch.at_us)

    def go_over(self, stream: str, now: int) -> Effects:
        """A node that goes with the upgrade has sent all of a stream: its successor's events follow."""
        incoming, watermark = self.streams[stream], self.watermark(stream)
        if watermark == incoming.watermark:
            return []
        self.ended[stream] = self._makers[stream].pop(0), incoming.last, incoming.count
        self._begin_anew(stream, watermark)
        self._find_upstream(now)
        return self._begin(stream, now)

    def _begin_anew(self, stream: str, watermark: int) -> None:
        """With the first event of another node."""
        incoming = self.streams[stream]
        self.consumed[stream] -= incoming.count  # what waits of the old node's uses up credit for the new one's
        self.streams[stream] = type(incoming)(stream, watermark=watermark, shapes=incoming.shapes)
        self._servers.pop(stream, None)

    @property
    def passed(self) -> bool:
        """Whether nothing is needed any more of nodes that go with the upgrade."""
        ending = self._topology.is_ending
        return not any(makers and ending(self._topology.node(makers[0])) for makers in self._makers.values())

    def _find_upstream(self, now: int) -> None:
        for stream, makers in self._makers.items():
            self._upstream[stream] = tuple(self.record.of(makers[0])) if makers else ()
            for name in self._upstream[stream]:
                self._heard.expect(name, now)

    def read(self, record: Record, now: int) -> None:
        """A newer record: where streams come from."""
        if record.version <= self.record.version:
            return
        self.record = record
        self._find_upstream(now)

    def upstream(self) -> list[Address]:
        """All upstream replicas, once each, in a fixed order: also those that a stream came from, or will come from."""
        near = dict.fromkeys(name for names in self._upstream.values() for name in names)
        others = (name for node in self._topology.upstream(self._node) for name in self.record.of(node))
        return list({**near, **dict.fromkeys(others)})

    def is_after(self, stream: str, name: Address, mark: Stamp) -> bool:
        """Whether what is here of a stream goes as far as the mark of an upstream replica."""
        return node_of(name) not in self._makers[stream] or self.streams[stream].last >= mark

    # ---- events ------------------------------------------------------------------------------------------------

    def take(self, sender: Address, batch: Batch, now: int) -> tuple[Taken, Effects]:
        """Judge a batch. The caller acknowledges what was accepted once it has kept it."""
        if node_of(sender) != self.maker(batch.stream):
            return Taken(Verdict.ELSEWHERE, (), False), self.answer(sender, batch.stream)
        taken = self.streams[batch.stream].take(batch)
        asking = self._asking.setdefault(batch.stream, _Asking(now, self.config.patience_us))
        if taken.verdict is Verdict.GAP:
            if now - asking.gap_us < self.config.gap_pause_us:
                return taken, []
            asking.gap_us = now
            return taken, [Report("correlation.gap"), *self.resume(batch.stream, (sender,))]
        self._servers[batch.stream] = sender
        if not taken.advanced:
            return taken, []
        asking.quiet_us = now
        asking.patience_us = self.config.patience_us
        asking.having.clear()
        asking.leader_asked = False
        if not asking.helpers or sender in asking.helpers:
            return taken, []
        helpers, asking.helpers = asking.helpers, []
        return taken, [Send(name, Enough(batch.stream)) for name in helpers]

    def consume(self, merge: Merge) -> None:
        """All but what still waits there was processed."""
        for stream, incoming in self.streams.items():
            self.consumed[stream] = incoming.count - (merge.size(stream) if stream in merge.names else 0)

    def forget(self, stream: str, count: int) -> int:
        """Events up to this number are kept elsewhere; how many of them were held here."""
        held = max(0, min(count, self.streams[stream].count) - self.consumed[stream])
        self.consumed[stream] += held
        return held

    def credit(self, stream: str) -> int:
        """An absolute number, so that any leader understands it."""
        return max(0, self.consumed[stream] + self.config.window_events)

    def ack(self, stream: str) -> Ack:
        """Line 8."""
        incoming = self.streams[stream]
        self._announced[stream] = self.credit(stream)
        return Ack(stream, incoming.last, incoming.count, self.incarnation, self._announced[stream])

    def answer(self, sender: Address, stream: str) -> Effects:
        """The cumulative ack for whoever sent something. One that has ended has its last one."""
        if node_of(sender) == self.maker(stream):
            return [Send(sender, self.ack(stream))]
        ended = self.ended.get(stream)
        if ended is None or node_of(sender) != ended[0]:
            return []
        _, last, count = ended
        return [Send(sender, Ack(stream, last, count, self.incarnation, count + self.config.window_events))]

    def answers(self, sender: Address) -> Effects:
        return [effect for stream in self.streams for effect in self.answer(sender, stream)]

    def resume(self, stream: str, names: Iterable[Address]) -> Effects:
        """Send me what follows."""
        incoming = self.streams[stream]
        self._announced[stream] = self.credit(stream)
        credit = self._announced[stream]
        message = Resume(stream, incoming.last, incoming.count, self.incarnation, credit, incoming.watermark)
        return [Send(name, message) for name in names]

    def ask_all(self, stream: str) -> Effects:
        """For a stream of which nothing was taken so far, though it was perhaps sent."""
        return self.resume(stream, self._upstream[stream])

    def begin(self, now: int) -> Effects:
        """At the start, and after a snapshot: tell all upstream what is here; their leaders serve what follows.

        This is not a request: every replica that gets a request serves, leader or not, and all but one in vain.
        """
        return [effect for stream in self._upstream for effect in self._begin(stream, now)]

    def _begin(self, stream: str, now: int) -> Effects:
        self._asking[stream] = _Asking(now, self.config.patience_us)
        ack = self.ack(stream)
        return [Send(name, ack) for name in self._upstream[stream]]

    def announce(self) -> Effects:
        """Credit that grew without a new event of its stream: tell whoever served it last."""
        effects: Effects = []
        for stream in self.streams:
            if self.credit(stream) - self._announced[stream] >= max(1, self.config.window_events // 4):
                server = self._servers.get(stream)
                names: Iterable[Address] = self._upstream[stream] if server is None else (server,)
                ack = self.ack(stream)
                effects += [Send(name, ack) for name in names]
        return effects

    def reconnected(self, name: Address) -> Effects:
        """Acks and credit are repeated; what was on the way is asked for."""
        effects: Effects = []
        for stream, upstream in self._upstream.items():
            if name in upstream:
                effects.append(Send(name, self.ack(stream)))
        return effects

    # ---- regularly ---------------------------------------------------------------------------------------------

    def tick(self, now: int) -> Effects:
        """Ask for what does not move; repeat acks; measure."""
        effects: Effects = []
        for stream in self.streams:
            effects += self._ask(stream, now)
        if now - self._repeated_us >= self.config.ack_repeat_us:
            self._repeated_us = now
            for stream in self.streams:
                ack = self.ack(stream)
                effects += [Send(name, ack) for name in self._upstream[stream]]
        if now - self._pinged_us >= self.config.ping_us:
            self._pinged_us = now
            for name in self.upstream():
                self._heard.expect(name, now)
                effects.append(Send(name, Ping(now)))
        return effects

    def _ask(self, stream: str, now: int) -> Effects:
        """The next question about a stream that does not advance, if it is time for one."""
        asking = self._asking.setdefault(stream, _Asking(now, self.config.patience_us))
        quiet_us = now - asking.quiet_us
        if asking.having and quiet_us >= self.config.patience_us:
            having = {name: more for name, more in asking.having.items() if self._lacks(stream, more)}
            asking.having.clear()
            if having:
                return self._ask_for_it(stream, asking, having, now)
        if quiet_us < asking.patience_us:
            return []
        asking.quiet_us = now
        asking.patience_us = min(2 * asking.patience_us, self.config.patience_us_max)
        incoming = self.streams[stream]
        question = AskMore(stream, incoming.count, self.credit(stream), incoming.watermark)
        return [Send(name, question) for name in self._upstream[stream]]

    def _ask_for_it(self, stream: str, asking: _Asking, having: Mapping[Address, HasMore], now: int) -> Effects:
        """Somebody has had more for a while, and it has not come."""
        asking.quiet_us = now
        asking.patience_us = self.config.patience_us
        leaders = [name for name, more in having.items() if more.leads]
        whom = leaders if leaders and not asking.leader_asked else list(having)
        asking.leader_asked = bool(leaders)
        asking.helpers = [name for name in whom if name not in leaders]
        return [Report("correlation.asked"), *self.resume(stream, whom)]

    def _lacks(self, stream: str, more: HasMore) -> bool:
        incoming = self.streams[stream]
        return more.count > incoming.count or more.watermark > incoming.watermark

    def has_more(self, sender: Address, more: HasMore) -> Effects:
        """An answer. It is used after a while, if the stream does not advance without."""
        asking = self._asking.get(more.stream)
        if asking is not None and sender in self._upstream[more.stream] and self._lacks(more.stream, more):
            asking.having[sender] = more
        return []

    def hear(self, sender: Address, now: int) -> None:
        """Any word from an upstream replica."""
        self._heard.hear(sender, now)

    def pong(self, pong: Pong, now: int) -> None:
        """The election's criterion. An answer to an earlier process, whose clock was another one, says nothing."""
        took_us = now - pong.sent_us
        if 0 <= took_us <= self.config.suspect_us_max:
            self.latency_us += (took_us - self.latency_us) // 4

    def deaf(self, now: int) -> bool:
        """Whether some upstream node seems silent altogether."""
        return any(
            names and all(self._heard.suspects(name, now) for name in names) for names in self._upstream.values()
        )
