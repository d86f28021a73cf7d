"""Programs beside the machines of a world: each belongs to a node, works on a faulty store, and ends when that does.

The log's own code reads and writes its store as plain calls. Here each request takes its time on the world's clock, and
everything else goes on meanwhile: others extend the same chain, and the node is paused or crashes between two requests
of one call.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from random import Random
from typing import Final

from unerring.audit import Violation
from unerring.log import BUCKETS, Chain, EventLog, ObjectStore, Spread, Store
from unerring.model import MILLISECOND_US, SECOND_US, Address, StreamSchema
from unerring.simulation.faulty_bucket import FaultyBucket, Objects, StoreFaults, faulty_store
from unerring.simulation.node import State
from unerring.simulation.turns import Program
from unerring.simulation.world import World

LOOK_US: Final = 5 * MILLISECOND_US
"""So long after a node's start its program begins."""
REQUEST_US: Final = 200
"""The least time that a request to the store takes."""
KILLED: Final = "a program ended between two requests"
WENT_WRONG: Final = "a request to the store went wrong"

Body = Callable[["Life", Store], None]


class Noticed(Objects):
    """A bucket's contents that say when something is written."""

    def __init__(self, written: Callable[[str], None]) -> None:
        super().__init__()
        self._written = written

    def write(self, path: str, made: object, tag: str | None) -> None:
        super().write(path, made, tag)  # type: ignore[arg-type]
        self._written(path)


class WorldLog(EventLog):
    """A log whose chains have the world's clock."""

    def __init__(self, store: Store, world: World) -> None:
        super().__init__(store)
        self._world = world

    def create(self, schema: StreamSchema, buckets: int = BUCKETS, spread: Spread | None = None) -> Chain:
        chain = super().create(schema, buckets, spread)
        chain.indexes.clock_s = lambda: self._world.now_us / SECOND_US
        chain.refresh_index()
        return chain


class Life:
    """One life of a node's program. It is told the time, and waits."""

    def __init__(self, world: World, node: Address, random: Random, slow_us: int) -> None:
        self.node = node
        self.random = random
        self.between_requests = False
        """It waits for an answer of the store, not for its own time."""
        self.wait_us = 0
        self._world = world
        self._incarnation = world.nodes[node].incarnation
        self._slow_us = slow_us
        self.program: Program

    @property
    def is_over(self) -> bool:
        node = self._world.nodes[self.node]
        return node.incarnation != self._incarnation or node.state >= State.STOPPING

    @property
    def now_us(self) -> int:
        """The node's monotonic clock."""
        return self._world.node_now_us(self.node)

    def request(self) -> None:
        """Before each request of the store."""
        self.between_requests = True
        self.wait_us = REQUEST_US + self.random.randrange(self._slow_us)
        self.program.wait_for_turn()
        self.between_requests = False

    def pause(self, us: int) -> None:
        self.wait_us = 1 + self.random.randrange(2 * us)
        self.program.wait_for_turn()


class Beside:
    """All such programs of a world, and the bucket that they share."""

    def __init__(self, world: World, faults: StoreFaults, slow_us: int, written: Callable[[str], None]) -> None:
        """`written` is called with the path of what was written, at the moment of it."""
        self.errors: list[Violation] = []
        self._world = world
        self._random = Random(f"beside {world.seed}")
        self._objects = Noticed(written)
        self._faults = faults
        self._slow_us = slow_us
        self._buckets: list[FaultyBucket] = []
        self._bodies: dict[Address, Body] = {}
        self._lives: dict[Address, Life] = {}

    def attach(self, node: Address, body: Body) -> None:
        """Run this with every life of a node, from its beginning."""
        self._bodies[node] = body

    def store(self) -> ObjectStore:
        """For who looks on from outside: no request takes time, none goes wrong, and what is late stays so."""
        onlooker = Objects(self._objects.held, self._objects.changes)
        return faulty_store(FaultyBucket(onlooker, self._random, StoreFaults()), self._random.getrandbits(32))

    def begin(self, until_us: int) -> None:
        self._world.every(LOOK_US, self._look, until_us)

    def calm(self) -> None:
        """From now on nothing goes wrong at the store."""
        self.note()
        self._faults = StoreFaults()
        for bucket in self._buckets:
            bucket.faults = self._faults

    def note(self) -> None:
        if any(bucket.injected for bucket in self._buckets):
            self._world.sometimes(WENT_WRONG)

    def stop(self) -> None:
        """End all programs, before the checks."""
        for life in self._lives.values():
            life.program.kill()

    def _look(self) -> None:
        for name, body in self._bodies.items():
            life = self._lives.get(name)
            if life is None or life.is_over:
                self._end(life)
                self._begin(name, body)

    def _begin(self, name: Address, body: Body) -> None:
        if self._world.nodes[name].state:
            return
        life = self._lives[name] = Life(self._world, name, self._random, self._slow_us)
        store = self._open(life.request, self._faults)
        life.program = Program(name, lambda: body(life, store))
        self._turn(life)

    def _end(self, life: Life | None) -> None:
        if life is not None and not life.program.ended:
            if life.between_requests:
                self._world.sometimes(KILLED)
            life.program.kill()

    def _turn(self, life: Life) -> None:
        world = self._world
        if life.is_over or self.errors:
            self._end(life)
            return
        if world.nodes[life.node].state == State.PAUSED:
            world.at(world.now_us + MILLISECOND_US, lambda: self._turn(life))
            return
        life.program.turn()
        if life.program.error is not None:
            lines = "".join(traceback.format_exception(life.program.error)).splitlines()
            self.errors.append(Violation("no program breaks", (life.node, *lines[-12:])))
        elif not life.program.ended:
            world.at(world.now_us + life.wait_us, lambda: self._turn(life))

    def _open(self, before: Callable[[], None], faults: StoreFaults) -> ObjectStore:
        bucket = FaultyBucket(self._objects, self._random, faults, before)
        self._buckets.append(bucket)
        return faulty_store(bucket, self._random.getrandbits(32))
