"""How many requests a process makes to a store: they cost time and money, so they are shown."""

from __future__ import annotations

import time
from collections import Counter, deque
from pathlib import Path
from typing import Any, Final

from unerring.app.metrics import Metrics
from unerring.log import requests_made

OVER_S: Final = 30.0
"""The rate is of so long."""


class Requests:
    """The counts since the process began, by kind, and the rate of the last half minute. `folder`: where those of the
    processes are written down that plan the micro-batches of this driver."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._seen: deque[tuple[float, int]] = deque([(time.monotonic(), sum(self._made().values()))])

    def _made(self) -> dict[str, int]:
        made = Counter(requests_made())
        if self._folder is not None and (self._folder / "requests").is_dir():
            from unerring.pipeline import planner_requests

            made.update(planner_requests(self._folder))
        return dict(made)

    def look(self) -> dict[str, Any]:
        made = self._made()
        now_s, total = time.monotonic(), sum(made.values())
        self._seen.append((now_s, total))
        while len(self._seen) > 2 and self._seen[1][0] <= now_s - OVER_S:
            self._seen.popleft()
        first_s, before = self._seen[0]
        per_s = max(0, total - before) / (now_s - first_s) if now_s > first_s else 0.0
        return {"made": made, "per_s": round(per_s, 3)}

    def measure(self, metrics: Metrics) -> None:
        """Update the metrics; a run in a folder makes no requests."""
        for kind, count in self._made().items():
            metrics.set("unerring_store_requests_total", count, kind=kind)
