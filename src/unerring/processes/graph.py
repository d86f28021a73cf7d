"""A process as data: a directed acyclic graph P = (V, E, Σ) of actions and control vertices with typed state.

A cut through the graph is the set of marked edges: a vector with one position for each concurrent branch. A vertex
is enabled when its incoming edge is marked (an AND-join: all of them); firing it moves the marks to its outgoing edges.

A loop is a block between two control vertices. Its edges have no cycle: the vertex at its end either goes on, or moves
the mark back to the block's beginning and begins another round. Where a process is, is its cut and the rounds of the
loops around it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import cached_property
from typing import Any, Final

import msgspec

from unerring.model import ProcessError, invariant

Cut = tuple[int, ...]
"""Numbers of marked edges, ascending."""

Rounds = dict[str, int]
"""The loops that a cut is in, by the name of the vertex at their beginning, each with the number of its round."""

ROUND: Final = "'"
"""Parts an action from the rounds of the loops around it, in interaction ids and ids of children."""
LANE: Final = ":"
"""Parts an action or a variable from the number of its lane, where a loop handles several items at once."""

BAD_IN_NAMES: Final = "/|@~+'!"
"""Characters that ids are put together with: no name has one."""

LOCAL: Final = "local"
"""The service of actions that are async functions inside the node itself."""

IN_TIME: Final = "in time"
LATE: Final = "late"
"""The branches of a block with a deadline."""
REPEAT: Final = "again"
SKIP: Final = "none"
"""How a loop goes on where its edges do not say: with another round; without any, because its list is empty."""


class Kind(StrEnum):
    """The kinds of vertices."""

    CALL = "call"  # request and reply
    SEND = "send"  # a message to a partner; its acknowledgement is all that comes back
    RECEIVE = "receive"  # waits for a partner's message
    SLEEP = "sleep"  # waits for a time
    CHILD = "child"  # waits for the end of a process of its own, or of one for each item of a list
    XOR_SPLIT = "xor-split"
    XOR_JOIN = "xor-join"
    AND_SPLIT = "and-split"
    FIRST_SPLIT = "first-split"  # the waits behind it race: the first that ends decides the branch
    AND_JOIN = "and-join"
    LOOP = "loop"  # the beginning of a loop: over the items of a list it takes the next one
    AGAIN = "again"  # its end: another round, or on
    GATHER = "gather"  # puts together what the lanes of a loop collected
    WITHIN = "within"  # the beginning of a block with a deadline: it is over in time, or undone and another one taken


SPLITS: Final = (Kind.XOR_SPLIT, Kind.AND_SPLIT, Kind.FIRST_SPLIT, Kind.WITHIN)
ACTIONS: Final = (Kind.CALL, Kind.SEND, Kind.RECEIVE, Kind.SLEEP, Kind.CHILD)
WAITS: Final = (Kind.RECEIVE, Kind.SLEEP, Kind.CHILD)


class Retry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How often and how long an action is tried. An attempt that times out is repeated under the same id."""

    attempt_us: int = 2_000_000
    attempts_max: int = 5
    backoff_us: int = 100_000
    backoff_max_us: int = 5_000_000
    occurrences_max: int = 2
    """After a recorded refusal the request may be made again as a new occurrence, this often in all."""


class Vertex(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One vertex. The fields after `kind` describe actions; a control vertex has a condition (XOR-split) or nothing."""

    name: str
    kind: Kind
    service: str = LOCAL
    operation: str = ""
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    write: bool = False
    """It may change external state."""
    deterministic: bool = False
    """The same request always has the same reply."""
    compensable: bool = True
    compensation: str = ""
    """The operation that undoes it, where the service cannot cancel by IID."""
    cost: int = 0
    """The cost of compensating it."""
    time_us: int = 1_000
    """How long it is expected to take."""
    retry: Retry = Retry()
    channel: str = ""
    """Of a receive: which of the partner's messages."""
    condition: str = ""
    """Of an XOR-split: the name of the deterministic function that picks the branch."""
    alone: bool = False
    """A group of its own, because the designer says so."""
    key: str = ""
    """Of a receive: the variable whose value a published message must name. Of a request: the variable that says whose
    it is, for the limits of its service."""
    given: tuple[tuple[str, str], ...] = ()
    """Of a child: its variables, each with the variable of this process that it is given."""
    returns: str = ""
    """Of a child: its variable whose value the parent gets when it has completed."""
    undo_given: tuple[str, ...] = ()
    """Of a child: what of its input and result the process that undoes it is given."""
    over: str = ""
    """Of a child: the list with one child for each item; the others of `given` are the same for all."""
    at_once: int = 1
    """Of children over a list: how many may be under way. Of a loop over a list: how many lanes it has."""
    loop: str = ""
    """Of the end of a loop, or of a block with a deadline: its beginning."""
    at_most: int = 0
    """Of a loop: more rounds let the process fail."""
    lane: int = 0
    """Of a loop over a list: it takes every `at_once`-th item, from this one on."""
    answers: str = ""
    """Of a receive: the action that its message has to answer."""
    atomic: str = ""
    """The atomic block that it is part of."""
    collects: tuple[tuple[str, str], ...] = ()
    """Of a loop's end: a list, and the variable whose value each round adds to it. Of a gather: a list, and the lists
    of the lanes, in turns."""
    priority: str = ""
    """Of a request: the variable that says how urgent it is, where requests wait for their turn."""

    @property
    def acts(self) -> bool:
        return self.kind in ACTIONS

    @property
    def waits(self) -> bool:
        return self.kind in WAITS

    @property
    def final(self) -> bool:
        """A write, or a child, that nothing can undo."""
        return (self.write or self.kind is Kind.CHILD) and not self.compensable

    @property
    def assigns(self) -> bool:
        """A control vertex that changes variables: it is part of the history."""
        return not self.acts and bool(self.writes)


_ADDED: Final = {"loop": "", "at_most": 0, "lane": 0, "collects": (), "answers": "", "atomic": "", "priority": ""}
"""Fields of a vertex that are not part of a version where they have these values: versions from before they were there
stay what they are."""


def base_name(name: str) -> str:
    """The name of a variable as its author gave it, whichever lane has it."""
    return name.partition(LANE)[0]


def _versioned(vertex: Vertex) -> dict[str, Any]:
    fields = msgspec.structs.asdict(vertex)
    return {name: value for name, value in fields.items() if name not in _ADDED or value != _ADDED[name]}


class Edge(msgspec.Struct, frozen=True):
    """From vertex to vertex; the empty name is the start as a source and the end as a target."""

    source: str
    target: str
    label: str = ""


class Service(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a service promises about interaction ids."""

    name: str
    filters: bool = True
    """It answers a repeated IID with the recorded reply, and has the effect once."""
    cancels: bool = True
    """It undoes by IID, leaves a tombstone for what has not come yet, and fences lower views."""


class Variable(msgspec.Struct, frozen=True):
    name: str
    type: str
    default: Any = None


class Graph(msgspec.Struct, frozen=True, dict=True):
    """P = (V, E, Σ), with the services it uses."""

    name: str
    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]
    state: tuple[Variable, ...] = ()
    services: tuple[Service, ...] = ()
    deadline_us: int = 0
    """An instance that has not ended so long after its start is undone; 0: it may take its time."""
    holds: bool = False
    """What cannot go on is held for an operator, instead of being undone."""
    failover_us: int = 0
    """t_f of this process: after the loss of a master it goes on within this time, as far as its actions allow, and its
    groups are the best ones for that; 0: the threshold of the nodes."""
    view_change_us: int = 0
    """t_v, as it was measured; 0: that of the nodes."""

    @cached_property
    def by_name(self) -> dict[str, Vertex]:
        return {vertex.name: vertex for vertex in self.vertices}

    @cached_property
    def service_by_name(self) -> dict[str, Service]:
        known = {service.name: service for service in self.services}
        known.setdefault(LOCAL, Service(LOCAL, filters=False, cancels=False))
        return known

    @cached_property
    def incoming(self) -> dict[str, tuple[int, ...]]:
        return self._touching(lambda edge: edge.target)

    @cached_property
    def outgoing(self) -> dict[str, tuple[int, ...]]:
        return self._touching(lambda edge: edge.source)

    def _touching(self, side: Any) -> dict[str, tuple[int, ...]]:
        edges: dict[str, list[int]] = {vertex.name: [] for vertex in self.vertices}
        edges[""] = []
        for number, edge in enumerate(self.edges):
            edges.setdefault(side(edge), []).append(number)
        return {name: tuple(numbers) for name, numbers in edges.items()}

    @cached_property
    def races(self) -> dict[str, tuple[int, ...]]:
        """For each wait right behind a first-split, the edges to all waits of that race, its own among them."""
        splits = [vertex.name for vertex in self.vertices if vertex.kind is Kind.FIRST_SPLIT]
        return {self.edges[number].target: self.outgoing[name] for name in splits for number in self.outgoing[name]}

    @cached_property
    def order(self) -> tuple[str, ...]:
        """All vertices in a topological order that depends on the declaration alone."""
        waiting = {name: len([n for n in numbers if self.edges[n].source]) for name, numbers in self.incoming.items()}
        ready = [vertex.name for vertex in self.vertices if waiting[vertex.name] == 0]
        ordered: list[str] = []
        while ready:
            name = ready.pop(0)
            ordered.append(name)
            for number in self.outgoing[name]:
                target = self.edges[number].target
                if target:
                    waiting[target] -= 1
                    if waiting[target] == 0:
                        ready.append(target)
        if len(ordered) < len(self.vertices):
            stuck = [vertex.name for vertex in self.vertices if vertex.name not in ordered]
            raise ProcessError(f"process {self.name}: there is a cycle through {', '.join(stuck)}; a process has none")
        return tuple(ordered)

    @cached_property
    def sequences(self) -> tuple[tuple[Vertex, ...], ...]:
        """The longest runs of actions that follow each other directly and may be one group."""
        runs: dict[str, list[Vertex]] = {}
        for name in self.order:
            vertex = self.by_name[name]
            if not vertex.acts or vertex.waits or vertex.final or vertex.alone:
                continue
            run = runs.pop(self.edges[self.incoming[name][0]].source, [])
            runs[name] = [*run, vertex]
        return tuple(tuple(run) for run in runs.values())

    @cached_property
    def rank(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.order)}

    @cached_property
    def start(self) -> Cut:
        return tuple(number for number, edge in enumerate(self.edges) if not edge.source)

    @cached_property
    def version(self) -> str:
        """A digest of the whole graph: an instance stays with the version it was started with."""
        known = {name: getattr(self, name) for name in self.__struct_fields__}
        for name in ("failover_us", "view_change_us"):  # graphs from before these were there keep their versions
            if not known[name]:
                del known[name]
        known["vertices"] = [_versioned(vertex) for vertex in self.vertices]
        return hashlib.blake2b(msgspec.msgpack.encode(known), digest_size=8).hexdigest()

    def ended(self, cut: Cut) -> bool:
        return bool(cut) and all(not self.edges[number].target for number in cut)

    def enabled(self, cut: Cut) -> Iterator[Vertex]:
        """Vertices that may fire, in topological order."""
        marked = dict.fromkeys(cut)
        seen = dict.fromkeys(self.edges[number].target for number in cut)
        for name in sorted((name for name in seen if name), key=self.rank.__getitem__):
            vertex = self.by_name[name]
            if vertex.kind is Kind.AND_JOIN and not all(number in marked for number in self.incoming[name]):
                continue
            yield vertex

    def fire(self, cut: Cut, vertex: Vertex, label: str = "") -> Cut:
        """The cut after `vertex`; an XOR-split takes the edge with that label, and the winner of a race ends it. A loop
        may be left out (SKIP), or go round again (REPEAT)."""
        came = self.races.get(vertex.name, self.incoming[vertex.name])
        left = [number for number in cut if number not in came]
        invariant(len(left) < len(cut), f"{vertex.name} fires only when it is enabled")
        goes = self.outgoing[vertex.name]
        if label == SKIP and vertex.kind is Kind.LOOP:
            goes = self.outgoing[self.ends[vertex.name]]
        if label == REPEAT and vertex.kind is Kind.AGAIN:
            goes = self.outgoing[vertex.loop]
        if vertex.kind in (Kind.XOR_SPLIT, Kind.WITHIN):
            label = label or IN_TIME
            goes = tuple(number for number in goes if self.edges[number].label == label)
            invariant(len(goes) == 1, f"{vertex.kind} {vertex.name} has exactly one branch {label!r}")
        return tuple(sorted([*left, *goes]))

    def ways(self, vertex: Vertex) -> list[tuple[Vertex, str]]:
        """What may fire when an enabled vertex is to, and with which label: one of an XOR's, one of a race's."""
        if vertex.kind in (Kind.XOR_SPLIT, Kind.WITHIN):
            return [(vertex, self.edges[number].label) for number in self.outgoing[vertex.name]]
        if vertex.name in self.races:
            return [(self.by_name[self.edges[number].target], "") for number in self.races[vertex.name]]
        if vertex.kind is Kind.AGAIN:
            return [(vertex, ""), (vertex, REPEAT)]
        return [(vertex, ""), (vertex, SKIP)] if vertex.kind is Kind.LOOP and vertex.over else [(vertex, "")]

    @cached_property
    def ends(self) -> dict[str, str]:
        """For each beginning of a loop, its end."""
        return {vertex.loop: vertex.name for vertex in self.vertices if vertex.kind is Kind.AGAIN}

    @cached_property
    def around(self) -> dict[str, tuple[str, ...]]:
        """For each vertex the loops that it is in, the outermost first; the end of a loop is in it."""
        around = {}
        for name in self.by_name:
            loops = [
                head
                for head, end in self.ends.items()
                if head in self.before[name] and (name == end or name in self.before[end])
            ]
            around[name] = tuple(sorted(loops, key=self.rank.__getitem__))
        return around

    @cached_property
    def blocks(self) -> dict[str, frozenset[int]]:
        """For each block with a deadline, the edges on which a mark is inside it: not yet at its end."""
        joins = {v.loop: v.name for v in self.vertices if v.kind is Kind.XOR_JOIN and v.loop}
        blocks = {}
        for name, join in joins.items():
            first = next(number for number in self.outgoing[name] if self.edges[number].label == IN_TIME)
            target = self.edges[first].target
            body = [v for v in self.before[join] if v == target or target in self.before[v]] if target != join else []
            edges = [number for v in body for number in self.outgoing[v] if self.edges[number].target != join]
            blocks[name] = frozenset([first, *edges])
        return blocks

    @cached_property
    def atomic_us(self) -> dict[str, int]:
        """How long the longest way through each atomic block takes."""
        finish: dict[str, int] = {}
        longest: dict[str, int] = {}
        for name in self.order:
            vertex = self.by_name[name]
            if vertex.atomic:
                sources = [self.edges[number].source for number in self.incoming[name]]
                begun = [finish[s] for s in sources if s in finish and self.by_name[s].atomic == vertex.atomic]
                finish[name] = max(begun, default=0) + (vertex.time_us if vertex.acts else 0)
                longest[vertex.atomic] = max(longest.get(vertex.atomic, 0), finish[name])
        return longest

    def goes_on_atomically(self, vertex: Vertex) -> bool:
        """Whether it is part of an atomic block, and not the last of it."""
        targets = [self.edges[number].target for number in self.outgoing[vertex.name]]
        return bool(vertex.atomic) and any(t and self.by_name[t].atomic == vertex.atomic for t in targets)

    def inside(self, loop: str) -> frozenset[str]:
        """The vertices between a loop's beginning and its end, both among them."""
        return frozenset([loop, *(name for name, loops in self.around.items() if loop in loops)])

    def in_round(self, name: str, rounds: Mapping[str, int]) -> str:
        """The name of a vertex in the present rounds of the loops around it. A loop that is not under way begins with
        round 0; since a group ends with a round, this is the name in the whole group that begins in these rounds."""
        return name + "".join(f"{ROUND}{rounds.get(loop, 0)}" for loop in self.around[name])

    @cached_property
    def before(self) -> dict[str, frozenset[str]]:
        """For each vertex, every vertex on some way to it."""
        before: dict[str, frozenset[str]] = {}
        for name in self.order:
            sources = [self.edges[number].source for number in self.incoming[name] if self.edges[number].source]
            before[name] = frozenset(sources).union(*(before[source] for source in sources))
        return before
