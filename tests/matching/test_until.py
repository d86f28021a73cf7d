"""What ends a loop: `until`, on its first event, between its rounds and within them. All matchers alike."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from unerring import any_of, each, first, fn, last, rule, step, time_of
from unerring.matching import oracle
from unerring.matching.interpreter import Interpreter
from unerring.matching.kernel import Kernel, why_interpreted
from unerring.matching.oracle.search import Path, Search
from unerring.matching.outputs import Output, Row
from unerring.model import TIME_MAX, RuleError
from unerring.rules.steps import Pattern

from .conformance import answer, check
from .generators import until_pair
from .kernel_pairs import PairMaker, StoppedGroupMaker, StoppedMaker, plan_of
from .letters import Letter, a, b, c, letters
from .test_kernel import hold_to_the_oracle, texts

d = step("d", Letter, Letter.name == "D")


def loops(pattern: Pattern, text: str, select: Any = "all") -> list[str]:
    """Of each match the times of its loop of `a`, first to last: `2-5 (3)`; by oracle, interpreter and kernel."""
    made = (
        rule("r")
        .pattern(pattern.within(99))
        .select(select)
        .emit(began=time_of(first(a)), ended=time_of(last(a)), n=fn.count(each(a)))
    )
    rows = [Row(0, event) for event in letters(text)]
    expected = oracle.outputs_of(made.plan, rows)
    assert why_interpreted(made.plan) is None, why_interpreted(made.plan)
    for matcher in (Interpreter(made.plan), Kernel(made.plan, compile_after=None)):
        assert sorted(map(repr, matcher.feed(rows, TIME_MAX))) == sorted(map(repr, expected)), matcher
    return sorted(map(_told, expected))


def _told(output: Output) -> str:
    payload = output.payload
    return f"{payload['began']}-{payload['ended']} ({payload['n']})"


def test_the_stop_event_does_not_begin_a_loop() -> None:
    """c1 a2 a3 a5 a6: {a2 a3}, {a2}, {a3}, {a6}. Of any later events, the stop is passed over before the loop."""
    text = "C1=1 A2=2 A3=3 A5=5 A6=6"
    assert loops(c.then_any(a.one_or_more(until=Letter.v == 5)), text) == ["2-2 (1)", "2-3 (2)", "3-3 (1)", "6-6 (1)"]
    assert loops(c.then_any(a.one_or_more(until=Letter.v == 5)), text, "continuous") == ["2-2 (1)"]


@pytest.mark.parametrize("select", ["all", "preferred", "continuous", "recent"])
def test_where_the_first_that_fits_is_the_stop_there_is_no_loop(select: str) -> None:
    text = "C1 A2=4 A3=2 A4=3 A5=3 D6"
    stop = Letter.v > 3
    assert loops(c.then(a.one_or_more(until=stop)).then(d), text, select) == []
    assert loops(c.then(a.zero_or_more(until=stop)).then(d), text, select) == ["None-None (0)"], "{c d} alone"
    assert loops(c.next(a.one_or_more(until=stop)).then(d), text, select) == []
    assert loops(a.one_or_more(until=stop).then(d), "A2=4 D3", select) == [], "a start row is a first event too"
    assert loops(c.then(a.times(1, until=stop)).then(d), text, select) == [], "also where there is one round"


def test_a_stop_that_is_no_event_of_the_loop_does_not_keep_it_from_beginning() -> None:
    assert loops(c.then(a.one_or_more(until=Letter.name == "B")).then(d), "C1 B2 A3 A4 B5 A6 D7", "preferred") == [
        "3-4 (2)"
    ]


def test_within_a_round_the_stop_ends_the_loop_too() -> None:
    """Once the stop event has come no more events belong to the loop: a round that it cuts in two is none."""
    rounds = a.then(b).one_or_more(until=Letter.name == "X")
    assert loops(c.then(rounds).then(d), "C1 A2 B3 A4 X5 B6 D7", "preferred") == ["2-2 (1)"]
    assert loops(c.then(rounds).then(d), "C1 A2 X3 B4 D7", "preferred") == []
    assert loops(c.then(rounds).then(d), "C1 X2 A3 B4 A5 B6 X7 D8", "preferred") == ["3-5 (2)"]


def test_loops_within_loops_have_their_own_stops() -> None:
    inner = a.one_or_more(until=Letter.v > 3)
    outer = any_of(inner, b).one_or_more(until=Letter.name == "X")
    assert loops(c.then(outer).then(d), "C1 A2=1 A3=9 B4 A5=1 X6 A7=1 D8", "preferred") == ["2-5 (2)"]
    assert loops(c.then(outer).then(d), "C1 B2 A3=1 A4=1 X6 A7=1 D8", "preferred") == ["3-4 (2)"]


# --- random loops ---


class Unrefusing(Search):
    """The meaning as it was: the first event of a loop is not looked at."""

    def _refused(self, path: Path, index: int) -> bool:
        return False


def test_the_interpreter_is_the_oracle_on_random_loops_with_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = differ = 0
    for seed in range(200):
        pair = until_pair(seed)
        outputs += check(Interpreter, pair)
        expected = answer(pair)
        with monkeypatch.context() as broken:
            broken.setattr("unerring.matching.oracle.matching.Search", Unrefusing)
            differ += answer(pair) != expected
    assert outputs > 200
    assert differ > 20, "in many of them the first event of a loop was a stop"


@pytest.mark.parametrize("kind", [StoppedMaker, StoppedGroupMaker])
def test_generated_source_is_the_oracle_on_random_loops_with_stops(
    kind: type[PairMaker], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = differ = 0
    for seed in range(40):
        maker, plan = plan_of(seed, kind)
        if why_interpreted(plan) is not None:
            continue
        for stream in range(8):
            rows = maker.rows(maker.random.randrange(14))
            through = maker.through(rows)
            try:
                found += hold_to_the_oracle(plan, rows, through, Random(8 * seed + stream))
            except RuleError:
                continue  # more ways than the oracle follows
            expected = texts(plan, oracle.outputs_of(plan, rows, through))
            with monkeypatch.context() as broken:
                broken.setattr("unerring.matching.oracle.matching.Search", Unrefusing)
                differ += texts(plan, oracle.outputs_of(plan, rows, through)) != expected
    assert found > 40
    assert differ > 10
