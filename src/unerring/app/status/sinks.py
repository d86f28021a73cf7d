"""The sinks of a run: how far each is, and whether anything brings it further."""

from __future__ import annotations

from typing import Any

import msgspec

from unerring.app.place import Place
from unerring.model import LogError, verified_json
from unerring.runtime import began_at
from unerring.sinks import SINKS, Progress


class _Shown(msgspec.Struct):
    name: str
    pid: int
    at: float
    began: str
    progress: Progress


def sinks_in(place: Place) -> list[dict[str, Any]]:
    """By name; `state` is "ended" where nobody delivers now."""
    found = []
    for path in sorted((place.scratch / SINKS).glob("*.status.json")):
        try:
            shown = verified_json(path.read_bytes(), _Shown, str(path))
        except (OSError, LogError):  # it is written anew several times a second
            continue
        one = msgspec.to_builtins(shown.progress)
        if began_at(shown.pid) != shown.began and one["state"] != "stopped":
            one["state"] = "ended"
        found.append(one)
    return found
