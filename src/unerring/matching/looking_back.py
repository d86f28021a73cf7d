"""How far back a rule looks: how much of the past a matcher must have read before its outputs are those of a matcher
that has read everything.

Three kinds. Some rules forget by time: whatever they find after T depends on the events after T - `span_us` alone. Some
forget when a key is quiet: matches that use events up, and sessions, depend on those before them, until a key pauses
for longer than `pause_us`. The others look back without end.
"""

from __future__ import annotations

from dataclasses import dataclass

from unerring.matching.interpreter.matching import PatternRules
from unerring.model import TIME_MAX
from unerring.rules import (
    Counted,
    Emit,
    JoinPlan,
    PatternPlan,
    Plan,
    Quantified,
    Selection,
    Session,
    SkipKind,
    Sliding,
    Step,
    WindowPlan,
    patterns,
    trailing_absences,
    unbounded_reason,
)


@dataclass(frozen=True, slots=True)
class LookBack:
    """One of the times is there, or neither: then it is without end."""

    span_us: int | None = None
    """What happened so long ago does not matter any more."""
    pause_us: int | None = None
    """What happened before a key's last pause that was longer than this does not matter to that key any more."""
    why: str = ""

    @property
    def endless(self) -> bool:
        return self.span_us is None and self.pause_us is None

    def __str__(self) -> str:
        if self.span_us is not None:
            return f"{_duration(self.span_us)}: {self.why}"
        if self.pause_us is not None:
            return f"to a key's last pause of more than {_duration(self.pause_us)}: {self.why}"
        return f"without end: {self.why}"


def look_back(plan: Plan) -> LookBack:
    """How far back a rule looks, by its plan."""
    match plan:
        case PatternPlan():
            return _pattern(plan)
        case WindowPlan():
            return _window(plan)
        case JoinPlan(within_us=within_us):
            # An event that joined nothing is output at its deadline; its partner may be as long before it.
            return LookBack(2 * within_us, why="twice its within")
    return LookBack(why="what an operator remembers is its own affair")


def _pattern(plan: PatternPlan) -> LookBack:
    rules = PatternRules(plan)
    endless = unbounded_reason(plan)
    if endless is not None:
        return LookBack(why=endless)
    within_us = plan.within_us if plan.within_us is not None else _longest(plan)
    if within_us is None:
        return LookBack(why="it has no within")
    for asked, why in (
        (rules.lookback, "PREV asks for an event that may be long ago"),
        (rules.row_before, "the event before a start may be long ago"),
        (rules.numbered, "match numbers count from the beginning"),
        (rules.anchored, "^ asks which event was a key's first"),
        (rules.horizon_us >= TIME_MAX, "an absence at its start looks back without a limit"),
    ):
        if asked:
            return LookBack(why=why)
    # A start is decided within `within`, and its output may wait for an earlier start that is still open.
    span_us = 2 * within_us + max(rules.horizon_us, 0)
    independent = plan.selection in (Selection.ALL, Selection.CONTINUOUS)
    next_row = plan.selection is Selection.PREFERRED and plan.skip.kind is SkipKind.TO_NEXT
    if independent or next_row:
        return LookBack(span_us, why="twice its within, as no match uses events up")
    return LookBack(pause_us=span_us, why="a match uses events up, so that the next one depends on it")


def _longest(plan: PatternPlan) -> int | None:
    """How long a match of a pattern without a within can take: known where it binds one row, and waits for others."""
    nodes = list(patterns.nodes(plan.pattern))
    if sum(isinstance(node, Step) for node in nodes) != 1 or any(isinstance(node, Quantified) for node in nodes):
        return None
    return max((absence.within_us or 0 for absence in trailing_absences(plan.pattern)), default=0)


def _window(plan: WindowPlan) -> LookBack:
    match plan.window:
        case Session(gap_us=gap_us):
            if plan.emit is Emit.CHANGE:
                return LookBack(why="the last values of every key are compared with the next ones")
            return LookBack(pause_us=gap_us, why="a session goes on until its key pauses")
        case Counted():
            return LookBack(why="a window of counted events may have begun long ago")
        case Sliding(size_us=size_us, slide_us=slide_us):
            return LookBack(2 * size_us + slide_us, why="the window before the open ones")
        case window:
            return LookBack(2 * window.size_us, why="the open window and the one before it")


def _duration(time_us: int) -> str:
    """As people write it: the largest unit that it is a whole number of."""
    for unit, us in (("d", 86_400_000_000), ("h", 3_600_000_000), ("min", 60_000_000), ("s", 1_000_000), ("ms", 1_000)):
        if time_us and time_us % us == 0:
            return f"{time_us // us} {unit}"
    return f"{time_us} µs"
