"""Limits of services while masters die: never more at once or a second than allowed, nothing while a service is paused,
and every instance still comes to its end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import ClassVar, Final

from unerring.audit import Violation, check_flow
from unerring.model import MILLISECOND_US, SECOND_US
from unerring.processes import PAUSED_US, Limits
from unerring.simulation import limited
from unerring.simulation.faults import Crash, Fault
from unerring.simulation.limited import LimitedService
from unerring.simulation.process_parts import SimService
from unerring.simulation.scenario import mutant, scenario
from unerring.simulation.scenarios.processes import Processes
from unerring.simulation.world import World

SERVICES = ("service:bank", "service:shop")
RESUMED_US: Final = 5 * SECOND_US
"""So long into the calm a service is resumed again, if it was down when that was said first."""


@scenario("flow")
class ProcessesFlow(Processes):
    """Random processes whose services have limits, are paused and resumed, and are left alone after failures."""

    service: type[SimService] = LimitedService
    instances_max = (2, 5, 8)
    weights: tuple[float, ...] = (2.0, 3.0, 8.0, 2.0, 1.0, 0.0, 0.0)
    schedule_chance = 0.0
    waits_us = RESUMED_US + PAUSED_US + SECOND_US
    """Whoever was told to come back comes a second after a service is resumed, which then is quiet for a second."""
    pause_chance = 0.4
    restart_chance = 0.4
    """The chance that a service is killed and comes back soon."""
    rates: ClassVar[tuple[int | None, ...]] = (None, 3, 10)
    must_reach: tuple[str, ...] = (
        "an instance completed",
        "an instance was cancelled",
        "a master compensated its group",
        "a view above 3",
        "a request waited for its turn",
        "a service had as many requests as it may",
        "a service was paused, and resumed",
        "a service with limits was started again",
    )

    def _add_services(self, world: World) -> None:
        draw = world.draw
        limits = Limits(
            at_once=draw.choice((None, 1, 2, 4)),
            per_second=draw.choice(self.rates),
            key_at_once=draw.choice((None, None, 1)),
            key_per_second=draw.choice((None, None, 2)),
            failures_max=draw.choice((None, None, 3)),
            failures_pause_s=0.3,
        )
        self.service = type("Limited", (self.service,), {"limits": limits})
        super()._add_services(world)
        for name in SERVICES:
            if draw.random() < self.pause_chance:
                at_us = draw.randrange(self.faults_us)
                for_us = draw.randrange(2 * SECOND_US) + 50 * MILLISECOND_US
                world.at(at_us, lambda name=name: world.call(name, "pause"))  # type: ignore[misc]
                # Again later: it may be down when somebody resumes it.
                for later_us in (at_us + for_us, self.faults_us + RESUMED_US):
                    world.at(later_us, lambda name=name: world.call(name, "resume"))  # type: ignore[misc]

    def faults(self, world: World, draw: Random) -> Sequence[Fault]:
        crashes = [
            Crash(at_us=draw.randrange(self.faults_us), node=name, for_us=draw.randrange(300) * MILLISECOND_US + 1)
            for name in SERVICES
            if draw.random() < self.restart_chance
        ]
        return sorted([*super().faults(world, draw), *crashes], key=lambda fault: fault.at_us)

    def safety(self, world: World) -> Iterable[Violation]:
        yield from super().safety(world)
        yield from self._check_flow(world)

    def liveness(self, world: World) -> Iterable[Violation]:
        yield from super().liveness(world)
        yield from self._check_flow(world)

    def _check_flow(self, world: World) -> Iterable[Violation]:
        for name in SERVICES:
            service = world.machine(name)
            if service is None:
                continue
            yield from check_flow(service.flow, [line.iid for _, line in service.journal if line.what == "do"])
            lines = [line.what for line in service.flow]
            for word, reached in (
                ("a request waited for its turn", service.waited > 0),
                ("a service had as many requests as it may", service.full > 0),
                ("a service was paused, and resumed", "pause" in lines and "resume" in lines),
                ("a service with limits was started again", lines.count("limits") > 1),
            ):
                if reached:
                    world.sometimes(word)


mutant(
    ProcessesFlow,
    "forgets at a restart what was begun",
    service=limited.ForgetsAtRestart,
    rates=(3,),
    restart_chance=1.0,
    seeds_max=200,
)
mutant(ProcessesFlow, "takes a permit back from a dead master", service=limited.TakesBackFromTheDead, seeds_max=200)
mutant(ProcessesFlow, "undoes while paused", service=limited.UndoesWhilePaused, pause_chance=1.0, seeds_max=200)
mutant(ProcessesFlow, "counts by the seconds of a clock", service=limited.CountsSeconds, rates=(3,))
