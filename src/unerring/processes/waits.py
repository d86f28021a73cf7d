"""When a wait of a process ends: at a time, or with a message that has a key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from unerring.processes.graph import LATE, Cut, Graph, Kind, Vertex
from unerring.processes.messages import State, Status
from unerring.processes.packing import unpacked

Blocks = dict[str, tuple[int, int]]


def sleep_until(vertex: Vertex, variables: Mapping[str, object], wall_us: int) -> int:
    """When a sleep that begins now ends: after its time, or at the time in a variable."""
    until = variables.get(vertex.reads[0]) if vertex.reads else None
    return until if isinstance(until, int) else wall_us + vertex.time_us


def due_at(
    graph: Graph,
    cut: Cut,
    rounds: Mapping[str, int],
    variables: Mapping[str, object],
    before: Mapping[str, int],
    wall_us: int,
) -> dict[str, int]:
    """When the sleeps at a cut end, by their names in these rounds; those that had begun `before` end when they were
    to."""
    sleeps = {graph.in_round(v.name, rounds): v for v in graph.enabled(cut) if v.kind is Kind.SLEEP}
    return {name: before.get(name, sleep_until(v, variables, wall_us)) for name, v in sleeps.items()}


def due_us(graph: Graph, vertex: Vertex, state: State) -> int:
    """The wall time at which a sleep at a state's cut ends."""
    return state.due.get(graph.in_round(vertex.name, state.rounds), 0)


def blocks_at(graph: Graph, cut: Cut, before: Blocks, group: int, wall_us: int) -> Blocks:
    """The blocks with a deadline around a cut; those that had begun `before` end when they were to."""
    marked = frozenset(cut)
    here = [name for name, edges in graph.blocks.items() if edges & marked]
    return {name: before.get(name, (group, wall_us + graph.by_name[name].time_us)) for name in here}


def late_block(graph: Graph, state: State, wall_us: int) -> State | None:
    """The state in which a block whose deadline has passed is undone, and its other branch taken. What cannot be undone
    keeps the block: then it goes on."""
    if not state.blocks:
        return None
    for name, (group, due) in sorted(state.blocks.items(), key=lambda block: block[1][1]):
        if due > wall_us:
            return None
        taken = unpacked(state).taken  # a loop in the block packs what it did long ago
        if not any(graph.by_name[action.vertex].final for action in taken if action.group > group):
            edge = next(number for number in graph.outgoing[name] if graph.edges[number].label == LATE)
            return msgspec.structs.replace(state, status=Status.UNDOING, rewind=group, turn=edge, held="", reason="")
    return None


def lost_child(graph: Graph, state: State, ended: Iterable[str]) -> State | None:
    """The state in which a child that lost a race is undone, before the branch of the wait that won is taken."""
    for name in ended:
        rivals = [n for n in graph.races.get(name, ()) if n in state.cut and graph.edges[n].target != name]
        if any(graph.by_name[graph.edges[number].target].kind is Kind.CHILD for number in rivals):
            edge = graph.incoming[name][0]
            return msgspec.structs.replace(state, status=Status.UNDOING, rewind=state.group, turn=edge, held="")
    return None


def waits_for(graph: Graph, state: State) -> list[dict[str, object]]:
    """What an instance waits for at a state: each wait with its kind, and the channel or the wall time that ends it."""
    if state.status != Status.RUNNING or state.held:
        return []
    waits: list[dict[str, object]] = []
    for vertex in graph.enabled(state.cut):
        if vertex.kind is Kind.RECEIVE:
            waits.append({"wait": vertex.name, "kind": "signal", "channel": vertex.channel})
        elif vertex.kind is Kind.SLEEP:
            waits.append({"wait": vertex.name, "kind": "time", "until_us": due_us(graph, vertex, state)})
        elif vertex.kind is Kind.CHILD:
            waits.append({"wait": vertex.name, "kind": "child"})
    if waits:
        waits += [{"wait": name, "kind": "time", "until_us": due} for name, (_, due) in state.blocks.items()]
    return waits


def keyed(channel: str, key: str) -> str:
    """The channel, within an instance, of what was published with a key."""
    return f"{channel}={key}"


def key_of(value: object) -> str:
    """How a key's value is written."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
