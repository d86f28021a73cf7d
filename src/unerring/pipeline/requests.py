"""Requests to a store by the process that plans a level's micro-batches: Spark runs it beside the driver, not in it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import msgspec

from unerring.log import LocalStore, requests_made
from unerring.model import UNDECODABLE
from unerring.pipeline.level import Level

FOLDER: Final = "requests"
NOTE_S: Final = 5.0


class PlannerRequests:
    """Writes them down, in the driver's folder, every few seconds; what cannot be written is left out."""

    def __init__(self, level: Level) -> None:
        self._name = f"{FOLDER}/level-{level.label}.json"
        self._folder = level.scratch
        self._due_s = 0.0

    def note(self) -> None:
        if self._folder and time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + NOTE_S
            LocalStore(self._folder).note(self._name, msgspec.json.encode(requests_made()))


def planner_requests(folder: Path) -> dict[str, int]:
    """What was written down last, of all levels together."""
    total: dict[str, int] = {}
    for path in sorted((folder / FOLDER).glob("level-*.json")):
        try:
            made = msgspec.json.decode(path.read_bytes(), type=dict[str, int])
        except (OSError, *UNDECODABLE):  # it is being replaced
            continue
        for kind, count in made.items():
            total[kind] = total.get(kind, 0) + count
    return total
