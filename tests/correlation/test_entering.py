"""Entering the record: one token for each start of a process, asked for again until somebody answers."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from tests.correlation.table import line
from unerring.correlation.entering import Entering
from unerring.correlation.journal import Journal
from unerring.correlation.messages import MEMBERSHIP, Challenge, Enter, Entered, Refused
from unerring.correlation.record import Member, Record, Standing
from unerring.correlation.snapshot import Snapshot
from unerring.matching import MergeState
from unerring.model import Connected, Effects, Persist, ProtocolError, Send, Stop

RETRY_US = 100
EMPTY = Snapshot((), MergeState(0, ()), b"", (), (), ())


def entering(journal: Journal | None = None, seed: int = 1) -> Entering:
    return Entering("N1/0", line(), Random(seed), journal, RETRY_US)


def enter(token: str, incarnation: int = 0, nonce: str = "", upgrade: int = 0) -> Effects:
    return [Send(MEMBERSHIP, Enter("N1/0", token, incarnation, line().fingerprint(), nonce, upgrade))]


def test_it_asks_again_after_a_pause_under_the_same_token() -> None:
    machine = entering()
    first = machine.begin(1_000)
    assert machine.token
    assert first == enter(machine.token)
    assert machine.tick(1_000 + RETRY_US - 1) == []
    assert machine.tick(1_000 + RETRY_US) == first
    assert machine.tick(1_000 + 2 * RETRY_US - 1) == [], "the pause begins again"
    assert machine.hear(Connected(MEMBERSHIP, 0), 1_150) == first, "what was on the way may be lost"
    assert machine.tick(1_150 + RETRY_US - 1) == []
    machine.rearranged(msgspec.structs.replace(line(), upgrade=7))
    assert machine.tick(1_150 + RETRY_US) == enter(machine.token, upgrade=7)


def test_an_answer_counts_only_for_the_token_that_asked() -> None:
    machine = entering()
    machine.begin(0)
    token = machine.token
    assert machine.hear(Challenge(token, "a nonce"), 5) == enter(token, nonce="a nonce")
    assert machine.tick(5 + RETRY_US - 1) == [], "a nonce is an attempt, too"
    assert machine.hear(Refused(token, "other rules"), 6) == [Stop("other rules")]
    for other in (Challenge("old", "a nonce"), Refused("old", "no"), Connected("N1/1", 0), "hello"):
        assert machine.hear(other, 7) == []


def record(incarnation: int, name: str = "N1/0") -> Record:
    return Record(4, {name: Member(incarnation, Standing.JOINING, "t")})


def test_it_is_entered_by_a_record_that_has_it() -> None:
    machine = entering()
    machine.begin(0)
    answer = Entered(machine.token, 3, False, record(3))
    assert machine.entered(answer) is answer
    assert machine.entered(msgspec.structs.replace(answer, token="old")) is None
    assert machine.entered(Refused(machine.token, "no")) is None
    for wrong in (record(2), record(3, "N1/1")):
        with pytest.raises(ProtocolError, match="does not have N1/0 with incarnation 3"):
            machine.entered(msgspec.structs.replace(answer, record=wrong))


def test_each_incarnation_has_a_token_of_its_own() -> None:
    machine = entering()
    machine.begin(0)
    before = machine.token
    assert machine.anew(20) == enter(machine.token)
    assert machine.token != before
    assert machine.tick(20 + RETRY_US - 1) == []


def kept(disk: dict[str, bytes], effects: Effects) -> list[Any]:
    """Keep what is persisted; the rest."""
    for effect in effects:
        if isinstance(effect, Persist):
            disk.update(effect.puts)
    return [effect for effect in effects if not isinstance(effect, Persist)]


def test_a_token_is_on_disk_before_anybody_hears_it_and_lasts_until_there_is_a_state() -> None:
    """All replicas of a node may die between their first word and their first state: each comes back as the same."""
    disk: dict[str, bytes] = {}
    machine = entering(Journal(disk, 10))
    effects = machine.begin(0)
    assert [type(effect) for effect in effects] == [Persist, Send]
    assert kept(disk, effects) == enter(machine.token)
    again = entering(Journal(disk, 10), seed=2)
    assert again.begin(0) == enter(machine.token), "nothing is to be written"
    journal = Journal(disk, 10)
    kept(disk, journal.replace(3, EMPTY))
    later = entering(Journal(disk, 10), seed=3)
    effects = later.begin(0)
    assert [type(effect) for effect in effects] == [Persist, Send]
    assert later.token != machine.token, "another process goes on with the state"
    assert kept(disk, effects) == enter(later.token, incarnation=3)
    assert Journal(disk, 10).token == later.token
