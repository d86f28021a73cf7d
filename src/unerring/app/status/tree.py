"""The query tree as the status document tells it: nodes with their level, what they take and make, who runs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unerring.correlation import NodeSpec, Role, Topology
from unerring.rules import levels_of, part_of

if TYPE_CHECKING:
    from unerring.app.application import App

_ROLES = {Role.SOURCE: "source", Role.CORRELATION: "rule", Role.APPLICATION: "application"}


def tree_of(app: App | None, running: Topology | None) -> dict[str, Any]:
    """One node a rule, as the app has them. `running` is the topology of its processes, if there is one: it may host
    several rules on one node. Without the app, it is the tree."""
    logical = _logical(app) if app is not None else running.nodes if running is not None else ()
    levels = levels_of(logical)
    nodes = [
        {
            "name": node.name,
            "role": _ROLES[node.role],
            "level": levels[node.name],
            "inputs": list(node.inputs),
            "outputs": list(node.outputs),
            "runs_on": _host(node, running),
        }
        for node in logical
    ]
    reactions = [] if app is None else app.reactions
    return {"nodes": nodes, "reactions": [{"situation": one.situation, "process": one.process} for one in reactions]}


def _logical(app: App) -> tuple[NodeSpec, ...]:
    sources = [NodeSpec(f"source_{schema.name}", Role.SOURCE, outputs=(schema.name,)) for schema in app.streams]
    parts = [part_of(plan.name, [plan]) for plan in app.plans]
    rules = [NodeSpec(part.name, Role.CORRELATION, part.inputs, part.outputs) for part in parts]
    delivered = tuple(schema.name for schema in app.outputs)
    return (*sources, *rules, NodeSpec("situations", Role.APPLICATION, delivered))


def _host(node: NodeSpec, running: Topology | None) -> str:
    """The name of the live engine's node whose replicas run it; empty where one driver of Spark does."""
    for other in () if running is None else running.nodes:
        if set(node.outputs) <= set(other.outputs) if node.outputs else other.name == node.name:
            return other.name
    return ""
