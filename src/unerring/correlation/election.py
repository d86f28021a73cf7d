"""Leader election (Figure 3, lines 36-39 and 51-53): at least one leader eventually, and no agreement needed.

Two leaders at once cost messages only. So a vote is one round without retries: the starter asks, waits for answers or
for a while, and names the best of those that answered.

| event | what happens |
|---|---|
| no leader seems alive, or LeaderDead | start a vote |
| LeaderDead from the previous node | the same; and nobody steps down for that leader for a while |
| Vote from a lower starter | own vote ends; answer Candidate |
| Vote from a higher starter while voting | not answered: the lower starter's vote prevails |
| Candidate that leads already | the vote was needless: it ends |
| all that can be reached answered, or time is up | the best candidate is told Elected, with everybody |
| a better leader is heard of | a leader steps down |
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from unerring.correlation.config import CorrelationConfig
from unerring.correlation.detector import Detector
from unerring.correlation.messages import Candidate, Elected, Gossip, LeaderDead, Vote
from unerring.model import Effects, Report, Send

DEAF_US = 1 << 40
"""The latency of a replica that hears nothing from the previous hop."""


class _Voting(msgspec.Struct):
    round: int
    excluded: str
    deadline_us: int
    answers: dict[str, int]


class Election:
    """Decides which replica sends. The replica asks `leading`, and feeds in what it receives."""

    def __init__(self, name: str, config: CorrelationConfig) -> None:
        self.name = name
        self.config = config
        self.leading = False
        self.latency_us = 0
        """To the previous hop, smoothed; set by the replica."""
        self.elections = 0
        self.peers: tuple[str, ...] = ()
        """The other caught-up replicas of the node."""
        self._alive = Detector(config.suspect_us_min, config.suspect_us_max)
        self._leaders: dict[str, bool] = {}
        self._gone: set[str] = set()
        """Peers whose link ended and who were not heard since: a vote does not wait for them."""
        self._shunned_us: dict[str, int] = {}
        """Leaders that the previous node does not reach: until when nobody steps down for them."""
        self._round = 0
        self._voting: _Voting | None = None

    def arrange(self, peers: Sequence[str], now: int) -> None:
        """The record changed."""
        for name in self.peers:
            if name not in peers:
                self._alive.forget(name)
                self._leaders.pop(name, None)
                self._gone.discard(name)
        self.peers = tuple(peers)
        for name in peers:
            self._alive.expect(name, now)

    def reset(self) -> None:
        """A joiner does not lead and does not vote."""
        self.leading = False
        self._voting = None

    def leader_seems_alive(self, now: int) -> bool:
        """Line 38."""
        return self.leading or any(
            self._leaders.get(name, False) and not self._alive.suspects(name, now) for name in self.peers
        )

    @property
    def led(self) -> bool:
        """Another one leads, as far as is known."""
        return not self.leading and any(self._leaders.get(name, False) for name in self.peers)

    def hear(self, sender: str, gossip: Gossip, now: int) -> Effects:
        """A peer's sign of life; a leader steps down for a better one."""
        self._lives(sender, now)
        self._leaders[sender] = gossip.leader
        shunned = self._shunned_us.get(sender, now) > now
        better = self._criterion(sender, gossip.latency_us) < self._own_criterion()
        if self.leading and gossip.leader and better and not shunned:
            self.leading = False
            return [Report("correlation.stepped_down", f"{self.name} leaves the lead to {sender}")]
        return []

    def take(
        self, sender: str, message: Vote | Candidate | Elected | LeaderDead, now: int, upstream: Sequence[str] = ()
    ) -> Effects:
        """`upstream`: the replicas of previous nodes."""
        match message:
            case Vote():
                return self.vote(sender, message, now)
            case Candidate():
                return self.candidate(sender, message, now)
            case Elected():
                return self.elected(sender, message, now)
        if sender in upstream:
            return self.unreachable(message.leader, now)
        return self.leader_dead(message.leader, now) if sender in self.peers else []

    def tick(self, now: int) -> Effects:
        """Lines 36-39."""
        voting = self._voting
        if voting is not None:
            return self._close(voting, now) if now >= voting.deadline_us else []
        if not self.leader_seems_alive(now):
            return self.start("", now)
        return []

    def leader_dead(self, leader: str, now: int) -> Effects:
        """Lines 51-53: only if it is (believed) the leader, for a dead normal replica sends nothing anyway."""
        if leader == self.name or not self._leaders.get(leader, False) or self._voting is not None:
            return []
        if self.leading:
            return []
        self._leaders[leader] = False
        return self.start(leader, now)

    def unreachable(self, leader: str, now: int) -> Effects:
        """LeaderDead from the leader of the previous node: its events do not reach this node's leader. That one lives,
        and may be better by the criterion; for a while nobody here steps down for it."""
        if leader in self.peers:
            self._shunned_us[leader] = now + self.config.lease_us
        return self.leader_dead(leader, now)

    def connected(self, peer: str) -> None:
        """A link to a peer is up again."""
        self._gone.discard(peer)

    def disconnected(self, peer: str, now: int) -> Effects:
        """A link to a peer ended: neither its silence, if it leads, nor its vote is waited for."""
        if peer not in self.peers:
            return []
        self._gone.add(peer)
        if self._voting is not None and self._all_answered(self._voting):
            return self._close(self._voting, now)
        return self.leader_dead(peer, now)

    def _lives(self, peer: str, now: int) -> None:
        self._alive.hear(peer, now)
        self._gone.discard(peer)

    def _all_answered(self, voting: _Voting) -> bool:
        return all(name in voting.answers or name == voting.excluded or name in self._gone for name in self.peers)

    def start(self, excluded: str, now: int) -> Effects:
        """Ask all peers."""
        self._round += 1
        self.elections += 1
        self._voting = _Voting(self._round, excluded, now + self.config.vote_us, {self.name: self.latency_us})
        effects: Effects = [Report("correlation.election", f"{self.name} starts a vote")]
        asked = [name for name in self.peers if name != excluded]
        effects += [Send(name, Vote(self._round, excluded)) for name in asked]
        if self._all_answered(self._voting):
            effects += self._close(self._voting, now)
        return effects

    def vote(self, sender: str, vote: Vote, now: int) -> Effects:
        """Answer a vote; of concurrent elections that of the lowest starter prevails."""
        if sender not in self.peers or vote.excluded == self.name:
            return []
        if self._voting is not None:
            if self.name < sender:
                return []
            self._voting = None
        self._lives(sender, now)
        return [Send(sender, Candidate(vote.round, self.latency_us, self.leading))]

    def candidate(self, sender: str, answer: Candidate, now: int) -> Effects:
        voting = self._voting
        if voting is None or answer.round != voting.round or sender not in self.peers:
            return []
        self._lives(sender, now)
        if answer.leader and answer.latency_us < DEAF_US:
            self._leaders[sender] = True
            self._voting = None
            return []
        voting.answers[sender] = answer.latency_us
        return self._close(voting, now) if self._all_answered(voting) else []

    def elected(self, sender: str, elected: Elected, now: int) -> Effects:
        """The starter has chosen."""
        if sender not in self.peers:
            return []
        self._voting = None
        if elected.leader == self.name:
            return self._lead()
        if elected.leader in self.peers:
            self._leaders[elected.leader] = True
            self._alive.hear(elected.leader, now)
        return []

    def _close(self, voting: _Voting, now: int) -> Effects:
        """Latency to the previous hop, then the lowest id, among those that answered."""
        self._voting = None
        best = min(voting.answers, key=lambda name: self._criterion(name, voting.answers[name]))
        effects: Effects = [Send(name, Elected(voting.round, best)) for name in self.peers if name != voting.excluded]
        if best == self.name:
            return effects + self._lead()
        self._leaders[best] = True
        self._alive.hear(best, now)
        return effects

    def _lead(self) -> Effects:
        if self.leading:
            return []
        self.leading = True
        return [Report("correlation.leader", f"{self.name} leads")]

    def deaf(self) -> Effects:
        """This leader cannot receive any more: it says so itself."""
        if not self.leading:
            return []
        return [Send(name, LeaderDead(self.name)) for name in self.peers]

    def _criterion(self, name: str, latency_us: int) -> tuple[int, str]:
        return latency_us // self.config.latency_step_us, name

    def _own_criterion(self) -> tuple[int, str]:
        return self._criterion(self.name, self.latency_us)
