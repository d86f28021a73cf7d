"""Requests and their answers in a model: an operation of an interface names the message that goes in and the one that
comes out. A wait for what comes out takes the answer to the send of what goes in, and no other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from unerring.processes.bpmn.document import Element
from unerring.processes.bpmn.model import Node
from unerring.processes.graph import Graph, Kind


def with_answers(
    graph: Graph, root: Element, nodes: Iterable[Node], elements: Mapping[str, str], declared: Iterable[str]
) -> Graph:
    """The graph in which each receive of a model names the send that it answers, where there is exactly one. What is
    declared in a program says that itself."""
    operations = _operations(root)
    if not operations:
        return graph
    known = {node.id: node for node in nodes}
    said = {name: known[id] for name, id in elements.items() if id in known}
    open_ones = {*said} - {*declared}
    asks: dict[str, set[str]] = {}
    for vertex in graph.vertices:
        if vertex.kind is Kind.SEND and vertex.name in said:
            asks[vertex.name] = _part_of(said[vertex.name], operations, 0)
    changed = {}
    for vertex in graph.vertices:
        if vertex.kind is not Kind.RECEIVE or vertex.answers or vertex.key or vertex.name not in open_ones:
            continue
        takes = _part_of(said[vertex.name], operations, 1)
        asked = [name for name, asks_for in asks.items() if asks_for & takes and _may_ask(graph, name, vertex.name)]
        if len(asked) == 1:
            changed[vertex.name] = msgspec.structs.replace(vertex, answers=asked[0])
    vertices = tuple(changed.get(vertex.name, vertex) for vertex in graph.vertices)
    return msgspec.structs.replace(graph, vertices=vertices) if changed else graph


def _operations(root: Element) -> dict[str, tuple[str, str]]:
    """Of each operation that is asked and answers: the ids of both messages."""
    found = {}
    for interface in root.all("interface"):
        for operation in interface.all("operation"):
            both = tuple(_local(operation.content(name)) for name in ("inMessageRef", "outMessageRef"))
            if operation.id and all(both):
                found[operation.id] = (both[0], both[1])
    return found


def _part_of(node: Node, operations: Mapping[str, tuple[str, str]], end: int) -> set[str]:
    """The operations that a node sends to (0) or takes the answer of (1): by name, or by their message."""
    sources = [element for element in (node.element, node.definition) if element is not None]
    named = {_local(one.attributes.get("operationRef", "") or one.content("operationRef")) for one in sources}
    messages = {_local(one.attributes.get("messageRef", "")) for one in sources} - {""}
    return {id for id, both in operations.items() if id in named or both[end] in messages}


def _may_ask(graph: Graph, send: str, receive: str) -> bool:
    around = graph.around[send]
    return send in graph.before[receive] and around == graph.around[receive][: len(around)]


def _local(reference: str) -> str:
    return reference.rpartition(":")[2]
