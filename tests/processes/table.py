"""Replicas on a table: every message lies there until the test hands it over or takes it away. For the schedules that
chance finds too rarely."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Any

from unerring.audit import Acted, Did, Model, Violation, check_agreement, check_one_copy
from unerring.model import SECOND_US, Persist, Send
from unerring.processes.build import Process
from unerring.processes.config import ClusterBounds, ProcessesConfig
from unerring.processes.context import replica_set
from unerring.processes.graph import Edge, Graph, Kind, Service, Variable, Vertex
from unerring.processes.grouping import Grouping
from unerring.processes.messages import Answer, Mail, Post, Reply, Request, Start, State
from unerring.processes.node import ProcessNode
from unerring.processes.out import Out
from unerring.processes.rejoin import Rejoin
from unerring.processes.replica import Replica

INSTANCE = "i"
Lose = Callable[[str, Any], bool]
"""To whom, and what: whether the message gets lost."""


def action(
    name: str, reads: str, writes: str, write: bool = False, cost: int = 0, alone: bool = False, slow: bool = False
) -> Vertex:
    """`slow`: so that nobody executes it before its input is replicated."""
    return Vertex(
        name,
        Kind.CALL,
        service="bank",
        operation="write" if write else "read",
        reads=tuple(reads),
        writes=tuple(writes),
        write=write,
        cost=cost,
        alone=alone,
        time_us=SECOND_US if slow else 1_000,
    )


def one_write(reads_first: bool = False) -> Process:
    """One write; before it, if asked for, a read whose reply differs each time, in a group of its own."""
    actions = [action("w", "r", "x", write=True)]
    return sequence(action("read", "", "r", slow=True), *actions) if reads_first else sequence(*actions)


def sequence(*actions: Vertex, service: Service | None = None) -> Process:
    names = ["", *(action.name for action in actions), ""]
    edges = tuple(Edge(one, other) for one, other in pairwise(names))
    state = tuple(Variable(name, "int", 0) for name in "rxy")
    return Process.of(Graph("p", actions, edges, state, (service or Service("bank"),)), {}, dict.fromkeys("rxy", int))


class Table:
    """`a` is the first replica of the instance, the others follow in the order of its set."""

    def __init__(
        self,
        process: Process,
        replica: type[Replica] = Replica,
        f: int = 1,
        out: type[Out] = Out,
        naming: str = "self",
        rejoin: type[Rejoin] = Rejoin,
    ) -> None:
        names = tuple(f"node{number}" for number in range(2 * f + 1))
        self.members = replica_set(INSTANCE, names, f)
        self.process = process
        self.kind = type("Node", (ProcessNode,), {"replica_part": replica, "out_part": out, "rejoin_part": rejoin})
        self.names, self.f = names, f
        self.config = ProcessesConfig(sweep_patience_us=10**12, naming=naming)
        self.ahead_us: dict[str, int] = {}
        """By how much the wall clocks of some are ahead, from their next start on."""
        self.lacking: list[str] = []
        """Who does not have the process, from its next start on."""
        self.now = 1_000_000
        self.disks: dict[str, dict[str, bytes]] = {name: {} for name in names}
        self.nodes: dict[str, ProcessNode] = {}
        self.lying: list[tuple[str, str, Any]] = []
        """Messages on the table: from, to, what."""
        self.handed: list[tuple[str, str, Any]] = []
        """Those that were handed over."""
        self.replies: dict[str, Reply] = {}
        self.journal: list[Did] = []
        self.reads = 0
        for name in self.members:
            self.restart(name)

    def lose_disk(self, name: str) -> None:
        """Crash and come back with an empty disk."""
        self.disks[name] = {}
        self.restart(name, asks_first=True)

    def restart(self, name: str, asks_first: bool = False) -> None:
        """Crash and come back with what is on disk."""
        self.nodes[name] = self.kind(
            name,
            self.names,
            {} if name in self.lacking else {"p": self.process},
            dict(self.disks[name]),
            Random(name),
            self.now,
            ClusterBounds(f=self.f),
            self.config,
            Grouping(),
            self.ahead_us.get(name, 0),
            asks_first,
        )
        self._carry(name, self.nodes[name].start(self.now))

    def replica(self, name: str) -> Replica:
        return self.nodes[name].instances[INSTANCE]

    def _carry(self, name: str, effects: list[Any], crash_at_persist: bool = False) -> None:
        for effect in effects:
            if isinstance(effect, Persist):
                if crash_at_persist:
                    return
                self.disks[name].update(effect.puts)
                for key in effect.deletes:
                    self.disks[name].pop(key, None)
            elif isinstance(effect, Send):
                self.lying.append((name, effect.to, effect.message))

    def start(self) -> None:
        first = self.members[0]
        self._carry(first, self.nodes[first].begin(Start(INSTANCE, "p", {}), self.now))

    def post(self, name: str, mail: Mail) -> None:
        self._carry(name, self.nodes[name].handle("partner", Post(INSTANCE, mail), self.now))

    def command(self, name: str, method: str, *arguments: Any) -> None:
        """An operator's word to a node."""
        self._carry(name, getattr(self.nodes[name], method)(*arguments, self.now))

    def ask_view(self, name: str) -> None:
        self.replica(name).election.ask_view(self.now, "the test says so")
        self._carry(name, self.nodes[name].out.take())

    def suspect(self, name: str) -> None:
        """This replica finds that nobody leads."""
        self.replica(name).election.ask_again(self.now)
        self._carry(name, self.nodes[name].out.take())

    def send_again(self, name: str) -> None:
        """The state that this replica wants to be acknowledged, once more."""
        replica = self.replica(name)
        replica.replication.resend(replica.others, self.now)
        self._carry(name, self.nodes[name].out.take())

    def deliver(self, to: list[str], lose: Lose | None = None, crash_at_persist: str = "") -> None:
        """Hand over, until nothing moves, all that lies between these nodes and the service; take the rest away."""
        while True:
            if lose is not None:
                self.lying = [item for item in self.lying if not lose(item[1], item[2])]
            moving = [item for item in self.lying if self._among(item, to)]
            if not moving:
                self.lying = []
                return
            self.lying = [item for item in self.lying if not self._among(item, to)]
            self.handed += moving
            for sender, receiver, message in moving:
                if receiver.startswith("service:"):
                    self.lying.append((receiver, sender, self._serve(message)))
                else:
                    effects = self.nodes[receiver].handle(sender, message, self.now)
                    self._carry(receiver, effects, receiver == crash_at_persist)

    def _among(self, item: tuple[str, str, Any], to: list[str]) -> bool:
        return all(end in to or end.startswith("service:") for end in item[:2])

    def _serve(self, request: Request) -> Reply:
        if request.operation == "read":
            self.reads += 1
            return Reply(request.instance, request.iid, "do", Answer.DONE, self.reads)
        if request.mode == "cancel":
            if request.iid in self.replies:
                self._note("undo", request, None)
            self.replies[request.iid] = Reply(request.instance, request.iid, "do", Answer.FENCED)
            return Reply(request.instance, request.iid, "cancel", Answer.DONE)
        if request.iid not in self.replies:
            self.replies[request.iid] = Reply(request.instance, request.iid, "do", Answer.DONE, len(self.journal))
            self._note("do", request, self.replies[request.iid].value)
        return self.replies[request.iid]

    def _note(self, what: str, request: Request, reply: Any) -> None:
        view = int(request.iid.partition("@")[2])
        self.journal.append(
            Did(
                what, request.iid, request.iid.split("/")[1], request.group, view, request.basis, request.payload, reply
            )
        )

    def tick(self, name: str, after_us: int = 1_000) -> None:
        self.now += after_us
        self._carry(name, self.nodes[name].timer("tick", self.now))

    def violations(self) -> list[Violation]:
        known: dict[str, State] = {}
        for name, node in self.nodes.items():
            replica = node.instances.get(INSTANCE)
            if replica is not None and replica.decided is not None:
                known[name] = replica.decided[1]
        found = check_agreement(
            INSTANCE,
            {name: state.views for name, state in known.items()},
            {name: (state.variables, state.taken) for name, state in known.items()},
        )
        graph = self.process.graph
        model = Model(graph.vertices, graph.edges, self.process.initial({}), self.process.choose, self.process.fit)
        for state in known.values():
            acted = [Acted(t.vertex, t.iid, t.request, t.reply, t.write) for t in state.taken]
            found += check_one_copy(INSTANCE, model, state.status, acted, self.journal, finished=False)
        return found
