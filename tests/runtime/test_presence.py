"""Whose turn it is, as each host sees it."""

from __future__ import annotations

from unerring.runtime.live.presence import SETTLED_S, SILENT_S, Presence


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_the_first_hosts_of_the_list_have_their_turn_while_they_are_heard() -> None:
    clock = Clock()
    last = Presence("abc", "c", clock)
    assert not last.is_turn(1, on=False), "all are there until it has listened for a while"
    assert not last.is_turn(2, on=False)
    assert last.is_turn(3, on=False)
    clock.now_s += SILENT_S + 0.1
    last.hear("a")
    assert last.is_turn(2, on=False), "b was never heard"
    assert not last.is_turn(1, on=False)
    clock.now_s += SILENT_S + 0.1
    assert last.is_turn(1, on=False), "nor a, for a while"


def test_one_that_stood_in_goes_on_until_the_other_has_been_back_for_a_while() -> None:
    clock = Clock()
    second = Presence("ab", "b", clock)
    clock.now_s += SILENT_S + 1
    assert second.is_turn(1, on=False)
    for _ in range(int(SETTLED_S)):
        second.hear("a")
        assert second.is_turn(1, on=True)
        clock.now_s += 1
    second.hear("a")
    assert not second.is_turn(1, on=True)
    clock.now_s += SILENT_S + 1
    second.hear("a")
    assert second.is_turn(1, on=True), "it was away again: its time begins anew"


def test_only_some_hosts_may_be_able_to_do_something() -> None:
    clock = Clock()
    assert Presence("abc", "b", clock).is_turn(1, on=False, among=["b", "c"])
    assert not Presence("abc", "a", clock).is_turn(1, on=False, among=["b", "c"])
