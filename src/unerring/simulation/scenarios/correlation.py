"""Correlation: three levels with a diamond (`query_tree`), f of f+1 replicas down at every node at once, joins and
evictions, replicas lost for good and replaced. They fail by a budget that counts joiners and evicted ones as failed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from random import Random
from types import MappingProxyType
from typing import Any

from unerring.audit import Violation, check_strong_reliability
from unerring.correlation import (
    MEMBERSHIP,
    Application,
    CorrelationConfig,
    Membership,
    NodeSpec,
    Replica,
    Role,
    Source,
    Standing,
    Topology,
    committed,
    node_of,
)
from unerring.model import (
    MILLISECOND_US,
    SECOND_US,
    TIME_MAX,
    TIME_MIN,
    Entropy,
    Event,
    Stamp,
    StreamSchema,
)
from unerring.simulation import (
    ClockDrift,
    ClockJump,
    Congestion,
    Crash,
    FailedSync,
    Fault,
    FullDisk,
    Happened,
    Partition,
    Pause,
    Reset,
    Scenario,
    SlowDisk,
    World,
    broken_replicas as broken,
    draw_faults,
    mutant,
    scenario,
)
from unerring.simulation.broken_parts import AcksWithoutDisk, BelievesInALeader
from unerring.simulation.links_at_fault import late_at_some, resets
from unerring.simulation.losses import LOOK_US, LOST, REPLACED, Losses, lacking
from unerring.simulation.mixing import KeyedMixing, Mixing, after, formed, payload_of
from unerring.simulation.node import State
from unerring.simulation.pairs import GENTLE
from unerring.simulation.query_tree import (
    OUTPUTS,
    SITUATIONS,
    divided,
    draw_shards,
    reference,
    rules_of,
    schema,
    tree,
)
from unerring.simulation.resting import Resting, levels, places, reached
from unerring.simulation.standing import standing
from unerring.simulation.tiny import is_tiny, tiny

ENTERING = "a replica enters"
JOINING = "a replica joins"
LEADING = "a replica leads"
FULL = "a replica waits for room"


@scenario("correlation")
class Correlating(Scenario):
    """All faults within the budget; the five properties of Definition 1 at the top."""

    faults_us = 3 * SECOND_US
    calm_us = 600 * SECOND_US
    must_reach: tuple[str, ...] = (
        "two leaders at once",
        "f failed at every node at once",
        "joins at neighbouring levels at once",
        "an evicted replica joined again",
        "a replica waited for room",
        "a gap was seen",
        "a source refused for want of room",
        "a joiner lost its peers at once",
        LOST,
        REPLACED,
        "shards took what shards made",
        "a joiner was a shard",
    )

    sought = MappingProxyType(dict.fromkeys((ENTERING, JOINING, LEADING, FULL), GENTLE))
    """A crash would have to keep within the budget."""
    replica: type[Replica] = Replica
    source: type[Source] = Source
    application: type[Application] = Application
    membership: type[Membership] = Membership
    durable = False
    record_late: tuple[int, ...] = (100, 500, 1500)
    """By which factor the record's word may be late, so that replicas act by records of different age: in every other
    seed; always, if there is but one."""
    late_at_some: float = 0.25
    """The share of seeds in which the record's messages come late to some nodes only."""
    strikes: float = 0.25
    """The share of seeds in which the peers of a joiner crash, within the budget, as soon as it is granted."""
    evictions: float = 0.25
    """Which share of the failures are evictions of a replica that may be well."""
    losses_share: float = 0.5
    """The share of seeds in which replicas are lost for good, and the keeper evicts who is silent."""
    follow_share: float = 0.4
    """The share of seeds in which sources follow a log."""
    shards_share: float = 0.4
    """The share of seeds in which some nodes have shards."""
    whole: tuple[str, ...] = ()
    """Nodes that never have."""
    windows: tuple[int, ...] = (2, 5, 20, 100)
    """How many events a receiver may have under way to it."""
    pauses_ms: tuple[int, ...] = (2, 5, 15)
    waits_us = 0
    """How long what the scenario plays itself may take: stores, engines, supervisors."""
    room_us = 0
    """How much later a receiver has room again because of it."""
    rounds = 1
    """How often all levels of the tree have to join, one after the other."""
    failing_ms: tuple[int, ...] = (50, 100, 300, 1000)
    _counted = 0
    """How many nodes are told apart in `_by_node`."""

    # ---- the world ---------------------------------------------------------------------------------------------

    def build(self, world: World) -> None:
        draw = world.draw
        slow = 4 if is_tiny(world.seed) else 1  # what waits for room all the time takes long
        self.publishing_us = self.faults_us * draw.randrange(10, 100) // 100 // slow
        self.f = {name: draw.choice((1, 1, 2)) for name in OUTPUTS} | self._f_of_ends(world)
        self.shards = draw_shards(world.seed, self.shards_share, self.whole)
        self.perfect = self._tree()
        self.topology = divided(self.perfect, self.shards)
        self.f = {node.name: node.f for node in self.topology.nodes if node.hosts in self.f}
        self.losses = Losses(world.seed, self.losses_share)
        config = CorrelationConfig(
            window_events=draw.choice(self.windows),
            outgoing_events_max=draw.choice((4, 20, 100)),
            batch_events_max=draw.choice((1, 3, 50)),
            flights_max=draw.choice((1, 4)),
            process_pause_us=draw.choice((1, 1, 1000, 20_000)),
            durable_snapshot_events=20,
            snapshot_part_bytes=draw.choice((200, 5000)),
            process_events_max=Random(f"steps {world.seed}").choice((1, 4, 1000)),
            ask_us=Random(f"asks {world.seed}").choice((0, 0, 5, 50)) * MILLISECOND_US,
        )
        self.config = tiny(world.seed, self.losses.applied(config))
        phases = self.rounds * levels(self.topology)
        self.resting = Resting(self.config, phases, self.durable, self.waits_us, self.room_us)
        self.published: dict[str, list[Event]] = {name: [] for name in ("a", "b", "c")}
        self.failures = Random(f"failures {world.seed}")
        self.forms = Random(f"forms {world.seed}")
        self.columns = self.forms.random() < 0.5
        """Whether some events travel as columns."""
        self.follows = draw.random() < self.follow_share
        """Whether the sources follow a log, `published`, that never forgets, and keep nothing themselves."""
        self.sealed = dict.fromkeys(self.published, TIME_MIN)
        """How far each log is."""
        world.add(MEMBERSHIP, self._membership)
        for node in self.topology.nodes:
            for name in node.replicas:
                self._add(world, node, name)
        self._spares(world)
        for stream in self.published:
            pause_us = draw.choice(self.pauses_ms) * MILLISECOND_US
            world.every(pause_us, lambda stream=stream: self._publish(world, stream), self.publishing_us)  # type: ignore[misc]
        world.every(50 * MILLISECOND_US, lambda: self._end(world), self.faults_us + self.calm_us, self.publishing_us)
        world.every(10 * MILLISECOND_US, lambda: self._observe(world), self.faults_us)
        self._fail_now_and_then(world)
        world.every(LOOK_US, lambda: self._replace(world), self.faults_us + self.calm_us)
        words = Random(f"words of links {world.seed}")  # They repair much: most seeds must do without.
        world.word_us_max = words.choice((None, None, None, words.choice((1, 20, 500)) * MILLISECOND_US))
        if Random(f"strikes {world.seed}").random() < self.strikes:
            self._granted = self._caught_up(world)
            world.every(MILLISECOND_US, lambda: self._strike(world), self.faults_us)

    def _tree(self) -> Topology:
        return tree(self.f, bool(self.shards))

    def _engine(self, node: NodeSpec) -> Mixing | KeyedMixing:
        return rules_of(self.topology, node, self.shards, self.columns)

    def _f_of_ends(self, world: World) -> dict[str, int]:
        """The f of sources and the application: they stand alone."""
        return {}

    def _add(self, world: World, node: NodeSpec, name: str, start_us: int = 0) -> None:
        world.add(name, self._factory(node, name), partial(self._deliver, world, node, name), start_us=start_us)

    def _deliver(self, world: World, node: NodeSpec, name: str, what: Any) -> None:
        """What a machine has for its driver."""

    def _nodes_of(self, name: str) -> Topology:
        """The nodes that a process starts with."""
        return self.topology

    def _membership(self, records: Mapping[str, bytes], entropy: Entropy, now: int) -> Membership:
        return self.membership(records, self._nodes_of(MEMBERSHIP), self.config, entropy)

    def _factory(self, node: NodeSpec, name: str) -> Any:
        if node.role is Role.SOURCE:
            return lambda records, entropy, now: self._source(records, name)
        if node.role is Role.APPLICATION:
            return lambda records, entropy, now: self.application(records, name, self._nodes_of(name), self.config)
        return lambda records, entropy, now: self.replica(
            name,
            self._nodes_of(name),
            self.config,
            lambda: self._engine(node),
            entropy,
            records if self.durable else None,
        )

    def _source(self, records: Mapping[str, bytes], name: str) -> Source:
        """Γ is what the sources have really published: a crash takes back what was not on disk yet."""
        source = self.source(records, name, self.topology, self.config, self.follows)
        if not self.follows:
            for stream in source.outgoing.own:
                del self.published[stream][source.outgoing.queues[stream].count :]
        return source

    def _spares(self, world: World) -> None:
        """Some nodes get one more replica while running."""
        for name, f in self.f.items():
            if world.draw.random() < 0.3:
                self._add(world, self.topology.node(name), f"{name}/{f + 1}", world.draw.randrange(self.faults_us))

    # ---- the workload ------------------------------------------------------------------------------------------

    def _seal(self, world: World, stream: str) -> None:
        """A log grows whether or not its source is there."""
        if self.sealed[stream] >= TIME_MAX:
            return
        draw = world.draw
        time = max(self.sealed[stream], -1) + 1 + draw.randrange(20)
        self.sealed[stream] = time
        if draw.random() < 0.7:
            size = draw.randrange(2, 12) if draw.random() < 0.1 else 1
            self.published[stream] += self._drawn(stream, time, size, draw)
        self._follow(world, stream)

    def _follow(self, world: World, stream: str) -> None:
        """Hand the source what its log holds after its queue, in whole times."""
        name = f"source_{stream}/0"
        source: Any = world.machine(name)
        if source is None:
            return
        if source.full:
            world.sometimes("a source refused for want of room")
            return
        last = source.outgoing.queues[stream].last
        rest = after(self.published[stream], last)
        piece = [event for event in rest[:20] if event.stamp.time < rest[:20][-1].stamp.time] or rest
        if rest:
            world.call(name, "publish", formed(piece, self._form(stream)))
        if len(piece) == len(rest):
            world.call(name, "advance", stream, self.sealed[stream])

    def _drawn(self, stream: str, time: int, size: int, draw: Random) -> list[Event]:
        """Events of one time."""
        payloads = [payload_of(draw.randrange(1000), bool(self.shards)) for _ in range(size)]
        return [Event(stream, Stamp(time, n), tuple(p.values())[1:], p) for n, p in enumerate(payloads)]

    def _form(self, stream: str) -> StreamSchema | None:
        return schema(stream, bool(self.shards)) if self.columns and self.forms.random() < 0.6 else None

    def _publish(self, world: World, stream: str) -> None:
        if self.follows:
            self._seal(world, stream)
            return
        name = f"source_{stream}/0"
        source = world.machine(name)
        if source is None or source.next_time(stream) > TIME_MAX:
            return
        draw = world.draw
        if draw.random() < 0.3:
            world.call(name, "advance", stream, source.next_time(stream) + draw.randrange(20))
            return
        if source.full:
            world.sometimes("a source refused for want of room")
            return
        time = max(0, draw.randrange(20) + (source.next_time(stream) if self.published[stream] else 0))
        size = draw.randrange(2, 12) if draw.random() < 0.1 else 1
        events = self._drawn(stream, time, size, draw)
        self.published[stream] += events
        world.call(name, "publish", formed(events, self._form(stream)))

    def _end(self, world: World) -> None:
        for stream in self.published:
            if self.follows:
                self.sealed[stream] = TIME_MAX
                self._follow(world, stream)
            else:
                world.call(f"source_{stream}/0", "end", stream)

    # ---- failures ----------------------------------------------------------------------------------------------

    def faults(self, world: World, draw: Random) -> Sequence[Fault]:
        """All nodes are slowed down, cut off and paused; what stands alone crashes and comes back with its disk."""
        alone = [name for name in world.nodes if node_of(name) not in self.f]
        gentle = (Pause, ClockJump, ClockDrift, Partition, Reset, Congestion)
        drawn = [
            *draw_faults(draw, list(world.nodes), self.faults_us, gentle),
            *draw_faults(draw, alone, self.faults_us, (Crash, SlowDisk, FullDisk, FailedSync)),
        ]
        if draw.random() < 0.5:
            drawn += resets(draw, list(world.nodes), self.faults_us)
        if draw.random() < 0.5 or len(self.record_late) == 1:
            slower = draw.choice(self.record_late)
            drawn.append(Congestion(at_us=0, for_us=self.faults_us, node=MEMBERSHIP, slower=slower))
        if Random(f"late {world.seed}").random() < self.late_at_some:
            drawn += late_at_some(world, self.topology, self.faults_us)
        return sorted(drawn, key=lambda fault: fault.at_us)

    def _fail_now_and_then(self, world: World) -> None:
        pause_us = self.failures.choice(self.failing_ms) * MILLISECOND_US

        def again() -> None:
            if world.faults_on:
                self._fail(world)
                world.at(world.now_us + 1 + self.failures.randrange(2 * pause_us), again)

        world.at(self.failures.randrange(2 * pause_us), again)

    def _fail(self, world: World) -> None:
        dice = self.failures.random()
        nodes = list(self.f)
        if dice >= 1 - self.evictions:
            self._evict_one(world, self.failures.choice(nodes))
        elif dice < 0.15:  # As many as the budget has, everywhere.
            for node in nodes:
                while self._crash_one(world, node):
                    pass
            if all(self._healthy(world, node) == 1 for node in nodes):
                world.sometimes("f failed at every node at once")
        else:
            self._crash_one(world, self.failures.choice(nodes))

    def _replicas(self, world: World, node: str) -> Sequence[str]:
        if self._counted < len(world.nodes):  # A node that was added stays.
            self._by_node: dict[str, list[str]] = {}
            for name in world.nodes:
                self._by_node.setdefault(node_of(name), []).append(name)
            self._counted = len(world.nodes)
        return self._by_node.get(node, ())

    def _healthy_ones(self, world: World, node: str) -> list[str]:
        """The replicas that the system relies on: running, caught up in their incarnation, not about to be evicted."""
        membership: Any = world.nodes[MEMBERSHIP].machine
        names = []
        for name in self._replicas(world, node):
            machine: Any = world.nodes[name].machine
            if membership is None or machine is None or world.nodes[name].state >= State.STOPPING:
                continue
            if membership.record.caught_up(name, machine.incarnation) and name not in membership.rounds:
                names.append(name)
        return names

    def _healthy(self, world: World, node: str) -> int:
        return len(self._healthy_ones(world, node))

    def _crash_one(self, world: World, node: str) -> bool:
        """Any replica may crash as long as one that the system counts on remains."""
        healthy = self._healthy_ones(world, node)
        running = [name for name in self._replicas(world, node) if world.nodes[name].machine is not None]
        if not running or world.nodes[MEMBERSHIP].machine is None:
            return False
        victim = self.failures.choice(running)
        if not self.durable and (not healthy or healthy == [victim]):
            return False
        self._crash(world, victim)
        return True

    def _crash(self, world: World, victim: str) -> None:
        remaining = [name for name in self._healthy_ones(world, node_of(victim)) if name != victim]
        world.crash(victim)
        if self.losses.for_good(world, self.topology, victim, remaining):
            return
        down_us = self.failures.choice((1, 20, 200, 1500)) * MILLISECOND_US
        world.at(world.now_us + down_us, lambda: self._come_back(world, victim))

    def _come_back(self, world: World, name: str) -> None:
        if world.faults_on:
            world.start(name)

    def _replace(self, world: World) -> None:
        self.losses.replace(world, self.topology, lambda node, name: self._add(world, node, name, world.now_us))
        self.losses.observe(world)

    def _caught_up(self, world: World) -> set[tuple[str, int]]:
        membership: Any = world.nodes[MEMBERSHIP].machine
        record = self.topology.founding() if membership is None else membership.record
        return {(name, one.incarnation) for name, one in record.members.items() if one.standing is Standing.CAUGHT_UP}

    def _strike(self, world: World) -> None:
        """Somebody new is counted on: then it must do without those that it took its snapshot from."""
        known, self._granted = self._granted, self._caught_up(world)
        for newcomer, _ in sorted(self._granted - known):
            if newcomer in self._healthy_ones(world, node_of(newcomer)):
                for name in self._replicas(world, node_of(newcomer)):
                    if name != newcomer and world.nodes[name].machine is not None:
                        self._crash(world, name)
                world.sometimes("a joiner lost its peers at once")

    def _evict_one(self, world: World, node: str) -> None:
        membership: Any = world.machine(MEMBERSHIP)
        if membership is None:
            return
        members = list(membership.record.of(node))
        victim = self.failures.choice(members)
        # The command may be reckless (nobody remains): the record must then refuse it by itself.
        if victim not in membership.rounds:
            world.call(MEMBERSHIP, "evict", victim)

    def states(self, world: World, name: str) -> Collection[str]:
        machine: Any = world.nodes[name].machine
        if not isinstance(machine, Replica):
            return ()
        told = (
            (ENTERING, machine.phase == 0),
            (JOINING, machine.phase == 1),
            (LEADING, machine.election.leading),
            (FULL, machine.outgoing.full),
        )
        return [state for state, holds in told if holds]

    # ---- what is seen ------------------------------------------------------------------------------------------

    def _observe(self, world: World) -> None:
        joining = dict.fromkeys(OUTPUTS, False)
        for node in [node for node in self.f if self.topology.node(node).hosts in OUTPUTS]:
            machines: list[Any] = [world.nodes[name].machine for name in self._replicas(world, node)]
            machines = [machine for machine in machines if machine is not None]
            if sum(machine.election.leading for machine in machines) > 1:
                world.sometimes("two leaders at once")
            if any(machine.outgoing.full for machine in machines):
                world.sometimes("a replica waited for room")
            spec = self.topology.node(node)
            if any(machine.phase == 1 for machine in machines):
                joining[spec.hosts] = True
                if spec.shard_of:
                    world.sometimes("a joiner was a shard")
        x, _, y, z, w = joining.values()
        if (x and (y or z)) or (w and (y or z)):
            world.sometimes("joins at neighbouring levels at once")
        if any(self.shards.get(below, 1) > 1 and self.shards.get(above, 1) > 1 for below, above in ("XY", "XZ", "YW")):
            world.sometimes("shards took what shards made")

    def settled(self, world: World) -> bool:
        application: Any = world.machine("app/0")
        membership: Any = world.machine(MEMBERSHIP)
        if application is None or membership is None or not self._is_whole(membership):
            return False
        return not world.nodes["app/0"].syncing and not self._behind(world)

    def _is_whole(self, membership: Any) -> bool:
        """Whether every joiner is caught up, and every node has its replicas again."""
        if any(member.standing is Standing.JOINING for member in membership.record.members.values()):
            return False
        return not (self.losses.on and any(lacking(self.topology, membership.record)))

    def _behind(self, world: World) -> list[str]:
        """The nodes that are not at the end of all their inputs: a replica that is stuck cannot take over."""
        return [name for name, time, _ in reached(world) if time < TIME_MAX]

    def rest_us(self, world: World) -> int:
        return self.resting.rest_us(world, self.published.values())

    def silence_us(self, world: World) -> int:
        return self.resting.silence_us

    def progress(self, world: World) -> object:
        """Of machines, and of the record of who belongs to the run."""
        membership: Any = world.nodes[MEMBERSHIP].machine
        return membership and membership.record.version, places(world)

    def _streams(self, world: World) -> tuple[dict[str, list[Event]], dict[str, list[Event]]]:
        """The delivered events, and those that a perfect run of the published events delivers."""
        records = world.nodes["app/0"].storage.load()
        delivered = {stream: committed(records, stream) for stream in SITUATIONS}
        return delivered, reference(self.perfect, self.published, self.shards)

    def safety(self, world: World) -> Iterable[Violation]:
        for report, what in (
            ("correlation.joins_anew", "an evicted replica joined again"),
            ("correlation.gap", "a gap was seen"),
        ):
            if world.reports.get(report):
                world.sometimes(what)
        delivered, perfect = self._streams(world)
        for stream, events in delivered.items():
            yield from check_strong_reliability(events, perfect[stream])
        for line in world.history:
            if line.what == "stop" and not self._may_stop(line):
                yield Violation("no replica stops by itself", (f"{line.at_us} us: {line.node}: {line.value}",))

    def _may_stop(self, line: Happened) -> bool:
        """A process whose node has gone."""
        return False

    def liveness(self, world: World) -> Iterable[Violation]:
        delivered, perfect = self._streams(world)
        for stream, events in delivered.items():
            yield from check_strong_reliability(events, perfect[stream], complete=True)
        if behind := self._behind(world):
            lines = (f"not at the end: {', '.join(behind)}", *standing(world))
            yield Violation("every replica reaches the end once faults are over", lines)
        membership: Any = world.nodes[MEMBERSHIP].machine
        for name, member in membership.record.members.items():
            if member.standing is Standing.JOINING:
                yield Violation("every joiner is caught up once faults are over", (f"{name} {member}",))
        for node in lacking(self.topology, membership.record) if self.losses.on else ():
            members = tuple(f"{name} {member}" for name, member in membership.record.of(node.name).items())
            yield Violation("every node has its replicas again once faults are over", members)


@scenario("correlation-durable")
class Durable(Correlating):
    """All replicas keep what they acknowledge on disk: all of them may be down at once."""

    durable = True
    must_reach = ("two leaders at once", "an evicted replica joined again", "a gap was seen")


mutant(Correlating, "no duplicate filter", application=broken.NoFilterAtTheTop)
mutant(Correlating, "no prev", replica=broken.NoPrevReplica)
mutant(Correlating, "a watermark counts before its event", replica=broken.WatermarkAnywayReplica)
mutant(Correlating, "ack before accept", replica=broken.AcksBeforeAccepting)
mutant(Correlating, "never asks", replica=broken.NeverAsks)
mutant(Correlating, "pruning by position", replica=broken.PrunesByPosition)
mutant(Correlating, "old acks still count", replica=broken.OldAcksCount)
mutant(Correlating, "eviction on suspicion", replica=broken.EvictsOnSuspicion)
mutant(Correlating, "credit ends inside a time", replica=broken.EndsInsideATime)
mutant(Correlating, "a watermark needs credit", replica=broken.WatermarkNeedsCredit, windows=(2,), seeds_max=200)
mutant(Correlating, "the watermark is not capped", replica=broken.UncappedWatermark)
mutant(Correlating, "prev is the last one sent", replica=broken.LastSentAsPrev)
mutant(Correlating, "merge by arrival", replica=broken.MergesByArrival)
mutant(
    Correlating,
    "snapshot before registering",
    replica=broken.SnapshotBeforeRegistering,
    late_at_some=1.0,  # It shows only if all replicas upstream have not read yet who joins,
    evictions=1.0,  # and keep nothing for another's sake,
    strikes=1.0,  # and if the joiner then stands alone.
    seeds_max=200,
)
mutant(Correlating, "snapshot without queue", replica=broken.SnapshotWithoutQueue)
mutant(Correlating, "snapshot without merge buffer", replica=broken.SnapshotWithoutBuffer)
mutant(Correlating, "snapshot with one position", replica=broken.SnapshotOnePosition)
mutant(Correlating, "eviction counts the dead as remaining", membership=broken.EvictsUnconfirmed)
mutant(Correlating, "eviction for silence alone", membership=broken.EvictsTheSilent, losses_share=1.0)
mutant(
    Correlating,
    "pruning before the replacement is caught up",
    replica=broken.PrunesForCaughtUp,
    losses_share=1.0,
    evictions=1.0,  # It shows only if many join,
    strikes=1.0,  # and then stand alone.
    seeds_max=200,
)
mutant(Correlating, "two keepers with a record each", membership=broken.TwoKeepers, losses_share=1.0)
mutant(Correlating, "a source forgets its watermarks", source=broken.ForgetsWatermarks)
mutant(Correlating, "a shard numbers by itself", replica=broken.NumbersByItself, shards_share=1.0)
mutant(Correlating, "a shard is numbered before the others", replica=broken.NumbersTooEarly, shards_share=1.0)
mutant(
    Correlating,
    "prev in a part is the whole stream's",
    replica=broken.WholeStreamPrev,
    source=broken.WholeStreamPrevSource,
    shards_share=1.0,
)
mutant(
    Correlating,
    "prev in a part is the last one sent",
    replica=broken.LastSentToShards,
    source=broken.LastSentToShardsSource,
    shards_share=1.0,
)
mutant(Correlating, "believes that somebody leads", replica=BelievesInALeader)
mutant(Durable, "acknowledges what is in memory", replica=AcksWithoutDisk)
mutant(Correlating, "a source forgets what shards lack", source=broken.ForgetsParts, shards_share=1.0)
