"""Many producers of one stream and two writers of its log on a faulty store: late, silent, restarted, killed, racing.

The log is the canonical merge of what was published, less what is declared late or lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar

from unerring.audit import Violation
from unerring.log import EventLog, Quarantine, Reason, Store
from unerring.model import MILLISECOND_US, SECOND_US, InvariantBreach, UnerringError
from unerring.simulation.faulty_bucket import StoreFaults
from unerring.simulation.intake_checks import check_merge
from unerring.simulation.intake_mutants import intake_mutants
from unerring.simulation.intake_programs import Intakes, Plant
from unerring.simulation.scenario import mutant, scenario
from unerring.simulation.store_scenario import StoreScenario
from unerring.simulation.world import World


@scenario("intake")
class IntakeOnStore(StoreScenario):
    """Turns of a millisecond: in each, one program makes one request, and perhaps a producer publishes."""

    turn_us = MILLISECOND_US
    steps_us = (*[20 * MILLISECOND_US] * 200, *[2 * SECOND_US] * 10, 400 * SECOND_US)
    endless = ("compactor",)
    kills = 0.01
    faults_us = 700 * MILLISECOND_US
    calm_us = 30 * SECOND_US
    programs: ClassVar[type[Intakes]] = Intakes
    must_reach = (
        "a program was killed",
        "a request went wrong",
        "events were sealed out of their producer's order",
        "an event was late",
        "events were lost",
        "a producer was idle",
        "a producer began again",
        "both writers sealed",
    )

    def build(self, world: World) -> None:
        self.prepare(world, 1_800_000_000 * SECOND_US)
        self._plant = Plant.draw(self._random)
        self._programs = self.programs(self._plant, self._random, lambda: self._clock_us)
        EventLog(self._open(lambda: None, StoreFaults())).create(self._plant.schema, 2)
        bodies: dict[str, Callable[[Store], None]] = {
            "writer-1": self._programs.write,
            "writer-2": self._programs.write,
            "compactor": self._programs.compact,
        }
        self.begin(world, bodies)

    def _turn(self, world: World) -> None:
        if self._calm or self._random.random() < 0.4:
            self._plant.publish(self._random)
        super()._turn(world)

    def safety(self, world: World) -> Iterable[Violation]:
        self.stop(world)
        return self._errors

    def liveness(self, world: World) -> Iterable[Violation]:
        if self._unfinished:
            yield Violation("everything is sealed in the end", tuple(self._unfinished))
            return
        try:
            yield from self._check_the_end(world)
        except (UnerringError, InvariantBreach) as error:
            yield Violation("whoever comes afterwards can read the log", (str(error),))

    def _check_the_end(self, world: World) -> list[Violation]:
        store = self._open(lambda: None, StoreFaults())
        chain = EventLog(store).chain("Source")
        chain.check()
        footers = [chain.footer(span) for span in chain.spans(chain.base.from_us, chain.through_us)]
        reasons = {event.reason for event in Quarantine(store, "Source").events()}
        reached = {
            "a request went wrong": any(bucket.injected for bucket in self._buckets),
            "events were sealed out of their producer's order": any(footer.above for footer in footers),
            "an event was late": Reason.LATE in reasons,
            "events were lost": Reason.LOST in reasons,
            "a producer was idle": any(
                footer.away and footer.through_us < 1 << 61 for footer in footers if self._plant.schema.idle_after_us
            ),
            "a producer began again": any(
                len({said.epoch for said in life.said}) > 1 for life in self._plant.lives.values()
            ),
            "both writers sealed": len(footers) > 1,
        }
        for state, was_reached in reached.items():
            if was_reached:
                world.sometimes(state)
        return list(check_merge(self._plant, chain))


for _name, _broken in intake_mutants().items():
    mutant(IntakeOnStore, _name, seeds_max=100, **_broken)
