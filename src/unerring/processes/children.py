"""Children: processes that an action starts and waits for; one, or one for each item of a list.

A child's id is made of its parent's and the action's, and starting an id again is the same start: whoever leads the
parent may start its children, as often as it likes, from a decided state. Asking for a child that has ended brings its
end as a message; nothing of this has to be remembered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from unerring.processes.graph import ROUND, Graph, Kind, Vertex
from unerring.processes.messages import CHILD, Mail, Start, State, Status
from unerring.processes.packing import unpacked

UNDO = "~"


def family_of(graph: Graph, state: State, vertex: Vertex) -> str:
    """The id of an action's child at a state, and what the ids of its children over a list begin with."""
    again = f"{ROUND}{state.again}" if state.again else ""
    return f"{state.instance}+{graph.in_round(vertex.name, state.rounds)}{again}"


def starts(instance: str, vertex: Vertex, family: str, variables: Mapping[str, Any], most: int) -> list[Start]:
    """All children of an action, in the order of their list; none of a list that is too long."""
    items: list[Any] = [None]
    if vertex.over:
        listed = variables[vertex.over]
        items = listed if isinstance(listed, list) and len(listed) <= most else []
    children = []
    for number, item in enumerate(items):
        given = {name: item if vertex.over and here == vertex.over else variables[here] for name, here in vertex.given}
        id = f"{family}+{number}" if vertex.over else family
        children.append(Start(id, vertex.operation, given, instance, vertex.returns))
    return children


def undoing(start: Start, vertex: Vertex, value: Any, attempt: int) -> Start:
    """The process that undoes a child which had completed."""
    known = {**start.given, **({vertex.returns: value} if vertex.returns else {})}
    given = {name: known[name] for name in vertex.undo_given}
    return Start(f"{start.instance}{UNDO}{attempt}", vertex.compensation, given, start.parent)


def end_of(instance: str, status: str, reason: str, variables: Mapping[str, Any], returns: str) -> Mail:
    """The message to a parent about a child's end."""
    value = variables.get(returns) if returns else None
    return Mail(instance, CHILD, {"status": status, "reason": reason, "value": value})


def ended(graph: Graph, vertex: Vertex, state: State, mail: Iterable[Mail], most: int) -> Mail | None:
    """The end of an action's children, if it has come: all have completed, or one has not."""
    family = family_of(graph, state, vertex)
    listed = state.variables[vertex.over] if vertex.over else None
    if vertex.over and (not isinstance(listed, list) or len(listed) > most):
        what = (
            f"{len(listed)} items, which exceeds the limit of {most}"
            if isinstance(listed, list)
            else f"{listed!r}, not a list"
        )
        return _failed(family, f"{vertex.over} has {what}", final=True)
    ends = {item.id: item.payload for item in mail if item.channel == CHILD}
    values = []
    for start in starts(state.instance, vertex, family, state.variables, most):
        end = ends.get(start.instance)
        if end is not None and end["status"] != Status.COMPLETED:
            return _failed(family, f"{start.instance} was {end['status']}: {end['reason']}")
        if end is not None:
            values.append(end["value"])
    if len(values) < (len(listed) if vertex.over and isinstance(listed, list) else 1):
        return None
    value = values if vertex.over else values[0]
    return Mail(family, CHILD, {"status": Status.COMPLETED, "reason": "", "value": value})


def _failed(family: str, why: str, final: bool = False) -> Mail:
    """`final`: to try again would come to the same."""
    return Mail(family, CHILD, {"status": Status.FAILED, "reason": why, "value": None, "final": final})


def children_used(graph: Graph, state: State) -> list[tuple[str, Any]]:
    """The children that an execution stands on in the end, with their results: up to the last action that cannot be
    undone if it did not complete."""
    taken = unpacked(state).taken
    if state.status not in (Status.RUNNING, Status.COMPLETED):
        final = [at for at, action in enumerate(taken) if graph.by_name[action.vertex].final]
        taken = taken[: max(final, default=-1) + 1]
    used: list[tuple[str, Any]] = []
    for action in taken:
        vertex = graph.by_name[action.vertex]
        if vertex.kind is Kind.CHILD:
            values = action.reply if vertex.over else [action.reply]
            children = starts(state.instance, vertex, action.iid, action.request, len(values))
            used += [(start.instance, value) for start, value in zip(children, values, strict=True)]
    return used
