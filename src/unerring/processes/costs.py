"""Costs of actions: the stream they are learned from, the costs, and a process with learned costs.

Learned times and compensation costs replace those of the process's actions, and its groups change with them. That is
another version: instances that run keep the groups they were started with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from unerring.model import UNDECODABLE, CallerError, stream
from unerring.processes.build import Process
from unerring.processes.graph import Vertex

STREAM: Final = "ProcessActions"
VIEW_CHANGE: Final = "view change"
"""The action, of no process, by which view changes are in the stream and among the costs."""


@stream(key="instance", name=STREAM)
class ProcessAction:
    """One action of an instance that has ended, in the order of its decided execution."""

    instance: str
    process: str
    version: str
    status: str
    action: str
    iid: str
    master: str
    group: int
    view: int
    write: bool
    took_us: int
    undo_us: int | None
    """How long its compensation took, if it was undone."""
    done_us: int
    """Wall time of its group's end."""
    ended_us: int
    """Wall time of the instance's end."""


class Cost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The measured cost of an action: quantiles with recent executions weighted more."""

    process: str
    action: str
    seen: int
    p50_us: int
    p95_us: int
    undone: int
    """How often it was undone."""
    undo_p50_us: int
    """How long undoing it took; 0 if it never was."""


def read_costs(data: bytes) -> list[Cost]:
    """Costs as `unerring costs --write` keeps them."""
    try:
        return msgspec.json.decode(data, type=list[Cost])
    except UNDECODABLE as error:
        raise CallerError(f"invalid costs file: {error}; write it with `unerring costs --write FILE`") from None


def with_costs(process: Process, learned: Mapping[str, tuple[int, int]], view_change_us: int = 0) -> Process:
    """`learned`: by action, the time it takes and what undoing it costs, both in microseconds. A write stays passive
    whatever its cost; an action that was never undone keeps the cost it was given. `view_change_us`: t_v, if known."""
    graph = process.graph
    vertices = tuple(_priced(vertex, learned) for vertex in graph.vertices)
    known_us = rounded(view_change_us) or graph.view_change_us
    return process.with_graph(msgspec.structs.replace(graph, vertices=vertices, view_change_us=known_us))


def view_change_of(costs: Iterable[Cost]) -> int:
    """How long view changes took, by 95 of 100; 0: none was seen."""
    return next((cost.p95_us for cost in costs if not cost.process and cost.action == VIEW_CHANGE), 0)


def _priced(vertex: Vertex, learned: Mapping[str, tuple[int, int]]) -> Vertex:
    if not vertex.acts or vertex.waits or vertex.name not in learned:
        return vertex
    time_us, cost = learned[vertex.name]
    return msgspec.structs.replace(vertex, time_us=rounded(time_us), cost=rounded(cost) if cost else vertex.cost)


def rounded(value: int) -> int:
    """To a power of two at or above: what is learned a little differently tomorrow is the same version."""
    return 0 if value <= 0 else 1 << (value - 1).bit_length()
