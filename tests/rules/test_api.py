"""Rules that are wrong as written: each is refused when it is built, with its name and what to change."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import reduce
from operator import add, and_

import pytest

from unerring import (
    Operator,
    Rule,
    any_of,
    columns,
    counted,
    each,
    first,
    fn,
    last,
    next_row,
    no,
    prev,
    rule,
    run_on,
    session,
    sliding,
    step,
    stream,
    time_of,
    trailing,
    tumbling,
)
from unerring.model import Event, RuleError
from unerring.rules.steps import Pattern
from unerring.rules.terms import Term

SECOND = timedelta(seconds=1)


@stream(key="machine")
class Reading:
    machine: str
    celsius: float
    volts: int | None = None


@stream(key="machine")
class Alarm:
    machine: str
    code: int


@stream(key="hall")
class Door:
    hall: int


class Local(Operator):
    def on_event(self, event: Event) -> list[dict[str, object]]:
        return []

    def snapshot(self) -> bytes:
        return b""

    def restore(self, state: bytes) -> None:
        pass


hot = step("hot", Reading, Reading.celsius > 80)
alarm = step("alarm", Alarm)


def on(pattern: Pattern, **emitted: object) -> Callable[[], Rule]:
    return lambda: rule("r").pattern(pattern).emit(**(emitted or {"n": fn.count()}))


def also(condition: object) -> Callable[[], Rule]:
    return on(hot.then(step("b", Reading, condition)).within(seconds=1))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (also(columns(Reading).celcius > 1), "no column 'celcius'; it has machine, celsius, volts"),
        (also(Reading.celsius > "warm"), "a float cannot be compared with a text"),
        (also(Reading.celsius + 1), "not a condition"),
        (also(fn.call("now") > Reading.celsius), "asks the clock"),
        (also(fn.call("rand") > Reading.celsius), "is random"),
        (also(fn.call("entropy")), "there is no function 'entropy'"),
        (also(each(hot).celsius > 1), "aggregate it"),
        (also(last(alarm).code > 1), "names 'alarm', which is not bound"),
        (also(Alarm.code > 1), "reads 'code', which is not a column"),
        (also(last(hot) == last(hot)), "name one of its columns"),
        (on(hot.then(alarm)), "add within"),
        (on(hot.one_or_more(gap="strict")), "can go on for ever"),
        (on(hot.not_then(alarm)), "has no deadline"),
        (on(no(alarm).then(hot).within(seconds=1)), "looks back for ever"),
        (on(hot.optional().within(seconds=1)), "can match without any event"),
        (on(step("never", Reading, False)), "it can never match: the condition of never is always False"),
        (also(next_row(Reading).celsius > 1), "NEXT looks at an event that may never come"),
        (on(hot.then(step("hot", Reading)).within(seconds=1)), "two steps are called 'hot'"),
        (on(hot.then(hot.times(3, 2)).within(seconds=1)), "is not a number of times"),
        (on(hot.not_then(hot, within=SECOND).then(alarm).within(seconds=1)), "both looked for and forbidden"),
        (on(hot.then(step("d", Door)).within(seconds=1)), "name key columns of the same types"),
        (on(hot.within(seconds=1), machine=1), "output column 'machine' belongs to the key"),
        (on(hot.within(seconds=1), time=1), "'time' is not allowed"),
        (lambda: rule("r").on(Reading).key("volts").pattern(hot.within(seconds=1)).emit(n=1), "a key cannot be NULL"),
        (lambda: rule("r").pattern(hot.within(seconds=1)).key("hall").emit(n=1), "no column 'hall'"),
        (
            lambda: rule("r").pattern(hot.within(seconds=1)).where(Reading, last(hot).celsius > 1).emit(n=1),
            "event alone",
        ),
        (lambda: rule("r").pattern(hot.within(seconds=1)).skip_to_last(alarm).emit(n=1), "not in the pattern"),
        (
            lambda: rule("r").pattern(hot.within(seconds=1)).select("all").skip_to_next().emit(n=1),
            "its own consumption",
        ),
        (lambda: rule("r").pattern(hot).timed_out("late", n=1).emit(n=1), "need a time: add within"),
        (lambda: rule("r").window(tumbling(SECOND)).emit(n=fn.count()), "reads nothing"),
        (lambda: rule("r").on(Reading).window(tumbling(0)).emit(n=fn.count()), "must be more than 0"),
        (lambda: rule("r").on(Reading).window(session(SECOND)).emit(n=Reading.celsius), "a window has many"),
        (lambda: rule("r").on(Reading).window(counted(2, 3)).emit(n=fn.count()), "slides by more rows"),
        (lambda: rule("r").on(Reading).window(trailing(SECOND)).on_change("m").emit(n=fn.count()), "watches 'm'"),
        (
            lambda: rule("r").on(Reading).window(sliding(SECOND, SECOND)).emit(n=fn.sum(fn.count(Reading.celsius))),
            "an aggregate within an aggregate",
        ),
        (lambda: rule("r").join(hot, within=SECOND).emit(n=time_of(last(hot))), "two inputs or more"),
        (lambda: rule("r").join(hot, alarm, within=SECOND).emit(n=prev(last(hot)).celsius), "without PREV"),
        (lambda: rule("r").join(hot, alarm, within=SECOND).emit(n=fn.count()), "more than the joined events have"),
        (lambda: rule("r").operator(Local, Door), "reads nothing"),
        (lambda: rule("r").pattern(hot.within(seconds=1)).emit(n=first(alarm).code), "which is not bound"),
    ],
)
def test_what_is_wrong_is_said_with_the_rules_name(make: Callable[[], Rule], says: str) -> None:
    with pytest.raises(RuleError) as caught:
        make()
    assert str(caught.value).startswith("rule r: ")
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: bool(Reading.celsius > 1),
        lambda: hot.within(seconds=1).then(alarm),
        lambda: hot.then("alarm"),  # type: ignore[arg-type]
        lambda: last("hot"),  # type: ignore[arg-type]
        lambda: step("not a name", Reading),
        lambda: any_of(hot.within(seconds=1), alarm),
    ],
)
def test_what_cannot_be_combined_is_said_at_once(make: Callable[[], object]) -> None:
    with pytest.raises(RuleError) as caught:
        make()
    assert len(str(caught.value)) > 20


def test_unbounded_is_allowed_to_those_who_say_so() -> None:
    assert rule("r").pattern(hot.then(alarm)).unbounded().emit(n=fn.count()).plan.unbounded  # type: ignore[union-attr]


def test_a_column_of_a_class_is_a_term_and_of_an_event_its_value() -> None:
    assert isinstance(Reading.celsius, Term)
    assert Reading("m", 3.5).celsius == 3.5
    assert Reading("m", 3.5) == Reading("m", 3.5)


def test_a_version_is_what_a_rule_says() -> None:
    def made(limit: float) -> Rule:
        return rule("r").pattern(step("hot", Reading, Reading.celsius > limit).within(seconds=1)).emit(n=fn.count())

    assert made(1.0).version == made(1.0).version
    assert made(1.0).version != made(2.0).version
    assert made(0.0).version != made(-0.0).version
    assert made(1.0).plan == made(1.0).plan


def test_a_rule_reads_another_rules_output_and_timeouts() -> None:
    base = (
        rule("base")
        .pattern(hot.then(alarm).within(seconds=1))
        .timed_out("late", c=last(hot).celsius)
        .emit(c=last(hot).celsius)
    )
    over = step("over", base, base["c"] > 90)
    missed = step("missed", base.timed_out, base.timed_out["c"] > 90)
    top = rule("top").pattern(over.then(missed).within(seconds=5)).emit(c=last(over).c, m=last(missed).c)
    assert [source.schema.name for source in top.plan.inputs] == ["base", "late"]
    assert top.reads == (base, base)
    with pytest.raises(RuleError, match="has no timed-out output"):
        rule("x").pattern(step("s", top.timed_out).within(seconds=1)).emit(n=1)


def test_what_is_nested_too_deep_is_said_with_the_rule_and_never_a_traceback() -> None:
    hot = step("hot", Reading)
    with pytest.raises(RuleError, match="rule r: the condition of warm is nested more than 120 deep"):
        rule("r").pattern(step("warm", Reading, reduce(and_, [Reading.celsius > 1] * 200)).within(9)).emit(n=fn.count())
    for pattern in (
        step("warm", Reading, reduce(add, [Reading.celsius] * 3_000) > 1),
        reduce(lambda made, _: made.optional(), range(3_000), hot.optional()).then(step("warm", Reading)),
        reduce(lambda made, number: made.then(step(f"s{number}", Reading)), range(3_000), hot.then(hot)),
    ):
        with pytest.raises(RuleError, match="rule r: its pattern or a condition of it is nested too deep"):
            rule("r").pattern(pattern.within(9)).emit(n=fn.count())
    with pytest.raises(RuleError, match="unrolls to more than 200000 steps"):
        run_on(rule("r").pattern(hot.times(10**9).within(9)).emit(n=fn.count()), [])
