"""What the processes of a live run wrote down about themselves, put together."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec

from unerring.runtime.live import cluster as clusters

SILENT_S = 2.0
"""A process that wrote nothing for so long is shown as silent: killed, stopped, or not started yet."""


def processes(folder: Path) -> list[dict[str, Any]]:
    """One entry for everybody in the cluster, in its order; `behind`: events that its upstream has and it has not."""
    cluster = clusters.read(folder)
    found = []
    for name in cluster.names:
        told = _read(folder / "status" / f"{name.replace('/', '.')}.json")
        silent = time.time() - told.get("at", 0) > SILENT_S
        told |= {"name": name, "state": "silent" if silent else str(told.get("phase", "running")).lower()}
        found.append(told)
    made: dict[str, int] = {}
    for told in found:
        for stream, output in told.get("outputs", {}).items():
            made[stream] = max(made.get(stream, 0), output["events"])
    for told in found:
        told["behind"] = sum(
            max(0, made.get(stream, 0) - taken["events"]) for stream, taken in told.get("inputs", {}).items()
        )
    return found


def _read(path: Path) -> dict[str, Any]:
    try:
        told: dict[str, Any] = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError):
        return {}
    return told
