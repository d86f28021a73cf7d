"""One run of the factory: section VI of the correlation paper, over the production machines.

A step is a tenth of the paper's unit of failure: in each, every facility's events happen, and every replica fails with
probability `p_fail`. A failed replica comes back after a while. Volatile replicas fail within the budget of f for each
node (figures 5 and 6); durable ones without any bound, also all of a node at once (figures 7 and 8).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from random import Random
from typing import Any, Final

import msgspec

from unerring.audit import Stage, check_strong_reliability, perfect_run
from unerring.correlation import (
    MEMBERSHIP,
    Ack,
    Application,
    AskAcks,
    Batch,
    Candidate,
    CorrelationConfig,
    Elected,
    Gossip,
    Incoming,
    Intake,
    LeaderDead,
    Membership,
    NodeSpec,
    Outgoing,
    Receipt,
    Replica,
    Resume,
    Role,
    Source,
    Taken,
    Topology,
    Verdict,
    Vote,
    committed,
)
from unerring.evaluation.factory import STEPS, TIERS, engine_of, events_of, factory, primary_events
from unerring.evaluation.metering import MeteredWorld
from unerring.model import MILLISECOND_US, SECOND_US, TIME_MAX, Entropy, Event
from unerring.simulation import RESET, Bounds, Link, LinkSpec, State

STEP_US: Final = 200 * MILLISECOND_US
BEGIN_US: Final = SECOND_US
"""When the first step begins: all have entered by then."""
DOWN_STEPS: Final = 5
"""A failed replica comes back after so many steps at the most, drawn uniformly."""
REST_US: Final = 120 * SECOND_US
"""The longest time that a run may take after its last step."""

LINK: Final = LinkSpec(delay_us=200, spread_us=300, delay_us_max=20 * MILLISECOND_US)

ELECTION: Final = (Vote, Candidate, Elected, LeaderDead)


class FactoryRun(msgspec.Struct, frozen=True):
    """The parameters of one run."""

    f: int
    p_fail: float = 0.0
    durable: bool = False
    setting: str = "ours"
    steps: int = STEPS
    tiers: tuple[int, ...] = TIERS
    step_us: int = STEP_US
    links: bool = False
    """Whether links between replicas fail too, each with the same probability a step and for as long."""
    news: str = "soon"
    down_steps: int = DOWN_STEPS


class Meter:
    """Counts that the machines' own parts keep while they work."""

    def __init__(self) -> None:
        self.duplicates = 0
        self.accepted = 0

    def incoming(self) -> type[Incoming]:
        """The duplicate filter, counting."""
        meter = self

        class Counting(Incoming):
            __slots__ = ()

            def take(self, batch: Batch) -> Taken:
                taken = super().take(batch)
                meter.accepted += len(taken.events)
                if taken.verdict is not Verdict.GAP:
                    meter.duplicates += len(batch.events) - len(taken.events)
                return taken

        return Counting


class CompletelyAcked(Outgoing):
    """The paper's pruning (Figure 3, lines 31-45): a leader tells its peers only what *all* receivers have."""

    def receipts(self) -> tuple[Receipt, ...]:
        if not self.leading:
            return ()
        receipts: list[Receipt] = []
        for receipt in super().receipts():
            queue = self.queues[receipt.stream]
            last, count = min((receipt.last, receipt.count), (queue.mark, queue.mark_count))
            receipts.append(msgspec.structs.replace(receipt, last=last, count=count))
        return tuple(receipts)


class AllLead(Replica):
    """The paper's worst case (Figure 4b): every replica takes itself for the leader, and all send to all."""

    def _follow_election(self) -> None:
        self.election.leading = True
        super()._follow_election()


SETTINGS: Final[Mapping[str, tuple[type[Replica], type[Outgoing], int]]] = {
    "ours": (Replica, Outgoing, CorrelationConfig().ask_us),
    "paper": (Replica, CompletelyAcked, 0),
    "worst case": (AllLead, CompletelyAcked, 0),
}
"""Who leads, which acks go to the other replicas, and how long a new leader waits for its receivers' word. *ours* is
the product with its defaults. *paper* has the paper's lists of completely acknowledged events, and its leaders resend
at once. All else is the product's in each: the paper does not say how a recovered replica gets what it missed."""

NEWS: Final[Mapping[str, int | None]] = {"soon": 600, "late": 500 * MILLISECOND_US, "lost": None}
"""Within how long the peers of a replica that failed have their driver's word of it, in microseconds. None: never; its
silence has to tell them, and a replica that only cannot be heard is taken for dead too."""


@lru_cache(maxsize=4)
def perfect(seed: int, steps: int, tiers: tuple[int, ...], step_us: int = STEP_US) -> dict[str, list[Event]]:
    """What a failure-free system delivers to the management, by stream."""
    topology = factory(0, tiers)
    drawn = primary_events(seed, steps, tiers)
    primary = {
        f"primary{i}": [
            e for n, step in enumerate(drawn) for e in events_of(f"primary{i}", time_of(n, step_us), step[i])
        ]
        for i in range(sum(tiers))
    }
    streams = perfect_run([_stage(topology, node) for node in topology.nodes if node.role is Role.CORRELATION], primary)
    return {stream: streams[stream] for stream in topology.node("management").inputs}


def _stage(topology: Topology, node: NodeSpec) -> Stage:
    engine = engine_of(node.name)
    return Stage(topology.inputs(node.name), lambda rows, through: engine.feed(rows, through).outputs)


def time_of(step: int, step_us: int) -> int:
    """When a step happens, in the world and in the stamps."""
    return BEGIN_US + (step + 1) * step_us


class Factory:
    """The world of one run."""

    def __init__(self, run: FactoryRun, seed: int) -> None:
        self.run = run
        self.end_us = time_of(run.steps, run.step_us)
        self.seed = seed
        self.topology = factory(run.f, run.tiers)
        kind, outgoing, ask_us = SETTINGS[run.setting]
        self.config = CorrelationConfig(ask_us=ask_us)
        self.meter = Meter()
        intake = type("Intake", (Intake,), {"incoming_part": self.meter.incoming()})
        self.replica = type("Replica", (kind,), {"intake_part": intake, "outgoing_part": outgoing})
        self.application = type("Application", (Application,), {"intake_part": intake})
        self.world = MeteredWorld(seed, LINK, Bounds(steps_max=1 << 40))
        self.world.word_us_max = NEWS[run.news]
        self.draw = Random(f"failures {seed}")
        self.failures = 0
        self.refused = 0
        """Failures that were drawn and did not happen: the replica was down, or the last one of its node."""
        self.links_failed = 0
        self.leaders = 0
        self.crowded = 0
        """Samples of a node with more than one leader."""
        self.samples = 0
        self.elected = 0
        """Messages of the first elections, before anything fails."""
        self.nodes = [node for node in self.topology.nodes if node.role is Role.CORRELATION]
        self._build()

    def _build(self) -> None:
        world = self.world
        world.add(MEMBERSHIP, self._membership)
        for node in self.topology.nodes:
            for name in node.replicas:
                world.add(name, self._boot(node, name))
        drawn = primary_events(self.seed, self.run.steps, self.run.tiers)
        for step, facilities in enumerate(drawn):
            at_us = time_of(step, self.run.step_us)
            world.at(at_us, lambda at_us=at_us, facilities=facilities: self._step(at_us, facilities))  # type: ignore[misc]
        world.at(BEGIN_US, self._begin)
        world.at(self.end_us, self._end)
        world.every(self.run.step_us // 4, self._look, self.end_us, BEGIN_US)

    def _membership(self, records: Mapping[str, bytes], entropy: Entropy, now: int) -> Membership:
        return Membership(records, self.topology, self.config, entropy)

    def _boot(self, node: NodeSpec, name: str) -> Any:
        topology, config = self.topology, self.config
        if node.role is Role.SOURCE:
            return lambda records, entropy, now: Source(records, name, topology, config)
        if node.role is Role.APPLICATION:
            return lambda records, entropy, now: self.application(records, name, topology, config)
        durable = self.run.durable
        return lambda records, entropy, now: self.replica(
            name, topology, config, lambda: engine_of(node.name), entropy, records if durable else None
        )

    # ---- what happens ------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self.elected = self.world.count(*ELECTION)

    def _step(self, time_us: int, facilities: list[list[tuple[int, int, int]]]) -> None:
        for facility, drawn in enumerate(facilities):
            self.world.call(f"source{facility}/0", "publish", events_of(f"primary{facility}", time_us, drawn))
        if self.run.p_fail:
            self._fail_some()

    def _fail_some(self) -> None:
        world, draw = self.world, self.draw
        for node in self.nodes:
            for name in node.replicas:
                if draw.random() < self.run.p_fail:
                    at_us, down_us = self._when()
                    world.at(at_us, lambda name=name, down_us=down_us: self._fail(name, down_us))  # type: ignore[misc]
        if self.run.links:
            for pair in self._pairs():
                if draw.random() < self.run.p_fail:
                    at_us, down_us = self._when()
                    world.at(at_us, lambda pair=pair, down_us=down_us: self._cut(pair, down_us))  # type: ignore[misc]

    def _when(self) -> tuple[int, int]:
        """A moment of this step, and how long what fails then is away."""
        draw, run = self.draw, self.run
        return self.world.now_us + draw.randrange(run.step_us), draw.randint(1, run.down_steps) * run.step_us

    def _pairs(self) -> list[tuple[str, str]]:
        """Replicas that have a connection; sources and the management are connected reliably."""
        names = {name for node in self.nodes for name in node.replicas}
        pairs = {(min(one, other), max(one, other)) for one in names for other in self.world.nodes[one].links}
        return sorted((one, other) for one, other in pairs if one in names and other in names)

    def _cut(self, pair: tuple[str, str], down_us: int) -> None:
        """A link fails: it delivers later what it is given meanwhile (section III: links fail temporarily only)."""
        world = self.world
        self.links_failed += 1
        for one, other in (pair, pair[::-1]):
            link = world.nodes[one].links.get(other)
            if link is not None and link.blocked < RESET:
                link.blocked += 1
                world.at(world.now_us + down_us, lambda link=link: self._mend(link))  # type: ignore[misc]

    def _mend(self, link: Link) -> None:
        if link.blocked < RESET and self.world.nodes[link.sender].links.get(link.target.name) is link:
            link.blocked -= 1
            if not link.blocked:
                self.world.release(link)

    def _fail(self, name: str, down_us: int) -> None:
        world = self.world
        if world.nodes[name].machine is None or not (self.run.durable or self._another(name)):
            self.refused += 1
            return
        self.failures += 1
        world.crash(name)
        world.at(world.now_us + down_us, lambda: world.start(name))

    def _another(self, failing: str) -> bool:
        """Whether the budget allows it: some other replica of the node is running and caught up."""
        node = failing.rpartition("/")[0]
        membership: Any = self.world.nodes[MEMBERSHIP].machine
        for name in self.topology.node(node).replicas:
            machine: Any = self.world.nodes[name].machine
            if name != failing and machine is not None and membership.record.caught_up(name, machine.incarnation):
                return True
        return False

    def _end(self) -> None:
        for facility in range(sum(self.run.tiers)):
            self.world.call(f"source{facility}/0", "end", f"primary{facility}")

    def _look(self) -> None:
        """How many lead, of each node, now."""
        nodes = self.world.nodes
        for node in self.nodes:
            leading = 0
            for name in node.replicas:
                machine: Any = nodes[name].machine
                if machine is not None and nodes[name].state == State.UP and machine.election.leading:
                    leading += 1
            self.leaders += leading
            self.crowded += leading > 1
        self.samples += len(self.nodes)

    # ---- running it --------------------------------------------------------------------------------------------

    def play(self) -> None:
        """To the end: until the management has everything."""
        world = self.world
        world.run_until(self.end_us)
        while not world.broken and not self._complete() and world.now_us < self.end_us + REST_US:
            world.run_until(world.now_us + self.run.step_us)

    def _complete(self) -> bool:
        node = self.world.nodes["management/0"]
        machine: Any = node.machine
        return not node.syncing and all(i.watermark >= TIME_MAX for i in machine.intake.streams.values())

    def verdict(self) -> list[str]:
        """Definition 1, for every stream of situations; empty: it holds."""
        world = self.world
        if world.broken:
            return [str(violation) for violation in world.broken]
        records = world.nodes["management/0"].storage.load()
        violations: list[str] = []
        for stream, expected in perfect(self.seed, self.run.steps, self.run.tiers, self.run.step_us).items():
            delivered = committed(records, stream)
            if delivered != expected:
                violations += [str(v) for v in check_strong_reliability(delivered, expected, complete=True)]
        return violations

    def row(self) -> dict[str, float]:
        """The measurements."""
        world, meter = self.world, self.meter
        latencies = sorted(line.at_us - line.value.stamp.time for line in world.history if line.what == "deliver")
        return {
            "primary_events": sum(self.run.tiers) * self.run.steps * len(primary_events(0, 1, (1,))[0][0]),
            "situations": len(latencies),
            "event_messages": world.events_sent,
            "event_messages_new": meter.accepted,
            "duplicates": meter.duplicates,
            "leader_messages": world.count(*ELECTION) - self.elected,
            "gossip_messages": world.count(Gossip),
            "ack_messages": world.count(Ack),
            "resumes": world.count(Resume),
            "questions": world.count(AskAcks),
            "frames": world.count(Batch),
            "leader_count": self.leaders / self.samples,
            "crowded": self.crowded / self.samples,
            "failures": self.failures,
            "refused": self.refused,
            "links_failed": self.links_failed,
            "latency_ms_mean": sum(latencies) / len(latencies) / MILLISECOND_US,
            "latency_ms_p50": latencies[len(latencies) // 2] / MILLISECOND_US,
            "latency_ms_p99": latencies[len(latencies) * 99 // 100] / MILLISECOND_US,
            "virtual_s": world.now_us / SECOND_US,
            "steps_simulated": world.steps,
        }
