"""What the process scenario puts around process nodes: services with journals, a client, and random processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final

import msgspec

from unerring.audit import Did
from unerring.model import MILLISECOND_US, Effects, Entropy, Persist, Send, SetTimer
from unerring.processes.build import Process
from unerring.processes.graph import Edge, Graph, Kind, Retry, Service, Variable, Vertex
from unerring.processes.messages import CANCEL, Answer, Mail, Post, Reply, Request, Start, Started, Stored

GARBAGE: Final = "garbage"


class Temper(msgspec.Struct, frozen=True):
    """How badly a service behaves."""

    work_us_max: int
    silent: float
    """Does it, and says nothing."""
    late: float
    twice: float
    garbage: float
    refuses: float
    refuses_for_good: float
    undo_fails: float
    muddled: float
    """Does it, and answers that it failed."""


class SimService:
    """A service behind the filter: dedup by IID, replay of the reply, cancel, tombstone, fence; with a journal of what
    it really did. `cancels` False: a service that only filters repeated IIDs."""

    def __init__(
        self,
        name: str,
        cancels: bool,
        temper: Temper,
        records: Mapping[str, bytes],
        entropy: Entropy,
        clock: Callable[[], int],
    ) -> None:
        self.name = name
        self.cancels = cancels
        self.temper = temper
        self.entropy = entropy
        self.clock = clock
        self.replies: dict[str, Reply] = {}
        self.asked: dict[str, Any] = {}
        self.fence: dict[str, int] = {}
        self.journal: list[tuple[int, Did]] = []
        self._read(records)
        self.waiting: dict[str, tuple[str, Request]] = {}
        self._number = 0

    def _read(self, records: Mapping[str, bytes]) -> None:
        for key, data in records.items():
            if key.startswith("reply/"):
                self.replies[key[6:]] = msgspec.msgpack.decode(data, type=Reply)
            elif key.startswith("asked/"):
                self.asked[key[6:]] = msgspec.msgpack.decode(data)
            elif key.startswith("fence/"):
                self.fence[key[6:]] = msgspec.msgpack.decode(data, type=int)
            else:
                self.journal.append(msgspec.msgpack.decode(data, type=tuple[int, Did]))

    def start(self, now: int) -> Effects:
        return []

    def handle(self, sender: str, message: Any, now: int) -> Effects:
        self._number += 1
        name = f"work {self._number}"
        self.waiting[name] = (sender, message)
        slow = 20 if self.entropy.random() < self.temper.late else 1
        return [SetTimer(name, now + 1 + int(self.entropy.random() * self.temper.work_us_max * slow))]

    def timer(self, name: str, now: int) -> Effects:
        sender, request = self.waiting.pop(name)
        self.kept: list[tuple[str, Any]] = []
        reply = self._do(request) if request.mode == "do" else self._undo(request)
        effects: Effects = []
        if self.kept:
            effects.append(Persist(tuple((key, msgspec.msgpack.encode(record)) for key, record in self.kept)))
        if self.entropy.random() < self.temper.muddled:
            reply = msgspec.structs.replace(reply, answer=Answer.UNKNOWN, value="something went wrong")
        if self.entropy.random() >= self.temper.silent:
            effects.append(Send(sender, reply))
            if self.entropy.random() < self.temper.twice:
                effects.append(Send(sender, reply))
        return effects

    def _answer(self, request: Request, answer: str, value: Any = None) -> Reply:
        return Reply(request.instance, request.iid, request.mode, answer, value)

    def writes(self, request: Request) -> bool:
        """Whether the operation has an effect, so that the filter must see to it that it has one only."""
        return request.operation == "write"

    def _do(self, request: Request) -> Reply:
        if not self.writes(request):
            return self._answer(request, Answer.DONE, self._value(request))
        known = self.replies.get(request.iid)
        if known is not None:
            if request.iid in self.asked and self.asked[request.iid] != request.payload:
                return self._answer(request, Answer.UNKNOWN, "this IID came with another request")
            return known
        if self.cancels and 0 <= request.view < self.fence.get(request.instance, 0):
            return self._answer(request, Answer.FENCED)
        return self._execute(request)

    def _execute(self, request: Request) -> Reply:
        chance = self.entropy.random()
        refused = Answer.FINAL if chance < self.temper.refuses_for_good else Answer.REFUSED
        if chance < self.temper.refuses_for_good + self.temper.refuses:
            reply = self._answer(request, refused, "no")
        else:
            reply = self._answer(request, Answer.DONE, self._value(request))
            self._write_down("do", request, reply.value)
        self._record(request.iid, reply)
        self.asked[request.iid] = request.payload
        self.kept.append((f"asked/{request.iid}", request.payload))
        self._raise_fence(request)
        return reply

    def _raise_fence(self, request: Request) -> None:
        if self.cancels and request.view > self.fence.get(request.instance, 0):
            self.fence[request.instance] = request.view
            self.kept.append((f"fence/{request.instance}", request.view))

    def _value(self, request: Request) -> Any:
        if self.entropy.random() < self.temper.garbage:
            return GARBAGE
        if request.operation == "det":
            return sum(value for value in request.payload.values()) % 1000 + 1
        return int(self.entropy.random() * 1000)

    def _undo(self, request: Request) -> Reply:
        if self.entropy.random() < self.temper.undo_fails:
            return self._answer(request, Answer.UNKNOWN, "not now")
        original = request.iid.removesuffix("~")
        self._raise_fence(request)
        done = self.replies.get(original)
        undone = self.replies.get(original + "~")
        if undone is None:
            self._record(original + "~", self._answer(request, Answer.DONE))
            if (done is not None and done.answer == Answer.DONE) or request.mode == "undo":
                self._write_down("undo", request, None)
            self._record(original, Reply(request.instance, original, "do", Answer.FENCED))
        return self._answer(request, Answer.DONE)

    def _record(self, iid: str, reply: Reply) -> None:
        self.replies[iid] = reply
        self.kept.append((f"reply/{iid}", reply))

    def _write_down(self, what: str, request: Request, value: Any) -> None:
        original = request.iid.removesuffix("~")
        action = original.split("/")[1]
        view = int(original.partition("@")[2].lstrip("b") or -1)
        line = Did(what, original, action, request.group, view, request.basis, request.payload, value)
        self.journal.append((self.clock(), line))
        self.kept.append((f"journal/{len(self.journal):06}", self.journal[-1]))


class Client:
    """Starts instances, posts partners' messages and wishes to cancel; repeats until it knows that they arrived."""

    def __init__(self, nodes: tuple[str, ...], f: int, entropy: Entropy) -> None:
        self.nodes = nodes
        self.f = f
        self.entropy = entropy
        self.starts: dict[str, Start] = {}
        self.started: dict[str, None] = {}
        self.posts: dict[str, tuple[Post, dict[str, None]]] = {}

    def start(self, now: int) -> Effects:
        return [SetTimer("again", now + 50 * MILLISECOND_US)]

    def timer(self, name: str, now: int) -> Effects:
        effects: Effects = [SetTimer("again", now + 50 * MILLISECOND_US)]
        for start in self.starts.values():
            effects.append(Send(self.nodes[int(self.entropy.random() * len(self.nodes))], start))
        for post, stored in self.posts.values():
            # A partner broadcasts; here half of that is lost on the way, each time.
            effects += [Send(node, post) for node in self.nodes if node not in stored and self.entropy.random() < 0.5]
        return effects

    def handle(self, sender: str, message: Any, now: int) -> Effects:
        if isinstance(message, Started):
            self.starts.pop(message.instance, None)
            self.started[message.instance] = None
        elif isinstance(message, Stored) and message.id in self.posts:
            stored = self.posts[message.id][1]
            stored[sender] = None
            if len(stored) > self.f:
                del self.posts[message.id]
        return []

    def want(self, start: Start, now: int) -> Effects:
        """Start an instance, at any node."""
        self.starts[start.instance] = start
        return []

    def post(self, instance: str, mail: Mail, now: int) -> Effects:
        """A message to all replicas."""
        self.posts[mail.id] = (Post(instance, mail), {})
        return []

    def cancel(self, instance: str, now: int) -> Effects:
        return self.post(instance, Mail(f"{instance}-cancel", CANCEL, None), now)


# ---- random processes ------------------------------------------------------------------------------------------------


def odd0(c0: int) -> bool:
    return c0 % 2 == 1


def odd1(c1: int) -> bool:
    return c1 % 2 == 1


def odd2(c2: int) -> bool:
    return c2 % 2 == 1


CONDITIONS: Final = {"odd0": odd0, "odd1": odd1, "odd2": odd2}


CLASSES: Final = ("det", "read", "write", "shop", "final", "receive", "sleep")
"""Of actions: deterministic and not; compensable by cancelling and by a request of its own; non-compensable; waits."""
USUAL: Final = (3.0, 3.0, 6.0, 3.0, 2.0, 1.0, 0.5)


class Architect:
    """Draws a process: sequences, XOR and AND blocks, actions of all classes."""

    def __init__(self, draw: Random, weights: Sequence[float] = USUAL) -> None:
        self.draw = draw
        self.vertices: list[Vertex] = []
        self.edges: list[Edge] = []
        self.variables: list[str] = []
        self.channels: list[str] = []
        self.coins = 0
        self.weights = [weight if draw.random() < 0.8 else 0.0 for weight in weights]
        self.weights[CLASSES.index("write")] += 1
        self.retry = Retry(
            attempt_us=draw.choice((60, 150)) * MILLISECOND_US,
            attempts_max=draw.choice((2, 5)),
            backoff_us=10 * MILLISECOND_US,
            backoff_max_us=200 * MILLISECOND_US,
            occurrences_max=draw.choice((1, 2, 3)),
        )

    def build(self, name: str) -> Process:
        ends, _ = self._sequence([("", "")], [], self.draw.randint(2, 5), 0)
        self.edges += [Edge(source, "", label) for source, label in ends]
        names = [*self.variables, *(f"c{n}" for n in range(3))]
        graph = Graph(
            name,
            tuple(self.vertices),
            tuple(self.edges),
            tuple(Variable(variable, "int", 0) for variable in names),
            (Service("bank"), Service("shop", cancels=False)),
        )
        return Process.of(graph, CONDITIONS, dict.fromkeys(names, int))

    def _sequence(
        self, ends: list[tuple[str, str]], readable: list[str], length: int, depth: int
    ) -> tuple[list[tuple[str, str]], list[str]]:
        for _ in range(length):
            chance = self.draw.random()
            if depth < 2 and chance < 0.12 and self.coins < 3:
                ends, readable = self._xor(ends, readable, depth)
            elif depth < 2 and chance < 0.28:
                ends, readable = self._and(ends, readable, depth)
            else:
                ends, readable = self._action(ends, readable)
        return ends, readable

    def _put(self, vertex: Vertex, ends: list[tuple[str, str]]) -> list[tuple[str, str]]:
        self.vertices.append(vertex)
        self.edges += [Edge(source, vertex.name, label) for source, label in ends]
        return [(vertex.name, "")]

    def _action(
        self, ends: list[tuple[str, str]], readable: list[str], writes: str = ""
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
            self.channels.append(name)
            vertex = Vertex(name, Kind.RECEIVE, channel=name, writes=(variable,), time_us=0)
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

    def _and(
        self, ends: list[tuple[str, str]], readable: list[str], depth: int
    ) -> tuple[list[tuple[str, str]], list[str]]:
        number = len(self.vertices)
        split = f"and{number}"
        self._put(Vertex(split, Kind.AND_SPLIT), ends)
        out: list[tuple[str, str]] = []
        after = list(readable)
        for label in range(self.draw.randint(2, 3)):
            way, seen = self._sequence([(split, str(label))], readable, self.draw.randint(1, 2), depth + 1)
            out += way
            after += [variable for variable in seen if variable not in after]
        return self._put(Vertex(f"and{number}-join", Kind.AND_JOIN), out), after
