"""The events that make or unmake a situation: found by running the rule again on fewer and fewer of its key's events.

What is left when none can be taken away is what the situation is made of, whatever the kind of rule. Time, payload
and stream must come out the same; the ordinal may differ, since it counts other keys' situations of that time too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from unerring.matching import Interpreter, Row
from unerring.model import Event
from unerring.rules import Plan

EVENTS_MAX: Final = 200
"""How many of a key's events before a situation are examined."""
_TAKEN_AWAY_MAX: Final = 60
"""For how many of the last events it is tried whether the event unmakes a false situation."""


def making(plan: Plan, rows: Sequence[Row], wanted: Event) -> list[Event] | None:
    """The fewest of a key's last events that make the situation, or None if these alone do not (it builds on more)."""
    for first in range(len(rows), -1, -1):
        kept = list(rows[first:])
        if _makes(plan, kept, wanted):
            break
    else:
        return None
    at = 0
    while at < len(kept):
        fewer = kept[:at] + kept[at + 1 :]
        if _makes(plan, fewer, wanted):
            kept = fewer
        else:
            at += 1
    return [row.event for row in kept]


def unmaking(plan: Plan, rows: Sequence[Row], false: Event) -> list[Event]:
    """The events each of which, left out, would make the false situation a true one."""
    first = max(len(rows) - _TAKEN_AWAY_MAX, 0)
    return [rows[at].event for at in range(first, len(rows)) if _makes(plan, [*rows[:at], *rows[at + 1 :]], false)]


def _makes(plan: Plan, rows: Sequence[Row], wanted: Event) -> bool:
    outputs = Interpreter(plan).feed(rows, wanted.stamp.time)
    mark = _encoded(wanted.payload)
    return any(
        output.stream == wanted.stream and output.time == wanted.stamp.time and _encoded(output.payload) == mark
        for output in outputs
    )


def _encoded(payload: dict[str, object]) -> bytes:
    """Equal bytes for equal payloads, NaN included."""
    return msgspec.msgpack.encode(payload)
