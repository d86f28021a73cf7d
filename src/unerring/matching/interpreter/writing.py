"""The outputs of a match: its measures, once or for each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unerring.matching.interpreter.registers import RegisterFile, RegisterScope, Rows, bound
from unerring.matching.interpreter.search import Link, contiguous
from unerring.model import Key
from unerring.rules import Measure, OutputMode, PatternPlan


class Writer:
    """The measures of a plan, prepared once for all keys."""

    def __init__(self, plan: PatternPlan, measures: tuple[Measure, ...]) -> None:
        self._mode = plan.mode
        self._file = RegisterFile(tuple(v.name for v in plan.variables), contiguous(plan.pattern))
        self._measures = tuple((m.name, self._file.prepare(m.expr), m.own) for m in measures)
        self._changes = self._file.changes()
        self._empty = self._file.start()

    def rows_of(
        self, rows: Rows, key: Key, chain: Sequence[Link], start: int, match_number: int
    ) -> list[dict[str, Any]]:
        """The output rows of a match. Raises NotYet if a measure needs a row that has not come."""
        if self._mode is OutputMode.ONE_ROW:
            return [self.once(rows, key, chain, match_number)]
        scope = self._scope(rows, key, match_number)
        scope.final = self._held(chain, scope)
        running, payloads = self._empty, []
        for row, variable, excluded, _ in chain:
            running = bound(running, self._changes[variable], row, variable, scope)
            if not excluded:
                scope.held = running
                scope.look_at(row, variable)
                payloads.append(self._payload(scope))
        if not chain and self._mode is not OutputMode.ALL_ROWS_OMIT_EMPTY:
            scope.look_at(start)
            payloads.append(self._payload(scope))
        return payloads

    def once(self, rows: Rows, key: Key, chain: Sequence[Link], match_number: int) -> dict[str, Any]:
        """One row for the whole match, seen from its last row."""
        scope = self._scope(rows, key, match_number)
        scope.held = scope.final = self._held(chain, scope)
        scope.look_at(*(chain[-1][:2] if chain else (None,)))
        return self._payload(scope)

    def unmatched(self, rows: Rows, key: Key, row: int) -> dict[str, Any]:
        """A row of no match: its own columns, all else NULL."""
        scope = self._scope(rows, key, None)
        scope.look_at(row)
        return {name: value(scope) if own else None for name, value, own in self._measures}

    def _scope(self, rows: Rows, key: Key, match_number: int | None) -> RegisterScope:
        scope = RegisterScope(rows, key, self._file)
        scope.held = scope.final = self._empty
        scope.match_number = match_number
        return scope

    def _held(self, chain: Sequence[Link], scope: RegisterScope) -> tuple[Any, ...]:
        held = self._empty
        for row, variable, *_ in chain:
            held = bound(held, self._changes[variable], row, variable, scope)
        return held

    def _payload(self, scope: RegisterScope) -> dict[str, Any]:
        return {name: value(scope) for name, value, _ in self._measures}
