"""Which incarnation of a node counts, and what one node knows of all."""

from __future__ import annotations

import msgspec

from tests.processes.alone import INSTANCE, Alone
from tests.processes.test_scale import waiting
from unerring.model import Persist
from unerring.processes.incarnations import Incarnations, Lives
from unerring.processes.messages import Ack, Recalled, Replicate, RequestView, Vote
from unerring.processes.out import Out


def known(**fields: object) -> tuple[Incarnations, Out]:
    out = Out()
    incarnations = Incarnations("a", out)
    incarnations.load(msgspec.msgpack.encode(Lives(**fields)))  # type: ignore[arg-type]
    return incarnations, out


def kept(out: Out) -> Lives | None:
    """What goes to disk."""
    effects = out.take()
    if not effects:
        return None
    [effect] = effects
    assert isinstance(effect, Persist)
    [(key, data)] = effect.puts
    assert key == "a|incarnations"
    return msgspec.msgpack.decode(data, type=Lives)


def test_only_a_later_incarnation_is_news() -> None:
    incarnations, out = known(known={"b": 5})
    for old in ({}, {"b": 5}, {"b": 4}, {"c": 0}):
        incarnations.learn(old)
        assert kept(out) is None
    incarnations.learn({"b": 6, "c": 1, "a": 0})
    assert kept(out) == Lives(known={"b": 6, "c": 1})
    assert (incarnations.known, incarnations.present) == ({"b": 6, "c": 1}, True)
    assert incarnations.of(["c", "d", "a"]) == {"c": 1}
    assert known()[0].of(["c"]) == {}


def test_what_an_earlier_incarnation_says_does_not_count() -> None:
    incarnations, _ = known(known={"b": 5})
    assert [incarnations.counts("b", {"b": number}) for number in (4, 5, 6)] == [False, True, True]
    assert [incarnations.counts(sender, {}) for sender in ("b", "c")] == [False, True]


def test_a_disk_that_is_an_old_copy_takes_no_part() -> None:
    for mine, present in ((0, False), (6, False), (7, True), (8, True)):
        incarnations, out = known(mine=mine)
        incarnations.learn({"a": 7})
        assert kept(out) == Lives(mine=mine, whole=present, old=not present, known={"a": 7})
        assert incarnations.present == present
    absent, out = known(mine=3, whole=False)
    absent.learn({"a": 7})
    assert kept(out) == Lives(mine=3, whole=False, known={"a": 7}), "its disk was empty, not old"
    old, out = known(mine=3, whole=False, old=True)
    old.learn({"b": 1})
    assert kept(out) == Lives(mine=3, whole=False, old=True, known={"b": 1})


def test_the_word_of_an_operator_holds_until_the_node_is_back() -> None:
    incarnations, out = known(known={"b": 5})
    assert (incarnations.gone("b"), incarnations.forgiven("b"), incarnations.forgiven("a")) == (False, False, False)
    incarnations.forget("b", returned=False)
    assert kept(out) == Lives(known={"b": 5}, forgotten={"b": 6})
    assert (incarnations.gone("b"), incarnations.forgiven("b")) == (True, True)
    incarnations.learn({"b": 9})
    assert kept(out) == Lives(known={"b": 9}, forgotten={"b": 9})
    assert (incarnations.gone("b"), incarnations.forgiven("b")) == (False, True)
    incarnations.learn({"b": 10})
    assert (incarnations.gone("b"), incarnations.forgiven("b")) == (False, False)
    incarnations.forget("c", returned=True)
    assert incarnations.lives.forgotten == {"b": 9, "c": 0}
    assert (incarnations.gone("c"), incarnations.forgiven("c")) == (False, True)


def test_who_was_replaced_is_told_so_and_does_not_count() -> None:
    it = Alone(waiting())
    leader, other = it.others
    it.hear(leader, Replicate(0, it.state()))
    it.hear(other, Ack(INSTANCE, 0, 0, {leader: 8, other: 2}))
    [(to, mine)] = it.hear(other, RequestView(INSTANCE, 1))
    assert (to, mine.known) == (other, {leader: 8, other: 2})
    it.do("election.ask_again", it.now)
    old = Vote(INSTANCE, 2, 0, it.state(), (), 0, "", {leader: 7})
    assert it.hear(leader, old) == [(leader, Recalled(0, 0, True, {leader: 8, other: 2}))]
    assert it.replica.role == "candidate"
    it.hear(leader, msgspec.structs.replace(old, known={leader: 8}))
    assert it.replica.role == "planner"


def test_a_vote_of_an_incarnation_that_was_replaced_since_counts_no_longer() -> None:
    it = Alone(waiting(), f=2)
    first, second, third, _ = it.others
    it.hear(first, Replicate(0, it.state()))
    it.do("election.ask_again", it.now)
    it.hear(first, Vote(INSTANCE, 1, 0, it.state(), (), 0))
    it.hear(second, Vote(INSTANCE, 1, 0, it.state(), (), 0, "", {first: 4}))
    assert it.replica.role == "candidate", "two votes are left, its own among them"
    it.hear(third, Vote(INSTANCE, 1, 0, it.state(), (), 0))
    assert it.replica.role == "planner"
