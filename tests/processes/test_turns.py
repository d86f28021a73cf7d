"""The very moments of a limiter: for how long each is sent away, and when somebody's turn is somebody else's."""

from __future__ import annotations

from typing import Any

import pytest

from unerring.model import MILLISECOND_US, SECOND_US, ConfigError, InvariantBreach
from unerring.processes import Limiter, Limits
from unerring.processes.flow import EXACT_US, HELD_US, KEPT_US, KEYS_MIN, PAUSED_US, SOON_US, WAIT_US_MAX, WAIT_US_MIN

MEAN_US = 100 * MILLISECOND_US
"""What a request takes, as long as none has ended."""


class Gate:
    """One limiter; who asks is its own place."""

    def __init__(self, **limits: Any) -> None:
        self.limiter = Limiter(Limits(**limits))

    def ask(self, id: str, now: int, key: str = "", urgency: int = 0) -> int:
        return self.limiter.ask(id, id, key, urgency, now)

    def end(self, id: str, now: int, failed: bool = False) -> None:
        self.limiter.end(id, failed, now)


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_who_waits_behind_more_comes_back_later(at_once: int) -> None:
    """About when it is its turn; far from it, after half of that time, since some before it may be dead."""
    gate = Gate(at_once=at_once)
    assert [gate.ask(f"begun{number}", 0) for number in range(at_once)] == [0] * at_once
    times_us = [MEAN_US * (rank + 1) // at_once for rank in range(12)]
    told = [gate.ask(f"i{rank}", 0, key="ab"[rank % 2]) for rank in range(12)]
    assert told == [max(time_us // 2, min(time_us, EXACT_US)) for time_us in times_us]
    assert gate.ask("i0", 0) == told[0], "it keeps its place"
    assert (gate.limiter.waiting, len(gate.limiter.open)) == (12, at_once)


def test_it_learns_how_long_requests_take() -> None:
    gate = Gate(at_once=1)
    gate.ask("a", 0)
    gate.end("a", 900_000)
    gate.ask("b", 900_000)
    assert gate.ask("c", 900_000) == (7 * MEAN_US + 900_000) // 8 == 200_000
    gate.end("b", 900_000 + 100 * SECOND_US)
    mean_us = (7 * 200_000 + WAIT_US_MAX) // 8
    now = 101 * SECOND_US
    assert [gate.ask("d", now), gate.ask("e", now)] == [0, mean_us // 2], "one that took so long may be dead"


def test_nobody_is_sent_away_for_ever_or_for_no_time() -> None:
    gate = Gate(at_once=1)
    for number in range(200):
        assert gate.ask(f"quick{number}", 0) == 0
        gate.end(f"quick{number}", 0)
    gate.ask("a", 0)
    told = [gate.ask(f"i{rank}", 0) for rank in range(101)]
    for rank in (0, 1, 5, 6, 50, 100):
        assert told[rank] == max(rank * 2 * MILLISECOND_US, WAIT_US_MIN), rank
    slow = Gate(at_once=1)
    slow.ask("a", 0)
    assert [slow.ask(f"i{rank}", 0) for rank in range(300)][-1] == WAIT_US_MAX


def test_a_rate_says_when_the_second_before_is_over() -> None:
    gate = Gate(per_second=2)
    assert [gate.ask("a", 0), gate.ask("b", 300_000)] == [0, 0]
    waits_us = [150_000, 450_000, 1_150_000, 1_450_000, 2_150_000]
    told = [gate.ask(f"i{rank}", 850_000) for rank in range(5)]
    assert told == [max(wait_us // 2, min(wait_us, EXACT_US)) for wait_us in waits_us]
    gate = Gate(per_second=1)
    gate.ask("a", 5)
    gate.end("a", 5)
    assert gate.ask("b", 5 + SECOND_US - 1) == WAIT_US_MIN
    assert gate.ask("b", 5 + SECOND_US) == 0


def test_a_rate_that_is_not_used_up_yet_is_for_those_who_come_first() -> None:
    gate = Gate(at_once=1, per_second=3)
    gate.ask("a", 0)
    waits_us = [100_000, 200_000, 600_000, 1_000_000, 1_000_000, 1_600_000]
    told = [gate.ask(f"i{rank}", 400_000) for rank in range(6)]
    assert told == [max(wait_us // 2, min(wait_us, EXACT_US)) for wait_us in waits_us]


def test_of_a_key_no_more_are_waited_for_than_may_begin() -> None:
    gate = Gate(at_once=2, key_at_once=1, shares={"b": 0.1})
    for id, key in (("x", "x"), ("y", "y"), ("a1", "a"), ("a2", "a"), ("b", "b")):
        gate.ask(id, 0, key)
    due_us = 2 * MEAN_US
    assert gate.ask("a1", due_us - MEAN_US // 2, "a") == MEAN_US // 2, "both of one key come at the same time"
    gate.end("x", due_us)
    gate.end("y", due_us)
    assert gate.ask("b", due_us, "b") == 0, "one of them has to wait for the other"


def test_a_key_has_limits_of_its_own_and_holds_up_nobody_else() -> None:
    gate = Gate(at_once=3, key_at_once=1, key_per_second=2)
    assert gate.ask("a1", 0, "a") == 0
    assert gate.ask("a2", 0, "a") == HELD_US, "it waits for the one of its key"
    assert gate.ask("a3", 0, "a") == HELD_US
    assert gate.ask("b1", 0, "b") == 0
    gate.end("a1", 10)
    assert gate.ask("a2", 10, "a") == 0
    gate.end("a2", 20)
    assert gate.ask("a3", 900_000, "a") == HELD_US, "two of its key in this second"
    assert gate.ask("b2", 900_000, "b") > 0
    gate.end("b1", 900_000)
    assert gate.ask("b2", 900_000, "b") == 0
    assert gate.ask("a3", SECOND_US, "a") == 0
    full = Gate(at_once=1, key_per_second=1, key_at_once=1)
    full.ask("a1", 0, "a")
    full.end("a1", 0)
    full.ask("b1", 20, "b")
    assert full.ask("a2", 850_000, "a") == 150_000, "its key lets nobody in before"
    assert full.ask("b2", 850_000, "b") == 2 * 87_500, "one is before it, of another key"


@pytest.mark.parametrize("key", ["", "other"])
def test_something_is_held_for_who_should_come_now(key: str) -> None:
    """From a little before its time until it is late; meanwhile the one behind it waits."""
    for now, begins in (
        (MEAN_US - SOON_US - 1, True),
        (MEAN_US - SOON_US, False),
        (MEAN_US + HELD_US, False),
        (MEAN_US + HELD_US + 1, True),
    ):
        gate = Gate(at_once=1, shares={"other": 0.1})
        gate.ask("a", 0)
        assert gate.ask("first", 0) == MEAN_US
        gate.end("a", 1)
        assert gate.ask("second", now, key) == (0 if begins else HELD_US), now
        assert gate.limiter.waiting == (1 if begins else 2)
        if not begins:
            assert gate.ask("first", now) == 0


def test_there_may_be_room_for_both() -> None:
    gate = Gate(at_once=2, shares={"x": 0.1})
    gate.ask("a", 0)
    gate.ask("b", 0)
    told_us = [gate.ask(id, 0, key) for id, key in (("c", ""), ("d", ""), ("e", "x"))]
    assert told_us == [MEAN_US // 2, MEAN_US, 3 * MEAN_US // 2]
    gate.end("a", 1)
    gate.end("b", 1)
    assert gate.ask("d", MEAN_US // 2) == 0, "only one is before it"
    assert gate.ask("e", MEAN_US // 2, "x") == HELD_US, "what is left is for the first"
    assert gate.ask("c", MEAN_US // 2) == 0


def test_who_is_late_keeps_its_place_for_a_while() -> None:
    for late_us, lost in ((KEPT_US - 1, 0), (KEPT_US, 1)):
        gate = Gate(at_once=1)
        gate.ask("a", 0)
        assert gate.ask("b", 0) == MEAN_US
        assert gate.ask("c", 0) == 2 * MEAN_US
        gate.ask("d", MEAN_US + late_us)
        assert gate.limiter.waiting == 3 - lost
    gate = Gate(at_once=1)
    gate.ask("a", 0)
    gate.ask("b", 0)
    assert gate.ask("b", 50_000) == MEAN_US
    gate.ask("c", MEAN_US + KEPT_US)
    assert gate.limiter.waiting == 2, "it had come again"
    gate.ask("c", MEAN_US + KEPT_US + 50_000)
    assert gate.limiter.waiting == 1


def test_what_is_urgent_is_before_all_and_keys_take_turns_by_their_shares() -> None:
    gate = Gate(at_once=1, shares={"b": 2.0})
    gate.ask("a", 0)
    for number in range(4):
        gate.ask(f"a{number}", 0, "a")
    for number in range(4):
        gate.ask(f"b{number}", 0, "b")
    assert gate.ask("now", 0, "c", urgency=1) == MEAN_US, "nobody is before it"
    gate.end("a", 0)
    order = []
    while gate.limiter.waiting:
        # All come at once and as soon as they should: whoever's turn it is begins.
        for id in ["now", *(f"{key}{number}" for key in "ab" for number in range(4))]:
            if id in order:
                continue
            key = "c" if id == "now" else id[0]
            if gate.ask(id, len(order), key, int(id == "now")) == 0:
                order.append(id)
                gate.end(id, len(order) - 1)
    assert order[0] == "now"
    assert sorted(order) == sorted(["now", *(f"{key}{number}" for key in "ab" for number in range(4))])


def test_after_failures_in_a_row_it_is_left_alone_and_then_tried_by_one() -> None:
    gate = Gate(failures_max=2, failures_pause_s=0.5)
    for number, failed in enumerate((True, False, True, True)):
        assert gate.ask(f"i{number}", number) == 0
        assert gate.limiter.shut_until_us == 0
        gate.end(f"i{number}", number, failed)
    assert (gate.limiter.failures, gate.limiter.shut_until_us) == (2, 500_003)
    assert gate.ask("a", 3) == 500_000
    assert gate.ask("b", 500_002) == WAIT_US_MIN
    assert gate.ask("a", 500_003) == 0
    assert gate.ask("b", 500_003) == WAIT_US_MIN, "one shows whether it is well again"
    gate.end("a", 500_010, failed=True)
    assert gate.limiter.shut_until_us == 1_000_010
    gate.limiter.resume()
    assert (gate.limiter.failures, gate.limiter.shut_until_us) == (0, 0)
    assert [gate.ask("b", 500_011), gate.ask("c", 500_011)] == [0, 0]


def test_one_that_shows_whether_it_is_well_again_lets_the_others_in() -> None:
    gate = Gate(failures_max=1, failures_pause_s=0.001)
    gate.ask("a", 0)
    gate.end("a", 0, failed=True)
    assert [gate.ask("b", 1_000), gate.ask("c", 1_000)] == [0, WAIT_US_MIN]
    gate.end("b", 1_000)
    assert [gate.ask("c", 1_001), gate.ask("d", 1_001)] == [0, 0]


def test_a_paused_service_is_asked_for_once_a_second() -> None:
    gate = Gate()
    gate.limiter.paused = "for repairs"
    assert gate.ask("a", 0) == PAUSED_US
    gate.limiter.resume()
    assert (gate.limiter.paused, gate.ask("a", 1)) == ("", 0)
    with pytest.raises(InvariantBreach, match="not begun again"):
        gate.ask("a", 2)


@pytest.mark.parametrize(
    ("limits", "waits_us"), [({"per_second": 9}, SECOND_US), ({"key_per_second": 9}, SECOND_US), ({"at_once": 9}, 0)]
)
def test_after_a_restart_a_rate_is_kept_by_a_second_of_quiet(limits: dict[str, int], waits_us: int) -> None:
    gate = Gate(**limits)
    gate.limiter.quiet(7)
    assert gate.ask("a", 7) == waits_us
    if waits_us:
        assert gate.ask("a", 7 + SECOND_US) == 0


@pytest.mark.parametrize("name", ["at_once", "per_second", "key_at_once", "key_per_second", "failures_max"])
def test_the_bounds_of_limits(name: str) -> None:
    for value, fits in ((1, True), (1_000_000, True), (0, False), (1_000_001, False), (1.5, False)):
        check_limits({name: value}, fits)


def check_limits(limits: dict[str, Any], fits: bool) -> None:
    if fits:
        assert Limits(**limits)
    else:
        with pytest.raises(ConfigError, match=next(iter(limits))):
            Limits(**limits)


def test_the_bounds_of_shares_and_pauses() -> None:
    for share, fits in ((0.001, True), (1_000, True), (0.000_9, False), (1_000.1, False)):
        check_limits({"shares": {"a": share}}, fits)
    for pause_s, fits in ((0.001, True), (86_400, True), (0.000_9, False), (86_401, False)):
        check_limits({"failures_pause_s": pause_s}, fits)


def test_keys_of_which_nothing_is_left_are_forgotten_and_the_others_keep_their_limits() -> None:
    """Each that is kept is looked at whenever somebody asks."""
    gate = Gate(key_per_second=1, key_at_once=2)
    gate.ask("busy", 0, "busy")
    gate.ask("idle", 0, "idle")
    gate.end("idle", 0)
    now = 0
    for number in range(2_500):
        now += 2 * MILLISECOND_US
        assert gate.ask(f"i{number}", now, f"key{number}") == 0
        gate.end(f"i{number}", now)
        assert len(gate.limiter._keys) <= 2 * KEYS_MIN
    assert gate.ask("again", now, "key2499") > 0, "it was begun in this second"
    assert gate.ask("other", now, "busy") == 0
    assert gate.ask("third", now + 2 * SECOND_US, "busy") > 0, "two of its key are being carried out"
    gate.end("busy", now)
    assert gate.ask("third", now + 2 * SECOND_US, "busy") == 0
