"""A log on a faulty store: writers, drivers, compactors, retention, rescaling and readers, killed and started again.

Every reader must see each event once, in order, whatever the others do meanwhile and whatever reply is lost.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from random import Random
from typing import ClassVar, Final

from unerring.audit import Violation
from unerring.log import COMPACTED, PARTS, ObjectStore, Store
from unerring.model import MILLISECOND_US, SECOND_US, TIME_MIN, InvariantBreach, UnerringError
from unerring.simulation.faults import Fault
from unerring.simulation.faulty_bucket import FaultyBucket, Objects, StoreFaults, faulty_store
from unerring.simulation.log_checks import check_seen
from unerring.simulation.log_mutants import log_mutants
from unerring.simulation.log_programs import FOUND, SOURCE, Programs, Seen, Truth
from unerring.simulation.scenario import Scenario, mutant, scenario
from unerring.simulation.turns import Program
from unerring.simulation.world import World

EVENTS: Final = 40
_TURN_US: Final = MILLISECOND_US
_READERS: Final = {"alice": SOURCE.name, "bob": FOUND.name, "carol": FOUND.name}
_ENDLESS: Final = ("compactor-1", "compactor-2", "retention", "rescaling")
_KILLS: Final = 0.004
"""How likely it is that a program is killed instead of having its turn."""
_STEPS_US: Final = (*[20 * MILLISECOND_US] * 60, *[2 * SECOND_US] * 20, 400 * SECOND_US, 2000 * SECOND_US)
"""How far the clock goes on with a turn: some turns are longer than any grace time."""


@scenario("log")
class LogOnStore(Scenario):
    """Turns of a millisecond: in each, one program makes one request."""

    faults_us = 1500 * MILLISECOND_US
    calm_us = 20 * SECOND_US
    programs: ClassVar[type[Programs]] = Programs
    store: ClassVar[Callable[..., ObjectStore]] = staticmethod(faulty_store)
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
        self._random = Random(f"log {world.seed}")
        self._clock_us = 1_800_000_000 * SECOND_US
        self._objects = Objects()
        self._faults = StoreFaults.all(self._random.choice((0.0, 0.02, 0.1, 0.2)))
        self._buckets: list[FaultyBucket] = []
        self._truth = Truth.draw(self._random, EVENTS)
        self._programs = self.programs(self._truth, self._random, lambda: self._clock_us)
        self._seen: list[Seen] = []
        self._errors: list[Violation] = []
        self._calm = False
        self._programs.prepare(self._open(lambda: None, StoreFaults()), _READERS)
        self._bodies: dict[str, Callable[[Store], None]] = {
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
        self._running = {name: self._start(name) for name in self._bodies}
        world.every(_TURN_US, lambda: self._turn(world), until_us=self.faults_us + self.calm_us)

    def faults(self, world: World, draw: Random) -> Sequence[Fault]:
        """None of the network's and disks': the store's own are drawn with each request."""
        return ()

    def settled(self, world: World) -> bool:
        return self._calm and all(program.finished for name, program in self._running.items() if name not in _ENDLESS)

    def safety(self, world: World) -> Iterable[Violation]:
        self._unfinished = [] if self.settled(world) else sorted(set(self._running) - set(_ENDLESS))
        for program in self._running.values():
            program.kill()
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

    def _turn(self, world: World) -> None:
        if self._errors or self.settled(world):
            return
        if not self._calm and world.now_us >= self.faults_us:
            self._calm = True
            for bucket in self._buckets:
                bucket.faults = StoreFaults()
        self._clock_us += self._random.choice(_STEPS_US)
        name = self._random.choice(list(self._running))
        program = self._running[name]
        if program.ended:
            if not program.finished:
                self._running[name] = self._start(name)
        elif not self._calm and self._random.random() < _KILLS:
            program.kill()
            world.sometimes("a reader began again" if name in _READERS else "a program was killed")
        else:
            program.turn()
        if program.error is not None:
            lines = "".join(traceback.format_exception(program.error)).splitlines()
            self._errors.append(Violation("no program breaks", (name, *lines[-12:])))

    def _start(self, name: str) -> Program:
        program = Program(name, lambda: self._bodies[name](store))
        store = self._open(program.wait_for_turn, StoreFaults() if self._calm else self._faults)
        return program

    def _open(self, before: Callable[[], None], faults: StoreFaults) -> ObjectStore:
        bucket = FaultyBucket(self._objects, self._random, faults, before)
        self._buckets.append(bucket)
        return self.store(bucket, self._random.getrandbits(32))


for _name, _broken in log_mutants().items():
    mutant(LogOnStore, _name, seeds_max=100, **_broken)
