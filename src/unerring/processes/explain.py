"""Describes a process to a person: the graph, each action's class, the groups with active or passive and why, the
failover bound, and which actions may be executed twice."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import msgspec

from unerring.processes.build import Process
from unerring.processes.graph import Cut, Graph, Kind, Vertex, base_name
from unerring.processes.grouping import Group, Grouping, group_at, grouping_of
from unerring.processes.partition import lost

_GROUPS_MAX = 1_000
_THRESHOLDS_US = (600_000, 1_000_000, 2_000_000, 10_000_000, 60_000_000)
"""Thresholds that `explain` compares."""
_MESSAGES_A_STATE = 4
"""On three replicas: to two others, and their acknowledgements."""


def explain(process: Process, grouping: Grouping | None = None) -> dict[str, Any]:
    """Everything as data; `process_text` makes a text of it."""
    graph = process.graph
    rules = grouping_of(graph, grouping or Grouping())
    groups = [_group(graph, group, rules) for group in groups_of(graph, rules)]
    return {
        "process": graph.name,
        "version": graph.version,
        "edges": [[edge.source, edge.target, edge.label] for edge in graph.edges],
        "actions": [_action(graph, vertex) for vertex in graph.vertices if vertex.acts],
        "blocks": [{"block": name, "within_us": graph.by_name[name].time_us} for name in graph.blocks],
        "loops": [_loop(graph, head, end) for head, end in graph.ends.items()],
        "groups": groups,
        "failover_us": max((group["failover_us"] for group in groups), default=rules.view_change_us),
        "threshold_us": rules.failover_us,
        "view_change_us": rules.view_change_us,
        "measured": bool(graph.view_change_us),
        "warnings": warnings_of(graph),
        "trade": [_trade(graph, rules, failover_us) for failover_us in _THRESHOLDS_US],
    }


def warnings_of(graph: Graph) -> list[str]:
    """Receives that may get the answer to a message that was undone."""
    answered = {vertex.answers for vertex in graph.vertices if vertex.answers}
    found = []
    for vertex in graph.vertices:
        if vertex.kind is not Kind.RECEIVE or vertex.answers or vertex.key:
            continue
        asked = unanswered_send(graph, vertex, answered)
        if asked:
            found.append(
                f"{vertex.name} takes whatever comes on channel {vertex.channel!r}: after a failure {asked} may be "
                "undone and sent again under another interaction id, and the answer to the first one is taken, too; if "
                f"{vertex.name} waits for the answer to {asked}, declare it with answers={asked}"
            )
    return found


def unanswered_send(graph: Graph, receive: Vertex, answered: Collection[str]) -> str:
    """The last compensable message before a receive that it could answer, and that no other one does."""
    before, around = graph.before[receive.name], graph.around[receive.name]
    sends = [graph.by_name[name] for name in graph.order if name in before and name not in answered]
    fitting = [
        one.name
        for one in sends
        if graph.around[one.name] == around[: len(graph.around[one.name])]
        and one.kind is Kind.SEND
        and one.write
        and one.compensable
    ]
    return fitting[-1] if fitting else ""


def _trade(graph: Graph, rules: Grouping, failover_us: int) -> dict[str, Any]:
    """What another threshold would mean, with the best groups for it, on three replicas: the states that are replicated
    and the messages for that, what a master that dies at any moment lets be done again, and how long a failure holds
    the process up at most."""
    other = msgspec.structs.replace(graph, failover_us=failover_us)
    groups = [group for group in groups_of(other, rules) if group.vertices]
    waits_us = [rules.view_change_us + group.time_us for group in groups]
    whole_us = sum(group.time_us for group in groups)
    # A moment falls into a group as often as the group is long, and then half of it is done.
    again_us = sum(group.time_us * group.time_us for group in groups) // (2 * whole_us) if whole_us else 0
    cost = sum(_lost(graph, group) for group in groups) / whole_us if whole_us else 0.0
    return {
        "threshold_us": failover_us,
        "states": len(groups),
        "messages": len(groups) * _MESSAGES_A_STATE,
        "again_us": again_us,
        "undo_cost": round(cost, 2),
        "failover_us": max(waits_us, default=0),
    }


def _lost(graph: Graph, group: Group) -> int:
    """Compensation cost times microseconds, of the writes of a group one after the other."""
    return lost([graph.by_name[name] for name in group.vertices if graph.by_name[name].acts])


def groups_of(graph: Graph, grouping: Grouping) -> Iterator[Group]:
    """The groups that some execution can come to, first ones first. Waits count as ended."""
    todo: list[tuple[Cut, str]] = [(graph.start, "")]
    seen = dict.fromkeys(todo)
    given: dict[Group, None] = {}
    while todo and len(given) < _GROUPS_MAX:
        cut, announced = todo.pop(0)
        waits = tuple(vertex.name for vertex in graph.enabled(cut) if vertex.waits)
        group = group_at(graph, cut, waits, announced, grouping)
        if group.empty:
            continue
        if group not in given:
            given[group] = None
            yield group
        after = [(cut, group.announce)] if group.announce else [(end, "") for end in _ends(graph, cut, group)]
        for item in after:
            if item not in seen:
                seen[item] = None
                todo.append(item)


def _ends(graph: Graph, cut: Cut, group: Group) -> list[Cut]:
    """Every cut that executing the group can end at: one for each way through its XORs and races."""
    ends: dict[Cut, None] = {}
    todo = [cut]
    while todo:
        at = todo.pop()
        here = [v for v in graph.enabled(at) if v.name in group.vertices]
        vertex = next((v for v in here if v.kind is not Kind.AGAIN), None)
        if vertex is None:  # rounds end last, all at once: what follows them is for later groups
            ends |= dict.fromkeys(_after_rounds(graph, at, [v for v in here if v.kind is Kind.AGAIN]))
        else:
            ways = graph.ways(vertex)
            todo += [graph.fire(at, firing, label) for firing, label in ways if firing.name in group.vertices]
    return list(ends)


def _after_rounds(graph: Graph, cut: Cut, ending: list[Vertex]) -> list[Cut]:
    cuts = [cut]
    for vertex in ending:
        cuts = [graph.fire(at, vertex, label) for at in cuts for _, label in graph.ways(vertex)]
    return cuts


def _loop(graph: Graph, head: str, end: str) -> dict[str, Any]:
    """A loop: what its rounds do, and what ends it."""
    vertex = graph.by_name[head]
    inside = graph.inside(head)
    every = f"one of {vertex.at_once} lanes, " if vertex.at_once > 1 else ""
    until = f"{every}for each of {base_name(vertex.over)}" if vertex.over else f"until {graph.by_name[end].condition}"
    return {
        "loop": head,
        "end": end,
        "until": until,
        "at_most": vertex.at_most,
        "actions": [name for name in graph.order if name in inside and graph.by_name[name].acts],
    }


def _action(graph: Graph, vertex: Vertex) -> dict[str, Any]:
    return {
        "action": vertex.name,
        "kind": str(vertex.kind),
        "service": vertex.service,
        "reads": list(vertex.reads),
        "writes": list(vertex.writes),
        "class": class_of(vertex),
        "twice": twice(graph, vertex),
    }


def class_of(vertex: Vertex) -> str:
    """Its class in the words of the paper's section IV."""
    if vertex.waits:
        return "waits"
    if vertex.final:
        return "write, non-compensable"
    kind = "deterministic" if vertex.deterministic else "non-deterministic"
    return f"write, compensable, cost {vertex.cost}" if vertex.write else f"{kind} non-write, cost {vertex.cost}"


def twice(graph: Graph, vertex: Vertex) -> str:
    """Whether it may be executed twice, and why; empty: once."""
    service = graph.service_by_name[vertex.service]
    if vertex.waits:
        return ""
    if not vertex.write:
        return "yes, harmless: it changes nothing outside; only one execution's result is used"
    if vertex.final:
        if service.filters:
            return ""
        return "yes: a local function is called again when its result was lost; let it recognise the interaction id"
    undo = "cancelled by its interaction id" if service.cancels else f"undone by {vertex.compensation}"
    again = "" if service.filters else "; a lost result repeats the call under the same interaction id"
    return f"yes, after a failure: the execution that does not count is {undo}{again}"


def _group(graph: Graph, group: Group, grouping: Grouping) -> dict[str, Any]:
    if group.announce:
        why = f"announces {group.announce}, which cannot be compensated: service, IID and request are decided first"
        return {"actions": [], "mode": "announcement", "why": why, "failover_us": grouping.view_change_us}
    acting = [name for name in group.vertices if graph.by_name[name].acts]
    active = [name for name in group.active if graph.by_name[name].acts]
    failover_us = grouping.view_change_us + group.time_us
    return {
        "actions": acting,
        "active": active,
        "mode": _mode(acting, active),
        "why": _why(graph, acting, active, group, grouping),
        "failover_us": failover_us,
        "over": failover_us > grouping.failover_us,
    }


def _mode(acting: list[str], active: list[str]) -> str:
    if not acting:
        return "control"
    if not active:
        return "passive"
    return "active" if len(active) == len(acting) else "active, then passive"


def _why(graph: Graph, acting: list[str], active: list[str], group: Group, grouping: Grouping) -> str:
    if not acting:
        return "only control vertices"
    last = graph.by_name[acting[-1]]
    if len(acting) == 1 and last.final:
        return f"{last.name} cannot be compensated, so it is alone"
    reasons = []
    if active:
        sure = all(graph.by_name[name].deterministic for name in active)
        names = ", ".join(active)
        rest = "deterministic, so no state is replicated after them" if sure else "not deterministic, so state follows"
        reasons.append(f"{names}: no write and no compensation cost (rule 1), {rest}")
    blocks = dict.fromkeys(graph.by_name[name].atomic for name in acting if graph.by_name[name].atomic)
    for block in blocks:
        together = ", ".join(name for name in acting if graph.by_name[name].atomic == block)
        reasons.append(f"{together} are atomic, so nothing is decided between them")
    passive = [name for name in acting if name not in active]
    if passive:
        writes = [name for name in passive if graph.by_name[name].write]
        reason = f"{', '.join(writes)} may write" if writes else "they have a compensation cost or stand alone"
        bound = f"t_v {grouping.view_change_us} + {group.time_us} µs"
        fits = "≤" if grouping.view_change_us + group.time_us <= grouping.failover_us else "over"
        reasons.append(f"{reason}; {bound} {fits} t_f {grouping.failover_us} µs (rule 2)")
    return "; ".join(reasons)


def process_text(process: Process, grouping: Grouping | None = None) -> str:
    """The explanation as text."""
    facts = explain(process, grouping)
    lines = [f"process {facts['process']} (version {facts['version']})", "", "graph"]
    lines += [f"  {a or 'start'} → {b or 'end'}" + (f"  [{label}]" if label else "") for a, b, label in facts["edges"]]
    lines += [f"  {loop['end']} → {loop['loop']}  [again]" for loop in facts["loops"]]
    lines += ["", "actions"]
    for action in facts["actions"]:
        lines.append(f"  {action['action']} ({action['service']}): {action['class']}")
        lines.append(f"      twice: {action['twice'] or 'no'}")
    lines += ["", "blocks with a deadline"] if facts["blocks"] else []
    for block in facts["blocks"]:
        lines.append(f"  {block['block']}: after {block['within_us'] / 1_000_000:g} s it is undone, and late taken")
    lines += ["", "loops"] if facts["loops"] else []
    for loop in facts["loops"]:
        lines.append(f"  {loop['loop']}: {', '.join(loop['actions'])}")
        lines.append(f"      {loop['until']}, at most {loop['at_most']} rounds; the state after each round is decided")
    lines += ["", "warnings", *(f"  {warning}" for warning in facts["warnings"])] if facts["warnings"] else []
    lines += ["", "groups"]
    for number, group in enumerate(facts["groups"], 1):
        names = ", ".join(group["actions"]) or "–"
        lines.append(f"  {number}. {group['mode']}: {names}")
        lines.append(f"      why: {group['why']}")
        lines.append(f"      failover within {group['failover_us'] / 1000:g} ms")
    over = " (over the threshold)" if facts["failover_us"] > facts["threshold_us"] else ""
    seen = "measured" if facts["measured"] else "assumed: `unerring costs` learns it"
    lines += ["", f"view change: {facts['view_change_us'] / 1000:g} ms ({seen})"]
    lines += [f"failover bound: {facts['failover_us'] / 1000:g} ms of {facts['threshold_us'] / 1000:g} ms{over}"]
    lines += ["", "other thresholds: Process(..., failover=...)"]
    for trade in facts["trade"]:
        at, bound, again = (trade[name] / 1000 for name in ("threshold_us", "failover_us", "again_us"))
        sent = f"state replicated {trade['states']} times at most ({trade['messages']} messages)"
        lines.append(
            f"  {at:g} ms: {sent}, failover within {bound:g} ms; a lost master: {again:g} ms done again, cost "
            f"{trade['undo_cost']:g} to undo"
        )
    return "\n".join(lines) + "\n"
