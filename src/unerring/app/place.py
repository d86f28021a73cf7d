"""Where a run is: a store for what must survive, and a folder of this host for what need not.

The store holds the log, states, savepoints and what the run says of itself. The scratch folder holds what belongs to
one host: sockets, process numbers, Spark's checkpoint, status files, databases of nodes. A run in a folder has both
there, unless another scratch folder is named.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from unerring.log import EventLog, LocalStore, Store, check_store, join, local_folder, store_at
from unerring.runtime import state_folder

LOG: Final = "log"
STORE_LOOK_S: Final = 1.0
"""How often anybody looks for news on a store, and how often a segment is sealed there: a request a second is 0.4 to
0.5 dollars a month for reading and 13 for writing, by the list prices of the large clouds."""


@dataclass(frozen=True, slots=True)
class Place:
    """The address of a run's store, which is the same on every host, and this host's folder for the run."""

    address: str
    scratch: Path

    @property
    def store(self) -> Store:
        return store_at(self.address)

    @property
    def log(self) -> EventLog:
        return EventLog(join(self.address, LOG))

    @property
    def is_folder(self) -> bool:
        """Whether the store is a folder of this host, or one that is mounted here."""
        return isinstance(self.store, LocalStore)

    def check(self, writing: bool = True) -> None:
        """A sentence, if the store cannot be used: no bucket, no right, another region, no conditional puts."""
        if not self.is_folder:
            check_store(self.store, writing)

    def look_s(self, near_s: float) -> float:
        """How long to pause before looking again for something new: a look at a store is a request that costs money
        and time."""
        return near_s if self.is_folder else max(near_s, STORE_LOOK_S)

    @property
    def live(self) -> Path:
        """Where the supervised processes of the run on this host have their files."""
        return self.scratch / "live"

    @property
    def processes(self) -> Path:
        """Where the process nodes of the run on this host have theirs."""
        return self.scratch / "processes"

    def __str__(self) -> str:
        return shown(self.address) if self.is_folder else self.address


def shown(path: str) -> str:
    """A path as people would write it here: relative, if it is below the working directory."""
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path


Where = str | os.PathLike[str] | Place
"""How a run is named: by its folder or address, or by its place."""


def place_of(where: Where, scratch: str | os.PathLike[str] | None = None) -> Place:
    """The place that a user names. Without `scratch` a folder is its own, and a store has one for this user."""
    if isinstance(where, Place):
        return where
    store = store_at(where)
    if isinstance(store, LocalStore):
        return Place(str(store.root), store.root if scratch is None else local_folder(scratch).absolute())
    address = store.locate("")
    return Place(address, scratch_for(address) if scratch is None else local_folder(scratch).absolute())


def scratch_for(address: str) -> Path:
    """This user's folder for a run on a store: below the state directory, named after the address."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", address).strip("-")[:40]
    # Two addresses may look alike once they are names.
    return state_folder() / f"{name}-{hashlib.blake2b(address.encode(), digest_size=4).hexdigest()}"


def matching(store: Store, pattern: str, folder: str = "") -> Iterator[str]:
    """The names in a store that match a pattern, part by part."""
    first, _, rest = pattern.partition("/")
    for one in fnmatch.filter(store.names(folder), first):
        name = f"{folder}/{one}" if folder else one
        yield from matching(store, rest, name) if rest else (name,)


def clear(store: Store, folder: str = "") -> None:
    """Remove everything of a store that is of no more use."""
    for name in store.names(folder):
        inside = f"{folder}/{name}" if folder else name
        if store.names(inside):
            clear(store, inside)
        else:
            store.delete(inside)
