"""What Spark's own checkpoint of a level says: up to where its micro-batches are committed."""

from __future__ import annotations

import json
from pathlib import Path

from unerring.model import LogError
from unerring.pipeline.level import Level


def has_begun(level: Level, state: str) -> bool:
    """Whether a micro-batch was planned: from then on the checkpoint says where the query is."""
    return any((level.checkpoint / state / "offsets").glob("[0-9]*"))


def committed_us(level: Level, state: str) -> int | None:
    """The end of the last interval that is committed; None before the first one."""
    folder = level.checkpoint / state
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
