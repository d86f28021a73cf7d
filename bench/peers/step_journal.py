"""The checker of the workflow race: what the service's journal says of a side, whoever it is.

A workflow of n steps is right if the service has each step done and not undone exactly once, in order.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple


class Verdict(NamedTuple):
    """Of all workflows of a side."""

    steps: int
    """Steps that should be there."""
    missing: int
    """Steps without an effect."""
    begun_twice: int
    """Requests for a step beyond its first one."""
    done_twice: int
    """Executions of a step that were completed beyond its first one, undone or not."""
    undone: int
    effects_twice: int
    """Executions beyond the first one that were not undone."""
    keyed_twice: int
    """Of those, the ones that came under another key: a service that knows keys would not have known them."""
    out_of_order: int
    """Steps that were begun before the step before them was done for the first time."""
    twice_s: float = 0.0
    """The longest time for which a step had its effect twice, until one of them was undone; 0 if none was."""


class Journal:
    """A journal that is being written, read on from where it was read to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        self._lines: dict[str, list[dict[str, Any]]] = {}

    def of(self, *workflows: str) -> list[dict[str, Any]]:
        """The lines of these workflows by now, those of each in order. The last line of all may be half written."""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._at)
                new = file.read()
            whole = new[: new.rfind(b"\n") + 1]
            self._at += len(whole)
            for text in whole.splitlines():
                line = json.loads(text)
                self._lines.setdefault(line["workflow"], []).append(line)
        return [line for workflow in workflows for line in self._lines.get(workflow, ())]


def judge(lines: Iterable[dict[str, Any]], workflows: Sequence[str], steps: int) -> Verdict:
    """Pure: from a journal to what is wrong."""
    begun: Counter[tuple[str, int]] = Counter()
    done: Counter[tuple[str, int]] = Counter()
    undone: Counter[tuple[str, int]] = Counter()
    standing: dict[tuple[str, int], Counter[str]] = {}
    out_of_order, twice_ns = 0, 0
    since: dict[tuple[str, int], int] = {}
    for line in lines:
        place = (line["workflow"], line["step"])
        keys = standing.setdefault(place, Counter())
        if line["what"] == "begin":
            out_of_order += int(place[1] > 0 and done[place[0], place[1] - 1] == 0)
            begun[place] += 1
        elif line["what"] == "do":
            done[place] += 1
            keys[line["key"]] += 1
            if sum(keys.values()) > 1:
                since.setdefault(place, line["ns"])
        else:
            undone[place] += 1
            keys[line["key"]] -= 1
            if place in since and sum(keys.values()) <= 1:
                twice_ns = max(twice_ns, line["ns"] - since.pop(place))
    wanted = [(workflow, step) for workflow in workflows for step in range(steps)]
    effects = {place: sum(standing.get(place, Counter()).values()) for place in wanted}
    keyed = {place: sum(count > 0 for count in standing.get(place, Counter()).values()) for place in wanted}
    return Verdict(
        steps=len(wanted),
        missing=sum(count < 1 for count in effects.values()),
        begun_twice=sum(max(0, begun[place] - 1) for place in wanted),
        done_twice=sum(max(0, done[place] - 1) for place in wanted),
        undone=sum(undone[place] for place in wanted),
        effects_twice=sum(max(0, count - 1) for count in effects.values()),
        keyed_twice=sum(max(0, count - 1) for count in keyed.values()),
        out_of_order=out_of_order,
        twice_s=twice_ns / 1e9,
    )
