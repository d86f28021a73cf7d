"""The record's keeper (section 9.4): who enters as what, who is caught up, who is evicted and on whose word."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from tests.correlation.table import schema
from unerring.correlation import (
    MEMBERSHIP,
    OPERATOR,
    STORE,
    CorrelationConfig,
    Membership,
    NodeSpec,
    Rearrange,
    Role,
    Topology,
    Watcher,
    alone,
    side_by_side,
)
from unerring.correlation.membership import KEY
from unerring.correlation.messages import (
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
)
from unerring.correlation.record import Member, Record, Standing
from unerring.model import CallerError, Persist, Report, Send, SetTimer

CONFIG = CorrelationConfig()
GONE, JOINING, CAUGHT_UP = Standing.GONE, Standing.JOINING, Standing.CAUGHT_UP


def rules(*names: str) -> Topology:
    """Two sources, a node with three replicas for each of these names, an application with a disk of its own."""
    made = tuple(name.lower() for name in names)
    nodes = (
        NodeSpec("src", Role.SOURCE, outputs=("a",), f=1),
        *(NodeSpec(name, Role.CORRELATION, ("a",), (name.lower(),), 2) for name in names),
        NodeSpec("app", Role.APPLICATION, made),
    )
    return Topology(nodes, tuple(schema(name) for name in ("a", *made)))


class Cluster:
    """A keeper with its disk."""

    def __init__(self, topology: Topology, config: CorrelationConfig = CONFIG, start: bool = True) -> None:
        self.disk: dict[str, bytes] = {}
        self.topology = topology
        self.keeper = Membership(self.disk, topology, config, Random(1))
        self.now = 0
        if start:
            self.keeper.start(0)

    def take(self, effects: list[Any]) -> list[Any]:
        """Keep what is persisted; the rest."""
        for effect in effects:
            if isinstance(effect, Persist):
                self.disk.update(effect.puts)
        return [effect for effect in effects if not isinstance(effect, Persist)]

    def say(self, name: str, message: object) -> list[Any]:
        """What the keeper answers: to whom, and what."""
        return [(e.to, e.message) for e in self.take(self.keeper.handle(name, message, self.now)) if type(e) is Send]

    def tick(self, now: int) -> list[Any]:
        self.now = now
        return [(e.to, e.message) for e in self.take(self.keeper.timer("membership", now)) if type(e) is Send]

    def enter(self, name: str, token: str, incarnation: int = 0, upgrade: int = 0) -> Entered:
        """The whole exchange."""
        enter = Enter(name, token, incarnation, self.keeper.topology.fingerprint(), "", upgrade)
        [(_, challenge)] = self.say(name, enter)
        assert isinstance(challenge, Challenge)
        answers = [m for to, m in self.say(name, msgspec.structs.replace(enter, nonce=challenge.nonce)) if to == name]
        assert isinstance(answers[-1], Entered)
        return answers[-1]

    def standing(self, name: str) -> tuple[int, Standing]:
        member = self.keeper.record.members[name]
        return member.incarnation, member.standing


def entered(*names: str, **bounds: int) -> Cluster:
    """Everybody of the rule's node and the sources has entered, at time 0."""
    cluster = Cluster(rules(*(names or ("N",))), CorrelationConfig(**bounds))
    for node in cluster.topology.nodes:
        for name in node.replicas:
            cluster.enter(name, f"token of {name}")
    return cluster


ALL = ("N/0", "N/1", "N/2", "app/0", "src/0", "src/1")


# ---- entering --------------------------------------------------------------------------------------------------


def test_founding_members_enter_once_each_and_nobody_else_is_told() -> None:
    cluster = Cluster(rules("N"))
    enter = Enter("N/1", "one", 0, cluster.topology.fingerprint())
    [(to, challenge)] = cluster.say("N/1", enter)
    assert (to, challenge.token) == ("N/1", "one")
    assert cluster.say("N/1", enter) == [("N/1", challenge)], "copies of one Enter have one answer"
    assert cluster.say("N/1", msgspec.structs.replace(enter, nonce="wrong")) == [("N/1", challenge)]
    assert cluster.disk == {}
    answered = msgspec.structs.replace(enter, nonce=challenge.nonce)
    [(to, answer)] = cluster.say("N/1", answered)
    record = cluster.keeper.record
    assert (to, answer) == ("N/1", Entered("one", 1, True, record))
    assert (record.version, record.members["N/1"]) == (2, Member(1, CAUGHT_UP, "one"))
    assert cluster.say("N/1", answered) == [("N/1", answer)], "its answer was lost: it is told again"
    assert cluster.say("N/1", enter) == [("N/1", answer)]
    assert cluster.keeper.record is record
    again = Membership(cluster.disk, cluster.topology, CONFIG, Random(2))
    assert again.record == record
    assert list(cluster.disk) == [KEY]


def test_another_process_in_a_members_name_joins_with_an_incarnation_of_its_own() -> None:
    cluster = entered()
    version = cluster.keeper.record.version
    enter = Enter("N/1", "two", 0, cluster.topology.fingerprint())
    [(_, first)] = cluster.say("N/1", enter)
    [(_, other)] = cluster.say("N/1", msgspec.structs.replace(enter, token="three"))
    assert first.nonce != other.nonce
    [(_, again)] = cluster.say("N/1", msgspec.structs.replace(enter, nonce=first.nonce))
    assert (again.token, again.nonce == first.nonce) == ("two", False), "another process has asked since"
    told = cluster.say("N/1", msgspec.structs.replace(enter, nonce=again.nonce))
    record = cluster.keeper.record
    assert (record.version, record.members["N/1"]) == (version + 1, Member(2, JOINING, "two"))
    assert told == [*((name, RecordIs(record)) for name in ALL), ("N/1", Entered("two", 2, False, record))]


def test_who_has_its_state_on_disk_goes_on_with_its_incarnation() -> None:
    cluster = entered()
    answer = cluster.enter("N/1", "restarted", incarnation=1)
    assert (answer.incarnation, answer.founding) == (1, False), "it is not empty, although its node began so"
    assert cluster.keeper.record.members["N/1"] == Member(1, CAUGHT_UP, "restarted")
    assert cluster.enter("N/2", "lost its disk").incarnation == 2
    assert cluster.enter("N/2", "and again", incarnation=1).incarnation == 3, "that one is not in the record any more"
    assert cluster.enter("N/2", "kept", incarnation=3).incarnation == 3
    assert cluster.standing("N/2") == (3, JOINING)
    cluster.keeper.evict("N/2", 0)
    number = cluster.keeper.rounds["N/2"].number
    cluster.say("N/1", Confirmation(number, "N/2", 1))
    assert cluster.standing("N/2") == (3, GONE)
    assert cluster.enter("N/2", "evicted", incarnation=3).incarnation == 4
    assert cluster.enter("N/7", "of a number that nobody had").incarnation == 2, "founding members alone have 1"


def test_who_does_not_belong_here_is_refused_and_told_why() -> None:
    cluster = Cluster(rules("N"))
    enter = Enter("N/1", "one", 0, cluster.topology.fingerprint())
    for changed, why in (
        ({"fingerprint": "other"}, "runs with another configuration or other rules"),
        ({"replica": "M/1"}, "M/1 belongs to no node of this cluster"),
    ):
        wrong = msgspec.structs.replace(enter, **changed)
        answer, report = cluster.take(cluster.keeper.handle("N/1", wrong, 0))
        assert isinstance(answer.message, Refused)
        assert answer.message.token == "one"
        assert why in answer.message.why
        assert report == Report("correlation.refused", answer.message.why)
    ahead = msgspec.structs.replace(enter, replica="M/1", upgrade=1)
    assert cluster.say("M/1", ahead) == [], "it comes with an upgrade that is still to be heard of"
    assert cluster.disk == {}


def test_who_knows_less_of_upgrades_than_the_record_does_not_enter() -> None:
    both = side_by_side(rules("N"), rules("N", "M"), ("m",), 1)
    cluster = Cluster(both)
    assert cluster.keeper.record.upgrade == 1
    for upgrade, answers in ((0, 0), (1, 1), (2, 1)):
        assert len(cluster.say("N/1", Enter("N/1", "one", 0, both.fingerprint(), "", upgrade))) == answers
    later = Record(9, cluster.keeper.record.members, 2)
    cluster.say(STORE, RecordIs(later))
    assert cluster.say("N/1", Enter("N/1", "one", 0, both.fingerprint(), "", 1)) == [], "another keeper knows more"
    assert cluster.say("N/1", Enter("N/1", "one", 0, both.fingerprint(), "", 2)) != []


# ---- joining ---------------------------------------------------------------------------------------------------


def test_caught_up_is_granted_once_every_upstream_in_the_record_has_confirmed() -> None:
    cluster = entered()
    cluster.enter("N/1", "two")
    cluster.enter("src/1", "two")
    record = cluster.keeper.record
    refused = [("N/1", RecordIs(record))]
    for confirmed in ((), (("src/0", 1),), (("src/0", 1), ("src/1", 1)), (("src/1", 2), ("src/0", 2))):
        assert cluster.say("N/1", CaughtUp("N/1", 2, confirmed)) == refused
    whole = (("src/0", 1), ("src/1", 2))
    for replica, incarnation in (("N/1", 1), ("N/1", 3), ("N/2", 1), ("N/9", 1)):
        assert cluster.say("N/1", CaughtUp(replica, incarnation, whole)) == refused
    assert cluster.keeper.record is record
    told = cluster.say("N/1", CaughtUp("N/1", 2, (("x/0", 1), *whole)))
    assert cluster.standing("N/1") == (2, CAUGHT_UP)
    assert cluster.keeper.record.version == record.version + 1
    assert told == [(name, RecordIs(cluster.keeper.record)) for name in ALL]
    [(_, again)] = cluster.say("N/1", Enter("N/1", "two", 0, cluster.topology.fingerprint()))
    assert (again.incarnation, again.founding) == (2, False), "its node did not begin with it"
    assert cluster.enter("N/1", "three", incarnation=2).founding is False


def test_the_record_is_told_to_who_has_an_older_one() -> None:
    cluster = entered()
    record = cluster.keeper.record
    for version, told in ((record.version - 1, True), (record.version, False), (record.version + 1, False)):
        assert cluster.say("N/1", ReadRecord(version)) == ([("N/1", RecordIs(record))] if told else [])
    newer = Record(record.version + 1, record.members)
    for sender, theirs in (("N/1", newer), (OPERATOR, newer), (STORE, record), (STORE, Record(1, {}))):
        assert cluster.say(sender, RecordIs(theirs)) == []
        assert cluster.keeper.record is record
    assert cluster.say(STORE, RecordIs(newer)) == [(name, RecordIs(newer)) for name in ALL]


# ---- eviction --------------------------------------------------------------------------------------------------


def test_an_operators_eviction_needs_the_word_of_one_that_remains_in_that_round() -> None:
    cluster = entered()
    cluster.enter("N/2", "joins")
    asked = cluster.say(OPERATOR, Evict("N/1"))
    number = asked[0][1].round
    assert asked == [("N/0", AskConfirmation(number, "N/1"))], "who joins has nothing yet"
    for sender, message in (
        ("N/0", Confirmation("of another round", "N/1", 1)),
        ("N/0", Confirmation(number, "N/0", 1)),
        ("N/0", Confirmation(number, "N/1", 2)),
        ("N/2", Confirmation(number, "N/1", 2)),
        ("src/0", Confirmation(number, "N/1", 1)),
        ("N/1", Confirmation(number, "N/1", 1)),
    ):
        assert cluster.say(sender, message) == []
        assert cluster.standing("N/1") == (1, CAUGHT_UP)
    effects = cluster.keeper.handle("N/0", Confirmation(number, "N/1", 1), 0)
    assert effects[0] == Report("correlation.evicted", "N/1: N/0 remains")
    assert [type(effect) for effect in effects[1:]] == [Persist] + [Send] * len(ALL)
    assert cluster.keeper.record.members["N/1"] == Member(1, GONE, "token of N/1")
    assert cluster.say("N/0", Confirmation(number, "N/1", 1)) == []
    assert cluster.say(OPERATOR, Evict("N/1")) == cluster.say(OPERATOR, Evict("X/1")) == []
    assert cluster.say("N/0", Evict("N/2")) == [], "never an upstream's or a peer's"
    for name in ("N/1", "X/1"):
        with pytest.raises(CallerError, match=f"{name} is not in the membership record; it cannot be evicted"):
            cluster.keeper.evict(name, 0)


def test_an_eviction_that_nobody_confirms_in_time_is_given_up() -> None:
    cluster = entered()
    [(_, ask), _] = cluster.say(OPERATOR, Evict("N/1"))
    cluster.tick(CONFIG.eviction_us - 1)
    assert list(cluster.keeper.rounds) == ["N/1"]
    cluster.tick(CONFIG.eviction_us)
    assert cluster.say("N/0", Confirmation(ask.round, "N/1", 1)) == []
    assert cluster.standing("N/1") == (1, CAUGHT_UP)


def heard(cluster: Cluster, now: int, *silent: str) -> list[Any]:
    """Everybody else speaks, and the keeper looks around: whom it asks about whom."""
    cluster.now = now
    for name in cluster.keeper.record.members:
        if name not in silent:
            cluster.say(name, ReadRecord(1 << 40))
    return [(to, message.replica) for to, message in cluster.tick(now) if isinstance(message, AskConfirmation)]


def until(cluster: Cluster, end_us: int, *silent: str, begin_us: int = 0) -> None:
    for now in range(begin_us, end_us, CONFIG.eviction_us):
        assert heard(cluster, now, *silent) == []


def test_silence_counts_from_its_bound_on_and_only_of_who_has_entered_and_is_waited_for_by_nodes() -> None:
    cluster, after_us = entered(), CONFIG.evict_after_us
    until(cluster, after_us, "N/1", "app/0", "src/1")
    assert heard(cluster, after_us - 1, "N/1", "app/0", "src/1") == []
    asked = heard(cluster, after_us, "N/1", "app/0", "src/1")
    assert asked == [("src/0", "src/1"), ("N/0", "N/1"), ("N/2", "N/1")], "an application that stands alone comes back"
    assert heard(cluster, after_us, "N/1", "src/1") == [], "each is asked for once in a round"
    effects = cluster.keeper.handle("N/0", Confirmation(cluster.keeper.rounds["N/1"].number, "N/1", 1), after_us)
    assert effects[0] == Report("correlation.evicted", "N/1: it was silent, and N/0 remains")
    assert cluster.keeper.record.members["N/1"] == Member(1, GONE, "token of N/1", lost=True)
    cluster.say("src/1", ReadRecord(1 << 40))
    assert list(cluster.keeper.rounds) == [], "a word ends it"
    fresh = Cluster(rules("N"))
    until(fresh, 2 * after_us, *ALL)


def test_who_is_waited_for_goes_after_a_shorter_silence() -> None:
    cluster, full_us = entered(), CONFIG.evict_full_us
    until(cluster, full_us - 1, "N/1")
    heard(cluster, full_us - 1, "N/1")
    waits = WaitsFor(("N/1", "N/0", "app/0", "X/0"))
    cluster.now = full_us - 1
    assert cluster.say("src/0", waits) == []
    cluster.now = full_us
    asked = cluster.say("src/0", waits)
    assert [(to, message.replica) for to, message in asked] == [("N/0", "N/1"), ("N/2", "N/1")]
    fresh = Cluster(rules("N"))
    until(fresh, CONFIG.evict_after_us - 1, "N/1")
    fresh.now = CONFIG.evict_after_us - 1
    heard(fresh, fresh.now, "N/1")
    assert fresh.say("src/0", waits) == [], "one that never came is given the longer time"
    fresh.now = CONFIG.evict_after_us
    assert [message.replica for _, message in fresh.say("src/0", waits)] == ["N/1", "N/1"]


def test_a_keeper_that_was_away_begins_to_listen_anew() -> None:
    eviction_us, full_us = CONFIG.eviction_us, CONFIG.evict_full_us
    waits = WaitsFor(("N/1",))
    for away_us, asked in ((eviction_us, 2), (eviction_us + 1, 0)):
        cluster = entered()
        until(cluster, 2 * eviction_us, "N/1")
        back_us = cluster.now = eviction_us + away_us
        assert len(cluster.say("src/0", waits)) == asked, "its word may lie in the inbox, behind this one"
        cluster.tick(back_us)
        assert ("N/1" in cluster.keeper.rounds) is bool(asked)
    cluster.tick(back_us + eviction_us)
    for silent_us, asked in ((full_us - 1, 0), (full_us, 2)):
        cluster.now = back_us + silent_us
        assert len(cluster.say("src/0", waits)) == asked
    off = entered(evict_after_us=0)
    until(off, 3 * CONFIG.evict_after_us, "N/1")
    assert off.say("src/0", WaitsFor(("N/1",))) == []


def test_a_keeper_looks_around_at_intervals() -> None:
    cluster = Cluster(rules("N"), start=False)
    every_us = CONFIG.eviction_us // 4
    assert cluster.keeper.start(70) == [SetTimer("membership", 70 + every_us)]
    assert cluster.keeper.timer("membership", 90) == [SetTimer("membership", 90 + every_us)]


def test_a_watcher_asks_at_intervals_for_what_is_newer() -> None:
    watcher = Watcher(CONFIG)
    poll = [SetTimer("watch", 5 + CONFIG.record_poll_us), Send(MEMBERSHIP, ReadRecord(0))]
    assert watcher.start(5) == poll
    record = rules("N").founding()
    assert watcher.handle(MEMBERSHIP, RecordIs(record), 5) == []
    assert watcher.timer("watch", 6)[1] == Send(MEMBERSHIP, ReadRecord(1))
    watcher.handle(MEMBERSHIP, RecordIs(Record(1, {})), 5)
    assert watcher.record is record, "not newer"
    assert watcher.handle("x", ReadRecord(0), 5) == []


# ---- upgrades --------------------------------------------------------------------------------------------------


def test_an_upgrade_is_ready_once_all_know_its_nodes_and_those_that_came_are_caught_up() -> None:
    cluster = entered()
    old, both = cluster.topology, side_by_side(cluster.topology, rules("N", "M"), ("m",), 1)
    assert cluster.say("N/0", Rearrange(both)) == [], "an operator's word alone"
    told = cluster.say(OPERATOR, Rearrange(both))
    record = cluster.keeper.record
    assert (record.upgrade, told) == (1, [(name, RecordIs(record)) for name in ALL])
    assert cluster.say(OPERATOR, Rearrange(both)) == cluster.say(OPERATOR, Rearrange(old)) == [], "it is done"
    assert cluster.keeper.topology is both
    for number in range(3):
        assert not cluster.keeper.is_ready()
        cluster.enter(f"M-1/{number}", "one", upgrade=1)
        assert cluster.standing(f"M-1/{number}") == (2, JOINING)
        confirmed = (("src/0", 1), ("src/1", 1))
        cluster.say(f"M-1/{number}", ReadRecord(0, 2, 1, passed=True))
        cluster.say(f"M-1/{number}", CaughtUp(f"M-1/{number}", 2, confirmed))
    for name in ALL:
        assert not cluster.keeper.is_ready()
        cluster.say(name, ReadRecord(0, 1, 0, passed=True))
        assert not cluster.keeper.is_ready(), "it has not heard of them"
        cluster.say(name, ReadRecord(0, 1, 1, passed=False))
    assert cluster.keeper.is_ready()
    for name in ALL:
        assert not cluster.keeper.has_passed()
        cluster.say(name, ReadRecord(0, 1, 1, passed=True))
    assert cluster.keeper.has_passed()
    cluster.say("N/0", ReadRecord(0, 2, 1, passed=True))
    assert not cluster.keeper.is_ready(), "the word of another incarnation"
    cluster.say("N/0", ReadRecord(0, 1, 1, passed=True))
    cluster.say("x/0", ReadRecord(0, 1, 0))
    assert cluster.keeper.is_ready()


def test_an_upgrade_is_ready_no_sooner_than_each_node_that_came_has_all_its_replicas() -> None:
    both = side_by_side(rules("N"), rules("N", "M"), ("m",), 1)
    assert not Cluster(both, start=False).keeper.is_ready(), "the record is one of before: others may still enter"
    cluster = Cluster(rules("N"))
    cluster.say(OPERATOR, Rearrange(both))
    for name in ALL:
        cluster.say(name, ReadRecord(0, 1, 1))
    for number in range(3):
        assert not cluster.keeper.is_ready()
        name = f"M-1/{number}"
        cluster.enter(name, "one", upgrade=1)
        cluster.say(name, ReadRecord(0, 2, 1))
        cluster.say(name, CaughtUp(name, 2, (("src/0", 1), ("src/1", 1))))
    assert cluster.keeper.is_ready()


def test_who_is_asked_for_nothing_any_more_need_not_pass_and_goes_from_the_record() -> None:
    cluster = entered("N", "M")
    both = side_by_side(cluster.topology, rules("N"), (), 1)
    cluster.say(OPERATOR, Evict("M/0"))
    cluster.say(OPERATOR, Rearrange(both))
    for name in cluster.keeper.record.members:
        cluster.say(name, ReadRecord(0, 1, 1, passed=not name.startswith("M")))
    assert cluster.keeper.has_passed(), "M itself goes"
    assert cluster.keeper.is_ready()
    assert list(cluster.keeper.rounds) == ["M/0"]
    later = alone(both, 5)
    cluster.say(OPERATOR, Rearrange(later))
    assert [cluster.standing(f"M/{number}") for number in range(3)] == [(1, GONE)] * 3
    assert all(cluster.standing(name) == (1, CAUGHT_UP) for name in ALL)
    assert cluster.keeper.rounds == {}, "nobody is left to be asked for it"


def test_sources_and_applications_that_come_stand_in_the_record_at_once_and_replicas_as_they_enter() -> None:
    """A source reads the log from its beginning, and so do its peers: there is no state to catch up with."""
    old, new = rules("N"), rules("N", "M")
    source = NodeSpec("more", Role.SOURCE, outputs=("z",), f=1)
    top = NodeSpec("new_app", Role.APPLICATION, ("m",))
    new = msgspec.structs.replace(new, nodes=(*new.nodes, source, top), streams=(*new.streams, schema("z")))
    both = side_by_side(old, new, ("m",), 1)
    both = msgspec.structs.replace(both, nodes=(*both.nodes, top))
    cluster = Cluster(both, start=False)
    kept = msgspec.structs.replace(old.founding(), version=7)
    cluster.keeper.record = kept
    effects = cluster.keeper.start(0)
    assert [type(effect) for effect in effects[:2]] == [SetTimer, Persist]
    come = {"more/0", "more/1", "new_app/0"}
    assert set(cluster.keeper.record.members) == {*ALL, *come}
    assert (cluster.keeper.record.version, cluster.keeper.record.upgrade) == (8, 1)
    assert {cluster.keeper.record.members[name] for name in come} == {Member(1, CAUGHT_UP)}
    assert list(cluster.keeper.record.members) == sorted(cluster.keeper.record.members)
    other = Cluster(both, start=False)
    other.keeper.record = Record(9, kept.members, 2)
    assert [type(effect) for effect in other.keeper.start(0)] == [SetTimer], "another keeper knows later nodes"
    assert not other.keeper.is_ready() or other.keeper.record.upgrade == 2
