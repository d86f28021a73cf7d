"""New rules take over at one agreed time: what is found up to it is the old rules', after it the new ones', as if they
had always been there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from unerring.app import App, Audit, SparkEngine, agree_on_upgrade, place_of
from unerring.app.upgrading import Pending, note_first, pending_in
from unerring.log import EventLog, LocalStore
from unerring.matching.oracle import run
from unerring.model import TIME_MIN, CallerError, ConfigError, Event, RuleError
from unerring.pipeline import SparkConfig
from unerring.pipeline.agreements import (
    FIRST,
    Agreement,
    Proposal,
    agreement,
    create,
    is_done,
    proposal,
    proposal_of,
    propose,
)
from unerring.pipeline.beginnings import beginning
from unerring.pipeline.editions import Edition, changes_of
from unerring.pipeline.intervals import Bounds, next_end
from unerring.pipeline.level import Level
from unerring.pipeline.states import States, partition_at
from unerring.pipeline.taking_over import changed_levels, take_over, waits_for
from unerring.pipeline.versions import agreed_levels, agreed_upgrades, end_of, enter
from unerring.rules import Plan, Selection
from unerring.rules.plan import PatternPlan, Skip, SkipKind
from unerring.rules.tree import ranks_of

from .random_rules import S, T, pair as drawn_pair, stream_events, texts
from .worlds import OTHER, TYPED, advance, missing, pair, random_events, sealed, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# --- one process, random rules ---


def named(plan: Any, name: str) -> Any:
    """A rule under another name."""
    extra = {} if not isinstance(plan, PatternPlan) or plan.timed_out is None else {"timed_out": None}
    return replace(plan, name=name, **extra)


def changed(random: Random, plan: Any) -> Any:
    """Another rule with the same output."""
    if isinstance(plan, PatternPlan):
        choices: list[dict[str, Any]] = [{"within_us": random.randrange(1, 12)}]
        choices += [{"selection": kind, "skip": Skip()} for kind in (Selection.ALL, Selection.RECENT)]
        choices += [{"selection": Selection.PREFERRED, "skip": Skip(SkipKind.TO_NEXT)}]
        for change in random.sample(choices, len(choices)):
            try:
                other = replace(plan, **change)
            except RuleError:
                continue
            if other.version != plan.version:
                return other
    return None


def run_to(level: Level, random: Random, end_us: int) -> None:
    """What a driver does, in this process, up to a time or to where its rules end."""
    from_us = beginning(level)
    partitions = [partition_at(level, bucket, from_us) for bucket in range(level.buckets)]
    while partitions[0].through_us < min(end_us, end_of(level)):
        through_us = min(end_us, end_of(level))
        step_us = next_end(level.chains(), partitions[0].through_us, through_us, random.choice((1, 3, 9)))
        advance(level, partitions, step_us)
        for partition in partitions:
            States(level).keep(partition)


class World:
    """A run whose rules change: old ones, then new ones."""

    def __init__(
        self, data: Path, rules: tuple[tuple[Plan, ...], tuple[Plan, ...]], events: list[Event], seed: int
    ) -> None:
        self.data, self.random, self.events = data, Random(seed), events
        self.editions = Edition(rules[0], (T, S)), Edition(rules[1], (T, S))
        self.log = EventLog(data / "log")
        self.end_us = max(event.stamp.time for event in events) + 3
        create(self.log, proposal_of(FIRST, "old:app", self.editions[0], 2))

    def levels(self, number: int) -> tuple[Level, ...]:
        rules = self.editions[number]
        return agreed_levels(rules.plans, rules.sources, str(self.data), 2)

    def write(self, end_us: int) -> None:
        for schema in (T, S):
            own = [event for event in self.events if event.stream == schema.name and event.stamp.time <= end_us]
            write(self.log.create(schema, 2), own, [self.random.randrange(end_us)], end_us)

    def begin(self, end_us: int) -> None:
        self.write(end_us)
        for level in self.levels(0):
            enter(level)
            run_to(level, self.random, end_us)

    def propose(self, at_us: int | None) -> Proposal:
        proposed = replace_proposal(proposal_of(1, "new:app", self.editions[1], 2), at_us)
        propose(self.log, proposed)
        return proposed

    def complete(self) -> None:
        """Whatever has happened so far: run what is to run."""
        proposed = proposal(self.log, 1)
        assert proposed is not None
        agreed = agreed_upgrades(self.log)[0]
        for level in self.levels(0):
            run_to(level, self.random, self.end_us)
        assert waits_for(agreed, self.levels(0), self.levels(1)) == ""
        if not is_done(self.log, 1):
            take_over(None, proposed, agreed, self.levels(0), self.levels(1), self.editions)
        for level in self.levels(1):
            run_to(level, self.random, self.end_us)

    def check(self, at_us: int, why: str) -> int:
        """How many situations there are around the agreed time."""
        changes = changes_of(*self.editions)
        ranks = ranks_of(self.editions[1].plans, (T, S))
        found = 0
        for number, rules in enumerate(self.editions):
            for plan in rules.plans:
                if number == 0 and plan.name in (*changes.kept, *changes.changed):
                    continue
                wanted = [event for event in self.oracle(plan, ranks) if event.stamp.time > at_us]
                if plan.name in changes.kept:
                    wanted = self.oracle(plan, ranks)
                elif plan.name not in changes.added:
                    old = next(one for one in self.editions[0].plans if one.name == plan.name)
                    before = [event for event in self.oracle(old, ranks) if event.stamp.time <= at_us]
                    wanted = before + (wanted if number == 1 else [])
                assert texts(sealed(self.data, plan.name)) == texts(wanted), f"{why}: {plan.name}"
                found += bool(wanted)
        return found

    def oracle(self, plan: Plan, ranks: dict[str, int]) -> list[Event]:
        read = {source.schema.name for source in plan.inputs}
        return run(plan, [event for event in self.events if event.stream in read], ranks, self.end_us)


def replace_proposal(proposed: Proposal, at_us: int | None) -> Proposal:
    import msgspec

    return msgspec.structs.replace(proposed, at_us=at_us, from_beginning=True, token=str(at_us))


def worlds(folder: Path, seeds: range) -> list[World]:
    found: list[World] = []
    for seed in seeds:
        random = Random(seed)
        first, second, third = (drawn_pair(seed + 10_000 * n, events_max=16) for n in range(3))
        old, kept = named(first.plan, "Rule"), named(second.plan, "Kept")
        new = changed(random, old) if random.random() < 0.7 else named(third.plan, "Come")
        events = stream_events(random, 24)
        if new is None or not events:
            continue
        world = World(folder / str(seed), ((old, kept), (new, kept)), events, seed)
        try:
            for plan in (old, new, kept):
                world.oracle(plan, ranks_of((old, kept), (T, S)))
        except RuleError:
            continue
        found.append(world)
    return found


def long_world(folder: Path) -> World:
    """One with room for an upgrade, whose rules find something."""
    return next(world for world in worlds(folder, range(4, 40)) if world.end_us > 14)


@pytest.mark.parametrize("first", [0, pytest.param(30, marks=pytest.mark.long)])
def test_random_rules_take_over_at_random_times(tmp_path: Path, first: int) -> None:
    """The oracle of the old rule up to the time, that of the new one, run over everything, after it."""
    spoke = inherited = 0
    for world in worlds(tmp_path, range(first, first + 30)):
        random = world.random
        begun_us = random.randrange(1, world.end_us)
        world.begin(begun_us)
        world.propose(random.choice((None, random.randrange(begun_us, world.end_us))))
        agreed = agreed_upgrades(world.log)[0]
        assert begun_us <= agreed.at_us < world.end_us
        world.write(world.end_us)
        world.complete()
        spoke += world.check(agreed.at_us, f"{world.data.name}, at {agreed.at_us}")
        inherited += bool(changed_levels(world.levels(0), world.levels(1)))
    assert spoke > 8
    assert inherited > 3


class Writes:
    """Lets whoever creates objects die before one of them."""

    def __init__(self, stop: int) -> None:
        self.count, self._stop = 0, stop
        self._real = LocalStore.create

    def create(self, *arguments: Any) -> bool:
        self.count += 1
        if self.count == self._stop:
            raise KeyboardInterrupt
        return self._real(*arguments)


@pytest.mark.long
def test_who_dies_in_between_changes_nothing(tmp_path: Path) -> None:
    """The upgrade is interrupted at each write to the store, one after the other, and begun again."""
    died = 0
    for stop in range(1, 60):
        world = long_world(tmp_path / str(stop))
        world.begin(6)
        world.write(6)
        writes = Writes(stop)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(LocalStore, "create", lambda *arguments, writes=writes: writes.create(*arguments))
            try:
                world.propose(9)
                agreed_upgrades(world.log)
                world.write(world.end_us)
                world.complete()
            except KeyboardInterrupt:
                died += 1
        if proposal(world.log, 1) is None:
            assert agreement(world.log, 1) is None
            world.propose(9)
        world.write(world.end_us)
        world.complete()
        world.check(agreed_upgrades(world.log)[0].at_us, f"stopped at write {stop}")
        if writes.count < stop:
            break
    else:
        raise AssertionError("the upgrade has more writes than that")
    assert died > 5


KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from pipeline.test_upgrading import long_world
world = long_world(Path({folder!r}))
print("ready", flush=True)
world.propose(9)
world.write(world.end_us)
world.complete()
"""


def test_kill_9_while_it_takes_over(tmp_path: Path) -> None:
    """Killed after random times; whoever comes next completes it."""
    random = Random(3)
    for round_ in range(3):
        folder = tmp_path / str(round_)
        world = long_world(folder)
        world.begin(6)
        code = KILLED.format(tests=str(Path(__file__).parent.parent), folder=str(folder))
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=dict(os.environ))
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        try:
            child.wait(timeout=random.random() * 0.4)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        if proposal(world.log, 1) is None:
            world.propose(9)
        world.write(world.end_us)
        world.complete()
        world.check(agreed_upgrades(world.log)[0].at_us, f"round {round_}")


def test_two_at_once_and_a_driver_that_had_planned_further(tmp_path: Path) -> None:
    world = long_world(tmp_path)
    world.begin(6)
    world.propose(None)
    with pytest.raises(CallerError, match=r"another upgrade of .* was started at the same time \(to new:app\)"):
        world.propose(8)
    # A driver had looked at its inputs before the proposal was there, and they have come further since.
    world.write(8)
    [agreed] = agreed_upgrades(world.log)
    assert agreed.at_us == 8
    assert create(world.log, Agreement(1, 7, ())) is False
    for level in world.levels(0):
        if level.version not in {other.version for other in world.levels(1)}:
            assert end_of(level) == 8


# --- on Spark ---

END_US = 800
AT_US = 350
LOWER = pair("Pairs", TYPED, "A", "B", 40)
MISSES = missing("Misses", TYPED, "A", "B", 15)
UPPER = pair("Upper", LOWER.output, "B", "B", 200)
OLD = App("old", rules=(LOWER, MISSES, UPPER, missing("Gone", OTHER, "A", "C", 10)), buckets=2)
WIDER = replace(LOWER, within_us=60)
COME = missing("Come", OTHER, "B", "C", 10)
NEW = App("new", rules=(WIDER, MISSES, UPPER, COME, pair("Higher", UPPER.output, "B", "B", 300)), buckets=2)


def written(data: Path, end_us: int) -> dict[str, list[Event]]:
    events = {TYPED.name: random_events(3, 160, 5), OTHER.name: random_events(4, 160, 3, OTHER)}
    log = EventLog(data / "log")
    for schema in (TYPED, OTHER):
        own = [event for event in events[schema.name] if event.stamp.time <= end_us]
        write(log.create(schema, 2), own, [end_us - 60, end_us - 20], end_us)
    return events


def engine(app: App, data: Path, resident: bool = False) -> SparkEngine:
    return SparkEngine(app, data, SparkConfig(), Bounds(rows_per_batch=60), resident=resident)


def quiet(text: str) -> None:
    """Nobody listens."""


def check_situations(data: Path, events: dict[str, list[Event]], at_us: int) -> None:
    """Level over level: up to the time the old rules over what is in the log, after it the new ones."""
    streams = dict(events)
    for new, old in ((WIDER, LOWER), (MISSES, MISSES), (COME, None), (UPPER, UPPER), (NEW.plans[-1], None)):
        ranks = ranks_of(NEW.plans, NEW.streams)
        found: list[Event] = []
        for plan, counts in ((old, lambda time_us: time_us <= at_us), (new, lambda time_us: time_us > at_us)):
            if plan is not None:
                every = [event for source in plan.inputs for event in streams[source.schema.name]]
                found += [event for event in run(plan, every, ranks, END_US) if counts(event.stamp.time)]
        assert sealed(data, new.name) == found, new.name
        streams[new.output.name] = found
    assert sum(map(bool, streams.values())) >= 6, "nearly all rules find something"
    gone = run(OLD.plans[-1], events[OTHER.name], ranks_of(OLD.plans, OLD.streams), at_us)
    assert sealed(data, "Gone") == gone


def test_a_run_that_is_stopped_is_upgraded_and_audited(spark: SparkSession, tmp_path: Path) -> None:
    place = place_of(tmp_path)
    written(tmp_path, 300)
    note_first(place, "old:app", OLD)
    engine(OLD, tmp_path).run_once(quiet)
    with pytest.raises(ConfigError, match=r"has the rules of old:app, and app new has others .*changed: Pairs; added"):
        engine(NEW, tmp_path)
    under_way = agree_on_upgrade(place, "new:app", NEW, AT_US)
    assert under_way.at_us == AT_US
    assert agree_on_upgrade(place, "new:app", NEW, AT_US).agreed == under_way.agreed, "the same again"
    other = App("third", rules=OLD.plans[:2], buckets=2)
    with pytest.raises(CallerError, match=r"an upgrade of .* to new:app is under way"):
        agree_on_upgrade(place, "third:app", other)
    with pytest.raises(ConfigError, match="app third has other rules than that one and the one before it"):
        engine(other, tmp_path)
    events = written(tmp_path, END_US)
    engine(OLD, tmp_path).run_once(quiet)
    assert sealed(tmp_path, "Pairs")[-1].stamp.time <= AT_US
    with pytest.raises(ConfigError, match=r"the rules of new:app take over in .* run that app instead of old"):
        engine(OLD, tmp_path)
    engine(NEW, tmp_path).run_once(quiet)
    check_situations(tmp_path, events, AT_US)
    assert pending_in(place) is None
    with pytest.raises(ConfigError, match="has the rules of new:app"):
        engine(OLD, tmp_path)
    report = Audit(NEW, tmp_path).run(spark)
    assert report.wrong == 0, [rule.witnesses for rule in report.rules]
    spans = {(rule.stream, rule.from_us, rule.through_us): rule.delivered for rule in report.rules}
    assert spans["Pairs", TIME_MIN, AT_US] + spans["Pairs", AT_US, END_US] == len(sealed(tmp_path, "Pairs"))
    assert spans["Misses", TIME_MIN, END_US] == len(sealed(tmp_path, "Misses"))
    assert spans["Gone", TIME_MIN, AT_US] == len(sealed(tmp_path, "Gone"))


def test_a_run_that_goes_on_takes_new_rules_over(spark: SparkSession, tmp_path: Path) -> None:
    """Resident tasks: they end at the agreed time, and the engine says which app follows."""
    place = place_of(tmp_path)
    written(tmp_path, 300)
    note_first(place, "old:app", OLD)
    old = engine(OLD, tmp_path, resident=True)
    old._look_s = 0.0
    old.start(quiet)
    try:
        wait_for(old, lambda: all(view.level.sealed_us() >= 300 for view in old.views))
        under_way = agree_on_upgrade(place, "new:app", NEW)
        assert under_way.at_us == 300
        events = written(tmp_path, END_US)
        old._look_s = 0.0
        wait_for(old, lambda: bool(old.upgraded))
    finally:
        old.stop()
    assert old.upgraded == "new:app"
    new = engine(NEW, tmp_path, resident=True)
    new.go_on_from(old)
    new.start(quiet)
    try:
        wait_for(new, lambda: all(view.level.sealed_us() >= END_US for view in new.views))
    finally:
        new.stop()
    check_situations(tmp_path, events, 300)


def wait_for(running: SparkEngine, condition: Callable[[], bool]) -> None:
    import threading
    import time

    pause = threading.Event()
    until_s = time.monotonic() + 240
    while not condition():
        running.check()
        assert time.monotonic() < until_s, [view.level.sealed_us() for view in running.views]
        pause.wait(0.05)


def test_what_is_wrong_with_an_upgrade_is_found_before_anything_is_written(spark: SparkSession, tmp_path: Path) -> None:
    place = place_of(tmp_path)
    written(tmp_path, 300)
    note_first(place, "old:app", OLD)
    with pytest.raises(CallerError, match="has sealed nothing yet, so there is nothing to upgrade"):
        agree_on_upgrade(place, "new:app", NEW)
    engine(OLD, tmp_path).run_once(quiet)

    def refused(says: str, app: App = NEW, at_us: int | None = None) -> None:
        with pytest.raises(CallerError, match=says):
            agree_on_upgrade(place, "new:app", app, at_us)
        assert proposal(place.log, 1) is None

    refused(r"--at 1970-01-01 00:00:00.000299 is in the past: the log of .* is known through", at_us=299)
    refused(r"app new has the rules that run in .* already", App("new", rules=OLD.plans))
    endless = replace(LOWER, within_us=None, unbounded=True)
    refused(r"rule Pairs looks back without end .* --since beginning", App("new", rules=(endless, *OLD.plans[1:])))
    assert isinstance(agree_on_upgrade(place, "new:app", NEW, from_beginning=True), Pending)
