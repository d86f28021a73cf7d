"""Decides which process runs on which host, by load and latency. It is replaceable: placement never changes a stamp.

Replicas of a node never share a host, whatever a strategy says. What stands alone goes to the first one, where the log
is. Every host decides for itself, so that a strategy must give the same for the same arguments.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence

import msgspec

from unerring.correlation import MEMBERSHIP, NodeSpec, Topology
from unerring.model import ConfigError

SPARES = 2
"""Further replicas that each node may get while it runs; their addresses are known from the start."""
PORT = 7400
"""The first port on hosts of a list; a process takes the next one, in the order of names."""


def process_names(topology: Topology) -> list[str]:
    """Founding replicas, sources and applications, then spares."""
    names = [name for node in topology.nodes for name in node.replicas]
    spares = [
        f"{node.name}/{node.f + 1 + number}"
        for node in topology.nodes
        if not node.stands_alone
        for number in range(SPARES)
    ]
    return names + spares


class Facts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a placement goes by. What is not known counts as alike."""

    loads: dict[str, float] = {}
    """By node: the events that a replica of it takes in a second."""
    capacities: dict[str, float] = {}
    """By host: how much it can do, measured by the others."""
    latencies_us: dict[tuple[str, str], int] = {}
    """How long a message takes between two hosts, either way."""

    def load(self, node: str) -> float:
        known = list(self.loads.values())
        return self.loads.get(node, sum(known) / len(known) if known else 1.0)

    def latency_us(self, one: str, other: str) -> int:
        return 0 if one == other else self.latencies_us.get((one, other), self.latencies_us.get((other, one), 0))


Strategy = Callable[[Topology, Sequence[str], Facts], Mapping[str, str]]
"""The host of every replica, and of spare ones, by name; what it leaves out is placed by load."""


def balanced(topology: Topology, hosts: Sequence[str], facts: Facts) -> dict[str, str]:
    """Each replica goes where the load is least for what the host can do, and near to the replica of the same number of
    the nodes that it takes streams from: leaders are those of the lowest number, if nothing else tells them apart.

    One unit is a host's fair share of all load, or the longest latency between two hosts. Of equal places the first
    host of the list has it.
    """
    replicated = [node for node in topology.nodes if not node.stands_alone]
    total = sum((node.f + 1) * facts.load(node.name) for node in replicated) or 1.0
    capacity = {host: facts.capacities.get(host, 1.0) for host in hosts}
    farthest_us = max(facts.latencies_us.values(), default=0) or 1
    loads = dict.fromkeys(hosts, 0.0)
    placed: dict[str, str] = {}
    for node in replicated:
        free = list(hosts)
        for number in range(node.f + 1 + SPARES):
            if not free:  # a spare place where a replica was lost
                placed[f"{node.name}/{number}"] = placed[f"{node.name}/{number - len(hosts)}"]
                continue

            def cost(host: str, node: NodeSpec = node, number: int = number) -> float:
                load = (loads[host] + facts.load(node.name)) / capacity[host]
                near = [placed.get(f"{other}/{number}", "") for other in topology.upstream(node.name)]
                apart_us = max((facts.latency_us(host, other) for other in near if other), default=0)
                return load * sum(capacity.values()) / total + apart_us / farthest_us

            chosen = min(free, key=cost)
            free.remove(chosen)
            placed[f"{node.name}/{number}"] = chosen
            if number <= node.f:
                loads[chosen] += facts.load(node.name)
    return placed


def place(
    topology: Topology, hosts: Sequence[str], facts: Facts | None = None, strategy: Strategy = balanced
) -> dict[str, str]:
    """The host of every process, as a strategy has it; ConfigError, if that cannot be."""
    facts = facts or Facts()
    _check_facts(topology, hosts, facts)
    for node in topology.nodes:
        if not node.stands_alone and node.f >= len(hosts):
            raise ConfigError(
                f"node {node.name} has {node.f + 1} replicas and there are {len(hosts)} hosts; replicas never share "
                "one: name more hosts, or choose a smaller f"
            )
    placed = {**balanced(topology, hosts, facts), **strategy(topology, hosts, facts)}
    names = process_names(topology)
    for name, host in placed.items():
        if name not in names or host not in hosts:
            raise ConfigError(f"the placement puts {name} on {host!r}; there are hosts {', '.join(hosts)}")
    for node in topology.nodes:
        chosen = [placed[name] for name in node.replicas if name in placed]
        shared = [host for host in chosen if chosen.count(host) > 1]
        if shared:
            raise ConfigError(
                f"the placement puts two replicas of {node.name} on host {shared[0]}: one failure would take both"
            )
    return {name: placed.get(name, hosts[0]) for name in names}


def _check_facts(topology: Topology, hosts: Sequence[str], facts: Facts) -> None:
    known = [node.name for node in topology.nodes]
    for node, load in facts.loads.items():
        if node not in known or not 0 <= load < float("inf"):
            raise ConfigError(f"load {node}={load}: name one of {', '.join(known)}, and its events in a second")
    for host, capacity in facts.capacities.items():
        if host not in hosts or not 0 < capacity < float("inf"):
            raise ConfigError(f"capacity {host}={capacity}: name one of {', '.join(hosts)}, and a number above 0")
    for (one, other), latency_us in facts.latencies_us.items():
        if one not in hosts or other not in hosts or one == other or latency_us < 0:
            raise ConfigError(f"latency {one}:{other}: name two of {', '.join(hosts)}, and a duration such as 2ms")


def addresses_on(placed: Mapping[str, str], hosts: Mapping[str, str], shared: bool, port: int = PORT) -> dict[str, str]:
    """Ports by counting, the same on every host that has the same list. Where all hosts reach the membership record
    (`shared`: in etcd, on a store) every host has its own keeper; else the first one has it, and the others read it."""
    keepers = {f"{MEMBERSHIP}/{host}": host for host in hosts}
    if not shared:
        first = next(iter(hosts))
        keepers = {MEMBERSHIP: first, **{name: host for name, host in keepers.items() if host != first}}
    everybody = {**keepers, **placed}
    return {name: f"{hosts[host]}:{port + number}" for number, (name, host) in enumerate(everybody.items())}


def free_addresses(names: Sequence[str], host: str = "127.0.0.1") -> dict[str, str]:
    """A free port of this machine for everybody. All are held until all are found, so that none is given twice."""
    held: list[socket.socket] = []
    addresses: dict[str, str] = {}
    try:
        for name in names:
            one = socket.socket()
            one.bind((host, 0))
            held.append(one)
            addresses[name] = f"{host}:{one.getsockname()[1]}"
    finally:
        for one in held:
            one.close()
    return addresses
