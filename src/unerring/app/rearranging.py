"""The topology of a live run from one edition of its rules to the next: old and new nodes side by side, then the new
ones alone.

A node whose rules stay as they are stays, too, with its processes. One with a rule that changes goes, and another one
comes with a name of its own; what it starts from is made of the log. The same can be done to a node whose rule is to be
divided otherwise: the old set of nodes goes, and the new one comes, with one agreed time.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from unerring.correlation import NodeSpec, Role, Topology


def side_by_side(old: Topology, new: Topology, fresh: Collection[str], number: int) -> Topology:
    """`new`: the nodes as their app has them. `fresh`: the streams of rules that are not as they were."""
    stays = [node for node in new.nodes if _known(node, old) is not None and not set(node.outputs) & set(fresh)]
    kept = {known.name for node in stays if (known := _known(node, old)) is not None}
    nodes: list[NodeSpec] = []
    for node in old.nodes:
        if node.role is Role.APPLICATION:
            continue
        ends = 0 if node.name in kept else number
        nodes.append(msgspec.structs.replace(node, ends=ends, ranks=_ranks(old, node)))
    nodes += [
        _coming(node, new, number) for node in new.nodes if node.role is not Role.APPLICATION and node not in stays
    ]
    ordered = (*new.streams, *(schema for schema in old.streams if schema.name not in {s.name for s in new.streams}))
    applications = _applications(old, nodes)
    return Topology((*nodes, *applications), ordered, new.rules, upgrade=number, origin=old.fingerprint())


def alone(both: Topology) -> Topology:
    """Without the nodes that went with the last upgrade."""
    nodes = [node for node in both.nodes if not both.is_ending(node) and node.role is not Role.APPLICATION]
    made = {stream for node in nodes for stream in node.outputs}
    streams = tuple(schema for schema in both.streams if schema.name in made)
    return msgspec.structs.replace(both, nodes=(*nodes, *_applications(both, nodes)), streams=streams)


def plain(topology: Topology) -> tuple[tuple[NodeSpec, ...], tuple[NodeSpec, ...]]:
    """The nodes as the apps have them: those of the rules before the last upgrade, and after it."""
    before = [node for node in topology.nodes if not topology.is_coming(node)]
    after = [node for node in topology.nodes if not topology.is_ending(node)]
    return _plain(before), _plain(after)


def founded(topology: Topology) -> Topology:
    """A topology whose nodes all begin together."""
    nodes = tuple(msgspec.structs.replace(node, begins=0) for node in topology.nodes)
    return msgspec.structs.replace(topology, nodes=nodes)


def is_that(topology: Topology, wanted: Topology) -> bool:
    """Whether a run's nodes are those that its app has, before or after an upgrade that is under way."""
    if not topology.origin:
        return topology.fingerprint() == wanted.fingerprint()
    return _plain(wanted.nodes) in plain(topology)


def _plain(nodes: Collection[NodeSpec]) -> tuple[NodeSpec, ...]:
    made = {stream for node in nodes for stream in node.outputs}
    named = [
        NodeSpec(
            n.part or n.name, n.role, tuple(sorted(s for s in n.inputs if s in made)), tuple(sorted(n.outputs)), n.f
        )
        for n in nodes
    ]
    return tuple(sorted(named, key=lambda node: node.name))


def _known(node: NodeSpec, old: Topology) -> NodeSpec | None:
    """The node that an earlier topology has in its place."""
    going_on = [known for known in old.nodes if not old.is_ending(known)]
    return next((known for known in going_on if _plain_one(known) == _plain_one(node)), None)


def _plain_one(node: NodeSpec) -> tuple[str, Role, tuple[str, ...], tuple[str, ...], int]:
    return node.part or node.name, node.role, tuple(sorted(node.inputs)), tuple(sorted(node.outputs)), node.f


def _coming(node: NodeSpec, new: Topology, number: int) -> NodeSpec:
    if node.role is Role.SOURCE:
        return msgspec.structs.replace(node, begins=number)
    ranks = _ranks(new, node)
    return msgspec.structs.replace(node, name=f"{node.name}-{number}", begins=number, part=node.name, ranks=ranks)


def _ranks(topology: Topology, node: NodeSpec) -> tuple[int, ...]:
    ranks = {schema.name: rank for schema, rank in topology.inputs(node.name)}
    return tuple(ranks[stream] for stream in node.inputs)


def _applications(old: Topology, nodes: Collection[NodeSpec]) -> list[NodeSpec]:
    """They get all that rules make."""
    made = tuple(dict.fromkeys(s for node in nodes if node.role is Role.CORRELATION for s in node.outputs))
    return [msgspec.structs.replace(n, inputs=made, ranks=()) for n in old.nodes if n.role is Role.APPLICATION]
