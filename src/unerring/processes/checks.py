"""Checks of a graph before it may run; each failure is a sentence that says what to change."""

from __future__ import annotations

import dis
import inspect
import types
from collections.abc import Callable, Mapping
from typing import Any, Final

from unerring.model import ProcessError
from unerring.processes.graph import ACTIONS, BAD_IN_NAMES, IN_TIME, LATE, SPLITS, Graph, Kind, Vertex, base_name

NOT_DETERMINISTIC: Final = frozenset(
    [
        "time",
        "random",
        "uuid",
        "secrets",
        "os",
        "socket",
        "datetime",
        "threading",
        "asyncio",
        "open",
        "input",
        "id",
        "hash",
        "object",
        "globals",
    ]
)
"""Names that a condition may not use: what they give differs between replicas or between two calls."""


ROUNDS_MAX: Final = 1_000_000
"""The rounds that a loop may be given."""


def check(graph: Graph) -> Graph:
    """The graph itself, if it may run."""
    _names(graph)
    _edges(graph)
    graph.order  # noqa: B018  (raises when there is a cycle)
    _reachable(graph)
    for vertex in graph.vertices:
        if vertex.kind in ACTIONS:
            _action(graph, vertex)
        else:
            _variables(graph, vertex)
            if vertex.atomic and vertex.kind in (Kind.LOOP, Kind.WITHIN, Kind.FIRST_SPLIT):
                raise _wrong(graph, f"{vertex.name} is part of an atomic block, but its state is decided in between")
        if vertex.kind in (Kind.LOOP, Kind.AGAIN):
            _loop(graph, vertex)
        if vertex.kind is Kind.WITHIN:
            _block(graph, vertex)
    _concurrency(graph)
    return graph


def _wrong(graph: Graph, sentence: str) -> ProcessError:
    return ProcessError(f"process {graph.name}: {sentence}")


def _names(graph: Graph) -> None:
    if not graph.name.isprintable() or any(c in graph.name for c in BAD_IN_NAMES):
        raise _wrong(graph, f"invalid process name {graph.name!r}: leave out {BAD_IN_NAMES} and what cannot be printed")
    seen: dict[str, Vertex] = {}
    for vertex in graph.vertices:
        if not vertex.name or not vertex.name.isprintable() or any(c in vertex.name for c in f"{BAD_IN_NAMES} "):
            raise _wrong(graph, f"invalid action name {vertex.name!r}: leave out {BAD_IN_NAMES} and spaces")
        if vertex.name in seen:
            raise _wrong(graph, f"two vertices are called {vertex.name!r}; give one of them another name")
        seen[vertex.name] = vertex
    if not graph.vertices:
        raise _wrong(graph, "it has no vertex; give flow() at least one action")


def _edges(graph: Graph) -> None:
    for edge in graph.edges:
        for end in (edge.source, edge.target):
            if end and end not in graph.by_name:
                raise _wrong(graph, f"an edge names {end!r}, which is not a vertex of the process")
    if len(graph.outgoing[""]) != 1 or len(graph.incoming[""]) != 1:
        raise _wrong(graph, "there must be exactly one edge from the start and one to the end")
    for vertex in graph.vertices:
        comes, goes = len(graph.incoming[vertex.name]), len(graph.outgoing[vertex.name])
        if vertex.kind not in (Kind.XOR_JOIN, Kind.AND_JOIN) and comes > 1:
            raise _wrong(graph, f"{comes} edges lead to {vertex.name}; put a join in front of it")
        if vertex.kind not in SPLITS and goes > 1:
            raise _wrong(graph, f"{goes} edges leave {vertex.name}; put a split behind it")
        if goes == 0:
            raise _wrong(graph, f"nothing follows {vertex.name}; let it lead to another vertex or to the end")
        if vertex.kind is Kind.XOR_SPLIT:
            labels = [graph.edges[number].label for number in graph.outgoing[vertex.name]]
            if len(dict.fromkeys(labels)) < len(labels) or not all(labels):
                raise _wrong(graph, f"the branches of XOR-split {vertex.name} need labels that differ")
            if not vertex.condition:
                raise _wrong(graph, f"XOR-split {vertex.name} has no condition")
        if vertex.kind is Kind.FIRST_SPLIT:
            _race(graph, vertex)


def _race(graph: Graph, split: Vertex) -> None:
    """A race is between messages, times and at most one child, which is undone if it loses."""
    waits = [graph.by_name.get(graph.edges[number].target) for number in graph.outgoing[split.name]]
    if len(waits) < 2:
        raise _wrong(graph, f"{split.name} has one branch; first() needs at least two waits, one of which ends first")
    for wait in waits:
        if wait is None or not wait.waits:
            what = "nothing" if wait is None else wait.name
            raise _wrong(
                graph, f"a branch of {split.name} begins with {what}; let it begin with a receive, a sleep or a child"
            )
        if wait.final:
            raise _wrong(graph, f"child {wait.name} races, so it must be possible to undo it: give it undo= a process")
    if len([wait for wait in waits if wait is not None and wait.kind is Kind.CHILD]) > 1:
        raise _wrong(graph, f"two branches of {split.name} begin with a child; let one of them be enough")
    channels = [(wait.channel, wait.key) for wait in waits if wait is not None and wait.kind is Kind.RECEIVE]
    if len(dict.fromkeys(channels)) < len(channels):
        raise _wrong(graph, f"two branches of {split.name} receive the same; one message could end either")


def _reachable(graph: Graph) -> None:
    reached = dict.fromkeys([graph.edges[graph.outgoing[""][0]].target])
    todo = list(reached)
    while todo:
        for number in graph.outgoing[todo.pop()]:
            target = graph.edges[number].target
            if target and target not in reached:
                reached[target] = None
                todo.append(target)
    for vertex in graph.vertices:
        if vertex.name not in reached:
            raise _wrong(graph, f"{vertex.name} is never reached from the start; connect it or take it out")


def _variables(graph: Graph, vertex: Vertex) -> list[str]:
    known = [variable.name for variable in graph.state]
    for use, names in (("reads", vertex.reads), ("writes", vertex.writes)):
        for name in names:
            if name not in known:
                has = ", ".join(known) or "nothing"
                what = "action" if vertex.acts else "loop" if vertex.kind in (Kind.LOOP, Kind.AGAIN) else "vertex"
                raise _wrong(graph, f"{what} {vertex.name} {use} {name!r}, which the state lacks; it has {has}")
    return known


def _loop(graph: Graph, vertex: Vertex) -> None:
    """A loop is a block: it is entered at its beginning and left at its end only."""
    head = graph.by_name.get(vertex.loop) if vertex.kind is Kind.AGAIN else vertex
    ends = [v.name for v in graph.vertices if head is not None and v.loop == head.name and v.kind is Kind.AGAIN]
    if head is None or head.kind is not Kind.LOOP or len(ends) != 1 or head.name not in graph.before[ends[0]]:
        raise _wrong(graph, f"{vertex.name} is no loop: it needs one beginning, and one end behind it")
    if not 1 <= head.at_most <= ROUNDS_MAX:
        raise _wrong(graph, f"loop {head.name}: at_most is {head.at_most}; it must be 1 to {ROUNDS_MAX}")
    end = graph.by_name[ends[0]]
    if not end.condition and not head.over:
        raise _wrong(graph, f"loop {head.name} has no condition that ends it; give it until=")
    inside = graph.inside(head.name)
    for name in inside:
        sources = [graph.edges[n].source for n in graph.incoming[name]] if name != head.name else []
        targets = [graph.edges[n].target for n in graph.outgoing[name]] if name != end.name else []
        outside = [other for other in (*sources, *targets) if other not in inside]
        if outside:
            raise _wrong(graph, f"{outside[0] or 'the end'} is no part of loop {head.name}, but connected with {name}")
        within = graph.by_name[name]
        if head.over in within.writes and head.over:
            raise _wrong(graph, f"{name} writes {base_name(head.over)!r}, over which its loop goes; write another one")


def _block(graph: Graph, vertex: Vertex) -> None:
    """A block with a deadline. Going back before it undoes everything since, so nothing may run beside it."""
    labels = sorted(graph.edges[number].label for number in graph.outgoing[vertex.name])
    if labels != sorted((IN_TIME, LATE)) or vertex.name not in graph.blocks:
        raise _wrong(graph, f"block {vertex.name} needs two branches, {IN_TIME!r} and {LATE!r}, and an end")
    if vertex.time_us <= 0:
        raise _wrong(graph, f"block {vertex.name} has no time; give within() a duration")
    inside = {graph.edges[number].target for number in graph.blocks[vertex.name]}
    beside = [v.name for v in graph.vertices if v.acts and any(concurrent(graph, v.name, name) for name in inside)]
    outside = [name for name in beside if name not in inside]
    if outside:
        raise _wrong(
            graph,
            f"{outside[0]} runs beside block {vertex.name}, which would undo it if it is late; let one follow the "
            "other, or put both into the block",
        )


def _action(graph: Graph, vertex: Vertex) -> None:
    known = _variables(graph, vertex)
    if vertex.service not in graph.service_by_name:
        raise _wrong(graph, f"action {vertex.name} calls service {vertex.service!r}, which is not declared; add it")
    service = graph.service_by_name[vertex.service]
    if vertex.write and vertex.compensable and not vertex.compensation and not service.cancels:
        raise _wrong(
            graph,
            f"action {vertex.name} writes, but nothing says how to undo it: give it a compensation, use a service "
            "that cancels by interaction id, or mark it compensable=False",
        )
    if vertex.final and not service.filters and vertex.service != "local":
        raise _wrong(
            graph,
            f"action {vertex.name} cannot be compensated, so its service {vertex.service!r} must filter repeated "
            "interaction ids; put the filter in front of it",
        )
    if vertex.kind is Kind.RECEIVE and not vertex.channel:
        raise _wrong(graph, f"receive {vertex.name} names no channel")
    if vertex.channel.startswith("!"):
        raise _wrong(graph, f"receive {vertex.name}: channels that begin with '!' are for operators; choose another")
    for use, name in (("key", vertex.key), ("priority", vertex.priority)):
        if name and name not in known:
            raise _wrong(graph, f"{vertex.kind} {vertex.name} has the {use} {name!r}, which the state lacks")
    if vertex.answers:
        _conversation(graph, vertex)
    if vertex.atomic and (vertex.waits or vertex.final or vertex.alone):
        why = "waits" if vertex.waits else "cannot be undone" if vertex.final else "is to be alone"
        raise _wrong(graph, f"{vertex.name} {why}, so it cannot be part of an atomic block; put it before or behind it")
    if vertex.kind is Kind.CHILD:
        _child(graph, vertex)
    if vertex.waits and vertex.write:
        raise _wrong(graph, f"{vertex.name} waits, so it cannot write external state as well")
    if vertex.time_us < 0 or vertex.cost < 0:
        raise _wrong(graph, f"action {vertex.name}: time and cost cannot be negative")
    if vertex.retry.attempts_max < 1 or vertex.retry.occurrences_max < 1 or vertex.retry.attempt_us < 1:
        raise _wrong(graph, f"action {vertex.name}: retry needs at least one attempt, one occurrence and some time")


def _conversation(graph: Graph, vertex: Vertex) -> None:
    asked = graph.by_name.get(vertex.answers)
    if asked is None or not asked.acts or asked.waits or asked.name not in graph.before[vertex.name]:
        raise _wrong(graph, f"receive {vertex.name} answers {vertex.answers!r}, which is no action before it")
    if graph.around[asked.name] != graph.around[vertex.name][: len(graph.around[asked.name])]:
        raise _wrong(graph, f"receive {vertex.name} answers {asked.name}, which is in a loop that it is not in")
    if vertex.key:
        raise _wrong(graph, f"receive {vertex.name} has a key, so nobody answers with it; leave out key= or answers=")


def _child(graph: Graph, vertex: Vertex) -> None:
    if vertex.compensable and not vertex.compensation:
        raise _wrong(
            graph,
            f"child {vertex.name}: nothing says what becomes of its effects when this process is undone: give undo= "
            "a process, or say compensable=False",
        )
    if vertex.at_once < 1:
        raise _wrong(graph, f"child {vertex.name}: at_once is {vertex.at_once}; at least one must be under way")
    if vertex.final:
        for other in graph.vertices:
            if other.acts and other is not vertex and concurrent(graph, vertex.name, other.name):
                raise _wrong(
                    graph,
                    f"child {vertex.name} cannot be undone, so nothing may run beside it that could fail; {other.name} "
                    "does. Let one follow the other",
                )


def _concurrency(graph: Graph) -> None:
    """Concurrent branches work on disjoint parts of the state."""
    touching = [vertex for vertex in graph.vertices if vertex.reads or vertex.writes]
    for index, one in enumerate(touching):
        for other in touching[index + 1 :]:
            clash = [v for v in one.writes if v in other.writes or v in other.reads]
            clash += [v for v in other.writes if v in one.reads and v not in clash]
            if clash and concurrent(graph, one.name, other.name):
                raise _wrong(
                    graph,
                    f"{one.name} and {other.name} run at the same time and both touch {clash[0]!r}; let one follow "
                    "the other, or give each a variable of its own and merge them after the join",
                )


def concurrent(graph: Graph, one: str, other: str) -> bool:
    """Whether both may be under way at once: neither comes before the other, and an AND-split parts them."""
    if one in graph.before[other] or other in graph.before[one]:
        return False
    shared = graph.before[one] & graph.before[other]
    # The last split that both come after decides: branches of an XOR or of a race never run in one execution.
    splits = [name for name in shared if graph.by_name[name].kind in SPLITS]
    parting = [name for name in splits if _parts(graph, name, one, other)]
    return bool(parting) and all(graph.by_name[name].kind is Kind.AND_SPLIT for name in parting)


def _parts(graph: Graph, split: str, one: str, other: str) -> bool:
    """Whether one and other are on different edges of `split`, and no edge leads to both."""
    ways = []
    for number in graph.outgoing[split]:
        target = graph.edges[number].target
        leads = [name for name in (one, other) if target == name or (target and target in graph.before[name])]
        ways.append(leads)
    return [one] in ways and [other] in ways and [one, other] not in ways


def check_condition(process: str, name: str, function: Callable[..., Any], known: Mapping[str, Any]) -> None:
    """Refuse conditions that could answer differently on another replica."""
    if inspect.iscoroutinefunction(function):
        raise ProcessError(
            f"process {process}: condition {name} is async; a condition must not wait or ask anyone. Do that in an "
            "action before the split and decide on its result"
        )
    for used in _used_names(function.__code__):
        if used in NOT_DETERMINISTIC:
            raise ProcessError(
                f"process {process}: condition {name} uses {used!r}, so replicas could take different branches. Do "
                "that in an action before the split and decide on its result"
            )
    for parameter in inspect.signature(function).parameters:
        if parameter not in known:
            has = ", ".join(known) or "nothing"
            raise ProcessError(f"process {process}: condition {name} reads {parameter!r}; the state has {has}")


def _used_names(code: types.CodeType) -> list[str]:
    names = [i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME", "IMPORT_NAME")]
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names += _used_names(constant)
    return [str(name).split(".")[0] for name in names]
