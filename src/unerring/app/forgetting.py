"""How many ended instances the nodes of a folder keep. Whoever judges them must know: an older one may be forgotten."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from unerring.model import protect_json, verified_json
from unerring.processes import ProcessesConfig

FILE: Final = "kept.json"
USUAL: Final = ProcessesConfig().finished_max


class Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fewest that a node of the folder ever kept: what it forgot then does not come back."""

    finished_max: int


def kept_at_least(folder: Path) -> int:
    path = folder / FILE
    return verified_json(path.read_bytes(), Kept, str(path)).finished_max if path.exists() else USUAL


def note_kept(finished_max: int, folder: Path, who: str) -> None:
    """A node is about to keep so many. With the usual number, or more, nothing has to be written."""
    if finished_max < kept_at_least(folder):
        new = folder / f".{FILE}.{who}"
        new.write_bytes(protect_json(Kept(finished_max)))
        new.replace(folder / FILE)
