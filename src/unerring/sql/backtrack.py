"""The search that a query on a table runs: backtracking with a memory, over a partition whose rows are all known.

It finds what the oracle finds (the standard's preference order, exactly) but does not try the same thing twice: a
choice at one instruction, one row and with equal registers has one future, so once it has failed it is not tried again.
Nested quantifiers therefore cost instructions times rows instead of an exponential number of paths. What it remembers
also serves the next start rows, unless the answer depends on the start (`WITHIN`). Where conditions look at so much of
the path that paths never agree, the work is bounded by `steps_max`, and the error says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from unerring.model import Event, Key, RuleError
from unerring.rules.expressions import Classifier
from unerring.rules.plan import Measure, OutputMode, PatternPlan, Selection, SkipKind
from unerring.rules.reading import walk
from unerring.sql.program import Op, Program, compile_program, supported
from unerring.sql.registers import RegisterFile, Registers, RegisterScope, bound, prepared

STEPS_MAX: Final = 10_000_000
"""Choices and rows tried from one start row."""


@dataclass(frozen=True, slots=True)
class Match:
    """Rows `start` to `start + len(labels)`, each with its variable's number and whether it is left out."""

    start: int
    labels: tuple[int, ...]
    hidden: tuple[bool, ...]

    @property
    def end(self) -> int:
        return self.start + len(self.labels)


class Matcher:
    """One plan, ready to run over partitions."""

    def __init__(self, plan: PatternPlan, steps_max: int = STEPS_MAX) -> None:
        if plan.selection is not Selection.PREFERRED or not supported(plan.pattern):
            raise RuleError(f"rule {plan.name}: only SQL's patterns and selection can be searched this way")
        self.plan = plan
        self.steps_max = steps_max
        self.names = tuple(variable.name for variable in plan.variables)
        self.program: Program = compile_program(plan.pattern, self.names)
        self.keys = len(plan.inputs[0].key)

    def run(self, rows: Sequence[Event], key: Key = ()) -> Iterator[dict[str, Any]]:
        """The output rows of one partition, in order."""
        return _Partition(self, rows, key).outputs()


class _Partition:
    def __init__(self, matcher: Matcher, rows: Sequence[Event], key: Key) -> None:
        self.matcher = matcher
        self.plan = matcher.plan
        self.rows = rows
        self.code = matcher.program.instructions
        self.number = 1
        conditions = [variable.condition for variable in self.plan.variables]
        self.file = RegisterFile(matcher.names, matcher.keys)
        self.conditions = prepared(conditions, self.file)
        self.scope = RegisterScope(rows, key, matcher.names, self.file)
        self.file.open(self.scope)
        self.changes = self.file.plan_of(len(matcher.names))
        self.empty = self.file.start()
        self.all_bits = (1 << matcher.program.loops) - 1
        self.visited: dict[int, set[Any]] = {}
        nodes = [node for condition in conditions if condition is not None for node in walk(condition)]
        self.start_matters = self.plan.within_us is not None or any(
            isinstance(node, Classifier) and node.at.shift and (node.at.variables or node.at.shift > 0)
            for node in nodes
        )
        self.writer = _Writer(self, key)

    # --- which matches ---

    def outputs(self) -> Iterator[dict[str, Any]]:
        start, covered = 0, -1
        unmatched = self.plan.mode is OutputMode.ALL_ROWS_UNMATCHED
        while start < len(self.rows):
            match = self.find(start)
            if match is None:
                if unmatched and start > covered:
                    yield self.writer.unmatched(start)
                start += 1
                continue
            yield from self.writer.rows_of(match, self.number)
            self.number += 1
            covered = max(covered, start, match.end - 1)
            start = self.after(match)

    def after(self, match: Match) -> int:
        """Where the next match may start."""
        skip = self.plan.skip
        if not match.labels or skip.kind is SkipKind.TO_NEXT:
            return match.start + 1
        if skip.kind is SkipKind.PAST_LAST:
            return match.end
        names = self.matcher.names
        found = [index for index, label in enumerate(match.labels) if names[label] in skip.variables]
        wanted = "|".join(skip.variables)
        if not found:
            raise RuleError(
                f"AFTER MATCH SKIP {skip.kind.upper()} {wanted}: the match that starts at row {match.start + 1} of its "
                "partition binds no row to it; skip to a variable that every match binds"
            )
        target = found[0] if skip.kind is SkipKind.TO_FIRST else found[-1]
        if target == 0:
            raise RuleError(
                f"AFTER MATCH SKIP {skip.kind.upper()} {wanted} leads back to the first row of the match (row "
                f"{match.start + 1} of its partition), so the same match would be found for ever; skip past it"
            )
        return match.start + target

    # --- the search ---

    def find(self, start: int) -> Match | None:
        """The most preferred match from this row."""
        if self.start_matters:
            self.visited.clear()
        self.scope.start_at(start)
        self.scope.match_number = self.number
        labels: list[int] = []
        hidden: list[bool] = []
        stack: list[tuple[int, int, int, Registers]] = [(0, start, 0, self.empty)]
        steps = 0
        while stack:
            pc, row, bits, held = stack.pop()
            del labels[row - start :], hidden[row - start :]
            while True:
                op, a, b, c = self.code[pc]
                if op is Op.BIND:
                    steps += 1
                    after = self.bind(a, row, start, held)
                    if after is None:
                        break
                    labels.append(a)
                    hidden.append(bool(b))
                    pc, row, bits, held = pc + 1, row + 1, self.all_bits, after
                elif op is Op.SPLIT:
                    steps += 1
                    seen = self.visited.setdefault(row, set())
                    state = (pc, bits, held) if held or bits else pc
                    if state in seen:
                        break
                    seen.add(state)
                    if steps > self.matcher.steps_max:
                        raise self.too_many(start)
                    stack.append((b, row, bits, held))
                    pc = a
                elif op is Op.JUMP:
                    pc = a
                elif op is Op.ENTER:
                    pc, bits = pc + 1, bits & ~(1 << a)
                elif op is Op.AGAIN:
                    pc = b if bits >> a & 1 else c
                elif op is Op.FIRST:
                    if row:
                        break
                    pc += 1
                elif op is Op.LAST:
                    if row < len(self.rows):
                        break
                    pc += 1
                else:
                    self.visited.clear()
                    return Match(start, tuple(labels), tuple(hidden))
        return None

    def bind(self, variable: int, row: int, start: int, held: Registers) -> Registers | None:
        """The registers with this row bound to the variable; None if it may not be."""
        if row >= len(self.rows):
            return None
        within_us = self.plan.within_us
        if within_us is not None and self.rows[row].stamp.time > self.rows[start].stamp.time + within_us:
            return None
        after = bound(held, self.changes[variable], row, variable)
        condition = self.conditions[variable]
        if condition is not None:
            scope = self.scope
            scope.held = after
            scope.look_at(row, variable)
            if condition(scope) is not True:
                return None
        return after

    def too_many(self, start: int) -> RuleError:
        return RuleError(
            f"the pattern was tried in {self.matcher.steps_max} ways from row {start + 1} of its partition without an "
            "end; bound its quantifiers, add WITHIN, or let conditions look at fewer earlier rows"
        )


class _Writer:
    """The measures of a match, row by row or once."""

    def __init__(self, partition: _Partition, key: Key) -> None:
        matcher = partition.matcher
        self.plan = matcher.plan
        self.measures: tuple[Measure, ...] = self.plan.measures
        self.file = RegisterFile(matcher.names, matcher.keys)
        self.closures = prepared([measure.expr for measure in self.measures], self.file)
        self.scope = RegisterScope(partition.rows, key, matcher.names, self.file)
        self.file.open(self.scope)
        self.changes = self.file.plan_of(len(matcher.names))
        self.empty = self.file.start()

    def rows_of(self, match: Match, number: int) -> Iterator[dict[str, Any]]:
        """The output rows of a match."""
        mode, scope = self.plan.mode, self.scope
        scope.match_number = number
        scope.start_at(match.start)
        held = self.empty
        for index, label in enumerate(match.labels):
            held = bound(held, self.changes[label], match.start + index, label)
        scope.held = scope.final = held
        if mode is OutputMode.ONE_ROW:
            scope.look_at(match.end - 1 if match.labels else None, match.labels[-1] if match.labels else 0)
            yield self._payload()
        elif match.labels:
            running = self.empty
            for index, (label, left_out) in enumerate(zip(match.labels, match.hidden, strict=True)):
                running = bound(running, self.changes[label], match.start + index, label)
                if not left_out:
                    scope.held = running
                    scope.look_at(match.start + index, label)
                    yield self._payload()
        elif mode is not OutputMode.ALL_ROWS_OMIT_EMPTY:
            scope.look_at(match.start)
            yield self._payload()

    def unmatched(self, row: int) -> dict[str, Any]:
        """A row of no match: its own columns, all else NULL."""
        self.scope.match_number = None
        self.scope.held = self.scope.final = self.empty
        self.scope.look_at(row)
        return {
            measure.name: closure(self.scope) if closure is not None and measure.own else None
            for measure, closure in zip(self.measures, self.closures, strict=True)
        }

    def _payload(self) -> dict[str, Any]:
        return {
            measure.name: closure(self.scope)
            for measure, closure in zip(self.measures, self.closures, strict=True)
            if closure is not None
        }
