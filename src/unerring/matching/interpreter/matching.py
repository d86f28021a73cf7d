"""One key's pattern matching, step by step: rows and deadlines in, outputs out, and what must be kept in between.

What is kept is the rows from the first undecided start on (and before it as many as conditions look back), and which
starts are undecided. Searches are rebuilt from these; they are no part of the state, so any split of the input gives
the same one.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable
from typing import Any

import msgspec

from unerring.matching.evaluation import NotYet
from unerring.matching.interpreter.registers import RegisterScope, Rows
from unerring.matching.interpreter.search import Link, Search, SearchPlan, Stack, Status, Thread, links
from unerring.matching.interpreter.writing import Writer
from unerring.matching.outputs import RANK_DEADLINE, Output, Row
from unerring.model import TIME_MAX, Event, Key, RuleError, Stamp
from unerring.rules import (
    Attribute,
    MatchNumber,
    OutputMode,
    PatternPlan,
    Selection,
    SkipKind,
    leading_absences,
    lookback,
    patterns as pt,
    walk,
)

Place = tuple[int, int, int]


class StoredRow(msgspec.Struct, frozen=True, array_like=True):
    """A row as state holds it: the stream's number, the stamp, and the columns that the rule reads."""

    stream: int
    time: int
    ordinal: int
    values: tuple[Any, ...]


class StoredKey(msgspec.Struct, frozen=True, array_like=True):
    """One key's state. Numbers of rows count from the first stored row."""

    key: tuple[Any, ...]
    rows: tuple[StoredRow, ...]
    starts: tuple[int, ...]
    """The undecided starts; for PREFERRED the one at which the search stands."""
    used: tuple[int, ...] = ()
    matches: int = 0
    """Matches so far, where match numbers are asked for."""
    covered: int = 0
    """How many of the rows belong to earlier matches, where unmatched rows are asked for."""
    seen: bool = False
    """Whether rows came before the first stored one, where the pattern asks for the key's first row."""


class PatternRules:
    """What all keys of a plan share."""

    def __init__(self, plan: PatternPlan, attempts_max: int | None = None, of_table: bool = False) -> None:
        self.plan = plan
        self.searched = SearchPlan(plan, attempts_max, of_table)
        self.writer = Writer(plan, plan.measures)
        self.timed_out = None if plan.timed_out is None else Writer(plan, plan.timed_out.measures)
        self.skips = frozenset(n for n, variable in enumerate(plan.variables) if variable.name in plan.skip.variables)
        measured = [*plan.measures, *(plan.timed_out.measures if plan.timed_out else ())]
        exprs = [measure.expr for measure in measured]
        conditions = [v.condition for v in plan.variables if v.condition is not None]
        gaps = [node for node in pt.nodes(plan.pattern) if isinstance(node, pt.Gap)]
        conditions += [gap.until for gap in gaps if gap.until is not None]
        self.lookback = max((lookback(expr) for expr in (*exprs, *conditions)), default=0)
        leading = leading_absences(plan.pattern)
        self.row_before = any(absence.kind is pt.AbsenceKind.NEXT for absence in leading)
        """Whether the row just before a start matters."""
        horizons = [
            TIME_MAX if a.within_us is None else a.within_us for a in leading if a.kind is pt.AbsenceKind.FOLLOWED
        ]
        self.horizon_us = max(horizons, default=-1)
        """How long rows before a start matter; -1: not at all."""
        self.numbered = any(isinstance(node, MatchNumber) for expr in (*exprs, *conditions) for node in walk(expr))
        self.unmatched = plan.mode is OutputMode.ALL_ROWS_UNMATCHED
        self.anchored = any(isinstance(node, pt.StartAnchor) for node in pt.nodes(plan.pattern))
        self.streams = tuple(source.schema.name for source in plan.inputs)
        read = {node.name for expr in (*exprs, *conditions) for node in walk(expr) if isinstance(node, Attribute)}
        self.columns = tuple(
            tuple(column.name for column in source.schema.columns if column.name in read) for source in plan.inputs
        )

    @property
    def keeps_every_key(self) -> bool:
        """Whether a key's state must outlive its open matches for ever."""
        return bool(self.lookback or self.row_before or self.numbered or self.anchored or self.horizon_us >= TIME_MAX)

    def stored(self, event: Event) -> StoredRow:
        number = self.streams.index(event.stream)
        values = tuple(event.payload.get(name) for name in self.columns[number])
        return StoredRow(number, event.stamp.time, event.stamp.ordinal, values)

    def event(self, row: StoredRow, key: Key) -> Event:
        payload = dict(zip(self.columns[row.stream], row.values, strict=True))
        return Event(self.streams[row.stream], Stamp(row.time, row.ordinal), key, payload)


class StartSearch:
    """A start row's threads that wait, in preference order, and what it has given."""

    __slots__ = ("given", "leaves", "search")

    def __init__(self, search: Search, stack: Stack) -> None:
        self.search = search
        self.leaves: list[tuple[Status, Thread, int]] = [(Status.OPEN, Thread(*stack[0]), -TIME_MAX)]
        self.given: list[tuple[tuple[int, int], ...]] = []

    def resume(self) -> list[Thread]:
        """Let all waiting threads go on; the matches that are complete now, most preferred first."""
        leaves: list[tuple[Status, Thread, int]] = []
        matches: list[Thread] = []
        timed_out = False
        for leaf in self.leaves:
            if leaf[0] is Status.TIMED_OUT:
                if not timed_out:
                    leaves.append(leaf)
                timed_out = True
                continue
            stack: Stack = [leaf[1]]
            while stack:
                status, thread, until = self.search.run(stack)
                if thread is None:
                    break
                if status is Status.MATCH:
                    matches.append(thread)
                elif status is Status.OPEN:
                    leaves.append((status, thread, until))
                elif not timed_out:
                    leaves.append((status, thread, until))
                    timed_out = True
        self.leaves = leaves
        return matches

    @property
    def until(self) -> int | None:
        """The earliest time at which an open thread may end; None if none is open."""
        return min((until for status, _, until in self.leaves if status is Status.OPEN), default=None)

    @property
    def timed_out(self) -> Thread | None:
        return next((thread for status, thread, _ in self.leaves if status is Status.TIMED_OUT), None)


class KeyMatching:
    """The open matches of one key."""

    __slots__ = ("_index", "_muted", "_outputs", "_place", "_rules", "_scope", "_search", "_searching", "_stack",
                 "_timed_out", "covered", "key", "matches", "rows", "start", "starts", "until", "used")  # fmt: skip

    def __init__(self, rules: PatternRules, key: Key, outputs: list[Output]) -> None:
        self._rules = rules
        self._outputs = outputs
        self.key = key
        self.rows = Rows()
        self.start = 0
        self.matches = 0
        self.covered = 0
        self.starts: dict[int, StartSearch] = {}
        self.used: list[int] = []
        self.until = TIME_MAX
        self._scope = RegisterScope(self.rows, key, rules.searched.file)
        self._stack: Stack = []
        self._search = Search(rules.searched, self.rows, self._scope)
        self._searching = False
        self._timed_out: Thread | None = None
        self._place: Place = (0, 0, 0)
        self._index = 0
        self._muted = False

    # --- what happens ---

    def on_row(self, row: Row) -> None:
        """One row, after all deadlines before its time."""
        stamp = row.event.stamp
        self.on_time(stamp.time - 1)
        self.rows.complete = stamp.time - 1
        self.rows.append(row.event)
        if self._rules.plan.selection is not Selection.PREFERRED:
            self._begin(self.rows.end - 1)
        self._settle((stamp.time, row.rank, stamp.ordinal))
        if self._rules.horizon_us < 0:
            self.prune(stamp.time)

    def take_table(self, events: Iterable[Event]) -> None:
        """All rows at once, and nothing will come any more: which outputs there are, not when each is certain."""
        self.rows.extend(events)
        # A search makes many tuples and no circles of them: looking for circles meanwhile costs more than the search.
        looks_for_circles = gc.isenabled()
        gc.disable()
        try:
            self.on_end()
        finally:
            if looks_for_circles:
                gc.enable()

    def on_time(self, through: int) -> None:
        """All deadlines up to `through`."""
        while self.until <= through and self.until < TIME_MAX:
            self.rows.complete = self.until
            self._settle((self.until, RANK_DEADLINE, 0))

    def on_end(self) -> None:
        """Nothing will come any more."""
        self.on_time(TIME_MAX)
        self.rows.complete, self.rows.ended = TIME_MAX, True
        self._settle((TIME_MAX, RANK_DEADLINE, 0))

    def _settle(self, place: Place) -> None:
        self._place, self._index, self.until = place, 0, TIME_MAX
        selection = self._rules.plan.selection
        if selection is Selection.PREFERRED:
            self._settle_preferred()
        elif selection is Selection.ALL or selection is Selection.CONTINUOUS:
            self._settle_each()
        elif selection is Selection.CHRONICLE:
            self._settle_chronicle()
        else:
            self._settle_latest()

    # --- preferred ---

    def _settle_preferred(self) -> None:
        rows, search = self.rows, self._search
        while self.start < rows.end:
            if not self._searching:
                self._stack = search.begin(self.start, self.matches + 1)
                self._searching, self._timed_out = True, None
            status, thread, until = search.run(self._stack)
            if status is Status.OPEN and thread is not None:
                self._stack.append(thread)
                self.until = until
                return
            if status is Status.TIMED_OUT:
                self._timed_out = self._timed_out or thread
                continue
            if status is Status.MATCH and thread is not None:
                chain = links(thread)
                if not self._emit_match(chain):
                    self._stack.append(thread)
                    return
                self.start = self._after(chain)
            else:
                self._emit_timed_out(self._timed_out)
                if self._rules.unmatched and self.start >= self.covered:
                    self._emit_row(self.start)
                self.start += 1
            self._searching = False

    def _after(self, chain: list[Link]) -> int:
        skip = self._rules.plan.skip
        if not chain or skip.kind is SkipKind.TO_NEXT:
            return self.start + 1
        if skip.kind is SkipKind.PAST_LAST:
            return chain[-1][0] + 1
        searched = self._rules.searched
        targets = [row for row, variable, *_ in chain if variable in self._rules.skips]
        if not targets:
            raise RuleError(
                f"{searched.skip}, but a match{searched.place(self.start)} binds no row to it; "
                "skip to a variable that every match binds"
            )
        target = targets[0] if skip.kind is SkipKind.TO_FIRST else targets[-1]
        if target == self.start:
            raise RuleError(
                f"{searched.skip} leads back to the first row of the match{searched.place(self.start)}, so the same "
                "match would be found for ever; skip past it"
            )
        return target

    # --- the others ---

    def _begin(self, start: int) -> None:
        search = Search(self._rules.searched, self.rows, self._scope, frozenset(self.used))
        self.starts[start] = StartSearch(search, search.begin(start, self.matches + 1))

    def _settle_each(self) -> None:
        continuous = self._rules.plan.selection is Selection.CONTINUOUS
        for start, open_start in list(self.starts.items()):
            for thread in open_start.resume():
                chain = links(thread)
                bound = tuple((row, variable) for row, variable, *_ in chain)
                if bound not in open_start.given and not (continuous and open_start.given):
                    open_start.given.append(bound)
                    self._emit_match(chain)
            self._close(start, open_start, continuous and bool(open_start.given))

    def _close(self, start: int, open_start: StartSearch, done: bool) -> None:
        """Forget a start that can give nothing more."""
        until = open_start.until
        if until is not None and not done:
            self.until = min(self.until, until)
            return
        if not open_start.given and not done:
            self._emit_timed_out(open_start.timed_out)
        del self.starts[start]

    def _settle_chronicle(self) -> None:
        """Start all anew after each match: the rows that it used change what every start can find."""
        matched = True
        while matched:
            matched = False
            for open_start in self.starts.values():
                matches = open_start.resume()
                if matches:
                    chain = links(matches[0])
                    self._emit_match(chain)
                    for row, *_ in chain:
                        self.used.append(row)
                        self.starts.pop(row, None)
                    matched = True
                    break
            if matched:
                for start in self.starts:
                    self._begin(start)
        for start, open_start in list(self.starts.items()):
            self._close(start, open_start, False)

    def _settle_latest(self) -> None:
        recent = self._rules.plan.selection is Selection.RECENT
        complete = [(start, match) for start, s in self.starts.items() for match in s.resume()]
        while complete:
            if recent:
                latest = max(start for start, _ in complete)
                chosen = next(links(match) for start, match in complete if start == latest)
            else:
                together: dict[int, Link] = {}
                for _, match in complete:
                    for link in links(match):
                        together.setdefault(link[0], link)
                chosen = [together[index] for index in sorted(together)]
            self._emit_match(chosen)
            last = chosen[-1][0]
            self.starts = {start: s for start, s in self.starts.items() if start > last}
            complete = [(start, match) for start, match in complete if start > last]
        for start, open_start in list(self.starts.items()):
            self._close(start, open_start, False)

    # --- outputs ---

    def _emit_match(self, chain: list[Link]) -> bool:
        """False if a measure needs a row that has not come."""
        try:
            payloads = self._rules.writer.rows_of(self.rows, self.key, chain, self.start, self.matches + 1)
        except NotYet:
            return False
        self.matches += 1
        self.covered = max(self.covered, self.start + 1, chain[-1][0] + 1 if chain else 0)
        for payload in payloads:
            self._emit(self._rules.plan.name, payload)
        return True

    def _emit_timed_out(self, thread: Thread | None) -> None:
        timed_out, writer = self._rules.plan.timed_out, self._rules.timed_out
        if thread is not None and timed_out is not None and writer is not None:
            self._emit(timed_out.name, writer.once(self.rows, self.key, links(thread), self.matches + 1))

    def _emit_row(self, index: int) -> None:
        self._emit(self._rules.plan.name, self._rules.writer.unmatched(self.rows, self.key, index))

    def _emit(self, stream: str, payload: dict[str, Any]) -> None:
        if not self._muted:
            self._outputs.append(Output(stream, *self._place, self.key, self._index, payload))
        self._index += 1

    # --- state ---

    @property
    def wake(self) -> int:
        """When time alone may change something: a deadline, or a row before a start that matters no more."""
        rules, rows = self._rules, self.rows
        oldest = rows.first + rules.lookback  # the first row that is there for its own sake
        if 0 <= rules.horizon_us < TIME_MAX and self._live == rows.end and oldest < rows.end - rules.row_before:
            return min(self.until, rows.by_number[oldest].stamp.time + rules.horizon_us)
        return self.until

    def idle(self, through: int) -> bool:
        """Whether a fresh state would do as well."""
        rules = self._rules
        if rules.anchored or (rules.numbered and self.matches):
            return False
        return self._live == self.rows.end and self.first_needed(through) == self.rows.end

    @property
    def _live(self) -> int:
        """The first row that is undecided as a start."""
        if self._rules.plan.selection is Selection.PREFERRED:
            return min(self.start, self.rows.end)
        return next(iter(self.starts), self.rows.end)

    def first_needed(self, through: int) -> int:
        """The number of the first row that may still be asked for."""
        rows, live = self.rows, self._live
        first = max(rows.first, live - self._rules.row_before)
        if self._rules.horizon_us >= 0:
            began = rows.by_number[live].stamp.time if live < rows.end else through + 1
            while first > rows.first and rows.by_number[first - 1].stamp.time >= began - self._rules.horizon_us:
                first -= 1
        return max(rows.first, first - self._rules.lookback)  # a condition on those rows looks back further

    def stored(self, through: int) -> StoredKey | None:
        """The canonical state; None if there is nothing to keep."""
        rules, rows = self._rules, self.rows
        first = self.first_needed(through)
        preferred = rules.plan.selection is Selection.PREFERRED
        starts = (self.start - first,) if preferred else tuple(start - first for start in self.starts)
        stored = StoredKey(
            self.key,
            tuple(rules.stored(rows.by_number[index]) for index in range(first, rows.end)),
            () if preferred and self.start >= rows.end else starts,
            tuple(sorted(index - first for index in self.used if index >= first)),
            self.matches if rules.numbered else 0,
            max(0, self.covered - self._live) if rules.unmatched else 0,
            rules.anchored and first > 0,
        )
        empty = StoredKey(self.key, (), ())
        return None if stored == empty else stored

    def prune(self, through: int) -> None:
        """Drop rows that nothing can ask for."""
        first = self.first_needed(through)
        self.rows.drop_before(first)
        if self.used and self.used[0] < first:
            self.used = [index for index in self.used if index >= first]

    def restore(self, stored: StoredKey, through: int) -> None:
        """Rebuild the searches by going through the stored rows once more, silently."""
        rows = self.rows
        rows.first = rows.end = 1 if stored.seen else 0
        offset = rows.end
        for row in stored.rows:
            rows.append(self._rules.event(row, self.key))
        self.matches = stored.matches
        self.used = [index + offset for index in stored.used]
        rows.complete = through
        self._muted = True
        if self._rules.plan.selection is Selection.PREFERRED:
            self.start = stored.starts[0] + offset if stored.starts else rows.end
        else:
            for start in stored.starts:
                self._begin(start + offset)
        self.covered = stored.covered + self._live
        matches = self.matches
        self._settle((through, RANK_DEADLINE, 0))
        self.matches = matches
        self._muted = False
