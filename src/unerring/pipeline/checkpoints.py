"""Spark's own checkpoint of a level, in the host's scratch folder: it holds nothing that cannot be derived from the log
and the states, and begins anew with every start of the query."""

from __future__ import annotations

import json
import secrets
import shutil
from pathlib import Path
from typing import Final

from unerring.log import private_folder, write_private
from unerring.model import DiskError, LogError
from unerring.pipeline.level import Level

_BEGUN: Final = "begun"
"""Says in which folder the checkpoint of the last start is, and where its query began."""


def folder_of(level: Level) -> Path:
    """Where Spark keeps its checkpoint of a level's query."""
    begun = _begun(level)
    return level.checkpoint / ("files" if begun is None else begun[0])


def renew(level: Level, from_us: int) -> None:
    """An empty checkpoint for a query that begins at this time. It has a folder of its own: a driver of this host that
    wakes up late goes on writing to the one it had, and is in nobody's way."""
    try:
        for older in level.checkpoint.glob("files*"):
            shutil.rmtree(older, ignore_errors=True)
        private_folder(level.checkpoint)
        write_private(level.checkpoint / _BEGUN, f"files-{secrets.token_hex(4)}\n{from_us}".encode())
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
    begun = _begun(level)
    return None if begun is None else begun[1]


def _begun(level: Level) -> tuple[str, int] | None:
    """The folder of the last start and where its query began; None before the first one."""
    path = level.checkpoint / _BEGUN
    try:
        folder, from_us = path.read_text().splitlines()
        return folder, int(from_us)
    except FileNotFoundError:
        return None
    except ValueError:
        raise LogError(f"{path} is damaged; remove {path.parent}, and the level continues from its states") from None


def _offset(path: Path) -> int:
    """Spark writes a version, its own metadata, and a line for each source: ours is one, and says a time."""
    try:
        return int(json.loads(path.read_text().splitlines()[-1])["through_us"])
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise LogError(
            f"{path} is not an offset that this version wrote ({error}); remove the driver's folder, and it begins "
            "again with the run's states"
        ) from None
