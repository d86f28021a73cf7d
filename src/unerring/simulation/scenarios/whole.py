"""The whole system in one world: producers on channels, hosts that write the log on a faulty store, replicated sources
that follow it, correlation, an application whose replicas seal situations, reactions, replicated processes, services.

All faults happen at once, and the checks compare the two ends: each situation of the perfect run over all that was
published has its effects once, and nothing else has any.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from random import Random
from types import MappingProxyType
from typing import Any, Final

from unerring.audit import Violation
from unerring.correlation import ENGINE, MEMBERSHIP, Batch, NodeSpec, Produced, Role, node_of
from unerring.log import Chain, Store, events_of, seal_interval, table_of
from unerring.model import MILLISECOND_US, TIME_MAX, Event
from unerring.simulation.beside import KILLED, REQUEST_US, WENT_WRONG, Beside, Life, WorldLog
from unerring.simulation.faults import Crash, Fault, draw_aimed
from unerring.simulation.faulty_bucket import StoreFaults
from unerring.simulation.mixing import after, formed
from unerring.simulation.network import LinkSpec
from unerring.simulation.process_states import MOMENTS, PROCESS_STATES
from unerring.simulation.query_tree import SITUATIONS, reference, schema
from unerring.simulation.scenario import mutant, scenario
from unerring.simulation.scenarios.correlation_hosts import PIECE, Everywhere
from unerring.simulation.whole import Acting, Judge, Publishing, Reacting, Sealed, Writing
from unerring.simulation.whole.acting import STARTED_AGAIN
from unerring.simulation.whole.mutants import MUTANTS
from unerring.simulation.whole.publishing import BEGAN_AGAIN, WAITED, WENT_ON
from unerring.simulation.whole.writing import BUCKETS, IN_HAND, LOST
from unerring.simulation.world import World

FOLLOW_US: Final = 6 * MILLISECOND_US
SEAL_US: Final = 8 * MILLISECOND_US
REQUESTS: Final = 8
"""Of the store, to seal an interval: what others have sealed meanwhile, a segment for each bucket, and the index."""
RULE: Final = "tree"
SECOND_SEALER: Final = "a replica sealed that did not lead"


@scenario("whole")
class Whole(Everywhere):
    """See the module."""

    publishing: type[Publishing] = Publishing
    writing: type[Writing] = Writing
    acting: type[Acting] = Acting
    reacting: type[Reacting] = Reacting
    sought = MappingProxyType({**Everywhere.sought, **PROCESS_STATES})
    forgets_late = False
    """Whether a replica that is behind what is sealed keeps what it holds until it has caught up."""
    pauses_ms = (30, 60, 120)
    shards_share = 0.2
    must_reach = (
        BEGAN_AGAIN,
        IN_HAND,
        KILLED,
        LOST,
        SECOND_SEALER,
        STARTED_AGAIN,
        WAITED,
        WENT_ON,
        WENT_WRONG,
        "two leaders at once",
        "f failed at every node at once",
    )

    def build(self, world: World) -> None:
        draw = Random(f"store {world.seed}")
        wrong, slow_us = draw.choice((0.0, 0.02, 0.1)), draw.choice((2, 5, 40)) * MILLISECOND_US
        self.beside = Beside(world, StoreFaults.all(wrong), slow_us, self._written)
        # A program waits for its own time, and for each of its requests. Three in a row: of sources, sealers, reactors.
        self.waits_us = 3 * (2 * SEAL_US + REQUESTS * (REQUEST_US + slow_us))
        self.room_us = SEAL_US + REQUESTS * (REQUEST_US + slow_us // 2)
        super().build(world)
        keyed = bool(self.shards)
        self.schemas = {stream: schema(stream, keyed) for stream in (*self.published, *SITUATIONS)}
        store = self.beside.store()
        self.seen = Sealed(world, self.schemas, BUCKETS)
        self.seen.open(store)
        self.line = self.publishing(world, tuple(self.published), keyed)
        self.writers = self.writing(world, self.beside, self.line, self.schemas)
        for name in self.writers.names:
            datagram = world.draw.random() < 0.5
            lossy = world.draw.choice((0.0, 0.01, 0.1)) if datagram else 0.0
            self.line.connect(name, LinkSpec(datagram=datagram, loss=lossy, duplication=lossy / 2))
        self.actions = self.acting()
        self.actions.faults_us = self.faults_us
        self.actions.build(world)
        situation = self.schemas[world.draw.choice(SITUATIONS)]
        self.reactors = self.reacting(world, self.beside, self.actions.names, self.actions.f, situation)
        self.judge = Judge(world, store, self.line, self.seen, self._perfect, self.schemas)
        self.beside.begin(self.faults_us + self.calm_us)
        world.at(self.faults_us, self.beside.calm)

    def _written(self, path: str) -> None:
        if hasattr(self, "seen"):
            self.seen.written(path)

    def _perfect(self, primary: Any) -> dict[str, list[Event]]:
        return reference(self.perfect, primary, self.shards)

    def _add(self, world: World, node: NodeSpec, name: str, start_us: int = 0) -> None:
        super()._add(world, node, name, start_us)
        if node.role is Role.SOURCE:
            self.beside.attach(name, lambda life, store: self._follow_log(world, node.outputs[0], life, store))
        elif node.role is Role.APPLICATION:
            self.beside.attach(name, lambda life, store: self._seal_log(world, life, store))

    # ---- the workload ------------------------------------------------------------------------------------------

    def _publish(self, world: World, stream: str) -> None:
        self.line.publish(stream)

    def _end(self, world: World) -> None:
        self.line.end()

    def _follow_log(self, world: World, stream: str, life: Life, store: Store) -> None:
        """Hand a source's replica what is sealed after what it was handed."""
        chain = WorldLog(store, world).create(self.schemas[stream], BUCKETS)
        known: list[Event] = []
        through = chain.base.from_us
        while True:
            reached = chain.refresh()
            if reached > through:
                known += events_of(chain.read(through, reached), chain.schema)
                through = reached
            machine: Any = world.nodes[life.node].machine
            if life.node in self.places and not machine.outgoing.full:
                self._hand_over(world, stream, life.node, known, through)
            life.pause(FOLLOW_US)

    def _hand_over(self, world: World, stream: str, name: str, known: list[Event], through: int) -> None:
        last, count = self.places[name]
        rest = after(known, last)
        piece = [event for event in rest[:PIECE] if event.stamp.time < rest[:PIECE][-1].stamp.time] or rest
        reached = through if len(piece) == len(rest) else piece[-1].stamp.time
        form = formed(piece, self._form(stream)) if piece else []
        events = tuple(form) if isinstance(form, list | tuple) else form.packed()
        if piece:
            self.places[name] = piece[-1].stamp, count + len(piece)
        world.call(name, "handle", ENGINE, Produced((Batch(stream, last, count, events, reached),)))

    def _begin_sealing(self, world: World) -> None:
        """Each replica of the application has a program that does it."""

    def _seal_log(self, world: World, life: Life, store: Store) -> None:
        log = WorldLog(store, world)
        chains = {stream: log.create(self.schemas[stream], BUCKETS) for stream in SITUATIONS}
        while True:
            for stream, chain in chains.items():
                machine: Any = world.nodes[life.node].machine
                if not machine.holding:
                    continue
                if self._watermark(machine, stream) > chain.through_us:
                    self._seal_one_more(world, life, chain, machine)
                elif self.forgets_late:
                    continue
                if machine.holding:
                    self._forget(world, life.node, machine, stream, chain.through_us)
            life.pause(SEAL_US)

    def _seal_one_more(self, world: World, life: Life, chain: Chain, machine: Any) -> None:
        """Seal what is whole, if this replica leads; now and then, although it does not."""
        leads = machine.election.leading
        if not leads and life.random.random() > 0.1:
            chain.refresh()
            return
        if not leads:
            world.sometimes(SECOND_SEALER)
        watermark = self._watermark(machine, chain.name)
        waiting = [event for piece in machine.merge.whole(chain.name, watermark) for event in piece]
        seal_interval(chain, table_of(waiting, chain.schema), watermark, RULE)

    # ---- failures ----------------------------------------------------------------------------------------------

    def states(self, world: World, name: str) -> Collection[str]:
        return (*super().states(world, name), *self.actions.states(world, name))

    def faults(self, world: World, draw: Random) -> Sequence[Fault]:
        drawn = [*super().faults(world, draw), *self.actions.disks.faults(self.faults_us)]
        if draw.random() < 0.5:
            drawn += draw_aimed(draw, self.actions.names, MOMENTS, self.faults_us)
        if draw.random() < 0.6:  # What they hold is nowhere else, and the others' swarm seldom meets them.
            for host in (*self.writers.names, *self.reactors.names):
                for _ in range(draw.randrange(8)):
                    for_us = draw.choice((1, 20, 200)) * MILLISECOND_US
                    drawn.append(Crash(at_us=draw.randrange(self.faults_us), node=host, for_us=for_us))
        return sorted(drawn, key=lambda fault: fault.at_us)

    # ---- judgement ---------------------------------------------------------------------------------------------

    def settled(self, world: World) -> bool:
        membership: Any = world.machine(MEMBERSHIP)
        if membership is None or not self._is_whole(membership) or self._behind(world):
            return False
        if max(self.reactors.through.values()) < TIME_MAX:
            return False
        return all(self.seen.through(stream) == TIME_MAX for stream in SITUATIONS) and self.actions.settled(world)

    def rest_us(self, world: World) -> int:
        sent = sum(map(len, self.line.sent.values()))
        actions_us = self.actions.resting.rest_us(world, self.actions.begun(world))
        return self.resting.left_us(sent) + self.writers.silence_us + actions_us

    def silence_us(self, world: World) -> int:
        """The log, correlation and the processes may have to wait for each other."""
        return self.writers.silence_us + super().silence_us(world) + self.actions.silence_us(world)

    def progress(self, world: World) -> object:
        sealed = [self.seen.through(stream) for stream in self.schemas]
        started = [len(self.actions.ends), *self.reactors.through.values()]
        return sealed, started, self.writers.reached, super().progress(world), self.actions.progress(world)

    def parts(self, world: World, finished: bool) -> Iterable[Violation]:
        """What the checkers of the parts see, each by itself."""
        yield from self.beside.errors
        for line in world.history:
            if line.what == "stop" and node_of(line.node):
                yield Violation("no replica stops by itself", (f"{line.at_us} us: {line.node}: {line.value}",))
        yield from self.judge.of_the_log()
        yield from self.actions.liveness(world) if finished else self.actions.checked(world)

    def safety(self, world: World) -> Iterable[Violation]:
        self.beside.stop()
        self.beside.note()
        yield from self.parts(world, finished=False)
        yield from self.judge.end_to_end(self.actions, self.reactors, finished=False)

    def liveness(self, world: World) -> Iterable[Violation]:
        for stream in self.schemas:
            through = self.seen.through(stream)
            if through < TIME_MAX:
                yield Violation("everything is sealed once faults are over", (f"{stream} through {through}",))
        yield from self.parts(world, finished=True)
        yield from self.judge.end_to_end(self.actions, self.reactors, finished=True)


mutant(
    Whole,
    "a replica that is behind keeps what is sealed",
    forgets_late=True,
    windows=(2,),
    losses_share=1.0,
)
for _name, _broken in MUTANTS.items():
    mutant(Whole, _name, **_broken)
