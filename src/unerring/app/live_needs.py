"""What live replicas need of a run's past: retention keeps it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unerring.app.live import SPARK, rules_on_spark
from unerring.app.place import Where, place_of
from unerring.correlation import STATE_KEY, Role, handed_after, kept_key, needs_after
from unerring.runtime import Cluster, cluster as clusters, dotted, settled

if TYPE_CHECKING:
    from pathlib import Path

    from unerring.app.application import App
    from unerring.pipeline import Level, Needs


def needs_of(where: Where) -> Needs:
    """Which part of the log live replicas may ask for, and the states with which they may begin again.

    A source keeps where its queue begins, and a driver of Spark where the queues begin of what it hands to live rules:
    their receivers have what is before. What a file says may be minutes old, which errs on the safe side. Replicas in
    memory that all go begin again with the states of a cut (`generations`).
    """
    from unerring.pipeline import Needs

    folder = place_of(where).live
    if not (folder / clusters.FILE).exists():
        return Needs()
    cluster = clusters.read(folder)
    return Needs(_after(cluster, folder), cluster.begins_us)


def _after(cluster: Cluster, folder: Path) -> dict[str, int]:
    after: dict[str, int] = {}
    for node in cluster.topology.nodes:
        taken = [stream for stream in node.outputs if cluster.topology.takers(stream)]
        for name in node.replicas:
            file = folder / f"{dotted(name)}.db"
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
