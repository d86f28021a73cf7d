"""What live replicas need of a run's past: retention keeps it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec

from unerring.app.place import Place, Where, place_of
from unerring.correlation import (
    STATE_KEY,
    Replica,
    Role,
    Standing,
    Topology,
    handed_after,
    kept_key,
    needs_after,
    node_of,
)
from unerring.model import TIME_MAX, TIME_MIN, protect_json, verified_json
from unerring.runtime import Cluster, cluster as clusters, dotted, keepers, settled

if TYPE_CHECKING:
    from unerring.app.application import App
    from unerring.pipeline import Level, Needs


NEEDS: Final = "needs"
"""On the run's store, where its sources have replicas on several hosts: what each of them may ask the log for."""
TELL_S: Final = 30.0
SPARK: Final = "spark"
"""The node of the rules that run on Spark, if some or all of a supervised run do."""


def rules_on_spark(app: App, topology: Topology) -> tuple[str, ...]:
    """The rules of a run's node on Spark, if it has one."""
    made = [stream for node in topology.nodes if node.name == SPARK for stream in node.outputs]
    return tuple(plan.name for plan in app.plans if all(schema.name in made for schema in plan.outputs))


def needs_of(where: Where) -> Needs:
    """Which part of the log live replicas may ask for, and the states with which they may begin again.

    A source keeps where its queue begins, and a driver of Spark where the queues begin of what it hands to live rules:
    their receivers have what is before. What a file says may be minutes old, which errs on the safe side. Replicas in
    memory that all go begin again with the states of a cut (`generations`).
    """
    from unerring.pipeline import Needs

    run = place_of(where)
    if not (run.live / clusters.FILE).exists():
        return Needs()
    cluster = clusters.read(run.live)
    return Needs(_after(cluster, run), cluster.begins_us)


class Told(msgspec.Struct, frozen=True):
    """What a replica of a source, on whichever host, wrote last on the run's store."""

    after_us: int


async def tell_needs(run: Place, name: str, replica: Replica, durable: bool) -> None:
    """Write down now and then, where all hosts can read it, what a source's replica may ask its log for."""
    [stream] = replica.outgoing.own
    told_us = TIME_MIN - 1
    while True:
        # One in memory that loses all takes it from a peer. On a disk it may go on from an older state.
        kept = settled(run.live / f"{dotted(name)}.db", STATE_KEY) if durable else None
        after_us = handed_after(kept, stream) if durable else replica.outgoing.queues[stream].last.time - 1
        if replica.holding and max(after_us, TIME_MIN) != told_us:
            told_us = max(after_us, TIME_MIN)
            data = protect_json(Told(told_us))
            await asyncio.to_thread(run.store.replace, f"{NEEDS}/{dotted(name)}.json", data)
        await asyncio.sleep(TELL_S)


def _told(run: Place, cluster: Cluster, node: str) -> int:
    """The least that a replica of a source needs, of those that the record has; all, where one has not said it yet."""
    records = [keeper["record"] for keeper in keepers(run.live)]
    newest = max(records, key=lambda record: int(record["version"]))["members"] if records else {}
    after_us = TIME_MAX if newest else TIME_MIN
    for name, member in newest.items():
        if node_of(name) == node and member["standing"] != Standing.GONE:
            told = run.store.read(f"{NEEDS}/{dotted(name)}.json")
            read_us = TIME_MIN if told is None else verified_json(told, Told, name).after_us
            after_us = min(after_us, read_us)
    return after_us


def _after(cluster: Cluster, run: Place) -> dict[str, int]:
    after: dict[str, int] = {}
    for node in cluster.topology.nodes:
        taken = [stream for stream in cluster.topology.made(node.name) if cluster.topology.is_taken(stream)]
        if node.role is Role.SOURCE and not node.stands_alone:
            after.update({stream: _told(run, cluster, node.name) for stream in taken})
            continue
        for name in node.replicas:
            file = run.live / f"{dotted(name)}.db"
            for stream in taken:
                if node.role is Role.SOURCE:
                    needed_us = needs_after(settled(file, kept_key(stream)))
                elif node.name == SPARK:
                    needed_us = handed_after(settled(file, STATE_KEY), stream)
                else:
                    continue
                after[stream] = min(after.get(stream, needed_us), needed_us)
    return after


def retained_levels(app: App, where: Where) -> tuple[Level, ...]:
    """The levels whose states are kept at a cut: those of the app, and where only some rules are on Spark, what its
    drivers run."""
    place = place_of(where)
    levels = app.levels(place)
    if not (place.live / clusters.FILE).exists():
        return levels
    known = {level.name for level in levels}
    rules = rules_on_spark(app, clusters.read(place.live).topology)
    return (*levels, *(level for level in app.levels(place, rules) if level.name not in known))
