"""One execution of a random process: section VI of the process paper, over the production machines.

| approach | what it is here |
|---|---|
| none | one node, no replicas: a failure stops the execution until the node is back |
| passive | every action is a group of its own |
| cost model T | the paper's grouping: runs of actions without compensation cost are groups, the others end by rule 2 |
| active | an execution on each node; once f+1 have ended one is chosen, all others are cancelled and compensated |
| ours T | our grouping at the same failover bound: actions without cost do not end a group; dynamic programming |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import combinations, pairwise
from random import Random
from typing import Any, Final

import msgspec

from unerring.audit import Acted, Model, check_one_copy
from unerring.evaluation.metering import MeteredWorld
from unerring.evaluation.process_bed import (
    MEAN_MS,
    NETWORKS,
    VERDICT,
    Network,
    TimedService,
    Timing,
    random_actions,
    sequence,
)
from unerring.model import MILLISECOND_US, SECOND_US, CallerError, Entropy
from unerring.processes import (
    CANCEL,
    ClusterBounds,
    Ended,
    Grouping,
    Mail,
    Post,
    ProcessesConfig,
    ProcessNode,
    Replicate,
    Start,
    Status,
    Vertex,
    best_ends,
    may_be_active,
    replica_set,
)
from unerring.simulation import RESET, Bounds, Link

RECOVERY_MEAN_US: Final = 10 * SECOND_US
MASTER_DOWN_US: Final = 3 * SECOND_US
MASTERS: Final = 3
"""Masters that fail in a run of figure 9: enough for a median, few enough that one is back before the next."""
BEGIN_US: Final = 2 * SECOND_US
END_US: Final = 900 * SECOND_US
SERVICE: Final = "service:bank"


class ProcessRun(msgspec.Struct, frozen=True):
    """The parameters of one execution."""

    degree: int
    approach: str
    failures: int = 0
    network: str = "EC2"
    actions: int = 100
    masters: int = 0
    """How often the node that executes it fails, alone, for a while."""
    links: int = 0
    """How often the link between two nodes fails; it comes back as a node does."""
    mean_ms: int = MEAN_MS
    rules: str = "ours"
    """The product's time-outs, or "paper": fixed ones."""
    uplink_us: int | None = None
    """How long a state keeps its sender's uplink busy, if not as long as the network says."""


def grouping_of(run: ProcessRun, actions: list[Vertex]) -> Grouping:
    """How an approach groups."""
    view_change_us = NETWORKS[run.network].view_change_us
    name, _, threshold = run.approach.partition(" at ")
    if not threshold:
        return Grouping(each_alone=True, view_change_us=view_change_us)
    failover_us = int(threshold.removesuffix(" ms")) * MILLISECOND_US
    plain = Grouping(failover_us=failover_us, view_change_us=view_change_us)
    if name == "cost model":
        ends = tuple(one.name for one, other in pairwise(actions) if may_be_active(other) and not may_be_active(one))
        return msgspec.structs.replace(plain, ends=ends)
    if name == "ours":
        return msgspec.structs.replace(plain, ends=best_ends(actions, plain))
    raise CallerError(f"unknown approach {run.approach!r}; see unerring.evaluation.processes")


class Execution:
    """The world of one run."""

    def __init__(self, run: ProcessRun, seed: int, network: Network | None = None) -> None:
        """`network`: what a real one was measured to be, instead of the one that the run names."""
        self.run = run
        self.seed = seed
        if run.network not in NETWORKS:
            raise CallerError(f"unknown network {run.network!r}; it is one of {', '.join(NETWORKS)}")
        network = network or NETWORKS[run.network]
        self.network = network if run.uplink_us is None else network.with_uplink(run.uplink_us)
        self.config = self.network.fixed if run.rules == "paper" else ProcessesConfig()
        self.actions = random_actions(seed, run.actions, run.mean_ms)
        self.active = run.approach == "active"
        self.process = sequence(self.actions, verdict=self.active)
        self.names = tuple(f"node{n}" for n in range(run.degree))
        self.timing = Timing()
        self.world = MeteredWorld(
            seed, bounds=Bounds(steps_max=1 << 40), occupancy=None if run.degree == 1 else self.network.occupancy_us
        )
        self.draw = Random(f"failures {seed} {run.degree}")
        self.grouping = grouping_of(run, self.actions)
        self.crashed = self.links_failed = 0
        self._due: dict[str, list[tuple[float, Callable[[], None]]]] = {}
        """What fails while an action is executed for the first time, and at which part of its time."""
        self.ended_us: int | None = None
        self.ends: dict[str, Any] = {}
        self.arrived: list[str] = []
        self.judged: dict[str, None] = {}
        self.clusters: list[tuple[str, tuple[str, ...]]]
        if self.active:
            self.clusters = [(f"i{n}", (name,)) for n, name in enumerate(self.names)]
        else:
            self.clusters = [("i", self.names)]
        self._build()

    def _build(self) -> None:
        world, draw = self.world, Random(f"network {self.seed}")
        for instance, members in self.clusters:
            for name in members:
                self._add(instance, members, name)
            for one, other in combinations(members, 2):
                world.link(one, other, self.network.link(draw))
        world.add(SERVICE, lambda records, entropy, now: self._service(records, entropy))
        for name in self.names:
            world.link(
                name, SERVICE, NETWORKS["EC2"].link(draw)
            )  # Each calls what is near: the times are the services'.
        for instance, members in self.clusters:
            first = replica_set(instance, members, len(members) // 2)[0]
            start = Start(instance, "p", {})
            world.at(BEGIN_US, lambda first=first, start=start: world.call(first, "begin", start))  # type: ignore[misc]
        self._draw_failures()
        if self.active:
            world.every(10 * MILLISECOND_US, self._judge, END_US, BEGIN_US)

    def _add(self, instance: str, members: tuple[str, ...], name: str) -> None:
        kind = type("Node", (ProcessNode,), {"replica_part": self.timing.replica()})
        bounds = ClusterBounds(f=len(members) // 2, state_bytes_max=8 << 20)
        processes = {"p": self.process}

        def boot(records: Mapping[str, bytes], entropy: Entropy, now: int) -> ProcessNode:
            node: ProcessNode = kind(
                name, members, processes, records, entropy, now, bounds, self.config, self.grouping
            )
            return node

        self.world.add(name, boot, on_deliver=self._on_deliver, disk=self.network.disk)

    def _on_deliver(self, what: object) -> None:
        if isinstance(what, Ended):
            self.ends.setdefault(what.instance, what.state)
            if self.ended_us is None and what.state.status == Status.COMPLETED:
                self.ended_us = self.world.now_us

    def _service(self, records: Mapping[str, bytes], entropy: Entropy) -> TimedService:
        times_us = {action.name: action.time_us for action in self.actions}
        return TimedService(times_us, self._begun, records, entropy, lambda: self.world.now_us)

    # ---- failures ----------------------------------------------------------------------------------------------

    def _draw_failures(self) -> None:
        """Each at a moment of the work that is to be done, so that a pause neither draws failures nor wards them off:
        as many happen as are drawn."""
        draw, run = self.draw, self.run
        for _ in range(run.failures):
            self._aim(draw.random(), partial(self._fail, draw.random(), self._down_us()))
        for _ in range(run.links):
            self._aim(draw.random(), partial(self._cut, draw.random(), self._down_us()))
        for number in range(run.masters):
            self._aim((2 * number + 1) / (2 * run.masters), self._fail_master)

    def _down_us(self) -> int:
        return max(SECOND_US // 10, round(self.draw.expovariate(1 / RECOVERY_MEAN_US)))

    def _aim(self, at: float, failure: Callable[[], None]) -> None:
        """At this part of the sum of the times."""
        left_us = at * sum(action.time_us for action in self.actions)
        for action in self.actions:
            if left_us < action.time_us or action is self.actions[-1]:
                self._due.setdefault(action.name, []).append((min(1.0, left_us / action.time_us), failure))
                return
            left_us -= action.time_us

    def _begun(self, action: str) -> None:
        for at, failure in self._due.pop(action, ()):
            time_us = next(one.time_us for one in self.actions if one.name == action)
            self.world.at(self.world.now_us + round(at * time_us), failure)

    def _running(self) -> list[str]:
        return [name for name in self.names if self.world.machine(name) is not None]

    def _fail(self, victim: float, down_us: int) -> None:
        """Crash one running node. If none runs, as soon as one does."""
        world = self.world
        running = self._running()
        if not running:
            world.at(world.now_us + 10 * MILLISECOND_US, lambda: self._fail(victim, down_us))
            return
        name = running[int(victim * len(running))]
        self.crashed += 1
        if len(running) == self.run.degree // 2 + 1:
            self.timing.turns += 1
        world.crash(name)
        world.at(world.now_us + down_us, lambda: self._recover(name))

    def _fail_master(self) -> None:
        running = self._running()
        for at, name in enumerate(running):
            led = self.world.machine(name).instances.get("i")
            if led is not None and led.leading:
                self._fail(at / len(running), MASTER_DOWN_US)
                return
        if self.ended_us is None:  # None leads just now.
            self.world.at(self.world.now_us + 10 * MILLISECOND_US, self._fail_master)

    def _cut(self, which: float, down_us: int) -> None:
        """A link between two nodes is down; what is sent on it meanwhile arrives when it is back."""
        pairs = list(combinations(self.names, 2))
        one, other = pairs[int(which * len(pairs))]
        self.links_failed += 1
        for sender, target in ((one, other), (other, one)):
            link = self.world.nodes[sender].links.get(target)
            if link is not None and link.blocked < RESET:
                link.blocked += 1
                self.world.at(self.world.now_us + down_us, partial(self._mend, link))

    def _mend(self, link: Link) -> None:
        if link.blocked < RESET and self.world.nodes[link.sender].links.get(link.target.name) is link:
            link.blocked -= 1
            if not link.blocked:
                self.world.release(link)

    def _recover(self, name: str) -> None:
        self.world.start(name)
        if sum(self.world.machine(one) is not None for one in self.names) == self.run.degree // 2 + 1:
            self.timing.turns += 1

    # ---- active replication ------------------------------------------------------------------------------------

    def _judge(self) -> None:
        """Decide the result: each replica that has executed everything takes part, and f+1 must."""
        for instance, members in self.clusters:
            node = self.world.machine(members[0])
            if node is None or instance in self.judged or instance not in node.instances:
                continue
            decided = node.instances[instance].decided
            if decided is None or len(decided[1].taken) < self.run.actions:
                continue
            if instance not in self.arrived:
                self.arrived.append(instance)
            if len(self.arrived) > self.run.degree // 2:
                word = VERDICT if instance == self.arrived[0] else CANCEL
                self.judged[instance] = None
                self.world.call(members[0], "post", instance, Mail(f"{instance}-{word}", word, 0))

    # ---- running it --------------------------------------------------------------------------------------------

    def play(self) -> None:
        """Until it has ended and everybody is clean."""
        world = self.world
        while not world.broken and not self._settled() and world.now_us < END_US:
            world.run_until(world.now_us + SECOND_US)

    def _settled(self) -> bool:
        """Every node knows the end, and a client was notified; the second may come a moment later."""
        for instance, members in self.clusters:
            if instance not in self.ends:
                return False
            for name in members:
                node = self.world.machine(name)
                if node is None or instance not in node.finished:
                    return False
        return True

    def verdict(self) -> list[str]:
        """One-copy consistency of every instance (Definitions 2 and 3); empty: it holds."""
        if self.world.broken:
            return [str(violation) for violation in self.world.broken]
        if self.ended_us is None or not self._settled():
            return [f"not over after {self.world.now_us // SECOND_US} s"]
        violations: list[str] = []
        graph = self.process.graph
        model = Model(graph.vertices, graph.edges, self.process.initial({}), self.process.choose, self.process.fit)
        for instance, _ in self.clusters:
            state = self.ends[instance]
            acted = [Acted(t.vertex, t.iid, t.request, t.reply, t.write) for t in state.taken]
            journal = [line for _, line in self._journal() if line.iid.startswith(f"{instance}/")]
            violations += [str(v) for v in check_one_copy(instance, model, state.status, acted, journal, finished=True)]
        return violations

    def _journal(self) -> Any:
        return self.world.machine(SERVICE).journal

    def row(self) -> dict[str, float]:
        """The measurements; times and costs in percent of one execution without failures and replicas."""
        world, watch = self.world, self.timing
        total_us = sum(action.time_us for action in self.actions)
        costs = {action.name: action.cost for action in self.actions}
        done = {line.iid for _, line in self._journal() if line.what == "do"}
        undone = sum(costs[line.action] for _, line in self._journal() if line.what == "undo" and line.iid in done)
        ended_us = BEGIN_US if self.ended_us is None else self.ended_us
        winner = next(state for state in self.ends.values() if state.status == Status.COMPLETED)
        return {
            "execution_percent": 100 * (ended_us - BEGIN_US) / total_us,
            "execution_s": (ended_us - BEGIN_US) / SECOND_US,
            "compensation_percent": 100 * undone / max(1, sum(costs.values())),
            "state_messages": world.count(Post) + self.run.degree if self.active else world.count(Replicate),
            "groups": winner.group,
            "replication_ms": _median(watch.replications_us) / MILLISECOND_US,
            "view_change_ms": _median(watch.view_changes_us) / MILLISECOND_US,
            "view_changes": len(watch.view_changes_us),
            "crashed": self.crashed,
            "links_failed": self.links_failed,
            "failover_bound_ms": max(self._group_times_us(winner.taken)) / MILLISECOND_US,
            "messages": sum(world.sent.values()),
            "virtual_s": world.now_us / SECOND_US,
        }

    def _group_times_us(self, taken: Any) -> list[int]:
        """How long each group takes to be executed again."""
        by_group: dict[int, int] = {}
        times_us = {action.name: action.time_us for action in self.actions}
        free = {action.name for action in self.actions if may_be_active(action)}
        for action in taken:
            own_us = 0 if action.vertex in free else times_us.get(action.vertex, 0)
            by_group[action.group] = by_group.get(action.group, 0) + own_us
        return list(by_group.values())


def _median(values: list[int]) -> float:
    return float("nan") if not values else sorted(values)[len(values) // 2]
