"""What happened to the parts of a run, from all its folders, on one time line that is read once and then followed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from unerring.runtime import Entry, Timeline, What

HELD_MAX: Final = 20_000
"""The last so many are held; the counts are of all."""
TOLD_MAX: Final = 300
"""The last so many are in the status document."""
GRAVE: Final = (What.DIED, What.KILLED, What.EVICTED, What.RESTARTED, What.REFUSED)
"""Failures. A vote comes with each of them, and votes that never end come with a bad link: they take at most half of
the room, so that the one death among them stays to be seen."""


class RunTimeline:
    """`all` in order of wall time, `counts` by what happened, `first_us` when it began."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._readers = [Timeline(folder) for folder in folders]
        self.all: list[Entry] = []
        self.counts: dict[str, int] = {}
        self.first_us: int | None = None
        self.whole_from_us: int | None = None
        """From here on every entry is held, and of what was before only failures; None: all are held."""
        self.later_views = 0
        """Instances for which a later view was asked, of those that are held."""

    def look(self) -> dict[str, Any]:
        """Read what was added; the section of the status document."""
        added = sorted((one for reader in self._readers for one in reader.added()), key=lambda one: one.at_us)
        if added:
            for one in added:
                self.counts[one.what] = self.counts.get(one.what, 0) + 1
            self.first_us = added[0].at_us if self.first_us is None else min(self.first_us, added[0].at_us)
            late = bool(self.all) and added[0].at_us < self.all[-1].at_us
            self.all = self.all + added
            if late:  # several processes write, each to its own folder
                self.all.sort(key=lambda one: one.at_us)
            self._hold()
            self.later_views = len({one.said.partition(":")[0] for one in self.all if one.what == What.VIEW})
        return {
            "count": self.count,
            "counts": dict(self.counts),
            "last": msgspec.to_builtins(_last(self.all, TOLD_MAX)),
        }

    def _hold(self) -> None:
        if len(self.all) > HELD_MAX:
            failures = _failures_before(self.all, HELD_MAX)
            self.all = _last(self.all, HELD_MAX)
            self.whole_from_us = self.all[len(failures)].at_us

    @property
    def damages(self) -> list[str]:
        """A sentence for each folder of which a damaged line was passed over."""
        return [reader.damaged for reader in self._readers if reader.damaged]

    @property
    def count(self) -> int:
        return sum(self.counts.values())

    @property
    def last_us(self) -> int | None:
        return self.all[-1].at_us if self.all else None

    def about(self, instance: str) -> list[Entry]:
        """What process nodes reported of one instance: view changes, and executions that were undone."""
        return [one for one in self.all if one.said.startswith(f"{instance}: ")]


def _last(entries: list[Entry], most: int) -> list[Entry]:
    """The last ones, in order; up to half of them failures that are further back."""
    if len(entries) <= most:
        return entries
    failures = _failures_before(entries, most)
    return failures + entries[len(entries) - most + len(failures) :]


def _failures_before(entries: list[Entry], most: int) -> list[Entry]:
    """Of the last failures, as many as half of the room, those that are further back than the last entries."""
    grave = [at for at, one in enumerate(entries) if one.what in GRAVE][-(most // 2) :]
    return [entries[at] for at in grave if at < len(entries) - most]
