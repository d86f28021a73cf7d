"""Why not: answers worked out by hand, and a search for one that is not true."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from unerring import Rule, no, rule
from unerring.matching import oracle
from unerring.matching.oracle.asking import open_attempts, why_not
from unerring.matching.oracle.misses import Attempt, Reason
from unerring.matching.outputs import merge_order
from unerring.model import Event, RuleError, Stamp
from unerring.rules import expressions as ex, patterns as pt, plan as pl

from . import generators
from .letters import Letter, a, b, c, letters, times, x


def attempts(one: Rule, text: str, through: int) -> list[Attempt]:
    return why_not(one.plan, (), oracle.merged(letters(text), {"Letter": 0}, through), through)[0]


def told(attempt: Attempt) -> str:
    bound = " ".join(f"{name}{event.stamp.time}" for name, event in attempt.bound)
    reason = attempt.reasons[0] if attempt.reasons else Reason("")
    at = "" if reason.event is None else f" {reason.event.payload['name']}{reason.event.stamp.time}"
    decides = "!" if reason.decides else ""
    return f"{attempt.outcome} [{bound}] {reason.kind}{' ' + reason.variable if reason.variable else ''}{at}{decides}"


PAIR = rule("r").pattern(a.then(b).within(10)).emit(**times(a, b))


def test_what_was_found_is_said_to_be_found() -> None:
    assert told(attempts(PAIR, "A1 B4", 5)[0]) == "found [a1 b4] "
    assert attempts(PAIR, "A1 B4", 5)[0].found_at == 4


def test_an_open_match_says_until_when_it_waits() -> None:
    [one] = attempts(PAIR, "A1", 5)
    assert (told(one), one.until_us) == ("open [a1] ", 11)


def test_an_event_that_came_late_by_how_much() -> None:
    one = attempts(PAIR, "A1 B14", 20)[0]
    assert (told(one), one.reasons[0].late_us) == ("missed [a1] late b B14!", 3)


def test_an_event_that_never_came_and_until_when_it_could_have() -> None:
    one = attempts(PAIR, "A1 X3", 20)[0]
    missing = next(reason for reason in one.reasons if reason.kind == "missing event")
    assert (missing.variable, missing.deadline_us, missing.decides) == ("b", 11, True)


def test_the_event_that_would_have_begun_it() -> None:
    assert told(attempts(PAIR, "X1 B4", 20)[0]) == "missed [] missing event a!"


def test_the_nearest_miss_is_first_and_the_condition_shows_its_values() -> None:
    from unerring import step

    high = step("high", Letter, (Letter.name == "B") & (Letter.v > 5))
    rising = rule("r").pattern(a.then(high).then(c).within(10)).emit(**times(a, c))
    first, *others = attempts(rising, "A1 B2=3 C4 A20", 40)
    assert told(first) == "missed [a1] condition high B2!"
    term = first.reasons[0].terms[0]
    assert (term.text, term.holds, term.values) == ("(v > 5)", False, (("v", 3),))
    assert told(others[0]).startswith("missed [a20] ")


def test_an_absence_names_the_event_that_must_not_be_there() -> None:
    quiet = rule("r").pattern(a.not_then(x).within(5)).emit(**times(a))
    assert told(attempts(quiet, "A1 X3", 20)[0]) == "missed [a1] absence x X3!"
    before = rule("r").pattern(no(x, within=5).then(a).within(5)).emit(**times(a))
    assert told(attempts(before, "X1 A3", 20)[0]) == "missed [] absence x X1!"


def test_strict_contiguity_names_the_event_between() -> None:
    strict = rule("r").pattern(a.next(b).within(9)).emit(**times(a, b))
    one = attempts(strict, "A1 X2 B3", 20)[0]
    between = next(reason for reason in one.reasons if reason.kind == "contiguity")
    assert between.decides
    assert between.event is not None
    assert between.event.stamp.time == 2


def test_a_match_that_another_one_took_the_events_of() -> None:
    found, skipped, *_ = attempts(PAIR, "A1 A2 B4", 20)
    assert told(found) == "found [a1 b4] "
    assert told(skipped) == "missed [a2 b4] skip A2!"


def test_an_event_that_the_filter_leaves_out() -> None:
    plan = PAIR.plan
    filtered = replace(
        plan, inputs=(replace(plan.inputs[0], where=ex.Comparison(">", ex.Attribute("v", ex.INT), ex.literal(0))),)
    )
    rows = oracle.merged(letters("A1=1 B4=0"), {"Letter": 0}, 20)
    found = [told(one) for one in why_not(filtered, (), rows, 20)[0]]
    assert "missed [] where B4!" in found


def test_windows_say_what_having_lacks() -> None:
    from unerring import fn, tumbling

    busy = rule("busy").on(Letter).window(tumbling(10)).having(fn.count() > 2).emit(n=fn.count())
    closed = attempts(busy, "A1 B2 C13", 25)
    assert [one.window for one in closed] == [(10, 20), (0, 10)]
    assert closed[1].reasons[0].kind == "having"
    assert closed[1].reasons[0].terms[0].values[0][1] == 2
    assert attempts(busy, "A1 B2 C3", 25)[0].outcome == "found"
    assert [one.until_us for one in open_attempts(busy.plan, (), _rows("A1", 5), 5)] == [9]


def _rows(text: str, through: int) -> list[oracle.Row]:
    return oracle.merged(letters(text), {"Letter": 0}, through)


# --- a search for an answer that is not true ---


def plain_sequence(random: Random) -> pl.PatternPlan:
    """Two or three steps, one after the other, each with its condition."""
    names = generators.NAMES[: random.choice((2, 2, 3))]
    parts: list[pt.Pattern] = []
    for number, name in enumerate(names):
        if number:
            parts.append(pt.Gap(random.choice((pt.Contiguity.STRICT, pt.Contiguity.RELAXED, pt.Contiguity.RELAXED))))
        parts.append(pt.Step(name))
    variables = tuple(pl.Variable(name, generators.condition(random, names[:1])) for name in names)
    selection = random.choice((pl.Selection.PREFERRED, pl.Selection.ALL, pl.Selection.CONTINUOUS))
    source = pl.Input(generators.S, ("k",))
    measures = tuple(pl.Measure(f"t_{n}", ex.EventTime(ex.At((n,), ex.Which.LAST))) for n in names)
    return pl.PatternPlan(
        "found", (source,), variables, pt.Sequence(tuple(parts)), measures, random.choice((3, 5, 9)), selection
    )


def changed(plan: pl.PatternPlan, rows: list[oracle.Row], attempt: Attempt, reason: Reason) -> list[Event]:
    """What the rule finds when the one thing is different that the answer names: made here by hand, on purpose not by
    what gave the answer."""
    events = [row.event for row in rows]
    match reason.kind:
        case "condition":
            assert reason.event is not None
            here = ex.Comparison("=", ex.EventTime(), ex.Literal(reason.event.stamp.time, ex.TIME))
            relaxed = [
                replace(one, condition=ex.Or((here, one.condition or ex.literal(True))))
                if one.name == reason.variable
                else one
                for one in plan.variables
            ]
            plan = replace(plan, variables=tuple(relaxed))
        case "late":
            assert reason.late_us is not None
            plan = replace(plan, within_us=(plan.within_us or 0) + reason.late_us)
        case "contiguity":
            events = [event for event in events if event is not reason.event]
        case "missing event":
            # An event of that time, on which the step's condition is let hold.
            at = min(reason.deadline_us or 0, events[-1].stamp.time + 1)
            events.append(Event("S", Stamp(at, 7), (0,), {"k": 0, "kind": "Z", "v": None, "x": 0.0}))
            marked = ex.Comparison("=", ex.Attribute("kind", ex.TEXT), ex.literal("Z"))
            plan = replace(
                plan,
                variables=tuple(
                    replace(one, condition=ex.Or((marked, one.condition or ex.literal(True))))
                    if one.name == reason.variable
                    else one
                    for one in plan.variables
                ),
            )
        case other:
            raise AssertionError(other)
    return oracle.run(plan, sorted(events, key=lambda event: event.stamp), generators.RANKS, through_of(rows))


def through_of(rows: list[oracle.Row]) -> int:
    return rows[-1].event.stamp.time + 20


@pytest.mark.parametrize("block", range(4))
def test_with_the_one_thing_different_the_situation_is_found(block: int) -> None:
    said: dict[str, int] = {}
    for seed in range(2_900_000 + block * 150, 2_900_000 + block * 150 + 150):
        random = Random(seed)
        plan = plain_sequence(random)
        events = [e for e in generators.stream_events(random, 10) if e.stream == "S" and e.key == (0,)]
        rows = sorted(oracle.merged(events, generators.RANKS), key=merge_order)
        if not rows:
            continue
        through = through_of(rows)
        made, outputs = why_not(plan, (0,), rows, through)
        found = [one for one in made if one.outcome == "found"]
        before = oracle.run(plan, events, generators.RANKS, through)
        assert len(outputs) == len(before), seed
        starts = {event.payload[f"t_{generators.NAMES[0]}"] for event in before}
        assert {one.bound[0][1].stamp.time for one in found} == starts, seed
        for one in made:
            for reason in one.reasons:
                if not reason.decides or reason.kind in ("skip", "used"):
                    continue
                after = changed(plan, rows, one, reason)
                # From that start there is a situation now, and there was none.
                start = one.bound[0][1].stamp.time if one.bound else None
                if start is None and reason.kind == "condition" and reason.event is not None:
                    start = reason.event.stamp.time
                got = {event.payload[f"t_{generators.NAMES[0]}"] for event in after}
                assert (start in got) if start is not None else len(after) > len(before), (seed, one, reason)
                said[reason.kind] = said.get(reason.kind, 0) + 1
    assert {"condition", "late", "missing event"} <= set(said), said


@pytest.mark.parametrize("block", range(2))
def test_any_rule_can_be_asked(block: int) -> None:
    for seed in range(2_910_000 + block * 150, 2_910_000 + block * 150 + 150):
        pair = generators.pair(seed, "ppqwj", 8)
        rows = oracle.merged(pair.events, pair.ranks, pair.through)
        try:
            perfect = oracle.outputs_of(pair.plan, rows, pair.through)
        except RuleError:  # a skip that leads nowhere
            continue
        for key in {key for row in rows for key in [(row.event.payload["k"],)]}:
            own = [row for row in rows if (row.event.payload["k"],) == key] if pair.plan.inputs[0].key else rows
            made, outputs = why_not(pair.plan, key if pair.plan.inputs[0].key else (), own, pair.through)
            assert len(outputs) == len([one for one in perfect if one.key == key or not one.key]), seed
            assert all(one.outcome in ("found", "open", "missed") for one in made)
            open_attempts(pair.plan, key if pair.plan.inputs[0].key else (), own, pair.through)
