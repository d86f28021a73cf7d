"""Reads Spark's own checkpoint of a level: up to where its micro-batches are committed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from unerring.model import ConfigError, LogError
from unerring.pipeline.level import Level

_IN_SPARKS_STORE: Final = "rocksdb"
"""Where an earlier release had the checkpoint of a level whose states were in Spark's own store."""


def folder_of(level: Level) -> Path:
    """Where Spark keeps its checkpoint of a level's query."""
    older = level.checkpoint / _IN_SPARKS_STORE
    if older.exists():
        raise ConfigError(
            f"{older} holds the state of level {level.number} in Spark's own store, which this release does not read; "
            "remove that folder, and the level goes on from a savepoint or the log"
        )
    return level.checkpoint / "files"


def has_begun(level: Level) -> bool:
    """Whether a micro-batch was planned: from then on the checkpoint says where the query is."""
    return any((folder_of(level) / "offsets").glob("[0-9]*"))


def committed_us(level: Level) -> int | None:
    """The end of the last interval that is committed; None before the first one."""
    folder = folder_of(level)
    batch = max((int(path.name) for path in (folder / "commits").glob("[0-9]*") if path.name.isdigit()), default=None)
    return None if batch is None else _offset(folder / "offsets" / str(batch))


def _offset(path: Path) -> int:
    """Spark writes a version, its own metadata, and a line for each source: ours is one, and says a time."""
    try:
        return int(json.loads(path.read_text().splitlines()[-1])["through_us"])
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise LogError(
            f"{path} is not an offset that this version wrote ({error}); remove the driver's folder, and it begins "
            "again with the log, or restore it from a copy"
        ) from None
