"""Which matches of one key are output, and when: the selections and the after-match skip, on top of the search.

Positions are walked in merged order: each row of the key, and after all rows of a time the deadline at that time, if an
open path waits for one. At each position everything that has become certain is output; that position is its stamp.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from unerring.matching.evaluation import NotYet
from unerring.matching.oracle.search import ATTEMPTS_MAX, Known, Path, Search, Status, prepared
from unerring.matching.outputs import RANK_DEADLINE, Output, Row
from unerring.matching.scopes import Bound, MatchScope
from unerring.model import TIME_MAX, TIME_MIN, Event, Key, RuleError
from unerring.rules import Measure, OutputMode, PatternPlan, Selection, SkipKind


@dataclass(slots=True)
class KeyMatches:
    """All matches of one key."""

    plan: PatternPlan
    key: Key
    attempts_max: int = ATTEMPTS_MAX
    rows: list[Event] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    start: int = 0
    """PREFERRED: the row at which the next match may start."""
    numbered: int = 0
    """Matches so far."""
    covered: int = -1
    """PREFERRED: the last row of any match so far."""
    starts: dict[int, list[tuple[Bound, ...]]] = field(default_factory=dict)
    """Other selections: the start rows that may still give something, and the bindings each has given."""
    used: list[int] = field(default_factory=list)
    until: int = TIME_MAX
    """The earliest time at which an open path may end by time."""
    place: tuple[int, int, int] = (TIME_MIN, 0, 0)
    index: int = 0
    complete: int = TIME_MIN
    ended: bool = False
    matches: list[tuple[Path, tuple[int, int, int]]] = field(default_factory=list)
    """Every match that was output, and the position at which it became certain."""

    def run(self, rows: Sequence[Row], through: int) -> list[Output]:
        """The outputs of these rows of the key, as far as they are certain when time `through` is complete."""
        for row in rows:
            stamp = row.event.stamp
            self._deadlines(stamp.time - 1)
            self.rows.append(row.event)
            self.starts[len(self.rows) - 1] = []
            self.complete = max(self.complete, stamp.time - 1)
            self._settle((stamp.time, row.rank, stamp.ordinal))
        self._deadlines(through)
        if through == TIME_MAX:
            self.complete, self.ended = TIME_MAX, True
            self._settle((TIME_MAX, RANK_DEADLINE, 0))
        return self.outputs

    def _deadlines(self, through: int) -> None:
        while self.until <= through and self.until < TIME_MAX:
            self.complete = self.until
            self._settle((self.until, RANK_DEADLINE, 0))

    def _settle(self, place: tuple[int, int, int]) -> None:
        self.place, self.index, self.until = place, 0, TIME_MAX
        match self.plan.selection:
            case Selection.PREFERRED:
                self._preferred()
            case Selection.ALL | Selection.CONTINUOUS:
                self._each_start()
            case Selection.CHRONICLE:
                self._chronicle()
            case Selection.RECENT | Selection.CUMULATIVE:
                self._last_start()

    def _outcomes(self, start: int) -> Iterator[Path]:
        known = Known(self.rows, self.complete, self.ended, frozenset(self.used))
        return Search(self.plan, self.key, known, self.numbered + 1, self.attempts_max).outcomes(start)

    # --- preferred ---

    def _preferred(self) -> None:
        while self.start < len(self.rows):
            timed_out: Path | None = None
            for path in self._outcomes(self.start):
                if path.status is Status.OPEN:
                    self.until = path.until
                    return
                if path.status is Status.MATCH:
                    if not self._emit_match(path):
                        return
                    self.start = self._after(path)
                    break
                timed_out = timed_out or path
            else:
                self._emit_timed_out(timed_out)
                if self.plan.mode is OutputMode.ALL_ROWS_UNMATCHED and self.start > self.covered:
                    self._emit_row(self.start)
                self.start += 1

    def _after(self, path: Path) -> int:
        """Where the next match may start."""
        skip = self.plan.skip
        if not path.bound or skip.kind is SkipKind.TO_NEXT:
            return path.start + 1
        if skip.kind is SkipKind.PAST_LAST:
            return path.bound[-1][0] + 1
        rows = [index for index, name in path.bound if name in skip.variables]
        wanted = "|".join(skip.variables)
        if not rows:
            raise RuleError(
                f"rule {self.plan.name}: skip {skip.kind} {wanted}, but a match binds no row to it; "
                "skip to a variable that every match binds"
            )
        target = rows[0] if skip.kind is SkipKind.TO_FIRST else rows[-1]
        if target == path.start:
            raise RuleError(
                f"rule {self.plan.name}: skip {skip.kind} {wanted} leads back to the first row of the match, so the "
                "same match would be found for ever; skip past it"
            )
        return target

    # --- selections that output a match as soon as it is complete ---

    def _each_start(self) -> None:
        """ALL: every new binding of every start. CONTINUOUS: the first of each start."""
        for start in list(self.starts):
            timed_out, still_open = None, False
            for path in self._outcomes(start):
                if path.status is Status.OPEN:
                    still_open = True
                    self.until = min(self.until, path.until)
                elif path.status is Status.TIMED_OUT:
                    timed_out = timed_out or path
                elif path.bound not in self.starts[start]:
                    self.starts[start].append(path.bound)
                    self._emit_match(path)
                    if self.plan.selection is Selection.CONTINUOUS:
                        break
            given = self.starts[start]
            if not still_open or (given and self.plan.selection is Selection.CONTINUOUS):
                if not given:
                    self._emit_timed_out(timed_out)
                del self.starts[start]

    def _chronicle(self) -> None:
        """Again and again the earliest start that has a complete match, over rows not used yet."""
        while any(self._take_first_complete(start) for start in list(self.starts)):
            pass
        self._drop_dead_starts()

    def _take_first_complete(self, start: int) -> bool:
        for path in self._outcomes(start):
            if path.status is Status.MATCH:
                self._emit_match(path)
                for index, _ in path.bound:
                    self.used.append(index)
                    self.starts.pop(index, None)
                return True
        return False

    def _last_start(self) -> None:
        """RECENT: the match with the latest start. CUMULATIVE: the rows of all complete matches as one."""
        while True:
            complete = [p for start in list(self.starts) for p in self._outcomes(start) if p.status is Status.MATCH]
            if not complete:
                break
            if self.plan.selection is Selection.RECENT:
                latest = max(path.start for path in complete)
                chosen = next(path for path in complete if path.start == latest)
            else:
                together: dict[int, str] = {}
                for path in complete:
                    for index, name in path.bound:
                        together.setdefault(index, name)
                bound = tuple(sorted(together.items()))
                chosen = Path(bound[0][0], bound[-1][0] + 1, bound)
            self._emit_match(chosen)
            self.starts = {start: given for start, given in self.starts.items() if start > chosen.bound[-1][0]}
        self._drop_dead_starts()

    def _drop_dead_starts(self) -> None:
        for start in list(self.starts):
            paths = list(self._outcomes(start))
            open_until = [path.until for path in paths if path.status is Status.OPEN]
            if open_until:
                self.until = min(self.until, *open_until)
            else:
                self._emit_timed_out(next(iter(paths), None))
                del self.starts[start]

    # --- outputs ---

    def _emit_match(self, path: Path) -> bool:
        """Output a match; False if a measure needs a row that has not come (NEXT)."""
        mode = self.plan.mode
        if mode is OutputMode.ONE_ROW:
            at: list[int | None] = [path.bound[-1][0] if path.bound else None]
        else:
            at = [index for index, _ in path.bound if index not in path.excluded]
            if not path.bound and mode is not OutputMode.ALL_ROWS_OMIT_EMPTY:
                at = [path.start]
        try:
            payloads = [self._payload(self.plan.measures, path.bound, here) for here in at]
        except NotYet:
            return False
        self.numbered += 1
        self.matches.append((path, self.place))
        self.covered = max(self.covered, path.start, *(index for index, _ in path.bound))
        for payload in payloads:
            self._emit(self.plan.name, payload)
        return True

    def _emit_timed_out(self, path: Path | None) -> None:
        if path is not None and self.plan.timed_out is not None:
            here = path.bound[-1][0]
            self._emit(self.plan.timed_out.name, self._payload(self.plan.timed_out.measures, path.bound, here))

    def _emit_row(self, index: int) -> None:
        """A row of no match: its own columns and nothing else."""
        scope = MatchScope(self.rows, (), index, self.key, None, self.ended)
        measures = self.plan.measures
        self._emit(self.plan.name, {m.name: prepared(m.expr)(scope) if m.own else None for m in measures})

    def _payload(self, measures: tuple[Measure, ...], bound: tuple[Bound, ...], here: int | None) -> dict[str, object]:
        match = MatchScope(self.rows, bound, here, self.key, self.numbered + 1, self.ended)
        return {measure.name: prepared(measure.expr)(match) for measure in measures}

    def _emit(self, stream: str, payload: dict[str, object]) -> None:
        time, rank, ordinal = self.place
        self.outputs.append(Output(stream, time, rank, ordinal, self.key, self.index, payload))
        self.index += 1
