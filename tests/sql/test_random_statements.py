"""Random patterns, clauses and rows: every matcher finds what the oracle finds, row by row; a wrong one is caught."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from typing import Any

import pytest

from unerring.matching.interpreter import search
from unerring.matching.tables import TableMatcher, outputs_of
from unerring.model import Event, RuleError, Stamp
from unerring.rules import patterns as pt
from unerring.sql.recognition import PARTITION, ROW

from .sqlrun import recognition_of
from .statements import COLUMNS, Partitions, statement

STATEMENTS = 400
ATTEMPTS_MAX = 20_000
"""For the oracle and the interpreter: a statement that explodes there is compared between those that answer."""
GAVE_UP = "gave up"


def answer(sql: str, partitions: Partitions, matcher: TableMatcher) -> list[str] | str:
    """The output rows, or what was wrong."""
    steps_max = None if matcher is TableMatcher.INTERPRETER else ATTEMPTS_MAX
    made = recognition_of(sql, **COLUMNS)
    try:
        return [repr(row) for row in outputs_of(made.batch_plan(), partitions, "here", matcher, steps_max)]
    except RuleError as error:
        if "attempts from one row" in str(error) or "ways were tried" in str(error):
            return GAVE_UP
        if len(partitions) > 1:
            return "no row to skip to"  # which partition is refused first is no part of the meaning
        return "back to the first row" if "first row" in str(error) else "no row to skip to"


def check(seed: int, matchers: Iterable[TableMatcher] = (TableMatcher.INTERPRETER, TableMatcher.KERNEL)) -> str:
    """Raise unless these matchers, where they answer, give the oracle's answer; the oracle's, in a word."""
    sql, partitions = statement(seed)
    expected = answer(sql, partitions, TableMatcher.ORACLE)
    answers = {TableMatcher.ORACLE: expected}
    for matcher in matchers:
        answers[matcher] = answer(sql, partitions, matcher)
    given = {matcher: found for matcher, found in answers.items() if found != GAVE_UP}
    first = next(iter(given.values()))
    assert all(found == first for found in given.values()), f"seed {seed}: {sql}\n{partitions}\n{given}"
    return expected if isinstance(expected, str) else f"{min(len(expected), 3)} rows"


def test_every_matcher_finds_what_the_oracle_finds() -> None:
    seen = Counter(check(seed) for seed in range(STATEMENTS))
    assert seen[GAVE_UP] < seen.total() / 50, f"the oracle gave up too often to compare: {seen}"
    assert seen["3 rows"] > seen.total() / 5, f"too few statements find anything: {seen}"


EXPLODES = (
    "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY at MEASURES count(*) AS counted AFTER MATCH SKIP TO NEXT ROW "
    "PATTERN (PERMUTE(({- B -}){,}, (A*?)*, {- (C | C{2,}? | A{2,}?) -}){1,} {- {- A -} -} ((A{2,}? $? B+) A{2,}? "
    "{- C -}) {- (B{0,2}? B{1,}) -}) WITHIN INTERVAL '4' MICROSECOND)"
)


def test_a_matcher_that_explodes_says_so() -> None:
    """Once drawn: the oracle, which remembers nothing, did not come back from it."""
    payload = {"x": 1, "y": 1.0, "k": "p", PARTITION: 0}
    times = (2, 5, 8, 9, 9, 10, 12, 12)
    partitions = [(0, [Event("input", Stamp(time, place), (), payload) for place, time in enumerate(times)])]
    assert answer(EXPLODES, partitions, TableMatcher.ORACLE) == GAVE_UP
    assert answer(EXPLODES, partitions, TableMatcher.INTERPRETER) == []
    assert answer(EXPLODES, partitions, TableMatcher.KERNEL) == []


# --- mutants: each breaks one thing in a matcher, and the random statements must find it ---


def within_is_exclusive(patch: pytest.MonkeyPatch) -> TableMatcher:
    made = search.SearchPlan.__init__

    def exclusive(self: search.SearchPlan, plan: search.PatternPlan, *args: Any) -> None:
        made(self, plan if plan.within_us is None else replace(plan, within_us=plan.within_us - 1), *args)

    patch.setattr(search.SearchPlan, "__init__", exclusive)
    return TableMatcher.INTERPRETER


def too_late_once_is_too_late_for_ever(patch: pytest.MonkeyPatch) -> TableMatcher:
    """What a start row could not reach in time is remembered for the next one."""
    made = search.SearchPlan.__init__

    def forgetful(self: search.SearchPlan, *args: Any) -> None:
        made(self, *args)
        self.shares = True

    patch.setattr(search.SearchPlan, "__init__", forgetful)
    return TableMatcher.INTERPRETER


def within_runs_from_the_row_before(patch: pytest.MonkeyPatch) -> TableMatcher:
    bind = search.Search._bind

    def sliding(self: search.Search, variable: int, index: int, held: search.Registers) -> search.Registers | None:
        after = bind(self, variable, index, held)
        if after is not None and self._m.within_us is not None:
            self._limit = self._rows.by_number[index].stamp.time + self._m.within_us
        return after

    patch.setattr(search.Search, "_bind", sliding)
    return TableMatcher.KERNEL


def reluctant_is_greedy(patch: pytest.MonkeyPatch) -> TableMatcher:
    made = search.assemble

    def greedy(node: pt.Pattern) -> pt.Pattern:
        changed = {
            field.name: tuple(map(greedy, value)) if isinstance(value, tuple) else greedy(value)
            for field in fields(node)
            if isinstance(value := getattr(node, field.name), tuple | pt.Pattern)
        }
        return replace(node, **changed, **({"greedy": True} if isinstance(node, pt.Quantified) else {}))

    patch.setattr(search, "assemble", lambda pattern, *args: made(greedy(pattern), *args))
    return TableMatcher.INTERPRETER


def an_empty_match_is_none(patch: pytest.MonkeyPatch) -> TableMatcher:
    run = search.Search.run

    def never_empty(self: search.Search, stack: search.Stack) -> search.Outcome:
        outcome = run(self, stack)
        empty = outcome[0] is search.Status.MATCH and outcome[1] is not None and outcome[1].link is None
        return search._NO_OUTCOME if empty else outcome

    patch.setattr(search.Search, "run", never_empty)
    return TableMatcher.INTERPRETER


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
def test_a_broken_matcher_is_caught(
    mutant: Callable[[pytest.MonkeyPatch], TableMatcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    matcher = mutant(monkeypatch)

    def look() -> None:
        for seed in range(2 * STATEMENTS):
            check(seed, (matcher,))

    with pytest.raises(AssertionError, match="seed"):
        look()


def test_what_has_failed_is_remembered_with_what_conditions_see(monkeypatch: pytest.MonkeyPatch) -> None:
    """A choice that failed once is tried again where other rows are bound, if a condition can tell."""
    sql = (
        "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY at MEASURES count(C.*) AS c, count(*) AS n PATTERN ((A | C)+ B) "
        "DEFINE A AS x < 9, C AS x < 9, B AS x = 9 AND count(C.*) = 2)"
    )
    events = [Event("input", Stamp(n, n), (), {"x": x, PARTITION: 0}) for n, x in enumerate((1, 1, 1, 1, 9))]
    found = [repr((0, {"c": 2, "n": 5, ROW: 4}))]
    assert [answer(sql, [(0, events)], matcher) for matcher in TableMatcher] == [found] * 3

    class Alike(tuple[Any, ...]):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 0

    bound = search.bound
    monkeypatch.setattr(search, "bound", lambda *args: Alike(bound(*args)))
    assert answer(sql, [(0, events)], TableMatcher.INTERPRETER) == []
