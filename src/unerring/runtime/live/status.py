"""Collects the statuses that the processes of a live run wrote."""

from __future__ import annotations

import time
from functools import lru_cache
from pathlib import Path
from typing import Any

from unerring.correlation import node_of
from unerring.model import SECOND_US, TIME_MAX, TIME_MIN, LogError, verified_json
from unerring.runtime.live import cluster as clusters
from unerring.runtime.os_processes import dotted, find

SILENT_S = 2.0
"""A process that wrote nothing for so long is shown as silent: killed, stopped, or not started yet."""


def cluster_of(folder: Path) -> clusters.Cluster:
    """Like `clusters.read`, but the file is read again only when it was written again."""
    try:
        kept = (folder / clusters.FILE).stat()
    except FileNotFoundError:
        return clusters.read(folder)  # which says what is wrong
    return _cluster(folder, kept.st_mtime_ns, kept.st_ino)


@lru_cache(maxsize=4)
def _cluster(folder: Path, written_ns: int, inode: int) -> clusters.Cluster:
    return clusters.read(folder)


def keepers(folder: Path) -> list[dict[str, Any]]:
    """The status of each keeper of the membership record that has written one: its version and members."""
    status = [_read(folder, name) for name in cluster_of(folder).keepers]
    return [one for one in status if one]


def processes(folder: Path) -> list[dict[str, Any]]:
    """One entry for everybody that is or was to be there, in the cluster's order.

    `behind`: events that its upstream has made and it has not; `lag_s`: the same as event time. `standing`: what the
    membership record says of it.
    """
    cluster = cluster_of(folder)
    records = [keeper["record"] for keeper in keepers(folder)]
    members = max(records, key=lambda record: int(record["version"]))["members"] if records else {}
    statuses = []
    for name in cluster.names:
        status = _read(folder, name)
        if not status and name not in cluster.founding:
            continue  # A spare place that nobody has taken.
        state = "elsewhere" if not status and cluster.hosts else _state(folder, name, status)
        status |= {"name": name, "state": state, "standing": members.get(name, {}).get("standing", "")}
        if name in cluster.hosts:
            status["host"] = cluster.hosts[name]
        node = cluster.topology.node(node_of(name))
        if node.shard_of:
            status |= {"shard_of": node.shard_of, "shard": node.shard, "shards": node.shards}
        statuses.append(status)
    made: dict[str, tuple[int, int]] = {}
    for status in statuses:
        for stream, output in status.get("outputs", {}).items():
            events, watermark = made.get(stream, (0, TIME_MIN))
            made[stream] = max(events, output["events"]), max(watermark, output["watermark"])
    for status in statuses:
        status["behind"], status["lag_s"] = _behind(status.get("inputs", {}), made)
    return statuses


def _behind(inputs: dict[str, Any], made: dict[str, tuple[int, int]]) -> tuple[int, float]:
    events, lag_us = 0, 0
    for stream, taken in inputs.items():
        available, watermark = made.get(stream, (0, TIME_MIN))
        events += max(0, available - taken["events"])
        if TIME_MIN < taken["watermark"] < watermark < TIME_MAX:
            lag_us = max(lag_us, watermark - taken["watermark"])
    return events, lag_us / SECOND_US


def _state(folder: Path, name: str, status: dict[str, Any]) -> str:
    """Its process's number tells at once what its silence tells later; processes of other hosts have none here."""
    if (folder / "pids" / dotted(name)).exists():
        process = find(folder, name)
        if process is None:
            return "dead"
        if process.pid != status.get("pid"):
            status["pid"] = process.pid  # the status was written by its predecessor, which is gone
            return "starting"
    if time.time() - status.get("at", 0) > SILENT_S:
        return "silent"
    return str(status.get("phase", "running")).lower()


def _read(folder: Path, name: str) -> dict[str, Any]:
    try:
        path = folder / "status" / f"{dotted(name)}.json"
        return verified_json(path.read_bytes(), dict[str, Any], str(path))
    except (OSError, LogError):  # it is written anew a few times a second
        return {}
