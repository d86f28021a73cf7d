"""The search for matches: backtracking over the tree, written to be read. It defines what a pattern means.

`outcomes(start)` tries every path from a start row in preference order, over the rows known so far, and says of each
how it ended:

- MATCH: the whole pattern is satisfied;
- OPEN: it needs a row that is not known yet; it cannot end otherwise before time `until` has passed;
- TIMED_OUT: it needed a row, and `within` ran out first.

A path on which a condition fails is not reported. An answer is certain as soon as nothing OPEN precedes it: a path that
has failed, matched or timed out on some rows does so on all longer ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from functools import lru_cache
from itertools import permutations
from typing import Final

from unerring.matching.evaluation import NotYet, Prepared, prepare
from unerring.matching.scopes import Bound, MatchScope
from unerring.model import TIME_MAX, Event, Key, RuleError, breach
from unerring.rules import Expr, PatternPlan, patterns as pt


class Status(Enum):
    LIVE = "live"
    MATCH = "match"
    OPEN = "open"
    TIMED_OUT = "timed out"


class EndKind(StrEnum):
    """What ended a path that is no match."""

    CONDITION = "condition"
    """A row did not satisfy the step's condition. (Where rows may be passed over, the path itself goes on.)"""
    USED = "used"
    """A row was used up by another match."""
    CONTIGUITY = "contiguity"
    """The very next row had to be taken, and was not."""
    DEADLINE = "deadline"
    ABSENCE = "absence"
    UNTIL = "until"
    ANCHOR = "anchor"
    INPUT = "end of input"


ATTEMPTS_MAX: Final = 1_000_000
"""Pattern nodes tried from one start row at one position: the oracle remembers nothing of what has failed."""

NEXT_ROW: Final = pt.Gap(pt.Contiguity.STRICT)
"""The gap where none is written."""


@dataclass(frozen=True, slots=True)
class Path:
    """How far one attempt has come."""

    start: int
    next: int
    """The row after the last bound one; the start row while nothing is bound."""
    bound: tuple[Bound, ...] = ()
    excluded: tuple[int, ...] = ()
    """Bound rows that an exclusion leaves out."""
    gap: pt.Gap = NEXT_ROW
    absences: tuple[pt.Absence, ...] = ()
    """The absences that apply to the rows before the next bound one."""
    stops: tuple[tuple[Expr, int], ...] = ()
    """The `until` of each loop that the path is in, and how many rows were bound when it came into it."""
    status: Status = Status.LIVE
    until: int = TIME_MAX


@dataclass(frozen=True, slots=True)
class Ending:
    """Where and why a path ended, or which row it could not take."""

    path: Path
    kind: EndKind
    variable: str = ""
    """Of the step that was not satisfied, or of the absence that was violated."""
    index: int | None = None
    """The row."""
    deadline: int = TIME_MAX
    """The latest time that the step's row could have had."""


Observe = Callable[[Ending], None]


@dataclass(slots=True)
class Known:
    """The knowledge at a position of the merged input: the key's rows so far, and how far time is complete."""

    rows: Sequence[Event]
    complete: int
    """All events up to this time are known."""
    ended: bool
    """Nothing will come any more."""
    used: frozenset[int] = frozenset()
    """Rows that may not be bound (chronicle)."""


class Search:
    """One plan, one key, one position."""

    def __init__(
        self,
        plan: PatternPlan,
        key: Key,
        known: Known,
        match_number: int,
        attempts_max: int = ATTEMPTS_MAX,
        observe: Observe | None = None,
    ) -> None:
        self.plan = plan
        self.key = key
        self.known = known
        self.match_number = match_number
        self.attempts = 0
        self.attempts_max = attempts_max
        self._observe = observe

    def outcomes(self, start: int) -> Iterator[Path]:
        for path in self._paths(self.plan.pattern, Path(start, start)):
            if path.status is Status.LIVE:
                yield from self._completed(path)
            else:
                yield path

    # --- the tree ---

    def _paths(self, node: pt.Pattern, path: Path) -> Iterator[Path]:
        """All ways to satisfy `node` from `path` on, in preference order."""
        self.attempts += 1
        if self.attempts > self.attempts_max:
            raise RuleError(
                f"rule {self.plan.name}: the oracle gave up after {self.attempts_max} attempts from one row; another "
                "matcher remembers what has failed, or make the pattern less ambiguous (fewer nested quantifiers)"
            )
        match node:
            case pt.Step(variable):
                yield from self._step(variable, path)
            case pt.Sequence(parts):
                yield from self._sequence(parts, path)
            case pt.Alternation(options):
                for option in options:
                    yield from self._paths(option, path)
            case pt.Permute(parts, gap):
                between = () if gap is None else (gap,)
                for order in permutations(parts):
                    chain = [node for part in order for node in (*between, part)][len(between) :]
                    yield from self._sequence(tuple(chain), path)
            case pt.Quantified():
                stops = path.stops if node.until is None else (*path.stops, (node.until, len(path.bound)))
                for after in self._iterations(node, replace(path, stops=stops), 0):
                    yield replace(after, stops=path.stops)
            case pt.Exclusion(part):
                for after in self._paths(part, path):
                    inside = tuple(index for index, _ in after.bound[len(path.bound) :])
                    yield replace(after, excluded=path.excluded + inside)
            case pt.Gap():
                yield replace(path, gap=node)
            case pt.Absence():
                yield from self._absence(node, path)
            case pt.StartAnchor():
                if path.next == 0:
                    yield path
                else:
                    self._end(path, EndKind.ANCHOR, "", path.next)
            case pt.EndAnchor():
                if path.next == len(self.known.rows):
                    yield path if self.known.ended else replace(path, status=Status.OPEN)
                else:
                    self._end(path, EndKind.ANCHOR, "", path.next)
            case pt.Empty():
                yield path
            case _:
                breach(f"a pattern node of kind {type(node).__name__}")

    def _sequence(self, parts: tuple[pt.Pattern, ...], path: Path) -> Iterator[Path]:
        if not parts:
            yield path
            return
        for after in self._paths(parts[0], path):
            if after.status is Status.LIVE:
                yield from self._sequence(parts[1:], after)
            else:
                yield after

    def _iterations(self, node: pt.Quantified, path: Path, done: int) -> Iterator[Path]:
        """The iterations after `done` ones."""
        may_leave = done >= node.least
        if may_leave and not node.greedy:
            yield path
        if node.most is None or done < node.most:
            enter = replace(path, gap=node.between) if done and node.between is not None else path
            for after in self._paths(node.part, enter):
                if after.status is Status.LIVE and len(after.bound) > len(path.bound):
                    yield from self._iterations(node, after, done + 1)
                else:
                    yield after  # not live, or an iteration that bound nothing: it ends the loop
        if may_leave and node.greedy:
            yield path

    # --- rows ---

    def _step(self, variable: str, path: Path) -> Iterator[Path]:
        """Bind the next row: the very next one, the first that fits, or any that fits."""
        rows = self.known.rows
        if not path.bound:
            if self._refused(path, path.start):
                self._end(path, EndKind.UNTIL, variable, path.start)
            else:
                yield from self._bind(variable, path, path.start)
            return
        deadline = self._deadline(path, path.gap.within_us)
        index = path.next
        while True:
            if index >= len(rows):
                yield from self._ran_out(variable, path, deadline)
                return
            if rows[index].stamp.time > deadline:
                self._end(path, EndKind.DEADLINE, variable, index, deadline)
                yield replace(path, status=Status.TIMED_OUT)
                return
            if self._forbidden(path, index, pt.AbsenceKind.NEXT):
                return
            if self._stopped(path, index):
                self._end(path, EndKind.UNTIL, variable, index, deadline)
                return
            taken = False
            for bound in self._bind(variable, path, index):
                taken = True
                if bound.status is Status.OPEN:
                    yield bound
                    return
                if not self._refused(path, index):
                    yield bound
            if path.gap.contiguity is pt.Contiguity.STRICT:
                if not taken:
                    self._end(path, EndKind.CONTIGUITY, variable, index, deadline)
                return
            if taken and path.gap.contiguity is pt.Contiguity.RELAXED:
                return
            if self._forbidden(path, index, pt.AbsenceKind.FOLLOWED):
                return
            index += 1

    def _bind(self, variable: str, path: Path, index: int) -> Iterator[Path]:
        """The path with this row bound, if the variable's condition holds on it; OPEN if that is not known yet."""
        defined = self.plan.variable(variable)
        if index in self.known.used:
            self._end(path, EndKind.USED, variable, index)
            return
        if defined.stream is not None and self.known.rows[index].stream != self._stream(defined.stream):
            return
        try:
            accepted = defined.condition is None or self._holds(defined.condition, path, index, variable)
        except NotYet:
            yield replace(path, status=Status.OPEN, until=TIME_MAX)
            return
        if accepted:
            yield Path(path.start, index + 1, (*path.bound, (index, variable)), path.excluded, stops=path.stops)
        else:
            self._end(path, EndKind.CONDITION, variable, index)

    def _stopped(self, path: Path, index: int) -> bool:
        """Whether the search ends at this row: by its gap, or by a loop that has bound rows."""
        begun = [until for until, bound in path.stops if len(path.bound) > bound]
        ends = begun if path.gap.until is None else [path.gap.until, *begun]
        return any(self._holds(until, path, index, None) for until in ends)

    def _refused(self, path: Path, index: int) -> bool:
        """Whether this row cannot be the first of a loop, because it is what would end it."""
        ahead = [until for until, bound in path.stops if len(path.bound) == bound]
        return any(self._holds(until, path, index, None) for until in ahead)

    def _stream(self, name: str) -> str:
        return next(source.schema.name for source in self.plan.inputs if source.name == name)

    def _ran_out(self, variable: str, path: Path, deadline: int) -> Iterator[Path]:
        """It needs a row, and there is none yet."""
        if self.known.complete >= deadline and deadline < TIME_MAX:
            self._end(path, EndKind.DEADLINE, variable, None, deadline)
            yield replace(path, status=Status.TIMED_OUT)
        elif not self.known.ended:
            yield replace(path, status=Status.OPEN, until=deadline)
        else:
            self._end(path, EndKind.INPUT, variable, None, deadline)

    def _deadline(self, path: Path, within_us: int | None) -> int:
        """The latest time of a row for this path, by the whole `within` and by one since the last bound row."""
        rows = self.known.rows
        deadline = TIME_MAX
        if self.plan.within_us is not None:
            deadline = rows[path.start].stamp.time + self.plan.within_us
        if within_us is not None:
            deadline = min(deadline, rows[path.bound[-1][0]].stamp.time + within_us)
        return deadline

    # --- absence ---

    def _absence(self, node: pt.Absence, path: Path) -> Iterator[Path]:
        if path.bound:
            yield replace(path, absences=(*path.absences, node))
        elif (seen := self._seen_before(node, path)) is None:
            yield path
        else:
            self._end(path, EndKind.ABSENCE, node.variable, seen)

    def _seen_before(self, node: pt.Absence, path: Path) -> int | None:
        """Look back from before the first bound row for one that must not be there."""
        rows = self.known.rows
        earliest = -TIME_MAX if node.within_us is None else rows[path.start].stamp.time - node.within_us
        for index in range(path.start - 1, -1, -1):
            if rows[index].stamp.time < earliest:
                return None
            if self.takes(node.variable, path, index):
                return index
            if node.kind is pt.AbsenceKind.NEXT:
                return None
        return None

    def _forbidden(self, path: Path, index: int, kind: pt.AbsenceKind) -> bool:
        """Whether a pending absence forbids this row: `next` the first after the last bound one, `followed` any."""
        time = self.known.rows[index].stamp.time
        for absence in path.absences:
            if (
                absence.kind is kind
                and (kind is pt.AbsenceKind.FOLLOWED or index == path.next)
                and time <= self._deadline(path, absence.within_us)
                and self.takes(absence.variable, path, index)
            ):
                self._end(path, EndKind.ABSENCE, absence.variable, index)
                return True
        return False

    def _completed(self, path: Path) -> Iterator[Path]:
        """The tree is satisfied: a match, unless absences after the last bound row are still to be waited for."""
        until = -TIME_MAX
        for absence in path.absences:
            deadline = self._deadline(path, absence.within_us)
            for index in range(path.next, len(self.known.rows)):
                if self.known.rows[index].stamp.time > deadline or (
                    absence.kind is pt.AbsenceKind.NEXT and index > path.next
                ):
                    break
                if self.takes(absence.variable, path, index):
                    self._end(path, EndKind.ABSENCE, absence.variable, index)
                    return
                if absence.kind is pt.AbsenceKind.NEXT:
                    break
            else:
                if not self.known.ended and self.known.complete < deadline:
                    until = max(until, deadline)
        if until > -TIME_MAX:
            yield replace(path, status=Status.OPEN, until=until)
        else:
            yield replace(path, status=Status.MATCH)

    # --- what is told to whoever asks why not ---

    def _end(
        self, path: Path, kind: EndKind, variable: str, index: int | None = None, deadline: int = TIME_MAX
    ) -> None:
        if self._observe is not None:
            self._observe(Ending(path, kind, variable, index, deadline))

    # --- conditions ---

    def takes(self, variable: str, path: Path, index: int) -> bool:
        """Whether a path could bind this row to the variable, by its stream and condition."""
        defined = self.plan.variable(variable)
        if defined.stream is not None and self.known.rows[index].stream != self._stream(defined.stream):
            return False
        return defined.condition is None or self._holds(defined.condition, path, index, variable)

    def _holds(self, condition: Expr, path: Path, index: int, variable: str | None) -> bool:
        """On this row, as if it were bound to the variable."""
        bound = path.bound if variable is None else (*path.bound, (index, variable))
        scope = MatchScope(self.known.rows, bound, index, self.key, self.match_number, self.known.ended)
        return prepared(condition)(scope) is True


@lru_cache(maxsize=1024)
def prepared(condition: Expr) -> Prepared:
    """Prepared once for each condition: the search is slow enough."""
    return prepare(condition)
