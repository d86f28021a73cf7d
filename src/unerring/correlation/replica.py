"""One replica of a correlation node: Figure 3 of the correlation paper, as a machine.

Safety comes from determinism and stamps alone. All replicas of a node take the same streams, merge them in the same
order, and make the same outputs with the same stamps; only leaders send, and two leaders at once are harmless.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from unerring.correlation import snapshot
from unerring.correlation.config import CorrelationConfig
from unerring.correlation.course import Course
from unerring.correlation.dead_links import DeadLinks
from unerring.correlation.election import DEAF_US, Election
from unerring.correlation.engine import Engine
from unerring.correlation.entering import Entering, Phase
from unerring.correlation.handed import Handed
from unerring.correlation.incoming import Verdict
from unerring.correlation.intake import NEVER, Intake
from unerring.correlation.join import Join
from unerring.correlation.journal import Journal
from unerring.correlation.messages import (
    ENGINE,
    MEMBERSHIP,
    OPERATOR,
    SEALER,
    Ack,
    AskAcks,
    AskConfirmation,
    AskMore,
    AskSnapshot,
    Batch,
    Candidate,
    Confirmation,
    Elected,
    Enough,
    Forget,
    Gossip,
    HasMore,
    LeaderDead,
    NotMember,
    Ping,
    Pong,
    Produced,
    Pruned,
    ReadRecord,
    RecordIs,
    Register,
    Registered,
    Resume,
    SnapshotPart,
    Switch,
    Vote,
    check_keeper,
)
from unerring.correlation.outgoing import Outgoing
from unerring.correlation.record import EMPTY, Record, Standing, node_of
from unerring.correlation.switching import FromLog, Rearrange, is_ahead
from unerring.correlation.topology import Topology
from unerring.matching import Merge
from unerring.model import (
    Address,
    Connected,
    Deliver,
    Disconnected,
    Effects,
    Entropy,
    ProtocolError,
    Report,
    Send,
    SetTimer,
    Stop,
)

TICK = "tick"
FLUSH = "flush"
PROCESS = "process"


class Replica:
    """One of the f+1 copies of a node. `engine` makes a fresh engine; None: one that works on its own time."""

    intake_part: type[Intake] = Intake
    outgoing_part: type[Outgoing] = Outgoing
    merge_part: type[Merge] = Merge
    course_part: type[Course] = Course
    join_part: type[Join] = Join
    links_part: type[DeadLinks] = DeadLinks

    def __init__(
        self,
        name: str,
        topology: Topology,
        config: CorrelationConfig,
        engine: Callable[[], Engine] | None,
        entropy: Entropy,
        records: Mapping[str, bytes] | None = None,
    ) -> None:
        """`records`, given: durable mode, from what stable storage holds; None: memory only."""
        self.name = name
        self.node = node_of(name)
        self.topology = topology
        self.config = config
        self.phase = Phase.ENTERING
        self.incarnation = 0
        self.record = EMPTY
        self.election = Election(name, config)
        self.links = self.links_part(config)
        self._make_engine = engine
        self._journal = None if records is None else Journal(records, config.durable_snapshot_events)
        self._entering = Entering(name, topology, entropy, self._journal, config.join_retry_us)
        self._join: Join | None = None
        self._gossiped_us = NEVER
        self._polled_us = NEVER
        self._asked_acks_us = NEVER
        self._flush_set = False
        self._process_set = False
        self._processed_us = NEVER
        self._begin_empty()
        if self._journal is not None:
            self._recover(self._journal)

    def _begin_empty(self) -> None:
        spec = self.topology.node(self.node)
        self.intake = self.intake_part(self.node, self.topology, self.config)
        self.course = self.course_part(self.node, self.topology)
        self.merge = self.course.merge(self.merge_part)
        self.outgoing = self.outgoing_part(self.name, self.topology, spec.outputs, self.config)
        self.engine = None if self._make_engine is None else self._make_engine()
        self.handed = Handed(self.name, {stream: self.outgoing.schemas[stream] for stream in self.outgoing.own})

    # ---- the machine -------------------------------------------------------------------------------------------

    def start(self, now: int) -> Effects:
        return [SetTimer(TICK, now + self.config.tick_us), *self._entering.begin(now)]

    def timer(self, name: str, now: int) -> Effects:
        if name == FLUSH:
            self._flush_set = False
            return self._flush(now)
        if name == PROCESS:
            self._process_set = False
            return self._process(now) + self._flush(now) if self.holding else []
        return [SetTimer(TICK, now + self.config.tick_us), *self._tick(now)]

    def handle(self, sender: Address, message: Any, now: int) -> Effects:
        """ProtocolError: what the sender cannot mean; nothing of it was believed."""
        if self.phase is Phase.ENTERING and type(message) is not Rearrange:
            check_keeper(sender, message)
            return self._while_entering(message, now)
        self.links.hear(sender, now)
        if type(message) is Batch:
            return self._batch(sender, message, now) if self.holding else []
        if type(message) is Ack:
            return self._ack(sender, message, now) if self.holding else []
        check_keeper(sender, message)
        on = _ON.get(type(message))
        if on is None or (not self.holding and type(message) in _NEEDS_STATE):
            return []
        return on(self, sender, message, now)

    @property
    def holding(self) -> bool:
        """Whether there is a state to work on."""
        return self.phase is Phase.MEMBER or (self._join is not None and self._join.holding)

    # ---- events (lines 7-27) -----------------------------------------------------------------------------------

    def _batch(self, sender: Address, batch: Batch, now: int) -> Effects:
        """Lines 7-18. The ack leaves after the event is kept: in durable mode, on disk."""
        known = batch.stream in self.intake.streams and not self.course.waits(batch.stream)
        if not known or is_ahead(batch.switch, self.topology):
            return []
        self.intake.hear(sender, now)
        self._learn(batch.switch)
        taken, effects = self.intake.take(sender, batch, now)
        if taken.verdict >= Verdict.GAP:
            return effects
        if taken.verdict is Verdict.DUPLICATE:
            return [Send(sender, self.intake.ack(batch.stream))] if len(batch.events) else []
        if self._journal is not None:
            effects += self._journal.keep(batch, len(taken.events))
        self.course.push(batch.stream, taken.events, self.merge, self.intake)
        effects += self._process_soon(now)
        if len(taken.events):
            effects.append(Send(sender, self.intake.ack(batch.stream)))
        maker = self.intake.maker(batch.stream)
        effects += self.intake.go_over(batch.stream, now)
        effects += self._flush(now)
        # Before anybody is told that the old node may go: without it nobody could read what its numbers mean.
        if self._journal is not None and (self._journal.due or self.intake.maker(batch.stream) != maker):
            effects += self._journal.replace(self.incarnation, self._snapshot())
        return effects

    def _learn(self, switch: Switch | None) -> None:
        """The time at which the rules of an upgrade take over, before anything after it is processed."""
        if switch is not None and self.outgoing.span.switch is None:
            self.outgoing.span.learn(switch)
            self.intake.switch = self.outgoing.span.switch
            self.outgoing.advance(self.merge.through)

    def _process_soon(self, now: int) -> Effects:
        """Process at once after a pause; under load together with what comes meanwhile: that costs an engine little."""
        if now - self._processed_us >= self.config.process_pause_us:
            return self._process(now)
        return self._process_later()

    def _process_later(self) -> Effects:
        if self._process_set:
            return []
        self._process_set = True
        return [SetTimer(PROCESS, self._processed_us + self.config.process_pause_us)]

    def _process(self, now: int) -> Effects:
        """Lines 13-22, for whole times that are complete, unless some receiver does not keep up. Of many rows some wait
        for the next step: an engine may be slow, and the process must not be deaf meanwhile."""
        if self.engine is None or self.outgoing.full:
            return self.outgoing.taken() + self._go_over()  # nothing more while it is full
        effects: Effects = []
        before = self.merge.through
        rows, through = self.merge.release(self.config.process_events_max)
        if through == before:
            return self._go_over()
        self._processed_us = now
        self.intake.consume(self.merge)
        fed = self.engine.feed(rows, through)
        self.outgoing.take(fed.outputs, through)
        for quarantined in fed.quarantined:
            effects += [Report("correlation.quarantined", quarantined.reason), Deliver(quarantined)]
        if through < self.merge.complete:
            effects += self._process_later()
        return effects + self.intake.announce() + self._go_over()

    def _go_over(self) -> Effects:
        """Streams come under other names from now on: on a disk, before anybody is told that the old ones may go."""
        effects = self.course.go_over(self.merge, self.intake)
        if not effects or self._journal is None or self.phase is Phase.ENTERING:
            return effects
        return [*self._journal.replace(self.incarnation, self._snapshot()), *effects]

    def _produced(self, sender: Address, produced: Produced, now: int) -> Effects:
        """Outputs of an asynchronous engine."""
        if sender != ENGINE:
            return []
        for batch in produced.batches:
            self._learn(batch.switch)
        added = self.handed.take(produced.batches, self.outgoing)
        if added is None:
            return self._ask_engine()
        effects = self._flush(now)
        if self._journal is not None and self._journal.is_due_after(added):
            effects += self._journal.replace(self.incarnation, self._snapshot())
        return effects + self.outgoing.taken()

    def _ask_engine(self) -> Effects:
        """An asynchronous engine goes on after what this replica has of each stream."""
        return [Deliver(self.handed.asked()), *self.outgoing.taken(again=True)]

    def _forget(self, sender: Address, forget: Forget, now: int) -> Effects:
        """What an application has sealed it need not hold: there is room for more of that stream."""
        if sender != SEALER or forget.maker not in ("", self.intake.maker(forget.stream)):
            return []  # numbers of one that has ended say nothing of its successor's
        self.merge.drop(forget.stream, self.intake.forget(forget.stream, forget.count))
        return self.intake.announce() + self._go_over()

    def _flush(self, now: int) -> Effects:
        """Lines 23-25."""
        effects = self.outgoing.flush(now)
        if not self._flush_set and self.outgoing.watermark_waits:
            self._flush_set = True
            effects.append(SetTimer(FLUSH, now + self.config.watermark_pause_us))
        return effects

    # ---- acks (lines 28-50) ------------------------------------------------------------------------------------

    def _ack(self, sender: Address, ack: Ack, now: int) -> Effects:
        """Lines 28-35; what was pruned may make room to go on."""
        stranger = self.outgoing.ack(sender, ack)
        if stranger is not None:
            return [Send(sender, stranger)]
        return self._after_acks(now)

    def _after_acks(self, now: int) -> Effects:
        was_full = self.outgoing.full
        self.outgoing.prune()
        return [*(self._process(now) if was_full else []), *self._flush(now)]

    def _resume(self, sender: Address, resume: Resume, now: int) -> Effects:
        effects = self.outgoing.resume(sender, resume, now)
        member = self.record.members.get(sender)
        if member is None or resume.incarnation > member.incarnation:
            effects += self._read_record()
        return effects + self._after_acks(now)

    def _gossip(self, sender: Address, gossip: Gossip, now: int) -> Effects:
        """Lines 46-50: a peer's acks, per receiver; this replica prunes by its own membership."""
        if node_of(sender) != self.node or not self.record.holds(sender, gossip.incarnation):
            return self._reread(gossip.version)
        effects = self._reread(gossip.version)
        if self.phase is Phase.MEMBER:
            effects += self.election.hear(sender, gossip, now)
            self._follow_election()
        if self.holding:
            for receipt in gossip.receipts:
                self.outgoing.learn(receipt)
            effects += self._after_acks(now)
        return effects

    def _pruned(self, sender: Address, pruned: Pruned, now: int) -> Effects:
        """It counts only from an incarnation in the record; one caught up stops only once the record says so."""
        if not self.record.holds(sender, pruned.incarnation) or pruned.stream not in self.intake.streams:
            return []
        if self.intake.is_after(pruned.stream, sender, pruned.mark):
            return []
        return [Report("correlation.pruned", f"{self.name} lacks what {sender} has pruned"), *self._read_record()]

    # ---- regularly (lines 36-39) -------------------------------------------------------------------------------

    def _tick(self, now: int) -> Effects:
        if self.phase is Phase.ENTERING:
            return self._entering.tick(now)
        effects: Effects = []
        if now - self._polled_us >= self.config.record_poll_us:
            self._polled_us = now
            effects += self._read_record()
        if self._join is not None:
            effects += self._carry_on(now)
        if not self.holding:
            return effects
        effects += self.intake.tick(now)
        if self.phase is Phase.MEMBER:
            effects += self._watch(now)
        if now - self._gossiped_us >= self.config.gossip_us:
            self._gossiped_us = now
            effects += self._tell_peers()
        if self.outgoing.filling and now - self._asked_acks_us >= self.config.patience_us:
            self._asked_acks_us = now
            effects += self.outgoing.ask_acks()
        # A snapshot may hold whole times that its giver had not processed yet, and no batch may ever follow them.
        effects += self._process(now)
        return effects + self._after_acks(now)

    def _watch(self, now: int) -> Effects:
        """Line 38, and a leader's own deafness."""
        effects: Effects = []
        deaf = self.intake.deaf(now)
        if deaf and self.election.latency_us < DEAF_US:
            effects += self.election.deaf()
        self.election.latency_us = DEAF_US if deaf else self.intake.latency_us
        effects += self.election.tick(now)
        self._follow_election()
        return effects + self.links.tell(self.outgoing, now)

    def _follow_election(self) -> None:
        if self.election.leading and not self.outgoing.leading:
            self.outgoing.lead()
        self.outgoing.leading = self.election.leading

    def _tell_peers(self) -> Effects:
        """Lines 37 and 40-45: at intervals, not per event."""
        leads, latency_us = self.election.leading, self.election.latency_us
        gossip = Gossip(self.incarnation, self.record.version, leads, latency_us, self.outgoing.receipts())
        return [Send(name, gossip) for name in self.record.of(self.node) if name != self.name]

    # ---- election (lines 51-53) --------------------------------------------------------------------------------

    def _elect(self, sender: Address, message: Any, now: int) -> Effects:
        if self.phase is not Phase.MEMBER:
            return []
        effects = self.election.take(sender, message, now, self.intake.upstream())
        self._follow_election()
        return effects + self._flush(now)

    def _pong(self, sender: Address, pong: Pong, now: int) -> Effects:
        self.intake.hear(sender, now)
        self.intake.pong(pong, now)
        return []

    # ---- membership and join -----------------------------------------------------------------------------------

    def _connected(self, sender: Address, message: Connected, now: int) -> Effects:
        """A new connection: what was on the way on the old one may be lost, both ways."""
        self.outgoing.reconnected(message.peer)
        self.election.connected(message.peer)
        return self.intake.reconnected(message.peer) + self._flush(now)

    def _disconnected(self, sender: Address, message: Disconnected, now: int) -> Effects:
        """LeaderDead for dead links too, in this node and, of a receiver, in its own."""
        self.links.ended(message.peer)
        if self.phase is not Phase.MEMBER:
            return []
        effects = self.election.disconnected(message.peer, now)
        self._follow_election()
        return effects + self.links.tell(self.outgoing, now) + self._flush(now)

    def _while_entering(self, message: Any, now: int) -> Effects:
        entered = self._entering.entered(message)
        if entered is None:
            return self._entering.hear(message, now)
        member = entered.record.members[self.name]
        kept = self._journal is not None and self._journal.incarnation == entered.incarnation
        if not entered.founding and not kept:
            self._begin_empty()
        self.incarnation = self.intake.incarnation = self.outgoing.incarnation = entered.incarnation
        self.phase = Phase.MEMBER
        if not entered.founding and member.standing is Standing.JOINING:
            self.phase = Phase.JOINING
            from_log = self.topology.is_coming(self.topology.node(self.node))
            self._join = self.join_part(self.name, self.incarnation, self.config.join_retry_us, from_log)
            self._join.holding = kept
        effects: Effects = []
        went = self.course.turned or bool(self.intake.ended)
        if self._journal is not None and (went if kept else self.phase is Phase.MEMBER):
            effects += self._journal.replace(self.incarnation, self._snapshot())
        effects += self._read(entered.record, now)
        if self.holding:
            effects += self.intake.begin(now)
            if self.engine is None:
                effects += self._ask_engine()
        return effects

    def _read_record(self) -> Effects:
        passed = self.holding and self.intake.passed and not self.course.ends
        return [Send(MEMBERSHIP, ReadRecord(self.record.version, self.incarnation, self.topology.upgrade, passed))]

    def _reread(self, version: int) -> Effects:
        return self._read_record() if version > self.record.version else []

    def _rearrange(self, sender: Address, message: Rearrange, now: int) -> Effects:
        """The nodes that there are now."""
        if sender != OPERATOR or message.topology.upgrade < self.topology.upgrade or message.topology == self.topology:
            return []
        self.topology = message.topology
        if all(node.name != self.node for node in self.topology.nodes):
            return [Stop(f"the rules of {self.node} are not those of this run any more")]
        self._entering.rearranged(self.topology)
        self.intake.rearrange(self.topology, now)
        self.course = self.course_part(self.node, self.topology)
        self.course.apply(self.merge)
        self.outgoing.rearrange(self.topology)
        return [*self._read_record(), *self._after_acks(now)]

    def _read(self, record: Record, now: int) -> Effects:
        """Each replica prunes, sends and votes by the record it has read last."""
        if record.version <= self.record.version:
            return []
        member = record.members.get(self.name)
        if member is None or member.incarnation > self.incarnation:
            return [Stop(f"another process has entered as {self.name}; this one is not needed any more")]
        if member.standing is Standing.GONE:
            return self._join_anew(now)
        self.record = record
        self.intake.read(record, now)
        self.outgoing.read(record)
        caught_up = [name for name, m in record.of(self.node).items() if m.standing is Standing.CAUGHT_UP]
        self.election.arrange([name for name in caught_up if name != self.name], now)
        if self._join is not None:
            if member.standing is Standing.CAUGHT_UP:
                self.phase = Phase.MEMBER
                self._join = None
                return [Report("correlation.caught_up", f"{self.name} is caught up")]
            return self._carry_on(now, at_once=True)
        return self._after_acks(now)

    def _join_anew(self, now: int) -> Effects:
        """This incarnation is gone: whatever this replica holds may have a hole that nobody can fill."""
        self.phase = Phase.ENTERING
        self._join = None
        self.election.reset()
        self.record = EMPTY
        self._begin_empty()
        if self._journal is not None:
            self._journal.forget()
        why = f"{self.name} is no longer in the record"
        return [Report("correlation.joins_anew", why), *self._entering.anew(now)]

    def _carry_on(self, now: int, at_once: bool = False) -> Effects:
        return [] if self._join is None else self._join.carry_on(self.record, self.intake, now, at_once)

    def _registered(self, sender: Address, answer: Registered, now: int) -> Effects:
        lags = self._join is not None and self._join.registered(sender, answer, self.record)
        return self._carry_on(now, at_once=True) + (self._read_record() if lags else [])

    def _snapshot_part(self, sender: Address, part: SnapshotPart, now: int) -> Effects:
        if self._join is None or node_of(sender) != self.node:
            return []
        whole, effects = self._join.part(part)
        if whole is not None and self.topology.upgrade and not snapshot.fits(whole, self.intake, self.outgoing):
            return [Report("correlation.snapshot_refused", f"{sender} has not heard of the same nodes as {self.name}")]
        return effects if whole is None else effects + self._adopt(self._join, sender, whole, now)

    def _from_log(self, sender: Address, made: FromLog, now: int) -> Effects:
        """Its node came with an upgrade, and this is its first state."""
        if sender != ENGINE or self._join is None or self._join.holding or made.incarnation != self.incarnation:
            return []
        return self._adopt(self._join, sender, snapshot.born(made, self.intake, self.merge, self.outgoing), now)

    def _adopt(self, join: Join, sender: Address, whole: snapshot.Snapshot, now: int) -> Effects:
        self._begin_anew(now)
        try:
            self._restore(whole)
        except Exception as error:  # an engine may say in any way that this is no state of its own
            self._begin_anew(now)
            raise ProtocolError(f"a snapshot from {sender} that cannot be restored: {error!r}") from None
        join.holding = True
        effects: Effects = []
        if self._journal is not None:
            effects += self._journal.replace(self.incarnation, self._snapshot())
        effects += self._carry_on(now, at_once=True)
        if self.engine is None:
            effects += self._ask_engine()
        return effects + (self.intake.begin(now) if self.holding else [])

    def _begin_anew(self, now: int) -> None:
        self._begin_empty()
        self.intake.incarnation = self.outgoing.incarnation = self.incarnation
        self.intake.read(self.record, now)
        self.outgoing.read(self.record)

    def _register(self, sender: Address, register: Register, now: int) -> Effects:
        answer, journal = self.outgoing.register(sender, register), self._journal
        new = journal is not None and journal.promises(answer, self.outgoing.version_min)
        effects = journal.replace(self.incarnation, self._snapshot()) if journal and new else []
        return [*effects, *([] if answer is None else [Send(sender, answer)]), *self._reread(register.version)]

    def _ask_snapshot(self, sender: Address, ask: AskSnapshot, now: int) -> Effects:
        if self.phase is not Phase.MEMBER or node_of(sender) != self.node:
            return []
        parts = snapshot.split(snapshot.encode(self._snapshot()), self.config.snapshot_part_bytes, ask.incarnation)
        return [Send(sender, part) for part in parts]

    def _snapshot(self) -> snapshot.Snapshot:
        return snapshot.take(self.intake, self.merge, self.engine.snapshot() if self.engine else b"", self.outgoing)

    def _restore(self, whole: snapshot.Snapshot) -> None:
        self.course.restore(whole, self.merge)
        snapshot.put_back(whole, self.intake, self.merge, self.outgoing)
        if self.engine is not None:
            self.engine.restore(whole.engine)
        self.handed.restore(self.outgoing.queues)

    def _recover(self, journal: Journal) -> None:
        """Durable mode: the state on disk, then what was accepted after it, again."""
        if journal.snapshot is not None:
            self._restore(self.course.caught_up(journal.snapshot, self.merge))
        for batch in [batch for batch in journal.batches if batch.stream in self.intake.streams]:
            self._learn(batch.switch)
            taken = self.intake.streams[batch.stream].take(batch)
            self.course.push(batch.stream, taken.events, self.merge, self.intake)
            self._process(0)
            self.intake.go_over(batch.stream, 0)
        self._process_set = False  # what is left is processed at the first tick

    def _confirm(self, sender: Address, ask: AskConfirmation, now: int) -> Effects:
        """Only a caught-up one of the same node may say that it remains."""
        if self.phase is not Phase.MEMBER or ask.replica == self.name or node_of(ask.replica) != self.node:
            return []
        return [Send(sender, Confirmation(ask.round, ask.replica, self.incarnation))]


_On = Callable[[Replica, Address, Any, int], Effects]

_ON: dict[type, _On] = {
    Resume: Replica._resume,
    AskMore: lambda replica, sender, ask, now: replica.outgoing.more(sender, ask),
    Enough: lambda replica, sender, enough, now: replica.outgoing.enough(sender, enough),
    HasMore: lambda replica, sender, more, now: replica.intake.has_more(sender, more),
    Gossip: Replica._gossip,
    AskAcks: lambda replica, sender, message, now: replica.intake.answers(sender),
    Pruned: Replica._pruned,
    Vote: Replica._elect,
    Candidate: Replica._elect,
    Elected: Replica._elect,
    LeaderDead: Replica._elect,
    Ping: lambda replica, sender, ping, now: [Send(sender, Pong(ping.sent_us))],
    Pong: Replica._pong,
    Produced: Replica._produced,
    Forget: Replica._forget,
    RecordIs: lambda replica, sender, message, now: replica._read(message.record, now),
    Register: Replica._register,
    Registered: Replica._registered,
    AskSnapshot: Replica._ask_snapshot,
    SnapshotPart: Replica._snapshot_part,
    FromLog: Replica._from_log,
    Rearrange: Replica._rearrange,
    NotMember: lambda replica, sender, message, now: replica._reread(message.version),
    AskConfirmation: Replica._confirm,
    Connected: Replica._connected,
    Disconnected: Replica._disconnected,
}

_NEEDS_STATE = (Resume, AskMore, Enough, HasMore, AskAcks, Register, Produced, Forget, Pruned, Connected)
"""A joiner without a snapshot does not answer these; whoever sent them asks again."""
