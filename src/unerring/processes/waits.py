"""When a wait of a process ends: at a time, or with a message that has a key."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from unerring.processes.graph import Cut, Graph, Kind, Vertex
from unerring.processes.messages import State, Status


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
    return waits


def keyed(channel: str, key: str) -> str:
    """The channel, within an instance, of what was published with a key."""
    return f"{channel}={key}"


def key_of(value: object) -> str:
    """How a key's value is written."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
