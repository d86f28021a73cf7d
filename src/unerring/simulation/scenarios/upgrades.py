"""Upgrades of a live run, among the faults of `correlation`: rules are changed, added and removed while it runs.

The scenario plays the store and the supervisors: it hands every machine the next topology, some time or other, starts
the new nodes and lets them make their states of the log, agrees on the time when everybody is ready, and ends the old
nodes when nobody needs them. Up to that time the old rules' outputs are right, after it the new ones'.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any, Final

import msgspec

from unerring.audit import Stage, Violation, perfect_run
from unerring.correlation import (
    ENGINE,
    MEMBERSHIP,
    OPERATOR,
    PRODUCER,
    AskLog,
    FromLog,
    NodeSpec,
    Publish,
    Rearrange,
    Role,
    Switch,
    Topology,
    Watcher,
    alone,
    committed,
    lanes_at,
    node_of,
)
from unerring.matching import Merge
from unerring.model import MILLISECOND_US, TIME_MAX, TIME_MIN, Event
from unerring.simulation import World, broken_switches as broken, mutant, scenario
from unerring.simulation.mixing import Mixing, Recalling, formed
from unerring.simulation.query_tree import OUTPUTS, schema, tree
from unerring.simulation.resting import phases
from unerring.simulation.scenarios.correlation import Correlating
from unerring.simulation.standing import standing

LOOK_US = 20 * MILLISECOND_US
SALTS: Final = (7, 11, 13)
"""Of the rules that came with each edition."""


@scenario("correlation-upgrade")
class Upgrading(Correlating):
    """The first edition is the query tree; which nodes the second one changes, adds and removes is drawn."""

    must_reach: tuple[str, ...] = (
        "two leaders at once",
        "an evicted replica joined again",
        "a replica made its state of the log",
        "a state of the log held events that wait",
        "a replica crashed while it made its state",
        "the time was agreed on among faults",
        "a replica crashed around the agreed time",
        "a receiver took both nodes' streams",
        "a rule was added",
        "a rule was removed",
        "old nodes ended",
    )
    pauses_ms = (10, 20, 40)
    shards_share = 0.0
    waits_us = (300 + 150) * MILLISECOND_US + 40 * LOOK_US
    """A new node starts, a state is made of the log, and everybody has heard of the nodes that there are."""
    rounds = 2
    """New nodes join when the old ones have made what is in the log."""
    looks_back = Recalling.LOOKS_BACK
    upgrades = 1
    """How many there are, one after the other."""
    waits = True
    """Whether old nodes stay until nobody needs them."""

    # ---- the world ---------------------------------------------------------------------------------------------

    def _tree(self) -> Topology:
        """As the live engine has it: the application gets all that rules make."""
        plain = tree(self.f)
        made = tuple(stream for streams in OUTPUTS.values() for stream in streams)
        nodes = [msgspec.structs.replace(n, inputs=made) if n.name == "app" else n for n in plain.nodes]
        return Topology(tuple(nodes), plain.streams)

    def build(self, world: World) -> None:
        self.durable = Random(f"durable {world.seed}").random() < 0.3
        super().build(world)
        self.follows = True  # as the sources of a live run do
        self.plan = Random(f"upgrade {world.seed}")
        self.number = 1
        """Of the upgrade that is under way, or was the last."""
        self.agreed: dict[int, Switch] = {}
        self.done = False
        self.lives: dict[str, tuple[NodeSpec, Topology]] = {}
        """All nodes that there were, each as it was last, with the topology that it came in."""
        self.combined = self._combined()
        self._note_lives()
        self.version = 0
        """Of the cluster file: 1 with the new nodes, 2 without the old ones."""
        self.told: dict[str, tuple[int, int]] = {}
        self.busy: set[str] = set()
        self.through = dict.fromkeys((s for node in self.combined.nodes for s in node.outputs), TIME_MIN)
        """How far the log of each rule's stream is."""
        world.at(self.plan.randrange(self.publishing_us // 2), lambda: self._propose(world))
        world.every(LOOK_US, lambda: self._carry_on(world), self.faults_us + self.calm_us)

    @property
    def switch(self) -> Switch | None:
        """What was agreed last."""
        return next(reversed(self.agreed.values()), None)

    def _note_lives(self) -> None:
        for node in self.combined.nodes:
            if node.role is Role.CORRELATION:
                _, came = self.lives.get(node.name, (node, self.combined))
                self.lives[node.name] = node, came

    def _combined(self) -> Topology:
        """The old and the new nodes side by side: a coin for each rule whether it changes, and now and then one comes
        or goes."""
        changed = [name for name in OUTPUTS if self.plan.random() < 0.4] or [self.plan.choice(list(OUTPUTS))]
        self.adds, self.removes = self.plan.random() < 0.3, self.plan.random() < 0.3
        if self.removes:  # V goes, and W reads it no more
            changed = [*(name for name in changed if name not in ("V", "W")), "W"]
        nodes: list[NodeSpec] = []
        for node in self.topology.nodes:
            goes = node.name in changed or (self.removes and node.name == "V")
            nodes.append(msgspec.structs.replace(node, ends=self.number) if goes else node)
            if node.name in changed:
                inputs = ("y", "z") if self.removes and node.name == "W" else node.inputs
                nodes.append(self._new(node.name, inputs, node.outputs, node.f))
        if self.adds:
            nodes.append(self._new("Q", ("a", "x1", "w"), ("q",), self.plan.choice((1, 2))))
        taken = tuple(dict.fromkeys(s for n in nodes if n.role is Role.CORRELATION for s in n.outputs))
        nodes = [msgspec.structs.replace(n, inputs=taken) if n.name == "app" else n for n in nodes]
        streams = (*self.topology.streams, *((schema("q"),) if self.adds else ()))
        return Topology(tuple(nodes), streams, upgrade=self.number, origin=self.topology.fingerprint())

    def _new(self, part: str, inputs: tuple[str, ...], outputs: tuple[str, ...], f: int) -> NodeSpec:
        name = f"{part}-{self.number}"
        return NodeSpec(name, Role.CORRELATION, inputs, outputs, f, begins=self.number, part=part)

    def _engine(self, node: NodeSpec) -> Mixing:
        return Recalling(node.outputs, self.topology.streams if self.columns else (), SALTS[node.begins])

    def _factory(self, node: NodeSpec, name: str) -> Any:
        """A process of a node that has gone finds nothing to do."""
        make = super()._factory(node, name)

        def process(records: Mapping[str, bytes], entropy: Any, now: int) -> Any:
            known = any(one.name == node.name for one in self._nodes_of(name).nodes)
            return make(records, entropy, now) if known else Watcher(self.config)

        return process

    def _deliver(self, world: World, node: NodeSpec, name: str, what: Any) -> None:
        if isinstance(what, AskLog):
            self._asked(world, name, what)

    # ---- sources -----------------------------------------------------------------------------------------------

    def _follow(self, world: World, stream: str) -> None:
        """The log is read, then what is agreed: whoever hands on something later than that time knows it."""
        name = f"source_{stream}/0"
        source: Any = world.machine(name)
        if source is None or source.full:
            return
        last = source.outgoing.queues[stream].last
        rest = [event for event in self.published[stream] if event.stamp > last]
        piece = [event for event in rest[:20] if event.stamp.time < rest[:20][-1].stamp.time] or rest
        through = self.sealed[stream] if len(piece) == len(rest) else piece[-1].stamp.time
        made = formed(piece, self._form(stream)) if piece else ()
        if piece or through > source.outgoing.queues[stream].watermark:
            world.call(name, "handle", PRODUCER, Publish(stream, made, through, self.switch))

    def _end(self, world: World) -> None:
        """Streams that have ended for good have nothing that other rules could find: they go on until the time is
        agreed on."""
        if len(self.agreed) >= self.upgrades:
            super()._end(world)
        else:
            self._go_on(world)

    def _go_on(self, world: World) -> None:
        for stream in self.published:
            self._seal(world, stream)

    # ---- the upgrade -------------------------------------------------------------------------------------------

    def _propose(self, world: World) -> None:
        self.topology = self.combined
        self.version = 1
        for node in self.topology.nodes:
            if self.topology.is_coming(node):
                self.f[node.name] = node.f
                for name in node.replicas:
                    self._add(world, node, name, world.now_us + self.plan.randrange(300) * MILLISECOND_US)

    def _carry_on(self, world: World) -> None:
        self._read_logs(world)
        self._tell(world)
        membership: Any = world.machine(MEMBERSHIP)
        if membership is None or membership.topology != self.topology or not self.version or self.done:
            return
        if self.switch is None and membership.is_ready():
            at_us = max(max(self.sealed.values()), 0) + self.plan.choice((0, 0, 30))
            self.agreed[self.number] = Switch(self.number, at_us)
            if world.faults_on:
                world.sometimes("the time was agreed on among faults")
            self._crash_around(world)
        elif self.switch is not None and (membership.has_passed() or not self.waits):
            self._end_old(world)

    def _version_of(self, name: str) -> int:
        """The cluster file that is there for a process."""
        return self.version

    def _tell(self, world: World) -> None:
        """Some time or other each process reads it."""
        for name, node in world.nodes.items():
            topology, version = self._nodes_of(name), self._version_of(name)
            if node_of(name) and all(one.name != node_of(name) for one in topology.nodes):
                continue  # it is about to end
            process, known = (node.incarnation, version), self.told.get(name, (0, 0))
            if not version or world.machine(name) is None or known == process:
                continue
            if node.incarnation > known[0] or self.plan.random() < 0.3:
                self.told[name] = process
                world.call(name, "handle", OPERATOR, Rearrange(topology))

    def _crash_around(self, world: World) -> None:
        """As many as the budget has, when the time is agreed on, and again while it passes."""
        for _ in range(self.plan.randrange(3)):
            at_us = world.now_us + self.plan.randrange(200) * MILLISECOND_US
            node = self.plan.choice(list(self.f))
            world.at(at_us, lambda node=node: self._strike_one(world, node))  # type: ignore[misc]

    def _strike_one(self, world: World, node: str) -> None:
        if world.faults_on and node in self.f and self._crash_one(world, node):
            world.sometimes("a replica crashed around the agreed time")

    def _end_old(self, world: World) -> None:
        going = [node for node in self.combined.nodes if self.combined.is_ending(node)]
        self.topology = alone(self.combined, self.agreed[self.number].at_us)
        self.version, self.done = 2, True
        for name in [name for node in going for name in self._replicas(world, node.name)]:
            world.crash(name)
            world.gone.append(name)
        for node in going:
            del self.f[node.name]
        if going:
            world.sometimes("old nodes ended")

    # ---- the log -----------------------------------------------------------------------------------------------

    def _read_logs(self, world: World) -> None:
        """What the application has committed is the log of the streams that rules make."""
        app = world.nodes["app/0"]
        if app.machine is not None and not app.syncing:
            machine: Any = app.machine
            for stream in machine.streams:
                self.through[stream] = max(self.through.get(stream, TIME_MIN), machine.watermark(stream))

    def _logs(self, world: World, streams: Iterable[str]) -> dict[str, tuple[Sequence[Event], int]]:
        records = world.nodes["app/0"].storage.load()
        return {
            s: (self.published[s], self.sealed[s]) if s in self.published else (committed(records, s), self.through[s])
            for s in streams
        }

    def _asked(self, world: World, name: str, ask: AskLog) -> None:
        """A driver makes the state of the log, and takes its time."""
        topology = self._nodes_of(name)
        node = topology.node(node_of(name))
        logs = self._logs(world, [known.name for known, _ in topology.inputs(node.name)])
        ends = {known: logs[topology.stream_of(known)][1] for known in ask.marks}
        if name in self.busy or any(mark.time > ends[known] for known, (mark, _) in ask.marks.items()):
            return  # It makes one, or the log is not that far yet; it asks again.
        through = min(reached for _, reached in logs.values())
        if self.switch is not None and self.switch.number == topology.upgrade:
            through = min(through, self.switch.at_us)
        lanes = lanes_at(topology, ask.marks, through, lambda stream, mark: logs[stream][0])
        events = {s: [e for e in kept if e.stamp.time <= through] for s, (kept, _) in logs.items()}
        made = FromLog(ask.incarnation, through, lanes, self._warm(node, events, through), self.switch)
        self.busy.add(name)
        if any(lane.waiting for lane in lanes.values()):
            world.sometimes("a state of the log held events that wait")

        def answer() -> None:
            self.busy.discard(name)
            if world.call(name, "handle", ENGINE, made):
                world.sometimes("a replica made its state of the log")

        world.at(world.now_us + 1 + self.plan.randrange(150) * MILLISECOND_US, answer)

    def _warm(self, node: NodeSpec, events: Mapping[str, Sequence[Event]], through: int) -> bytes:
        merge = Merge(self.topology.inputs(node.name), rows_max=1 << 62)
        for stream, some in events.items():
            for event in some:
                if event.stamp.time > through - self.looks_back:
                    merge.push(event)
            merge.advance(stream, through)
        engine = self._engine(node)
        engine.feed(merge.release()[0], through)
        return engine.snapshot()

    # ---- failures ----------------------------------------------------------------------------------------------

    def _crash_one(self, world: World, node: str) -> bool:
        """Until the time is agreed on, the replicas of new nodes may all be lost."""
        if not self.topology.is_coming(self.topology.node(node)) or self.number in self.agreed:
            return super()._crash_one(world, node)
        running = [name for name in self._replicas(world, node) if world.nodes[name].machine is not None]
        if not running or self.failures.random() < 0.5:
            return False
        self._crash(world, self.failures.choice(running))
        world.sometimes("a replica crashed while it made its state")
        return True

    def _evict_one(self, world: World, node: str) -> None:
        membership: Any = world.machine(MEMBERSHIP)
        if membership is not None and membership.record.of(node):
            super()._evict_one(world, node)

    # ---- what is seen ------------------------------------------------------------------------------------------

    def settled(self, world: World) -> bool:
        return self.done and super().settled(world)

    def progress(self, world: World) -> object:
        """Until the time is agreed on, streams go on for ever: that is no step towards it."""
        if self.switch is not None:
            return self.version, super().progress(world)
        membership: Any = world.nodes[MEMBERSHIP].machine
        known = [upgrade for _, upgrade, _ in membership._known.values()] if membership else []
        return self.version, membership and membership.record.version, known, phases(world)

    def _streams(self, world: World) -> tuple[dict[str, list[Event]], dict[str, list[Event]]]:
        """Which rules counted when: the perfect run of both, joined at the agreed time."""
        records = world.nodes["app/0"].storage.load()
        return {stream: committed(records, stream) for stream in self._names()}, self._perfect()

    def _names(self) -> Iterable[str]:
        """The streams that rules make."""
        return self.combined.node("app").inputs

    def _perfect(self) -> dict[str, list[Event]]:
        at_us = {number: switch.at_us for number, switch in self.agreed.items()}
        streams: dict[str, list[Event]] = {**self.published, "q": []}
        for part in (*OUTPUTS, "Q"):
            made: dict[str, list[Event]] = {}
            lives = [(node, came) for node, came in self.lives.values() if part in (node.name, node.part)]
            for node, came in sorted(lives, key=lambda one: one[0].begins):
                found = self._stage(node, came, streams)
                after = at_us.get(node.begins, TIME_MAX) if node.begins else TIME_MIN
                until = at_us.get(node.ends, TIME_MAX)
                for stream in node.outputs:
                    counts = [event for event in found[stream] if after < event.stamp.time <= until]
                    made.setdefault(stream, []).extend(counts)
            streams |= made
        return streams

    def _stage(self, node: NodeSpec, came: Topology, streams: Mapping[str, list[Event]]) -> dict[str, list[Event]]:
        rules = Recalling(node.outputs, (), SALTS[node.begins])
        stage = Stage(came.inputs(node.name), lambda rows, time: rules.feed(rows, time).outputs)
        known = {schema.name: streams[schema.name] for schema, _ in stage.inputs}
        made = perfect_run([stage], known)
        return {stream: made.get(stream, []) for stream in node.outputs}

    def safety(self, world: World) -> Iterable[Violation]:
        if self.adds and self.switch is not None:
            world.sometimes("a rule was added")
        if self.removes and self.switch is not None:
            world.sometimes("a rule was removed")
        for node in world.nodes.values():
            if any(getattr(getattr(node.machine, "intake", None), "ended", {})):
                world.sometimes("a receiver took both nodes' streams")
        yield from super().safety(world)

    def liveness(self, world: World) -> Iterable[Violation]:
        if not self.done:
            membership: Any = world.nodes[MEMBERSHIP].machine
            lines = (f"agreed: {self.switch}", f"{membership.record}", f"{membership._known}", *standing(world))
            yield Violation("an upgrade completes once faults are over", lines)
        yield from super().liveness(world)


mutant(Upgrading, "it starts at the stamp instead of before it", looks_back=0)
mutant(Upgrading, "the old rules go on after the stamp", replica=broken.OldGoesOn)
mutant(Upgrading, "the new rules begin before the stamp", replica=broken.NewBeginsBefore)
mutant(Upgrading, "the time does not travel with the streams", source=broken.KeepsTheTime)
mutant(
    Upgrading,
    "upstreams do not wait for new nodes",
    source=broken.RegistersStrangers,
    replica=broken.StrangersAtReplicas,
    seeds_max=200,
)
mutant(Upgrading, "old nodes end before everybody has passed", waits=False)
