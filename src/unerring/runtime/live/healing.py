"""Decides where a replica is started in place of one that was evicted. No host decides for another.

Every supervisor reads the same record and makes the same list of places. The first place is taken at once. The host of
the next one waits a while, and takes its own only if the node still lacks a replica then: the first host may be gone.
Two that start one at the same time cost a replica too many, and nothing else.
"""

from __future__ import annotations

from collections.abc import Collection

from unerring.correlation import NodeSpec, Record, Standing, node_of
from unerring.model import SECOND_US
from unerring.runtime.live.cluster import Cluster

TURN_S = 5.0
"""How long the host of a place waits for the one before it."""


class Healing:
    """The part of one host."""

    def __init__(self, cluster: Cluster, host: str) -> None:
        self._cluster = cluster
        self._host = host
        self._since_s: dict[str, float] = {}
        """By node that lacks a replica: when this supervisor noticed."""

    def due(self, record: Record, running: Collection[str], now_s: float) -> list[str]:
        """The replicas to start here now. `running`: those that this host keeps running anyway."""
        own = self._cluster.on(self._host)
        names: list[str] = []
        for node in self._cluster.topology.nodes:
            if not lacks_one(self._cluster, record, node.name) and not self._waits(record, node):
                self._since_s.pop(node.name, None)
                continue
            since_s = self._since_s.setdefault(node.name, now_s)
            if self._waits(record, node):
                since_s += self._cluster.config.evict_after_us / SECOND_US
                if now_s < since_s:
                    continue
            free = [name for name in places(self._cluster, record, node.name) if name not in running]
            turns = int((now_s - since_s) / TURN_S) + 1
            mine = [name for name in free[:turns] if name in own]
            if mine:
                names.append(mine[0])
                self._since_s[node.name] = now_s  # The next one has its time to join, too.
        return names

    def _waits(self, record: Record, node: NodeSpec) -> bool:
        """Whether a node came with an upgrade, and one of its first replicas never did: its host may be gone."""
        cluster = self._cluster
        if not cluster.config.evict_after_us or not cluster.topology.is_coming(node) or not node.watched:
            return False
        known = [name for name in record.members if node_of(name) == node.name]
        return len(known) <= node.f and any(name not in known for name in node.replicas)


def lacks_one(cluster: Cluster, record: Record, node: str) -> bool:
    """Whether a node has fewer replicas than it was given, because one was lost, and one that a newcomer can take its
    state from. What an operator removes is not made up for."""
    spec = cluster.topology.node(node)
    members = record.of(node)
    if not spec.watched or len(members) > spec.f:
        return False
    if not any(member.lost for name, member in record.members.items() if node_of(name) == node):
        return False
    return any(member.standing is Standing.CAUGHT_UP for member in members.values())


def places(cluster: Cluster, record: Record, node: str) -> list[str]:
    """The names under which a node may get a replica, on hosts that have none of it: unused ones first, then those of
    replicas that are gone."""
    members = record.of(node)
    taken = {cluster.hosts[name] for name in members if name in cluster.hosts}
    names = [name for name in cluster.names if node_of(name) == node and name not in members]
    free = [name for name in names if cluster.hosts.get(name) not in taken]
    return sorted(free, key=lambda name: name in record.members)
