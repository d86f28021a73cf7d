"""Decides which process runs on which host. It is simple and replaceable: placement never changes a stamp.

Replicas of a node never share a host. What stands alone goes to the first one, where the log is.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence

from unerring.correlation import MEMBERSHIP, Topology
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


def place(topology: Topology, hosts: Sequence[str]) -> dict[str, str]:
    """The host of every process: replica i of the j-th node on host i + j, around the list."""
    placed: dict[str, str] = {}
    turn = 0
    for node in topology.nodes:
        if node.stands_alone:
            continue
        if node.f >= len(hosts):
            raise ConfigError(
                f"node {node.name} has {node.f + 1} replicas and there are {len(hosts)} hosts; replicas never share "
                "one: name more hosts, or choose a smaller f"
            )
        for number in range(node.f + 1 + SPARES):
            placed[f"{node.name}/{number}"] = hosts[(turn + number) % len(hosts)]
        turn += 1
    return {name: placed.get(name, hosts[0]) for name in process_names(topology)}


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
