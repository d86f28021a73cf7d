"""The query tree as the status document tells it: nodes with their level, what they take and make, who runs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unerring.correlation import Role, Topology
from unerring.correlation.topology import NodeSpec

if TYPE_CHECKING:
    from unerring.app.application import App

_ROLES = {Role.SOURCE: "source", Role.CORRELATION: "rule", Role.APPLICATION: "application"}


def tree_of(app: App | None, running: Topology | None) -> dict[str, Any]:
    """One node a rule, as the app has them. `running` is the topology of its processes, if there is one: it may host
    several rules on one node. Without the app, it is the tree."""
    if app is not None:
        from unerring.app.live import topology_of

        logical = topology_of(app, 0)
    elif running is not None:
        logical = running
    else:
        return {"nodes": [], "reactions": []}
    levels = _levels(logical)
    nodes = [
        {
            "name": node.name,
            "role": _ROLES[node.role],
            "level": levels[node.name],
            "inputs": list(node.inputs),
            "outputs": list(node.outputs),
            "runs_on": _host(node, running),
        }
        for node in logical.nodes
    ]
    reactions = [] if app is None else app.reactions
    return {"nodes": nodes, "reactions": [{"situation": one.situation, "process": one.process} for one in reactions]}


def _host(node: NodeSpec, running: Topology | None) -> str:
    """The name of the live gear's node whose replicas run it; empty where one driver of Spark does."""
    for other in () if running is None else running.nodes:
        if other.name == node.name or (node.outputs and set(node.outputs) <= set(other.outputs)):
            return other.name
    return ""


def _levels(topology: Topology) -> dict[str, int]:
    """Sources are level 0, a rule is above everything that it reads; topologies have no circles."""
    makers: dict[str, NodeSpec] = {stream: node for node in topology.nodes for stream in node.outputs}
    found: dict[str, int] = {}

    def level(node: NodeSpec) -> int:
        if node.name not in found:
            found[node.name] = max((level(makers[stream]) + 1 for stream in node.inputs), default=0)
        return found[node.name]

    for node in topology.nodes:
        level(node)
    return found
