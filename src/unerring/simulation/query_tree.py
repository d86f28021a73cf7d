"""The query tree of the scenarios of correlation, and its perfect run.

    sources a, b, c -> X (a, b) -> Y (x1) -> W (y, z, v) -> application (w, v)
                                -> Z (x2, c) -> W
                       V (b, c) -> W, application

Every node is fed by rules whose outputs depend on the whole history in its order, so one event lost, repeated or out of
place changes everything after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from unerring.audit import Stage, perfect_run
from unerring.correlation import NodeSpec, Role, Topology
from unerring.model import Column, ColumnType, Event, StreamSchema
from unerring.simulation.mixing import Mixing


def schema(name: str) -> StreamSchema:
    return StreamSchema(name, (Column("v", ColumnType.INT),))


STREAMS = ("a", "b", "c", "x1", "x2", "v", "y", "z", "w")
OUTPUTS = {"X": ("x1", "x2"), "V": ("v",), "Y": ("y",), "Z": ("z",), "W": ("w",)}
SITUATIONS = ("w", "v")


def tree(f: Mapping[str, int]) -> Topology:
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
    return Topology((*sources, *nodes, application), tuple(schema(name) for name in STREAMS))


def reference(topology: Topology, primary: Mapping[str, Sequence[Event]]) -> dict[str, list[Event]]:
    """The perfect run of a tree, in which every node is fed by streams."""

    def stage(node: NodeSpec) -> Stage:
        return Stage(topology.inputs(node.name), lambda rows, time: Mixing(node.outputs).feed(rows, time).outputs)

    return perfect_run([stage(node) for node in topology.nodes if node.role is Role.CORRELATION], primary)
