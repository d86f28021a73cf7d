"""From a plan to a program: which kernel runs it, its source, its memory, its output columns; or why there is none."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np

from unerring.matching.kernel import lists, single, windows
from unerring.matching.kernel.absence import AbsenceMemory, AbsenceSource
from unerring.matching.kernel.columns import Array, Columns
from unerring.matching.kernel.constants import lifted
from unerring.matching.kernel.joins import JoinSource
from unerring.matching.kernel.keys import Interner
from unerring.matching.kernel.latest import LatestMemory, LatestSource
from unerring.matching.kernel.lowering import Final, Net, check_plan, net_of
from unerring.matching.kernel.measures import MeasureSource, measure_function, measure_sources
from unerring.matching.kernel.reading import RowReader
from unerring.matching.kernel.registers import Bank, Register
from unerring.matching.kernel.relevance import Wanted, wanted_rows
from unerring.matching.kernel.run_lists import MERGED_RUNS_MAX, RUNS_MAX, RunLists
from unerring.matching.kernel.runs import RunsSource
from unerring.matching.kernel.scalar import Uncompiled
from unerring.matching.kernel.single import SingleMemory, SingleSource
from unerring.matching.kernel.state import Memory
from unerring.matching.kernel.trailing import TrailingSource
from unerring.matching.kernel.trailing_lists import TrailingLists
from unerring.matching.kernel.windows import WindowSource
from unerring.rules import JoinPlan, PatternPlan, Plan, SkipKind, Trailing, WindowPlan

NESTING_MAX = 180
"""Parentheses in each other: Python reads 200."""


PROGRAMS_MAX = 4096
"""Plans whose programs are kept at hand."""


@dataclass(frozen=True, slots=True)
class Program:
    """Everything that a matcher needs to run a plan."""

    kernel: str
    source: str
    """Plans that differ in constants alone have the same."""
    integers: tuple[int, ...]
    """The plan's own constants."""
    floats: tuple[float, ...]
    wanted: Wanted | None
    """The rows that can matter to it; None: all."""
    reader: RowReader
    bank: Bank
    measures: tuple[MeasureSource, ...]
    memory: Callable[[], Memory]
    widths: tuple[int, int, int]
    """The widths of an entry: integers, floats, states."""
    text_columns: tuple[int, ...]
    """Among the integers of an entry."""
    row_columns: tuple[tuple[int, int | None], ...]
    """Among them, those that hold a row's number; and the state that says whether there is one (None: always)."""

    def constants(self, batch: Columns, interner: Interner) -> tuple[Array, Array]:
        """The values of `K` and `Q` for one batch."""
        integers = [*self.reader.codes(batch, interner), *self.integers]
        return np.array(integers, np.int64), np.array(self.floats, np.float64)


@lru_cache(maxsize=PROGRAMS_MAX)
def program_of(plan: Plan) -> Program:
    """The program; raises Uncompiled. Programs hold no state: matchers of one plan share one."""
    _check_keys(plan)
    match plan:
        case PatternPlan():
            return _pattern_program(plan)
        case WindowPlan():
            return _window(plan)
        case JoinPlan():
            return _join(plan)
    raise Uncompiled("an operator in Python runs as it is")


def _check_keys(plan: Plan) -> None:
    for source in plan.inputs:
        for name in source.key:
            if source.schema.column(name).nullable:
                raise Uncompiled(f"key column {name} of {source.name} may be NULL")


def _pattern_program(plan: PatternPlan) -> Program:
    check_plan(plan)
    if len({source.schema.name for source in plan.inputs}) < len(plan.inputs):
        raise Uncompiled("it reads one stream twice")
    net = net_of(plan.pattern)
    plain = plan.skip.kind in (SkipKind.PAST_LAST, SkipKind.TO_NEXT)
    for build in (_latest, _absence, _single) if plain else ():
        try:
            return build(plan, net)
        except Uncompiled:
            continue  # a narrower kernel does not fit; the general one says what it lacks
    return _runs(plan, net)


def _latest(plan: PatternPlan, net: Net) -> Program:
    draft = _Draft(plan)
    writer = LatestSource(plan, net, draft.reader, draft.bank)
    return draft.program("latest", writer, lambda: LatestMemory(draft.bank, writer.first.name), 1, passes_over=True)


def _absence(plan: PatternPlan, net: Net) -> Program:
    draft = _Draft(plan)
    writer = AbsenceSource(plan, net, draft.reader, draft.bank)
    return draft.program("absence", writer, lambda: AbsenceMemory(draft.bank, writer.within), 2, (1,), True)


def _single(plan: PatternPlan, net: Net) -> Program:
    draft = _Draft(plan)
    writer = SingleSource(plan, net, draft.reader, draft.bank)
    return draft.program("single run", writer, lambda: SingleMemory(draft.bank), single.BASE)


def _runs(plan: PatternPlan, net: Net) -> Program:
    draft = _Draft(plan)
    writer = RunsSource(plan, net, draft.reader, draft.bank)
    pending = [number + 1 for number, point in enumerate(writer.points) if isinstance(point, Final)]

    def memory() -> Memory:
        runs_max = MERGED_RUNS_MAX if writer.merges else RUNS_MAX
        made = RunLists(draft.bank, pending, runs_max, writer.fan * len(writer.starts))
        made.wrong_skip = wrong_skip(plan)
        made.keeps_fresh = writer.fresh
        return made

    rows = (lists.START_ROW, lists.LAST_ROW)
    return draft.program("runs", writer, memory, lists.BASE, rows, writer.passes_over)


def wrong_skip(plan: PatternPlan) -> dict[int, str]:
    """The interpreter's error message."""
    skip = f"rule {plan.name}: skip {plan.skip.kind} {'|'.join(plan.skip.variables)}"
    return {
        lists.NO_ROW: f"{skip}, but a match binds no row to it; skip to a variable that every match binds",
        lists.FIRST_ROW: f"{skip} leads back to the first row of the match, so the same match would be found for ever; "
        "skip past it",
    }


def _window(plan: WindowPlan) -> Program:
    if len({source.schema.name for source in plan.inputs}) < len(plan.inputs):
        raise Uncompiled("it reads one stream twice")
    if isinstance(plan.window, Trailing):
        return _trailing(plan)
    draft = _Draft(plan)
    writer = WindowSource(plan, draft.reader, draft.bank)

    def memory() -> Memory:
        return RunLists(draft.bank, [windows.OPEN], fan=writer.slots, by_length=False)

    return draft.program("windows", writer, memory, lists.BASE)


def _trailing(plan: WindowPlan) -> Program:
    draft = _Draft(plan)
    writer = TrailingSource(plan, draft.reader, draft.bank)

    def memory() -> Memory:
        sizes = {"pending": [windows.OPEN], "fan": writer.slots, "by_length": False}
        return TrailingLists(draft.bank, writer.parted, writer.totals.words, **sizes)

    return draft.program("trailing windows", writer, memory, lists.BASE)


def _join(plan: JoinPlan) -> Program:
    draft = _Draft(plan)
    writer = JoinSource(plan, draft.reader, draft.bank)
    return draft.program("join", writer, lambda: RunLists(draft.bank, writer.pending), lists.BASE)


class _Writer(Protocol):
    """Writes the source of one kernel for one plan."""

    def write(self, measures: list[Register]) -> str: ...


class _Draft:
    """The parts that the kernels of a plan have in common, before one of them is chosen."""

    def __init__(self, plan: PatternPlan | WindowPlan | JoinPlan) -> None:
        self._plan = plan
        self.reader, self.bank = RowReader(plan.inputs), Bank([])
        self._measures, self._registers = measure_sources(plan.measures)

    def program(
        self,
        kernel: str,
        writer: _Writer,
        memory: Callable[[], Memory],
        base: int,
        rows: tuple[int, ...] = (),
        passes_over: bool = False,
    ) -> Program:
        """`base`: integers of an entry before its registers; `rows`: those of them that hold a row's number.
        `passes_over`: see `wanted_rows`."""
        written = writer.write(self._registers) + measure_function(self._measures, self.bank)
        source, given_integers, given_floats = lifted(written, len(self.reader.constants.texts))
        if _nesting(source) > NESTING_MAX:
            raise Uncompiled("an expression of it is nested too deep")
        integers, floats, states = self.bank.widths()
        widths, texts = (base + integers, floats, states), tuple(base + column for column in self.bank.texts())
        registers = [self.bank.place(register) for register in self.bank.registers if register.of_row_number]
        numbers = (*((row, None) for row in rows), *((base + column, state) for _, column, state in registers))
        wanted = wanted_rows(self._plan, passes_over)
        read = (self.reader, self.bank, self._measures)
        return Program(kernel, source, given_integers, given_floats, wanted, *read, memory, widths, texts, numbers)


def _nesting(source: str) -> int:
    depth = deepest = 0
    for sign in re.findall(r"[()\[\]]", source):
        depth += 1 if sign in "([" else -1
        deepest = max(deepest, depth)
    return deepest
