"""A log on a faulty store: writers, drivers, compactors, retention, rescaling and readers, killed and started again.

Every reader must see each event once, in order, whatever the others do meanwhile and whatever reply is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import ClassVar, Final

from unerring.audit import Violation
from unerring.log import COMPACTED, PARTS, Store
from unerring.model import MILLISECOND_US, SECOND_US, TIME_MIN, InvariantBreach, UnerringError
from unerring.simulation.faulty_bucket import StoreFaults
from unerring.simulation.log_checks import check_seen
from unerring.simulation.log_mutants import log_mutants
from unerring.simulation.log_programs import FOUND, SOURCE, Programs, Seen, Truth
from unerring.simulation.scenario import mutant, scenario
from unerring.simulation.store_scenario import StoreScenario
from unerring.simulation.world import World

EVENTS: Final = 40
_READERS: Final = {"alice": SOURCE.name, "bob": FOUND.name, "carol": FOUND.name}


@scenario("log")
class LogOnStore(StoreScenario):
    """Turns of a millisecond: in each, one program makes one request."""

    turn_us = MILLISECOND_US
    steps_us = (*[20 * MILLISECOND_US] * 60, *[2 * SECOND_US] * 20, 400 * SECOND_US, 2000 * SECOND_US)
    endless = ("compactor-1", "compactor-2", "retention", "rescaling")
    faults_us = 1500 * MILLISECOND_US
    calm_us = 20 * SECOND_US
    programs: ClassVar[type[Programs]] = Programs
    must_reach = (
        "a program was killed",
        "a reader began again",
        "a request went wrong",
        "parts were written",
        "segments were compacted",
        "objects were deleted",
        "the log was cut",
    )

    def build(self, world: World) -> None:
        self.prepare(world, 1_800_000_000 * SECOND_US)
        self._truth = Truth.draw(self._random, EVENTS)
        self._programs = self.programs(self._truth, self._random, lambda: self._clock_us)
        self._seen: list[Seen] = []
        self._programs.prepare(self._open(lambda: None, StoreFaults()), _READERS)
        bodies: dict[str, Callable[[Store], None]] = {
            "writer-1": self._programs.write,
            "writer-2": self._programs.write,
            "driver-1": self._programs.drive,
            "driver-2": self._programs.drive,
            "compactor-1": self._programs.compact,
            "compactor-2": self._programs.compact,
            "retention": self._programs.retain,
            "rescaling": self._programs.rescale,
            **{
                reader: partial(self._programs.read, reader=reader, name=name, seen=self._seen)
                for reader, name in _READERS.items()
            },
        }
        self.begin(world, bodies)

    def killed(self, world: World, name: str) -> None:
        world.sometimes("a reader began again" if name in _READERS else "a program was killed")

    def safety(self, world: World) -> Iterable[Violation]:
        self.stop(world)
        self._note_rare_states(world)
        return [*self._errors, *check_seen(self._truth, self._seen)]

    def liveness(self, world: World) -> Iterable[Violation]:
        if self._unfinished:
            yield Violation("everything is sealed and read in the end", tuple(self._unfinished))
        try:
            yield from self._check_the_end(world)
        except (UnerringError, InvariantBreach) as error:
            yield Violation("whoever comes afterwards can read the log", (str(error),))

    def _check_the_end(self, world: World) -> list[Violation]:
        """Whoever comes afterwards reads the same."""
        store = self._open(lambda: None, StoreFaults())
        chains = [self._programs.chain(store, schema.name) for schema in (SOURCE, FOUND)]
        for chain in chains:
            chain.check()
            if chain.base.from_us > TIME_MIN:
                world.sometimes("the log was cut")
        return check_seen(self._truth, [self._programs.everything(chain) for chain in chains], whole=True)

    def _note_rare_states(self, world: World) -> None:
        changes = self._objects.changes
        reached = {
            "a request went wrong": any(bucket.injected for bucket in self._buckets),
            "parts were written": any(f"/{PARTS}/" in path for path, _ in changes),
            "segments were compacted": any(f"/{COMPACTED}/" in path for path, _ in changes),
            "objects were deleted": any(not came for _, came in changes),
        }
        for state, was_reached in reached.items():
            if was_reached:
                world.sometimes(state)


for _name, _broken in log_mutants().items():
    mutant(LogOnStore, _name, seeds_max=100, **_broken)
