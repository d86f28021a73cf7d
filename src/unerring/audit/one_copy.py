"""Promise 3, processes: a replicated execution has the effects of exactly one execution (one-copy consistency).

Definition 2 of the process paper by way of Definition 3: the decided execution is a walk through the process model, its
effective writes are exactly those in the services' journals, and everything else that was done has been undone, in
reverse causal order. The model is replayed here by itself, from the graph's vertices and edges and the recorded
replies: if each request is what the model asks after those replies, the causal reply histories agree (Theorem 2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from unerring.audit.verdict import Violation
from unerring.model import CallerError

ONCE = "an interaction has its effect at most once"
UNDO_ONCE = "an interaction is undone at most once, after it was done"
CONFORMS = "the decided execution follows the process model (Definition 3.1)"
COMPLETE = "the decided execution is a whole execution of the model (Definition 3.2)"
KEPT = "no write of the decided execution is undone or missing (Definition 3.3)"
UNDONE = "every write outside the decided execution is undone (Definition 3.4)"
REVERSE = "an action is undone only after everything that built on it (Definition 3.4)"
ORDER = "effective writes happen in the model's order (Definition 2.1)"
ATOMIC = "an atomic block is decided as a whole"
ONE = "all replicas know the same decided execution"

_WITNESSES_MAX = 10


class VertexLike(Protocol):
    """What the checker reads of a vertex."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def reads(self) -> tuple[str, ...]: ...
    @property
    def writes(self) -> tuple[str, ...]: ...
    @property
    def write(self) -> bool: ...
    @property
    def compensable(self) -> bool: ...
    @property
    def loop(self) -> str: ...
    @property
    def over(self) -> str: ...
    @property
    def at_most(self) -> int: ...
    @property
    def at_once(self) -> int: ...
    @property
    def lane(self) -> int: ...
    @property
    def collects(self) -> tuple[tuple[str, str], ...]: ...
    @property
    def answers(self) -> str: ...
    @property
    def atomic(self) -> str: ...


class EdgeLike(Protocol):
    @property
    def source(self) -> str: ...
    @property
    def target(self) -> str: ...
    @property
    def label(self) -> str: ...


class Model(msgspec.Struct, frozen=True):
    """The process model, with the code of its conditions and types."""

    vertices: Sequence[Any]
    """A sequence of `VertexLike`."""
    edges: Sequence[Any]
    """A sequence of `EdgeLike`."""
    initial: Mapping[str, Any]
    choose: Callable[[Any, Mapping[str, Any]], str]
    fit: Callable[[str, Any], Any]


class Did(msgspec.Struct, frozen=True):
    """One line of a service's journal. The lines of one journal are in the order in which things happened."""

    what: str
    """do or undo"""
    iid: str
    action: str
    group: int
    view: int
    """−1 for interactions whose id has no view."""
    basis: tuple[int, ...]
    """The executing views of the groups that it builds on; −n and a view are n groups of that view."""
    request: Any = None
    reply: Any = None
    journal: str = ""
    """The journal's name. Lines of different journals have no order, so nothing is checked between them."""


class Acted(msgspec.Struct, frozen=True):
    """One action of the decided execution."""

    action: str
    iid: str
    request: Any
    reply: Any
    write: bool


def check_one_copy(
    instance: str, model: Model, status: str, acted: Sequence[Acted], journal: Sequence[Did], *, finished: bool = True
) -> list[Violation]:
    """All violations of one instance. `status` is completed, running, cancelled, failed or parked; `finished` says that
    everything has come to rest, so that what is outside the decided execution must be undone by now."""
    violations: list[Violation] = []
    violations += _once(instance, journal)
    violations += _reverse(instance, model, journal)
    if status in ("running", "completed", "parked"):
        violations += _kept(instance, model, status, acted, journal)
        violations += _replay(instance, model, status, acted)
    if finished:
        violations += _undone(instance, model, status, acted, journal)
        if status == "completed":
            violations += _order(instance, model, acted, journal)
    return violations[:_WITNESSES_MAX]


def _broken(promise: str, line: str) -> Violation:
    return Violation(promise, (line,))


def _once(instance: str, journal: Sequence[Did]) -> Iterable[Violation]:
    done: dict[str, Did] = {}
    undone: dict[str, Did] = {}
    for line in journal:
        if line.what == "do":
            if line.iid in done:
                yield _broken(ONCE, f"{instance}: {line.iid} was done twice: {done[line.iid]} and {line}")
            done[line.iid] = line
        else:
            if line.iid in undone:
                yield _broken(UNDO_ONCE, f"{instance}: {line.iid} was undone twice")
            if line.iid not in done:
                yield _broken(UNDO_ONCE, f"{instance}: {line.iid} was undone, but had not been done")
            undone[line.iid] = line


def _effective(journal: Sequence[Did]) -> dict[str, Did]:
    gone = {line.iid for line in journal if line.what == "undo"}
    return {line.iid: line for line in journal if line.what == "do" and line.iid not in gone}


def _standing(model: Model, status: str, acted: Sequence[Acted]) -> list[Acted]:
    """The writes that must have their effect at the end: all; none once undone; up to the last non-compensable one when
    parked."""
    if status not in ("completed", "running"):
        acted = acted[: _pivot(model, acted) + 1]
    return [action for action in acted if action.write]


def _pivot(model: Model, acted: Sequence[Acted]) -> int:
    """Where the last action is that cannot be undone, a write or a child; −1: everything can."""
    final = {v.name for v in model.vertices if (v.write or v.kind == "child") and not v.compensable}
    return max((at for at, action in enumerate(acted) if action.action in final), default=-1)


def _kept(
    instance: str, model: Model, status: str, acted: Sequence[Acted], journal: Sequence[Did]
) -> Iterable[Violation]:
    effective = _effective(journal)
    for action in _standing(model, status, acted):
        line = effective.get(action.iid)
        if line is None:
            yield _broken(KEPT, f"{instance}: {action.iid} is in the decided execution, but has no effect")
        elif line.request != action.request:
            yield _broken(
                KEPT, f"{instance}: {action.iid} was done with {line.request!r}, decided with {action.request!r}"
            )
        elif line.reply != action.reply:
            yield _broken(
                KEPT, f"{instance}: {action.iid} answered {line.reply!r}, but the execution used {action.reply!r}"
            )


def _undone(
    instance: str, model: Model, status: str, acted: Sequence[Acted], journal: Sequence[Did]
) -> Iterable[Violation]:
    standing = {action.iid for action in _standing(model, status, acted)}
    for iid, line in _effective(journal).items():
        if iid not in standing:
            yield _broken(UNDONE, f"{instance}: {iid} has an effect outside the decided execution: {line}")


class _Ways:
    """Which vertex comes before which."""

    def __init__(self, model: Model) -> None:
        self.sources: dict[str, list[str]] = {}
        for edge in model.edges:
            self.sources.setdefault(edge.target, []).append(edge.source)
        self.ends = {vertex.loop: vertex.name for vertex in model.vertices if vertex.kind == "again"}
        self._before: dict[str, frozenset[str]] = {}

    def before(self, name: str) -> frozenset[str]:
        if name not in self._before:
            direct = [source for source in self.sources.get(name, []) if source]
            self._before[name] = frozenset(direct).union(*(self.before(source) for source in direct))
        return self._before[name]

    def around(self, name: str) -> list[str]:
        """The loops that a vertex is in, the outermost first; the end of a loop is in it."""
        loops = [
            head
            for head, end in self.ends.items()
            if head in self.before(name) and (name == end or name in self.before(end))
        ]
        return sorted(loops, key=lambda head: len(self.before(head)))

    def precedes(self, first: Acted, second: Acted) -> bool:
        """Whether the model has `first` before `second`: in an earlier round, or in the same one on a way to it."""
        if not self.ends:
            return first.action in self.before(second.action)
        common = [loop for loop in self.around(first.action) if loop in self.around(second.action)]
        one, other = _rounds(first.iid)[: len(common)], _rounds(second.iid)[: len(common)]
        return one < other or (one == other and first.action in self.before(second.action))


def _rounds(iid: str) -> tuple[int, ...]:
    """The rounds of the loops around an action, as its interaction id has them."""
    return tuple(int(number) for number in _action_in_round(iid).split("'")[1:])


def _action_in_round(iid: str) -> str:
    return iid.partition("/")[2].partition("/")[0]


def _reverse(instance: str, model: Model, journal: Sequence[Did]) -> Iterable[Violation]:
    ways = _Ways(model)
    undone_at = {line.iid: at for at, line in enumerate(journal) if line.what == "undo"}
    places = {line.iid: line.journal for line in journal}
    done = [line for line in journal if line.what == "do"]
    for first in done:
        if first.iid not in undone_at:
            continue
        for second in done:
            if second.iid in undone_at and places[first.iid] != places[second.iid]:
                continue
            if _builds_on(ways, first, second) and undone_at.get(second.iid, len(journal)) > undone_at[first.iid]:
                yield _broken(REVERSE, f"{instance}: {first.iid} was undone before {second.iid}, which built on it")


def _builds_on(ways: _Ways, first: Did, second: Did) -> bool:
    if first.view < 0 or first.iid == second.iid:
        return False
    if second.group == first.group and second.view == first.view:
        return first.action in ways.before(second.action)
    return second.group > first.group and _view_at(second.basis, first.group) == first.view


def _view_at(basis: tuple[int, ...], group: int) -> int:
    """The view of a group of a lineage, which may be written in short."""
    at = 0
    while basis[at] < -1 and group > -basis[at]:
        group += basis[at]
        at += 2
    while basis[at] >= -1 and group > 1:
        group, at = group - 1, at + 1
        if basis[at] < -1:
            return _view_at(basis[at:], group)
    return basis[at + 1] if basis[at] < -1 else basis[at]


def _order(instance: str, model: Model, acted: Sequence[Acted], journal: Sequence[Did]) -> Iterable[Violation]:
    ways = _Ways(model)
    at = {line.iid: number for number, line in enumerate(journal) if line.what == "do"}
    places = {line.iid: line.journal for line in journal}
    writes = [action for action in acted if action.write and action.iid in at]
    for first in writes:
        for second in writes:
            if places[first.iid] != places[second.iid]:
                continue
            if ways.precedes(first, second) and at[first.iid] > at[second.iid]:
                yield _broken(ORDER, f"{instance}: {second.iid} happened before {first.iid}, which it follows")


class _Walk:
    """The model, executed without replicas, with the recorded replies."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.vertices = {vertex.name: vertex for vertex in model.vertices}
        self.marks = [edge for edge in model.edges if not edge.source]
        self.state = dict(model.initial)
        self.done: dict[str, None] = {}
        """Interaction ids so far."""
        self.asked: dict[str, str] = {}
        """The last interaction of each action."""
        self.ways = _Ways(model)
        self.rounds: dict[str, int] = {}
        """The rounds of loops under way."""

    def _control(self) -> bool:
        """Fire one control vertex, if one is enabled."""
        for edge in self.marks:
            vertex = self.vertices.get(edge.target)
            if vertex is None or vertex.kind in ("call", "send", "receive", "sleep", "child"):
                continue
            if vertex.kind in ("loop", "again", "gather"):
                if not vertex.writes and self._turn(vertex):
                    return True
                continue
            into = [other for other in self.model.edges if other.target == vertex.name]
            if vertex.kind == "and-join" and not all(other in self.marks for other in into):
                continue
            out = [other for other in self.model.edges if other.source == vertex.name]
            if vertex.kind in ("xor-split", "within"):
                label = self.model.choose(vertex, self.state) if vertex.kind == "xor-split" else "in time"
                out = [other for other in out if other.label == label]
            self.marks = [mark for mark in self.marks if mark.target != vertex.name] + out
            return True
        return False

    def _turn(self, vertex: Any) -> bool:
        """Begin a loop that goes on until a condition holds, or end a round of it; False: it had all of its rounds."""
        if vertex.kind == "loop":
            self._move(vertex, vertex.name)
            self.rounds[vertex.name] = 0
            return True
        holds = self.model.choose(vertex, self.state) == "true"
        if not holds and self.rounds[vertex.loop] + 1 >= self.vertices[vertex.loop].at_most:
            return False
        self._end_round(vertex, again=not holds)
        return True

    def _end_round(self, vertex: Any, again: bool) -> None:
        self._move(vertex, vertex.loop if again else vertex.name)
        if again:
            self.rounds[vertex.loop] += 1
        else:
            del self.rounds[vertex.loop]

    def _move(self, vertex: Any, behind: str) -> None:
        out = [other for other in self.model.edges if other.source == behind]
        self.marks = [mark for mark in self.marks if mark.target != vertex.name] + out

    def _over_list(self, vertex: Any, action: Acted) -> str:
        """A step of a loop over a list, or of what puts its lanes together; what is wrong with it, or nothing."""
        if vertex.kind == "gather":
            lanes: dict[str, list[Any]] = {}
            for name, lane in vertex.collects:
                lanes.setdefault(name, []).append(self.state[lane])
                self.state[lane] = []
            for name, lists in lanes.items():
                longest = max(map(len, lists))
                self.state[name] = [values[at] for at in range(longest) for values in lists if at < len(values)]
            self._move(vertex, vertex.name)
            return ""
        head = vertex if vertex.kind == "loop" else self.vertices[vertex.loop]
        items, width = self.state[head.over] or [], head.at_once
        number = 0 if vertex.kind == "loop" else self.rounds[head.name] + 1
        item = items[number * width + head.lane :][:1]
        got = [self.state[name] for _, name in vertex.collects]
        recorded = item if vertex.kind == "loop" else {"next": item, "got": got}
        if action.reply != recorded:
            return f"{action.iid} recorded {action.reply!r}; in that round the model has {recorded!r}"
        for name in vertex.writes[1:] if vertex.kind == "loop" else ():
            self.state[name] = []
        for (name, _), value in zip(vertex.collects, got, strict=True):
            self.state[name] = [*self.state[name], value]
        if item:
            self.state[vertex.writes[0]] = item[0]
        if vertex.kind == "again":
            self._end_round(vertex, again=bool(item))
        else:
            self._move(vertex, vertex.name if item else self.ways.ends[vertex.name])
            self.rounds.update({vertex.name: 0} if item else {})
        return ""

    def _late(self, vertex: Any) -> str:
        """A block that was not over in time: nothing of it counts, and its other branch is taken."""
        join = next(v.name for v in self.model.vertices if v.kind == "xor-join" and v.loop == vertex.name)
        before = self.ways.before

        def inside(name: str) -> bool:
            return name == vertex.name or (vertex.name in before(name) and name in before(join))

        left = [mark for mark in self.marks if not (mark.source and inside(mark.source))]
        if len(left) == len(self.marks):
            return f"{vertex.name} was late, but the model was at {[mark.target for mark in self.marks]}"
        self.marks = left + [e for e in self.model.edges if e.source == vertex.name and e.label == "late"]
        self.rounds = {head: number for head, number in self.rounds.items() if not inside(head)}
        return ""

    def _named(self, name: str) -> str:
        return name + "".join(f"'{self.rounds.get(loop, 0)}" for loop in self.ways.around(name))

    def _pass_sleep(self, target: str) -> bool:
        """Sleeps leave no trace, but for those that won a race: they have ended when something behind them was done."""
        for edge in self.marks:
            vertex = self.vertices.get(edge.target)
            if vertex is not None and vertex.kind == "sleep" and not self._races(edge):
                out = [other for other in self.model.edges if other.source == vertex.name]
                self.marks = [mark for mark in self.marks if mark is not edge] + out
                return True
        return False

    def _races(self, edge: Any) -> bool:
        return bool(edge.source) and self.vertices[edge.source].kind == "first-split"

    def act(self, action: Acted) -> str:
        """Take the action; what is wrong with it, or nothing."""
        while True:
            while self._control():
                pass
            if self.vertices[action.action].kind == "within":
                wrong = self._late(self.vertices[action.action])
                if not wrong or not self._pass_sleep(action.action):
                    return wrong
                continue
            if any(mark.target == action.action for mark in self.marks):
                break
            if not self._pass_sleep(action.action):
                return f"{action.action} was executed, but the model was at {[mark.target for mark in self.marks]}"
        vertex = self.vertices[action.action]
        if self.ways.around(vertex.name) and vertex.kind in ("call", "send", "again"):
            named = self._named(vertex.name)
            if _action_in_round(action.iid) != named:
                return f"{action.iid} was executed where the model has {named}"
        if vertex.kind in ("loop", "again", "gather"):
            return self._over_list(vertex, action)
        plain = vertex.kind == "child"  # a child is given variables by their names in its lane
        asked = {name if plain else _plain(name): self.state[name] for name in vertex.reads}
        if vertex.kind != "receive" and asked != action.request:
            return f"{action.iid} asked {action.request!r}; after those replies the model asks {asked!r}"
        if vertex.kind == "receive" and action.request and action.request not in self.done:
            return f"{action.action} received {action.iid}, an answer to {action.request}, which does not count"
        asking = self.asked.get(vertex.answers) if vertex.kind == "receive" and vertex.answers else action.request
        if asking != action.request:
            return f"{action.action} received {action.iid}, an answer to {action.request}; its conversation is {asking}"
        self.done[action.iid] = None
        self.asked[action.action] = action.iid
        names = vertex.writes
        replies = {names[0]: action.reply} if len(names) == 1 else {n: action.reply.get(_plain(n)) for n in names}
        try:
            self.state.update({name: self.model.fit(name, value) for name, value in replies.items()})
        except CallerError as error:
            return f"{action.iid} went on with a reply that does not fit: {error}"
        out = [other for other in self.model.edges if other.source == vertex.name]
        came = [mark for mark in self.marks if mark.target == vertex.name]
        lost = [mark.source for mark in came if self._races(mark)]  # the waits that it raced with are over
        self.marks = [mark for mark in self.marks if mark not in came and mark.source not in lost] + out
        return ""

    def ended(self) -> bool:
        while self._control() or self._pass_sleep(""):
            pass
        return bool(self.marks) and all(not mark.target for mark in self.marks)


def _plain(name: str) -> str:
    """A variable's name without that of its lane."""
    return name.partition(":")[0]


def _replay(instance: str, model: Model, status: str, acted: Sequence[Acted]) -> Iterable[Violation]:
    walk = _Walk(model)
    if status == "parked":  # what came after the last non-compensable action was undone again
        acted = acted[: _pivot(model, acted) + 1]
    for at, action in enumerate(acted, 1):
        wrong = walk.act(action)
        if wrong and not (status == "parked" and at == len(acted) and "does not fit" in wrong):
            yield _broken(CONFORMS, f"{instance}: {wrong}")
            return
    if status == "completed" and not walk.ended():
        yield _broken(COMPLETE, f"{instance}: the model was at {[mark.target for mark in walk.marks]} at the end")


def check_atomic(instance: str, model: Model, taken: Iterable[tuple[str, str, int]]) -> list[Violation]:
    """Check that atomic blocks are decided as a whole. `taken`: action, interaction id and group of what is decided."""
    blocks = {vertex.name: vertex.atomic for vertex in model.vertices if vertex.atomic}
    groups: dict[tuple[str, tuple[int, ...]], int] = {}
    violations = []
    for action, iid, group in taken:
        if action in blocks and groups.setdefault((blocks[action], _rounds(iid)), group) != group:
            violations.append(_broken(ATOMIC, f"{instance}: {iid} was decided in group {group}, others before it"))
    return violations


def check_agreement(
    instance: str, lineages: Mapping[str, tuple[int, ...]], contents: Mapping[str, object] | None = None
) -> list[Violation]:
    """Decided lineages of different replicas extend one another, and equal ones have equal contents."""
    violations = []
    names = list(lineages)
    for at, one in enumerate(names):
        for other in names[at + 1 :]:
            a, b = lineages[one], lineages[other]
            shorter = min(len(a), len(b))
            if a[:shorter] != b[:shorter]:
                violations.append(_broken(ONE, f"{instance}: {one} knows {a}, {other} knows {b}"))
            elif contents is not None and len(a) == len(b) and contents[one] != contents[other]:
                violations.append(_broken(ONE, f"{instance}: {one} has {contents[one]}, {other} has {contents[other]}"))
    return violations[:_WITNESSES_MAX]
