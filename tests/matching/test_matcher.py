"""What a matcher promises besides its answers: what it forgets, what it refuses, where it stops."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from unerring import (
    Operator,
    Rule,
    any_of,
    each,
    event_of,
    fn,
    last,
    prev,
    rule,
    step,
    stream,
    time_of,
    trailing,
    tumbling,
)
from unerring.matching import oracle
from unerring.matching.choice import matcher_for, why_interpreted
from unerring.matching.interpreter import Interpreter
from unerring.matching.matcher import schemas_of
from unerring.matching.outputs import Row, number
from unerring.matching.tree import QueryTree, run_on
from unerring.model import TIME_MAX, Event, RuleError, Stamp
from unerring.rules import patterns as pt
from unerring.rules.tree import plans_of, ranks_of

from .generators import pattern_plan, stream_events
from .letters import Letter, a, b, c, letters


@stream(key="k")
class Tick:
    k: int
    v: int


up = step("up", Tick, Tick.v > 0)
down = step("down", Tick, Tick.v < 0)
pair = rule("pair").pattern(up.then(down).within(10)).emit(began=time_of(last(up)))


def tick(k: int | None, time: int, v: int = 1) -> Row:
    return Row(0, Event("Tick", Stamp(time), (k,), {"k": k, "v": v}))


# --- what is forgotten ---


def test_a_key_without_an_open_match_is_forgotten() -> None:
    matcher = Interpreter(pair.plan)
    matcher.feed([tick(k, 1, v) for k, v in enumerate([1, -1, 0, 1])], 5)
    assert matcher.keys == 2
    matcher.feed([tick(0, 6, -1)], 6)
    assert matcher.keys == 1
    matcher.feed([], 11)
    assert matcher.keys == 0, "the other one's time has run out"
    assert len(matcher.snapshot()) < 64


@pytest.mark.parametrize(
    "made",
    [
        rule("w").on(Tick).window(tumbling(5)).emit(n=fn.count()),
        rule("w").on(Tick).window(trailing(5)).on_change().emit(n=fn.count()),
        rule("w").join(up, step("other", Tick), within=5).emit(n=last(up).v),
    ],
)
def test_windows_and_joins_forget_too(made: Rule) -> None:
    matcher = Interpreter(made.plan)
    matcher.feed([tick(k, k + 1) for k in range(50)], 50)
    assert matcher.keys > 0
    matcher.feed([], 70)
    assert matcher.keys == 0


def test_what_must_be_kept_is_kept() -> None:
    jumps = (
        rule("j").pattern(step("j", Tick, Tick.v > prev(Tick).v).within(0)).emit(v=last(up).v if False else fn.count())
    )
    matcher = Interpreter(jumps.plan)
    matcher.feed([tick(0, 1, 5)], 100)
    assert matcher.keys == 1
    assert len(matcher.feed([tick(0, 101, 6)], 101)) == 1


# --- what is refused ---


def test_a_null_key_goes_to_quarantine_and_stops_nothing() -> None:
    matcher = Interpreter(pair.plan)
    outputs = matcher.feed([tick(None, 1), tick(0, 2), tick(0, 3, -1)], 3)
    assert len(outputs) == 1
    (refused,) = matcher.take_quarantined()
    assert refused.event.payload["k"] is None
    assert "NULL" in refused.reason
    assert matcher.take_quarantined() == []


def test_state_of_another_rule_is_refused() -> None:
    other = rule("pair").pattern(up.then(down).within(11)).emit(began=time_of(last(up)))
    with pytest.raises(RuleError, match="made by version"):
        Interpreter(other.plan).restore(Interpreter(pair.plan).snapshot())
    with pytest.raises(RuleError, match="invalid state"):
        Interpreter(pair.plan).restore(b"\x00nonsense")


def test_whole_times_in_order() -> None:
    matcher = Interpreter(pair.plan)
    matcher.feed([tick(0, 5)], 5)
    for rows, through in (([tick(0, 5)], 6), ([tick(0, 7)], 6), ([], 4)):
        with pytest.raises(RuleError, match="feed whole times in order"):
            matcher.feed(rows, through)


def test_a_pattern_that_explodes_stops_with_a_sentence() -> None:
    """What has failed is remembered by what conditions see of it; here every set of rows has another sum."""
    other = step("other", Letter, Letter.name == "A")
    end = step("end", Letter, Letter.v == fn.sum(each(a).v))
    made = rule("r").pattern(any_of(a, other).one_or_more().then(end).within(99)).emit(n=fn.count())
    rows = oracle.merged(letters(" ".join(f"A{n}={2**n}" for n in range(1, 40))), {"Letter": 0})
    with pytest.raises(RuleError, match="more than 1000 ways were tried from one event"):
        Interpreter(made.plan, attempts_max=1000).feed(rows, TIME_MAX)
    with pytest.raises(RuleError, match="the oracle gave up after 1000 attempts from one row"):
        oracle.outputs_of(made.plan, rows, attempts_max=1000)


@pytest.mark.parametrize("end", [Letter.name == "Z", Letter.v == fn.count(), Letter.v == fn.sum(last(a).v)])
def test_nested_loops_do_not_explode(end: Any) -> None:
    """Paths whose conditions see the same rows have one future, which is tried once."""
    nested = a.one_or_more(gap="strict").one_or_more(gap="strict").one_or_more(gap="strict")
    made = rule("r").pattern(nested.next(step("end", Letter, end)).within(999)).emit(n=fn.count())
    rows = oracle.merged(letters(" ".join(f"A{n}" for n in range(1, 100))), {"Letter": 0})
    assert Interpreter(made.plan, attempts_max=20_000).feed(rows, TIME_MAX) == []


def test_what_fails_after_a_row_may_begin_at_the_next() -> None:
    """From A the gap's time has run out at B; from B, with nothing before it, no gap counts."""
    made = rule("r").pattern(a.optional().then(any_of(b, c))).unbounded().emit(n=fn.count())
    first, _, last_part = made.plan.pattern.parts  # type: ignore[attr-defined]
    quick = pt.Gap(pt.Contiguity.RELAXED, within_us=1)
    plan = replace(made.plan, pattern=pt.Sequence((first, quick, last_part)))
    events = letters("A1 B5 X6")
    expected = oracle.run(plan, events, {"Letter": 0})
    assert [event.payload for event in expected] == [{"n": 1}]
    got = Interpreter(plan).feed(oracle.merged(events, {"Letter": 0}), TIME_MAX)
    assert number(got, schemas_of(plan)) == expected


# --- operators ---


class Counter(Operator):
    """Counts; gives every second; falls silent after 10; raises on 13."""

    def __init__(self, every: int) -> None:
        self._every = every
        self._seen = 0

    def on_event(self, event: Event) -> list[dict[str, object]]:
        self._seen += 1
        if event.payload["v"] == 13:
            raise ValueError("unlucky")
        self.deadline_us = event.stamp.time + 10
        return [self._said(event.payload["k"])] if self._seen % self._every == 0 else []

    def on_time(self, time_us: int) -> list[dict[str, object]]:
        self._seen = 0
        return [{"k": -1, "seen": -1}]

    def _said(self, k: int) -> dict[str, object]:
        return {"k": k, "seen": self._seen}

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self._seen)

    def restore(self, state: bytes) -> None:
        self._seen = msgspec.msgpack.decode(state, type=int)


@stream(key="k")
class Seen:
    k: int
    seen: int


counter = rule("counter").on(Tick).operator(Counter, Seen, every=2)


def test_an_operator_is_called_with_events_and_deadlines() -> None:
    matcher = Interpreter(counter.plan)
    rows = [tick(7, 1), tick(7, 2), tick(7, 3)]
    events = number(matcher.feed(rows, 20), schemas_of(counter.plan))
    assert [(event.stamp.time, event.payload["seen"]) for event in events] == [(2, 2), (13, -1)]
    assert matcher.keys == 0, "it is as good as new"


def test_a_poison_event_changes_nothing_and_is_kept() -> None:
    with_poison, without = Interpreter(counter.plan), Interpreter(counter.plan)
    good = [tick(7, n) for n in range(1, 200)]
    poison = [tick(7, 200, 13)]
    outputs = with_poison.feed(good, 199) + with_poison.feed(poison, 200)
    assert outputs == without.feed(good, 199) + without.feed([], 200)
    assert with_poison.snapshot() == without.snapshot()
    (refused,) = with_poison.take_quarantined()
    assert refused.reason == "ValueError: unlucky"
    assert refused.event.stamp == Stamp(200)


def test_an_operator_that_gives_other_columns_is_refused() -> None:
    class Wrong(Counter):
        def _said(self, k: int) -> dict[str, object]:
            return {"k": k}

    with pytest.raises(RuleError, match="move the class to a module"):
        rule("x").on(Tick).operator(Wrong, Seen, every=1)


# --- which matcher ---


def test_user_operators_run_as_they_are() -> None:
    assert why_interpreted(counter.plan) is not None
    assert isinstance(matcher_for(counter.plan), Interpreter)


# --- trees ---


def test_levels_agree_with_the_oracle_however_they_are_fed() -> None:
    second = step("second", pair)
    twice = rule("twice").pattern(second.times(2, gap="relaxed").within(50)).emit(last=last(second).began)
    plans = plans_of(twice)
    assert [plan.name for plan in plans] == ["pair", "twice"]
    rows = [tick(n % 3, 2 * n + 1, (-1) ** (n // 2)) for n in range(60)]
    expected = sorted(map(repr, oracle.run_tree(plans, [row.event for row in rows], ranks_of(plans))))
    assert sorted(map(repr, run_on(twice, [row.event for row in rows]))) == expected
    tree, made = QueryTree(plans), []
    for row in rows:
        tree.push(row.event)
        made += tree.run()
    tree.end()
    assert sorted(map(repr, made + tree.run())) == expected
    assert tree.take_quarantined() == []


def test_random_rules_stacked_on_random_rules() -> None:
    from random import Random

    from unerring.rules import expressions as ex, plan as pl

    done = 0
    for seed in range(200):
        random = Random(seed)
        try:
            below = pattern_plan(random)
        except RuleError:
            continue
        window = pl.WindowPlan(
            "above", (pl.Input(below.output, ("k",)),), pl.Tumbling(3), (pl.Measure("n", ex.Aggregate("count")),)
        )
        events = [e for e in stream_events(random, 12) if e.stream in {i.schema.name for i in below.inputs}]
        ranks = ranks_of((below, window))
        try:
            expected = oracle.run_tree((below, window), events, ranks, 40)
        except RuleError:
            continue
        tree = QueryTree((below, window), ranks)
        for event in sorted(events, key=lambda event: (event.stream, event.stamp)):
            tree.push(event)
        for source in below.inputs:
            tree.advance(source.schema.name, 40)
        assert sorted(map(repr, tree.run())) == sorted(map(repr, expected)), seed
        done += len(expected)
    assert done > 200


def test_an_event_of_a_record() -> None:
    event = event_of(Tick(3, 4), 9)
    assert (event.stream, event.stamp, event.key, event.payload) == ("Tick", Stamp(9), (3,), {"k": 3, "v": 4})
