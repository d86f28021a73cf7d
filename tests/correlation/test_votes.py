"""Leader election (Figure 3, lines 36-39 and 51-53): what each message makes of a vote and of a lead."""

from __future__ import annotations

import pytest

from unerring.correlation import CorrelationConfig
from unerring.correlation.election import DEAF_US, Election
from unerring.correlation.messages import Candidate, Elected, Gossip, LeaderDead, Vote
from unerring.model import Effects, Report, Send

CONFIG = CorrelationConfig()
NOW = 10_000_000
PEERS = ("n/0", "n/2")


def gossip(leader: bool, latency_us: int = 0) -> Gossip:
    return Gossip(incarnation=1, version=1, leader=leader, latency_us=latency_us, receipts=())


def started(latency_us: int = 0) -> Election:
    """n/1 of three, which has heard of nobody yet."""
    election = Election("n/1", CONFIG)
    election.latency_us = latency_us
    election.arrange(PEERS, NOW)
    return election


def led(latency_us: int = 0) -> Election:
    """n/1, with n/0 leading."""
    election = started(latency_us)
    assert election.hear("n/0", gossip(leader=True), NOW) == []
    assert election.hear("n/2", gossip(leader=False), NOW) == []
    assert election.led
    return election


def leading(latency_us: int = 0) -> Election:
    election = started(latency_us)
    assert election.elected("n/0", Elected(1, "n/1"), NOW) == [Report("correlation.leader", "n/1 leads")]
    assert election.leading
    return election


def voting(latency_us: int = 0) -> Election:
    """n/1, whose first vote is under way."""
    election = started(latency_us)
    assert election.tick(NOW) == asked(1)
    return election


def asked(round: int, excluded: str = "") -> Effects:
    """What starts a vote."""
    votes = [Send(name, Vote(round, excluded)) for name in PEERS if name != excluded]
    return [Report("correlation.election", "n/1 starts a vote"), *votes]


def chosen(round: int, leader: str, excluded: str = "") -> Effects:
    """What ends a vote."""
    told: Effects = [Send(name, Elected(round, leader)) for name in PEERS if name != excluded]
    return [*told, Report("correlation.leader", "n/1 leads")] if leader == "n/1" else told


def is_voting(election: Election) -> bool:
    """While it is, a lower starter's vote is answered, and a higher one's not."""
    return election.vote("n/2", Vote(9, ""), NOW) == []


def test_who_hears_of_no_leader_asks_all_and_leads_once_they_have_answered() -> None:
    election = started()
    assert not election.leading
    assert not election.led
    assert not election.leader_seems_alive(NOW)
    assert election.tick(NOW) == asked(1)
    assert election.elections == 1
    assert election.candidate("n/2", Candidate(1, 0, False), NOW) == []
    assert election.candidate("n/0", Candidate(1, 5 * CONFIG.latency_step_us, False), NOW) == chosen(1, "n/1")
    assert election.leading
    assert not election.led
    assert election.leader_seems_alive(NOW)
    assert election.tick(NOW + CONFIG.vote_us) == []
    assert election.elections == 1


def test_a_vote_waits_its_time_and_not_longer_for_who_does_not_answer() -> None:
    election = voting()
    assert election.tick(NOW + CONFIG.vote_us - 1) == []
    assert not election.leading
    assert election.tick(NOW + CONFIG.vote_us) == chosen(1, "n/1")
    assert election.leading


def test_one_without_peers_leads_at_once() -> None:
    election = Election("n/1", CONFIG)
    election.arrange((), NOW)
    reports = [Report("correlation.election", "n/1 starts a vote"), Report("correlation.leader", "n/1 leads")]
    assert election.tick(NOW) == reports
    assert election.leading


def test_a_leader_is_believed_to_live_for_its_patience() -> None:
    election = led()
    assert election.tick(NOW + CONFIG.suspect_us_min) == []
    assert election.leader_seems_alive(NOW + CONFIG.suspect_us_min)
    late = NOW + CONFIG.suspect_us_min + 1
    assert not election.leader_seems_alive(late)
    assert election.led, "as far as is known"
    assert election.tick(late) == asked(1)
    election.hear("n/2", gossip(leader=False), late)
    assert not election.leader_seems_alive(late), "who lives is no leader"


@pytest.mark.parametrize(
    ("own", "first", "second", "best"),
    [
        (1_999, 2_000, 1_000, "n/1"),  # of those within one step the lowest name
        (2_000, 2_999, 1_999, "n/2"),
        (2_000, 2_999, 2_000, "n/0"),
    ],
)
def test_the_lowest_latency_wins_and_then_the_lowest_name(own: int, first: int, second: int, best: str) -> None:
    election = voting(own)
    election.candidate("n/0", Candidate(1, first, False), NOW)
    assert election.candidate("n/2", Candidate(1, second, False), NOW) == chosen(1, best)
    assert election.leading == (best == "n/1")
    assert election.led == (best != "n/1")


def test_who_starts_a_vote_waits_for_the_one_it_has_chosen() -> None:
    election = voting()
    later = NOW + CONFIG.suspect_us_min
    election.latency_us = DEAF_US
    election.candidate("n/2", Candidate(1, DEAF_US, False), later)
    assert election.candidate("n/0", Candidate(1, 0, False), later) == chosen(1, "n/0")
    assert election.tick(later + CONFIG.suspect_us_min) == [], "it was heard when it answered"
    election.reset()
    election = voting(latency_us=9)
    election.candidate("n/0", Candidate(1, 0, False), NOW)
    assert election.tick(NOW + CONFIG.suspect_us_min) == chosen(1, "n/0")
    assert election.tick(NOW + CONFIG.suspect_us_min + 20_000) == [], "it is told just now"


def test_answers_to_another_vote_and_of_strangers_do_not_count() -> None:
    election = voting()
    election.candidate("n/0", Candidate(2, 0, False), NOW)
    election.candidate("m/0", Candidate(1, 0, False), NOW)
    assert election.candidate("n/2", Candidate(1, 0, False), NOW) == [], "n/0 has not answered"
    assert election.candidate("n/0", Candidate(1, 0, False), NOW) == chosen(1, "n/0")
    assert election.candidate("n/2", Candidate(1, 0, False), NOW) == [], "it is over"
    assert not election.leading


def test_a_vote_ends_where_one_leads_already_that_hears_the_previous_hop() -> None:
    election = voting()
    assert election.candidate("n/2", Candidate(1, DEAF_US - 1, True), NOW) == []
    assert election.led
    assert election.tick(NOW + CONFIG.vote_us) == [], "the vote was needless"
    late = voting()
    answered = NOW + CONFIG.vote_us - 1
    late.disconnected("n/2", NOW)
    assert late.candidate("n/2", Candidate(1, 0, True), answered) == []
    assert late.tick(answered + CONFIG.suspect_us_min) == [], "its answer is a sign of life"
    assert late.start("n/0", answered) == asked(2, "n/0"), "and its link is up again"
    deaf = voting()
    assert deaf.candidate("n/2", Candidate(1, DEAF_US, True), NOW) == []
    assert not deaf.led
    assert deaf.tick(NOW + CONFIG.vote_us) == chosen(1, "n/1")


def test_the_vote_of_the_lowest_starter_prevails() -> None:
    election = voting(latency_us=7)
    assert election.vote("n/2", Vote(4, ""), NOW) == [], "its own is under way"
    assert election.vote("n/0", Vote(5, ""), NOW) == [Send("n/0", Candidate(5, 7, False))]
    assert election.candidate("n/2", Candidate(1, 0, False), NOW) == []
    assert election.candidate("n/0", Candidate(1, 0, False), NOW) == [], "its own has ended"
    assert election.vote("n/2", Vote(6, ""), NOW) == [Send("n/2", Candidate(6, 7, False))]
    assert not election.led


def test_a_vote_is_answered_by_peers_that_it_does_not_exclude() -> None:
    election = leading(latency_us=3)
    assert election.vote("n/0", Vote(2, "n/1"), NOW) == []
    assert election.vote("m/0", Vote(2, ""), NOW) == []
    assert election.vote("n/0", Vote(2, "n/2"), NOW) == [Send("n/0", Candidate(2, 3, True))]
    assert election.leading, "to answer is not to step down"
    fresh = Election("n/1", CONFIG)
    fresh.arrange(PEERS, NOW)
    assert fresh.vote("n/2", Vote(1, ""), NOW) == [Send("n/2", Candidate(1, 0, False))], "nothing is measured yet"
    voting_too = voting()
    assert voting_too.vote("n/0", Vote(2, "n/1"), NOW) == []
    assert is_voting(voting_too), "a vote that excludes it is not its own"


def test_whoever_was_elected_leads_and_the_others_know() -> None:
    election = voting()
    assert election.elected("m/0", Elected(1, "n/1"), NOW) == []
    assert not election.leading
    assert is_voting(election), "a stranger's word ends no vote"
    late = NOW + CONFIG.suspect_us_min
    assert election.elected("n/0", Elected(1, "n/2"), late) == []
    assert election.led
    assert not is_voting(election)
    assert election.tick(late + CONFIG.suspect_us_min) == [], "its patience begins when it is elected"
    assert election.elected("n/0", Elected(2, "n/1"), late) == [Report("correlation.leader", "n/1 leads")]
    assert election.leading
    assert not election.led
    assert election.elected("n/0", Elected(3, "n/1"), late) == [], "it leads already"
    unknown = started()
    assert unknown.elected("n/0", Elected(1, "m/0"), NOW) == []
    assert not unknown.led


def test_a_leader_leaves_the_lead_to_a_better_one_only() -> None:
    step = CONFIG.latency_step_us
    for name, theirs, leads, leaves in [
        ("n/0", 2 * step - 1, True, True),
        ("n/0", 2 * step, True, False),
        ("n/2", step - 1, True, True),
        ("n/2", step, True, False),
        ("n/0", 0, False, False),
    ]:
        election = leading(latency_us=step)
        effects = election.hear(name, gossip(leads, theirs), NOW)
        left = [Report("correlation.stepped_down", f"n/1 leaves the lead to {name}")]
        assert effects == (left if leaves else []), (name, theirs, leads)
        assert election.leading == (not leaves)
        assert election.led == leaves
    normal = started(latency_us=step)
    assert normal.hear("n/0", gossip(leader=True), NOW) == [], "who does not lead has nothing to leave"


def test_nobody_steps_down_for_a_leader_that_the_previous_node_does_not_reach_for_a_while() -> None:
    election = leading()
    dead = LeaderDead("n/0")
    assert election.take("up/0", dead, NOW, ("up/0",)) == []
    better = gossip(leader=True)
    assert election.hear("n/0", better, NOW + CONFIG.lease_us - 1) == []
    assert election.leading
    assert election.hear("n/0", better, NOW + CONFIG.lease_us) != []
    assert not election.leading
    by_peer = leading()
    assert by_peer.take("n/2", dead, NOW, ("up/0",)) == []
    assert by_peer.hear("n/0", better, NOW) != [], "a peer does not say whom the previous node reaches"


def test_a_dead_leader_is_replaced_by_a_vote_without_it() -> None:
    for sender, upstream in (("n/2", ()), ("up/1", ("up/0", "up/1"))):
        election = led()
        assert election.take(sender, LeaderDead("n/0"), NOW, upstream) == asked(1, "n/0")
        assert not election.led
        assert election.candidate("n/0", Candidate(1, 0, False), NOW) == [], "n/2 is waited for"
        assert is_voting(election)
    election = led()
    election.take("n/2", LeaderDead("n/0"), NOW)
    assert election.take("n/2", Candidate(1, 0, False), NOW) == chosen(1, "n/1", "n/0")


def test_word_of_a_dead_leader_starts_no_vote_where_that_is_no_news() -> None:
    election = led()
    for dead in ("n/1", "n/2", "m/0"):
        assert election.leader_dead(dead, NOW) == [], "it is not believed to lead"
    assert election.take("m/0", LeaderDead("n/0"), NOW, ("up/0",)) == [], "a stranger is not believed"
    assert election.led
    both = leading()
    both.latency_us = 0
    both.hear("n/2", gossip(leader=True), NOW)
    assert both.leader_dead("n/2", NOW) == [], "there is a leader: itself"
    assert both.elections == 0
    busy = led()
    assert busy.leader_dead("n/0", NOW) == asked(1, "n/0")
    busy.hear("n/2", gossip(leader=True), NOW)
    assert busy.leader_dead("n/2", NOW) == [], "a vote is under way"
    assert busy.elections == 1


def test_each_message_is_taken_for_what_it_is() -> None:
    election = started(latency_us=4)
    assert election.take("n/0", Vote(3, ""), NOW) == [Send("n/0", Candidate(3, 4, False))]
    assert election.take("n/0", Elected(3, "n/1"), NOW) == [Report("correlation.leader", "n/1 leads")]
    asking = voting()
    asking.take("n/0", Candidate(1, 0, False), NOW)
    assert asking.take("n/2", Candidate(1, 0, False), NOW) == chosen(1, "n/0")


def test_a_leader_that_is_deaf_says_so_itself() -> None:
    assert leading().deaf() == [Send(name, LeaderDead("n/1")) for name in PEERS]
    assert led().deaf() == []


def test_a_joiner_has_neither_a_lead_nor_a_vote() -> None:
    election = leading()
    election.reset()
    assert not election.leading
    election = voting()
    election.reset()
    assert not is_voting(election)
    assert election.start("", NOW) == asked(2), "each vote has a number of its own"


def test_a_peer_that_left_the_record_is_a_new_one_when_it_comes_back() -> None:
    election = led()
    election.disconnected("n/2", NOW)
    election.arrange(("n/2",), NOW)
    assert not election.led, "n/0 has left"
    election.arrange(PEERS, NOW + 1)
    assert not election.led, "who comes back does not lead"
    assert election.elected("n/2", Elected(1, "n/0"), NOW + 1) == []
    assert election.tick(NOW + 1 + CONFIG.suspect_us_min) == [], "it is watched from now on"
    assert election.start("n/0", NOW + 2) != asked(1, "n/0"), "the link to n/2, which stayed, is still down"
    election.arrange(("n/0",), NOW)
    election.arrange(PEERS, NOW)
    assert election.start("n/0", NOW) == asked(2, "n/0"), "it is waited for"


def test_the_pauses_of_a_peer_that_left_say_nothing_of_the_one_that_comes() -> None:
    slow, now = led(), NOW
    for _ in range(5):
        now += 1_000_000
        slow.hear("n/0", gossip(leader=True), now)
    assert slow.tick(now + 2_000_000) == [], "twice its pauses"
    slow.arrange(("n/2",), now)
    slow.arrange(PEERS, now)
    slow.hear("n/0", gossip(leader=True), now)
    assert slow.tick(now + CONFIG.suspect_us_min) == []
    assert slow.tick(now + CONFIG.suspect_us_min + 1) == asked(1)


def test_the_link_to_a_stranger_is_nobodys_business() -> None:
    election = led()
    election.arrange(("n/2",), NOW)
    assert election.disconnected("n/0", NOW) == []
    assert election.elections == 0
