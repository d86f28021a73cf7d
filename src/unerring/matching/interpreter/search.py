"""The resumable search: threads of a program over a key's rows. One that needs a row waits, and goes on when it is fed.

A thread is a tuple, made anew at every change. What it has bound is a chain of links from the last row back to the
first, so that threads share what they have in common. What its conditions see of these rows is in its registers: a
choice at one instruction, one row and with equal registers has one future, so where only the first match from a row
counts, what has failed once is not tried again. Nested quantifiers therefore cost instructions times rows instead of an
exponential number of paths. What has failed also serves the next start row, unless the answer depends on the start.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final, NamedTuple

from unerring.matching.evaluation import NotYet, Prepared
from unerring.matching.interpreter.program import Op, Program, assemble
from unerring.matching.interpreter.registers import RegisterFile, Registers, RegisterScope, Rows, bound
from unerring.model import TIME_MAX, RuleError
from unerring.rules import Expr, PatternPlan, Selection, patterns as pt

ATTEMPTS_MAX: Final = 2_000_000
"""How many threads one start row may try before the rule stops with a sentence."""

STRICT, RELAXED, ANY = pt.Contiguity.STRICT, pt.Contiguity.RELAXED, pt.Contiguity.ANY
NEXT, FOLLOWED = pt.AbsenceKind.NEXT, pt.AbsenceKind.FOLLOWED
NEXT_ROW: Final = pt.Gap(STRICT)
STEP, SPLIT, JUMP = Op.STEP, Op.SPLIT, Op.JUMP  # globals are quicker to read than members of an enumeration


Link = tuple[int, int, bool, "Link | None"]
"""A bound row, the number of its variable, whether it is left out of the output, and the link before it."""


class Thread(NamedTuple):
    """One path of the search. Those on a stack are plain tuples, which are quicker to make."""

    pc: int
    next: int
    """The row after the last bound one; the start row while nothing is bound."""
    scan: int
    """The row that a waiting step looks at next."""
    link: Link | None
    size: int
    held: Registers
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

Stack = list[tuple[Any, ...]]
"""Threads to be followed, the most preferred one last."""

_NO_OUTCOME: Final[Outcome] = (Status.NONE, None, TIME_MAX)

Tried = dict[int, set[Any]]
"""By row, the choices before it that have failed, or are being followed."""


def links(thread: Thread) -> list[Link]:
    """The rows that a thread has bound, in row order."""
    chain: list[Link] = []
    link = thread.link
    while link is not None:
        chain.append(link)
        link = link[3]
    chain.reverse()
    return chain


def contiguous(pattern: pt.Pattern) -> bool:
    """Whether the rows of a match follow each other without gaps and absences."""
    return all(
        not isinstance(node, pt.Gap | pt.Absence) and getattr(node, "gap", None) is None for node in pt.nodes(pattern)
    )


class SearchPlan:
    """A plan prepared for the search: its program and its conditions, compiled once."""

    def __init__(self, plan: PatternPlan, attempts_max: int | None = None, of_table: bool = False) -> None:
        """`of_table`: errors name the row of a partition instead of the rule."""
        self.plan = plan
        self.rule = "" if of_table else f"rule {plan.name}: "
        self._of_table = of_table
        skip = f"AFTER MATCH SKIP {plan.skip.kind.upper()}" if of_table else f"{self.rule}skip {plan.skip.kind}"
        self.skip = f"{skip} {'|'.join(plan.skip.variables)}"
        self.attempts_max = ATTEMPTS_MAX if attempts_max is None else attempts_max
        numbers = {variable.name: number for number, variable in enumerate(plan.variables)}
        self.program: Program = assemble(plan.pattern, numbers, self.rule)
        streams = {source.name: source.schema.name for source in plan.inputs}
        self.names = tuple(variable.name for variable in plan.variables)
        self.streams = tuple(None if v.stream is None else streams[v.stream] for v in plan.variables)
        without_gaps = contiguous(plan.pattern)
        self.file = RegisterFile(self.names, without_gaps)
        self.conditions: tuple[Prepared | None, ...] = tuple(
            None if v.condition is None else self.file.prepare(v.condition) for v in plan.variables
        )
        self.numbers = numbers
        gaps = [node for node in pt.nodes(plan.pattern) if isinstance(node, pt.Gap)]
        self.untils = {gap.until: self.file.prepare(gap.until) for gap in gaps if gap.until is not None}
        self.changes = self.file.changes()
        self.empty = self.file.start()
        self.within_us = plan.within_us
        self.remembers = plan.selection is Selection.PREFERRED
        """Whether one match from a start row is enough: then no choice is tried twice."""
        self.shares = without_gaps and plan.within_us is None and self.file.forgets_starts
        """Whether what failed from one start row fails from the next ones too. Gaps and absences mean another thing to
        a row that starts a match."""

    def place(self, start: int) -> str:
        """Which start row an error speaks of, where rows have numbers."""
        return f" (row {start + 1} of its partition)" if self._of_table else ""


class Search:
    """Threads over the rows of one key, from one start row."""

    __slots__ = ("_attempts", "_limit", "_m", "_match_number", "_rows", "_scope", "_start", "_tried", "_used")

    def __init__(self, plan: SearchPlan, rows: Rows, scope: RegisterScope, used: frozenset[int] = frozenset()) -> None:
        """`scope` is the key's. `used`: rows that other matches have used up."""
        self._m = plan
        self._rows = rows
        self._scope = scope
        self._used = used
        self._tried: Tried | None = None
        self._start = self._match_number = self._attempts = 0
        self._limit = TIME_MAX

    def begin(self, start: int, match_number: int) -> Stack:
        """Look for a match from this row on: the stack to run. What has failed before is kept while it counts."""
        m = self._m
        if m.remembers:
            if self._tried is None or not m.shares or match_number != self._match_number:
                self._tried = {}
            else:
                self._tried.pop(self._start, None)
        self._start, self._match_number, self._attempts = start, match_number, 0
        self._limit = TIME_MAX if m.within_us is None else self._rows.by_number[start].stamp.time + m.within_us
        return [(0, start, -1, None, 0, m.empty, NEXT_ROW, (), 0, (), ())]

    def run(self, stack: Stack) -> Outcome:
        """Take threads from the stack until one ends otherwise than by failing. An open one is not put back."""
        self._scope.match_number = self._match_number
        while stack:
            self._attempts += 1
            if self._attempts > self._m.attempts_max:
                m = self._m
                raise RuleError(
                    f"{m.rule}more than {m.attempts_max} ways were tried from one event{m.place(self._start)}; make "
                    "the pattern less ambiguous (fewer nested repetitions, strict instead of any contiguity), `within` "
                    "shorter, or let conditions look at fewer earlier rows"
                )
            outcome = self._follow(stack.pop(), stack)
            if outcome[0] is not Status.NONE:
                return outcome
        return _NO_OUTCOME

    def _follow(self, thread: tuple[Any, ...], stack: Stack) -> Outcome:
        """One thread, until it ends; its alternatives go onto the stack."""
        ops, arguments = self._m.program.ops, self._m.program.arguments
        tried, end = self._tried, self._rows.end
        pc, nxt, scan, link, count, held, gap, absences, excluding, marks, stops = thread
        while True:
            op = ops[pc]
            if op is STEP:
                variable = arguments[pc]
                if gap is NEXT_ROW and nxt < end and not absences and not stops and nxt not in self._used:
                    if self._limit < TIME_MAX and self._rows.by_number[nxt].stamp.time > self._limit:
                        now = Thread(pc, nxt, scan, link, count, held, gap, absences, excluding, marks, stops)
                        return Status.TIMED_OUT, now, TIME_MAX
                    try:
                        after = self._bind(variable, nxt, held)
                    except NotYet:
                        now = Thread(pc, nxt, nxt, link, count, held, gap, absences, excluding, marks, stops)
                        return Status.OPEN, now, TIME_MAX
                    if after is None:
                        return _NO_OUTCOME
                    link = (nxt, variable, excluding > 0, link)
                    pc, nxt, scan, count, held = pc + 1, nxt + 1, -1, count + 1, after
                    continue
                now = Thread(pc, nxt, scan, link, count, held, gap, absences, excluding, marks, stops)
                status, bound_thread, until = self._step(now, variable, stack)
                if status is not Status.MATCH or bound_thread is None:
                    return status, bound_thread, until
                pc, nxt, scan, link, count, held, gap, absences, excluding, marks, stops = bound_thread
            elif op is SPLIT:
                options = arguments[pc]
                if tried is not None:
                    place: Any = (pc, held)
                    if marks or stops or absences or gap is not NEXT_ROW:
                        marked = tuple([mark == count for mark in marks])
                        place = (pc, held, gap, absences, marked, tuple([size == count for _, size in stops]))
                    seen = tried.get(nxt)
                    if seen is None:
                        seen = tried[nxt] = set()
                    elif place in seen:
                        return _NO_OUTCOME
                    seen.add(place)
                stack += [
                    (other, nxt, -1, link, count, held, gap, absences, excluding, marks, stops)
                    for other in options[:0:-1]
                ]
                pc = options[0]
            elif op is JUMP:
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
                        Thread(pc, nxt, -1, link, count, held, gap, absences, excluding, marks, stops),
                        TIME_MAX,
                    )
                pc += 1
            else:
                now = Thread(pc, nxt, scan, link, count, held, gap, absences, excluding, marks, stops)
                return self._completed(now)

    # --- rows ---

    def _step(self, thread: Thread, variable: int, stack: Stack) -> Outcome:
        """MATCH here means bound: the thread goes on."""
        rows, gap = self._rows, thread.gap
        index = thread.scan if thread.scan >= 0 else thread.next
        if thread.link is None:
            if thread.stops and self._refused(thread, self._start):
                return _NO_OUTCOME
            return self._taken(thread, variable, self._start)
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
            outcome = self._taken(thread, variable, index)
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

    def _taken(self, thread: Thread, variable: int, index: int) -> Outcome:
        """The thread with this row bound, if it may be."""
        if index in self._used:
            return _NO_OUTCOME
        try:
            held = self._bind(variable, index, thread.held)
        except NotYet:
            return Status.OPEN, thread._replace(scan=index), TIME_MAX
        if held is None:
            return _NO_OUTCOME
        link = (index, variable, thread.excluding > 0, thread.link)
        excluding, marks, stops = thread.excluding, thread.marks, thread.stops
        after = Thread(thread.pc + 1, index + 1, -1, link, thread.size + 1, held, NEXT_ROW, (), excluding, marks, stops)
        return Status.MATCH, after, TIME_MAX

    def _bind(self, variable: int, index: int, held: Registers) -> Registers | None:
        """The registers with this row bound to the variable; None if it does not satisfy it."""
        m, scope = self._m, self._scope
        stream = m.streams[variable]
        if stream is not None and self._rows.by_number[index].stream != stream:
            return None
        changes = m.changes[variable]
        after = bound(held, changes, index, variable, scope) if changes else held
        condition = m.conditions[variable]
        if condition is not None:
            scope.held = after
            scope.look_at(index, variable)
            if condition(scope) is not True:
                return None
        return after

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
        scope = self._scope
        scope.held = thread.held
        scope.look_at(index)
        return self._m.untils[until](scope) is True

    def _deadline(self, thread: Thread, within_us: int | None) -> int:
        if within_us is None or thread.link is None:
            return self._limit
        return min(self._limit, self._rows.by_number[thread.link[0]].stamp.time + within_us)

    # --- absence ---

    def _seen_before(self, absence: pt.Absence) -> bool:
        rows, variable = self._rows, self._m.numbers[absence.variable]
        earliest = -TIME_MAX
        if absence.within_us is not None:
            earliest = rows.by_number[self._start].stamp.time - absence.within_us
        for index in range(self._start - 1, rows.first - 1, -1):
            if rows.by_number[index].stamp.time < earliest:
                return False
            if self._bind(variable, index, self._m.empty) is not None:
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
                and self._bind(self._m.numbers[absence.variable], index, thread.held) is not None
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
