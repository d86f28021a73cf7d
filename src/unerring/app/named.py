"""What the objects and files of a run name, and whether it is there: what was removed has no bytes to be checked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from unerring.app.folder import FILE, Remembered
from unerring.app.place import LOG, Place, matching
from unerring.model import UnerringError, is_protected, verified_json
from unerring.runtime import PLACES, Cluster, Places, cluster

_POSITION: Final = ".position.json"
_COPY: Final = "restore it from a copy"
TYPES: Final[dict[str, Any]] = {FILE: Remembered, cluster.FILE: Cluster, PLACES: Places}
"""By the names of files that stand for themselves: what each must hold, so that none is taken for another."""


def typed(path: Any) -> bool:
    """Check a file by what its name says it holds; whether it has a digest."""
    raw: bytes = path.read_bytes()
    verified_json(raw, TYPES.get(str(path).rpartition("/")[2], Any), str(path))
    return is_protected(raw)


def lacking(place: Place) -> Iterator[str]:
    """A sentence for everything that something else of the run names, and that is not there."""
    yield from _sinks(place)
    yield from _of_nodes(place)
    yield from _states(place)


def _sinks(place: Place) -> Iterator[str]:
    """Each sink's record: its position is there as long as it is."""
    store = place.store
    held = [(name.rpartition("/sink-")[2].removesuffix(".json"), name) for name in _positions(place)]
    held += [(name.rpartition("/")[2].removesuffix(_POSITION), name) for name in matching(store, f"sinks/*{_POSITION}")]
    for sink, position in held:
        record = f"sinks/{sink}.json"
        # Whoever forgets a sink removes its positions first.
        if store.read(record) is None and store.read(position) is not None:
            yield (
                f"{store.locate(record)} is missing: {store.locate(position)} is the position of that sink; {_COPY}, "
                f"or the run no longer delivers to {sink}"
            )


def _positions(place: Place) -> Iterator[str]:
    return matching(place.store, f"{LOG}/*/positions/sink-*.json")


def _of_nodes(place: Place) -> Iterator[str]:
    """The file that says which nodes this host has: who listens where is in no database."""
    for folder, file, signs in (
        (place.live, cluster.FILE, ("wanted.json", "membership.db", "status/*.json")),
        (place.processes, PLACES, ("*.db",)),
    ):
        sign = next((path for one in signs for path in sorted(folder.glob(one))), None)
        if sign is not None and not (folder / file).exists():
            yield f"{folder / file} is missing: {_shown(sign)} belongs to a node that it has; {_COPY}"


def _shown(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def _states(place: Place) -> Iterator[str]:
    """What the newest states of each level rest on, and where the level began."""
    folders = [folder for folder in matching(place.store, "states/*") if place.store.names(folder)]
    if not folders:
        return
    from unerring.pipeline import needed_by

    for folder in folders:
        savepoints = place.store.names(f"savepoints/{folder.partition('/')[2]}")
        try:
            yield from (f"{sentence}; {_COPY}" for sentence in needed_by(place.store.within(folder), bool(savepoints)))
        except UnerringError as error:
            yield str(error)
