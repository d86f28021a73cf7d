"""Two versions of a process: what changed, and whether an instance may be moved from one to the other.

An instance may be moved where everything that it has behind it is the same in both versions, so that the decided
execution is also one of the new version, and what was done can still be undone as it was meant to be.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from unerring.model import ProcessError
from unerring.processes.build import Process
from unerring.processes.graph import Cut, Graph, Kind, Vertex
from unerring.processes.messages import State

_FREE: Final = ("time_us", "cost", "retry", "alone", "at_once")
"""The fields of an executed vertex that may change: they say how it is executed, not what it does."""
_CUTS_MAX: Final = 10_000


def differences(old: Graph, new: Graph) -> list[str]:
    """The changes, one sentence each."""
    changes = [f"{name} is gone" for name in old.by_name if name not in new.by_name]
    for name, vertex in new.by_name.items():
        if name not in old.by_name:
            changes.append(f"{name} is new ({vertex.kind.value})")
            continue
        changed = [field for field in vertex.__struct_fields__ if _of(vertex, field) != _of(old.by_name[name], field)]
        changes += [f"{name}: {f} was {_of(old.by_name[name], f)!r}, is {_of(vertex, f)!r}" for f in changed]
    ways, were = [_way(new, n) for n in range(len(new.edges))], [_way(old, n) for n in range(len(old.edges))]
    changes += [f"{way} is no longer a step" for way in were if way not in ways]
    changes += [f"{way} is a new step" for way in ways if way not in were]
    had, has = {v.name: v.type for v in old.state}, {v.name: v.type for v in new.state}
    changes += [f"variable {name} is gone" for name in had if name not in has]
    changes += [f"variable {name} is new" for name in has if name not in had]
    changes += [f"variable {n} was {had[n]}, is {has[n]}" for n in had if n in has and had[n] != has[n]]
    promised = {s.name: s for s in old.services}
    changes += [f"service {s.name} promises something else" for s in new.services if promised.get(s.name, s) != s]
    if old.deadline_us != new.deadline_us:
        changes.append(f"its deadline was {old.deadline_us} µs, is {new.deadline_us} µs (for new instances)")
    if old.holds != new.holds:
        changes.append(f"what cannot go on is {'held for an operator' if new.holds else 'undone'} now")
    return changes


def _of(vertex: Vertex, field: str) -> Any:
    return getattr(vertex, field)


def _way(graph: Graph, number: int) -> str:
    edge = graph.edges[number]
    label = f" [{edge.label}]" if edge.label else ""
    return f"{edge.source or 'start'} → {edge.target or 'end'}{label}"


def obstacle(old: Graph, new: Graph, number: int) -> str:
    """Why an instance with a mark on this edge of the old version cannot be moved; empty: it can."""
    edge = old.edges[number]
    behind = [name for name in old.order if edge.source and (name in old.before[edge.source] or name == edge.source)]
    loops = [loop for loop in old.ends if edge.source in old.inside(loop) and edge.source != old.ends[loop]]
    rest = [name for name in old.order if name not in behind and any(name in old.inside(loop) for loop in loops)]
    behind += rest  # an earlier round may have been there
    for name in behind:
        if name not in new.by_name:
            return f"{name} lies behind it, and the new version has none"
        was, now = old.by_name[name], new.by_name[name]
        fields = [f for f in was.__struct_fields__ if f not in _FREE and _of(was, f) != _of(now, f)]
        if fields:
            return f"{name} lies behind it, and its {fields[0]} changed"
        if old.service_by_name[was.service] != new.service_by_name.get(was.service):
            return f"{name} lies behind it, and service {was.service} promises something else"
        if _before(old, name) != _before(new, name):
            return f"{name} lies behind it, and what comes before {name} changed"
    if edge.source and _same_edge(old, new, number) is None:
        return f"the new version has no way {edge.label!r} out of {edge.source}"
    return ""


def _before(graph: Graph, name: str) -> list[tuple[str, str]]:
    return sorted((graph.edges[n].source, graph.edges[n].label) for n in graph.incoming[name])


def _same_edge(old: Graph, new: Graph, number: int) -> int | None:
    edge = old.edges[number]
    edges = [n for n in new.outgoing.get(edge.source, ()) if new.edges[n].label == edge.label]
    return edges[0] if len(edges) == 1 else None


def state_obstacle(old: Graph, new: Graph) -> str:
    """Why no instance can be moved, whatever it did."""
    has = {variable.name: variable.type for variable in new.state}
    for variable in old.state:
        if variable.name not in has:
            return f"the new version has no variable {variable.name}"
        if has[variable.name] != variable.type:
            return f"variable {variable.name} was {variable.type}, is {has[variable.name]}"
    return ""


def moved_cut(old: Graph, new: Graph, cut: Cut) -> Cut:
    """Where in the new version an instance at this cut of the old one is; ProcessError if it cannot be moved."""
    why = state_obstacle(old, new)
    marks: list[int] = []
    for number in cut:
        edge = old.edges[number]
        why = why or obstacle(old, new, number)
        same = _same_edge(old, new, number)
        marks.append(-1 if same is None else same)
        if not why and edge.source and new.by_name[edge.source].kind is Kind.FIRST_SPLIT:
            marks += new.outgoing[edge.source]  # whatever the new version lets race there
    moved = tuple(sorted(dict.fromkeys(marks)))
    if not why and not _leads_to_the_end(new, moved):
        why = "a join of the new version would wait for ever for a branch that did not begin"
    if why:
        places = ", ".join(_way(old, number) for number in cut)
        raise ProcessError(f"an instance of {old.name} at {places} cannot be moved to {new.version}: {why}")
    return moved


def _leads_to_the_end(graph: Graph, cut: Cut) -> bool:
    todo, seen = [cut], {cut: None}
    while todo:
        at = todo.pop()
        if graph.ended(at):
            continue
        vertex = next(graph.enabled(at), None)
        if vertex is None or len(seen) > _CUTS_MAX:
            return False
        for firing, label in graph.ways(vertex):
            after = graph.fire(at, firing, label)
            if after not in seen:
                seen[after] = None
                todo.append(after)
    return True


def moved(old: Graph, process: Process, state: State, view: int, wall_us: int) -> State:
    """The state in the new version. Nothing outside the lineage may be left to undo: that is known by the old one."""
    new = process.graph
    cut = moved_cut(old, new, state.cut)
    for vertex in old.enabled(state.cut):
        if vertex.kind is Kind.CHILD and vertex not in list(new.enabled(cut)):
            raise ProcessError(
                f"{state.instance} waits for its child {vertex.name}, which the new version does not; wait"
            )
    sleeps = [vertex for vertex in new.enabled(cut) if vertex.kind is Kind.SLEEP]
    names = {new.in_round(vertex.name, state.rounds): vertex for vertex in sleeps}
    due = {name: state.due.get(name, wall_us + vertex.time_us) for name, vertex in names.items()}
    variables = {variable.name: variable.default for variable in new.state} | state.variables
    return msgspec.structs.replace(
        state, version=new.version, cut=cut, due=due, variables=variables, moved=state.group + 1, swept=view
    )


def compared(old: Process, new: Process) -> dict[str, Any]:
    """Everything that `unerring explain --diff` says, as data."""
    before, after = old.graph, new.graph
    whole = "" if before.name == after.name else f"these are two processes, {before.name} and {after.name}"
    whole = whole or state_obstacle(before, after)
    places = [
        {"at": _way(before, number), "why_not": whole or obstacle(before, after, number)}
        for number in range(len(before.edges))
        if before.edges[number].target
    ]
    return {
        "process": before.name,
        "old": before.version,
        "new": after.version,
        "changes": differences(before, after),
        "places": places,
        "may_move": all(not place["why_not"] for place in places),
    }


def difference_text(old: Process, new: Process) -> str:
    """The same as text."""
    facts = compared(old, new)
    if facts["old"] == facts["new"]:
        return f"process {facts['process']}: both are version {facts['old']}; nothing changed\n"
    lines = [f"process {facts['process']}: version {facts['old']} → {facts['new']}", "", "what changed"]
    lines += [f"  {change}" for change in facts["changes"]]
    lines += ["", "running instances"]
    free = [place["at"] for place in facts["places"] if not place["why_not"]]
    if facts["may_move"]:
        lines.append("  may be moved, wherever they are")
    else:
        lines.append(f"  may be moved at: {', '.join(free) or 'nowhere'}")
        lines += [f"  stay at {place['at']}: {place['why_not']}" for place in facts["places"] if place["why_not"]]
    lines += ["", "An instance stays with its version until `unerring process move` moves it; both must be deployed."]
    return "\n".join(lines) + "\n"
