"""A loop with several lanes, as it was before it was copied: what a multi-instance activity means."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from unerring.processes.graph import LANE, Edge, Graph, Kind, Vertex

_FIRST = f"{LANE}0"


class Numbered(msgspec.Struct):
    """A graph with the positions that vertices and edges have in the version that is exported."""

    graph: Graph
    vertices: dict[str, int]
    edges: list[int]


def numbered(graph: Graph) -> Numbered:
    """The graph with every loop over several items folded into one lane."""
    whole = Numbered(graph, {v.name: at for at, v in enumerate(graph.vertices)}, list(range(len(graph.edges))))
    while True:
        split = next((v.name for v in whole.graph.vertices if _opens(whole.graph, v)), "")
        if not split:
            return whole
        whole = _folded(whole, split)


def _opens(graph: Graph, vertex: Vertex) -> bool:
    heads = [graph.by_name.get(graph.edges[number].target) for number in graph.outgoing[vertex.name]]
    return vertex.kind is Kind.AND_SPLIT and all(
        head is not None
        and head.kind is Kind.LOOP
        and head.at_once == len(heads) > 1
        and head.name.endswith(f":{lane}")
        for lane, head in enumerate(heads)
    )


def _folded(whole: Numbered, split: str) -> Numbered:
    graph = whole.graph
    heads = [graph.edges[number].target for number in graph.outgoing[split]]
    inside = {name: None for head in heads for name in sorted(graph.inside(head))}
    end = graph.ends[heads[0]]
    join = graph.edges[graph.outgoing[end][0]].target
    after = graph.edges[graph.outgoing[join][0]].target
    last = after if after and graph.by_name[after].kind is Kind.GATHER else join
    kept = graph.inside(heads[0])
    head, tail = heads[0].removesuffix(_FIRST), end.removesuffix(_FIRST)
    own = {name for vertex in graph.vertices if vertex.name in kept for name in vertex.writes}
    names = {name: name.removesuffix(_FIRST) for name in (*sorted(kept), *sorted(own))}
    vertices, places = [], {}
    for vertex in graph.vertices:
        if vertex.name in kept:
            vertices.append(_out_of_lane(vertex, names))
        elif vertex.name not in inside and vertex.name not in (split, join, last):
            vertices.append(vertex)
        else:
            continue
        places[vertices[-1].name] = whole.vertices[split if vertex.name == heads[0] else vertex.name]
    edges, at = [], []
    for number, edge in enumerate(graph.edges):
        source = tail if edge.source == last else names.get(edge.source, edge.source)
        target = head if edge.target == split else names.get(edge.target, edge.target)
        between = edge.source in inside or edge.target in inside
        if between and not (edge.source in kept and edge.target in kept):
            continue
        if edge.source != last and (edge.source in (split, join) or edge.target in (join, last)):
            continue
        edges.append(Edge(source, target, edge.label))
        at.append(whole.edges[number])
    made = msgspec.structs.replace(graph, vertices=tuple(vertices), edges=tuple(edges))
    return Numbered(made, places, at)


def _out_of_lane(vertex: Vertex, names: Mapping[str, str]) -> Vertex:
    def there(name: str) -> str:
        return names.get(name, name)

    return msgspec.structs.replace(
        vertex,
        name=there(vertex.name),
        loop=there(vertex.loop),
        reads=tuple(map(there, vertex.reads)),
        writes=tuple(map(there, vertex.writes)),
        key=there(vertex.key),
        answers=there(vertex.answers),
        atomic=vertex.atomic.removesuffix(_FIRST),
        priority=there(vertex.priority),
        given=tuple((name, there(variable)) for name, variable in vertex.given),
        over=there(vertex.over),
        collects=tuple((there(name), there(variable)) for name, variable in vertex.collects),
    )
