"""Programs on a faulty store, one request at a time: what scenarios of the log have in common."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from random import Random
from typing import ClassVar

from unerring.audit import Violation
from unerring.log import ObjectStore, Store
from unerring.simulation.faults import Fault
from unerring.simulation.faulty_bucket import FaultyBucket, Objects, StoreFaults, faulty_store
from unerring.simulation.scenario import Scenario
from unerring.simulation.turns import Program
from unerring.simulation.world import World


class StoreScenario(Scenario):
    """In each turn one program makes one request. `build` calls `prepare` first and `begin` at the end."""

    store: ClassVar[Callable[..., ObjectStore]] = staticmethod(faulty_store)
    turn_us: ClassVar[int]
    steps_us: ClassVar[Sequence[int]]
    """How far the clock goes on with a turn; one of them is drawn."""
    endless: ClassVar[Sequence[str]] = ()
    """Programs that never finish."""
    kills: ClassVar[float] = 0.004
    """How likely it is that a program is killed instead of having its turn."""

    def prepare(self, world: World, clock_us: int) -> None:
        self._random = Random(f"{self.name} {world.seed}")
        self._clock_us = clock_us
        self._objects = Objects()
        self._faults = StoreFaults.all(self._random.choice((0.0, 0.02, 0.1, 0.2)))
        self._buckets: list[FaultyBucket] = []
        self._errors: list[Violation] = []
        self._calm = False

    def begin(self, world: World, bodies: dict[str, Callable[[Store], None]]) -> None:
        self._bodies = bodies
        self._running = {name: self._start(name) for name in bodies}
        world.every(self.turn_us, lambda: self._turn(world), until_us=self.faults_us + self.calm_us)

    def faults(self, world: World, draw: Random) -> Sequence[Fault]:
        """None of the network's and disks': the store's own are drawn with each request."""
        return ()

    def settled(self, world: World) -> bool:
        return self._calm and all(
            program.finished for name, program in self._running.items() if name not in self.endless
        )

    def killed(self, world: World, name: str) -> None:
        """A program was killed."""
        world.sometimes("a program was killed")

    def stop(self, world: World) -> None:
        """End all programs, before the checks."""
        self._unfinished = [] if self.settled(world) else sorted(set(self._running) - set(self.endless))
        for program in self._running.values():
            program.kill()

    def _turn(self, world: World) -> None:
        if self._errors or self.settled(world):
            return
        if not self._calm and world.now_us >= self.faults_us:
            self._calm = True
            for bucket in self._buckets:
                bucket.faults = StoreFaults()
        self._clock_us += self._random.choice(self.steps_us)
        name = self._random.choice(list(self._running))
        program = self._running[name]
        if program.ended:
            if not program.finished:
                self._running[name] = self._start(name)
        elif not self._calm and self._random.random() < self.kills:
            program.kill()
            self.killed(world, name)
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
