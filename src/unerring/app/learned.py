"""What the nodes of a run group by: learned costs and a failover threshold, and those of its open instances.

Other costs, or another threshold, are another version of a process. So a run's folder keeps all that it was run with,
and its nodes serve the versions of all of them: instances stay with the groups they have.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from unerring.log import private_folder, write_private
from unerring.model import CallerError, LogError
from unerring.processes import Process, read_costs, view_change_of, with_costs

FOLDER: Final = "costs"
FAILOVERS: Final = "failovers"
COSTS_KEPT_MAX: Final = 16
"""Files of costs that a run's folder keeps; the oldest goes first, and instances of its version wait visibly."""


def keep(costs: Path, folder: Path) -> Path:
    """Take a file of costs into a run's folder; it is the newest there then."""
    data = _read(costs)
    kept = folder / FOLDER / _name_of(data)
    private_folder(kept.parent)
    new = kept.with_suffix(".new")
    write_private(new, data)
    new.replace(kept)
    for old in kept_in(folder)[:-COSTS_KEPT_MAX]:
        old.unlink()
    return kept


def costs_of_run(costs: Path | None, folder: Path) -> tuple[Path | None, list[Path]]:
    """The costs that new instances are grouped by, kept in the run's folder, and those of earlier starts of the run."""
    older = kept_in(folder)
    newest = keep(costs, folder) if costs is not None else None
    return newest, [path for path in older if path != newest and path.exists()]


def kept_in(folder: Path) -> list[Path]:
    """All cost files that a run has used, the newest last."""
    paths = sorted((folder / FOLDER).glob("*.json"), key=lambda path: (path.stat().st_mtime_ns, path.name))
    for path in paths:
        if path.name != _name_of(path.read_bytes()):
            raise LogError(f"{path} is damaged: its bytes do not match its name; restore it from a copy")
    return paths


def _name_of(data: bytes) -> str:
    return f"{hashlib.blake2b(data, digest_size=8).hexdigest()}.json"


def priced(processes: Sequence[Process], costs: Path | None, also: Sequence[Path] = ()) -> list[Process]:
    """Each as it was given and as it is with these costs. The last of each is for new instances: with `costs`, or as it
    was given if there are none; `also` are costs that instances may have been started with."""
    versions: list[Process] = []
    for process in processes:
        before = [_with(process, path) for path in also]
        last = [_with(process, costs)] if costs is not None else []
        versions += [*before, process, *last]
    return versions


def failovers_of_run(failover_us: int, folder: Path) -> tuple[int, list[int]]:
    """The threshold of new instances (0: as each process says), and those of earlier starts of the run."""
    known = sorted((folder / FAILOVERS).glob("*us"), key=lambda path: (path.stat().st_mtime_ns, path.name))
    older = [int(path.name.removesuffix("us")) for path in known]
    if failover_us:
        private_folder(folder / FAILOVERS)
        (folder / FAILOVERS / f"{failover_us}us").touch(0o600)
        for old in [path for path in known if path.name != f"{failover_us}us"][: -COSTS_KEPT_MAX + 1]:
            old.unlink()
    return failover_us, [us for us in older if us != failover_us][-COSTS_KEPT_MAX:]


def bounded(processes: Sequence[Process], failover_us: int, also: Sequence[int] = ()) -> list[Process]:
    """Each as it was given and with this threshold. The last of each is for new instances; `also` are thresholds that
    instances may have been started with."""
    if failover_us < 0 or any(us <= 0 for us in also):
        raise CallerError("the failover threshold must be a time such as 500ms or 2s; leave it out for the default")
    versions: list[Process] = []
    for process in processes:
        graph = process.graph
        for us in (*also, 0, *([failover_us] if failover_us else [])):
            other = msgspec.structs.replace(graph, failover_us=us) if us else graph
            versions.append(process if other == graph else process.with_graph(other))
    return versions


def _with(process: Process, costs: Path) -> Process:
    learned = read_costs(_read(costs))
    prices = {cost.action: (cost.p95_us, cost.undo_p50_us) for cost in learned if cost.process == process.name}
    view_change_us = view_change_of(learned)
    return with_costs(process, prices, view_change_us) if prices or view_change_us else process


def _read(costs: Path) -> bytes:
    if not costs.exists():
        raise CallerError(f"there is no {costs}; write it with `unerring costs --write {costs}`")
    data = costs.read_bytes()
    read_costs(data)
    return data
