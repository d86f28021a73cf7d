"""Random patterns, clauses and rows: every engine finds what the oracle finds, row by row; a wrong one is caught."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import fields, replace

import pytest

from unerring.matching.interpreter import search
from unerring.model import Event, RuleError, Stamp
from unerring.rules import patterns as pt
from unerring.sql import backtrack
from unerring.sql.batch import BatchEngine, outputs_of
from unerring.sql.recognition import PARTITION

from .sqlrun import recognition_of
from .statements import COLUMNS, Partitions, statement

STATEMENTS = 400
ATTEMPTS_MAX = 20_000
"""For the oracle and the interpreter: a statement that explodes there is compared between those that answer."""
GAVE_UP = "gave up"


def answer(sql: str, partitions: Partitions, engine: BatchEngine) -> list[str] | str:
    """The output rows, or what was wrong."""
    steps_max = None if engine is BatchEngine.BACKTRACK else ATTEMPTS_MAX
    try:
        return [repr(row) for row in outputs_of(recognition_of(sql, **COLUMNS), partitions, engine, steps_max)]
    except RuleError as error:
        if "attempts from one row" in str(error) or "ways were tried" in str(error):
            return GAVE_UP
        if len(partitions) > 1:
            return "no row to skip to"  # which partition is refused first is no part of the meaning
        return "back to the first row" if "first row" in str(error) else "no row to skip to"


def check(seed: int, engines: Iterable[BatchEngine] = (BatchEngine.BACKTRACK, BatchEngine.KERNEL)) -> str:
    """Raise unless these engines, where they answer, give the oracle's answer; the oracle's, in a word."""
    sql, partitions = statement(seed)
    expected = answer(sql, partitions, BatchEngine.ORACLE)
    answers = {BatchEngine.ORACLE: expected}
    for engine in engines:
        answers[engine] = answer(sql, partitions, engine)
    given = {engine: found for engine, found in answers.items() if found != GAVE_UP}
    first = next(iter(given.values()))
    assert all(found == first for found in given.values()), f"seed {seed}: {sql}\n{partitions}\n{given}"
    return expected if isinstance(expected, str) else f"{min(len(expected), 3)} rows"


def test_every_engine_finds_what_the_oracle_finds() -> None:
    seen = Counter(check(seed) for seed in range(STATEMENTS))
    assert seen[GAVE_UP] < seen.total() / 50, f"the oracle gave up too often to compare: {seen}"
    assert seen["3 rows"] > seen.total() / 5, f"too few statements find anything: {seen}"


EXPLODES = (
    "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY at MEASURES count(*) AS counted AFTER MATCH SKIP TO NEXT ROW "
    "PATTERN (PERMUTE(({- B -}){,}, (A*?)*, {- (C | C{2,}? | A{2,}?) -}){1,} {- {- A -} -} ((A{2,}? $? B+) A{2,}? "
    "{- C -}) {- (B{0,2}? B{1,}) -}) WITHIN INTERVAL '4' MICROSECOND)"
)


def test_an_engine_that_explodes_says_so() -> None:
    """Once drawn: the oracle, which remembers nothing, did not come back from it."""
    payload = {"x": 1, "y": 1.0, "k": "p", PARTITION: 0}
    times = (2, 5, 8, 9, 9, 10, 12, 12)
    partitions = [(0, [Event("input", Stamp(time, place), (), payload) for place, time in enumerate(times)])]
    assert answer(EXPLODES, partitions, BatchEngine.ORACLE) == GAVE_UP
    assert answer(EXPLODES, partitions, BatchEngine.BACKTRACK) == []
    assert answer(EXPLODES, partitions, BatchEngine.KERNEL) == []


# --- mutants: each breaks one thing in an engine, and the random statements must find it ---


def within_is_exclusive(patch: pytest.MonkeyPatch) -> BatchEngine:
    made = backtrack.Matcher.__init__

    def exclusive(self: backtrack.Matcher, plan: backtrack.PatternPlan, steps_max: int = 1000) -> None:
        made(self, plan if plan.within_us is None else replace(plan, within_us=plan.within_us - 1), steps_max)

    patch.setattr(backtrack.Matcher, "__init__", exclusive)
    return BatchEngine.BACKTRACK


def too_late_once_is_too_late_for_ever(patch: pytest.MonkeyPatch) -> BatchEngine:
    """What a start row could not reach in time is remembered for the next one."""
    made = backtrack._Partition.__init__

    def forgetful(self: backtrack._Partition, *args: object) -> None:
        made(self, *args)  # type: ignore[arg-type]
        self.start_matters = False

    patch.setattr(backtrack._Partition, "__init__", forgetful)
    return BatchEngine.BACKTRACK


def within_runs_from_the_row_before(patch: pytest.MonkeyPatch) -> BatchEngine:
    def sliding(self: search.Search, thread: search.Thread, within_us: int | None) -> int:
        if self._m.within_us is None or thread.link is None:
            return search.TIME_MAX
        return self._rows.by_number[thread.link.at].stamp.time + self._m.within_us

    patch.setattr(search.Search, "_deadline", sliding)
    return BatchEngine.KERNEL


def reluctant_is_greedy(patch: pytest.MonkeyPatch) -> BatchEngine:
    made = backtrack.compile_program

    def greedy(node: pt.Pattern) -> pt.Pattern:
        changed = {
            field.name: tuple(map(greedy, value)) if isinstance(value, tuple) else greedy(value)
            for field in fields(node)
            if isinstance(value := getattr(node, field.name), tuple | pt.Pattern)
        }
        return replace(node, **changed, **({"greedy": True} if isinstance(node, pt.Quantified) else {}))

    patch.setattr(backtrack, "compile_program", lambda pattern, names: made(greedy(pattern), names))
    return BatchEngine.BACKTRACK


def an_empty_match_is_none(patch: pytest.MonkeyPatch) -> BatchEngine:
    find = backtrack._Partition.find
    patch.setattr(
        backtrack._Partition,
        "find",
        lambda self, start: found if (found := find(self, start)) is not None and found.labels else None,
    )
    return BatchEngine.BACKTRACK


@pytest.mark.parametrize(
    "mutant",
    [
        within_is_exclusive,
        too_late_once_is_too_late_for_ever,
        within_runs_from_the_row_before,
        reluctant_is_greedy,
        an_empty_match_is_none,
    ],
)
def test_a_broken_engine_is_caught(
    mutant: Callable[[pytest.MonkeyPatch], BatchEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = mutant(monkeypatch)

    def look() -> None:
        for seed in range(2 * STATEMENTS):
            check(seed, (engine,))

    with pytest.raises(AssertionError, match="seed"):
        look()
