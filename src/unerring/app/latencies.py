"""How long it takes from an event to a situation, and from there to its process: what a run's own process measures.

| since | to | is |
|---|---|---|
| published | situation | from the time of the event that decided it, by its producer's clock, until its seal |
| logged | situation | from when the log knew all primary inputs up to that time, by their segments, until its seal |
| situation | started | from when it is sealed until its process is on a majority of the nodes |

Event time that is not a clock's (a simulation, a file of last year) says nothing of when an event was published: then
the first row stays empty, and the second one has the answer.
"""

from __future__ import annotations

import threading
from typing import Final

import msgspec

from unerring.app.metrics import Metrics
from unerring.model import Histogram
from unerring.runtime import CLOCKED_S

NAME: Final = "unerring_latency_seconds"
CLOCKS_DIFFER_S: Final = 1.0
"""A producer's clock may be ahead of ours by so much."""


class Latency(msgspec.Struct):
    """One way, of one stream of situations."""

    since: str
    to: str
    of: str
    took: Histogram


class Latencies:
    """Any thread may add, and look."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str, str], Histogram] = {}
        self._lock = threading.Lock()

    def add(self, since: str, to: str, of: str, took_s: float) -> None:
        """Count one, unless it cannot be of one clock."""
        if -CLOCKS_DIFFER_S <= took_s <= CLOCKED_S:
            with self._lock:
                self._kept.setdefault((since, to, of), Histogram()).add(max(0.0, took_s))

    def look(self) -> list[Latency]:
        with self._lock:
            return [
                Latency(*way, Histogram(list(one.counts), one.sum_s, one.max_s))
                for way, one in sorted(self._kept.items())
            ]

    def measure(self, metrics: Metrics) -> None:
        """Update the metrics."""
        for one in self.look():
            metrics.observe(NAME, one.took, since=one.since, to=one.to, of=one.of)
