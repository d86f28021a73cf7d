"""How far an instance is, on the elements of the BPMN model that its process came from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from unerring.processes import Process

ORDER: Final = ("done", "undone", "waiting", "running", "failed")
"""Of several things that are true of an element, the last one is shown."""
_STOPPED: Final = ("failed", "parked", "held")


def marks(process: Process, shown: Mapping[str, Any]) -> dict[str, str]:
    """For each element of the drawing of which there is something to say, one of ORDER. `shown`: an instance, as
    `Instances.show` answers."""
    elements = process.drawing.elements if process.drawing is not None else {}
    marked: dict[str, str] = {}
    for vertex, mark in _said(process, shown):
        element = elements.get(vertex, "")
        if element and ORDER.index(mark) >= ORDER.index(marked.get(element, ORDER[0])):
            marked[element] = mark
    return marked


def _said(process: Process, shown: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    now, history = shown["now"], shown.get("history") or {}
    for group in history.get("groups", ()):
        yield from ((action["vertex"], "done") for action in group["actions"])
    yield from ((undone["vertex"], "undone") for undone in history.get("undone", ()))
    yield from ((wait["wait"], "waiting") for wait in now.get("waits_for") or ())
    for asked in now.get("asks", ()):
        yield asked.removeprefix(f"{now['instance']}/").split("/")[0].split("'")[0], "running"
    if now["status"] in _STOPPED:
        words = re.findall(r"[^\s:,;]+", now.get("reason") or "")
        yield from ((vertex.name, "failed") for vertex in process.graph.vertices if vertex.name in words)
