"""A process with the costs that were learned of it: times and compensation costs of its actions are replaced, and with
them its groups. That is another version: instances that run keep the groups they were started with."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from unerring.processes.build import Process
from unerring.processes.graph import Vertex


def with_costs(process: Process, learned: Mapping[str, tuple[int, int]]) -> Process:
    """`learned`: by action, the time it takes and what undoing it costs, both in microseconds. A write stays passive
    whatever its cost; an action that was never undone keeps the cost it was given."""
    vertices = tuple(_priced(vertex, learned) for vertex in process.graph.vertices)
    return process.with_graph(msgspec.structs.replace(process.graph, vertices=vertices))


def _priced(vertex: Vertex, learned: Mapping[str, tuple[int, int]]) -> Vertex:
    if not vertex.acts or vertex.waits or vertex.name not in learned:
        return vertex
    time_us, cost = learned[vertex.name]
    return msgspec.structs.replace(vertex, time_us=rounded(time_us), cost=rounded(cost) if cost else vertex.cost)


def rounded(value: int) -> int:
    """To a power of two at or above: what is learned a little differently tomorrow is the same version."""
    return 0 if value <= 0 else 1 << (value - 1).bit_length()
