"""Lists of a match's or a window's values: `fn.array_agg`, the same by every matcher, and on Spark's tasks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from unerring import each, event_of, fn, rule, run_on, step, stream, tumbling
from unerring.log import EventLog, LogWriter
from unerring.matching.interpreter import Interpreter
from unerring.matching.kernel import why_interpreted
from unerring.model import RuleError, Stamp, schema_of
from unerring.pipeline.intervals import spans_of
from unerring.pipeline.level import levels_of
from unerring.pipeline.partition import Partition
from unerring.rules import expressions as ex, plan as pl

from . import generators
from .conformance import check
from .letters import Letter, a, b, run


@stream(key="machine")
class Reading:
    machine: str
    celsius: float | None


hot = step("hot", Reading, fn.coalesce(Reading.celsius > 80, True))
cold = step("cold", Reading, Reading.celsius < 20)
spells = (
    rule("spells")
    .pattern(hot.one_or_more().then(cold).within(99))
    .emit(degrees=fn.array_agg(each(hot).celsius), who=fn.array_agg(fn.classifier()))
)
READINGS = [event_of(Reading("press", celsius), at) for at, celsius in enumerate([81.0, None, 92.5, 10.0], 1)]


def test_a_list_has_the_values_of_a_loop_in_their_order_with_nulls() -> None:
    (made,) = run_on(spells, READINGS)
    assert json.loads(made.payload["degrees"]) == [81.0, None, 92.5]
    assert json.loads(made.payload["who"]) == ["hot", "hot", "hot", "cold"]
    assert "array_agg" in (why_interpreted(spells.plan) or "")


def test_a_loop_without_an_event_has_no_list() -> None:
    maybe = rule("r").pattern(a.zero_or_more().then(b).within(9)).emit(list=fn.array_agg(each(a).v))
    assert [event.payload["list"] for event in run(maybe, "B1 A3=1 A4=2 B5")] == [None, "[1, 2]"]


def test_a_window_has_lists_too() -> None:
    per = rule("r").on(Letter).window(tumbling(10)).emit(list=fn.array_agg(Letter.v))
    assert [event.payload["list"] for event in run(per, "A1=3 B2 A3=1 A11=7")] == ["[3, null, 1]", "[7]"]


def test_a_list_is_an_output_column_as_a_whole() -> None:
    listed = fn.array_agg(each(hot).celsius)
    with pytest.raises(
        RuleError, match="output column n: array_agg gives a list, which is an output column as a whole"
    ):
        rule("r").pattern(hot.within(9)).emit(n=fn.length(listed))
    with pytest.raises(RuleError, match="the condition of c: array_agg gives a list"):
        rule("r").pattern(hot.then(step("c", Reading, listed == "[]")).within(9)).emit(n=fn.count())


def test_all_matchers_give_the_same_lists_on_random_rules() -> None:
    outputs = 0
    for seed in range(200):
        pair, random = generators.pair(seed, "pqw"), Random(seed)
        variables = () if isinstance(pair.plan, pl.WindowPlan) else random.choice(((), ("a",)))
        listed = ex.Aggregate("array_agg", (generators.attribute(random.choice(("v", "x", "kind"))),), variables)
        measures = (*pair.plan.measures, pl.Measure("list", listed))
        outputs += check(Interpreter, replace(pair, plan=replace(pair.plan, measures=measures)))
    assert outputs > 200


def test_a_task_on_spark_gives_the_same_list(tmp_path: Path) -> None:
    [level] = levels_of((spells.plan,), (schema_of(Reading),), str(tmp_path), 1)
    writer = LogWriter(EventLog(tmp_path / "log"), schema_of(Reading), buckets=1)
    for number, event in enumerate(READINGS):
        writer.append("0123456789abcdef", (0, number), Stamp(event.stamp.time), event.payload, 0)
    writer.end(0)
    writer.seal()
    partition, chains = Partition(level, 0), level.chains()
    table = partition.advance(200, spans_of(chains, chains["Reading"].base.from_us, 200))["spells"]
    assert table.column("degrees").to_pylist() == [event.payload["degrees"] for event in run_on(spells, READINGS)]
