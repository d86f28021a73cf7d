"""Fault schedules: data, drawn from a seed, within a budget; and all over when the calm begins."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
import recorder
from hypothesis import given, strategies as st

from unerring.model import ConfigError, Persist, Send
from unerring.simulation import (
    FOR_GOOD,
    KINDS,
    Aimed,
    Crash,
    FailedSync,
    Fault,
    FullDisk,
    Limit,
    LyingDisk,
    SlowDisk,
    World,
    calm,
    draw_aimed,
    draw_faults,
    inject,
)
from unerring.simulation.faults import AIMED, AnyFault, draw_rates

SECOND_US = 1_000_000
NODES = ["a", "b", "c", "d", "e"]


def test_the_same_seed_draws_the_same_schedule() -> None:
    assert draw_faults(Random(5), NODES, 60 * SECOND_US) == draw_faults(Random(5), NODES, 60 * SECOND_US)


def test_a_swarm_of_seeds_turns_each_kind_on_and_off() -> None:
    swarm = [{rate.kind for rate in draw_rates(Random(seed))} for seed in range(200)]
    for kind in KINDS:
        on = sum(kind.__name__ in rates for rates in swarm)
        assert 60 < on < 140
    assert LyingDisk.__name__ not in set().union(*swarm)
    assert len({frozenset(rates) for rates in swarm}) > 150


def test_every_kind_is_drawn_and_survives_a_round_trip() -> None:
    kinds = (*KINDS, LyingDisk)
    drawn = [fault for seed in range(30) for fault in draw_faults(Random(seed), NODES, 5 * SECOND_US, kinds)]
    assert {type(fault) for fault in drawn} == set(kinds)
    union = kinds[0]
    for kind in kinds[1:]:
        union |= kind  # type: ignore[assignment]
    for fault in drawn:
        assert msgspec.json.decode(msgspec.json.encode(fault), type=union) == fault


def test_aimed_faults_of_every_kind_are_drawn_and_survive_a_round_trip() -> None:
    drawn = [fault for seed in range(60) for fault in draw_aimed(Random(seed), NODES, ["Ask", "Told"], SECOND_US)]
    assert {fault.what for fault in drawn if isinstance(fault, Aimed)} == set(AIMED)
    assert {fault.message for fault in drawn if isinstance(fault, Aimed)} == {"Ask", "Told"}
    assert {fault.node for fault in drawn} == set(NODES)
    for fault in drawn:
        assert msgspec.json.decode(msgspec.json.encode(fault), type=AnyFault) == fault


def test_what_is_no_kind_of_fault_is_refused() -> None:
    on = World(1)
    recorder.add(on, "a")
    with pytest.raises(ConfigError, match="aims 'Flood'; it can be one of Crash"):
        inject(on, [Aimed(at_us=0, node="a", message="str", what="Flood")])
    with pytest.raises(ConfigError, match="Fault is not a kind of fault"):
        draw_faults(Random(1), NODES, SECOND_US, [Fault])
    with pytest.raises(ConfigError, match="no nodes"):
        draw_faults(Random(1), [], SECOND_US)


@given(st.integers(0, 10_000), st.integers(0, 2), st.booleans())
def test_a_schedule_keeps_within_its_budget(seed: int, down_max: int, for_good: bool) -> None:
    group = tuple(NODES[:3])
    limit = Limit(group, down_max, recovery_us=1_000)
    drawn = draw_faults(Random(seed), NODES, 20 * SECOND_US, limits=[limit], for_good=for_good)
    assert list(drawn) == sorted(drawn, key=lambda fault: fault.at_us)
    downs = [fault for fault in drawn if isinstance(fault, Crash | FullDisk | FailedSync) and fault.node in group]
    for fault in downs:  # The number of nodes down at once can only rise when one goes down.
        absent = {other.node for other in downs if other.at_us <= fault.at_us <= other.at_us + other.for_us + 1_000}
        assert len(absent) <= down_max


@given(st.integers(0, 10_000))
def test_calm_ends_every_fault(seed: int) -> None:
    on = World(seed)
    for name in NODES:
        recorder.add(on, name)
    on.every(10_000, lambda: [on.call(name, "do", [Persist(puts=(("k", b"v"),))]) for name in NODES], 3 * SECOND_US)
    inject(on, draw_faults(Random(seed), NODES, 3 * SECOND_US))
    on.run_until(3 * SECOND_US)
    calm(on)
    on.run_until(6 * SECOND_US)
    assert all(on.machine(name) is not None for name in NODES)
    for name in NODES:
        node = on.nodes[name]
        assert (node.drift_ppm, node.storage.slower, node.storage.full, len(node.inbox)) == (0, 1, False, 0)
        assert all(not link.blocked and not link.held for link in node.links.values())


def test_a_crash_for_good_is_not_undone_by_the_calm() -> None:
    on = World(1)
    a, b = recorder.add(on, "a"), recorder.add(on, "b")
    inject(on, [Crash(at_us=10, node="a", for_us=FOR_GOOD), Crash(at_us=10, node="b", for_us=10 * SECOND_US)])
    on.run_until(SECOND_US)
    calm(on)
    on.run_until(20 * SECOND_US)
    assert (len(a), len(b)) == (1, 2)
    assert on.gone == ["a"]


def test_a_full_disk_is_a_stop_and_a_return() -> None:
    on = World(1)
    a = recorder.add(on, "a")
    inject(on, [FullDisk(at_us=10, node="a", for_us=SECOND_US)])
    on.every(1_000, lambda: on.call("a", "do", [Persist(puts=(("k", b"v"),))]), 2 * SECOND_US)
    on.run_until(3 * SECOND_US)
    assert [line.what for line in on.history] == ["start", "fail", "start"]
    assert on.nodes["a"].storage.records == {"k": b"v"}
    assert len(a) == 2


def test_a_slow_disk_is_slow_for_a_while() -> None:
    on = World(1)
    recorder.add(on, "a")
    inject(on, [SlowDisk(at_us=10, node="a", for_us=100, factor=1_000)])
    on.run_until(20)
    on.call("a", "do", [Persist(puts=(("k", b"v"),))])
    on.run_until(400_000)
    assert on.nodes["a"].storage.records == {}
    on.run_until(2 * SECOND_US)
    on.call("a", "do", [Persist(puts=(("l", b"v"),))])
    on.run_until(2 * SECOND_US + 2_000)
    assert list(on.nodes["a"].storage.records) == ["k", "l"]


def test_an_aimed_fault_waits_for_its_message_also_across_a_restart() -> None:
    on = World(1)
    a, b = recorder.add(on, "a"), recorder.add(on, "b")
    inject(on, [Aimed(at_us=0, node="a", message="int", what="Crash", later_us=500, for_us=10_000)])
    on.run_until(1_000)
    on.call("b", "do", [Send("a", "no number")])
    on.run_until(100_000)
    on.crash("a")
    on.start("a")
    assert len(a) == 2
    on.call("b", "do", [Send("a", 7)])
    on.run_until(200_000)
    assert a[1].messages() == [7]
    assert len(a) == 3  # it crashed after that, and came back
    on.call("b", "do", [Send("a", 8)])
    on.run_until(300_000)
    assert len(a) == 3
    assert a[2].messages() == [8]
    assert len(b) == 1


def test_an_aimed_fault_is_over_when_the_calm_begins() -> None:
    on = World(1)
    a = recorder.add(on, "a", lambda what, value, now: [Send("b", 1.5)] if value == 7 else [])
    recorder.add(on, "b")
    inject(on, [Aimed(at_us=0, node="a", message="float", what="Pause", for_us=1_000_000)])
    on.run_until(1_000)
    calm(on)
    on.call("b", "do", [Send("a", 7)])
    on.run_until(100_000)
    on.call("b", "do", [Send("a", 8)])
    on.run_until(200_000)
    assert a[0].messages() == [7, 8]
