"""Random processes: sequences, XOR and AND blocks, loops, actions of all classes, waits of all kinds, children and what
undoes them; and a second version of each, with an action more somewhere."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

import msgspec

from unerring.model import MILLISECOND_US
from unerring.processes import IN_TIME, LATE, Edge, Graph, Kind, Process, Retry, Service, Variable, Vertex, copied


def odd0(c0: int) -> bool:
    return c0 % 2 == 1


def odd1(c1: int) -> bool:
    return c1 % 2 == 1


def odd2(c2: int) -> bool:
    return c2 % 2 == 1


def sum_of(key: int, c0: int, c1: int, c2: int) -> int:
    """A query of every process."""
    return key + c0 + c1 + c2


CONDITIONS: Final = {"odd0": odd0, "odd1": odd1, "odd2": odd2}


CLASSES: Final = ("det", "read", "write", "shop", "final", "receive", "sleep", "keyed", "until", "child", "each")
"""Classes of actions: deterministic and not; compensable by cancelling and by a request; non-compensable; waits for
messages and times, of both kinds; a child, and one for each item of a list."""
USUAL: Final = (3.0, 3.0, 6.0, 3.0, 2.0, 1.5, 1.5, 0.7, 0.3, 1.5, 0.6)
ITEMS: Final = [3, 1, 2]
SERVICES: Final = (Service("bank"), Service("shop", cancels=False))
CANCELLING: Final = (Service("bank"), Service("shop"))


class Architect:
    """Draws a process: sequences, XOR and AND blocks, actions of all classes."""

    def __init__(
        self,
        draw: Random,
        weights: Sequence[float] = USUAL,
        races: float = 0.0,
        loops: float = 0.0,
        blocks: float = 0.0,
        services: tuple[Service, ...] = SERVICES,
    ) -> None:
        """`races`: how often several waits race instead; such processes may have a threshold of their own, too.
        `loops`: how often there is a loop instead. `blocks`: how often a block with a deadline, an atomic one, a race
        with a child, or a question to a partner who answers."""
        self.draw = draw
        self.services = services
        self.races = races
        self.loops = loops
        self.blocks = blocks
        self.beside = 0
        """Branches that run at the same time, around what is drawn now."""
        self.asks: dict[str, str] = {}
        """Actions that a partner answers, each with the channel of the answers."""
        self.lists: list[str] = []
        self.often = 1
        """How often what is drawn now may be executed, because of the loops around it."""
        self.vertices: list[Vertex] = []
        self.edges: list[Edge] = []
        self.variables: list[str] = []
        self.channels: list[str] = []
        """Of receives, each as often as it may receive."""
        self.keyed: list[str] = []
        self.children: dict[str, Process] = {}
        self.coins = 0
        self.weights = [weight if draw.random() < 0.8 else 0.0 for weight in weights]
        self.weights += [0.0] * (len(CLASSES) - len(self.weights))
        self.weights[CLASSES.index("write")] += 1
        self.retry = Retry(
            attempt_us=draw.choice((60, 150)) * MILLISECOND_US,
            attempts_max=draw.choice((2, 5)),
            backoff_us=10 * MILLISECOND_US,
            backoff_max_us=200 * MILLISECOND_US,
            occurrences_max=draw.choice((1, 2, 3)),
        )

    def build(self, name: str, deadline_us: int = 0, holds: bool = False) -> Process:
        ends, _ = self._sequence([("", "")], [], self.draw.randint(2, 5), 0)
        self.edges += [Edge(source, "", label) for source, label in ends]
        return self._process(name, deadline_us, holds)

    def small(self, name: str, length: int) -> Process:
        """A sequence of a few actions, for children and schedules; what it is given, and returns, is `x`."""
        self.variables.append("x")
        self.weights[4:] = [0.0] * (len(CLASSES) - 4)
        ends: list[tuple[str, str]] = [("", "")]
        readable = ["x"]
        for at in range(length):
            ends, readable = self._action(ends, readable, "x" if at == length - 1 else "")
        self.edges += [Edge(source, "", label) for source, label in ends]
        return self._process(name, 0, False)

    def _process(self, name: str, deadline_us: int, holds: bool) -> Process:
        names = [*self.variables, *(f"c{n}" for n in range(3)), "key", "past"]
        variables = (
            *(Variable(v, "int", 0) for v in names),
            Variable("items", "list", ITEMS),
            Variable("all", "list", []),
            *(Variable(v, "list", []) for v in self.lists),
        )
        parts = (tuple(self.vertices), tuple(self.edges), variables, self.services)
        failover_us = self.draw.choice((0, 550, 1_000)) * MILLISECOND_US if self.races else 0
        graph = Graph(name, *parts, deadline_us, holds, failover_us)
        types = {**dict.fromkeys(names, int), **dict.fromkeys(("items", "all", *self.lists), list[int])}
        process = Process.of(graph, CONDITIONS, types)
        process.children = dict(self.children)
        process.query(sum_of)
        return process

    def next_version(self, process: Process) -> Process:
        """The same with one write more, on some edge."""
        graph = process.graph
        number = self.draw.randrange(len(graph.edges))
        while graph.edges[number].target in graph.races:  # a race is between waits
            number = self.draw.randrange(len(graph.edges))
        edge = graph.edges[number]
        source, target = graph.by_name.get(edge.source), graph.by_name.get(edge.target)
        atomic = source.atomic if source and target and source.atomic == target.atomic else ""
        more = Vertex("more", Kind.CALL, "bank", "write", writes=("more",), write=True, retry=self.retry)
        more = msgspec.structs.replace(more, atomic=atomic)
        edges = [*graph.edges[:number], Edge(edge.source, "more", edge.label), *graph.edges[number + 1 :]]
        changed = msgspec.structs.replace(
            graph,
            vertices=(*graph.vertices, more),
            edges=(*edges, Edge("more", edge.target)),
            state=(*graph.state, Variable("more", "int", 0)),
        )
        newer = Process.of(changed, CONDITIONS, {**process.types, "more": int})
        newer.children = dict(self.children)
        newer.query(sum_of)
        return newer

    def _sequence(
        self, ends: list[tuple[str, str]], readable: list[str], length: int, depth: int
    ) -> tuple[list[tuple[str, str]], list[str]]:
        for _ in range(length):
            if self.races and depth < 2 and self.draw.random() < self.races:
                ends, readable = self._first(ends, readable, depth)
                continue
            if self.blocks and depth < 2 and self.draw.random() < self.blocks:
                ends, readable = self._block(ends, readable, depth)
                continue
            if self.loops and depth < 2 and self.draw.random() < self.loops:
                ends, readable = self._loop(ends, readable, depth)
                continue
            chance = self.draw.random()
            if depth < 2 and chance < 0.12 and self.coins < 3:
                ends, readable = self._xor(ends, readable, depth)
            elif depth < 2 and chance < 0.28:
                ends, readable = self._and(ends, readable, depth)
            else:
                ends, readable = self._action(ends, readable, depth=depth)
        return ends, readable

    def _put(self, vertex: Vertex, ends: list[tuple[str, str]]) -> list[tuple[str, str]]:
        self.vertices.append(vertex)
        self.edges += [Edge(source, vertex.name, label) for source, label in ends]
        return [(vertex.name, "")]

    def _action(
        self, ends: list[tuple[str, str]], readable: list[str], writes: str = "", depth: int = 1
    ) -> tuple[list[tuple[str, str]], list[str]]:
        draw = self.draw
        name = f"a{len(self.vertices)}"
        variable = writes or f"x{len(self.vertices)}"
        if not writes:
            self.variables.append(variable)
        reads = tuple(sorted(draw.sample(readable, min(len(readable), draw.randint(0, 2)))))
        time_us = draw.choice((1, 20, 100, 400)) * MILLISECOND_US
        kind = draw.choices(CLASSES, self.weights)[0]
        if kind == "receive":
            self.channels += [name] * self.often
            vertex = Vertex(name, Kind.RECEIVE, channel=name, writes=(variable,), time_us=0)
        elif kind == "keyed":
            self.keyed += [name] * self.often
            vertex = Vertex(name, Kind.RECEIVE, channel=name, writes=(variable,), time_us=0, key="key")
        elif kind in ("child", "each"):
            vertex = self._child(name, variable, kind == "each", depth)
        elif kind == "until":
            return self._put(Vertex(name, Kind.SLEEP, reads=("past",), time_us=0), ends), readable
        elif kind == "sleep":
            return self._put(Vertex(name, Kind.SLEEP, time_us=draw.randint(1, 300) * MILLISECOND_US), ends), readable
        else:
            vertex = Vertex(
                name,
                Kind.CALL,
                service="shop" if kind == "shop" or (kind == "final" and draw.random() < 0.5) else "bank",
                operation={"det": "det", "read": "read"}.get(kind, "write"),
                reads=reads,
                writes=(variable,),
                write=kind in ("write", "shop", "final"),
                deterministic=kind == "det",
                compensable=kind != "final",
                compensation="refund" if kind == "shop" else "",
                cost=draw.choice((0, 1, 5)) if kind in ("write", "shop", "final") else draw.choice((0, 0, 3)),
                time_us=time_us,
                retry=self.retry,
                alone=draw.random() < 0.1,
            )
        return self._put(vertex, ends), [*readable, variable]

    def _child(self, name: str, variable: str, each: bool, depth: int) -> Vertex:
        for child in ("child", "undo"):
            if child not in self.children:
                small = Architect(self.draw, (1.0, 1.0, 3.0, 2.0), services=self.services)
                small.retry = self.retry
                self.children[child] = small.small(child, self.draw.randint(1, 2))
        final = depth == 0 and not each and self.draw.random() < 0.3
        return Vertex(
            name,
            Kind.CHILD,
            operation="child",
            reads=("items",) if each else ("key",),
            writes=() if each else (variable,),
            compensable=not final,
            compensation="" if final else "undo",
            given=(("x", "items" if each else "key"),),
            returns="x",
            undo_given=() if final else ("x",),
            over="items" if each else "",
            at_once=self.draw.choice((1, 2, 5)),
            time_us=0,
        )

    def _xor(
        self, ends: list[tuple[str, str]], readable: list[str], depth: int
    ) -> tuple[list[tuple[str, str]], list[str]]:
        coin = self.coins
        self.coins += 1
        ends, readable = self._action(ends, readable, f"c{coin}")
        split = f"x{coin}-split"
        self._put(Vertex(split, Kind.XOR_SPLIT, condition=f"odd{coin}", reads=(f"c{coin}",)), ends)
        out: list[tuple[str, str]] = []
        for label in ("true", "false"):
            way, _ = self._sequence([(split, label)], readable, self.draw.randint(0, 2), depth + 1)
            out += way
        return self._put(Vertex(f"x{coin}-join", Kind.XOR_JOIN), out), readable

    def _first(
        self, ends: list[tuple[str, str]], readable: list[str], depth: int, child: bool = False
    ) -> tuple[list[tuple[str, str]], list[str]]:
        """One or two messages and a time, each with something behind it; and a child."""
        number = len(self.vertices)
        split = f"first{number}"
        self._put(Vertex(split, Kind.FIRST_SPLIT), ends)
        out: list[tuple[str, str]] = []
        receives = self.draw.randint(1, 2)
        for label in range(receives + 1):
            name = f"a{len(self.vertices)}"
            if label < receives:
                self.channels += [name] * self.often
                self.variables.append(f"x{len(self.vertices)}")
                wait = Vertex(name, Kind.RECEIVE, channel=name, writes=(self.variables[-1],), time_us=0)
                known = [*readable, self.variables[-1]]
            else:
                wait = Vertex(name, Kind.SLEEP, time_us=self.draw.choice((1, 30, 300, 1000)) * MILLISECOND_US)
                known = readable
            way = self._put(wait, [(split, str(label))])
            way, _ = self._sequence(way, known, self.draw.randint(0, 2), depth + 1)
            out += way
        if child:
            name, variable = f"a{len(self.vertices)}", f"x{len(self.vertices)}"
            self.variables.append(variable)
            way = self._put(self._child(name, variable, False, 1), [(split, "child")])
            way, _ = self._sequence(way, [*readable, variable], self.draw.randint(0, 1), depth + 1)
            out += way
        return self._put(Vertex(f"first{number}-join", Kind.XOR_JOIN), out), readable

    def _block(
        self, ends: list[tuple[str, str]], readable: list[str], depth: int
    ) -> tuple[list[tuple[str, str]], list[str]]:
        kind = self.draw.choice(("within", "within", "atomic", "child", "ask"))
        if kind == "atomic":
            return self._atomic(ends, readable)
        if kind == "ask":
            return self._ask(ends, readable)
        if kind == "within" and self.beside == 0:
            return self._within(ends, readable, depth)
        return self._first(ends, readable, depth, child=True)

    def _within(
        self, ends: list[tuple[str, str]], readable: list[str], depth: int
    ) -> tuple[list[tuple[str, str]], list[str]]:
        """A block with a deadline, and what is done if it is late."""
        name = f"within{len(self.vertices)}"
        time_us = self.draw.choice((1, 50, 300, 1000, 10_000)) * MILLISECOND_US
        self._put(Vertex(name, Kind.WITHIN, time_us=time_us), ends)
        body, _ = self._sequence([(name, IN_TIME)], readable, self.draw.randint(1, 3), depth + 1)
        late, _ = self._sequence([(name, LATE)], readable, self.draw.randint(0, 1), depth + 1)
        return self._put(Vertex(f"{name}-join", Kind.XOR_JOIN, loop=name), [*body, *late]), readable

    def _atomic(self, ends: list[tuple[str, str]], readable: list[str]) -> tuple[list[tuple[str, str]], list[str]]:
        """Actions that are decided together."""
        at, weights = len(self.vertices), self.weights
        self.weights = [*weights[:4], *[0.0] * (len(CLASSES) - 4)]
        for _ in range(self.draw.randint(2, 3)):
            ends, readable = self._action(ends, readable)
        self.weights = weights
        block = f"atomic{at}"
        together = [msgspec.structs.replace(vertex, alone=False, atomic=block) for vertex in self.vertices[at:]]
        self.vertices[at:] = together
        return ends, readable

    def _ask(self, ends: list[tuple[str, str]], readable: list[str]) -> tuple[list[tuple[str, str]], list[str]]:
        """A question to a partner, and the answer to it."""
        ask = f"a{len(self.vertices)}"
        ends = self._put(
            Vertex(ask, Kind.SEND, "bank", "write", reads=tuple(readable[:1]), write=True, cost=1, retry=self.retry),
            ends,
        )
        name, variable = f"a{len(self.vertices)}", f"x{len(self.vertices)}"
        self.variables.append(variable)
        self.asks[ask] = name
        wait = Vertex(name, Kind.RECEIVE, channel=name, writes=(variable,), time_us=0, answers=ask)
        return self._put(wait, ends), [*readable, variable]

    def _loop(
        self, ends: list[tuple[str, str]], readable: list[str], depth: int
    ) -> tuple[list[tuple[str, str]], list[str]]:
        """Until a coin is odd, at most a few times; or over the items, in one lane or in several."""
        draw, at, first_edge, before = self.draw, len(self.vertices), len(self.edges), self.often
        over = self.coins >= 3 or draw.random() < 0.5
        width = draw.choice((1, 2, 3)) if over else 1
        at_most = len(ITEMS) if over else draw.randint(2, 5)
        self.often *= at_most
        self.beside += width - 1
        name = f"loop{at}"
        head = Vertex(name, Kind.LOOP, at_most=at_most, at_once=width)
        if over:
            item = f"x{at}"
            self.variables.append(item)
            self.lists.append(f"l{at}")
            head = msgspec.structs.replace(head, reads=("items",), writes=(item, f"l{at}"), over="items")
            body, known = self._sequence(self._put(head, []), [*readable, item], draw.randint(1, 2), depth + 1)
            got = draw.choice([variable for variable in known if variable not in readable])
            end = Vertex(f"{name}-end", Kind.AGAIN, reads=("items", got), writes=head.writes, loop=name)
            end = msgspec.structs.replace(end, collects=((f"l{at}", got),))
        else:
            coin = self.coins
            self.coins += 1
            body, known = self._sequence(self._put(head, []), readable, draw.randint(0, 2), depth + 1)
            body, _ = self._action(body, known, f"c{coin}")
            end = Vertex(f"{name}-end", Kind.AGAIN, reads=(f"c{coin}",), condition=f"odd{coin}", loop=name)
        self._put(end, body)
        self.often = before
        self.beside -= width - 1
        if width == 1:
            self.edges += [Edge(source, name, label) for source, label in ends]
            return [(end.name, "")], readable
        lanes = copied("p", self.vertices[at:], self.edges[first_edge:], width)
        self.vertices[at:], self.edges[first_edge:] = lanes.vertices, lanes.edges
        lists = [variable for variable in lanes.variables if variable.partition(":")[0] in self.lists]
        self.lists += lists
        self.variables += [variable for variable in lanes.variables if variable not in lists]
        self.edges += [Edge(source, lanes.begin, label) for source, label in ends]
        return [(lanes.end, "")], readable

    def _and(
        self, ends: list[tuple[str, str]], readable: list[str], depth: int
    ) -> tuple[list[tuple[str, str]], list[str]]:
        number = len(self.vertices)
        split = f"and{number}"
        self._put(Vertex(split, Kind.AND_SPLIT), ends)
        out: list[tuple[str, str]] = []
        after = list(readable)
        self.beside += 1
        for label in range(self.draw.randint(2, 3)):
            way, seen = self._sequence([(split, str(label))], readable, self.draw.randint(1, 2), depth + 1)
            out += way
            after += [variable for variable in seen if variable not in after]
        self.beside -= 1
        return self._put(Vertex(f"and{number}-join", Kind.AND_JOIN), out), after
