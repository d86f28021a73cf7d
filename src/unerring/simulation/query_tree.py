"""The query tree of the scenarios of correlation, and its perfect run.

    sources a, b, c -> X (a, b) -> Y (x1) -> W (y, z, v) -> application (w, v)
                                -> Z (x2, c) -> W
                       V (b, c) -> W, application

Every node is fed by rules whose outputs depend on the whole history in its order, so one event lost, repeated or out of
place changes everything after it. Some trees are keyed: the rules of some nodes have a state for each key, and these
nodes may have shards.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from random import Random

from unerring.audit import Stage, perfect_run
from unerring.correlation import NodeSpec, Role, Sharding, Topology, outputs_of, sharded
from unerring.model import Column, ColumnType, Event, StreamSchema
from unerring.simulation.mixing import KeyedMixing, Mixing


def schema(name: str, keyed: bool = False) -> StreamSchema:
    columns = (Column("v", ColumnType.INT), Column("k", ColumnType.INT))
    return StreamSchema(name, columns, ("k",)) if keyed else StreamSchema(name, columns[:1])


STREAMS = ("a", "b", "c", "x1", "x2", "v", "y", "z", "w")
OUTPUTS = {"X": ("x1", "x2"), "V": ("v",), "Y": ("y",), "Z": ("z",), "W": ("w",)}
SITUATIONS = ("w", "v")


def draw_shards(seed: int, share: float, never: Collection[str] = ()) -> dict[str, int]:
    """In a share of the seeds: the nodes whose rules are keyed, and how many shards each has."""
    draw = Random(f"shards {seed}")
    if draw.random() >= share:
        return {}
    may = [name for name in OUTPUTS if name not in never]
    return {name: draw.choice((1, 2, 3)) for name in draw.sample(may, draw.choice((1, 1, 2, 3)))}


def divided(topology: Topology, shards: Mapping[str, int]) -> Topology:
    """The tree with shards."""
    return sharded(
        topology,
        {
            name: Sharding(
                count,
                dict.fromkeys(topology.node(name).inputs, ("k",)),
                dict.fromkeys(OUTPUTS[name], (ColumnType.INT,)),
            )
            for name, count in shards.items()
        },
    )


def rules_of(topology: Topology, node: NodeSpec, shards: Mapping[str, int], columns: bool) -> Mixing | KeyedMixing:
    """The rules of a node, or of a shard."""
    made = topology.made(node.name)
    if node.hosts in shards:
        return KeyedMixing([schema(name, True) for name in made], columns, outputs_of(topology, node))
    return Mixing(made, topology.streams if columns else (), bool(shards))


def tree(f: Mapping[str, int], keyed: bool = False) -> Topology:
    """The query tree, with each node's own f; a source and the application stand alone if they are given none."""
    sources = [NodeSpec(f"source_{s}", Role.SOURCE, (), (s,), f.get(f"source_{s}", 0)) for s in ("a", "b", "c")]
    nodes = [
        NodeSpec("X", Role.CORRELATION, ("a", "b"), OUTPUTS["X"], f["X"]),
        NodeSpec("V", Role.CORRELATION, ("b", "c"), OUTPUTS["V"], f["V"]),
        NodeSpec("Y", Role.CORRELATION, ("x1",), OUTPUTS["Y"], f["Y"]),
        NodeSpec("Z", Role.CORRELATION, ("x2", "c"), OUTPUTS["Z"], f["Z"]),
        NodeSpec("W", Role.CORRELATION, ("y", "z", "v"), OUTPUTS["W"], f["W"]),
    ]
    application = NodeSpec("app", Role.APPLICATION, SITUATIONS, (), f.get("app", 0))
    return Topology((*sources, *nodes, application), tuple(schema(name, keyed) for name in STREAMS))


def reference(
    topology: Topology, primary: Mapping[str, Sequence[Event]], shards: Mapping[str, int] | None = None
) -> dict[str, list[Event]]:
    """The perfect run of a tree, in which every node is whole and is fed by streams."""

    def stage(node: NodeSpec) -> Stage:
        made = rules_of(topology, node, shards or {}, columns=False)
        return Stage(topology.inputs(node.name), lambda rows, time: made.feed(rows, time).outputs)

    return perfect_run([stage(node) for node in topology.nodes if node.role is Role.CORRELATION], primary)
