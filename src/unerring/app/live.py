"""Running an app on the live engine: one correlation node a rule, f+1 replicas of each, a source a stream.

Sources follow the event log of the run's folder, so both engines see the same events. Situations are committed,
position and effect together, in one file, and sealed into the same log from there.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from unerring.app.application import App, load
from unerring.app.births import Birth
from unerring.app.following import PAUSE_S_MAX, Following, to_replica, to_source
from unerring.app.live_needs import tell_needs
from unerring.app.live_rules import LiveRules, agreed_switch
from unerring.app.live_sealer import SEAL_S, LiveSealer
from unerring.app.place import Place, Where, place_of
from unerring.app.shared_sealer import SharedSealer
from unerring.app.traced_rules import traced
from unerring.correlation import (
    Application,
    Hosting,
    NodeSpec,
    Replica,
    Role,
    Source,
    node_of,
    outputs_of,
)
from unerring.log import BadEvent, Quarantine, Reason
from unerring.matching import Quarantined, owns
from unerring.model import (
    TIME_MIN,
    CallerError,
    LogError,
    UnerringError,
    WorldError,
)
from unerring.rules import key_types
from unerring.runtime import (
    EXIT_FINAL,
    Cluster,
    Host,
    SqliteStorage,
    cluster as clusters,
    collect_seldom,
    dotted,
    own_log,
)
from unerring.tracing import call_me

if TYPE_CHECKING:
    from unerring.rules import Plan

ASKED = "asked to"
"""Why a process stops that was asked to."""


def command(where: Where, name: str) -> list[str]:
    """How a process of the run is started."""
    run = place_of(where)
    return [sys.executable, "-m", "unerring.app.live", run.address, str(run.scratch), name]


async def run_node(run: Place, name: str) -> None:
    """One process of a run: a source, a replica or the application."""
    folder = run.live
    cluster = clusters.read(folder)
    call_me(name)
    own_log.run, own_log.role = run.address, name
    app = load(cluster.app)
    node = cluster.topology.node(node_of(name))
    kept = node.stands_alone or cluster.durable
    storage = SqliteStorage(folder / f"{dotted(name)}.db", encrypted=cluster.topology.secret) if kept else None
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
        pause_s = run.look_s(PAUSE_S_MAX)
        following = Following(run.log, made, to_replica, pause_s, cluster.begins_us, spread, agreed_switch)
        deliver = following.deliver
        if node.role is Role.APPLICATION:
            sealer = SharedSealer(run.log, app, machine, run.look_s(SEAL_S))
    elif node.role is Role.CORRELATION:
        rules, comes = LiveRules(run.log, app), cluster.topology.is_coming(node)
        make = partial(_engine, rules.plans(node, cluster.topology), app, run, cluster, node)
        led = lambda: machine.election.led  # noqa: E731
        machine = Replica(name, cluster.topology, cluster.config, lambda: traced(make(), led), random.Random(), records)
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
    own_log.say(f"{name}: {ASKED}")


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
    collect_seldom()
    try:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(run_node(Place(sys.argv[1], Path(sys.argv[2])), sys.argv[3]))
    except UnerringError as error:
        own_log.say(str(error), "error")
        raise SystemExit(EXIT_FINAL if isinstance(error, CallerError | LogError) else 1) from None


if __name__ == "__main__":
    main()
