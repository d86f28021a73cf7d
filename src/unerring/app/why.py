"""Situations of a run as people want to see them: the latest ones, and why each arose.

Why is not remembered anywhere: the rule is run again on what the log holds of the situation's key, with fewer and fewer
events, until none can be taken away (`audit.evidence`). Whoever does not trust an answer can do the same.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from unerring.app.place import Where, place_of
from unerring.app.reactions import started_by
from unerring.audit import EVENTS_MAX, making
from unerring.log import Chain, events_of
from unerring.matching import Router, Row, window_of
from unerring.model import TIME_MAX, CallerError, Event, Stamp, shown
from unerring.pipeline import rows_before, rows_near
from unerring.rules import Plan, WindowPlan

if TYPE_CHECKING:
    from unerring.app.application import App

NEARBY_MAX: Final = 30
"""How many of the last events near a situation are shown if those that made it cannot be named."""
WINDOW_MAX: Final = 5_000
"""How many events of a window's key are read."""
SHOWN_MAX: Final = 100
"""How many of a situation's events are shown; the count is that of all."""
AT_ONCE: Final = 256
"""So many rows of a segment become events at once, from its end."""
INT_MAX: Final = (1 << 53) - 1
"""Pages that read JSON round larger integers; these are written as text."""


def event_document(event: Event, *, secrets: bool = False) -> dict[str, Any]:
    """An event for a page or a script; with the values of secret columns only for who asked for them."""
    payload = event.payload if secrets else shown(event.stream, event.payload)
    return {
        "stream": event.stream,
        "time_us": event.stamp.time,
        "ordinal": event.stamp.ordinal,
        "key": [plain(value) for value in event.key],
        "payload": {name: plain(value) for name, value in payload.items()},
    }


def plain(value: Any) -> Any:
    """A value that JSON and a page can show."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > INT_MAX:
        return str(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def latest(chains: list[Chain], before: tuple[int, int, str], count: int) -> list[Event]:
    """The last `count` events of several streams before the one of a stamp and stream, the latest first."""
    time_us, ordinal, stream = before
    merged = heapq.merge(*(_backwards(chain, time_us) for chain in chains), key=_later_first)
    # Events of several streams may have one stamp: among those the stream's name decides.
    further = (event for event in merged if _later_first(event) > (-time_us, -ordinal, stream))
    return list(islice(further, count))


def _later_first(event: Event) -> tuple[int, int, str]:
    return -event.stamp.time, -event.stamp.ordinal, event.stream


def _backwards(chain: Chain, time_us: int) -> Iterator[Event]:
    through_us = min(chain.through_us, time_us)
    for span in reversed(chain.spans(chain.base.from_us, through_us)):
        table = chain.read(max(span.from_us, chain.base.from_us), min(span.through_us, through_us))
        for last in range(len(table), 0, -AT_ONCE):  # a segment may have very many, and few are asked for
            first = max(0, last - AT_ONCE)
            yield from reversed(list(events_of(table.slice(first, last - first), chain.schema)))


def _made_of(plan: Plan, rows: list[Row], situation: Event) -> list[Event] | None:
    """A window is made of what was in it, all of it; anything else of the fewest events that still make it."""
    if not isinstance(plan, WindowPlan):
        return making(plan, rows, situation)
    router = Router(plan)
    routed = [row for row in rows if router.route(row.event)]
    members = window_of(plan, situation.key, routed, situation.stamp.time, dict(situation.payload))
    return None if members is None else list(members)


def _shown(events: list[Event]) -> list[Event]:
    """All, or of many an even sample that keeps the first and the last."""
    if len(events) <= SHOWN_MAX:
        return events
    return [events[number * (len(events) - 1) // (SHOWN_MAX - 1)] for number in range(SHOWN_MAX)]


class Why:
    """Answers for the situations of one run."""

    def __init__(self, app: App, where: Where) -> None:
        self._app = app
        place = place_of(where)
        self._log = place.log
        self._levels = {
            schema.name: (level, plan) for level in app.levels(place) for plan in level.plans for schema in plan.outputs
        }

    def __call__(self, stream: str, stamp: Stamp) -> dict[str, Any]:
        """The situation and what it is made of; `complete` is False where that builds on more than the log shows."""
        if stream not in self._levels:
            raise CallerError(
                f"{stream!r} is not a situation of app {self._app.name}; it has {', '.join(self._levels)}"
            )
        level, plan = self._levels[stream]
        situation = self._find(stream, stamp)
        window = isinstance(plan, WindowPlan)
        rows = rows_before(level, plan, situation, WINDOW_MAX if window else EVENTS_MAX)
        made = None if rows is None else _made_of(plan, rows, situation)
        near = rows if rows is not None else rows_near(level, plan, situation, NEARBY_MAX)
        events = made if made is not None else [row.event for row in near[-NEARBY_MAX:]]
        return {
            "situation": event_document(situation),
            "rule": plan.name,
            "kind": type(plan).__name__.removesuffix("Plan").lower(),
            "level": level.number,
            "starts": started_by(self._app, situation),
            "complete": made is not None,
            "count": len(events),
            "made_of": [
                event_document(event) | {"is_situation": event.stream in self._levels} for event in _shown(events)
            ],
        }

    def _find(self, stream: str, stamp: Stamp) -> Event:
        chain = self._log.chain(stream)
        chain.refresh()
        if stamp.time < TIME_MAX:
            for event in events_of(chain.read(max(stamp.time - 1, chain.base.from_us), stamp.time), chain.schema):
                if event.stamp == stamp:
                    return event
        raise CallerError(f"the log has no {stream} at {stamp.time}#{stamp.ordinal}; was it removed by retention?")
