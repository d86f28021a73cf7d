"""A consumer of situations: in order, from where it stopped, its position committed.

A situation counts as handled when the next one is asked for. The position is written a few times a second, and when the
loop ends; after a crash the last few come again, with the same id, `(stream, stamp)`. Who needs an effect exactly once
commits effect and `situation.stamp` together and gives that stamp as `after`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from types import TracebackType
from typing import Final

from unerring.app.place import Place
from unerring.log import Positions
from unerring.model import TIME_MAX, Event, Stamp, StreamSchema

POLL_S: Final = 0.05
COMMIT_EVERY_S: Final = 0.2


class Situations:
    """Iterate it; or use it as a context to commit at the end whatever happens."""

    def __init__(self, place: Place, schema: StreamSchema, buckets: int, reader: str, follow: bool) -> None:
        log = place.log
        self._poll_s = place.look_s(POLL_S)
        self._commit_s = place.look_s(COMMIT_EVERY_S)
        self._chain = log.create(schema, buckets)
        self._positions = Positions(log.store, schema.name)
        self._reader = reader
        self._follow = follow
        self._done = self._positions.get(reader)
        self._committed = self._done
        self._committed_at_s = time.monotonic()

    @property
    def position(self) -> Stamp:
        """Everything up to this stamp is handled."""
        return self._done

    @property
    def through_us(self) -> int:
        """Up to where the stream was sealed when it was looked at last."""
        return self._chain.through_us

    def after(self, stamp: Stamp) -> Situations:
        """Go on after this stamp, which the application kept together with its effects."""
        self._done = stamp
        return self

    def __iter__(self) -> Iterator[Event]:
        for batch in self.in_batches(1):
            yield batch[0]

    def in_batches(self, count_max: int) -> Iterator[list[Event]]:
        """At most this many at a time; they count as handled when the next ones are asked for."""
        try:
            yield from self._batches(count_max)
        finally:
            self.commit()

    def commit(self) -> None:
        """Write the position down now."""
        if self._done != self._committed:
            self._positions.commit(self._reader, self._done)
            self._committed = self._done
        self._committed_at_s = time.monotonic()

    def __enter__(self) -> Situations:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.commit()

    def _batches(self, count_max: int) -> Iterator[list[Event]]:
        from unerring.log import events_of

        # The position may lie inside a time, so that time is read once more and its handled ordinals passed over.
        from_us = max(self._done.time - 1, self._chain.base.from_us)
        while True:
            self._chain.refresh()
            for span in self._chain.spans(from_us, TIME_MAX):
                table = self._chain.read(max(from_us, span.from_us), span.through_us)
                events = (event for event in events_of(table, self._chain.schema) if event.stamp > self._done)
                while batch := list(islice(events, count_max)):
                    yield batch
                    self._done = batch[-1].stamp
                    if time.monotonic() - self._committed_at_s >= self._commit_s:
                        self.commit()
                from_us = span.through_us
            if not self._follow or from_us >= TIME_MAX:
                return
            self.commit()
            time.sleep(self._poll_s)
