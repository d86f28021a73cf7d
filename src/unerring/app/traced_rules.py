"""The rules of a live replica, told of in traces. Every replica runs them; one that another one leads says nothing.

Before the first election nobody leads, and all tell. Their spans have the same ids, so a receiver has one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from unerring.correlation import Engine, Fed
from unerring.matching import Piece, Row
from unerring.tracing import Tracer, tracer


def traced(engine: Any, led: Callable[[], bool]) -> Any:
    """The engine, or one that tells what it finds unless its replica is `led` by another."""
    traces = tracer()
    return engine if traces is None else TracedEngine(engine, traces, led)


class TracedEngine:
    """Feeds another engine."""

    def __init__(self, engine: Engine, traces: Tracer, led: Callable[[], bool]) -> None:
        self._engine = engine
        self._traces = traces
        self._led = led

    def feed(self, rows: Sequence[Row], through: int) -> Fed:
        began_ns = time.time_ns()
        fed = self._engine.feed(rows, through)
        if fed.outputs and not self._led():
            self._tell(fed, rows, began_ns)
        return fed

    def snapshot(self) -> bytes:
        return self._engine.snapshot()

    def restore(self, state: bytes) -> None:
        self._engine.restore(state)

    def _tell(self, fed: Fed, rows: Sequence[Row], began_ns: int) -> None:
        inputs: dict[str, set[int]] | None = None
        for stream, piece in fed.outputs.items():
            times = _times_of(piece)
            if self._traces.among(times):
                inputs = _inputs_of(rows) if inputs is None else inputs
                self._traces.ran(stream, times, inputs, began_ns, {"unerring.engine": "live"})


def _times_of(piece: Piece) -> Any:
    if isinstance(piece, list | tuple):
        return [event.stamp.time for event in piece]
    return piece.batch.time


def _inputs_of(rows: Sequence[Row]) -> dict[str, set[int]]:
    inputs: dict[str, set[int]] = {}
    for row in rows:
        inputs.setdefault(row.event.stream, set()).add(row.event.stamp.time)
    return inputs
