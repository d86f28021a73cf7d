"""Why a pattern was not found: how far each attempt came, what ended it, and which one change would have made it.

The search that defines the rule (`oracle.search`) tells where its paths end. Of the paths of a start row those that
came furthest count. What ended them is then tried: the rule runs once more with that one thing different, and a reason
*decides* if the match from that start is found then. So an answer is no guess: whoever does not trust it can make the
same change and run the rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from unerring.matching.oracle.matching import KeyMatches
from unerring.matching.oracle.search import Ending, EndKind, Known, Path, Search, Status
from unerring.matching.oracle.supposing import added, extended, granted, without
from unerring.matching.oracle.terms import Term, terms_of
from unerring.matching.outputs import Row, merge_order
from unerring.matching.scopes import MatchScope
from unerring.model import TIME_MAX, Event, Key, RuleError
from unerring.rules import PatternPlan, Selection, patterns as pt

ATTEMPTS_MAX: Final = 100_000
"""Pattern nodes tried from one row: an answer for a page must not take for ever."""
REASONS_MAX: Final = 6
"""So many of an attempt's reasons are tried and given."""
PLACES_MAX: Final = 20
"""At so many of the last rows it is tried whether an event before it would have begun a match."""

MISSING: Final = "missing event"
LATE: Final = "late"
SKIP: Final = "skip"
WHERE: Final = "where"


@dataclass(frozen=True, slots=True)
class Reason:
    """What ended an attempt."""

    kind: str
    """Of `EndKind`; or "late" (a row that fits came after the deadline), "missing event" (none came), "skip" (complete,
    and another match was chosen), "where" (the event is left out by the filter of its input)."""
    variable: str = ""
    event: Event | None = None
    terms: tuple[Term, ...] = ()
    """The parts of the condition, and what each gave."""
    deadline_us: int | None = None
    late_us: int | None = None
    decides: bool = False
    """With this one thing different, the situation is found: tried, not guessed."""

    @property
    def far(self) -> bool:
        """The event is of another sort than the one that was wanted."""
        return any(term.identity and not term.holds for term in self.terms)


@dataclass(frozen=True, slots=True)
class Attempt:
    """What came of one start row."""

    outcome: str
    """found, open (it may still be found) or missed."""
    bound: tuple[tuple[str, Event], ...]
    steps: int
    """How many of the pattern's steps are satisfied…"""
    of: int
    """…of so many that the shortest match has."""
    reasons: tuple[Reason, ...] = ()
    found_at: int | None = None
    until_us: int | None = None
    """Open: when it ends at the latest."""
    window: tuple[int, int] | None = None
    """Of a window: from when, and before when."""

    @property
    def nearness(self) -> tuple[bool, bool, int, int, int]:
        """Sorted by it, the nearest miss comes first."""
        last = max((event.stamp.time for _, event in self.bound), default=0)
        decides = any(reason.decides for reason in self.reasons)
        far = all(reason.far for reason in self.reasons if reason.decides or not decides)
        return not decides, far, self.of - self.steps, -len(self.bound), -last


class Misses:
    """One key's rows, and what the rule made of them through a time. `left_out`: rows that an input's filter took
    away."""

    def __init__(
        self, plan: PatternPlan, key: Key, rows: Sequence[Row], through: int, left_out: Sequence[Row] = ()
    ) -> None:
        self.plan, self.key, self.through = plan, key, through
        self.rows = list(rows)
        self.left_out = list(left_out)
        self._events = [row.event for row in rows]
        self._run = KeyMatches(plan, key, ATTEMPTS_MAX)
        self.outputs = self._run.run(self.rows, through)
        self._matches = {path.start: (path, place) for path, place in reversed(self._run.matches)}
        self._of = shortest(plan.pattern)

    def attempts(self) -> list[Attempt]:
        """Of every start row one, found ones and open ones among them, and the nearest miss first."""
        made = [self._attempt(start) for start in range(len(self.rows))]
        order = {"found": 0, "open": 1, "missed": 1}
        every = [*made, *self._from_left_out(), *self._without_start(made)]
        return sorted(every, key=lambda one: (order[one.outcome], one.nearness))

    def open(self) -> list[Attempt]:
        """Those that may still become a match, the furthest first."""
        undecided = (start for start in range(len(self.rows)) if start not in self._matches)
        made = [self._outcome(start, []) for start in undecided if self._may_start(start)]
        return sorted((one for one in made if one.outcome == "open"), key=lambda one: one.nearness)

    # --- one start ---

    def _attempt(self, start: int) -> Attempt:
        if start in self._matches:
            path, place = self._matches[start]
            return Attempt("found", self._bound(path), self._of, self._of, (), place[0])
        endings: list[Ending] = []
        outcome = self._outcome(start, endings)
        if outcome.outcome == "open" and self._may_start(start):
            return outcome
        if outcome.outcome != "missed":
            # It is, or may become, a match by itself, and another one was chosen before it.
            return replace(outcome, outcome="missed", reasons=(Reason(SKIP, event=self._events[start], decides=True),))
        furthest = max((self._steps(ending.path) for ending in endings), default=(0, 0))
        last = [ending for ending in endings if self._steps(ending.path) == furthest]
        reasons = self._tried(start, self._reasons(last))
        bound = self._bound(last[0].path) if last else ()
        return Attempt("missed", bound, furthest[0], max(self._of, furthest[0]), tuple(reasons))

    def _outcome(self, start: int, endings: list[Ending]) -> Attempt:
        """What the search says from this row with all that is known now, as if no other match had been found."""
        known = Known(self._events, self.through, self.through == TIME_MAX)
        search = Search(self.plan, self.key, known, self._run.numbered + 1, ATTEMPTS_MAX, endings.append)
        paths = list(search.outcomes(start))
        still = [path for path in paths if path.status is Status.OPEN]
        if still and (self.plan.selection is not Selection.PREFERRED or paths[0] is still[0] or not _matches(paths)):
            best = max(still, key=self._steps)
            until = None if best.until >= TIME_MAX else best.until
            return Attempt("open", self._bound(best), self._steps(best)[0], self._of, until_us=until)
        if _matches(paths):
            best = next(path for path in paths if path.status is Status.MATCH)
            return Attempt("complete", self._bound(best), self._of, self._of)
        return Attempt("missed", (), 0, self._of)

    def _may_start(self, start: int) -> bool:
        if self.plan.selection is Selection.PREFERRED:
            return start >= self._run.start
        return start in self._run.starts

    def _steps(self, path: Path) -> tuple[int, int]:
        """Distinct steps first: a long loop is no progress."""
        return min(len({name for _, name in path.bound}), self._of), len(path.bound)

    def _bound(self, path: Path) -> tuple[tuple[str, Event], ...]:
        return tuple((name, self._events[index]) for index, name in path.bound)

    # --- reasons ---

    def _reasons(self, endings: list[Ending]) -> list[Reason]:
        """The nearest first: a row that was almost taken, one that came too late, one that must not be there."""
        order = (EndKind.CONDITION, LATE, EndKind.ABSENCE, EndKind.UNTIL, EndKind.USED, EndKind.CONTIGUITY)
        found: dict[tuple[object, ...], tuple[tuple[int, int, int], Reason]] = {}
        for ending in endings:
            for reason in self._reasons_of(ending):
                stamp = None if reason.event is None else (reason.event.stream, reason.event.stamp)
                rank = len(order) + reason.far if reason.far or reason.kind not in order else order.index(reason.kind)
                failed = sum(not term.holds for term in reason.terms)
                nearness = (rank, failed, -(reason.event.stamp.time if reason.event is not None else 0))
                found.setdefault((reason.kind, reason.variable, stamp), (nearness, reason))
        return [reason for _, reason in sorted(found.values(), key=lambda one: one[0])]

    def _reasons_of(self, ending: Ending) -> Iterator[Reason]:
        event = None if ending.index is None else self._events[ending.index]
        deadline = None if ending.deadline >= TIME_MAX else ending.deadline
        match ending.kind:
            case EndKind.CONDITION if ending.index is not None:
                terms = self._terms(ending.path, ending.variable, ending.index)
                yield Reason(ending.kind, ending.variable, event, terms)
            case EndKind.DEADLINE | EndKind.INPUT:
                late = self._late(ending)
                if late is not None and deadline is not None:
                    yield Reason(LATE, ending.variable, late, (), deadline, late.stamp.time - deadline)
                yield Reason(MISSING, ending.variable, None, (), deadline)
            case EndKind.CONTIGUITY:
                yield Reason(ending.kind, ending.variable, event, (), deadline)
                yield Reason(MISSING, ending.variable, None, (), deadline)
            case _:
                yield Reason(ending.kind, ending.variable, event, (), deadline)

    def _late(self, ending: Ending) -> Event | None:
        """The first row after the deadline that the step would have taken."""
        bare = replace(self.plan, within_us=None, unbounded=True, timed_out=None)
        known = Known(self._events, self.through, self.through == TIME_MAX)
        search = Search(bare, self.key, known, 1, ATTEMPTS_MAX)
        for index in range(ending.index if ending.index is not None else len(self._events), len(self._events)):
            if search.takes(ending.variable, ending.path, index):
                return self._events[index]
        return None

    def _terms(self, path: Path, variable: str, index: int) -> tuple[Term, ...]:
        condition = self.plan.variable(variable).condition
        bound = (*path.bound, (index, variable))
        return terms_of(condition, MatchScope(self._events, bound, index, self.key, self._run.numbered + 1, False))

    # --- trying ---

    def _tried(self, start: int, reasons: list[Reason]) -> list[Reason]:
        tried = [replace(one, decides=self._decides(start, one)) for one in reasons[:REASONS_MAX]]
        return sorted(tried, key=lambda one: (not one.decides, one.far))

    def _decides(self, start: int, reason: Reason) -> bool:
        event = self._events[start]
        match reason.kind:
            case EndKind.CONDITION if reason.event is not None:
                return self._finds(granted(self.plan, reason.variable, reason.event), self.rows, event)
            case "late" if reason.late_us is not None:
                return self._finds(extended(self.plan, reason.late_us), self.rows, event)
            case EndKind.ABSENCE | EndKind.UNTIL | EndKind.CONTIGUITY if reason.event is not None:
                return self._finds(self.plan, without(self.rows, reason.event), event)
            case "missing event":
                before = min(self.through, TIME_MAX if reason.deadline_us is None else reason.deadline_us)
                return self._begins(reason.variable, before, event)
            case EndKind.USED:
                return True
        return False

    def _begins(self, variable: str, time_us: int, start: Event | None) -> bool:
        """Whether one more event for a step, at this time, would make a match."""
        last = self._events[-1].stamp.time
        plan, rows = added(self.plan, variable, self.key, self.rows, min(time_us, last + 1))
        return self._finds(plan, rows, start)

    def _finds(self, plan: PatternPlan, rows: Sequence[Row], start: Event | None) -> bool:
        """Whether a match from this row (or, without one, a further match) is found by another rule or other rows."""
        run = KeyMatches(plan, self.key, ATTEMPTS_MAX)
        try:
            run.run(rows, self.through)
        except RuleError:  # a skip that leads nowhere on these rows: it would have been found no better
            return False
        if start is None:
            return len(run.matches) > len(self._run.matches)
        return any(rows[path.start].event is start for path, _ in run.matches)

    # --- events that no attempt began with ---

    def _from_left_out(self) -> Iterator[Attempt]:
        """Events that the filter of an input took away, and with which the rule would have found more."""
        for row in self.left_out[-PLACES_MAX:]:
            rows = sorted([*self.rows, row], key=merge_order)
            if self._finds(self.plan, rows, None):
                source = next(one for one in self.plan.inputs if one.schema.name == row.event.stream)
                terms = terms_of(source.where, MatchScope([row.event], (), 0, self.key, None, False))
                reason = Reason(WHERE, "", row.event, terms, decides=True)
                yield Attempt("missed", (), max(self._of - 1, 0), self._of, (reason,))

    def _without_start(self, made: list[Attempt]) -> Iterator[Attempt]:
        """An event that would have begun a match, had it come before the last ones."""
        if any(one.outcome != "missed" or one.nearness[:2] == (False, False) for one in made) or self._of < 2:
            return
        first = next(node.variable for node in pt.nodes(self.plan.pattern) if isinstance(node, pt.Step))
        for event in self._events[: -PLACES_MAX - 1 : -1]:
            if self._begins(first, event.stamp.time - 1, None):
                reason = Reason(MISSING, first, None, (), event.stamp.time - 1, decides=True)
                yield Attempt("missed", (), self._of - 1, self._of, (reason,))
                return


def _matches(paths: list[Path]) -> bool:
    return any(path.status is Status.MATCH for path in paths)


def shortest(pattern: pt.Pattern) -> int:
    """The fewest distinct steps that a match has."""
    match pattern:
        case pt.Step():
            return 1
        case pt.Sequence(parts) | pt.Permute(parts):
            return sum(map(shortest, parts))
        case pt.Alternation(options):
            return min(map(shortest, options))
        case pt.Quantified(part, least):
            return shortest(part) if least else 0
        case pt.Exclusion(part):
            return shortest(part)
        case _:
            return 0
