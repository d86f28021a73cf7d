"""Lanes: a loop that handles several items at once is so many copies of it beside each other.

Lane n takes every width-th item, from the n-th on. Its vertices, and its copies of the variables that the body writes,
have names that end with its number. What the lanes collected is put together behind their join, in the order of the
items.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from unerring.model import ProcessError
from unerring.processes.graph import LANE, Edge, Kind, Vertex

WIDTH_MAX: Final = 64


class Lanes(msgspec.Struct, frozen=True):
    """The copies, with what is in front of them and behind them."""

    vertices: list[Vertex]
    edges: list[Edge]
    variables: list[str]
    begin: str
    end: str


def copied(process: str, loop: Sequence[Vertex], between: Sequence[Edge], width: int) -> Lanes:
    """`loop` begins with the vertex at the loop's beginning and ends with the one at its end."""
    head, end = loop[0], loop[-1]
    if not 1 <= width <= WIDTH_MAX:
        raise ProcessError(f"process {process}: the loop {head.name} has width={width}; it must be 1 to {WIDTH_MAX}")
    split, join, gather = f"{head.name}-split", f"{head.name}-join", f"{head.name}-gather"
    own = dict.fromkeys(name for vertex in loop for name in vertex.writes)
    vertices = [Vertex(split, Kind.AND_SPLIT)]
    edges: list[Edge] = []
    variables: list[str] = []
    for lane in range(width):
        names = {vertex.name: f"{vertex.name}{LANE}{lane}" for vertex in loop}
        renamed = {name: f"{name}{LANE}{lane}" for name in own}
        variables += renamed.values()
        vertices += [_in_lane(vertex, names, renamed, lane if vertex is head else vertex.lane) for vertex in loop]
        edges += [Edge(split, names[head.name], str(lane)), Edge(names[end.name], join)]
        edges += [Edge(names[edge.source], names[edge.target], edge.label) for edge in between]
    vertices.append(Vertex(join, Kind.AND_JOIN))
    if not end.collects:
        return Lanes(vertices, edges, variables, split, join)
    collects = [(name, f"{name}{LANE}{lane}") for name, _ in end.collects for lane in range(width)]
    reads = tuple(lane for _, lane in collects)
    writes = (*dict.fromkeys(name for name, _ in collects), *reads)
    vertices.append(Vertex(gather, Kind.GATHER, reads=reads, writes=writes, collects=tuple(collects)))
    return Lanes(vertices, [*edges, Edge(join, gather)], variables, split, gather)


def _in_lane(vertex: Vertex, names: Mapping[str, str], renamed: Mapping[str, str], lane: int) -> Vertex:
    def here(name: str) -> str:
        return renamed.get(name, name)

    return msgspec.structs.replace(
        vertex,
        name=names[vertex.name],
        loop=names.get(vertex.loop, ""),
        reads=tuple(map(here, vertex.reads)),
        writes=tuple(map(here, vertex.writes)),
        key=here(vertex.key),
        answers=names.get(vertex.answers, vertex.answers),
        atomic=vertex.atomic and f"{vertex.atomic}{LANE}{names[vertex.name].rpartition(LANE)[2]}",
        priority=here(vertex.priority),
        given=tuple((name, here(variable)) for name, variable in vertex.given),
        over=here(vertex.over),
        collects=tuple((here(name), here(variable)) for name, variable in vertex.collects),
        lane=lane,
    )
