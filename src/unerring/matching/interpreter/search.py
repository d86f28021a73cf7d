"""The resumable search: threads of a program over a key's rows. One that needs a row waits, and goes on when it is fed.

A thread is a tuple, made anew at every change. What it has bound is a chain of links from the last row back to the
first, so that threads share what they have in common.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple

from unerring.matching.evaluation import NotYet, Prepared, prepare
from unerring.matching.interpreter.program import Op, Program, assemble
from unerring.matching.scopes import Bound, MatchScope, RowScope
from unerring.model import TIME_MAX, Event, Key, RuleError
from unerring.rules import patterns as pt
from unerring.rules.expressions import At, Expr, Which
from unerring.rules.plan import PatternPlan, Selection
from unerring.rules.reading import of_row_alone, positions, walk

ATTEMPTS_MAX: Final = 2_000_000
"""How many threads one start row may try before the rule stops with a sentence."""

STRICT, RELAXED, ANY = pt.Contiguity.STRICT, pt.Contiguity.RELAXED, pt.Contiguity.ANY
NEXT, FOLLOWED = pt.AbsenceKind.NEXT, pt.AbsenceKind.FOLLOWED
NEXT_ROW: Final = pt.Gap(STRICT)


class Link(NamedTuple):
    """One bound row and the one before it."""

    at: int
    variable: str
    excluded: bool
    before: Link | None


class Thread(NamedTuple):
    """One path of the search."""

    pc: int
    next: int
    """The row after the last bound one; the start row while nothing is bound."""
    scan: int
    """The row that a waiting step looks at next."""
    link: Link | None
    size: int
    gap: pt.Gap
    absences: tuple[pt.Absence, ...]
    excluding: int
    marks: tuple[int, ...]
    stops: tuple[tuple[Expr, int], ...] = ()
    """The stop condition of each loop that it is in, and how many rows were bound when it came into it."""


class Status(IntEnum):
    MATCH = 0
    OPEN = 1
    TIMED_OUT = 2
    NONE = 3


Outcome = tuple[Status, Thread | None, int]
"""How a thread ended, and, if it is open, the time until which."""

_NO_OUTCOME: Final[Outcome] = (Status.NONE, None, TIME_MAX)


def links(thread: Thread) -> list[Link]:
    """What a thread has bound, in row order."""
    found: list[Link] = []
    link = thread.link
    while link is not None:
        found.append(link)
        link = link.before
    found.reverse()
    return found


def bound_of(thread: Thread) -> tuple[Bound, ...]:
    return tuple((link.at, link.variable) for link in links(thread))


class Rows:
    """A key's rows by their number, old ones dropped."""

    __slots__ = ("by_number", "complete", "end", "ended", "first")

    def __init__(self) -> None:
        self.by_number: dict[int, Event] = {}
        self.first = 0
        self.end = 0
        self.complete = -TIME_MAX
        self.ended = False

    def append(self, event: Event) -> None:
        self.by_number[self.end] = event
        self.end += 1

    def drop_before(self, number: int) -> None:
        for index in range(self.first, min(number, self.end)):
            del self.by_number[index]
        self.first = max(self.first, min(number, self.end))

    def __getitem__(self, index: Any) -> Any:
        return self.by_number[index]

    def __len__(self) -> int:
        return self.end


class TestScope:
    """A row under test, bound to a variable for the time being, after what a thread has bound."""

    __slots__ = ("_here", "_link", "_rows", "key", "match_number")

    window: tuple[int, int] | None = None

    def __init__(self, rows: Rows, link: Link | None, here: int, key: Key, match_number: int) -> None:
        self._rows = rows
        self._link = link
        self._here = here
        self.key = key
        self.match_number = match_number

    def here(self) -> Event | None:
        return self._rows.by_number[self._here]

    def _index(self, at: At) -> int | None:
        found: int | None = None
        if at.which is Which.ROW:
            found = self._here
        elif at.which is Which.LAST:
            link, left = self._link, at.offset
            while link is not None:
                if not at.variables or link.variable in at.variables:
                    if not left:
                        found = link.at
                        break
                    left -= 1
                link = link.before
        else:
            chain = [link.at for link in self._chain(at.variables)]
            found = chain[at.offset] if at.offset < len(chain) else None
        if found is None:
            return None
        found += at.shift
        if found >= self._rows.end:
            if self._rows.ended:
                return None
            raise NotYet
        return found if found >= self._rows.first else None

    def _chain(self, variables: tuple[str, ...]) -> list[Link]:
        chain: list[Link] = []
        link = self._link
        while link is not None:
            if not variables or link.variable in variables:
                chain.append(link)
            link = link.before
        chain.reverse()
        return chain

    def row(self, at: At) -> Event | None:
        index = self._index(at)
        return None if index is None else self._rows.by_number[index]

    def label(self, at: At) -> str | None:
        index = self._index(at)
        link = self._link
        while link is not None:
            if link.at == index:
                return link.variable if not at.variables or link.variable in at.variables else None
            link = link.before
        return None

    def rows(self, variables: tuple[str, ...], final: bool) -> Iterable[TestScope]:
        for link in self._chain(variables):
            yield TestScope(self._rows, link, link.at, self.key, self.match_number)


class Matcher:
    """What a plan needs to be searched for: its program and its conditions, prepared once."""

    def __init__(self, plan: PatternPlan, attempts_max: int | None = None) -> None:
        self.plan = plan
        self.attempts_max = ATTEMPTS_MAX if attempts_max is None else attempts_max
        numbers = {variable.name: number for number, variable in enumerate(plan.variables)}
        self.program: Program = assemble(plan.name, plan.pattern, numbers)
        streams = {source.name: source.schema.name for source in plan.inputs}
        self.names = tuple(variable.name for variable in plan.variables)
        self.streams = tuple(None if v.stream is None else streams[v.stream] for v in plan.variables)
        self.conditions: tuple[Prepared | None, ...] = tuple(
            None if v.condition is None else prepare(v.condition) for v in plan.variables
        )
        self.alone = tuple(v.condition is None or of_row_alone(v.condition) for v in plan.variables)
        self.numbers = numbers
        gaps = [node for node in pt.nodes(plan.pattern) if isinstance(node, pt.Gap)]
        self.untils = {gap.until: prepare(gap.until) for gap in gaps if gap.until is not None}
        self.within_us = plan.within_us
        self.memoryless = plan.selection is Selection.PREFERRED and self._is_memoryless(gaps)
        """Whether what follows depends on the place in program and rows alone: then no place is tried twice."""

    def _is_memoryless(self, gaps: Sequence[pt.Gap]) -> bool:
        from unerring.rules.expressions import Aggregate, Classifier

        conditions = [v.condition for v in self.plan.variables if v.condition is not None]
        return (
            all(at.which is Which.ROW for condition in conditions for at in positions(condition))
            and not any(isinstance(n, Aggregate | Classifier) for c in conditions for n in walk(c))
            and all(gap.within_us is None and gap.until is None for gap in gaps)
            and not any(isinstance(node, pt.Absence) for node in pt.nodes(self.plan.pattern))
        )

    def first_thread(self, start: int) -> Thread:
        return Thread(0, start, -1, None, 0, NEXT_ROW, (), 0, ())


class Search:
    """Threads over the rows of one key, from one start row."""

    __slots__ = ("_attempts", "_key", "_m", "_match_number", "_rows", "_start", "_tried", "_used")

    def __init__(
        self, matcher: Matcher, rows: Rows, key: Key, start: int, match_number: int, used: frozenset[int] = frozenset()
    ) -> None:
        self._m = matcher
        self._rows = rows
        self._key = key
        self._start = start
        self._match_number = match_number
        self._used = used
        self._attempts = 0
        self._tried: set[tuple[Any, ...]] | None = set() if matcher.memoryless else None

    def run(self, stack: list[Thread]) -> Outcome:
        """Take threads from the stack until one ends otherwise than by failing. An open one is not put back."""
        while stack:
            self._attempts += 1
            if self._attempts > self._m.attempts_max:
                raise RuleError(
                    f"rule {self._m.plan.name}: more than {self._m.attempts_max} ways were tried from one event; make "
                    "its pattern less ambiguous (fewer nested repetitions, then instead of then_any) or within shorter"
                )
            outcome = self._follow(stack.pop(), stack)
            if outcome[0] is not Status.NONE:
                return outcome
        return _NO_OUTCOME

    def _follow(self, thread: Thread, stack: list[Thread]) -> Outcome:
        """One thread, until it ends; its alternatives go onto the stack."""
        ops, arguments = self._m.program.ops, self._m.program.arguments
        pc, nxt, scan, link, count, gap, absences, excluding, marks, stops = thread
        while True:
            op = ops[pc]
            if op is Op.STEP:
                now = Thread(pc, nxt, scan, link, count, gap, absences, excluding, marks, stops)
                status, bound, until = self._step(now, arguments[pc], stack)
                if status is not Status.MATCH or bound is None:
                    return status, bound, until
                pc, nxt, scan, link, count, gap, absences, excluding, marks, stops = bound
            elif op is Op.SPLIT:
                options = arguments[pc]
                if self._tried is not None:
                    place = (pc, nxt, gap, excluding, tuple(mark == count for mark in marks))
                    if place in self._tried:
                        return _NO_OUTCOME
                    self._tried.add(place)
                stack.extend(
                    Thread(other, nxt, -1, link, count, gap, absences, excluding, marks, stops)
                    for other in reversed(options[1:])
                )
                pc = options[0]
            elif op is Op.JUMP:
                pc = arguments[pc]
            elif op is Op.GAP:
                gap = arguments[pc]
                pc += 1
            elif op is Op.ABSENCE:
                absence = arguments[pc]
                if link is not None:
                    absences = (*absences, absence)
                elif self._seen_before(absence):
                    return _NO_OUTCOME
                pc += 1
            elif op is Op.MARK:
                marks = (*marks, count)
                pc += 1
            elif op is Op.UNMARK:
                empty = marks[-1] == count
                marks = marks[:-1]
                pc = arguments[pc] if empty else pc + 1
            elif op is Op.EXCLUDE:
                excluding += 1
                pc += 1
            elif op is Op.INCLUDE:
                excluding -= 1
                pc += 1
            elif op is Op.ENTER:
                stops = (*stops, (arguments[pc], count))
                pc += 1
            elif op is Op.LEAVE:
                stops = stops[:-1]
                pc += 1
            elif op is Op.START:
                if nxt != 0:
                    return _NO_OUTCOME
                pc += 1
            elif op is Op.END:
                if nxt != self._rows.end:
                    return _NO_OUTCOME
                if not self._rows.ended:
                    return (
                        Status.OPEN,
                        Thread(pc, nxt, -1, link, count, gap, absences, excluding, marks, stops),
                        TIME_MAX,
                    )
                pc += 1
            else:
                return self._completed(Thread(pc, nxt, scan, link, count, gap, absences, excluding, marks, stops))

    # --- rows ---

    def _step(self, thread: Thread, variable: int, stack: list[Thread]) -> Outcome:
        """MATCH here means bound: the thread goes on."""
        rows, gap = self._rows, thread.gap
        index = thread.scan if thread.scan >= 0 else thread.next
        if thread.link is None:
            if thread.stops and self._refused(thread, self._start):
                return _NO_OUTCOME
            return self._bind(thread, variable, self._start)
        deadline = self._deadline(thread, gap.within_us)
        end, by_number = rows.end, rows.by_number
        while True:
            if index >= end:
                if rows.complete >= deadline and deadline < TIME_MAX:
                    return Status.TIMED_OUT, thread, TIME_MAX
                if rows.ended:
                    return _NO_OUTCOME
                return Status.OPEN, thread._replace(scan=index), deadline
            if by_number[index].stamp.time > deadline:
                return Status.TIMED_OUT, thread, TIME_MAX
            if thread.absences and self._forbidden(thread, index, NEXT):
                return _NO_OUTCOME
            if (gap.until is not None or thread.stops) and self._stopped(thread, index):
                return _NO_OUTCOME
            outcome = self._bind(thread, variable, index)
            if outcome[0] is Status.OPEN:
                return outcome
            refused = outcome[0] is Status.MATCH and thread.stops and self._refused(thread, index)
            if refused and gap.contiguity is not ANY:
                return _NO_OUTCOME
            if gap.contiguity is STRICT:
                return outcome
            if outcome[0] is Status.MATCH and not refused:
                if gap.contiguity is ANY and not (thread.absences and self._forbidden(thread, index, FOLLOWED)):
                    stack.append(thread._replace(scan=index + 1))
                return outcome
            if thread.absences and self._forbidden(thread, index, FOLLOWED):
                return _NO_OUTCOME
            index += 1

    def _bind(self, thread: Thread, variable: int, index: int) -> Outcome:
        m = self._m
        row = self._rows.by_number[index]
        if (m.streams[variable] is not None and row.stream != m.streams[variable]) or index in self._used:
            return _NO_OUTCOME
        link = Link(index, m.names[variable], thread.excluding > 0, thread.link)
        condition = m.conditions[variable]
        if condition is not None:
            try:
                if condition(self._scope(variable, link, index)) is not True:
                    return _NO_OUTCOME
            except NotYet:
                return Status.OPEN, thread._replace(scan=index), TIME_MAX
        size, excluding, marks, stops = thread.size + 1, thread.excluding, thread.marks, thread.stops
        bound = Thread(thread.pc + 1, index + 1, -1, link, size, NEXT_ROW, (), excluding, marks, stops)
        return Status.MATCH, bound, TIME_MAX

    def _scope(self, variable: int, link: Link | None, index: int) -> RowScope | TestScope:
        if self._m.alone[variable]:
            return RowScope(self._rows.by_number[index], self._key)
        return TestScope(self._rows, link, index, self._key, self._match_number)

    def _stopped(self, thread: Thread, index: int) -> bool:
        """Whether the search ends at this row: by its gap, or by a loop that has bound rows."""
        until = thread.gap.until
        if until is not None and self._ends(until, thread, index):
            return True
        return any(thread.size > size and self._ends(until, thread, index) for until, size in thread.stops)

    def _refused(self, thread: Thread, index: int) -> bool:
        """Whether this row cannot be the first of a loop, because it is what would end it."""
        return any(thread.size == size and self._ends(until, thread, index) for until, size in thread.stops)

    def _ends(self, until: Expr, thread: Thread, index: int) -> bool:
        scope = TestScope(self._rows, thread.link, index, self._key, self._match_number)
        return self._m.untils[until](scope) is True

    def _deadline(self, thread: Thread, within_us: int | None) -> int:
        rows = self._rows.by_number
        deadline = TIME_MAX
        if self._m.within_us is not None:
            deadline = rows[self._start].stamp.time + self._m.within_us
        if within_us is not None and thread.link is not None:
            deadline = min(deadline, rows[thread.link.at].stamp.time + within_us)
        return deadline

    # --- absence ---

    def _satisfies(self, name: str, link: Link | None, index: int) -> bool:
        m = self._m
        variable = m.numbers[name]
        if m.streams[variable] is not None and self._rows.by_number[index].stream != m.streams[variable]:
            return False
        condition = m.conditions[variable]
        return condition is None or condition(self._scope(variable, Link(index, name, False, link), index)) is True

    def _seen_before(self, absence: pt.Absence) -> bool:
        rows = self._rows
        earliest = -TIME_MAX
        if absence.within_us is not None:
            earliest = rows.by_number[self._start].stamp.time - absence.within_us
        for index in range(self._start - 1, rows.first - 1, -1):
            if rows.by_number[index].stamp.time < earliest:
                return False
            if self._satisfies(absence.variable, None, index):
                return True
            if absence.kind is NEXT:
                return False
        return False

    def _forbidden(self, thread: Thread, index: int, kind: pt.AbsenceKind) -> bool:
        time = self._rows.by_number[index].stamp.time
        for absence in thread.absences:
            concerns = absence.kind is kind and (kind is FOLLOWED or index == thread.next)
            if (
                concerns
                and time <= self._deadline(thread, absence.within_us)
                and self._satisfies(absence.variable, thread.link, index)
            ):
                return True
        return False

    def _completed(self, thread: Thread) -> Outcome:
        """The program is through: a match, unless absences are to be waited for."""
        if not thread.absences:
            return Status.MATCH, thread, TIME_MAX
        rows = self._rows
        deadlines = [self._deadline(thread, absence.within_us) for absence in thread.absences]
        latest = max(deadlines)
        index = thread.scan if thread.scan >= 0 else thread.next
        while index < rows.end and rows.by_number[index].stamp.time <= latest:
            if self._forbidden(thread, index, FOLLOWED) or (
                index == thread.next and self._forbidden(thread, index, NEXT)
            ):
                return _NO_OUTCOME
            index += 1
        if rows.ended:
            return Status.MATCH, thread, TIME_MAX
        last_time = rows.by_number[rows.end - 1].stamp.time
        until = -TIME_MAX
        for absence, deadline in zip(thread.absences, deadlines, strict=True):
            passed = rows.complete >= deadline or (rows.end > thread.next and last_time > deadline)
            if not passed and not (absence.kind is NEXT and rows.end > thread.next):
                until = max(until, deadline)
        if until > -TIME_MAX:
            return Status.OPEN, thread._replace(scan=index), until
        return Status.MATCH, thread, TIME_MAX


def scope_of_match(rows: Rows, bound: Sequence[Bound], here: int | None, key: Key, number: int | None) -> MatchScope:
    """For measures. Rows are numbered from the key's first row on; dropped ones are never asked for."""
    return MatchScope(rows, bound, here, key, number, rows.ended)  # type: ignore[arg-type]
