"""What an audit found, as one value: for the screen, for scripts, and for the page that people read."""

from __future__ import annotations

from typing import Final

import msgspec

from unerring.audit.comparison import Finding
from unerring.audit.intake import Intake
from unerring.audit.strong_reliability import (
    COMPLETENESS,
    DUPLICATION,
    FALSE_NEGATIVE,
    FALSE_ORDERING,
    FALSE_POSITIVE,
)
from unerring.audit.verdict import Violation
from unerring.model import Event

PROMISES: Final = {
    FALSE_POSITIVE: "false positives",
    FALSE_NEGATIVE: "false negatives",
    DUPLICATION: "duplicates",
    FALSE_ORDERING: "false order",
    COMPLETENESS: "still to come",
}
"""Definition 1's properties, in its order, and what a table calls their violations."""


class Witness(msgspec.Struct, frozen=True):
    """A finding and the events that show it."""

    finding: Finding
    made_by: tuple[Event, ...] = ()
    """The events that make the missing situation, or the right one in place of the wrong."""
    unmade_by: tuple[Event, ...] = ()
    """Without any one of these the false situation would be a true one."""
    nearby: tuple[Event, ...] = ()
    """The key's last events, where neither is known."""


class RuleVerdict(msgspec.Struct, frozen=True):
    """One stream of situations, judged."""

    rule: str
    stream: str
    engine: str
    version: str
    from_us: int
    """The situations after this time are judged…"""
    through_us: int
    """…up to this one."""
    delivered_through_us: int
    delivered: int
    perfect: int
    counts: dict[str, int]
    """Violations by the promise that they break."""
    witnesses: tuple[Witness, ...] = ()
    notes: tuple[str, ...] = ()
    """What could not be judged, and why."""
    bins_delivered: tuple[int, ...] = ()
    bins_perfect: tuple[int, ...] = ()
    bins_wrong: tuple[int, ...] = ()

    @property
    def wrong(self) -> int:
        return sum(self.counts.values())


class Report(msgspec.Struct, frozen=True):
    """One audit of one run."""

    app: str
    run: str
    from_us: int
    """The first event's time, where the plots begin."""
    through_us: int
    """Up to where the log is known, or to where the audit was asked to look."""
    rules: tuple[RuleVerdict, ...]
    intake: tuple[Intake, ...]
    intake_violations: tuple[Violation, ...] = ()
    events: dict[str, int] = {}
    """Events of the primary streams that the perfect run was computed from."""
    time_columns: dict[str, tuple[str, ...]] = {}
    """For each stream, the columns that hold times, so that a page can write them as such."""
    readers: tuple[tuple[str, str, int, int], ...] = ()
    """Stream, reader, time of its committed position, and situations that it has still to take."""
    notes: tuple[str, ...] = ()
    line_violations: tuple[Violation, ...] = ()
    """Between situations and the processes that they start."""

    @property
    def wrong(self) -> int:
        """How many violations of any promise there are."""
        return sum(rule.wrong for rule in self.rules) + len(self.intake_violations) + len(self.line_violations)
