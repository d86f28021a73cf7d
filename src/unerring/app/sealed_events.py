"""Reads what a run has sealed so far, for people: no reader's position moves."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from unerring.app.folder import address_in
from unerring.app.place import Place, Where, place_of
from unerring.app.why import latest
from unerring.log import Chain, events_of
from unerring.model import TIME_MAX, CallerError, ColumnType, Event


class SealedEvents:
    """The situations of a run, or the events of the streams that are named."""

    def __init__(self, where: Where, streams: Sequence[str] = (), *, secrets: bool = False) -> None:
        """`secrets`: with the values of secret columns, which are NULL otherwise."""
        place = place_of(where)
        log = place.log
        names = log.streams()
        for name in streams:
            if name not in names:
                raise CallerError(f"{place} has no stream {name!r}; it has {', '.join(names) or 'none'}")
        wanted = streams or [name for name in _situations_of(place) if name in names]
        self._chains = [log.chain(name) if secrets else log.veiled(name) for name in wanted]
        self.times = {
            chain.name: frozenset(c.name for c in chain.schema.columns if c.type is ColumnType.TIME)
            for chain in self._chains
        }
        """The columns of each stream that are times."""
        self._done_us = {chain.name: chain.base.from_us for chain in self._chains}

    def so_far(self, last: int | None = None) -> Iterator[Event]:
        """All events that are sealed now, or the last ones, in the order of stamps."""
        if last is not None:
            for chain in self._chains:
                self._done_us[chain.name] = chain.refresh()
            return reversed(latest(self._chains, (TIME_MAX, 0, ""), last))
        return self.new()

    def new(self) -> Iterator[Event]:
        """The events sealed since the last call, in the order of stamps."""
        spans = []
        for chain in self._chains:
            from_us, through_us = self._done_us[chain.name], chain.refresh()
            self._done_us[chain.name] = through_us
            spans.append(_between(chain, from_us, through_us))
        return heapq.merge(*spans, key=lambda event: (event.stamp, event.stream))


def _between(chain: Chain, from_us: int, through_us: int) -> Iterator[Event]:
    for span in chain.spans(from_us, through_us):
        yield from events_of(chain.read(max(from_us, span.from_us), span.through_us), chain.schema)


def _situations_of(place: Place) -> list[str]:
    from unerring.app.application import load

    return [schema.name for schema in load(address_in(place)).outputs]
