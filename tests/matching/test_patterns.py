"""Patterns whose answers are worked out by hand: contiguity, repetition, absence, selections, skips, and stamps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from unerring import all_of, any_of, each, first, fn, last, no, prev, rule, step, time_of
from unerring.matching import oracle
from unerring.model import RuleError
from unerring.rules import patterns as pt
from unerring.rules.expressions import MatchNumber
from unerring.rules.plan import OutputMode, PatternPlan, Selection, Skip

from . import generators
from .letters import Letter, a, b, c, found, run, times, x

# --- contiguity ---


def test_next_means_the_very_next() -> None:
    pair = rule("r").pattern(a.next(b).within(9)).emit(**times(a, b))
    assert found(pair, "A1 B2 A3 X4 B5") == ["2: a=1 b=2"]


def test_then_takes_the_first_that_fits() -> None:
    pair = rule("r").pattern(a.then(b).within(9)).emit(**times(a, b))
    assert found(pair, "A1 X2 B3 B4") == ["3: a=1 b=3"]


def test_then_any_takes_each_that_fits() -> None:
    pair = rule("r").pattern(a.then_any(b).within(9)).select("all").emit(**times(a, b))
    assert found(pair, "A1 X2 B3 B4") == ["3: a=1 b=3", "4: a=1 b=4"]


def test_within_is_inclusive_and_of_the_whole() -> None:
    pair = rule("r").pattern(a.then(b).within(10)).emit(**times(a, b))
    assert found(pair, "A1 B11") == ["11: a=1 b=11"]
    assert found(pair, "A1 B12") == []


def test_within_between_two_steps() -> None:
    chain = rule("r").pattern(a.then(b, within=2).then(c).within(20)).emit(**times(a, b, c))
    assert found(chain, "A1 B3 C9") == ["9: a=1 b=3 c=9"]
    assert found(chain, "A1 B4 C9") == []


# --- repetition, and when it is certain ---


def test_a_greedy_repetition_is_certain_at_the_event_that_ended_it() -> None:
    run_of = (
        rule("r").pattern(a.one_or_more(gap="strict").within(99)).emit(n=fn.count(each(a)), from_=time_of(first(a)))
    )
    assert found(run_of, "A1 A2 X5 A7") == ["5: n=2 from_=1", "106: n=1 from_=7"]


def test_a_reluctant_repetition_is_certain_at_once() -> None:
    run_of = rule("r").pattern(a.one_or_more(gap="strict", greedy=False).within(99)).emit(n=fn.count(each(a)))
    assert found(run_of, "A1 A2 X5") == ["1: n=1", "2: n=1"]


def test_greedy_and_reluctant_before_another_step() -> None:
    any_letter = step("l", Letter)
    greedy = rule("r").pattern(any_letter.one_or_more(gap="strict").next(b).within(9)).emit(**times(any_letter, b))
    reluctant = (
        rule("r")
        .pattern(any_letter.one_or_more(gap="strict", greedy=False).next(b).within(9))
        .emit(**times(any_letter, b))
    )
    # The greedy one could still find a later B until its time has run out.
    assert found(greedy, "A1 B2 A3 B4 A20") == ["10: l=3 b=4"]
    assert found(reluctant, "A1 B2 A3 B4 A20") == ["2: l=1 b=2", "4: l=3 b=4"]


def test_times_and_optional() -> None:
    two = rule("r").pattern(a.times(2).then(b).within(9)).emit(n=fn.count(each(a)), **times(b))
    assert found(two, "A1 A2 B3") == ["3: n=2 b=3"]
    maybe = rule("r").pattern(a.next(b.optional()).next(c).within(9)).emit(**times(a, b, c))
    assert found(maybe, "A1 C2 A3 B4 C5") == ["2: a=1 c=2", "5: a=3 b=4 c=5"]


def test_until_ends_a_repetition() -> None:
    batch = (
        rule("r")
        .pattern(a.then(b.one_or_more(until=Letter.name == "X")).then(c).within(99))
        .emit(n=fn.count(each(b)), **times(c))
    )
    assert found(batch, "A1 B2 B3 X4 B5 C6") == ["6: n=2 c=6"]


def test_all_matches_have_the_shorter_rounds_of_a_greedy_repetition_too() -> None:
    greedy, reluctant = (a.one_or_more(greedy=greedy).then(b).within(99) for greedy in (True, False))
    every = [rule("r").pattern(p).select("all").emit(n=fn.count(each(a)), **times(b)) for p in (greedy, reluctant)]
    assert found(every[0], "A1 A2 B3") == ["3: n=2 b=3", "3: n=1 b=3", "3: n=1 b=3"]
    assert sorted(found(every[1], "A1 A2 B3")) == sorted(found(every[0], "A1 A2 B3"))
    longest = rule("r").pattern(greedy).skip_to_next().emit(n=fn.count(each(a)), **times(b))
    assert [one.partition(" ")[2] for one in found(longest, "A1 A2 B3")] == ["n=2 b=3", "n=1 b=3"]


def test_greedy_or_reluctant_makes_no_difference_where_all_matches_count() -> None:
    compared = 0
    for seed in range(600):
        pair = generators.pair(seed, "pq", events_max=10)
        plan = pair.plan
        assert isinstance(plan, PatternPlan)
        try:
            plan = replace(plan, mode=OutputMode.ONE_ROW, selection=Selection.ALL, skip=Skip(), timed_out=None)
        except RuleError:
            continue  # what can match without an event, or asks for the end
        if not any(isinstance(node, pt.Quantified) for node in pt.nodes(plan.pattern)):
            continue
        plan = replace(plan, measures=tuple(m for m in plan.measures if not isinstance(m.expr, MatchNumber)))
        answers = []
        for turned in (plan, replace(plan, pattern=_turned(plan.pattern))):
            made = oracle.run(turned, pair.events, pair.ranks, pair.through)
            answers.append(sorted(repr((event.stamp.time, event.payload)) for event in made))
        assert answers[0] == answers[1], seed
        compared += len(answers[0])
    assert compared > 200


def _turned(node: pt.Pattern) -> pt.Pattern:
    """Greedy repetitions reluctant, and reluctant ones greedy."""
    match node:
        case pt.Sequence(parts) | pt.Permute(parts):
            return replace(node, parts=tuple(map(_turned, parts)))
        case pt.Alternation(options):
            return replace(node, options=tuple(map(_turned, options)))
        case pt.Exclusion(part):
            return replace(node, part=_turned(part))
        case pt.Quantified(part):
            return replace(node, part=_turned(part), greedy=not node.greedy)
    return node


# --- or, and ---


def test_any_of_prefers_the_first() -> None:
    either = rule("r").pattern(any_of(a.next(b), a).within(9)).emit(**times(a, b))
    assert found(either, "A1 B2 A5 X6") == ["2: a=1 b=2", "6: a=5"]


def test_all_of_takes_any_order() -> None:
    both = rule("r").pattern(all_of(a, b, c).within(9)).emit(**times(a, b, c))
    assert found(both, "C1 X2 A3 B4") == ["4: a=3 b=4 c=1"]


# --- absence ---


def test_after_a_loop_an_absence_speaks_of_what_comes_after_its_last_event() -> None:
    after = rule("r").pattern(a.one_or_more().not_then(x).then(b).within(99)).select("all").emit(n=fn.count(each(a)))
    assert found(after, "A1 X2 A3 B4") == ["4: n=2", "4: n=1"]
    assert found(after, "A1 A2 X3 B4") == []


def test_in_a_loop_an_absence_speaks_of_every_event_of_it() -> None:
    inside = rule("r").pattern(a.not_then(x).one_or_more().then(b).within(99)).select("all").emit(n=fn.count(each(a)))
    assert found(inside, "A1 X2 A3 B4") == ["4: n=1"]
    assert found(inside, "A1 A2 B4") == ["4: n=2", "4: n=1", "4: n=1"]
    assert found(inside, "A1 A2 X3 B4") == []


def test_absence_in_the_middle() -> None:
    quiet = rule("r").pattern(a.not_then(x).then(b).within(9)).emit(**times(a, b))
    assert found(quiet, "A1 B3") == ["3: a=1 b=3"]
    assert found(quiet, "A1 X2 B3") == []


def test_absence_at_the_end_is_certain_at_its_deadline() -> None:
    unanswered = rule("r").pattern(a.not_then(b, within=5)).select("all").emit(**times(a))
    assert found(unanswered, "A1 A2 B6 A9") == ["14: a=9"]
    assert found(unanswered, "A1 B7") == ["6: a=1"], "a B at 6 would still have counted"
    assert found(unanswered, "A1", through=5) == [], "not certain yet"
    assert found(unanswered, "A1", through=6) == ["6: a=1"]


def test_absence_at_the_end_by_the_whole_within() -> None:
    quiet = rule("r").pattern(a.then(b).not_then(x).within(10)).emit(**times(a, b))
    assert found(quiet, "A1 B3 X12") == ["11: a=1 b=3"]
    assert found(quiet, "A1 B3 X11") == []


def test_absence_at_the_end_of_a_group() -> None:
    pairs = rule("r").pattern(a.not_then(x).times(2).then(b).within(20)).emit(**times(a, b))
    assert found(pairs, "A1 A2 B3") == ["3: a=2 b=3"]
    assert found(pairs, "A1 X2 A3 B4") == [], "X between the two"
    assert found(pairs, "A1 A2 X3 B4") == [], "X after the last"


def test_absence_at_the_start_looks_back() -> None:
    fresh = rule("r").pattern(no(x, within=5).then(a).next(b).within(9)).emit(**times(a, b))
    assert found(fresh, "X1 A7 B8") == ["8: a=7 b=8"]
    assert found(fresh, "X2 A7 B8") == [], "exactly 5 before still counts"


def test_not_next() -> None:
    other = rule("r").pattern(a.not_next(x).then(b).within(9)).emit(**times(a, b))
    assert found(other, "A1 X2 B3") == []
    assert found(other, "A1 C2 X3 B4") == ["4: a=1 b=4"]


def test_not_next_at_the_end() -> None:
    last_word = rule("r").pattern(a.not_next(x).within(9)).emit(**times(a))
    assert found(last_word, "A1 X2 A3 C4 A5") == ["4: a=3", "14: a=5"]


# --- conditions over what came before ---


def test_conditions_see_earlier_events() -> None:
    higher = step("h", Letter, Letter.v > last(a).v)
    rising = rule("r").pattern(a.then(higher).within(9)).emit(**times(a, higher))
    assert found(rising, "A1=5 X2=4 X3=6") == ["3: a=1 h=3"]


def test_a_step_sees_its_own_earlier_events() -> None:
    up = step("u", Letter, lambda u: fn.coalesce(Letter.v > last(u, 1).v, True))
    runs = rule("r").pattern(up.at_least(2, gap="strict").within(99)).emit(n=fn.count(each(up)))
    assert found(runs, "X1=1 X2=3 X3=2 X4=4 X5=5 X6=0") == ["3: n=2", "6: n=3"]


def test_conditions_with_aggregates() -> None:
    some = step("s", Letter, lambda s: fn.sum(each(s).v) <= 10)
    full = rule("r").pattern(some.one_or_more(gap="strict").within(99)).emit(total=fn.sum(each(some).v))
    assert found(full, "X1=4 X2=5 X3=3 X4=9") == ["3: total=9", "4: total=3", "103: total=9"]


def test_prev_is_the_row_before_in_the_key() -> None:
    jump = step("j", Letter, Letter.v > prev(Letter).v + 2)
    seen = rule("r").pattern(jump.within(0)).emit(**times(jump))
    assert found(seen, "X1=1 X2=2 X3=9 X4=9") == ["3: j=3"]


# --- selections: the classic contexts ---


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        ("preferred", ["3: a=1 b=3"]),
        ("all", ["3: a=1 b=3", "3: a=2 b=3"]),
        ("recent", ["3: a=2 b=3"]),
        ("chronicle", ["3: a=1 b=3", "4: a=2 b=4"]),
        ("continuous", ["3: a=1 b=3", "3: a=2 b=3"]),
        ("cumulative", ["3: a=2 b=3"]),
    ],
)
def test_contexts(context: str, expected: list[str]) -> None:
    pair = rule("r").pattern(a.then(b).within(9)).select(context).emit(**times(a, b))  # type: ignore[arg-type]
    assert found(pair, "A1 A2 B3 B4") == expected


def test_cumulative_gives_all_of_them_as_one() -> None:
    pair = (
        rule("r").pattern(a.then(b).within(9)).select("cumulative").emit(n=fn.count(each(a)), first=time_of(first(a)))
    )
    assert found(pair, "A1 A2 A3 B4") == ["4: n=3 first=1"]


def test_continuous_gives_each_start_one_match() -> None:
    pair = rule("r").pattern(a.then_any(b).within(9)).select("continuous").emit(**times(a, b))
    assert found(pair, "A1 B2 B3 A4 B5") == ["2: a=1 b=2", "5: a=4 b=5"]


# --- after-match skip ---


def test_skips() -> None:
    whole = a.next(b).next(a).within(9)
    text = "A1 B2 A3 B4 A5"
    past = rule("r").pattern(whole).emit(began=time_of(first(a)))
    assert found(past, text) == ["3: began=1"]
    to_next = rule("r").pattern(whole).skip_to_next().emit(began=time_of(first(a)))
    assert found(to_next, text) == ["3: began=1", "5: began=3"]
    to_last = rule("r").pattern(whole).skip_to_last(a).emit(began=time_of(first(a)))
    assert found(to_last, text) == ["3: began=1", "5: began=3"]
    to_first = rule("r").pattern(whole).skip_to_first(b).emit(began=time_of(first(a)))
    assert found(to_first, text) == ["3: began=1", "5: began=3"]


def test_a_skip_to_the_first_row_of_the_match_is_refused() -> None:
    whole = rule("r").pattern(a.next(b).within(9)).skip_to_first(a).emit(began=time_of(first(a)))
    with pytest.raises(RuleError, match="leads back to the first row"):
        run(whole, "A1 B2")


# --- time running out ---


def test_timed_out_partial_matches_are_an_output_of_their_own() -> None:
    pair = rule("r").pattern(a.then(b).within(5)).timed_out("late", **times(a)).emit(**times(a, b))
    events = run(pair, "A1 A3 B7")
    assert [(event.stream, event.stamp.time, event.payload) for event in events] == [
        ("late", 6, {"a": 1}),
        ("r", 7, {"a": 3, "b": 7}),
    ]
    assert pair.timed_out.schema.name == "late"


def test_a_partial_match_that_something_ended_is_not_timed_out() -> None:
    pair = rule("r").pattern(a.next(b).within(5)).timed_out("late", **times(a)).emit(**times(a, b))
    assert [event.stream for event in run(pair, "A1 X2")] == []


def test_of_several_paths_from_one_start_that_time_ended_the_preferred_one_is_given() -> None:
    chain = (
        rule("r")
        .pattern(a.then_any(b).then(c).within(5))
        .select("all")
        .timed_out("late", **times(a, b))
        .emit(**times(a, b, c))
    )
    assert [(event.stream, event.payload) for event in run(chain, "A1 B2 B3 X9")] == [("late", {"a": 1, "b": 2})]
    assert [event.stream for event in run(chain, "A1 B2 C3 B4 X9")] == ["r"], "none of a start that got a match"


# --- order within one time ---


def test_a_deadline_comes_after_all_events_of_its_time() -> None:
    unanswered = rule("r").pattern(a.not_then(b, within=5)).select("all").emit(**times(a))
    assert found(unanswered, "A1 X6 B6.1") == []
    events = run(unanswered, "A1 A1.1 X6")
    assert [tuple(event.stamp) for event in events] == [(6, 0), (6, 1)], "two outputs of one time are numbered"


def test_the_end_of_a_file_is_the_end_of_time() -> None:
    forever = rule("r").pattern(a.one_or_more(gap="strict")).unbounded().emit(n=fn.count(each(a)))
    assert found(forever, "A1 A2") == ["∞: n=2"]
    assert found(forever, "A1 A2", through=50) == []
