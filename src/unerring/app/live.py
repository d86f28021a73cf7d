"""Running an app on the live engine: one correlation node a rule, f+1 replicas of each, a source a stream.

Sources follow the event log of the run's folder, so both engines see the same events. Situations are committed,
position and effect together, in one file, and sealed into the same log from there.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import signal
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from unerring.app.application import App, load
from unerring.app.births import Birth
from unerring.app.following import PAUSE_S_MAX, Following, to_replica, to_source
from unerring.app.generations import divided_anew
from unerring.app.live_needs import SPARK, tell_needs
from unerring.app.live_rules import LiveRules, agreed_switch
from unerring.app.live_sealer import SEAL_S, LiveSealer
from unerring.app.place import Place, Where, place_of
from unerring.app.planning import PlacementOptions, agreed
from unerring.app.rearranging import is_that
from unerring.app.sharding import divided, shards_of
from unerring.app.shared_sealer import SharedSealer
from unerring.app.traced_rules import traced
from unerring.app.upgraded import TREE, set_aside, upgraded_us
from unerring.correlation import (
    MEMBERSHIP,
    Application,
    CorrelationConfig,
    Hosting,
    NodeSpec,
    Replica,
    Role,
    Source,
    Topology,
    is_keeper,
    node_of,
    outputs_of,
)
from unerring.log import BadEvent, Quarantine, Reason
from unerring.matching import Quarantined, owns
from unerring.model import (
    TIME_MIN,
    Actor,
    CallerError,
    ConfigError,
    LogError,
    UnerringError,
    WorldError,
    protect_json,
    run_name,
    verified_json,
)
from unerring.rules import key_types, part_of
from unerring.runtime import (
    EXIT_FINAL,
    Cluster,
    Host,
    SqliteStorage,
    addresses_on,
    cluster as clusters,
    dotted,
    free_addresses,
    has_ca,
    process_names,
)
from unerring.tracing import call_me

if TYPE_CHECKING:
    from unerring.rules import Plan

ASKED = "asked to"
"""Why a process stops that was asked to."""
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
    topology = topology_of(app, f, on_spark, everywhere, wanted)
    for name in shards or {}:
        if all(node.hosts != name for node in topology.nodes):
            raise ConfigError(f"--shards {name}: it runs on Spark, where keys are in partitions; name it with --live")
    folder = run.live
    upgraded = None if _goes_on(run, topology) else upgraded_us(run, app)
    if upgraded is not None:
        set_aside(run, upgraded)
    if (folder / clusters.FILE).exists():
        existing = clusters.read(folder)
        as_before = topology_of(app, f, on_spark, everywhere, shards_of(existing.topology))
        if existing.topology.fingerprint() == as_before.fingerprint() != topology.fingerprint():
            existing = divided_anew(existing, topology, run)
            if existing.tls and has_ca(tls):
                _certify(Path(existing.tls), Path(tls), existing.addresses, app.name, tls_hours)
        if not is_that(existing.topology, topology):
            raise ConfigError(
                f"{folder} belongs to a run with other rules, another f, another engine or an older release's order of "
                "streams at equal times; choose another --data"
            )
        changed = msgspec.structs.replace(existing, config=config or existing.config, policy=policy)
        if changed != existing:
            existing = changed
            existing.write(folder)
        if (existing.durable, bool(existing.tls), existing.etcd) != (durable, bool(tls), tuple(etcd)):
            raise ConfigError(f"{folder} belongs to a run with other --durable, --tls or --etcd; choose another --data")
        _check_hosts(existing, hosts or {})
        return existing
    record = "" if run.is_folder or etcd else run.address
    _agree(run, topology)
    placed = dict(agreed(run, topology, hosts, placement or PlacementOptions())) if hosts else {}
    if hosts:
        addresses = addresses_on(placed, hosts, bool(etcd or record))
        placed |= {name: name.partition("/")[2] or next(iter(hosts)) for name in addresses if is_keeper(name)}
    else:
        addresses = free_addresses([MEMBERSHIP, *process_names(topology)])
    certificates = tls
    if tls and has_ca(tls):
        certificates = str(folder / "tls")
        _certify(Path(certificates), Path(tls), addresses, run_name(app.name), tls_hours)
    made = Cluster(
        app=address,
        topology=topology,
        addresses=addresses,
        config=config or CorrelationConfig(bound_ahead_us=0),
        durable=durable,
        tls=certificates,
        policy=policy,
        secret="" if tls or hosts else str(folder / SECRET),
        etcd=tuple(etcd),
        record=record,
        hosts=placed,
        begins_us=TIME_MIN if upgraded is None else upgraded,
    )
    log = run.log
    for schema in (*app.streams, *app.outputs):
        log.create(schema, app.buckets)
    made.write(folder)
    return made


def _check_hosts(existing: Cluster, hosts: Mapping[str, str]) -> None:
    """A run keeps its hosts: the record is kept by where everybody listens."""
    known = {existing.hosts[name]: address.rpartition(":")[0] for name, address in existing.addresses.items() if hosts}
    if any(known.get(host, address) != address for host, address in hosts.items()) or not set(known) <= set(hosts):
        listed = " ".join(f"--host {host}={address}" for host, address in known.items())
        raise ConfigError(f"this run has other hosts; give the same list ({listed}), or choose another --data")


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


def _certify(folder: Path, ca: Path, addresses: Mapping[str, str], run: str, hours: int | None) -> None:
    """A certificate for every process, signed by the CA of a folder that `unerring certs` made."""
    from unerring.runtime import make_certificates

    for name, address in addresses.items():
        if not (folder / dotted(name)).exists():
            names = [dotted(name), address.rpartition(":")[0]]
            make_certificates(folder / dotted(name), names, ca=ca, roles=[Actor.REPLICA], run=run, hours=hours)


def command(where: Where, name: str) -> list[str]:
    """How a process of the run is started."""
    run = place_of(where)
    return [sys.executable, "-m", "unerring.app.live", run.address, str(run.scratch), name]


async def run_node(run: Place, name: str) -> None:
    """One process of a run: a source, a replica or the application."""
    folder = run.live
    cluster = clusters.read(folder)
    call_me(name)
    app = load(cluster.app)
    node = cluster.topology.node(node_of(name))
    storage = SqliteStorage(folder / f"{dotted(name)}.db") if node.stands_alone or cluster.durable else None
    records = None if storage is None else storage.load()
    beside: Any = None
    deliver: Any = None
    birth: Birth | None = None
    machine: Any
    sealer: LiveSealer | SharedSealer
    made = cluster.topology.made(node.name)
    spread = max([1, *(part.of for part in cluster.topology.parts if part.is_cut and part.stream in made)])
    if not node.stands_alone and node.role is not Role.CORRELATION:
        machine = Replica(name, cluster.topology, cluster.config, None, random.Random(), records)
        following = Following(run.log, made, to_replica, run.look_s(PAUSE_S_MAX), cluster.begins_us, spread)
        deliver = following.deliver
        if node.role is Role.APPLICATION:
            sealer = SharedSealer(run.log, app, machine, run.look_s(SEAL_S))
    elif node.role is Role.CORRELATION:
        rules, comes = LiveRules(run, app), cluster.topology.is_coming(node)
        make = partial(_engine, rules.plans(node, cluster.topology), app, run, cluster, node)
        leads = lambda: machine.election.leading  # noqa: E731
        machine = Replica(
            name, cluster.topology, cluster.config, lambda: traced(make(), leads), random.Random(), records
        )
        deliver = _quarantine(run)
        birth = Birth(run, cluster.topology, node, rules, deliver) if comes else None
        deliver = deliver if birth is None else birth.deliver
    elif node.role is Role.SOURCE:
        machine = Source(records or {}, name, cluster.topology, cluster.config, follows=True)
        pause_s = run.look_s(PAUSE_S_MAX)
        following = Following(run.log, made, to_source, pause_s, cluster.begins_us, spread, agreed_switch)
        deliver = following.deliver
    else:
        machine = Application(records or {}, name, cluster.topology, cluster.config)
        sealer = LiveSealer(run, app, machine, records or {}, run.look_s(SEAL_S))
        deliver = sealer.deliver
    host = Host(cluster, name, machine, storage, deliver)
    if birth is not None:
        birth.host = host
    if node.role is Role.SOURCE and not node.stands_alone:
        telling = partial(tell_needs, run, name, machine, cluster.durable)
        beside = lambda: asyncio.gather(following.run(host.driver), telling())  # noqa: E731
    elif node.role is Role.SOURCE:
        beside = lambda: following.run(host.driver)  # noqa: E731
    elif node.role is Role.APPLICATION:
        beside = lambda: sealer.run(host)  # noqa: E731
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, host.driver.stop, ASKED)
    stopped = await host.run(folder / "status" / f"{dotted(name)}.json", beside)
    if stopped.why != ASKED:
        raise WorldError(stopped.why)
    sys.stderr.write(f"{name}: {ASKED}\n")


def _engine(plans: Sequence[Plan], app: App, run: Place, cluster: Cluster, node: NodeSpec) -> Hosting:
    """The rules of a node, or of a shard, as they stand where this generation of replicas began."""
    from unerring.matching import matcher_for
    from unerring.runtime import submit

    matchers = [matcher_for(plan, submit) for plan in plans]
    begins_us = TIME_MIN if cluster.topology.is_coming(node) else cluster.begins_us
    if begins_us > TIME_MIN:
        from unerring.pipeline import savepoints

        levels = app.levels(run)
        for matcher in matchers:
            states = savepoints.states_of(levels, matcher.plan.name, begins_us)
            keep = partial(owns, key_types(matcher.plan), node.shard, node.shards) if node.shard_of else None
            matcher.restore_from([[state] for state in states], keep)
    return Hosting(matchers, outputs_of(cluster.topology, node))


def _quarantine(run: Place) -> Any:
    """Keep what a rule could not digest beside its output stream, as the pipeline does: all replicas write the same
    file, named by what is in it."""
    store = run.log.store

    def deliver(what: Any) -> None:
        if isinstance(what, Quarantined):
            event = what.event
            raw = msgspec.json.encode(event)
            bad = BadEvent(event.stream, event.stamp.time, event.stamp.ordinal, Reason.RULE, what.reason, raw)
            Quarantine(store, what.rule).add([bad])

    return deliver


def main() -> None:
    # Events are many and in no circles: looking for circles among them all the time would cost more than the events.
    gc.set_threshold(200_000, 50, 1000)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(run_node(Place(sys.argv[1], Path(sys.argv[2])), sys.argv[3]))
    except UnerringError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(EXIT_FINAL if isinstance(error, CallerError | LogError) else 1) from None


if __name__ == "__main__":
    main()
