"""From a plan to a program: which kernel runs it, its source, its memory, its output columns; or why there is none."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from unerring.matching.kernel import lists, single, windows
from unerring.matching.kernel.absence import AbsenceMemory, AbsenceSource
from unerring.matching.kernel.joins import JoinSource
from unerring.matching.kernel.latest import LatestMemory, LatestSource
from unerring.matching.kernel.lowering import Final, Line, check_plan, line_of
from unerring.matching.kernel.measures import MeasureSource, measure_function, measure_sources
from unerring.matching.kernel.reading import RowReader
from unerring.matching.kernel.registers import Bank
from unerring.matching.kernel.run_lists import MERGED_RUNS_MAX, RUNS_MAX, RunLists
from unerring.matching.kernel.runs import RunsSource
from unerring.matching.kernel.scalar import Uncompiled
from unerring.matching.kernel.single import SingleMemory, SingleSource
from unerring.matching.kernel.state import Memory
from unerring.matching.kernel.trailing import TrailingSource
from unerring.matching.kernel.windows import WindowSource
from unerring.rules.plan import JoinPlan, PatternPlan, Plan, SkipKind, Trailing, WindowPlan

NESTING_MAX = 180
"""Parentheses in each other: Python reads 200."""


@dataclass(frozen=True, slots=True)
class Program:
    """All that a matcher needs to run a plan."""

    kernel: str
    source: str
    reader: RowReader
    bank: Bank
    measures: tuple[MeasureSource, ...]
    memory: Callable[[], Memory]
    widths: tuple[int, int, int]
    """Of entries: integers, floats, states."""
    text_columns: tuple[int, ...]
    """Among the integers of an entry."""


@lru_cache(maxsize=256)
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
    raise Uncompiled("a class of one's own runs as it is")


def _check_keys(plan: Plan) -> None:
    for source in plan.inputs:
        for name in source.key:
            if source.schema.column(name).nullable:
                raise Uncompiled(f"key column {name} of {source.name} may be NULL")


def _pattern_program(plan: PatternPlan) -> Program:
    check_plan(plan)
    if len({source.schema.name for source in plan.inputs}) < len(plan.inputs):
        raise Uncompiled("it reads one stream twice")
    plain = plan.skip.kind in (SkipKind.PAST_LAST, SkipKind.TO_NEXT)
    for build in (_latest, _absence, _single) if plain else ():
        try:
            return build(plan, line_of(plan))
        except Uncompiled:
            continue  # a narrower kernel does not fit; the general one says what it lacks
    return _runs(plan)


def _latest(plan: PatternPlan, line: Line) -> Program:
    reader, bank = RowReader(plan.inputs), Bank([])
    measures, wanted = measure_sources(plan.measures)
    source = LatestSource(plan, line, reader, bank).write(wanted)
    return _program("latest", source, reader, bank, measures, lambda: LatestMemory(bank), 1)


def _absence(plan: PatternPlan, line: Line) -> Program:
    reader, bank = RowReader(plan.inputs), Bank([])
    measures, wanted = measure_sources(plan.measures)
    writer = AbsenceSource(plan, line, reader, bank)
    return _program(
        "absence", writer.write(wanted), reader, bank, measures, lambda: AbsenceMemory(bank, writer.within), 2
    )


def _single(plan: PatternPlan, line: Line) -> Program:
    reader, bank = RowReader(plan.inputs), Bank([])
    measures, wanted = measure_sources(plan.measures)
    source = SingleSource(plan, line, reader, bank).write(wanted)
    return _program("single run", source, reader, bank, measures, lambda: SingleMemory(bank), single.BASE)


def _runs(plan: PatternPlan) -> Program:
    reader, bank = RowReader(plan.inputs), Bank([])
    measures, wanted = measure_sources(plan.measures)
    writer = RunsSource(plan, reader, bank)
    source = writer.write(wanted)
    pending = [number + 1 for number, point in enumerate(writer.points) if isinstance(point, Final)]

    def memory() -> Memory:
        made = RunLists(bank, pending, MERGED_RUNS_MAX if writer.merges else RUNS_MAX, writer.fan * len(writer.starts))
        made.wrong_skip = wrong_skip(plan)
        return made

    return _program("runs", source, reader, bank, measures, memory, lists.BASE)


def wrong_skip(plan: PatternPlan) -> dict[int, str]:
    """As the interpreter says it."""
    skip = f"rule {plan.name}: skip {plan.skip.kind} {'|'.join(plan.skip.variables)}"
    return {
        lists.NO_ROW: f"{skip}, but a match binds no row to it; skip to a variable that every match binds",
        lists.FIRST_ROW: f"{skip} leads back to the first row of the match, so the same match would be found for ever; "
        "skip past it",
    }


def _window(plan: WindowPlan) -> Program:
    if len({source.schema.name for source in plan.inputs}) < len(plan.inputs):
        raise Uncompiled("it reads one stream twice")
    reader, bank = RowReader(plan.inputs), Bank([])
    measures, wanted = measure_sources(plan.measures)
    trails = isinstance(plan.window, Trailing)
    writer = (TrailingSource if trails else WindowSource)(plan, reader, bank)
    source = writer.write(wanted)

    def memory() -> Memory:
        return RunLists(bank, [windows.OPEN], fan=writer.slots, by_length=False)

    return _program("trailing windows" if trails else "windows", source, reader, bank, measures, memory, lists.BASE)


def _join(plan: JoinPlan) -> Program:
    reader, bank = RowReader(plan.inputs), Bank([])
    measures, wanted = measure_sources(plan.measures)
    writer = JoinSource(plan, reader, bank)
    source = writer.write(wanted)
    return _program("join", source, reader, bank, measures, lambda: RunLists(bank, writer.pending), lists.BASE)


def _program(
    kernel: str,
    source: str,
    reader: RowReader,
    bank: Bank,
    measures: tuple[MeasureSource, ...],
    memory: Callable[[], Memory],
    base: int,
) -> Program:
    """`base`: integers of an entry before its registers."""
    source += measure_function(measures, bank)
    if _nesting(source) > NESTING_MAX:
        raise Uncompiled("an expression of it is nested too deep")
    integers, floats, states = bank.widths()
    texts = tuple(base + column for column in bank.texts())
    return Program(kernel, source, reader, bank, measures, memory, (base + integers, floats, states), texts)


def _nesting(source: str) -> int:
    depth = deepest = 0
    for sign in re.findall(r"[()\[\]]", source):
        depth += 1 if sign in "([" else -1
        deepest = max(deepest, depth)
    return deepest
