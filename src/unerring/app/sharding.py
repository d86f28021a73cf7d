"""How wide the rules of an app are: which nodes of a live run have shards, and which cannot have any."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from unerring.correlation import NodeSpec, Sharding, Topology, sharded
from unerring.model import ConfigError
from unerring.rules import key_types

if TYPE_CHECKING:
    from unerring.app.application import App
    from unerring.rules import Plan


def check_shards(app: App, shards: Mapping[str, int]) -> None:
    """A sentence, if a node cannot have so many shards."""
    for node, count in shards.items():
        if node not in app.nodes:
            raise ConfigError(f"app {app.name}: shards of {node!r}; there are nodes {', '.join(app.nodes)}")
        if not 1 <= count <= app.buckets:
            raise ConfigError(
                f"app {app.name}: {count} shards of {node}; choose between 1 and {app.buckets}, which is the number of "
                "the app's buckets"
            )
        if count > 1:
            _keys(app.name, node, app.nodes[node])


def divided(app: App, topology: Topology, shards: Mapping[str, int]) -> Topology:
    """The topology of an app with shards."""
    check_shards(app, shards)
    there = [node.name for node in topology.nodes]
    wanted = {
        node: Sharding(
            count,
            _keys(app.name, node, app.nodes[node]),
            {schema.name: key_types(plan) for plan in app.nodes[node] for schema in plan.outputs},
        )
        for node, count in shards.items()
        if count > 1 and node in there
    }
    return sharded(topology, wanted) if wanted else topology


def shards_of(nodes: Iterable[NodeSpec]) -> dict[str, int]:
    """Which nodes of a run have shards, and how many."""
    return {node.shard_of: node.shards for node in nodes if node.shard_of}


def _keys(app: str, node: str, plans: Sequence[Plan]) -> dict[str, tuple[str, ...]]:
    """By which columns each stream is cut for a node. ConfigError: it cannot be."""
    keys: dict[str, tuple[str, ...]] = {}
    for plan in plans:
        for source in plan.inputs:
            if not source.key:
                raise ConfigError(
                    f"app {app}: rule {plan.name} has no key, so that all its events belong together and {node} cannot "
                    "have shards; give the rule a key, or leave its shards out"
                )
            if keys.setdefault(source.schema.name, source.key) != source.key:
                raise ConfigError(
                    f"app {app}: {node} reads {source.schema.name} by ({', '.join(keys[source.schema.name])}) and by "
                    f"({', '.join(source.key)}), so that an event would belong to two shards; put rules with different "
                    "keys on different nodes, or leave the shards out"
                )
    return keys
