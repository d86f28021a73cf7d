"""An operator: executors must import this module."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from unerring import Operator
from unerring.model import Event


class Summing(Operator):
    """The sum of all values of a key, after each of them."""

    def __init__(self) -> None:
        self.total = 0.0

    def on_event(self, event: Event) -> Iterable[dict[str, Any]]:
        self.total += event.payload["v"]
        return [{"key": event.payload["key"], "total": self.total}]

    def snapshot(self) -> bytes:
        return repr(self.total).encode()

    def restore(self, state: bytes) -> None:
        self.total = float(state)
