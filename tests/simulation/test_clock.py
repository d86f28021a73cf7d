"""Clocks and timers: monotonic, never early, each node its own; pauses, jumps and drift."""

from __future__ import annotations

from random import Random

import recorder
from hypothesis import given, strategies as st

from unerring.model import CancelTimer, Effects, SetTimer
from unerring.simulation import KINDS, ClockDrift, ClockJump, Crash, Pause, World, calm, draw_faults, inject

SECOND_US = 1_000_000


def set_timer(on: World, name: str, after_us: int) -> None:
    assert on.call("a", "do", [SetTimer(name, on.node_now_us("a") + after_us)])


def test_a_timer_comes_at_its_time_and_once() -> None:
    on = World(1)
    a = recorder.add(on, "a")
    on.run_until(0)
    start = on.node_now_us("a")
    set_timer(on, "t", 500)
    on.run_until(SECOND_US)
    assert a[0].got[1:] == [("timer", "t", start + 500)]


def test_setting_a_name_again_replaces_it_sooner_and_later_and_cancelling_ends_it() -> None:
    on = World(1)
    a = recorder.add(on, "a")
    on.run_until(0)
    start = on.node_now_us("a")
    for after_us in (500, 900, 300, 700):
        set_timer(on, "t", after_us)
    set_timer(on, "u", 400)
    set_timer(on, "v", 450)
    on.call("a", "do", [CancelTimer("u"), CancelTimer("v"), CancelTimer("never set")])
    set_timer(on, "v", 460)
    on.run_until(SECOND_US)
    assert a[0].got[1:] == [("timer", "v", start + 460), ("timer", "t", start + 700)]


def test_a_timer_of_the_past_comes_at_once() -> None:
    on = World(1)
    a = recorder.add(on, "a")
    on.run_until(100)
    set_timer(on, "t", -50)
    on.run_until(100)
    assert [what for what, _, _ in a[0].got] == ["start", "timer"]


def test_clocks_differ_between_nodes_and_begin_anew_at_a_restart() -> None:
    on = World(1)
    for name in "abc":
        recorder.add(on, name)
    on.run_until(10)
    clocks = [on.node_now_us(name) for name in "abc"]
    on.crash("a")
    on.start("a")
    assert len({*clocks, on.node_now_us("a")}) == 4


def test_timers_of_an_earlier_life_never_come() -> None:
    on = World(1)
    a = recorder.add(on, "a")
    on.run_until(0)
    set_timer(on, "t", 500)
    on.crash("a")
    on.start("a")
    on.run_until(SECOND_US)
    assert [what for what, _, _ in a[1].got] == ["start"]


def test_a_pause_delays_timers_and_a_jump_brings_them() -> None:
    on = World(1)
    a = recorder.add(on, "a")
    inject(on, [Pause(at_us=10, node="a", for_us=1_000), ClockJump(at_us=3_000, node="a", ahead_us=SECOND_US)])
    on.run_until(0)
    start = on.node_now_us("a")
    set_timer(on, "paused", 500)
    set_timer(on, "jumped", SECOND_US)
    on.run_until(4_000)
    assert a[0].got[1:] == [("timer", "paused", start + 1_010), ("timer", "jumped", start + 3_000 + SECOND_US)]


def test_drift_changes_when_a_timer_comes() -> None:
    for ppm, world_us in ((100_000, 909_091), (-100_000, 1_111_112)):
        on = World(1)
        a = recorder.add(on, "a")
        inject(on, [ClockDrift(at_us=0, node="a", for_us=10 * SECOND_US, ppm=ppm)])
        on.run_until(0)
        set_timer(on, "t", SECOND_US)
        on.run_until(world_us - 1)
        assert len(a[0].got) == 1
        on.run_until(world_us)
        assert len(a[0].got) == 2


@given(st.integers(0, 10_000))
def test_whatever_happens_clocks_are_monotonic_and_timers_not_early(seed: int) -> None:
    on = World(seed)
    draw = Random(seed)
    dues: list[dict[str, int]] = []

    def react(what: str, value: object, now: int) -> Effects:
        if what == "start":
            dues.append({})
        elif what == "timer":
            assert dues[-1].pop(str(value)) <= now
        name, due = f"t{draw.randrange(3)}", now + draw.randrange(50_000)
        dues[-1][name] = due
        return [SetTimer(name, due)]

    lives = recorder.add(on, "a", react)
    kinds = [kind for kind in KINDS if kind in (ClockDrift, ClockJump, Crash, Pause)]
    inject(on, draw_faults(Random(seed), ["a"], 2 * SECOND_US, kinds))
    on.run_until(2 * SECOND_US)
    calm(on)
    on.run_until(3 * SECOND_US)
    assert not on.broken
    for life in lives:
        times = [now for _, _, now in life.got]
        assert times == sorted(times)
    assert len(lives[-1].got) > 10  # Each timer sets another: they never die out.
