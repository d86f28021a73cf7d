"""What situations start: process nodes and services, and the hosts that read what is sealed and start an instance for
each situation."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any, ClassVar, Final

from unerring.log import Positions, Store, events_of
from unerring.model import BEFORE_ALL, MILLISECOND_US, TIME_MAX, Event, Stamp, StreamSchema
from unerring.processes import (
    ClusterBounds,
    Edge,
    Graph,
    Grouping,
    Kind,
    Process,
    ProcessesConfig,
    Reaction,
    Retry,
    Service,
    Start,
    State,
    Variable,
    Vertex,
)
from unerring.simulation.beside import Beside, Life, WorldLog
from unerring.simulation.disk import DiskSpec
from unerring.simulation.lost_disks import LostDisks
from unerring.simulation.process_architect import CANCELLING, SERVICES
from unerring.simulation.process_parts import Client
from unerring.simulation.scenarios.processes import Processes
from unerring.simulation.tiny import tiny
from unerring.simulation.world import World

PROCESS: Final = "relief"
REACTORS: Final = ("react0", "react1")
SITUATION: Final = ("time", "ordinal", "v")
"""What every request says of its situation."""
STARTED_AGAIN: Final = "a host that began again started what it had started"


class Acting(Processes):
    """The nodes, services and checks of the scenario `processes`, with instances that situations start."""

    replicas = (1,)
    lost_disk_chance = 0.15
    founding_chance = 0.1

    def build(self, world: World) -> None:
        draw = Random(f"acting {world.seed}")
        self.f = draw.choice(self.replicas)
        self.names = tuple(f"node{n}" for n in range(2 * self.f + 1))
        self.disks = LostDisks(world, self.names, self.f, self.lost_disk_chance, self.founding_chance)
        self.process = process_of(draw, CANCELLING if self.disks.happen else SERVICES)
        self.deployed = {f"{PROCESS}@{self.process.graph.version}": self.process}
        self.lacks = {}
        self.ends: dict[str, dict[str, State]] = {}
        self.answers, self.misled, self.instances = {}, [], []
        config = ProcessesConfig(
            tick_us=20 * MILLISECOND_US,
            heartbeat_us=40 * MILLISECOND_US,
            suspect_us=draw.choice((150, 300)) * MILLISECOND_US,
            backoff_us=draw.choice((20, 100)) * MILLISECOND_US,
            resend_us=60 * MILLISECOND_US,
            sweep_patience_us=draw.choice((200, 1000)) * MILLISECOND_US,
            undo_attempt_us=60 * MILLISECOND_US,
            undo_pause_us_max=400 * MILLISECOND_US,
            tend_us=draw.choice((50, 300)) * MILLISECOND_US,
            naming=draw.choice(("self", "rotate")),
            leads_max=draw.choice((1, 100)),
            transfers_max=draw.choice((1, 64)),
        )
        self.config, self.bounds = tiny(world.seed, config), tiny(world.seed, ClusterBounds(f=self.f))
        self.grouping = Grouping(
            failover_us=draw.choice((0, 500, 5000)) * MILLISECOND_US,
            view_change_us=50 * MILLISECOND_US,
            each_alone=draw.random() < 0.2,
        )
        self.disk = DiskSpec(sync_us=draw.choice((200, 500)), spread_us=500)
        for name in self.names:
            self._add_node(world, name)
        self._add_services(world)
        self.resting = self.new_resting()

    def begun(self, world: World) -> list[str]:
        return self._all(world)

    def ended(self, *statuses: str) -> list[str]:
        """The instances that any node has seen end so."""
        return [
            instance
            for instance, states in self.ends.items()
            if any(state.status in statuses for state in states.values())
        ]

    def lines(self, world: World) -> list[tuple[int, Any]]:
        """Of the services' journals, in the order of time."""
        machines: list[Any] = [world.nodes[f"service:{name}"].machine for name in ("bank", "shop")]
        return sorted((line for machine in machines if machine for line in machine.journal), key=lambda line: line[0])


def process_of(draw: Random, services: tuple[Service, ...]) -> Process:
    """One to three actions in a row, each told of the situation; the first has an effect."""
    retry = Retry(attempt_us=150 * MILLISECOND_US, attempts_max=5, backoff_us=10_000, occurrences_max=3)
    kinds = ["write", *(draw.choice(("write", "shop", "final", "det")) for _ in range(draw.choice((0, 0, 1, 2))))]
    vertices = tuple(
        Vertex(
            f"a{number}",
            Kind.CALL,
            service="shop" if kind == "shop" else "bank",
            operation="det" if kind == "det" else "write",
            reads=SITUATION,
            writes=(f"x{number}",),
            write=kind != "det",
            deterministic=kind == "det",
            compensable=kind != "final",
            compensation="refund" if kind == "shop" else "",
            cost=draw.choice((0, 1, 5)),
            retry=retry,
            alone=draw.random() < 0.2,
        )
        for number, kind in enumerate(kinds)
    )
    names = [*SITUATION, *(f"x{number}" for number in range(len(kinds)))]
    ends = ["", *(vertex.name for vertex in vertices), ""]
    edges = tuple(Edge(one, other) for one, other in pairwise(ends))
    graph = Graph(PROCESS, vertices, edges, tuple(Variable(name, "int", 0) for name in names), services)
    return Process.of(graph, {}, dict.fromkeys(names, int))


class Reacting:
    """One or two hosts that start instances, at the same time: starting an id again is the same start."""

    hosts: ClassVar[tuple[int, ...]] = (1, 1, 2)
    at_once: ClassVar[tuple[int, ...]] = (1, 4, 16)
    """How many are started together, before the position moves on."""
    PAUSE_US: ClassVar[int] = 8 * MILLISECOND_US

    def __init__(self, world: World, beside: Beside, nodes: tuple[str, ...], f: int, situation: StreamSchema) -> None:
        self._world = world
        self._schema = situation
        self._at_once = world.draw.choice(self.at_once)
        self._commits = world.draw.choice((0.1, 0.5, 1.0))
        self.reaction = Reaction(situation.name, PROCESS, (("v", "v"),))
        self.names = REACTORS[: world.draw.choice(self.hosts)]
        self.through = dict.fromkeys(self.names, BEFORE_ALL.time)
        """Up to where each has acted."""
        self._asked: dict[tuple[str, str], Life] = {}
        """By host and instance, in which life it was asked for."""
        for name in self.names:
            world.add(name, lambda records, entropy, now: Client(nodes, f, entropy))
            beside.attach(name, self.react)

    def start_of(self, situation: Event, life: Life) -> Start:
        """The product's id and values, and which situation it is."""
        stamp = situation.stamp
        given = {**self.reaction.values(situation), "time": stamp.time, "ordinal": stamp.ordinal}
        return Start(self.reaction.instance(situation), PROCESS, given)

    def react(self, life: Life, store: Store) -> None:
        """From the committed position on, batch by batch; a position is committed once its starts are decided."""
        chain = WorldLog(store, self._world).create(self._schema, 1)
        positions = Positions(store, self._schema.name)
        done = positions.get(self.reaction.reader)
        while True:
            through = chain.refresh()
            # The position may lie inside a time, of which the rest is still to come.
            begin = max(done.time - 1, chain.base.from_us)
            events = [event for event in events_of(chain.read(begin, through), self._schema) if event.stamp > done]
            for first in range(0, len(events), self._at_once):
                batch = events[first : first + self._at_once]
                self.start_all(batch, life)
                done = batch[-1].stamp
                if life.random.random() < self._commits:
                    positions.commit(self.reaction.reader, done)
            self.through[life.node] = through
            if through >= TIME_MAX:
                positions.commit(self.reaction.reader, Stamp(through, 0))
                return
            life.pause(self.PAUSE_US)

    def start_all(self, situations: list[Event], life: Life) -> None:
        """Ask until each is started."""
        starts = [self.start_of(situation, life) for situation in situations]
        for start in starts:
            if self._asked.get((life.node, start.instance), life) is not life:
                self._world.sometimes(STARTED_AGAIN)
            self._asked[life.node, start.instance] = life
            self._world.call(life.node, "want", start)
        while not all(start.instance in self._started(life) for start in starts):
            life.pause(5 * MILLISECOND_US)

    def _started(self, life: Life) -> dict[str, None]:
        machine: Any = self._world.nodes[life.node].machine
        started: dict[str, None] = machine.started
        return started
