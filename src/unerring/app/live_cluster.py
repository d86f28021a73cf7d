"""The cluster of a live run on one host: the nodes of its app, where its processes listen, and what they show.

It is made when a run begins, and gone on with when it is started again; a run that is another one is refused. Where
nodes came and went with an upgrade, the run has those it has now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from unerring.app import arrangements
from unerring.app.application import App, load
from unerring.app.generations import divided_anew
from unerring.app.live_needs import SPARK
from unerring.app.place import Place, Where, place_of
from unerring.app.planning import PlacementOptions, agreed
from unerring.app.sharding import divided, shards_of
from unerring.app.upgraded import TREE, set_aside, upgraded_us
from unerring.correlation import (
    MEMBERSHIP,
    CorrelationConfig,
    NodeSpec,
    Role,
    Topology,
    after_of,
    before_of,
    is_keeper,
    is_that,
)
from unerring.model import TIME_MIN, Actor, ConfigError, protect_json, run_name, verified_json
from unerring.rules import part_of
from unerring.runtime import (
    Cluster,
    addresses_on,
    cluster as clusters,
    dotted,
    free_addresses,
    has_ca,
    process_names,
)

if TYPE_CHECKING:
    from unerring.app.options import RunOptions

TLS = "tls"
"""The folder with a certificate for each process, where this host can make them."""
SECRET = "secret"
"""The file with the secret that the live processes of this run prove to know to each other."""


def topology_of(
    app: App,
    f: int,
    on_spark: Sequence[str] = (),
    everywhere: bool = False,
    shards: Mapping[str, int] | None = None,
) -> Topology:
    """The nodes that the app names, with their own f, for every other rule one; and one for all rules `on_spark`, which
    takes no streams: its engine reads the log on its own, and seals what it makes. Placement never changes stamps.
    `everywhere`: all hosts reach the log, so that sources and the application have f+1 replicas, too. `shards`: instead
    of the app's own."""
    ends_f = f if everywhere else 0
    live = [plan for plan in app.plans if plan.name not in on_spark]
    taken = {source.schema.name for plan in live for source in plan.inputs}
    streams = [schema.name for schema in app.streams if schema.name in taken or not on_spark]
    sources = [NodeSpec(f"source_{name}", Role.SOURCE, (), (name,), ends_f) for name in streams]
    hosted = {name: [plan for plan in plans if plan in live] for name, plans in app.nodes.items()}
    parts = [part_of(name, plans) for name, plans in hosted.items() if plans]
    nodes = [
        NodeSpec(part.name, Role.CORRELATION, part.inputs, part.outputs, app.f.get(part.name, f)) for part in parts
    ]
    if on_spark:
        made = tuple(schema.name for plan in app.plans if plan.name in on_spark for schema in plan.outputs)
        nodes.append(NodeSpec(SPARK, Role.CORRELATION, (), made, f))
    if live:
        delivered = tuple(schema.name for plan in live for schema in plan.outputs)
        nodes.append(NodeSpec("situations", Role.APPLICATION, delivered, (), ends_f))
    rules = " ".join(plan.version for plan in app.plans)
    ranks = app.ranks
    ranked = sorted((*app.streams, *app.outputs), key=lambda schema: ranks[schema.name])
    whole = Topology((*sources, *nodes), tuple(ranked), rules)
    return divided(app, whole, app.shards if shards is None else shards)


def make_cluster(
    address: str,
    f: int,
    where: Where,
    config: CorrelationConfig | None = None,
    *,
    durable: bool = False,
    tls: str = "",
    tls_hours: int | None = None,
    policy: str = "",
    hosts: Mapping[str, str] | None = None,
    placement: PlacementOptions | None = None,
    etcd: Sequence[str] = (),
    on_spark: Sequence[str] = (),
    shards: Mapping[str, int] | None = None,
) -> Cluster:
    """The cluster of a run; made if it is not there, refused if it is another one. `shards`: of some nodes, where that
    is not as the app says."""
    app = load(address)
    run = place_of(where)
    wanted = {**app.shards, **(shards or {})}
    everywhere = bool(hosts) and not run.is_folder

    def divided_by(shards: Mapping[str, int]) -> Topology:
        return topology_of(app, f, on_spark, everywhere, shards)

    topology = divided_by(wanted)
    for name in shards or {}:
        if all(node.hosts != name for node in topology.nodes):
            raise ConfigError(f"--shards {name}: it runs on Spark, where keys are in partitions; name it with --live")
    arranged = arrangements.newest(run) if hosts else None
    exists = (run.live / clusters.FILE).exists()
    if arranged is not None or exists:
        found = clusters.read(run.live).topology if arranged is None else arranged.topology
        topology = _as_changed(found, divided_by, list(app.nodes)) or topology
    upgraded = None if arranged is not None or _goes_on(run, topology) else upgraded_us(run, app)
    if upgraded is not None:
        set_aside(run, upgraded)
    if exists and (run.live / clusters.FILE).exists():
        existing = known = clusters.read(run.live)
        if arranged is not None:
            existing = msgspec.structs.replace(arranged.applied(existing), app=address)
        as_before = divided_by(shards_of(existing.topology.nodes))
        if existing.topology.fingerprint() == as_before.fingerprint() != topology.fingerprint():
            existing = known = divided_anew(existing, topology, run)
        _check_that(run, existing.topology, topology)
        if (existing.durable, bool(existing.tls), existing.etcd) != (durable, bool(tls), tuple(etcd)):
            raise ConfigError(
                f"{run.live} belongs to a run with other --durable, --tls or --etcd; choose another --data"
            )
        _check_hosts(existing, hosts or {})
        changed = msgspec.structs.replace(existing, config=config or existing.config, policy=policy)
        changed = _moved_to(changed, run.live, tls)
        if tls and has_ca(tls):
            _certify(Path(changed.tls), Path(tls), changed.addresses, run_name(app.name), tls_hours)
        if changed != known:
            changed.write(run.live)
        return changed
    if arranged is None:
        addresses, placed = _laid_out(run, topology, hosts, placement, shared=bool(etcd) or not run.is_folder)
    else:
        _check_that(run, arranged.topology, topology)
        addresses, placed = arranged.addresses, arranged.hosts
    certificates = tls
    if tls and has_ca(tls):
        certificates = str(run.live / TLS)
        _certify(Path(certificates), Path(tls), addresses, run_name(app.name), tls_hours)
    made = Cluster(
        app=address,
        topology=topology,
        addresses=addresses,
        config=config or CorrelationConfig(bound_ahead_us=0),
        durable=durable,
        tls=certificates,
        policy=policy,
        secret="" if tls or hosts else str(run.live / SECRET),
        etcd=tuple(etcd),
        record="" if run.is_folder or etcd else run.address,
        hosts=placed,
        begins_us=TIME_MIN if upgraded is None else upgraded,
    )
    if arranged is not None:
        made = arranged.applied(made)
        _check_hosts(made, hosts or {})
    for schema in (*app.streams, *app.outputs):
        if run.log.declaration(schema.name) is None or arranged is None:
            run.log.create(schema, app.buckets)
    made.write(run.live)
    return made


def _moved_to(known: Cluster, folder: Path, tls: str) -> Cluster:
    """With its secret and certificates in a folder that may be another one than it was made in: a restored one."""
    secret = str(folder / SECRET) if known.secret else ""
    certificates = str(folder / TLS) if known.tls and has_ca(tls) else known.tls
    return msgspec.structs.replace(known, secret=secret, tls=certificates)


def _laid_out(
    run: Place,
    topology: Topology,
    hosts: Mapping[str, str] | None,
    placement: PlacementOptions | None,
    shared: bool,
) -> tuple[dict[str, str], dict[str, str]]:
    """Where every process of a run that begins listens, and on which host, if it is on several."""
    _agree(run, topology)
    if not hosts:
        return free_addresses([MEMBERSHIP, *process_names(topology)]), {}
    placed = dict(agreed(run, topology, hosts, placement or PlacementOptions()))
    addresses = addresses_on(placed, hosts, shared)
    placed |= {name: name.partition("/")[2] or next(iter(hosts)) for name in addresses if is_keeper(name)}
    return addresses, placed


def _check_that(run: Place, existing: Topology, wanted: Topology) -> None:
    """A run has the nodes that its app has."""
    if not is_that(existing, wanted):
        raise ConfigError(
            f"{run.live} belongs to a run with other rules, another f, another engine or an older release's order of "
            "streams at equal times; choose another --data"
        )


def _check_hosts(existing: Cluster, hosts: Mapping[str, str]) -> None:
    """A run keeps its hosts: the record is kept by where everybody listens."""
    known = {existing.hosts[name]: address.rpartition(":")[0] for name, address in existing.addresses.items() if hosts}
    if any(known.get(host, address) != address for host, address in hosts.items()) or not set(known) <= set(hosts):
        listed = " ".join(f"--host {host}={address}" for host, address in known.items())
        raise ConfigError(f"this run has other hosts; give the same list ({listed}), or choose another --data")


def _as_changed(
    found: Topology, divided_by: Callable[[Mapping[str, int]], Topology], nodes: Sequence[str]
) -> Topology | None:
    """The topology of an app whose run was changed while it ran: the number of shards that was agreed on then counts,
    whatever the command says that starts it again."""
    for there in (before_of(found), after_of(found)) if found.origin else ():
        topology = divided_by({node: count for node, count in shards_of(there).items() if node in nodes})
        if is_that(found, topology):
            return topology
    return None


def _goes_on(run: Place, topology: Topology) -> bool:
    """Whether the replicas of a run have the nodes of its app: it was upgraded while it ran, or not at all."""
    from unerring.pipeline import pending

    if not (run.live / clusters.FILE).exists():
        return False
    existing = clusters.read(run.live).topology
    ending = any(map(existing.is_ending, existing.nodes))
    return bool(existing.upgrade) and is_that(existing, topology) and (not ending or pending(run.log) is not None)


def _agree(run: Place, topology: Topology) -> None:
    """The query tree of a run's live nodes is fixed on its store: a host that comes later, or comes back with nothing,
    must not seal what other rules made."""
    if run.is_folder:
        return  # the cluster file in it says so
    run.store.create(TREE, protect_json(topology.fingerprint()))
    known = verified_json(run.store.read(TREE) or b"", str, run.store.locate(TREE))
    if known != topology.fingerprint():
        raise ConfigError(
            f"{run} belongs to a run with other rules, another f, another engine or an older release's order of "
            "streams at equal times; choose another --data"
        )


def certify(cluster: Cluster, options: RunOptions, app: str) -> None:
    """Certificates for the processes of a run that have none yet, if the CA's key is here. Those of another host show
    that host's own."""
    if cluster.tls and has_ca(options.tls):
        _certify(Path(cluster.tls), Path(options.tls), cluster.addresses, run_name(app), options.tls_hours)


def _certify(folder: Path, ca: Path, addresses: Mapping[str, str], run: str, hours: int | None) -> None:
    """A certificate for every process, signed by the CA of a folder that `unerring certs` made."""
    from unerring.runtime import make_certificates

    for name, address in addresses.items():
        if not (folder / dotted(name)).exists():
            names = [dotted(name), address.rpartition(":")[0]]
            make_certificates(folder / dotted(name), names, ca=ca, roles=[Actor.REPLICA], run=run, hours=hours)
