"""The membership record's keeper, as a machine: the supervisor runs it, on stable storage of its own.

Several may share one store that compares before it writes (etcd): whoever loses a race starts over from what is there.
It is not needed in normal operation. It changes the record when somebody enters, is granted "caught up" or is evicted.
An eviction is written only after a remaining caught-up member has confirmed, in that round, that it is there: f+1
replicas alone cannot decide who is dead.

An operator evicts, and the keeper itself whoever was silent towards it for `evict_after_us`. That it is silent is no
proof: the same confirmation is needed, and nobody confirms who is to be evicted too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import msgspec

from unerring.correlation.config import CorrelationConfig
from unerring.correlation.messages import (
    MEMBERSHIP,
    OPERATOR,
    STORE,
    AskConfirmation,
    CaughtUp,
    Challenge,
    Confirmation,
    Enter,
    Entered,
    Evict,
    ReadRecord,
    RecordIs,
    Refused,
    WaitsFor,
    check_keeper,
)
from unerring.correlation.record import EMPTY, Member, Record, Standing, node_of
from unerring.correlation.switching import Rearrange
from unerring.correlation.topology import Role, Topology
from unerring.model import Address, CallerError, Effects, Entropy, Persist, Report, Send, SetTimer

KEY = "membership/record"
_CHALLENGES_MAX = 4096


class _Round(msgspec.Struct):
    """One attempt to evict."""

    number: str
    deadline_us: int
    silent: bool
    """Whether it is for silence only: a word of the replica ends it."""


class Membership:
    """The record and the rules of its change."""

    def __init__(
        self, records: Mapping[str, bytes], topology: Topology, config: CorrelationConfig, entropy: Entropy
    ) -> None:
        self.topology = topology
        self.config = config
        self.entropy = entropy
        kept = records.get(KEY)
        self.record = topology.founding() if kept is None else msgspec.msgpack.decode(kept, type=Record)
        self.rounds: dict[str, _Round] = {}
        """Evictions that wait for a confirmation, by the replica to be evicted."""
        self._challenges: dict[str, tuple[str, str]] = {}
        """By replica: the token that asked last, and the nonce it must answer with."""
        self._heard_us: dict[str, int] = {}
        self._looked_us = 0
        """When this keeper last looked who is silent."""
        self._known: dict[str, tuple[int, int, bool]] = {}
        """By process: its incarnation, the last upgrade whose nodes it knows, and whether it is past those that go."""

    @property
    def _watched(self) -> list[str]:
        """Nodes whose replicas somebody upstream waits for."""
        return [node.name for node in self.topology.nodes if node.watched]

    # ---- upgrades ----------------------------------------------------------------------------------------------

    def _rearrange(self, topology: Topology) -> Effects:
        """The nodes that there are now: sources and applications that came are in the record, those that went are
        not, and replicas of nodes that came enter as they start."""
        if topology.upgrade < self.topology.upgrade:
            return []
        self.topology = topology
        return self._settle()

    def _settle(self) -> Effects:
        """Let the record have the nodes that there are, unless another keeper knows later ones."""
        topology = self.topology
        if topology.upgrade < self.record.upgrade:
            return []
        here = {node.name: node for node in topology.nodes}
        members = {
            name: msgspec.structs.replace(member, standing=Standing.GONE) if node_of(name) not in here else member
            for name, member in self.record.members.items()
        }
        # A source reads the log from its beginning, and so do its peers: there is no state to catch up with.
        founding = [
            node
            for node in topology.nodes
            if node.stands_alone or (node.role is Role.SOURCE and topology.is_coming(node))
        ]
        for name in [replica for node in founding for replica in node.replicas]:
            members.setdefault(name, Member(1, Standing.CAUGHT_UP))
        for replica in [replica for replica in self.rounds if node_of(replica) not in here]:
            del self.rounds[replica]
        if members == self.record.members and topology.upgrade == self.record.upgrade:
            return []
        return self._publish(members)

    def is_ready(self) -> bool:
        """Whether everybody knows the nodes of the last upgrade, and those that came with it have all their replicas:
        from now on its time can be agreed on."""
        if self.record.upgrade < self.topology.upgrade:
            return False  # somebody who does not know them may still enter
        for node in self.topology.nodes:
            members = self.record.of(node.name).values()
            caught_up = sum(member.standing is Standing.CAUGHT_UP for member in members)
            if self.topology.is_coming(node) and caught_up <= node.f:
                return False
        return all(upgrade >= self.topology.upgrade for upgrade, _ in self._words())

    def has_passed(self) -> bool:
        """Whether nobody needs the nodes any more that go with the last upgrade."""
        going = {node.name for node in self.topology.nodes if self.topology.is_ending(node)}
        return all(upgrade >= self.topology.upgrade and passed for upgrade, passed in self._words(going))

    def _words(self, but: Collection[str] = ()) -> Iterator[tuple[int, bool]]:
        """What everybody in the record said last, in this incarnation."""
        for name, member in self.record.members.items():
            if member.standing is not Standing.GONE and node_of(name) not in but:
                incarnation, upgrade, passed = self._known.get(name, (0, -1, False))
                yield (upgrade, passed) if incarnation == member.incarnation else (-1, False)

    def start(self, now: int) -> Effects:
        self._looked_us = now
        settled = self._settle() if self.topology.upgrade else []
        return [SetTimer("membership", now + self.config.eviction_us // 4), *settled]

    def timer(self, name: str, now: int) -> Effects:
        for replica in [r for r, waiting in self.rounds.items() if waiting.deadline_us <= now]:
            del self.rounds[replica]
        if now - self._looked_us > self.config.eviction_us:
            self._heard_us.clear()  # It was away itself: what it did not hear meanwhile says nothing.
        self._looked_us = now
        watched = [replica for node in self._watched for replica in self.record.of(node)]
        # An upgrade waits for everybody, also for who has never come.
        waits = self.topology.upgrade > 0 and not (self.is_ready() and self.has_passed())
        absent = {r for r in watched if waits and not self.record.members[r].token}
        effects = [effect for r in watched for effect in self._evict_silent(r, now, waited_for=r in absent)]
        return [SetTimer(name, now + self.config.eviction_us // 4), *effects]

    def handle(self, sender: Address, message: object, now: int) -> Effects:
        if sender in self.record.members:
            self._hear(sender, now)
        match message:
            case Enter():
                return self._enter(sender, message, now)
            case CaughtUp():
                return self._caught_up(sender, message)
            case ReadRecord(version, incarnation, upgrade, passed):
                if sender in self.record.members:
                    self._known[sender] = incarnation, upgrade, passed
                return [Send(sender, RecordIs(self.record))] if version < self.record.version else []
            case Rearrange(topology) if sender == OPERATOR:
                return self._rearrange(topology)
            case Confirmation():
                return self._confirmed(sender, message)
            case WaitsFor(replicas) if now - self._looked_us <= self.config.eviction_us:
                late = [replica for replica in replicas if node_of(replica) in self._watched]
                return [effect for r in late for effect in self._evict_silent(r, now, waited_for=True)]
            case Evict(replica) if sender == OPERATOR and replica in self.record.members:
                return self.evict(replica, now) if self.record.members[replica].standing is not Standing.GONE else []
            case RecordIs(record) if sender == STORE and record.version > self.record.version:
                for name in record.members:
                    if record.members[name] != self.record.members.get(name):
                        self._hear(name, now)  # by another keeper
                self.record = record
                return [Send(name, RecordIs(record)) for name in record.members]
        return []

    def _enter(self, sender: Address, enter: Enter, now: int) -> Effects:
        if enter.fingerprint != self.topology.fingerprint():
            why = (
                f"{enter.replica} runs with another configuration or other rules ({enter.fingerprint}) than this "
                f"cluster ({self.topology.fingerprint()}); start it with the cluster's own"
            )
            return [Send(sender, Refused(enter.token, why)), Report("correlation.refused", why)]
        if all(node.name != node_of(enter.replica) for node in self.topology.nodes):
            if enter.upgrade > self.topology.upgrade:
                return []  # it comes with an upgrade that this keeper is still to hear of, and asks again
            why = f"{enter.replica} belongs to no node of this cluster"
            return [Send(sender, Refused(enter.token, why)), Report("correlation.refused", why)]
        if enter.upgrade < max(self.topology.upgrade, self.record.upgrade):
            return []  # it would hand on what comes after the agreed time as if there were none; it asks again
        member = self.record.members.get(enter.replica)
        if member is not None and member.token == enter.token:
            return [Send(sender, Entered(enter.token, member.incarnation, self._is_founding(member), self.record))]
        asked = self._challenges.get(enter.replica)
        if asked is None or asked[0] != enter.token:
            # One nonce for one token: copies of an Enter must not invalidate each other.
            asked = self._challenges[enter.replica] = (enter.token, f"{self.entropy.random():.17f}")
            while len(self._challenges) > _CHALLENGES_MAX:
                del self._challenges[next(iter(self._challenges))]
        if enter.nonce != asked[1]:
            return [Send(sender, Challenge(enter.token, asked[1]))]
        del self._challenges[enter.replica]
        if member is not None and enter.incarnation and self.record.holds(enter.replica, enter.incarnation):
            # It still has the state of that incarnation on its disk: nothing was lost, it goes on.
            changed = msgspec.structs.replace(member, token=enter.token)
        elif member is not None and not member.token and member.standing is Standing.CAUGHT_UP:
            changed = msgspec.structs.replace(member, token=enter.token)
        else:
            # Founding members have incarnation 1, so that a joiner never does.
            latest = member.incarnation if member is not None else 1
            changed = Member(latest + 1, Standing.JOINING, enter.token)
        self._hear(enter.replica, now)
        effects = self._write(enter.replica, changed)
        founding = self._is_founding(changed) and not enter.incarnation
        effects.append(Send(sender, Entered(enter.token, changed.incarnation, founding, self.record)))
        return effects

    def _is_founding(self, member: Member) -> bool:
        return member.incarnation == 1 and member.standing is Standing.CAUGHT_UP

    def _caught_up(self, sender: Address, message: CaughtUp) -> Effects:
        """Granted only if every upstream (replica, incarnation) now in the record has confirmed."""
        member = self.record.members.get(message.replica)
        if member is None or member.incarnation != message.incarnation or member.standing is not Standing.JOINING:
            return [Send(sender, RecordIs(self.record))]
        for node in self.topology.upstream(node_of(message.replica)):
            for name, upstream in self.record.of(node).items():
                if (name, upstream.incarnation) not in message.confirmed:
                    return [Send(sender, RecordIs(self.record))]
        return self._write(message.replica, msgspec.structs.replace(member, standing=Standing.CAUGHT_UP))

    # ---- eviction ----------------------------------------------------------------------------------------------

    def _hear(self, replica: str, now: int) -> None:
        self._heard_us[replica] = now
        waiting = self.rounds.get(replica)
        if waiting is not None and waiting.silent:
            del self.rounds[replica]

    def _evict_silent(self, replica: str, now: int, waited_for: bool) -> Effects:
        """Begin to evict a replica, if it has been silent for long and somebody is left to confirm it.

        A founding member that never entered may be on its way: a run starts as slowly as its slowest process. It goes
        only if somebody waits for it.
        """
        heard_us = self._heard_us.setdefault(replica, now)
        member = self.record.members.get(replica)
        if member is None or member.standing is Standing.GONE or replica in self.rounds:
            return []
        after_us = self.config.evict_full_us if waited_for and member.token else self.config.evict_after_us
        if not self.config.evict_after_us or now - heard_us < after_us or not (member.token or waited_for):
            return []
        return self.evict(replica, now, silent=True)

    def evict(self, replica: str, now: int, silent: bool = False) -> Effects:
        """An operator's or the supervisor's command, never an upstream's. It first asks those that would remain."""
        member = self.record.members.get(replica)
        if member is None or member.standing is Standing.GONE:
            raise CallerError(f"{replica} is not in the membership record; it cannot be evicted")
        number = f"{self.entropy.random():.17f}"
        self.rounds[replica] = _Round(number, now + self.config.eviction_us, silent)
        return [Send(name, AskConfirmation(number, replica)) for name in self._remaining(replica)]

    def _remaining(self, replica: str) -> list[str]:
        members = self.record.of(node_of(replica))
        return [name for name, m in members.items() if name != replica and m.standing is Standing.CAUGHT_UP]

    def _confirmed(self, sender: Address, message: Confirmation) -> Effects:
        waiting = self.rounds.get(message.replica)
        if waiting is None or waiting.number != message.round:
            return []
        # Who remains is of the same node, and is not to be evicted as well.
        if node_of(sender) != node_of(message.replica) or sender in self.rounds:
            return []
        if not self.record.caught_up(sender, message.incarnation):
            return []
        del self.rounds[message.replica]
        member = self.record.members[message.replica]
        why = "it was silent, and " if waiting.silent else ""
        report = Report("correlation.evicted", f"{message.replica}: {why}{sender} remains")
        gone = msgspec.structs.replace(member, standing=Standing.GONE, lost=waiting.silent)
        return [report, *self._write(message.replica, gone)]

    def _write(self, replica: str, member: Member) -> Effects:
        before = self.record.members.get(replica)
        effects = self._publish({**self.record.members, replica: member})
        if before is not None and (before.incarnation, before.standing) == (member.incarnation, member.standing):
            return effects[:1]  # Which process it is concerns nobody else: a cluster that starts tells not all of each.
        return effects

    def _publish(self, members: Mapping[str, Member]) -> Effects:
        upgrade = max(self.topology.upgrade, self.record.upgrade)
        self.record = Record(self.record.version + 1, dict(sorted(members.items())), upgrade)
        kept = Persist(((KEY, msgspec.msgpack.encode(self.record)),))
        return [kept, *(Send(name, RecordIs(self.record)) for name in self.record.members)]


class Watcher:
    """Reads the record that another host keeps, for a supervisor that is to know whom to start."""

    def __init__(self, config: CorrelationConfig) -> None:
        self.config = config
        self.record = EMPTY

    def start(self, now: int) -> Effects:
        return self.timer("watch", now)

    def timer(self, name: str, now: int) -> Effects:
        return [SetTimer(name, now + self.config.record_poll_us), Send(MEMBERSHIP, ReadRecord(self.record.version))]

    def handle(self, sender: Address, message: object, now: int) -> Effects:
        if isinstance(message, RecordIs):
            check_keeper(sender, message)
            if message.record.version > self.record.version:
                self.record = message.record
        return []
