"""Where a run is: a store for what must survive, and a folder of this host for what need not.

The store holds the log, states, savepoints and what the run says of itself. The scratch folder holds what belongs to
one host: sockets, process numbers, Spark's checkpoint, status files, databases of nodes. A run in a folder has both
there, unless another scratch folder is named.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from unerring.log import EventLog, LocalStore, Store, local_folder

LOG: Final = "log"


@dataclass(frozen=True, slots=True)
class Place:
    """The address of a run's store, which is the same on every host, and this host's folder for the run."""

    address: str
    scratch: Path

    @property
    def store(self) -> Store:
        return LocalStore(self.address)

    @property
    def log(self) -> EventLog:
        return EventLog(f"{self.address}/{LOG}")

    @property
    def is_folder(self) -> bool:
        """Whether the store is a folder of this host, or one that is mounted here."""
        return isinstance(self.store, LocalStore)

    @property
    def live(self) -> Path:
        """Where the supervised processes of the run on this host have their files."""
        return self.scratch / "live"

    @property
    def processes(self) -> Path:
        """Where the process nodes of the run on this host have theirs."""
        return self.scratch / "processes"

    def __str__(self) -> str:
        return self.address


Where = str | os.PathLike[str] | Place
"""How a run is named: by its folder or address, or by its place."""


def place_of(where: Where, scratch: str | os.PathLike[str] | None = None) -> Place:
    """The place that a user names. Without `scratch` a folder is its own."""
    if isinstance(where, Place):
        return where
    folder = local_folder(where).absolute()
    return Place(str(folder), folder if scratch is None else Path(scratch).absolute())
