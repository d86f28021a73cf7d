"""Which engine runs a plan: compiled where it can be, interpreted where not, with the same results."""

from __future__ import annotations

import msgspec

from unerring.model import TIME_MIN, Event
from unerring.pipeline.feeding import Feed, RowFeed
from unerring.rules import Plan
from unerring.rules.engine import Quarantined
from unerring.rules.oracle import outputs_of
from unerring.rules.outputs import Row


class _Replay:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rows: list[Row] = []
        self.through = TIME_MIN
        self.keys = 0

    def feed(self, rows, through):
        self.rows += rows
        before, self.through = self.through, through
        return [o for o in outputs_of(self.plan, self.rows, through) if o.time > before]

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(
            (
                self.through,
                [(r.rank, r.event.stream, list(r.event.stamp), list(r.event.key), r.event.payload) for r in self.rows],
            )
        )

    def restore(self, state: bytes) -> None:
        from unerring.model import Stamp

        self.through, rows = msgspec.msgpack.decode(state)
        self.rows = [Row(r, Event(s, Stamp(*st), tuple(k), p)) for r, s, st, k, p in rows]

    def take_quarantined(self) -> list[Quarantined]:
        return []


def feed_of(plan: Plan, ranks: dict[str, int]) -> Feed:
    """A fresh engine for a plan, with its columns in and out."""
    return RowFeed(_Replay(plan), ranks)
