"""A new generation of live replicas: all of them were in memory and are gone, so they are made again from the log.

They begin with its first event. Where retention has cut the log, they begin at the cut, with the states that it kept of
every rule. The application keeps what it has and drops what it gets again, so its position is counted from there, too.

The same is done where rules get another number of shards, whether replicas were in memory or not: each shard then has
other keys.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from unerring.app.application import load
from unerring.app.live_needs import SPARK
from unerring.app.place import Place, Where, place_of
from unerring.correlation import MEMBERSHIP, Role, Topology, founded, moved, node_of
from unerring.log import Chain
from unerring.model import TIME_MIN, ConfigError, Stamp
from unerring.runtime import (
    WANTED,
    Cluster,
    SqliteStorage,
    StoreStorage,
    dotted,
    find,
    free_addresses,
    process_names,
)

if TYPE_CHECKING:
    from unerring.pipeline import Level


def begin_anew(cluster: Cluster, where: Where) -> Cluster:
    """The cluster to go on with: another generation, if the replicas were in memory and nobody of them is left."""
    run = place_of(where)
    folder = run.live
    if cluster.durable or cluster.hosts or not _has_begun(cluster, folder):
        return cluster
    if any(find(folder, name) is not None for name in cluster.names):
        return cluster
    begins_us = _beginning(cluster, run)
    if begins_us > TIME_MIN:
        _move_application(cluster, run, begins_us)
    # Whoever fails in between finds a generation that has begun, and does all of this again.
    for name in cluster.names:
        if _begins_with_the_log(name):
            _remove(folder / f"{dotted(name)}.db")
    topology = founded(cluster.topology)
    renewed = msgspec.structs.replace(
        cluster, topology=topology, generation=cluster.generation + 1, begins_us=begins_us
    )
    renewed.write(folder)
    _remove(folder / WANTED)
    _remove(folder / "membership.db")
    return renewed


def divided_anew(cluster: Cluster, topology: Topology, where: Where) -> Cluster:
    """The cluster of a run that is stopped, with another number of shards: all replicas are made again from the log."""
    run = place_of(where)
    if cluster.hosts or cluster.record or cluster.etcd:
        raise ConfigError(
            f"{run} is on several hosts or on a store, where the number of shards is changed while it runs (unerring "
            f"rescale {run} --shards NODE=N); start it with {_told(cluster.topology)}"
        )
    alive = [name for name in cluster.names if find(run.live, name) is not None]
    if alive:
        raise ConfigError(f"{alive[0]} still runs in {run.live}; stop that run before its rules get other shards")
    begins_us = _beginning(cluster, run)
    _move_application(cluster, run, begins_us)
    applications = [r for node in topology.nodes if node.role is Role.APPLICATION for r in node.replicas]
    for name in cluster.names:
        if name not in applications:
            _remove(run.live / f"{dotted(name)}.db")
    addresses = free_addresses([MEMBERSHIP, *process_names(topology)])
    renewed = msgspec.structs.replace(
        cluster, topology=topology, addresses=addresses, generation=cluster.generation + 1, begins_us=begins_us
    )
    renewed.write(run.live)
    for path in (WANTED, "membership.db"):
        _remove(run.live / path)
    return renewed


def _told(topology: Topology) -> str:
    counts = dict.fromkeys(f"--shards {node.shard_of}={node.shards}" for node in topology.nodes if node.shard_of)
    return " ".join(counts) or "no --shards"


def _has_begun(cluster: Cluster, folder: Path) -> bool:
    """Whether there is a membership record of this generation."""
    if cluster.record:
        return bool(StoreStorage(cluster.record, cluster.place).load())
    return (folder / "membership.db").exists()


def _begins_with_the_log(name: str) -> bool:
    return name.startswith("source_") or node_of(name) == SPARK


def _remove(path: Path) -> None:
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()


def _beginning(cluster: Cluster, run: Place) -> int:
    """The time after which replicas read the log: its beginning, or the last one of which every rule's state was kept,
    if some of it was removed."""
    log = run.log
    base_us = max((log.chain(stream).base.from_us for stream in _read_from_the_log(cluster.topology)), default=TIME_MIN)
    base_us = max(base_us, cluster.begins_us)  # before an upgrade other rules counted
    if cluster.topology.upgrade:
        base_us = max(base_us, _states_after(cluster.topology, run))
    if base_us == TIME_MIN:
        return TIME_MIN
    kept = _kept_times(load(cluster.app).levels(run))
    if not kept or max(kept) < base_us:
        raise ConfigError(
            f"the replicas in {run.live} were in memory only, and the log they were made of was cut at {base_us} "
            f"without states of their rules (in {run.address}/savepoints); run with --durable in another folder, which "
            "survives a restart of everything"
        )
    return max(kept)


def _states_after(topology: Topology, run: Place) -> int:
    """Make the states of all rules at the time at which those of the last upgrade took over, if they are not there."""
    from unerring.app.upgrading import Pending
    from unerring.pipeline import going_on, keep_states, proposal

    proposed = proposal(run.log, topology.upgrade)
    if any(map(topology.is_ending, topology.nodes)) or proposed is None:
        raise ConfigError(
            f"all replicas in {run.live} are gone, and the upgrade of {run} was under way; complete it with `unerring "
            f"upgrade {'NEW:APP' if proposed is None else proposed.app} {run}`, then run that app"
        )
    upgrade = Pending(run, proposed)
    for level in going_on(upgrade.old, upgrade.new):
        keep_states(None, level, upgrade.at_us)
    upgrade.take_over(None)
    return upgrade.at_us


def _kept_times(levels: tuple[Level, ...]) -> set[int]:
    """The times at which the states of all rules were kept."""
    from unerring.pipeline import savepoints

    return set.intersection(*(set(savepoints.times(level)) for level in levels))


def _read_from_the_log(topology: Topology) -> list[str]:
    """The streams that replicas in memory get from the log, by a source or by a driver of Spark."""
    nodes = [node for node in topology.nodes if node.role is Role.SOURCE or node.name == SPARK]
    return [stream for node in nodes for stream in topology.made(node.name) if topology.is_taken(stream)]


def _move_application(cluster: Cluster, run: Place, begins_us: int) -> None:
    """Count the positions of applications from the new beginning."""
    for node in cluster.topology.nodes:
        if node.role is not Role.APPLICATION:
            continue
        for name in node.replicas:
            storage = SqliteStorage(run.live / f"{dotted(name)}.db", encrypted=cluster.topology.secret)
            try:
                records = storage.load()
                chains = [run.log.chain(schema.name) for schema, _ in cluster.topology.inputs(node.name)]
                counts = [partial(_count, chain, begins_us) for chain in chains]
                storage.write(
                    moved(records, chain.name, count, chain.through_us)
                    for chain, count in zip(chains, counts, strict=True)
                )
            finally:
                storage.close()


def _count(chain: Chain, after_us: int, last: Stamp) -> int:
    """How many events of a stream come after a time, up to a stamp."""
    count = 0
    for span in chain.spans(after_us, min(last.time, chain.through_us)) if last.time > after_us else ():
        table = chain.read(max(after_us, span.from_us), min(span.through_us, last.time), None, [])
        beyond = sum(
            event.time == last.time and event.ordinal > last.ordinal
            for event in map(Stamp, table.column("time").to_pylist(), table.column("ordinal").to_pylist())
        )
        count += len(table) - beyond
    return count
