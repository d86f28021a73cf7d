"""The rules of a live replica, told of in traces. Every replica runs them; one that another one leads says nothing.

Before the first election nobody leads, and all tell. Their spans have the same ids, so a receiver has one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from unerring.correlation import Engine, Fed
from unerring.matching import Merged, Row, times_of
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
        for stream, piece in fed.outputs.items():
            times = times_of(piece)
            if self._traces.among(times):
                self._traces.ran(stream, times, _inputs_of(rows), began_ns, {"unerring.engine": "live"})


class _Times:
    """Some times, piece by piece."""

    def __init__(self, pieces: Sequence[Any]) -> None:
        self._pieces = pieces

    def __contains__(self, time_us: object) -> bool:
        return any(time_us in piece for piece in self._pieces)


def _inputs_of(rows: Sequence[Row]) -> Mapping[str, Container[int]]:
    """By stream, the times of what was fed."""
    if isinstance(rows, Merged):
        return {stream: _Times(pieces) for stream, pieces in rows.times().items()}
    inputs: dict[str, set[int]] = {}
    for row in rows:
        inputs.setdefault(row.event.stream, set()).add(row.event.stamp.time)
    return inputs
