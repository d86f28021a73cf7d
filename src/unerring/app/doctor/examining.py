"""Which checks concern a run or an application, on this host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from unerring.app.doctor.finding import Finding, error, well
from unerring.app.doctor.machine import machine
from unerring.app.doctor.network import listens, places_of, reaches
from unerring.app.doctor.shared import releases, store
from unerring.app.doctor.trust import certificates, files, folders_of
from unerring.app.owner import owned_here
from unerring.app.place import Place
from unerring.model import UnerringError, verified_json
from unerring.runtime import (
    NODE_PORT,
    PLACES,
    Cluster,
    Places,
    addresses_on,
    cluster,
    find,
    place as placed_by,
    placed_nodes,
)


class Asked(msgspec.Struct, frozen=True):
    """What is to be examined: a run that is there, or an application before its run."""

    place: Place
    app: str = ""
    engine: str = ""
    """Empty: by what is there; before a run, both."""
    f: int = 1
    hosts: Mapping[str, str] = {}
    here: str = ""
    tls: str = ""


def examine(asked: Asked) -> Iterator[Finding]:
    """All that is found, check by check."""
    place = asked.place
    known = _cluster(place)
    spark = asked.engine != "live" if asked.engine or known is None else (place.scratch / "checkpoints").exists()
    hosts = asked.hosts or (known.hosts if known is not None else {})
    yield from machine(place.scratch, spark, several=len(hosts) > 1)
    yield from store(place, asked.here)
    yield from releases(place)
    folders, renewed = folders_of(asked.tls or ("" if known is None else known.tls))
    yield from certificates(folders, renewed or _renews(place))
    yield from files(place.scratch)
    if asked.app:
        yield from _before(asked)
    else:
        yield from _of_run(place, known, asked.here)


def _cluster(place: Place) -> Cluster | None:
    return cluster.read(place.live) if (place.live / cluster.FILE).exists() else None


def _renews(place: Place) -> bool:
    """A run that made its certificates renews them."""
    return bool(owned_here(place)) and (place.live / "tls").is_dir()


def _before(asked: Asked) -> Iterator[Finding]:
    """An application that is to be run: whether it loads, whom it must reach, and where it will listen."""
    from unerring.app.application import load

    try:
        app = load(asked.app)
    except UnerringError as wrong:
        yield error("app", str(wrong))
        return
    yield well("app", f"{asked.app} has {len(app.plans)} rules and {len(app.processes)} processes")
    channels = {f"stream {name} from {url}": url for name, urls in app.channels.items() for url in urls}
    services = {f"service {name}": url for name, url in app.services.items()}
    yield from reaches(places_of({**channels, **services}), up=True)
    if not asked.hosts:
        return
    from unerring.app.live_cluster import topology_of

    everywhere = not asked.place.is_folder
    topology = topology_of(app, asked.f, everywhere=everywhere)
    placed = placed_by(topology, list(asked.hosts))
    addresses = addresses_on(placed, asked.hosts, everywhere)
    own = asked.hosts[asked.here] if asked.here else next(iter(asked.hosts.values()))
    names = list(asked.hosts) if everywhere else list(asked.hosts)[:1]
    for number, (name, host) in enumerate(placed_nodes(asked.f, names).items()) if app.processes else ():
        addresses[f"process node {name}"] = f"{asked.hosts[host]}:{NODE_PORT + number}"
    yield from _both_sides(addresses, own, {})


def _of_run(place: Place, known: Cluster | None, here: str) -> Iterator[Finding]:
    """A run that is there: its ports, its peers, and what its status says is wrong."""
    addresses = dict(known.addresses) if known is not None else {}
    alive = {name: find(place.live, name) is not None for name in addresses}
    running = bool(owned_here(place))
    for name in [] if known is None else known.keepers:
        alive[name] = running
    nodes = place.processes / PLACES
    if nodes.exists():
        ports = verified_json(nodes.read_bytes(), Places, str(nodes)).ports
        addresses |= {f"process node {name}": f"127.0.0.1:{port}" for name, port in ports.items()}
        alive |= {f"process node {name}": find(place.processes, name) is not None for name in ports}
    hosts = {} if known is None else {name: known.addresses[name].rpartition(":")[0] for name in known.hosts}
    own = next((hosts[name] for name, host in known.hosts.items() if host == here), "") if known is not None else ""
    yield from _both_sides(addresses, own, {name: True for name, there in alive.items() if there})
    if running:
        yield from _problems(place)


def _both_sides(addresses: Mapping[str, str], own: str, alive: Mapping[str, bool]) -> Iterator[Finding]:
    """`own`: the address of this host; empty: all are on it. Whoever is alive answers; the others' ports are free."""
    of_own = {name: address for name, address in addresses.items() if address.rpartition(":")[0] == own or not own}
    yield from listens({name: address for name, address in of_own.items() if name not in alive})
    yield from reaches({name: address for name, address in of_own.items() if name in alive}, up=True)
    yield from reaches({name: address for name, address in addresses.items() if name not in of_own}, up=bool(alive))


def _problems(place: Place) -> Iterator[Finding]:
    """What the status document of a run that goes on says is wrong."""
    from unerring.app.status import RunStatus

    problems = RunStatus(place).look()["health"]["problems"]
    for one in problems:
        yield error("run", f"{one['name']}: {one['says']}")
    if not problems:
        yield well("run", f"{place} is running, and its status names no problem")
