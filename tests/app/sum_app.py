"""An application with an operator of its own, which one event in the stream makes raise."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.app.tree_app import Reading
from unerring import Operator, rule, stream
from unerring.app import App
from unerring.model import Event

POISON = 13


@stream(key="machine")
class Sum:
    machine: int
    total: int


class Summing(Operator):
    def __init__(self) -> None:
        self.total = 0

    def on_event(self, event: Event) -> Iterable[dict[str, Any]]:
        if event.payload["celsius"] == POISON:
            raise ValueError("thirteen degrees")
        self.total += event.payload["celsius"]
        return [{"machine": event.payload["machine"], "total": self.total}]

    def snapshot(self) -> bytes:
        return str(self.total).encode()

    def restore(self, state: bytes) -> None:
        self.total = int(state)


Total = rule("Total").on(Reading).operator(Summing, Sum)
app = App("sums", rules=[Total], streams=[Reading], buckets=1)
