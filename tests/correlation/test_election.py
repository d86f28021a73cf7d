"""Whom a vote waits for: all peers, but not those whose link has ended."""

from __future__ import annotations

from unerring.correlation import CorrelationConfig
from unerring.correlation.election import Election
from unerring.correlation.messages import Candidate, Elected, Gossip, Vote
from unerring.model import Effects, Send

CONFIG = CorrelationConfig()


def _electing() -> Election:
    """n/1 of three, with n/0 leading."""
    election = Election("n/1", CONFIG)
    election.arrange(("n/0", "n/2"), 0)
    election.hear("n/0", _gossip(leader=True), 1)
    election.hear("n/2", _gossip(leader=False), 1)
    return election


def _gossip(leader: bool) -> Gossip:
    return Gossip(incarnation=1, version=1, leader=leader, latency_us=0, receipts=())


def _sent(effects: Effects, kind: type) -> list[str]:
    return [effect.to for effect in effects if isinstance(effect, Send) and isinstance(effect.message, kind)]


def test_the_end_of_the_leaders_link_starts_a_vote_at_once() -> None:
    election = _electing()
    assert _sent(election.disconnected("n/0", 2), Vote) == ["n/2"]
    assert not election.leading, "n/2 has not answered"
    assert _sent(election.candidate("n/2", Candidate(1, 0, False), 3), Elected) == ["n/2"]
    assert election.leading


def test_a_vote_does_not_wait_for_a_fellow_whose_link_ended() -> None:
    election = _electing()
    assert election.disconnected("n/2", 2) == [], "it does not lead"
    election.disconnected("n/0", 3)
    assert election.leading


def test_a_link_that_ends_during_the_vote_ends_the_wait() -> None:
    election = _electing()
    election.disconnected("n/0", 2)
    assert not election.leading
    election.disconnected("n/2", 3)
    assert election.leading


def test_a_fellow_that_is_heard_or_connected_again_is_waited_for_again() -> None:
    for back in (
        lambda election: election.hear("n/2", _gossip(leader=False), 3),
        lambda election: election.connected("n/2"),
        lambda election: election.vote("n/2", Vote(1, ""), 3),
    ):
        election = _electing()
        election.disconnected("n/2", 2)
        back(election)
        assert _sent(election.disconnected("n/0", 4), Vote) == ["n/2"]
        assert not election.leading
        assert _sent(election.tick(4 + CONFIG.vote_us), Elected) == ["n/2"]
        assert election.leading
