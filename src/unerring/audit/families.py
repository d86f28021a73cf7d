"""Children under the third promise: the effects of a parent's children are those of its one execution.

A child that the decided execution used must have completed, with the result that was used; every other child must have
had no effect in the end: cancelled or failed, or completed and undone by exactly one process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from unerring.audit.verdict import Violation

USED = "a child that a process went on from has completed with that result, and is not undone"
UNUSED = "a child that its process did not continue from has no effect in the end"
UNDO = "~"


class Relative(msgspec.Struct, frozen=True):
    """How a child, or a process that undoes one, ended."""

    status: str
    value: Any = None


def check_family(
    instance: str, used: Sequence[tuple[str, Any]], relatives: Mapping[str, Relative]
) -> Iterable[Violation]:
    """`used`: ids of the children that the decided execution stands on, with the results it used. `relatives`: all
    children of the instance and what undid them, by id; everything has come to rest."""
    results = dict(used)
    for id, value in results.items():
        child = relatives.get(id)
        if child is None or child.status != "completed" or child.value != value:
            yield Violation(USED, (f"{instance} went on from {id} with {value!r}, but it is {child}",))
        elif _undone(id, relatives):
            yield Violation(USED, (f"{instance} went on from {id}, which was undone",))
    for id, relative in relatives.items():
        if UNDO in id.removeprefix(instance) or id in results or relative.status != "completed":
            continue
        if _undone(id, relatives) != 1:
            times = _undone(id, relatives)
            yield Violation(UNUSED, (f"{instance}: {id} completed, was not used, and was undone {times} times",))


def _undone(id: str, relatives: Mapping[str, Relative]) -> int:
    return sum(other.startswith(id + UNDO) and r.status == "completed" for other, r in relatives.items())
