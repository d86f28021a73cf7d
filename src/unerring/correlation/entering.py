"""A replica's way into the membership record: it asks until it is entered or refused.

Its token stands for one start of one process. The record's keeper answers with a challenge first, so that a late
request of a process that is dead does not displace its successor.

| phase | takes events | answers receivers | may lead |
|---|---|---|---|
| ENTERING | no | no | no |
| JOINING, no snapshot yet | no | no | no |
| JOINING, snapshot in place | yes | yes | no |
| MEMBER | yes | yes | yes |
"""

from __future__ import annotations

from enum import IntEnum

from unerring.correlation.intake import NEVER
from unerring.correlation.journal import Journal
from unerring.correlation.messages import MEMBERSHIP, Challenge, Enter, Entered, Refused
from unerring.correlation.topology import Topology
from unerring.model import Connected, Effects, Entropy, ProtocolError, Send, Stop


class Phase(IntEnum):
    ENTERING = 0
    JOINING = 1
    MEMBER = 2


class Entering:
    """One for a replica, for all its incarnations."""

    def __init__(self, name: str, topology: Topology, entropy: Entropy, journal: Journal | None, retry_us: int) -> None:
        self.token = ""
        self._name = name
        self._fingerprint = topology.fingerprint()
        self._upgrade = topology.upgrade
        self._entropy = entropy
        self._journal = journal
        self._retry_us = retry_us
        self._asked_us = NEVER

    def begin(self, now: int) -> Effects:
        """The same token means the same start of the same process; on a disk that holds no state yet, it lasts."""
        if self._journal is not None and self._journal.token and not self._journal.incarnation:
            self.token = self._journal.token
            return self._ask(now)
        return self.anew(now)

    def anew(self, now: int) -> Effects:
        """As a new incarnation: the old one is gone."""
        self.token = f"{self._entropy.random():.17f}"
        return [*([] if self._journal is None else self._journal.ask(self.token)), *self._ask(now)]

    def rearranged(self, topology: Topology) -> None:
        """Its host has heard of other nodes meanwhile."""
        self._upgrade = topology.upgrade

    def tick(self, now: int) -> Effects:
        return self._ask(now) if now - self._asked_us >= self._retry_us else []

    def _ask(self, now: int, nonce: str = "") -> Effects:
        self._asked_us = now
        kept = 0 if self._journal is None else self._journal.incarnation
        return [Send(MEMBERSHIP, Enter(self._name, self.token, kept, self._fingerprint, nonce, self._upgrade))]

    def hear(self, message: object, now: int) -> Effects:
        """What comes before Entered."""
        if isinstance(message, Connected) and message.peer == MEMBERSHIP:
            return self._ask(now)
        if isinstance(message, Refused) and message.token == self.token:
            return [Stop(message.why)]
        if isinstance(message, Challenge) and message.token == self.token:
            return self._ask(now, message.nonce)
        return []

    def entered(self, message: object) -> Entered | None:
        """The answer, if it is one to this request. ProtocolError: it contradicts itself."""
        if not isinstance(message, Entered) or message.token != self.token:
            return None
        member = message.record.members.get(self._name)
        if member is None or member.incarnation != message.incarnation:
            raise ProtocolError(f"the record does not have {self._name} with incarnation {message.incarnation}")
        return message
