"""Replicated processes under all faults: random graphs of all action classes, services that refuse, hang, answer late,
twice or garbage, f = 1 and 2, minority and majority partitions, crashes of everybody. One-copy consistency in every
run, and an end of every instance once the faults are over."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations
from random import Random

from unerring.audit import (
    Acted,
    Did,
    Model,
    Relative,
    Violation,
    check_agreement,
    check_atomic,
    check_family,
    check_one_copy,
)
from unerring.model import MILLISECOND_US, SECOND_US, Entropy
from unerring.processes import (
    AGAIN,
    HOLD,
    MOVE,
    RESUME,
    ClusterBounds,
    Ended,
    Grouping,
    Kind,
    Mail,
    Out,
    Process,
    ProcessesConfig,
    ProcessNode,
    Publish,
    Rejoin,
    Replica,
    Schedule,
    Start,
    State,
    children_used,
    family,
    unpacked,
)
from unerring.simulation import process_mutants as broken
from unerring.simulation.disk import DiskSpec
from unerring.simulation.faults import Crash, Fault, Partition, Pause, draw_aimed, draw_faults
from unerring.simulation.lost_disks import LostDisks
from unerring.simulation.network import LinkSpec
from unerring.simulation.process_architect import CANCELLING, SERVICES, USUAL, Architect
from unerring.simulation.process_parts import Client, SimService, Temper, numbered
from unerring.simulation.process_resting import AGAIN_US, NO_LIMITS, ProcessResting, Waits
from unerring.simulation.process_states import MOMENTS, PROCESS_STATES, process_states
from unerring.simulation.scenario import Scenario, mutant, scenario
from unerring.simulation.tiny import tiny
from unerring.simulation.world import World

ANSWERED = "a query is answered from a decided state"
ENDED = "every instance comes to an end, and every replica is clean, once the faults are over"


@scenario("processes")
class Processes(Scenario):
    """One random process, a few instances, 3 or 5 nodes, two services, one client."""

    replica: type[Replica] = Replica
    out: type[Out] = Out
    rejoin: type[Rejoin] = Rejoin
    service: type[SimService] = SimService
    replicas: tuple[int, ...] = (1, 1, 1, 2)
    instances_max: tuple[int, ...] = (1, 2, 3, 5)
    weights: tuple[float, ...] = USUAL
    """How often each class of action is drawn."""
    races: float = 0.0
    """How often waits race instead."""
    loops: float = 0.0
    """How often there is a loop instead."""
    namings: tuple[str, ...] = ("self", "self", "rotate")
    blocks: float = 0.0
    """How often there is a block, a race with a child, or a question to a partner instead."""
    cancel_chance = 0.2
    command_chance = 0.6
    """The chance of operators' commands: hold and resume, a step tried again, a move to another version."""
    schedule_chance = 0.15
    lacking_chance = 0.15
    """The chance that one node lacks a version while there are faults."""
    lost_disk_chance = 0.25
    muddled_min = 0.0
    """How often, at least, a service answers a repetition as if it were refused."""
    founding_chance = 0.2
    """The chance that nobody tells the nodes that they are new."""
    patience_ms: tuple[int, ...] = (200, 1000, 100_000)
    failovers_ms: tuple[int, ...] = (0, 100, 500, 5000)
    """Thresholds for grouping: the higher, the more actions in a group."""
    sought = PROCESS_STATES
    faults_us = 3 * SECOND_US
    calm_us = 600 * SECOND_US
    waits_us = 3 * SECOND_US
    """So long into the calm the workload goes on: an instance that began late is resumed, a schedule ends."""
    must_reach: tuple[str, ...] = (
        "an instance completed",
        "an instance was cancelled",
        "an instance failed and was undone",
        "an instance was parked",
        "a master compensated its group",
        "a view above 3",
        "a backup execution was adopted",
        "a fenced master",
        "somebody was named by another",
        "a child completed",
        "a child was undone",
        "an instance was held",
        "an instance went back",
        "an instance was moved",
        "a command was refused",
        "a deadline passed",
        "a schedule started an instance",
        "a published message was consumed",
        "a signal was consumed",
        "a timer fired",
        "children over a list completed",
        "an instance was held by an operator, and resumed",
        "a query was answered",
        "a version was not deployed everywhere",
        "a node that lost its disk took part again",
    )

    def build(self, world: World) -> None:
        draw = world.draw
        self.f = draw.choice(self.replicas)
        self.names = tuple(f"node{n}" for n in range(2 * self.f + 1))
        self.disks = LostDisks(world, self.names, self.f, self.lost_disk_chance, self.founding_chance)
        # What a lost disk leaves at a service that cannot cancel, only a person can find out.
        services = CANCELLING if self.disks.happen else SERVICES
        architect = Architect(draw, self.weights, self.races, self.loops, self.blocks, services)
        deadline_us = draw.choice((300, 1000, 4000)) * MILLISECOND_US if draw.random() < 0.1 else 0
        self.process = architect.build("p", deadline_us, holds=draw.random() < 0.15)
        self.newer = architect.next_version(self.process)
        deployed = [self.newer, self.process] if draw.random() < 0.5 else [self.process, self.newer]
        if draw.random() < self.schedule_chance:
            deployed.append(self._scheduled(draw, architect))
        self.deployed = {f"{p.name}@{p.graph.version}": p for p in family(deployed)}
        self.channels, self.keyed, self.asks = architect.channels, architect.keyed, architect.asks
        self.answered: dict[str, None] = {}
        self.ends: dict[str, dict[str, State]] = {}
        self.answers: dict[str, dict[int, tuple[tuple[int, ...], object]]] = {}
        """By instance and group: the views of the lineage that a query was answered from, and the answer."""
        self.asked: dict[tuple[str, str], tuple[int, ...]] = {}
        """The views of the lineage that each node was last asked about."""
        self.misled: list[Violation] = []
        lacking = draw.choice((self.process, self.newer)) if draw.random() < self.lacking_chance else None
        self.lacks = {} if lacking is None else {draw.choice(self.names): f"p@{lacking.graph.version}"}
        config = ProcessesConfig(
            tick_us=10 * MILLISECOND_US,
            heartbeat_us=30 * MILLISECOND_US,
            suspect_us=draw.choice((100, 250)) * MILLISECOND_US,
            backoff_us=draw.choice((5, 60, 200)) * MILLISECOND_US,
            resend_us=40 * MILLISECOND_US,
            sweep_patience_us=draw.choice(self.patience_ms) * MILLISECOND_US,
            undo_attempt_us=60 * MILLISECOND_US,
            undo_pause_us_max=400 * MILLISECOND_US,
            tend_us=draw.choice((50, 300)) * MILLISECOND_US,
            naming=draw.choice(self.namings),
            suspect_us_max=draw.choice((0, 0, 10)) * SECOND_US,
            leads_max=draw.choice((1, 100)),
            transfers_max=draw.choice((1, 64)),
        )
        bounds = ClusterBounds(f=self.f, history_groups=draw.choice((2, 4, 256)) if self.loops else 256)
        self.config, self.bounds = tiny(world.seed, config), tiny(world.seed, bounds)
        self.grouping = Grouping(
            failover_us=draw.choice(self.failovers_ms) * MILLISECOND_US,
            view_change_us=50 * MILLISECOND_US,
            each_alone=draw.random() < 0.15,
        )
        self.disk = DiskSpec(sync_us=draw.choice((200, 500, 8000)), spread_us=draw.choice((500, 4000)))
        for name in self.names:
            self._add_node(world, name)
        if draw.random() < 0.2:  # the protocol asks nothing of its links
            lossy = LinkSpec(datagram=True, loss=draw.choice((0.0, 0.05)), duplication=0.05, spread_us=2000)
            for one, other in combinations(self.names, 2):
                world.link(one, other, lossy)
        self._add_services(world)
        words = Random(f"words of links {world.seed}")  # The protocol asks for none: most seeds must do without.
        world.word_us_max, world.knocks = words.choice((None, None, words.choice((1, 20, 500)) * MILLISECOND_US)), True
        world.add("client", lambda records, entropy, now: Client(self.names, self.f, entropy))
        self.instances = [f"i{n}" for n in range(draw.choice(self.instances_max))]
        for instance in self.instances:
            self._workload(world, instance)
        for name in self.lacks:
            world.at(self.faults_us, lambda name=name: self._deploy(world, name))  # type: ignore[misc]
        world.every(20 * MILLISECOND_US, lambda: self._ask(world), self.faults_us + 5 * SECOND_US)
        end_us = self.faults_us + self.calm_us
        if self.asks:
            world.every(50 * MILLISECOND_US, lambda: self._answer(world), end_us)
        world.every(AGAIN_US, lambda: self._try_again(world), end_us, self.faults_us + AGAIN_US)
        self.resting = self.new_resting()

    def new_resting(self) -> ProcessResting:
        processes, limits = self.deployed.values(), getattr(self.service, "limits", NO_LIMITS)
        waits = Waits(self.config, processes, self.temper, self.disk, len(self.names), limits)
        return ProcessResting(waits, self.names, processes, self.waits_us)

    def _scheduled(self, draw: Random, architect: Architect) -> Process:
        small = Architect(draw, (1.0, 1.0, 3.0, 2.0), services=architect.services)
        small.retry = architect.retry
        process = small.small("s", draw.randint(1, 2))
        first_us = draw.randrange(500, 1500) * MILLISECOND_US
        last_us = first_us + 2 * SECOND_US
        process.schedules["tick"] = Schedule("tick", "s", draw.choice((400, 900)) * MILLISECOND_US, first_us, last_us)
        return process

    def _deploy(self, world: World, name: str) -> None:
        """A node that lacked a version is started again, with all of them."""
        self.lacks = {}
        world.crash(name)
        world.start(name)

    def _ask(self, world: World) -> None:
        """Ask every node a query of every instance that it knows."""
        for name in self.names:
            node = world.machine(name)
            for instance, replica in node.instances.items() if node is not None else ():
                state = replica.decided[1] if replica.decided is not None else None
                process = self.deployed.get(f"{state.process}@{state.version}") if state is not None else None
                if state is None or process is None or "sum_of" not in process.queries:
                    continue
                if self.asked.get((name, instance)) == state.views:
                    continue
                self.asked[name, instance] = state.views
                answer = (state.views, process.answer("sum_of", state.variables))
                known = self.answers.setdefault(instance, {}).setdefault(state.group, answer)
                if known != answer:
                    self.misled.append(Violation(ANSWERED, (f"{instance}: {known} and {answer} of one group",)))

    def _answer(self, world: World) -> None:
        """As a partner: answer every question that came, whichever execution asked it."""
        bank = world.machine("service:bank")
        for _, line in bank.journal if bank is not None else ():
            action = line.action.partition(":")[0]
            if line.what == "do" and action in self.asks and line.iid not in self.answered:
                self.answered[line.iid] = None
                mail = Mail(f"re-{len(self.answered)}", self.asks[action], len(self.answered), line.iid)
                world.call("client", "post", line.iid.partition("/")[0], mail)

    def _check_answers(self, instance: str, state: State) -> Iterable[Violation]:
        """Check that every answer lies on the way to the furthest decided state."""
        for group, (views, _) in self.answers.get(instance, {}).items():
            if group <= state.group and state.views[: len(views)] != views:
                yield Violation(ANSWERED, (f"{instance}: group {group} of views {views}, but it is {state.views}",))

    def _try_again(self, world: World) -> None:
        """As an operator in the calm: let instances that are held try again."""
        for name in self.names:
            node = world.machine(name)
            for replica in node.instances.values() if node is not None else ():
                if replica.planner.planning and replica.decided is not None and replica.decided[1].held:
                    command = Mail(f"{replica.instance}-again-{world.now_us}", AGAIN, None)
                    world.call("client", "post", replica.instance, command)

    def _add_node(self, world: World, name: str) -> None:
        parts = {"replica_part": self.replica, "out_part": self.out, "rejoin_part": self.rejoin}
        kind = type("Node", (ProcessNode,), parts)

        def boot(records: Mapping[str, bytes], entropy: Entropy, now: int) -> ProcessNode:
            lacks = self.lacks.get(name)
            node: ProcessNode = kind(
                name,
                self.names,
                tuple(process for key, process in self.deployed.items() if key != lacks),
                records,
                entropy,
                now,
                self.bounds,
                self.config,
                self.grouping,
                world.now_us - now,
                asks_first=self.disks.asks_first(name),
            )
            return node

        world.add(name, boot, on_deliver=lambda what: self._on_deliver(name, what), disk=self.disk)

    def _on_deliver(self, name: str, what: object) -> None:
        if isinstance(what, Ended):
            self.ends.setdefault(what.instance, {})[name] = what.state

    def _add_services(self, world: World) -> None:
        draw = world.draw
        bad = draw.choice((0.0, 0.0, 0.05, 0.2))
        self.temper = temper = Temper(
            work_us_max=draw.choice((1, 10, 40)) * MILLISECOND_US,
            silent=draw.choice((0.0, bad)),
            late=draw.choice((0.0, bad)),
            twice=draw.choice((0.0, bad)),
            garbage=draw.choice((0.0, 0.0, bad / 4)),
            refuses=draw.choice((0.0, bad)),
            refuses_for_good=draw.choice((0.0, bad / 4)),
            undo_fails=draw.choice((0.0, bad)),
            muddled=max(draw.choice((0.0, bad)), self.muddled_min),
        )
        for name, cancels in (("bank", True), ("shop", self.disks.happen)):
            world.add(
                f"service:{name}",
                lambda records, entropy, now, name=name, cancels=cancels: self.service(  # type: ignore[misc]
                    name, cancels, temper, records, entropy, lambda: world.now_us
                ),
            )

    def _workload(self, world: World, instance: str) -> None:
        draw = world.draw
        at_us = draw.randrange(self.faults_us // 2)
        key = 1000 + int(instance[1:])
        world.at(at_us, lambda: world.call("client", "want", Start(instance, "p", {"key": key, "past": at_us})))
        for id, channel in numbered(instance, self.keyed):
            message = Publish(id, channel, str(key), draw.randrange(1000))
            later_us = draw.randrange(2 * SECOND_US)
            world.at(later_us, lambda message=message: world.call("client", "publish", message))  # type: ignore[misc]
        for id, channel in numbered(instance, self.channels):
            mail = Mail(id, channel, draw.randrange(1000))
            later_us = at_us + draw.randrange(2 * SECOND_US)
            world.at(later_us, lambda mail=mail: world.call("client", "post", instance, mail))  # type: ignore[misc]
        if draw.random() < self.cancel_chance:
            world.at(at_us + self.soon_us(draw), lambda: world.call("client", "cancel", instance))
        if draw.random() < self.command_chance:
            self._commands(world, instance, at_us)

    def soon_us(self, draw: Random) -> int:
        """How long after a start something is asked: mostly while the instance is young, for few get old."""
        return draw.randrange(SECOND_US >> draw.randrange(7))

    def _commands(self, world: World, instance: str, at_us: int) -> None:
        draw = world.draw
        kind = draw.choice(("hold", "again", "again", "move", "move"))
        when_us = at_us + self.soon_us(draw)
        commands: list[tuple[int, str, str | None]] = [
            (when_us, HOLD, None),
            (when_us + draw.randrange(2 * SECOND_US), RESUME, None),
        ]
        if kind == "again":
            step = draw.choice([vertex.name for vertex in self.process.graph.vertices if vertex.acts][:3])
            commands = [(when_us, AGAIN, step)]
        elif kind == "move":
            commands = [(when_us, MOVE, draw.choice((self.process, self.newer)).graph.version)]
        for number, (moment_us, channel, payload) in enumerate(commands):
            mail = Mail(f"{instance}-command-{number}", channel, payload)
            world.at(moment_us, lambda mail=mail: world.call("client", "post", instance, mail))  # type: ignore[misc]

    def faults(self, world: World, draw: Random) -> Sequence[Fault]:
        """Everybody but the client, and without a budget: safety may not depend on how many fail."""
        services = ["service:bank", "service:shop"] if draw.random() < 0.4 else []
        anywhere, aimed = draw.choice(((True, False), (False, True), (False, True), (True, True)))
        drawn: tuple[Fault, ...] = ()
        if anywhere:
            drawn += draw_faults(draw, [*self.names, *services], self.faults_us, self.kinds)
        if aimed:
            drawn += draw_aimed(draw, self.names, MOMENTS, self.faults_us // 2)
        return sorted((*drawn, *self.disks.faults(self.faults_us)), key=lambda fault: fault.at_us)

    def states(self, world: World, name: str) -> Collection[str]:
        node = world.nodes[name].machine
        return process_states(node.instances.values()) if isinstance(node, ProcessNode) else ()

    def _all(self, world: World) -> list[str]:
        """All instances that anybody knows, children and scheduled ones too."""
        instances = dict.fromkeys([*self.instances, *self._due(), *self.ends])
        for name in self.names:
            node = world.machine(name)
            if node is not None:
                instances.update(
                    dict.fromkeys([*node.finished, *(i for i, r in node.instances.items() if r.acceptor.accepted)])
                )
        return list(instances)

    def _due(self) -> list[str]:
        instances = []
        for process in self.deployed.values():
            for schedule in process.schedules.values():
                due_us = schedule.due_after(0)
                while due_us is not None:
                    instances.append(schedule.start(due_us).instance)
                    due_us = schedule.due_after(due_us)
        return instances

    def settled(self, world: World) -> bool:
        nodes = [world.machine(name) for name in self.names]
        if any(node is None for node in nodes):
            return False
        return all(instance in node.finished for instance in self._all(world) for node in nodes)

    def rest_us(self, world: World) -> int:
        return self.resting.rest_us(world, [*self.instances, *self._due()])

    def silence_us(self, world: World) -> int:
        return self.resting.silence_us(world)

    def progress(self, world: World) -> object:
        return self.resting.progress(world)

    def _journal(self, world: World, instance: str) -> list[Did]:
        lines: list[tuple[int, Did]] = []
        for name in ("service:bank", "service:shop"):
            machine = world.machine(name)
            lines += machine.journal if machine is not None else []
        lines.sort(key=lambda line: line[0])
        return [line for _, line in lines if line.iid.startswith(f"{instance}/")]

    def safety(self, world: World) -> Iterable[Violation]:
        self._note(world)
        yield from self.checked(world)

    def checked(self, world: World) -> Iterable[Violation]:
        yield from self.misled
        for instance in self._all(world):
            yield from self._check(world, instance, finished=False)

    def _known(self, world: World, instance: str) -> dict[str, State]:
        known: dict[str, State] = dict(self.ends.get(instance, {}))
        for name in self.names:
            node = world.machine(name)
            replica = node.instances.get(instance) if node is not None else None
            if name not in known and replica is not None and replica.decided is not None:
                known[name] = replica.decided[1]
        return known

    def _check(self, world: World, instance: str, finished: bool) -> Iterable[Violation]:
        known = self._known(world, instance)
        yield from check_agreement(
            instance,
            {name: state.views for name, state in known.items()},
            {name: (state.status, state.variables, state.taken, state.past) for name, state in known.items()},
        )
        if not known:
            return
        state = max(known.values(), key=lambda state: state.group)
        yield from self._check_answers(instance, state)
        taken = unpacked(state).taken
        acted = [Acted(t.vertex, t.iid, t.request, t.reply, t.write) for t in taken]
        process = self.deployed[f"{state.process}@{state.version}"]
        graph = process.graph
        model = Model(graph.vertices, graph.edges, process.initial(state.given), process.choose, process.fit)
        yield from check_atomic(instance, model, [(t.vertex, t.iid, t.group) for t in taken])
        yield from check_one_copy(
            instance, model, state.status, acted, self._journal(world, instance), finished=finished
        )
        if finished:
            yield from self._check_family(world, process, state)

    def _check_family(self, world: World, process: Process, state: State) -> Iterable[Violation]:
        relatives = {}
        for instance in self._all(world):
            for relative in list(self._known(world, instance).values())[:1]:
                if relative.parent == state.instance:
                    relatives[instance] = Relative(relative.status, relative.variables.get("x"))
        yield from check_family(state.instance, children_used(process.graph, state), relatives)

    def liveness(self, world: World) -> Iterable[Violation]:
        for instance in self._all(world):
            for name in self.names:
                node = world.machine(name)
                if node is None or instance not in node.finished:
                    known = "is down" if node is None else str(_outline(node, instance))
                    yield Violation(ENDED, (f"{name} has not settled {instance}: {known}",))
            yield from self._check(world, instance, finished=True)

    def _note(self, world: World) -> None:
        words = {
            "completed": "an instance completed",
            "cancelled": "an instance was cancelled",
            "failed": "an instance failed and was undone",
            "parked": "an instance was parked",
        }
        for states in self.ends.values():
            for state in list(states.values())[:1]:
                world.sometimes(words[state.status])
                if state.executed_in > 3:
                    world.sometimes("a view above 3")
                self._note_state(world, state)
        for report, word in (
            ("compensating", "a master compensated its group"),
            ("adopted", "a backup execution was adopted"),
            ("fenced", "a fenced master"),
            ("named", "somebody was named by another"),
            ("held", "an instance was held"),
            ("command_refused", "a command was refused"),
            ("unknown_version", "a version was not deployed everywhere"),
            ("whole", "a node that lost its disk took part again"),
        ):
            if world.reports.get(f"process.{report}"):
                world.sometimes(word)

    def _note_state(self, world: World, state: State) -> None:
        published = [f"{state.instance}-{channel}" for channel in self.keyed]
        signals = [f"{state.instance}-{channel}" for channel in self.channels]
        over = [vertex.name for vertex in self.process.graph.vertices if vertex.over]
        sleeps = any(vertex.kind is Kind.SLEEP for vertex in self.process.graph.vertices)
        commands = [f"{state.instance}-command-{number}" for number in range(2)]
        for word, reached in (
            ("a child completed", bool(state.parent) and state.status == "completed"),
            ("a child was undone", "~" in state.instance and state.status == "completed"),
            ("an instance went back", bool(state.rewound)),
            ("an instance was moved", state.moved > 0),
            ("a deadline passed", state.reason.startswith("its deadline")),
            ("a schedule started an instance", state.instance.startswith("tick-")),
            ("a published message was consumed", any(id in state.consumed for id in published)),
            ("a signal was consumed", any(id in state.consumed for id in signals)),
            ("a timer fired", sleeps and state.process == "p" and state.status == "completed"),
            ("children over a list completed", any(taken.vertex in over for taken in state.taken)),
            ("an instance was held by an operator, and resumed", all(id in state.consumed for id in commands)),
            ("a query was answered", len(self.answers.get(state.instance, ())) > 1),
        ):
            if reached:
                world.sometimes(word)


def _outline(node: ProcessNode, instance: str) -> object:
    replica = node.instances.get(instance)
    return "unknown" if replica is None else {k: v for k, v in replica.query().items() if k != "variables"}


@scenario("processes-storm")
class ProcessesStorm(Processes):
    """Mostly writes, mostly five replicas, and faults as fast as views can change."""

    replicas = (1, 2, 2)
    must_reach: tuple[str, ...] = ()
    schedule_chance = 0.0
    lacking_chance = 0.0
    weights = (2.0, 3.0, 8.0, 2.0, 1.0, 0.0, 0.0)
    patience_ms = (20, 200, 100_000)

    def faults(self, world: World, draw: Random) -> Sequence[Fault]:
        drawn: list[Fault] = []
        pause_us = draw.choice((30, 80, 200)) * MILLISECOND_US
        kinds = draw.choice((("crash",), ("cut",), ("crash", "cut"), ("crash", "cut", "pause"), ("pause", "cut")))
        at_us = 0
        while (at_us := at_us + 1 + draw.randrange(2 * pause_us)) < self.faults_us:
            for_us = draw.choice((20, 100, 400, 1200)) * MILLISECOND_US + draw.randrange(200 * MILLISECOND_US)
            kind = draw.choice(kinds)
            side = draw.sample(self.names, draw.randint(1, self.f))
            if kind == "crash":
                drawn += [Crash(at_us=at_us, node=node, for_us=for_us) for node in side]
            elif kind == "pause":
                drawn.append(Pause(at_us=at_us, node=side[0], for_us=for_us))
            else:
                one_way = draw.random() < 0.3
                drawn.append(
                    Partition(at_us=at_us, node=side[0], others=tuple(side[1:]), for_us=for_us, one_way=one_way)
                )
        return sorted((*drawn, *self.disks.faults(self.faults_us)), key=lambda fault: fault.at_us)


# --- mutants: each removes one rule, and must be caught. Some rules matter in some processes only, drawn here more
# often. What needs one exact order of messages is in the tests of schedules.

READS = (1.0, 9.0, 5.0, 0.0, 0.0, 0.0, 0.0)
FINALS = (0.0, 0.0, 3.0, 0.0, 9.0, 0.0, 0.0)
WRITES = (0.0, 0.0, 9.0, 9.0, 0.0, 0.0, 0.0)
CHILDREN = (0.0, 0.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 9.0, 9.0)
RECEIVES = (0.0, 0.0, 3.0, 0.0, 0.0, 9.0, 0.0)

mutant(Processes, "continues before majority", replica=broken.ContinuesBeforeMajority)
mutant(Processes, "fresh IID on retry", replica=broken.FreshIidOnRetry)
mutant(Processes, "writes actively", replica=broken.WritesActively)
mutant(Processes, "counts unrecorded refusals", replica=broken.CountsUnrecordedRefusals)
mutant(Processes, "counts doubtful refusals", replica=broken.CountsDoubtfulRefusals, muddled_min=0.2)
mutant(Processes, "a timeout is a refusal", replica=broken.TimeoutIsRefusal)
mutant(Processes, "forgets unknown outcomes", replica=broken.ForgetsUnknown)
mutant(Processes, "a service without a filter", service=broken.NoFilter)
mutant(Processes, "keeps mail to itself", replica=broken.KeepsMailToItself, weights=RECEIVES)
mutant(Processes, "forgets its children", replica=broken.ForgetsChildren, weights=CHILDREN, cancel_chance=1.0)
mutant(Processes, "cancels beside a running group", replica=broken.CancelsBesideGroup, cancel_chance=1.0, seeds_max=200)
mutant(Processes, "cancels an announced action", replica=broken.CancelsAnnounced, weights=FINALS, cancel_chance=1.0)
mutant(
    Processes,
    "goes back before a child",
    replica=broken.GoesBackBeforeAChild,
    weights=CHILDREN,
    command_chance=1.0,
    seeds_max=200,
)
mutant(ProcessesStorm, "offers an abandoned state", replica=broken.OffersAbandoned, seeds_max=200)
mutant(
    ProcessesStorm,
    "compensates in order",
    replica=broken.CompensatesInOrder,
    weights=WRITES,
    failovers_ms=(5000,),
    patience_ms=(100_000,),
    cancel_chance=0.0,
)
mutant(ProcessesStorm, "names two masters", replica=broken.NamesTwoMasters)
mutant(ProcessesStorm, "two starters in view 0", replica=broken.TwoStarters, seeds_max=200)
mutant(
    ProcessesStorm, "non-compensable IIDs with a view", replica=broken.FinalIidsWithView, weights=FINALS, seeds_max=200
)
mutant(ProcessesStorm, "never compensates", replica=broken.NeverCompensates)
mutant(ProcessesStorm, "a service without tombstone and fence", service=broken.NoTombstone, seeds_max=400)
