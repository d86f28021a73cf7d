"""New situations as they are sealed: all of them while they are few, a fair sample with the true count when not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from unerring.app import event_document
from unerring.log import Chain
from unerring.model import TIME_MAX

if TYPE_CHECKING:
    from unerring.app import Streams

SHOWN_MAX: Final = 60
"""How many of the new events of one look are shown."""


class Tail:
    """Follows the situation streams that a status knows; begins with what is new."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._done_us: dict[str, int] = {}

    def look(self) -> dict[str, Any] | None:
        """The new events since the last call, after the status has looked; None if there are none."""
        new: dict[str, list[Any]] = {}
        for name in self._streams.situation_streams:
            chain = self._streams.counted[name].chain
            done_us = self._done_us.get(name, chain.through_us)
            self._done_us[name] = chain.through_us
            tables = [chain.read(span.from_us, span.through_us) for span in chain.spans(done_us, TIME_MAX)]
            tables = [table for table in tables if len(table)]
            if tables:
                new[name] = [chain, tables]
        if not new:
            return None
        counts = {name: sum(len(table) for table in tables) for name, (_, tables) in new.items()}
        share = SHOWN_MAX if sum(counts.values()) <= SHOWN_MAX else max(1, SHOWN_MAX // len(new))
        events = [event for chain, tables in new.values() for event in _last(chain, tables, share)]
        events.sort(key=lambda event: (event["time_us"], event["ordinal"]))
        return {"counts": counts, "events": events}


def _last(chain: Chain, tables: list[Any], count: int) -> list[dict[str, Any]]:
    from unerring.log import events_of

    events: list[dict[str, Any]] = []
    for table in reversed(tables):
        part = table.slice(max(0, len(table) - (count - len(events))))
        events = [event_document(event) for event in events_of(part, chain.schema)] + events
        if len(events) >= count:
            break
    return events
