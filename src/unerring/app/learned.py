"""Learned costs of a run: which ones its nodes group by, and which ones its open instances were started with.

Other costs are another version of a process. So a run's folder keeps every file of costs that it was run with, and its
nodes serve the versions of all of them: instances stay with the groups they have.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from unerring.model import CallerError, LogError
from unerring.processes import Process, read_costs, with_costs

FOLDER: Final = "costs"
COSTS_KEPT_MAX: Final = 16
"""Files of costs that a run's folder keeps; the oldest goes first, and instances of its version wait visibly."""


def keep(costs: Path, folder: Path) -> Path:
    """Take a file of costs into a run's folder; it is the newest there then."""
    data = _read(costs)
    kept = folder / FOLDER / _name_of(data)
    kept.parent.mkdir(parents=True, exist_ok=True)
    new = kept.with_suffix(".new")
    new.write_bytes(data)
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


def _with(process: Process, costs: Path) -> Process:
    learned = read_costs(_read(costs))
    prices = {cost.action: (cost.p95_us, cost.undo_p50_us) for cost in learned if cost.process == process.name}
    return with_costs(process, prices) if prices else process


def _read(costs: Path) -> bytes:
    if not costs.exists():
        raise CallerError(f"there is no {costs}; write it with `unerring costs --write {costs}`")
    data = costs.read_bytes()
    read_costs(data)
    return data
