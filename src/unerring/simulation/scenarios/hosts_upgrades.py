"""Upgrades of a live run on several hosts, among the faults of `correlation-hosts`: sources and the application have
replicas, too, and no host is special.

Each host has a supervisor that takes the next step if nobody has taken it, and follows the others some time or other:
hosts are at different steps. A whole host is lost while an upgrade is under way, also the one that started it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Final

from unerring.correlation import MEMBERSHIP, NodeSpec, Switch, Topology, alone, node_of
from unerring.model import MILLISECOND_US, SECOND_US, TIME_MAX, Event
from unerring.simulation import Happened, World, broken_switches as broken, mutant, scenario
from unerring.simulation.agreements import PAST, UNDER_WAY, Agreements, EachItsOwn
from unerring.simulation.editions import Editions
from unerring.simulation.losses import LOST
from unerring.simulation.scenarios.correlation_hosts import APPLICATION_JOINED, SOURCE_JOINED, Everywhere
from unerring.simulation.scenarios.upgrades import Upgrading

HOSTS: Final = ("0", "1", "2", "3")
"""A replica that was there from the beginning is on the host of its number."""
PROPOSED, BESIDE, READY, AGREED, PASSED = MOMENTS = ("proposed", "beside", "ready", "agreed", "passed")
"""When a host may be lost."""
PATIENCE_US: Final = 400 * MILLISECOND_US
"""So long the loss of a host waits for the budget to allow it."""
BEHIND: Final = 40
"""So far, in the streams' time, a log is behind another one at most once no more is published."""
COMPLETED: Final = "an upgrade was completed"
TWICE: Final = "a second upgrade was completed"
REFUSED: Final = "an upgrade was refused: "
WITHOUT: Final = "a host was lost during an upgrade"
STARTER: Final = "the host that started an upgrade was lost"
FOR_GOOD: Final = "a host was lost for good during an upgrade"
RETURNED: Final = "a host came back to later steps"
SKIPPED: Final = "a host left out steps that others had taken"


@scenario("correlation-hosts-upgrade")
class UpgradingHosts(Everywhere, Upgrading):
    """One or two upgrades; what is sealed is the perfect run of the old rules up to each agreed time, and of the new
    ones after it."""

    must_reach = (
        COMPLETED,
        TWICE,
        REFUSED + UNDER_WAY,
        REFUSED + PAST,
        WITHOUT,
        STARTER,
        FOR_GOOD,
        RETURNED,
        SKIPPED,
        SOURCE_JOINED,
        APPLICATION_JOINED,
        "a replica made its state of the log",
        "a replica crashed while it made its state",
        "the time was agreed on among faults",
        "a replica crashed around the agreed time",
        "a receiver took both nodes' streams",
        "a rule was added",
        "a rule was removed",
    )
    faults_us = 6 * SECOND_US
    failing_ms = (100, 300, 1000, 3000)
    waits_us = Everywhere.waits_us + Upgrading.waits_us
    rounds = 2 * Upgrading.rounds
    agreements: type[Agreements] = Agreements
    awaits_sealing = True
    """Whether old nodes stay until all that they made is sealed."""

    # ---- the world ---------------------------------------------------------------------------------------------

    def build(self, world: World) -> None:
        self.hosts = Random(f"hosts {world.seed}")
        self.places_of: dict[str, str] = {}
        """The host of each replica."""
        self.steps = dict.fromkeys(HOSTS, 0)
        """How far each host has followed what was agreed."""
        self.away: set[str] = set()
        self.lost: set[str] = set()
        """Away for good."""
        self.losing: tuple[str, int] | None = None
        """Which host is to be lost as soon as the budget allows it, and until when."""
        self.upgrades = self.hosts.choice((1, 2, 2))
        drawn = [(number, self.hosts.choice(MOMENTS)) for number in range(1, self.upgrades + 1)]
        self.moments = [one for one in drawn if self.hosts.random() < 0.6]
        """When a host is lost, by the number of the upgrade."""
        self.starter = ""
        self.gone_us: dict[str, int] = {}
        """Since when a node is not in the run any more."""
        super().build(world)
        self.store = self.agreements(self.first)
        self.agreed = self.store.agreed

    def _combined(self) -> Topology:
        if self.number == 1:
            self.first, self.editions = self.topology, Editions(self.plan, self.topology)
            self.adds = self.removes = False
        both = self.editions.upgraded(self.topology, self.number)
        self.adds, self.removes = self.adds or self.editions.adds, self.removes or self.editions.removes
        return both

    def _add(self, world: World, node: NodeSpec, name: str, start_us: int = 0) -> None:
        """On the host of its number; if that is not there, or does not know the node, or it is none of the first, on an
        empty one."""
        number = name.rpartition("/")[2]
        host = number if number in HOSTS and number not in self.away and self._knows(number, node) else f"new {name}"
        if host not in self.steps:
            self.steps[host] = len(self.store.steps) - 1
        self.places_of[name] = host
        super()._add(world, node, name, start_us)

    def _knows(self, host: str, node: NodeSpec) -> bool:
        return not self.steps[host] or any(one.name == node.name for one in self.store.steps[self.steps[host]].nodes)

    def _version_of(self, name: str) -> int:
        """The keeper of the record is on all hosts: it hears from whoever is first."""
        return self.steps[self.places_of[name]] if name in self.places_of else max(self.steps.values())

    def _nodes_of(self, name: str) -> Topology:
        return self.store.steps[self._version_of(name)]

    def _switch_for(self, name: str) -> Switch | None:
        host = self.places_of[name]
        self._settle(host)
        return self.store.switch(host)

    # ---- the upgrades ------------------------------------------------------------------------------------------

    def _propose(self, world: World) -> None:
        """An operator's command on some host; one that is refused is tried again."""
        here = [host for host in HOSTS[:3] if host not in self.away]
        host, reached_us = self.plan.choice(here), self._reached_us()
        asked_us = self.plan.choice((None, None, reached_us + 30, reached_us - 5))
        why = self.store.propose(asked_us, reached_us)
        if why:
            world.sometimes(REFUSED + why)
        else:
            self.number, self.starter = self.store.number, host
            self._may_lose(world, PROPOSED)
        if self.store.number < self.upgrades:
            pause_us = self.plan.choice((1, 100, 1000)) * MILLISECOND_US
            world.at(world.now_us + pause_us + self.plan.randrange(pause_us), lambda: self._propose(world))

    def _reached_us(self) -> int:
        return max(0, *self.sealed.values())

    def _go_on(self, world: World) -> None:
        """A log in which less happened is as far as the others all the same: nobody is to wait for that."""
        reached_us = self._reached_us()
        for stream, sealed_us in self.sealed.items():
            self.sealed[stream] = max(sealed_us, reached_us - BEHIND)
        super()._go_on(world)

    def _carry_on(self, world: World) -> None:
        if not world.faults_on:
            for host in self.away - self.lost:
                self._return(world, host)
        self._lose_if_due(world)
        for host in list(self.steps):
            if host not in self.away and self.plan.random() < 0.3:
                self._look(world, host)
        self._tell(world)

    def _look(self, world: World, host: str) -> None:
        """A supervisor takes the next step, or follows those that others have taken."""
        newest = len(self.store.steps) - 1
        if self.steps[host] < newest:
            self._follow_step(world, host, newest)
        elif not self.store.done:
            self._take_step(world, host, newest)

    def _follow_step(self, world: World, host: str, step: int) -> None:
        if step > self.steps[host] + 1:
            world.sometimes(SKIPPED)
        self.steps[host] = step
        topology = self.store.steps[step]
        known = {node.name for node in topology.nodes}
        for name in self._on(host):
            if node_of(name) not in known and name not in world.gone:
                world.crash(name)
                world.gone.append(name)
        for node in topology.nodes:
            for name in node.replicas:
                if name not in world.nodes and name.rpartition("/")[2] == host:
                    self._add(world, node, name, world.now_us + self.plan.randrange(300) * MILLISECOND_US)

    def _take_step(self, world: World, host: str, newest: int) -> None:
        """What is asked of the keeper counts only once it knows the nodes of this step."""
        number, membership = self.store.number, world.machine(MEMBERSHIP)
        if newest < 2 * number - 1:
            self._begin(world)
            return
        if membership is None or membership.topology != self.topology:
            return
        if number not in self.store.ready:
            if membership.is_ready():
                self.store.ready.add(number)
                self._may_lose(world, READY)
                self._crash_around(world)
        elif number not in self.agreed:
            self._settle(host)
            if world.faults_on:
                world.sometimes("the time was agreed on among faults")
            self._may_lose(world, AGREED)
            self._crash_around(world)
        elif (membership.has_passed() or not self.waits) and self._is_sealed():
            self._may_lose(world, PASSED)
            self._end_old(world)

    def _begin(self, world: World) -> None:
        if self.number > 1:
            self.combined = self._combined()
            self._note_lives()
        self.topology = self.combined
        self.store.arrange(2 * self.number - 1, self.combined)
        self.f |= {node.name: node.f for node in self.topology.nodes if self.topology.is_coming(node)}
        self._may_lose(world, BESIDE)

    def _settle(self, host: str) -> None:
        """By whoever sees first that the new nodes are ready; how far the log is has been looked at after that."""
        if self.store.number in self.store.ready:
            self.store.settle(host, self.store.number, self._reached_us())

    def _is_sealed(self) -> bool:
        """Whether all that the old rules made up to the agreed time is in the log."""
        at_us = self.agreed[self.number].at_us
        old = [stream for node in self.combined.nodes if self.combined.is_ending(node) for stream in node.outputs]
        return not self.awaits_sealing or all(self.chains.log(stream).through >= at_us for stream in old)

    def _end_old(self, world: World) -> None:
        self.topology = alone(self.combined, self.agreed[self.number].at_us)
        self.store.arrange(2 * self.number, self.topology)
        self.f = {name: f for name, f in self.f.items() if any(node.name == name for node in self.topology.nodes)}
        self.done = self.number == self.upgrades
        self.gone_us |= {node.name: world.now_us for node in self.combined.nodes if self.combined.is_ending(node)}
        world.sometimes(COMPLETED)
        if self.number > 1:
            world.sometimes(TWICE)

    # ---- failures ----------------------------------------------------------------------------------------------

    def _on(self, host: str) -> list[str]:
        return [name for name, place in self.places_of.items() if place == host]

    def _may_lose(self, world: World, moment: str) -> None:
        if world.faults_on and (self.number, moment) in self.moments:
            here = [host for host in HOSTS[:3] if host not in self.away]
            host = self.starter if self.hosts.random() < 0.6 else self.hosts.choice(here)
            self.losing = host, world.now_us + PATIENCE_US

    def _lose_if_due(self, world: World) -> None:
        if self.losing is None or not world.faults_on:
            return
        host, until_us = self.losing
        if host in self.away or world.now_us > until_us:
            self.losing = None
        elif all(self._may_spare(world, node, host) for node in self.f):
            self.losing = None
            self._lose(world, host)

    def _may_spare(self, world: World, node: str, host: str) -> bool:
        """Whether a replica that the system counts on remains elsewhere."""
        if self.topology.is_coming(self.topology.node(node)) and self.number not in self.agreed:
            return True
        return any(self.places_of[name] != host for name in self._healthy_ones(world, node))

    def _lose(self, world: World, host: str) -> None:
        for_good = self.losses.on and self.hosts.random() < 0.7
        self.away.add(host)
        for name in self._on(host):
            if name not in world.gone:
                world.crash(name)
                if for_good:
                    world.gone.append(name)
        if for_good:
            self.lost.add(host)
            world.sometimes(LOST)
        else:
            down_us = self.hosts.choice((20, 200, 1000)) * MILLISECOND_US
            world.at(world.now_us + down_us, lambda: self._return(world, host))
        world.sometimes(WITHOUT)
        if for_good:
            world.sometimes(FOR_GOOD)
        if host == self.starter:
            world.sometimes(STARTER)

    def _return(self, world: World, host: str) -> None:
        if host in self.away:
            self.away.remove(host)
            if self.steps[host] < len(self.store.steps) - 1:
                world.sometimes(RETURNED)
            for name in self._on(host):
                if name not in world.gone:
                    world.start(name)

    def _come_back(self, world: World, name: str) -> None:
        if self.places_of.get(name) not in self.away and name not in world.gone:
            super()._come_back(world, name)

    def _crash(self, world: World, victim: str) -> None:
        if node_of(victim) in self.f:  # a process that is about to end with its node is left alone
            super()._crash(world, victim)

    # ---- the log -----------------------------------------------------------------------------------------------

    def _logs(self, world: World, streams: Iterable[str]) -> dict[str, tuple[Sequence[Event], int]]:
        logs = {s: self.chains.log(s) for s in streams if s not in self.published}
        made = {s: (log.events(), log.through) for s, log in logs.items()}
        return {s: (self.published[s], self.sealed[s]) if s in self.published else made[s] for s in streams}

    # ---- what is seen ------------------------------------------------------------------------------------------

    def _names(self) -> Iterable[str]:
        return list(dict.fromkeys(stream for node, _ in self.lives.values() for stream in node.outputs))

    def _last_us(self, stream: str) -> int:
        """What a rule made that went is sealed up to the time at which it did."""
        makers = [node for node, _ in self.lives.values() if stream in node.outputs]
        last = max(makers, key=lambda node: node.begins)
        return self.agreed[last.ends].at_us if last.ends in self.agreed else TIME_MAX

    def _streams(self, world: World) -> tuple[dict[str, list[Event]], dict[str, list[Event]]]:
        return {stream: self.chains.log(stream).events() for stream in self._names()}, self._perfect()

    def _may_stop(self, line: Happened) -> bool:
        """The keeper may know before a process's host that its node has gone."""
        return line.at_us >= self.gone_us.get(node_of(line.node), TIME_MAX)

    def progress(self, world: World) -> object:
        return list(self.steps.values()), len(self.store.ready), len(self.agreed), super().progress(world)

    def settled(self, world: World) -> bool:
        newest = len(self.store.steps) - 1
        behind = [host for host, step in self.steps.items() if step < newest and host not in self.lost]
        return self.done and not behind and Everywhere.settled(self, world)


mutant(UpgradingHosts, "it starts at the stamp instead of before it", looks_back=0)
mutant(UpgradingHosts, "the old rules go on after the stamp", replica=broken.OldGoesOn)
mutant(UpgradingHosts, "the new rules begin before the stamp", replica=broken.NewBeginsBefore)
mutant(UpgradingHosts, "each host has a time of its own", agreements=EachItsOwn)
mutant(UpgradingHosts, "old nodes end before what they made is sealed", awaits_sealing=False, waits=False)
