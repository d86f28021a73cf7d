"""The time that processes have to come to rest follows from what was drawn: whoever stands still is found soon, also if
it looks busy, and a run that is slow but goes on is not taken for one that stands still."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec
import pytest

from unerring.model import MILLISECOND_US, SECOND_US
from unerring.processes import Answer, Limits, Planner, ProcessesConfig, Replica, Request
from unerring.simulation import Fault, World, find, run
from unerring.simulation.disk import DiskSpec
from unerring.simulation.process_architect import Architect
from unerring.simulation.process_parts import SimService, Temper
from unerring.simulation.process_resting import Waits, times, work
from unerring.simulation.scenarios.processes import Processes

SLOW = 852_001_677
"""Survivors cancel one by one what may have been done: 160 s."""
CALM = Temper(1000, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def test_a_slow_run_that_goes_on_does_not_stand_still() -> None:
    outcome = run(find("processes-blocks"), SLOW)
    assert outcome.violations == ()
    assert outcome.virtual_us > 150 * SECOND_US
    assert outcome.rested < 0.7


# ---- found soon ------------------------------------------------------------------------------------------------


class Alone(Processes):
    """Nothing but what is broken goes wrong."""

    lost_disk_chance = founding_chance = schedule_chance = lacking_chance = command_chance = cancel_chance = 0.0
    weights = (0.0, 0.0, 9.0, 0.0, 0.0, 0.0, 0.0)
    failovers_ms = (0,)
    replicas = (1,)

    def faults(self, world: World, draw: Random) -> Sequence[Fault]:
        return ()


class _Stands(Planner):
    def plan(self, now: int) -> None:
        if self._acceptor.decided is None or self._acceptor.decided[1].group < 1:
            super().plan(now)


class Stands(Replica):
    """Leads, says so, and does nothing after the first group."""

    planner_part = _Stands


class Restless(Replica):
    """Wins views, and leads in none of them: another one follows as soon as nobody is heard to lead."""

    def on_majority(self, now: int) -> None:
        if self.decided is None or self.decided[1].group < 1:
            super().on_majority(now)
        else:
            self.on_learned(now)


class NeverUndoes(SimService):
    """Is asked again and again to undo, and cannot."""

    def _undo(self, request: Request) -> Any:
        return self._answer(request, Answer.UNKNOWN, "not now")


def silence_us(scenario: Any, seed: int) -> int:
    world, played = World(seed), scenario()
    played.build(world)
    bound_us: int = played.silence_us(world)
    return bound_us


def check_found_soon(scenario: Any, seed: int) -> None:
    """Within what is waited for, and the time in which everything else was done."""
    outcome = run(scenario, seed)
    assert outcome.phase == "liveness"
    assert outcome.rested == 1.0
    assert outcome.virtual_us < scenario.faults_us + silence_us(scenario, seed) + 10 * SECOND_US


def test_an_instance_that_never_moves_is_found_by_silence() -> None:
    class Scenario(Alone):
        replica = Stands

    check_found_soon(Scenario, 1)


def test_views_that_change_for_ever_are_no_steps() -> None:
    class Scenario(Alone):
        replica = Restless
        seen: int

        def liveness(self, world: World) -> Any:
            type(self).seen = max(r.acceptor.view for n in self.names for r in world.machine(n).instances.values())
            return super().liveness(world)

    check_found_soon(Scenario, 1)
    assert Scenario.seen > 20


def test_compensations_that_fail_for_ever_are_no_steps() -> None:
    class Scenario(Alone):
        service = NeverUndoes
        cancel_chance = 1.0

        def soon_us(self, draw: Random) -> int:
            return 100 * MILLISECOND_US

    check_found_soon(Scenario, 1)


def test_mail_that_nobody_hands_on_is_found_by_silence() -> None:
    kept = find("processes", "keeps mail to itself")
    check_found_soon(kept, next(seed for seed in range(50) if run(kept, seed).phase == "liveness"))


# ---- what the bounds are made of -------------------------------------------------------------------------------


def waits(temper: Temper = CALM, limits: Limits | None = None, **config: int) -> Waits:
    architect = Architect(Random(1), (1.0, 1.0, 3.0, 2.0, 1.0, 9.0, 1.0, 9.0, 1.0, 9.0, 1.0))
    architect.weights = [1.0] * len(architect.weights)
    process = architect.build("p", holds=True)
    for _ in range(40):
        if process.children and any(vertex.key for vertex in process.graph.vertices):
            break
        architect = Architect(architect.draw)
        process = architect.build("p", holds=True)
    configured = msgspec.structs.replace(ProcessesConfig(), **config)
    return Waits(configured, [process], temper, DiskSpec(), 3, limits or Limits())


@pytest.mark.parametrize(
    "longer",
    ["suspect_us", "suspect_us_max", "backoff_us", "transfer_us", "resend_us_max", "undo_pause_us_max", "tend_us"]
    + ["mail_pause_us_max", "tick_us"],
)
def test_silence_is_as_long_as_what_is_waited_for(longer: str) -> None:
    fails = msgspec.structs.replace(CALM, undo_fails=0.9)
    before_us = getattr(ProcessesConfig(), longer)
    more_us = SECOND_US - before_us if longer == "tick_us" else 11 * SECOND_US
    heartbeat = {"heartbeat_us": SECOND_US, "suspect_us": 2 * SECOND_US} if longer == "tick_us" else {}
    longer_us = waits(fails, **{**heartbeat, longer: before_us + more_us}).silence_us
    assert longer_us > waits(fails, **heartbeat).silence_us + more_us // 2


@pytest.mark.parametrize("bad", ["silent", "late", "muddled", "garbage", "undo_fails", "refuses_for_good"])
def test_silence_is_longer_the_worse_services_are(bad: str) -> None:
    worse = msgspec.structs.replace(CALM, **{bad: 0.2})
    assert waits(worse).silence_us > waits().silence_us


def test_who_shares_a_service_waits_for_the_others() -> None:
    slow = waits(limits=Limits(per_second=3))
    assert slow.once_more_us(8) > 7 * slow.once_more_us(1)
    assert waits().once_more_us(8) == waits().once_more_us(1)


def test_a_leader_of_many_names_each_seldom() -> None:
    assert waits(leads_max=1).round_us(100) > 50 * waits(leads_max=100).round_us(100)


def test_what_fails_with_a_chance_is_tried_until_it_rarely_fails_each_time() -> None:
    assert [times(chance) for chance in (0.0, 0.009, 0.09, 0.5)] == [1, 3, 6, 20]
    assert times(1.0) == times(0.9)


def test_work_counts_rounds_and_children() -> None:
    draw = Random(3)
    plain = Architect(draw, (9.0, 0.0, 0.0)).build("p")
    assert work(plain) == len(plain.graph.vertices)
    while not (looped := Architect(draw, (9.0, 0.0, 0.0), loops=0.9).build("p")).graph.around:
        continue
    assert work(looped) > len(looped.graph.vertices)
    while not (parent := Architect(draw).build("p")).children:
        continue
    assert work(parent) > len(parent.graph.vertices) + sum(map(work, parent.children.values())) - 1
