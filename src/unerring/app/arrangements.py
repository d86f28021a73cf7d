"""On the store of a run with several hosts: which nodes there are from one step of an upgrade to the next, and where.

Each step is one object, created if absent. Whoever comes first writes it, and all hosts go by it: those that are there
when they look next, one that comes back, and one that comes with nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from unerring.app.place import Place
from unerring.app.planning import placed_in_flight
from unerring.correlation import Topology, is_keeper, node_of
from unerring.model import TIME_MIN, protect_json, verified_json
from unerring.runtime import Cluster, process_names

FOLDER: Final = "arrangements"
BESIDE: Final = "beside"
"""The step in which the new nodes stand beside the old ones."""
ALONE: Final = "alone"
"""The step in which the old ones have gone."""


class Arrangement(msgspec.Struct, frozen=True):
    """What of a cluster is the same on all hosts."""

    topology: Topology
    addresses: dict[str, str]
    hosts: dict[str, str]
    named: str
    begins_us: int = TIME_MIN

    def applied(self, cluster: Cluster) -> Cluster:
        return msgspec.structs.replace(
            cluster,
            topology=self.topology,
            addresses=self.addresses,
            hosts=self.hosts,
            named=self.named,
            begins_us=self.begins_us,
        )


def written(run: Place, number: int, step: str) -> Arrangement | None:
    """What was agreed for a step of an upgrade."""
    name = _name(number, step)
    data = run.store.read(name)
    return None if data is None else verified_json(data, Arrangement, run.store.locate(name))


def newest(run: Place) -> Arrangement | None:
    """What counts now; None: the run has the nodes that it began with."""
    from unerring.pipeline import current, proposals

    if run.is_folder:
        return None
    begun = current(run.log)
    for proposed in reversed(proposals(run.log)):
        for step in (ALONE, BESIDE) if proposed.prepared else ():
            found = written(run, proposed.number, step)
            if found is not None:
                return found
        if begun is not None and proposed.number == begun.number:
            return None  # it took over while the run was stopped
    return None


def agree(run: Place, step: str, cluster: Cluster) -> Cluster:
    """The cluster in a step of an upgrade: this one, unless another host had another one before."""
    number = cluster.topology.upgrade
    proposed = Arrangement(
        cluster.topology, dict(cluster.addresses), dict(cluster.hosts), cluster.place, cluster.begins_us
    )
    run.store.create(_name(number, step), protect_json(proposed))
    agreed = written(run, number, step)
    return (agreed or proposed).applied(cluster)


def placed(
    run: Place, cluster: Cluster, topology: Topology, say: Callable[[str], Any] = lambda _: None
) -> Mapping[str, str]:
    """The hosts of processes that come. Those of a node that takes over from another are where that one's are."""
    anew = placed_in_flight(run, topology, list(dict.fromkeys(cluster.hosts.values())), say)
    before = {node.part or node.name: node for node in cluster.topology.nodes}
    found: dict[str, str] = {}
    for name in process_names(topology):
        if name in cluster.addresses:
            continue
        node = topology.node(node_of(name))
        old = before.get(node.part)
        where = "" if old is None or old.f != node.f else f"{old.name}/{name.rpartition('/')[2]}"
        found[name] = cluster.hosts.get(where, anew[name])
    return found


def addresses_of(cluster: Cluster, coming: Mapping[str, str]) -> dict[str, str]:
    """The next ports, the same on every host."""
    own = {cluster.hosts[name]: address.rpartition(":")[0] for name, address in cluster.addresses.items()}
    last = max(int(address.rpartition(":")[2]) for address in cluster.addresses.values())
    return {name: f"{own[host]}:{last + number}" for number, (name, host) in enumerate(coming.items(), 1)}


def left_of(cluster: Cluster, topology: Topology) -> Cluster:
    """Without the processes of nodes that have gone."""
    names = process_names(topology)
    addresses = {n: address for n, address in cluster.addresses.items() if n in names or is_keeper(n)}
    hosts = {name: host for name, host in cluster.hosts.items() if name in addresses}
    return msgspec.structs.replace(cluster, topology=topology, addresses=addresses, hosts=hosts)


def _name(number: int, step: str) -> str:
    return f"{FOLDER}/{number:06d}-{step}.json"
