"""The time that a run has to come to rest follows from its configuration: a stall is found soon, and a run that is slow
but goes on is not taken for one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from unerring.correlation import CorrelationConfig, node_of
from unerring.model import MILLISECOND_US, SECOND_US
from unerring.simulation import World, find, run
from unerring.simulation.query_tree import OUTPUTS, tree
from unerring.simulation.resting import Resting, event_us, levels, silence_us

SLOW = 801_000_029
"""Two events under way, four kept, one in a message, and a pause of 20 ms before each step: it takes 30 s."""
CORRELATION: Any = find("correlation")


class Stalling(CORRELATION):  # type: ignore[misc]
    """A node's replicas do nothing for a while, long after the faults, and then go on as if nothing had been."""

    still_s = 0.0

    def build(self, world: World) -> None:
        super().build(world)
        at_us = self.faults_us + 2 * SECOND_US
        world.at(at_us, lambda: self._stall(world))

    def _stall(self, world: World) -> None:
        for name in [name for name in world.nodes if node_of(name) == "W" and world.machine(name) is not None]:
            world.pause(name)
            world.at(world.now_us + int(self.still_s * SECOND_US), lambda name=name: world.resume(name))  # type: ignore[misc]


def test_a_slow_run_that_goes_on_is_no_stall() -> None:
    outcome = run(CORRELATION, SLOW)
    assert outcome.violations == ()
    assert outcome.virtual_us > 30 * SECOND_US
    assert outcome.rested < 0.3


def test_a_stall_is_found_soon_although_it_would_end() -> None:
    class Long(Stalling):
        still_s = 12.0

    outcome = run(Long, SLOW)
    assert outcome.phase == "liveness"
    assert outcome.rested == 1.0
    assert "every replica reaches the end once faults are over" in {v.promise for v in outcome.violations}
    assert outcome.virtual_us < 15 * SECOND_US


def test_a_pause_that_some_time_out_explains_is_none() -> None:
    class Short(Stalling):
        still_s = 3.0

    outcome = run(Short, 652_000_004)
    assert outcome.violations == ()
    assert outcome.virtual_us > Short.faults_us + 5 * SECOND_US


def test_a_machine_that_never_asks_stalls_and_is_found_by_silence() -> None:
    outcome = run(find("correlation", "never asks"), 0)
    assert outcome.phase == "liveness"
    assert outcome.virtual_us < CORRELATION.faults_us + 10 * SECOND_US


@pytest.mark.parametrize(
    "longer",
    ["suspect_us_max", "patience_us_max", "join_retry_us", "record_poll_us", "evict_after_us", "eviction_us", "ask_us"],
)
def test_silence_is_as_long_as_what_is_waited_for(longer: str) -> None:
    config = CorrelationConfig(evict_full_us=10 * SECOND_US)
    more = msgspec.structs.replace(config, **{longer: getattr(config, longer) + SECOND_US})
    assert silence_us(more) >= silence_us(config) + SECOND_US


def test_nobody_waits_for_evictions_that_only_an_operator_begins() -> None:
    without = msgspec.structs.replace(CorrelationConfig(), evict_after_us=0)
    assert silence_us(without) < silence_us(CorrelationConfig()) - 30 * SECOND_US


def test_an_event_takes_longer_the_less_room_there_is() -> None:
    wide = CorrelationConfig(window_events=100, outgoing_events_max=100, process_pause_us=1)
    narrow = msgspec.structs.replace(wide, window_events=2)
    kept = msgspec.structs.replace(wide, outgoing_events_max=4)
    slow = msgspec.structs.replace(narrow, process_pause_us=20 * MILLISECOND_US)
    single = msgspec.structs.replace(wide, process_pause_us=20 * MILLISECOND_US, process_events_max=1)
    assert event_us(wide) < min(event_us(narrow), event_us(kept))
    assert event_us(slow) >= event_us(narrow) + 9 * MILLISECOND_US
    assert event_us(single) >= 20 * MILLISECOND_US
    assert event_us(narrow, room_us=8 * MILLISECOND_US) == pytest.approx(event_us(narrow) + 4 * MILLISECOND_US)


def test_all_bounds_count_levels_and_events() -> None:
    topology = tree(dict.fromkeys(OUTPUTS, 1))
    assert levels(topology) == 5
    world = World(1)
    resting = Resting(CorrelationConfig(), 5)
    assert resting.rest_us(world, [[]]) == 5 * resting.silence_us
