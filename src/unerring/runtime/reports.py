"""Counts events at the edge of a process under dotted names, and keeps the last sentences for people."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from unerring.model import Report

DETAILS_KEPT_MAX: Final = 256
NAMES_MAX: Final = 4096
OTHER: Final = "reports.other"
"""Names come from our own code, never from a peer; should that break, counting goes on under this one."""


class Reports:
    """Counts reports and keeps the last sentences; `tap` sees each report as it comes (a log, a screen)."""

    def __init__(self, tap: Callable[[Report], None] | None = None) -> None:
        self.counts: dict[str, int] = {}
        self.details: deque[Report] = deque(maxlen=DETAILS_KEPT_MAX)
        self._tap = tap

    def count(self, what: str, count: int = 1) -> None:
        """Count only: for what may happen a million times."""
        if what not in self.counts and len(self.counts) >= NAMES_MAX:
            what = OTHER
        self.counts[what] = self.counts.get(what, 0) + count

    def note(self, what: str, detail: str, count: int = 1) -> None:
        """Count, and say what happened in a sentence that names the peer."""
        self.take(Report(what, detail, count))

    def take(self, report: Report) -> None:
        """A report that a machine made."""
        self.count(report.what, report.count)
        if report.detail:
            self.details.append(report)
        if self._tap is not None:
            self._tap(report)

    def __getitem__(self, what: str) -> int:
        return self.counts.get(what, 0)

    def sentences(self, what: str) -> list[str]:
        """The sentences kept under a name, oldest first."""
        return [report.detail for report in self.details if report.what == what]
