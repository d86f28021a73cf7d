"""One key's windows, step by step. Each look aggregates the rows in the window, in their order."""

from __future__ import annotations

from typing import Any

import msgspec

from unerring.matching.evaluation import Prepared, prepare
from unerring.matching.outputs import RANK_DEADLINE, Output, Row
from unerring.matching.scopes import WindowScope
from unerring.matching.windows import same, watched
from unerring.model import TIME_MAX, Event, Key, Stamp
from unerring.rules import Attribute, Counted, Emit, Session, Sliding, Trailing, Tumbling, WindowPlan, walk


class StoredWindow(msgspec.Struct, frozen=True, array_like=True):
    """One key's state: rows of open windows, the number of the next aligned window to look at, what was last given."""

    key: tuple[Any, ...]
    rows: tuple[tuple[int, int, int, tuple[Any, ...]], ...]
    """Stream number, time, ordinal, values."""
    number: int | None
    last: tuple[Any, ...] | None


class WindowRules:
    """What all keys of a plan share."""

    def __init__(self, plan: WindowPlan) -> None:
        self.plan = plan
        self.measures = tuple((measure.name, prepare(measure.expr)) for measure in plan.measures)
        self.having: Prepared | None = None if plan.having is None else prepare(plan.having)
        names = watched(plan)
        self.watched = tuple(value for name, value in self.measures if name in names)
        exprs = [*(measure.expr for measure in plan.measures), *([] if plan.having is None else [plan.having])]
        read = {node.name for expr in exprs for node in walk(expr) if isinstance(node, Attribute)}
        self.streams = tuple(source.schema.name for source in plan.inputs)
        self.columns = tuple(
            tuple(column.name for column in source.schema.columns if column.name in read) for source in plan.inputs
        )
        self.exact_sums = isinstance(plan.window, Trailing)
        self.aligned: tuple[int, int, int] | None = None
        if isinstance(plan.window, Tumbling):
            self.aligned = plan.window.size_us, plan.window.size_us, plan.window.offset_us
        elif isinstance(plan.window, Sliding):
            self.aligned = plan.window.size_us, plan.window.slide_us, 0


class KeyWindows:
    """The open windows of one key."""

    __slots__ = ("_outputs", "_rules", "empty", "key", "last", "number", "rows")

    def __init__(self, rules: WindowRules, key: Key, outputs: list[Output]) -> None:
        self._rules = rules
        self._outputs = outputs
        self.key = key
        self.rows: list[Event] = []
        self.number: int | None = None
        """The next aligned window to look at."""
        self.empty = self._watch(())
        self.last = self.empty

    def on_row(self, row: Row) -> None:
        event, window = row.event, self._rules.plan.window
        time = event.stamp.time
        self.on_time(time - 1)
        place = (time, row.rank, event.stamp.ordinal)
        if self._rules.aligned is not None:
            first, final = self._numbers(time)
            if first > final:
                return
            self.number = first if self.number is None else self.number
            self.rows.append(event)
        elif isinstance(window, Counted):
            self.rows.append(event)
            if len(self.rows) == window.size:
                self._look(place, self.rows, (self.rows[0].stamp.time, time + 1))
                del self.rows[: window.slide]
        elif isinstance(window, Trailing):
            self.rows.append(event)
            seen = [one for one in self.rows if one.stamp.time > time - window.size_us]
            self._look(place, seen, (time - window.size_us + 1, time + 1))
        else:
            self.rows.append(event)

    @property
    def until(self) -> int:
        """The next deadline."""
        window = self._rules.plan.window
        if self._rules.aligned is not None:
            size, slide, offset = self._rules.aligned
            return TIME_MAX if self.number is None else self.number * slide + offset + size - 1
        if not self.rows:
            return TIME_MAX
        if isinstance(window, Session):
            return self.rows[-1].stamp.time + window.gap_us
        return self.rows[0].stamp.time + window.size_us if isinstance(window, Trailing) else TIME_MAX

    wake = until

    def on_time(self, through: int) -> None:
        while True:
            due = self.until
            if due > through or due >= TIME_MAX:
                return
            place, window = (due, RANK_DEADLINE, 0), self._rules.plan.window
            if self._rules.aligned is not None:
                self._close_aligned(place)
            elif isinstance(window, Session):
                rows, self.rows = self.rows, []
                self._look(place, rows, (rows[0].stamp.time, due))
            elif isinstance(window, Trailing):
                self.rows = [one for one in self.rows if one.stamp.time > due - window.size_us]
                self._look(place, self.rows, (due - window.size_us + 1, due + 1))

    def on_end(self) -> None:
        self.on_time(TIME_MAX)

    def _numbers(self, time: int) -> tuple[int, int]:
        """The first and the last aligned window that hold this time."""
        size, slide, offset = self._rules.aligned or (1, 1, 0)
        return (time - offset - size) // slide + 1, (time - offset) // slide

    def _close_aligned(self, place: tuple[int, int, int]) -> None:
        size, slide, offset = self._rules.aligned or (1, 1, 0)
        number = self.number or 0
        start = number * slide + offset
        seen = [one for one in self.rows if start <= one.stamp.time < start + size]
        if seen or self._rules.plan.emit is Emit.CHANGE:
            self._look(place, seen, (start, start + size))
        self.rows = [one for one in self.rows if self._numbers(one.stamp.time)[1] > number]
        if seen and self._rules.plan.emit is Emit.CHANGE:
            self.number = number + 1
        else:
            self.number = max(number + 1, self._numbers(self.rows[0].stamp.time)[0]) if self.rows else None

    def _look(self, place: tuple[int, int, int], rows: list[Event], bounds: tuple[int, int]) -> None:
        scope = WindowScope(rows, self.key, bounds, self._rules.exact_sums)
        if self._rules.plan.emit is Emit.CHANGE:
            now = tuple(value(scope) for value in self._rules.watched)
            unchanged = all(map(same, now, self.last))
            self.last = now
            if unchanged:
                return
        if self._rules.having is None or self._rules.having(scope) is True:
            payload = {name: value(scope) for name, value in self._rules.measures}
            self._outputs.append(Output(self._rules.plan.name, *place, self.key, 0, payload))

    def _watch(self, rows: tuple[Event, ...]) -> tuple[Any, ...]:
        if self._rules.plan.emit is not Emit.CHANGE:
            return ()
        scope = WindowScope(rows, self.key, (0, 0), self._rules.exact_sums)
        return tuple(value(scope) for value in self._rules.watched)

    # --- state ---

    def idle(self, through: int) -> bool:
        return not self.rows and self.number is None and all(map(same, self.last, self.empty))

    def prune(self, through: int) -> None:
        """Rows are dropped as windows close."""

    def stored(self, through: int) -> StoredWindow | None:
        if self.idle(through):
            return None
        rows = []
        for event in self.rows:
            number = self._rules.streams.index(event.stream)
            values = tuple(event.payload.get(name) for name in self._rules.columns[number])
            rows.append((number, event.stamp.time, event.stamp.ordinal, values))
        last = None if all(map(same, self.last, self.empty)) else self.last
        return StoredWindow(self.key, tuple(rows), self.number, last)

    def restore(self, stored: StoredWindow, through: int) -> None:
        for number, time, ordinal, values in stored.rows:
            payload = dict(zip(self._rules.columns[number], values, strict=True))
            self.rows.append(Event(self._rules.streams[number], Stamp(time, ordinal), self.key, payload))
        self.number = stored.number
        self.last = self.empty if stored.last is None else tuple(stored.last)
