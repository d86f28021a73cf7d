"""The membership record's keeper, as a machine: the supervisor runs it, on stable storage of its own.

Several may share one store that compares before it writes (etcd): whoever loses a race starts over from what is there.
It is never asked in normal operation. It changes the record when somebody enters, is granted "caught up" or is evicted.
An eviction is written only after a remaining caught-up member has confirmed, in that round, that it is there: f+1
replicas alone cannot decide who is dead.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from unerring.correlation.config import CorrelationConfig
from unerring.correlation.messages import (
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
)
from unerring.correlation.record import Member, Record, Standing, node_of
from unerring.correlation.topology import Topology
from unerring.model import Address, CallerError, Effects, Entropy, Persist, Report, Send, SetTimer

KEY = "membership/record"
_CHALLENGES_MAX = 4096


class _Round(msgspec.Struct):
    """One attempt to evict."""

    number: str
    deadline_us: int


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

    def start(self, now: int) -> Effects:
        return [SetTimer("membership", now + self.config.eviction_us)]

    def timer(self, name: str, now: int) -> Effects:
        for replica in [r for r, waiting in self.rounds.items() if waiting.deadline_us <= now]:
            del self.rounds[replica]
        return [SetTimer(name, now + self.config.eviction_us // 4)]

    def handle(self, sender: Address, message: object, now: int) -> Effects:
        match message:
            case Enter():
                return self._enter(sender, message)
            case CaughtUp():
                return self._caught_up(sender, message)
            case ReadRecord(version):
                return [Send(sender, RecordIs(self.record))] if version < self.record.version else []
            case Confirmation():
                return self._confirmed(sender, message)
            case Evict(replica) if sender == OPERATOR and replica in self.record.members:
                return self.evict(replica, now) if self.record.members[replica].standing is not Standing.GONE else []
            case RecordIs(record) if sender == STORE and record.version > self.record.version:
                self.record = record
                return [Send(name, RecordIs(record)) for name in record.members]
        return []

    def _enter(self, sender: Address, enter: Enter) -> Effects:
        if enter.fingerprint != self.topology.fingerprint():
            why = (
                f"{enter.replica} runs with another configuration or other rules ({enter.fingerprint}) than this "
                f"cluster ({self.topology.fingerprint()}); start it with the cluster's own"
            )
            return [Send(sender, Refused(enter.token, why)), Report("correlation.refused", why)]
        if all(node.name != node_of(enter.replica) for node in self.topology.nodes):
            why = f"{enter.replica} belongs to no node of this cluster"
            return [Send(sender, Refused(enter.token, why)), Report("correlation.refused", why)]
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

    def evict(self, replica: str, now: int) -> Effects:
        """An operator's or the supervisor's command, never an upstream's. It first asks those that would remain."""
        member = self.record.members.get(replica)
        if member is None or member.standing is Standing.GONE:
            raise CallerError(f"{replica} is not in the membership record; it cannot be evicted")
        number = f"{self.entropy.random():.17f}"
        self.rounds[replica] = _Round(number, now + self.config.eviction_us)
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
        report = Report("correlation.evicted", f"{message.replica}: {sender} remains")
        return [report, *self._write(message.replica, msgspec.structs.replace(member, standing=Standing.GONE))]

    def _write(self, replica: str, member: Member) -> Effects:
        before = self.record.members.get(replica)
        members = {**self.record.members, replica: member}
        self.record = Record(self.record.version + 1, dict(sorted(members.items())))
        effects: Effects = [Persist(((KEY, msgspec.msgpack.encode(self.record)),))]
        if before is not None and (before.incarnation, before.standing) == (member.incarnation, member.standing):
            return effects  # Which process it is concerns nobody else: a cluster that starts does not tell all of each.
        return effects + [Send(name, RecordIs(self.record)) for name in self.record.members]
