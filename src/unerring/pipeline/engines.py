"""Which engine runs a plan."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from unerring.model import TIME_MIN, Event, Stamp
from unerring.pipeline.feeding import Feed, RowFeed
from unerring.rules import Plan
from unerring.rules.engine import Quarantined
from unerring.rules.oracle import outputs_of
from unerring.rules.outputs import Output, Row


class ReplayEngine:
    """Any plan, by asking the oracle about everything so far: right by definition, and its state is its whole input."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.through = TIME_MIN
        self._rows: list[Row] = []

    @property
    def keys(self) -> int:
        return 0

    def feed(self, rows: Sequence[Row], through: int) -> list[Output]:
        self._rows += rows
        before, self.through = self.through, through
        return [output for output in outputs_of(self.plan, self._rows, through) if output.time > before]

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode((self.through, [(row.rank, *_plain(row.event)) for row in self._rows]))

    def restore(self, state: bytes) -> None:
        self.through, rows = msgspec.msgpack.decode(state)
        self._rows = [
            Row(rank, Event(stream, Stamp(*stamp), tuple(key), payload)) for rank, stream, stamp, key, payload in rows
        ]

    def take_quarantined(self) -> list[Quarantined]:
        return []


def feed_of(plan: Plan, ranks: dict[str, int]) -> Feed:
    """A fresh engine for a plan, with its columns in and out."""
    return RowFeed(ReplayEngine(plan), ranks)


def _plain(event: Event) -> tuple[object, ...]:
    return event.stream, tuple(event.stamp), event.key, event.payload
