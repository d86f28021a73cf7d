"""A dry run of new rules: it finds what an upgrade at its beginning would have found, and changes nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from unerring.app import App, DryRun
from unerring.audit import TriedRule, trial_lines, trial_page
from unerring.log import EventLog
from unerring.matching.oracle import run
from unerring.model import CallerError, Event, SchemaError
from unerring.pipeline.agreements import FIRST, create, proposal_of
from unerring.pipeline.batch import detect_batch
from unerring.pipeline.editions import Edition, changes_of, touched
from unerring.pipeline.level import levels_of
from unerring.pipeline.warming import warming_from
from unerring.rules import Plan
from unerring.rules.tree import ranks_of

from .random_rules import cases
from .worlds import OTHER, TYPED, missing, pair, random_events, sealed, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

END_US = 800
SINCE_US = 300
LOWER = pair("Pairs", TYPED, "A", "B", 40)
MISSES = missing("Misses", TYPED, "A", "B", 15)
UPPER = pair("Upper", LOWER.output, "B", "B", 200)
OLD = (LOWER, MISSES, UPPER, missing("Gone", OTHER, "A", "C", 10))
WIDER = replace(LOWER, within_us=60)
NEW = (WIDER, MISSES, UPPER, missing("Come", OTHER, "B", "C", 10))


def events_of_run() -> dict[str, list[Event]]:
    return {TYPED.name: random_events(3, 160, 5), OTHER.name: random_events(4, 160, 3, OTHER)}


def begun(spark: SparkSession, data: Path) -> dict[str, list[Event]]:
    events = events_of_run()
    create(EventLog(data / "log"), proposal_of(FIRST, "old:app", Edition(OLD, (TYPED, OTHER)), 2))
    for level in levels_of(OLD, (TYPED, OTHER), str(data), 2):
        for schema in (TYPED, OTHER):
            write(level.log.create(schema, 2), [e for e in events[schema.name] if e.stamp.time <= END_US], [90], END_US)
        detect_batch(spark, level)
    return events


def after(plan: Plan, events: dict[str, list[Event]], streams: dict[str, list[Event]]) -> list[Event]:
    """What a rule finds over whole streams, after the beginning of the stretch."""
    ranks = ranks_of(NEW, (TYPED, OTHER))
    every = [event for source in plan.inputs for event in {**events, **streams}[source.schema.name]]
    return [event for event in run(plan, every, ranks, END_US) if event.stamp.time > SINCE_US]


def test_it_finds_what_an_upgrade_would_have_found(spark: SparkSession, tmp_path: Path) -> None:
    events = begun(spark, tmp_path)
    before = {path: path.read_bytes() for path in (tmp_path / "log").rglob("*") if path.is_file()}
    app = App("new", rules=NEW, buckets=2)
    dry = DryRun(app, tmp_path, lambda through_us: SINCE_US)
    report = dry.run(spark, rows=40)
    by_stream = {rule.stream: rule for rule in report.rules}
    assert [(rule.stream, rule.what) for rule in report.rules] == [
        ("Pairs", "changed"),
        ("Come", "added"),
        ("Upper", "above a rule that changes"),
        ("Gone", "removed"),
    ]
    pairs = after(WIDER, events, {})
    spliced = [event for event in sealed(tmp_path, "Pairs") if event.stamp.time <= SINCE_US] + pairs
    uppers, comes = after(UPPER, events, {"Pairs": spliced}), after(NEW[3], events, {})
    for name, wanted in (("Pairs", pairs), ("Upper", uppers), ("Come", comes), ("Gone", [])):
        check(by_stream[name], wanted, tmp_path)
    assert report.kept == ("Misses",)
    assert by_stream["Pairs"].found.come
    assert by_stream["Gone"].found.gone
    text = "\n".join(trial_lines(report))
    assert "not touched: Misses" in text
    assert "was not found, and would be: " in text
    assert "made by  " in text
    assert "Was found, and would not be" in trial_page(report)
    assert {path: path.read_bytes() for path in (tmp_path / "log").rglob("*") if path.is_file()} == before


def check(rule: TriedRule, wanted: list[Event], data: Path) -> None:
    has = [] if rule.what == "added" else sealed(data, rule.stream)
    was = [event for event in has if event.stamp.time > SINCE_US]
    old, new = ([(event.stamp.time, repr(event.payload)) for event in events] for events in (was, wanted))
    found = rule.found
    assert (found.before, found.after) == (len(old), len(new)), rule.stream
    assert found.gone == len([row for row in old if row not in new])
    assert found.come == len([row for row in new if row not in old])
    assert all((event.stamp.time, repr(event.payload)) in new for event in found.come_samples)
    assert all((event.stamp.time, repr(event.payload)) in old for event in found.gone_samples)


def test_what_cannot_be_tried_is_refused_with_a_sentence(spark: SparkSession, tmp_path: Path) -> None:
    begun(spark, tmp_path)

    def tried(*rules: Plan, since_us: int = SINCE_US) -> DryRun:
        return DryRun(App("new", rules=rules, streams=(TYPED, OTHER), buckets=2), tmp_path, lambda _: since_us)

    with pytest.raises(CallerError, match=r"app new has the rules that run in .* already; there is nothing to upgrade"):
        tried(*OLD)
    with pytest.raises(SchemaError, match=r"stream Pairs has other columns or another key in .* than app new declares"):
        tried(replace(LOWER, measures=LOWER.measures[:2]))
    with pytest.raises(CallerError, match=r"stream Pairs comes from a rule in .* and would come from outside"):
        DryRun(App("new", rules=(UPPER,), buckets=2), tmp_path, lambda _: SINCE_US)
    with pytest.raises(CallerError, match="--since is after the end of the log"):
        tried(*NEW, since_us=END_US)
    with pytest.raises(CallerError, match=r"there is no folder .*nowhere"):
        DryRun(App("new", rules=NEW), tmp_path / "nowhere", lambda _: SINCE_US)
    endless = replace(LOWER, within_us=None, unbounded=True)
    level = levels_of(OLD, (TYPED, OTHER), str(tmp_path), 2)[0]
    with pytest.raises(CallerError, match=r"rule Pairs looks back without end .* --since beginning"):
        warming_from([endless], level.log, SINCE_US)
    assert warming_from([endless], level.log, SINCE_US, from_beginning=True) < 0


def test_rules_above_a_change_are_touched() -> None:
    old, new = Edition(OLD, (TYPED, OTHER)), Edition(NEW, (TYPED, OTHER))
    changes = changes_of(old, new)
    assert changes.kept == ("Misses", "Upper")
    assert (changes.changed, changes.added, changes.removed) == (("Pairs",), ("Come",), ("Gone",))
    assert touched(old, new) == ("Pairs", "Upper", "Come")


def test_how_far_back_rules_read_is_enough(tmp_path: Path) -> None:
    """Random rules on random logs: without what is before, the oracle finds the same after a time."""
    cut = 0
    for case in cases(tmp_path, range(120), lambda seed: seed % 3 == 0):
        plan, at_us = case.drawn.plan, case.random.randrange(1, 24)
        try:
            start_us = warming_from([plan], case.level.log, at_us)
        except CallerError:
            continue
        rest = [event for event in case.drawn.events if event.stamp.time > start_us]
        found = run(plan, rest, ranks_of((plan,)), case.drawn.through)
        late = [repr(event) for event in found if event.stamp.time > at_us]
        assert late == [repr(event) for event in case.wanted if event.stamp.time > at_us], f"seed {case.drawn.seed}"
        cut += len(rest) < len(case.drawn.events)
    assert cut > 5
