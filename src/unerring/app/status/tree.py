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
    logical = _logical(app) if app is not None else _running(running) if running is not None else ()
    levels = levels_of(logical)
    nodes = [
        {
            "name": node.name,
            "role": _ROLES[node.role],
            "level": levels[node.name],
            "inputs": list(node.inputs),
            "outputs": list(node.outputs),
            "runs_on": _host(node, running),
            "shards": _shards(node, running),
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


def _running(topology: Topology) -> tuple[NodeSpec, ...]:
    """The nodes of a run; of shards, the node that they are of."""
    nodes = {
        node.hosts: NodeSpec(
            node.hosts,
            node.role,
            tuple(schema.name for schema, _ in topology.inputs(node.name)),
            topology.made(node.name),
        )
        for node in topology.nodes
    }
    return tuple(nodes.values())


def _host(node: NodeSpec, running: Topology | None) -> str:
    """The name of the live engine's node whose replicas, or whose shards' replicas, run it; empty where one driver of
    Spark does."""
    if running is None:
        return ""
    for other in running.nodes:
        if set(node.outputs) <= set(running.made(other.name)) if node.outputs else other.name == node.name:
            return other.hosts
    return ""


def _shards(node: NodeSpec, running: Topology | None) -> int:
    """Over how many nodes its keys are spread; 0: it does not run live."""
    host = _host(node, running)
    return 0 if running is None or not host else max(1, sum(other.shard_of == host for other in running.nodes))
