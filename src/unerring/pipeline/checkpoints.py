"""Spark's own checkpoint of a level, in the host's scratch folder: it holds nothing that cannot be derived from the log
and the states, and begins anew with every start of the query."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Final

from unerring.model import DiskError, LogError
from unerring.pipeline.level import Level

_BEGUN: Final = "begun"


def folder_of(level: Level) -> Path:
    """Where Spark keeps its checkpoint of a level's query."""
    return level.checkpoint / "files"


def renew(level: Level, from_us: int) -> None:
    """An empty checkpoint for a query that begins at this time."""
    try:
        shutil.rmtree(folder_of(level), ignore_errors=True)
        level.checkpoint.mkdir(parents=True, exist_ok=True)
        (level.checkpoint / _BEGUN).write_text(str(from_us))
    except OSError as error:
        raise DiskError(
            f"cannot write {level.checkpoint}: {error.strerror}; make room, or name another folder with --scratch"
        ) from error


def committed_us(level: Level) -> int | None:
    """The end of the last interval that this host's query has committed, or where it began; None before it did."""
    folder = folder_of(level)
    batch = max((int(path.name) for path in (folder / "commits").glob("[0-9]*") if path.name.isdigit()), default=None)
    if batch is not None:
        return _offset(folder / "offsets" / str(batch))
    begun = level.checkpoint / _BEGUN
    return int(begun.read_text()) if begun.exists() else None


def _offset(path: Path) -> int:
    """Spark writes a version, its own metadata, and a line for each source: ours is one, and says a time."""
    try:
        return int(json.loads(path.read_text().splitlines()[-1])["through_us"])
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise LogError(
            f"{path} is not an offset that this version wrote ({error}); remove the driver's folder, and it begins "
            "again with the run's states"
        ) from None
