"""Which part of a run's log live replicas may still ask for: retention keeps it."""

from __future__ import annotations

from unerring.app.live import SPARK
from unerring.app.place import Where, place_of
from unerring.correlation import Role, kept_key, needs_after
from unerring.model import CallerError
from unerring.runtime import cluster as clusters, dotted, settled


def needed_after(where: Where) -> dict[str, int]:
    """For each stream that a live source reads from the log: the time after which it may have to read it again.

    A source keeps where its queue begins: all its receivers have on disk what is before. What its file says may be
    minutes old, which errs on the safe side.
    """
    place = place_of(where)
    folder = place.live
    if not (folder / clusters.FILE).exists():
        return {}
    cluster = clusters.read(folder)
    sources = [node for node in cluster.topology.nodes if node.role is Role.SOURCE]
    if sources and not cluster.durable:
        raise CallerError(
            f"{place} has live replicas in memory only, which need its whole log to start again; begin a new --data "
            "folder, with --durable if its log is to be cut, and keep or remove this one as a whole"
        )
    if sources and any(node.name == SPARK for node in cluster.topology.nodes):
        raise CallerError(
            f"{place} has rules in both engines, and its log is not cut; begin a new --data folder, and keep or remove "
            "this one as a whole"
        )
    return {
        stream: needs_after(settled(folder / f"{dotted(name)}.db", kept_key(stream)))
        for node in sources
        for name in node.replicas
        for stream in node.outputs
    }
