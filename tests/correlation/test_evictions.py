"""The keeper evicts who is silent (section 9.4): never on that alone, and never two of each other's word."""

from __future__ import annotations

from typing import Any

import pytest

from tests.correlation.table import Table, line
from tests.correlation.test_interleavings import ends_perfect
from unerring.correlation import MEMBERSHIP, STORE, CorrelationConfig, Record, RecordIs, Standing, Watcher
from unerring.correlation.messages import AskConfirmation, Confirmation, ReadRecord, WaitsFor
from unerring.model import ConfigError, ProtocolError

SECOND = 1_000_000
AFTER_US = CorrelationConfig().evict_after_us


def started(f: int = 1, **bounds: int) -> Table:
    table = Table(line(2, f), CorrelationConfig(**bounds))
    table.run(SECOND, 50_000)
    return table


def standing(table: Table, name: str) -> Standing:
    return Standing(table.record().members[name].standing)


def test_who_is_silent_is_evicted_and_nobody_waits_for_it() -> None:
    table = started()
    table.crash("N1/1")
    table.publish(10, 20, 30)
    table.run(AFTER_US - 2 * SECOND, 50_000)
    queue = table.machines["src/0"].outgoing.queues["a"]
    assert standing(table, "N1/1") is Standing.CAUGHT_UP
    assert len(queue) == 3, "it may come back and need them"
    table.run(5 * SECOND, 50_000)
    assert standing(table, "N1/1") is Standing.GONE
    assert len(queue) == 0
    ends_perfect(table, [10, 20, 30], "s2")


def test_the_last_one_stays_whatever_its_silence() -> None:
    """Nobody is left to confirm: the record keeps it, and it goes on when it can speak again."""
    table = started()
    table.crash("N2/1")
    for name in ("N2/0", "N2/1"):
        table.cut(name, MEMBERSHIP)
    table.publish(10, 20, 30)
    table.run(2 * AFTER_US, 100_000)
    assert [standing(table, name) for name in ("N2/0", "N2/1")] == [Standing.CAUGHT_UP] * 2
    table.heal()
    table.run(3 * SECOND, 50_000)
    assert [standing(table, name) for name in ("N2/0", "N2/1")] == [Standing.CAUGHT_UP, Standing.GONE]
    ends_perfect(table, [10, 20, 30], "s2")


def test_two_that_are_silent_do_not_confirm_each_other() -> None:
    """Both are to be evicted: what one says of the other in that round comes from one that does not remain."""
    table = started()
    for name in ("N2/0", "N2/1"):
        table.cut(name, MEMBERSHIP, both=False)
    table.run(AFTER_US + SECOND, 50_000)
    keeper = table.machines[MEMBERSHIP]
    assert set(keeper.rounds) == {"N2/0", "N2/1"}
    for one, other in (("N2/0", "N2/1"), ("N2/1", "N2/0")):
        number = keeper.rounds[other].number
        keeper.rounds[one].silent = False  # an operator's command is not taken back by a word
        assert keeper.handle(one, Confirmation(number, other, 1), table.now) == []
    assert [standing(table, name) for name in ("N2/0", "N2/1")] == [Standing.CAUGHT_UP] * 2


def test_a_word_of_the_silent_ends_its_eviction() -> None:
    table = started()
    table.cut("N2/1", MEMBERSHIP, both=False)
    table.cut("N2/0", MEMBERSHIP, both=False)
    table.run(AFTER_US + SECOND, 50_000)
    keeper = table.machines[MEMBERSHIP]
    number = keeper.rounds["N2/1"].number
    keeper.handle("N2/1", ReadRecord(0), table.now)
    assert "N2/1" not in keeper.rounds
    keeper.handle("N2/0", ReadRecord(0), table.now)
    keeper.handle("N2/0", Confirmation(number, "N2/1", 1), table.now)
    assert standing(table, "N2/1") is Standing.CAUGHT_UP


def test_a_keeper_that_was_away_itself_listens_first() -> None:
    """Stopped for a minute, it finds everybody's words of that time in its inbox, behind its timer."""
    table = started()
    keeper = table.machines[MEMBERSHIP]
    later = table.now + 60 * SECOND
    sent = keeper.timer("membership", later)
    assert [effect for effect in sent if isinstance(getattr(effect, "message", None), AskConfirmation)] == []
    keeper = started().machines[MEMBERSHIP]
    assert keeper.handle("src/0", WaitsFor(("N1/0",)), later) == []


def test_an_evicted_replica_that_comes_back_joins_anew() -> None:
    table = started()
    table.publish(10, 20)
    table.cut("N2/1", MEMBERSHIP)
    table.run(AFTER_US + 3 * SECOND, 50_000)
    assert standing(table, "N2/1") is Standing.GONE
    table.publish(30, 40)
    table.run(SECOND, 50_000)
    table.heal()
    table.run(5 * SECOND, 50_000)
    assert table.caught_up("N2/0", "N2/1")
    assert table.machines["N2/1"].incarnation == 2
    ends_perfect(table, [10, 20, 30, 40], "s2")


def test_a_full_queue_does_not_wait_that_long() -> None:
    """The upstream says for whom it waits; that one's silence towards the keeper decides."""
    table = started(outgoing_events_max=8)
    config = table.config
    table.crash("N1/1")
    times = list(range(10, 400, 10))
    for time in times:
        table.run_until(lambda: not table.machines["src/0"].full, within_us=config.evict_full_us + 10 * SECOND)
        table.publish(time)
    assert standing(table, "N1/1") is Standing.GONE
    assert table.now < config.evict_after_us
    assert table.caught_up("N1/0")
    ends_perfect(table, times, "s2")


def test_a_founding_member_that_never_came_goes_only_if_somebody_waits_for_it() -> None:
    """A run starts as slowly as its slowest process, and on several hosts people start it."""
    table = Table(line(1, 1), CorrelationConfig(outgoing_events_max=8))
    table.crash("N1/1")
    table.waiting.clear()
    table.run(2 * AFTER_US, 100_000)
    assert standing(table, "N1/1") is Standing.CAUGHT_UP
    for time in range(10, 90, 10):
        table.publish(time)
    assert table.machines["src/0"].full
    table.run_until(lambda: not table.machines["src/0"].full)
    assert standing(table, "N1/1") is Standing.GONE


def test_one_that_is_slow_and_speaks_is_waited_for() -> None:
    table = started(outgoing_events_max=8)
    table.cut("src/0", "N1/1", both=False)
    for time in range(10, 400, 10):
        if not table.machines["src/0"].full:
            table.publish(time)
        table.run(SECOND // 2, 50_000)
    assert table.machines["src/0"].full
    assert standing(table, "N1/1") is Standing.CAUGHT_UP


def test_off_means_that_only_an_operator_evicts() -> None:
    table = started(evict_after_us=0, outgoing_events_max=8)
    table.crash("N2/1")
    for time in range(10, 400, 10):
        if not table.machines["src/0"].full:
            table.publish(time)
        table.run(SECOND, 100_000)
    assert standing(table, "N2/1") is Standing.CAUGHT_UP
    table.call(MEMBERSHIP, "evict", "N2/1")
    table.run(SECOND, 50_000)
    assert standing(table, "N2/1") is Standing.GONE


def test_another_keeper_s_word_counts_as_the_replica_s() -> None:
    """Each host has a keeper, and a process enters at its own: the others learn of it from the store."""
    table = started()
    keeper = table.machines[MEMBERSHIP]
    table.cut("N2/1", MEMBERSHIP, both=False)
    table.run(AFTER_US - SECOND, 50_000)
    known = keeper.record
    member = known.members["N2/1"]
    newer = type(member)(2, Standing.JOINING, "another token")
    keeper.handle(STORE, RecordIs(Record(known.version + 1, {**known.members, "N2/1": newer})), table.now)
    table.run(2 * SECOND, 50_000)
    assert standing(table, "N2/1") is Standing.JOINING


def test_a_supervisor_elsewhere_reads_the_record() -> None:
    table = started()
    watcher = Watcher(table.config)
    question = next(effect.message for effect in watcher.start(0) if hasattr(effect, "message"))
    answer: Any = table.machines[MEMBERSHIP].handle("membership/b", question, table.now)[0].message
    watcher.handle(MEMBERSHIP, answer, 0)
    assert watcher.record == table.record()
    watcher.handle(MEMBERSHIP, RecordIs(Record(1, {})), 0)
    assert watcher.record == table.record(), "older"
    with pytest.raises(ProtocolError, match="does not keep the membership record"):
        watcher.handle("N1/0", answer, 0)


def test_patience_below_two_polls_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least twice record_poll_us"):
        CorrelationConfig(evict_after_us=1_500_000)
    with pytest.raises(ConfigError, match="at least twice record_poll_us"):
        CorrelationConfig(evict_full_us=1_500_000)
