"""Loops: what the vertices at the beginning and the end of a block do.

A loop's body is part of the graph; nothing of it is code that is run again. The end of each round is the end of a
group, so the state after it is decided before the next round begins. What these vertices assign (the item of a round,
what was collected) is recorded like a reply: a history can be gone through again without them.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest
from typing import Any, Final

from unerring.model import ProcessError
from unerring.processes.build import Process
from unerring.processes.graph import REPEAT, SKIP, Kind, Vertex, base_name

HOLDS: Final = "true"
"""The label of a condition that holds."""
_NOTHING: Final = object()


def begins(vertex: Vertex, variables: Mapping[str, Any]) -> tuple[str, Any]:
    """How a loop begins: the label, and what is recorded. ProcessError: it cannot."""
    if not vertex.over:
        return "", None
    items = _items(vertex, variables)
    return ("", [items[vertex.lane]]) if vertex.lane < len(items) else (SKIP, [])


def ends(process: Process, vertex: Vertex, round: int, variables: Mapping[str, Any]) -> tuple[str, Any]:
    """How a round ends: with another one or not, and what is recorded. ProcessError: there were too many."""
    head = process.graph.by_name[vertex.loop]
    if head.over:
        items = _items(head, variables)
        following = (round + 1) * head.at_once + head.lane
        reply = {"next": items[following : following + 1], "got": [variables[name] for _, name in vertex.collects]}
        return REPEAT if following < len(items) else "", reply
    if process.choose(vertex, variables) == HOLDS:
        return "", None
    if round + 1 >= head.at_most:
        raise ProcessError(
            f"loop {head.name} had {head.at_most} rounds, and {vertex.condition} does not hold; give it more with "
            "at_most, or look at why it does not"
        )
    return REPEAT, None


def _items(head: Vertex, variables: Mapping[str, Any]) -> list[Any]:
    items = variables[head.over] or []  # a list without a value is empty
    if not isinstance(items, list):
        raise ProcessError(f"loop {head.name} goes over {base_name(head.over)}, which is not a list")
    if len(items) > head.at_most:
        raise ProcessError(f"loop {head.name} goes over {len(items)} items; the limit is {head.at_most} (at_most)")
    return items


def assigned(process: Process, vertex: Vertex, reply: Any, variables: Mapping[str, Any]) -> dict[str, Any]:
    """The variables that such a vertex changes, from what was recorded."""
    if vertex.kind is Kind.GATHER:
        return _gathered(vertex, variables) | {lane: [] for _, lane in vertex.collects}
    item, *lists_of = vertex.writes
    if vertex.kind is Kind.LOOP:
        values = {name: process.fit(name, []) for name in lists_of}
        return values | ({item: process.fit(item, reply[0])} if reply else {})
    values = {
        name: process.fit(name, [*variables[name], value])
        for (name, _), value in zip(vertex.collects, reply["got"], strict=True)
    }
    return values | ({item: process.fit(item, reply["next"][0])} if reply["next"] else {})


def _gathered(vertex: Vertex, variables: Mapping[str, Any]) -> dict[str, Any]:
    lanes: dict[str, list[list[Any]]] = {}
    for name, lane in vertex.collects:
        lanes.setdefault(name, []).append(variables[lane])
    return {
        name: [value for row in zip_longest(*lists, fillvalue=_NOTHING) for value in row if value is not _NOTHING]
        for name, lists in lanes.items()
    }
