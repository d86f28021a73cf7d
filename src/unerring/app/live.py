"""Running an app in the live gear: one correlation node a rule, f+1 replicas of each, a source a stream.

Sources follow the event log of the run's folder, so both gears see the same events; situations are committed, position
and effect together, in one file.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unerring.app.application import App, load
from unerring.correlation import Application, CorrelationConfig, Hosting, NodeSpec, Replica, Role, Source, Topology
from unerring.correlation.application import committed
from unerring.correlation.messages import MEMBERSHIP, Publish
from unerring.log import EventLog
from unerring.model import TIME_MAX, TIME_MIN, ConfigError, Event
from unerring.runtime.live import Cluster, Host, free_addresses
from unerring.runtime.live import cluster as clusters
from unerring.runtime.storage import SqliteStorage

if TYPE_CHECKING:
    from unerring.rules import Plan

APPLICATION = "situations/0"
LOOK_S = 0.005
PUBLISH_EVENTS = 500


def topology_of(app: App, f: int) -> Topology:
    """One node a rule. Placement never changes stamps, so the simplest one will do."""
    sources = [NodeSpec(f"source_{schema.name}", Role.SOURCE, outputs=(schema.name,)) for schema in app.streams]
    nodes = [
        NodeSpec(
            plan.name,
            Role.CORRELATION,
            tuple(dict.fromkeys(source.schema.name for source in plan.inputs)),
            tuple(schema.name for schema in plan.outputs),
            f,
        )
        for plan in app.plans
    ]
    application = NodeSpec("situations", Role.APPLICATION, tuple(schema.name for schema in app.outputs))
    rules = " ".join(plan.version for plan in app.plans)
    return Topology((*sources, *nodes, application), (*app.streams, *app.outputs), rules)


def make_cluster(address: str, f: int, data: Path, config: CorrelationConfig | None = None) -> Cluster:
    """The cluster of a run's folder; made if it is not there, refused if it is another one."""
    app = load(address)
    topology = topology_of(app, f)
    folder = data / "live"
    if (folder / clusters.FILE).exists():
        found = clusters.read(folder)
        if found.topology.fingerprint() != topology.fingerprint():
            raise ConfigError(f"{folder} belongs to a run with other rules or another f; choose another --data")
        return found
    names = [name for node in topology.nodes for name in node.replicas]
    made = Cluster(
        address, topology, free_addresses([MEMBERSHIP, *names]), config or CorrelationConfig(bound_ahead_us=0)
    )
    log = EventLog(data / "log")
    for schema in app.streams:
        log.create(schema, app.buckets)
    made.write(folder)
    return made


def command(data: Path, name: str) -> list[str]:
    """How a process of the run is started."""
    return [sys.executable, "-m", "unerring.app.live", str(data), name]


def situations(data: Path, stream: str) -> list[Event]:
    """What the live gear has delivered of a stream so far, in order."""
    storage = SqliteStorage(data / "live" / "situations.0.db")
    try:
        return committed(storage.load(f"application/{stream}/"), stream)
    finally:
        storage.close()


async def run_node(data: Path, name: str) -> None:
    """One process of a run: a source, a replica or the application."""
    folder = data / "live"
    cluster = clusters.read(folder)
    node = cluster.topology.node(name.partition("/")[0])
    storage = SqliteStorage(folder / f"{name.replace('/', '.')}.db") if node.role is not Role.CORRELATION else None
    beside = None
    machine: Any
    if node.role is Role.CORRELATION:
        app = load(cluster.app)
        plan = next(plan for plan in app.plans if plan.name == node.name)
        machine = Replica(name, cluster.topology, cluster.config, lambda: _engine(plan), random.Random())
    elif storage is not None and node.role is Role.SOURCE:
        machine = Source(storage.load(), name, cluster.topology, cluster.config)
    elif storage is not None:
        machine = Application(storage.load(), name, cluster.topology, cluster.config)
    host = Host(cluster, name, machine, storage)
    if node.role is Role.SOURCE:
        beside = lambda: _follow(data, load(cluster.app), node.outputs[0], host)  # noqa: E731
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, host.driver.stop, "asked to")
    stopped = await host.run(folder / "status" / f"{name.replace('/', '.')}.json", beside)
    sys.stderr.write(f"{name}: {stopped.why}\n")


def _engine(plan: Plan) -> Hosting:
    from unerring.rules.choice import engine_for

    return Hosting([engine_for(plan)])


async def _follow(data: Path, app: App, stream: str, host: Host) -> None:
    """What the log holds after the source's own position, in whole times, as fast as receivers take it."""
    from unerring.pipeline.feeding import events_of

    schema = next(schema for schema in app.streams if schema.name == stream)
    chain = EventLog(data / "log").create(schema, app.buckets)
    source: Any = host.driver.machine
    queue = source.outgoing.queues[stream]
    done_us = max(queue.progress, chain.base.from_us)
    while True:
        reached_us = chain.refresh()
        if reached_us <= done_us:
            await asyncio.sleep(LOOK_S)
            continue
        for span in chain.spans(done_us, reached_us):
            events = list(events_of(chain.read(max(done_us, span.from_us), span.through_us), schema))
            for first in _cuts(events):
                await _hand_over(host, source, queue, tuple(events[first[0] : first[1]]), TIME_MIN)
            await _hand_over(host, source, queue, (), span.through_us)
            done_us = span.through_us


def _cuts(events: list[Event]) -> list[tuple[int, int]]:
    """Pieces of about `PUBLISH_EVENTS`, none of which ends inside a time."""
    cuts: list[tuple[int, int]] = []
    first = 0
    while first < len(events):
        last = min(first + PUBLISH_EVENTS, len(events))
        while last < len(events) and events[last].stamp.time == events[last - 1].stamp.time:
            last += 1
        cuts.append((first, last))
        first = last
    return cuts


async def _hand_over(host: Host, source: Any, queue: Any, events: tuple[Event, ...], progress: int) -> None:
    while source.full:
        await asyncio.sleep(LOOK_S)
    wanted = events[-1].stamp if events else None
    await host.driver.put("log", Publish(queue.stream, events, min(progress, TIME_MAX)))
    while (wanted is not None and queue.last < wanted) or queue.progress < progress:
        await asyncio.sleep(0)


def main() -> None:
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run_node(Path(sys.argv[1]), sys.argv[2]))


if __name__ == "__main__":
    main()
