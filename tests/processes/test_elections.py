"""Views, votes and what is accepted (process paper, section V-C, Fig. 5 and 6), one replica by itself."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.processes.alone import INSTANCE, Alone
from tests.processes.test_scale import waiting
from unerring.model import ProtocolError
from unerring.processes.acceptor import Acceptor
from unerring.processes.messages import (
    VIEW_MAX,
    Accepted,
    Ack,
    Decided,
    Fetch,
    Heartbeat,
    Lead,
    Mail,
    Promise,
    Reject,
    Replicate,
    RequestView,
    State,
    Vote,
)
from unerring.processes.plausible import VIEW_STEP_MAX

Aborts = tuple[int, int, str]


def alone(f: int = 1) -> Alone:
    """With the first state, accepted in view 0 of the first of the others."""
    it = Alone(waiting(), f)
    assert it.hear(it.others[0], Replicate(0, it.state())) == [(it.others[0], Ack(INSTANCE, 0, 0))]
    return it


def vote(view: int, accepted_in: int, state: State | None, aborts: int = 0, why: str = "", *mail: Mail) -> Vote:
    return Vote(INSTANCE, view, accepted_in, state, mail, aborts, why)


def test_one_vote_a_view_for_the_first_who_asks() -> None:
    """Fig. 6, II: the promise is on disk with the vote, and holds after a restart."""
    it = alone()
    first, other = it.others
    mine = [(other, vote(1, 0, it.state()))]
    assert it.hear(other, RequestView(INSTANCE, 1)) == mine
    for _ in range(2):
        assert it.record("promise", Promise) == Promise(1, other)
        assert it.hear(first, RequestView(INSTANCE, 1)) == [(first, Reject(INSTANCE, 1))]
        assert it.hear(first, RequestView(INSTANCE, 0)) == [(first, Reject(INSTANCE, 1))]
        assert it.hear(other, RequestView(INSTANCE, 1)) == mine, "its first answer may be lost"
        assert it.hear(first, Replicate(0, it.state(1))) == [(first, Reject(INSTANCE, 1))]
        assert it.hear(first, Heartbeat((Lead(INSTANCE, 0, 0, False),))) == [(first, Reject(INSTANCE, 1))]
        it.restart()
    assert it.hear(first, RequestView(INSTANCE, 2)) == [(first, vote(2, 0, it.state()))]


def test_a_candidate_asks_those_who_have_not_voted_in_the_same_view_until_it_meets_another() -> None:
    it = alone(f=2)
    a, b, c, d = it.others
    ask = RequestView(INSTANCE, 1)
    assert it.do("election.ask_again", it.now) == [(name, ask) for name in (a, b, c, d)]
    assert it.hear(b, vote(1, 0, it.state())) == []
    assert it.hear(a, vote(0, 0, it.state())) == [], "a vote of another view"
    for late in (0, 1):
        assert it.do("election.ask_again", it.now) == [
            (name, msgspec.structs.replace(ask, view=1)) for name in (a, c, d)
        ]
        if not late:
            assert it.hear(c, Reject(INSTANCE, 0)) == [], "it speaks of an earlier view"
    assert it.hear(c, Reject(INSTANCE, 1)) == []
    assert it.do("election.ask_again", it.now) == [(name, RequestView(INSTANCE, 2)) for name in (a, b, c, d)]
    assert it.do("election.ask_again", it.now) == [(name, RequestView(INSTANCE, 2)) for name in (a, b, c, d)]
    assert it.hear(c, Reject(INSTANCE, 5)) == []
    assert it.record("promise", Promise) == Promise(5, "")
    assert it.hear(a, vote(2, 0, it.state())) == [], "that candidacy is over"
    assert it.do("election.ask_again", it.now) == [(name, RequestView(INSTANCE, 6)) for name in (a, b, c, d)]


def states(it: Alone) -> dict[str, State]:
    return {"old": it.state(2), "far": it.state(3), "new": it.state(1, view=1)}


@pytest.mark.parametrize(
    ("votes", "chosen"),
    [
        ([(0, "old"), (0, "far")], "far"),
        ([(0, "far"), (0, "old")], "far"),
        ([(0, "far"), (1, "new")], "new"),
        ([(1, "new"), (0, "far")], "new"),
        ([(-1, ""), (0, "old")], "old"),
    ],
)
def test_the_winner_decides_again_what_was_accepted_in_the_highest_view(votes: list[Any], chosen: str) -> None:
    """Fig. 6, III and IV: then the highest group; by the executing view a decided state could be revoked."""
    it = alone(f=2)
    it.hear(it.others[0], RequestView(INSTANCE, 2))
    it.do("election.ask_again", it.now)
    known = states(it)
    first, last = (vote(3, accepted_in, known.get(name)) for accepted_in, name in votes)
    assert it.hear(it.others[1], first) == []
    assert it.record("accepted", Accepted).view == 0
    sent = it.hear(it.others[2], last)
    assert [(to, message) for to, message in sent if isinstance(message, Replicate)] == [
        (name, Replicate(3, known[chosen])) for name in it.others
    ]
    assert it.record("accepted", Accepted).view == 3


def test_a_winner_stores_what_the_votes_bring_and_counts_the_aborts_of_the_same_group() -> None:
    it = alone(f=2)
    it.do("election.ask_again", it.now)
    mail = Mail("m", "go", 1)
    it.hear(it.others[0], vote(1, 0, it.state(1), 3, "no answer", mail))
    it.hear(it.others[1], vote(1, 0, it.state(), 7, "of an earlier group"))
    assert it.record("mail/m", Mail) == mail
    assert it.record("aborts", Aborts) == (2, 3, "no answer")
    it.restart()
    [(_, mine)] = it.hear(it.others[2], RequestView(INSTANCE, 2))
    assert (mine.aborts, mine.why, mine.mail) == (3, "no answer", (mail,))
    it.disk.pop(f"{INSTANCE}|aborts")
    it.do("election.ask_view", it.now, "again")
    for other in it.others[:2]:
        it.hear(other, vote(3, 1, it.state(1), 3, "z"))
    assert it.record("aborts", Aborts) is None, "as many as before: nothing new to keep"
    assert it.replica.election.aborts == (2, 3, "no answer")
    it.do("election.ask_view", it.now, "again")
    for other in it.others[:2]:
        it.hear(other, vote(4, 3, it.state(2)))
    assert it.record("aborts", Aborts) is None, "of the next group nothing was aborted"
    [(_, mine)] = it.hear(it.others[2], RequestView(INSTANCE, 5))
    assert (mine.aborts, mine.why) == (0, "")
    it.do("election.ask_view", it.now, "again")
    for other in it.others[:2]:
        it.hear(other, vote(6, 4, it.state(2), 1, "long " * 100))
    assert it.record("aborts", Aborts) == (3, 1, "long " * 40)


def test_nobody_wins_with_votes_of_those_who_have_not_heard_of_the_instance() -> None:
    it = Alone(waiting())
    it.hear(it.others[1], RequestView(INSTANCE, 1))
    assert it.hear(it.others[1], RequestView(INSTANCE, 1)) == [(it.others[1], vote(1, -1, None))]
    it.do("election.ask_again", it.now)
    assert it.hear(it.others[0], vote(2, -1, None)) == []
    assert it.replica.election.votes is None
    assert it.record("accepted", Accepted) is None


def test_one_node_by_itself_needs_no_other_vote() -> None:
    it = Alone(waiting(), f=0, place=0)
    it.hear(it.me, Replicate(0, it.state()))
    [(to, ack)] = it.do("election.ask_again", it.now)
    assert (to, ack) == (it.me, Ack(INSTANCE, 1, 0))
    it.hear(it.me, ack)
    assert it.replica.decided == (1, it.state())


def test_a_candidate_has_patience_and_gives_way_to_another_one_that_won() -> None:
    it = alone()
    leader, other = it.others
    assert it.replica.watch.leader == leader
    it.now += 60_000_000
    assert it.replica.suspects(it.now)
    it.do("election.ask_again", it.now)
    assert it.replica.watch.leader == ""
    assert not it.replica.suspects(it.now + it.config.suspect_us), "the votes take their time"
    assert it.replica.suspects(it.now + it.config.suspect_us + 2 * it.config.backoff_us)
    assert it.replica.role == "candidate"
    assert it.hear(other, Replicate(1, it.state())) == [(other, Ack(INSTANCE, 1, 0))]
    assert (it.replica.role, it.replica.watch.leader) == ("follower", other)
    assert it.hear(leader, vote(1, 0, it.state())) == []


# --- accepting and learning ---


def test_what_is_not_further_is_not_accepted() -> None:
    it = alone()
    leader = it.others[0]
    one, two = it.state(1), it.state(2)
    assert it.hear(leader, Replicate(0, one)) == [(leader, Ack(INSTANCE, 0, 1))]
    assert it.replica.decided == (0, it.state()), "in a view nobody goes on before that is decided"
    assert it.hear(leader, Replicate(0, it.state())) == [(leader, Ack(INSTANCE, 0, 0))], "late, and known"
    assert it.record("accepted", Accepted).state.group == 1
    with pytest.raises(ProtocolError, match="another state of view 0 and group 1"):
        it.hear(leader, Replicate(0, msgspec.structs.replace(one, variables={"n": 9})))
    added = msgspec.structs.replace(two, lineage=two.lineage[1:])
    assert it.hear(leader, Replicate(0, msgspec.structs.replace(added, group=3), 2)) == [], "the one before was lost"
    for _ in range(2):
        assert it.hear(leader, Replicate(0, added, 1)) == [(leader, Ack(INSTANCE, 0, 2))]
        assert it.replica.acceptor.accepted == Accepted(0, two, False)
    with pytest.raises(ProtocolError, match="another state of view 0 and group 2"):
        it.hear(leader, Replicate(0, msgspec.structs.replace(added, variables={"n": 9}), 1))
    assert it.hear(leader, Replicate(1, two)) == [(leader, Ack(INSTANCE, 1, 2))]
    assert it.replica.decided == (0, one), "in another view: what was accepted before need not be decided"
    it.restart()
    assert it.replica.acceptor.accepted == Accepted(1, two, False)
    third = msgspec.structs.replace(it.state(3), lineage=two.lineage[1:])
    assert it.hear(leader, Replicate(2, third, 2)) == [], "the one before was accepted in another view"
    assert it.replica.acceptor.accepted == Accepted(1, two, False)


def test_a_leader_says_what_is_decided_and_who_lacks_it_asks_for_it() -> None:
    it = alone()
    leader, other = it.others

    def says(view: int, group: int) -> list[tuple[str, Any]]:
        return it.hear(leader, Heartbeat((Lead(INSTANCE, view, group, False),)))

    assert (says(0, -1), it.replica.decided) == ([], None)
    assert (says(0, 0), it.replica.decided) == ([], (0, it.state()))
    assert says(0, 0) == []
    assert says(0, 1) == [(leader, Fetch(INSTANCE, 0, 0))]
    assert it.hear(leader, Decided(0, it.state(1))) == []
    assert it.replica.decided == (0, it.state(1))
    assert it.record("accepted", Accepted) == Accepted(0, it.state(1), False), "who learns of it accepts it"
    assert says(0, 2) == [(leader, Fetch(INSTANCE, 0, 1))], "the next one is asked for at once"
    assert it.hear(leader, Decided(0, it.state())) == []
    assert it.replica.decided == (0, it.state(1)), "an older one changes nothing"
    for view, group, answers in ((0, 0, True), (0, 1, False), (0, 2, False), (1, 0, False), (-1, -1, True)):
        told = [(other, Decided(0, it.state(1)))] if answers else []
        assert it.hear(other, Fetch(INSTANCE, view, group)) == told, (view, group)
    it.hear(leader, Decided(3, it.state(2, view=2)))
    assert it.record("promise", Promise) == Promise(3, ""), "nobody accepts anything of a lower view after that"
    assert it.replica.acceptor.decided_rank == (3, 2)


def test_what_follows_the_first_state_may_come_again() -> None:
    it = Alone(waiting())
    leader = it.others[0]
    it.hear(leader, Replicate(0, it.state(given={"n": 3})))
    for _ in range(2):
        assert it.hear(leader, Replicate(0, it.state(1), 0)) == [(leader, Ack(INSTANCE, 0, 1))]
        assert it.replica.acceptor.accepted == Accepted(0, it.state(1, given={"n": 3}), False)


def test_a_candidate_that_learns_of_a_decision_gives_way_and_who_made_the_state_does_not() -> None:
    it = alone()
    leader, other = it.others
    it.do("election.ask_again", it.now)
    it.hear(other, Decided(1, it.state()))
    assert (it.replica.role, it.replica.decided) == ("follower", (1, it.state()))
    it.do("election.ask_again", it.now)
    it.hear(other, vote(2, 1, it.state()))
    it.hear(leader, Decided(2, it.state()))
    assert (it.replica.role, it.replica.acceptor.accepted) == ("planner", Accepted(2, it.state(), True))


def test_a_history_on_pages_is_whole_after_a_restart_and_what_lost_is_gone() -> None:
    it = alone()
    leader = it.others[0]
    for group in (16, 33):
        it.hear(leader, Replicate(0, it.state(group)))
    it.restart()
    assert it.replica.acceptor.accepted == Accepted(0, it.state(33), False)
    it.hear(leader, Replicate(4, it.state(3, view=4)))
    assert sorted(it.disk) == [f"{INSTANCE}|{key}" for key in ("accepted", "given", "promise")]
    it.restart()
    assert it.replica.acceptor.accepted == Accepted(4, it.state(3, view=4), False)


@pytest.mark.parametrize(("promised", "view"), [(VIEW_MAX, VIEW_MAX), (VIEW_MAX + 1, 7 + VIEW_STEP_MAX)])
def test_a_promise_of_a_view_that_no_election_came_to_is_repaired_at_the_start(promised: int, view: int) -> None:
    it = alone()
    shared: Any = it.replica.context
    records = {
        "promise": msgspec.msgpack.encode(Promise(promised, "n0")),
        "accepted": msgspec.msgpack.encode(Accepted(7, it.state(), False)),
    }
    acceptor = Acceptor(shared, it.replica.watch, it.replica, records)
    assert (acceptor.view, acceptor.voted_for) == (view, "n0" if promised == VIEW_MAX else "")
    del records["accepted"]
    assert Acceptor(shared, it.replica.watch, it.replica, records).view == (view if view == VIEW_MAX else VIEW_STEP_MAX)
    records["accepted"] = msgspec.msgpack.encode(Accepted(VIEW_MAX, it.state(), False))
    assert Acceptor(shared, it.replica.watch, it.replica, records).rank == (VIEW_MAX, 0)
    records["accepted"] = msgspec.msgpack.encode(Accepted(VIEW_MAX + 1, it.state(), False))
    with pytest.raises(ProtocolError, match="which no election came to"):
        Acceptor(shared, it.replica.watch, it.replica, records)
