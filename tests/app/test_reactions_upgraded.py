"""Reactions that come, go and change with upgrades of a run that is stopped: the audit judges each situation by the
reactions that counted at its time."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from tests.pipeline.worlds import advance, write
from unerring import App, Embedded, Process, last, rule, step, stream
from unerring.app import SparkEngine, agree_on_upgrade, place_of
from unerring.app.acting import PROCESSES
from unerring.app.counted_reactions import goes_on
from unerring.app.demo.mutants import forget_instance
from unerring.app.editions import number_of
from unerring.app.process_audit import known_in
from unerring.app.reconciling import Line as Audited, reconcile
from unerring.app.upgrading import check_rules, edition_to_run, note_first, pending_in
from unerring.audit import moment
from unerring.audit.line import ASKED, STARTED
from unerring.log import EventLog, Positions, events_of
from unerring.model import (
    BEFORE_ALL,
    TIME_MAX,
    CallerError,
    ConfigError,
    Event,
    Persist,
    Stamp,
    protect_json,
    schema_of,
)
from unerring.pipeline import SparkConfig
from unerring.pipeline.agreements import Proposal, proposals
from unerring.pipeline.beginnings import beginning
from unerring.pipeline.states import partition_at
from unerring.pipeline.versions import enter
from unerring.processes import Reaction
from unerring.processes.messages import State
from unerring.processes.roster import HISTORY
from unerring.runtime.storage import SqliteStorage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECOND_US = 1_000_000


@stream(key="machine")
class Heat:
    machine: str
    celsius: float


class Note(msgspec.Struct):
    value: float = 0.0
    done: str = ""


def process(name: str) -> Process:
    noting = Process(name, state=Note)

    @noting.action(writes="done", deterministic=True)
    async def note(value: float) -> str:
        return f"{value}"

    return noting.flow(note)


COOL, WARN, TELL = process("cool"), process("warn"), process("tell")


def overheating(seconds: int) -> Any:
    hot = step("hot", Heat, Heat.celsius > 80)
    hotter = step("hotter", Heat, Heat.celsius > last(hot).celsius)
    made = rule("overheating").pattern(hot.then(hotter).within(seconds=seconds))
    return made.emit(peak=last(hotter).celsius, begun=last(hot).celsius)


def plant(seconds: int, **reactions: str) -> App:
    """Which process is given which column of the situation."""
    made = App("plant", rules=[overheating(seconds)], streams=[Heat], buckets=1)
    for one in (COOL, WARN, TELL):
        if one.name in reactions:
            made.on("overheating").start(one, value=reactions[one.name])
    return made


FIRST = plant(10, cool="peak", warn="peak")
SECOND = plant(11, cool="begun", tell="peak")
THIRD = plant(12, cool="begun", tell="peak", warn="begun")


class Line:
    """A run on Spark, in this process: its situations, and what starts processes."""

    def __init__(self, data: Path) -> None:
        self.data, self.place = data, place_of(data)
        self.log = EventLog(data / "log")

    def run(self, app: App, through_s: int) -> None:
        self.detect(app, through_s)
        asyncio.run(self._act(app))

    def detect(self, app: App, through_s: int) -> None:
        note_first(self.place, "plant:app", app)
        heats = [(n, f"press-{n % 3}", 81.0 + n) for n in range(1, through_s + 1)]
        events = [Event("Heat", Stamp(n * SECOND_US), (m,), {"machine": m, "celsius": c}) for n, m, c in heats]
        chain = self.log.create(schema_of(Heat), 1)
        write(chain, [one for one in events if one.stamp.time > chain.through_us], [], through_s * SECOND_US)
        for level in app.levels(self.place):
            enter(level)
            advance(level, [partition_at(level, 0, beginning(level))], through_s * SECOND_US)

    async def _act(self, app: App) -> None:
        async with Embedded([COOL, WARN, TELL], self.data / PROCESSES / "n0.db") as engine:
            for reaction in app.reactions:
                for situation in self.situations(after=self.position(reaction)):
                    await engine.run(reaction.process, reaction.instance(situation), **reaction.values(situation))
                    Positions(self.log.store, "overheating").commit(reaction.reader, situation.stamp)

    def position(self, reaction: Reaction) -> Stamp:
        return Positions(self.log.store, "overheating").get(reaction.reader)

    def situations(self, after: Stamp) -> list[Event]:
        chain = self.log.chain("overheating")
        every = events_of(chain.read(chain.base.from_us, TIME_MAX), chain.schema)
        return [situation for situation in every if situation.stamp > after]

    def upgrade(self, app: App) -> int:
        """When it takes over."""
        under_way = agree_on_upgrade(self.place, "plant:app", app)
        under_way.take_over(None)
        return under_way.at_us

    def wrong(self, app: App = THIRD) -> list[tuple[str, str]]:
        return [(one.promise, " ".join(one.witness)) for one in reconcile(app, self.data).violations]

    def give(self, instance: str, value: float) -> None:
        """As if it had been started with something else."""
        with closing(SqliteStorage(self.data / PROCESSES / "n0.db")) as storage:
            key = f"{instance}|{HISTORY}"
            state = msgspec.msgpack.decode(storage.load()[key], type=State)
            other = msgspec.structs.replace(state, given={"value": value})
            storage.write([Persist(puts=((key, msgspec.msgpack.encode(other)),))])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, int]:
    """A run that was upgraded twice, and when."""
    line = Line(tmp_path_factory.mktemp("line"))
    line.run(FIRST, 12)
    once_us = line.upgrade(SECOND)
    line.run(SECOND, 24)
    twice_us = line.upgrade(THIRD)
    line.run(THIRD, 36)
    return line.data, once_us, twice_us


@pytest.fixture
def line(whole: tuple[Path, int, int], tmp_path: Path) -> Line:
    return Line(Path(shutil.copytree(whole[0], tmp_path / "run")))


def test_each_reaction_acted_at_the_times_at_which_it_counted(line: Line, whole: tuple[Path, int, int]) -> None:
    _, once_us, twice_us = whole
    wanted = {
        f"{name}-overheating-{one.stamp.time}-{one.stamp.ordinal}"
        for one in line.situations(after=BEFORE_ALL)
        for name, counts in (
            ("cool", True),
            ("warn", one.stamp.time <= once_us or one.stamp.time > twice_us),
            ("tell", one.stamp.time > once_us),
        )
        if counts
    }
    assert set(known_in(line.data / PROCESSES).decided) == wanted
    assert len(line.situations(after=Stamp(twice_us))) > 1


def test_the_audit_judges_each_situation_by_the_reactions_of_its_time(line: Line) -> None:
    assert reconcile(THIRD, line.data) == Audited()


@pytest.mark.parametrize("gone", ["warn-overheating-4000000-0", "tell-overheating-16000000-0"])
def test_an_instance_that_is_gone_is_missed_whatever_came_later(line: Line, gone: str) -> None:
    """`warn` had gone after that, and `tell` was not there before it."""
    forget_instance(line.data / PROCESSES, gone)
    assert line.wrong() == [(STARTED, f"{_summary(gone)} should have started {gone}, which no node knows")]


def test_what_an_instance_was_given_is_judged_by_the_reaction_of_its_time(line: Line) -> None:
    situations = {one.stamp.time: one for one in line.situations(after=BEFORE_ALL)}
    line.give("cool-overheating-4000000-0", situations[4 * SECOND_US].payload["begun"])
    assert line.wrong() == [], "it was left to the reaction that followed"
    line.give("cool-overheating-16000000-0", situations[16 * SECOND_US].payload["peak"])
    [(promise, witness)] = line.wrong()
    assert promise == ASKED
    assert witness.startswith("cool-overheating-16000000-0 was not given what overheating at")


def test_what_an_earlier_release_did_not_write_down_is_not_judged(line: Line) -> None:
    for one in proposals(line.log):
        name = f"rule-upgrades/{one.number:06d}.json"
        line.log.store.replace(name, protect_json(msgspec.structs.replace(one, given=())))
    line.give("cool-overheating-4000000-0", -1.0)
    assert Line(Path(shutil.copytree(line.data, line.data.with_name("again")))).wrong() == []


def test_a_reaction_that_came_without_an_upgrade_acts_on_what_is_there(tmp_path: Path) -> None:
    line, later = Line(tmp_path), plant(10, cool="peak", tell="peak")
    line.run(plant(10, cool="peak"), 12)
    line.run(later, 15)
    assert reconcile(later, line.data) == Audited()
    forget_instance(line.data / PROCESSES, "tell-overheating-4000000-0")
    assert [promise for promise, _ in line.wrong(later)] == [STARTED]
    at_us = line.upgrade(plant(11, cool="peak", tell="peak"))
    assert line.position(later.reactions[1]).time < at_us, "nothing that is left to it is skipped"


def test_reactions_alone_change_at_an_agreed_time(tmp_path: Path) -> None:
    line, before, after = Line(tmp_path), plant(10, cool="peak", warn="peak"), plant(10, cool="begun", tell="peak")
    line.run(before, 12)
    with pytest.raises(CallerError, match="there is nothing to upgrade"):
        agree_on_upgrade(line.place, "plant:app", plant(10, warn="peak", cool="peak"))
    under_way = agree_on_upgrade(line.place, "plant:app", after)
    assert agree_on_upgrade(line.place, "plant:app", after).proposed.token == under_way.proposed.token
    with pytest.raises(CallerError, match=r"an upgrade of .* is under way"):
        agree_on_upgrade(line.place, "plant:app", plant(10, cool="begun"))
    with pytest.raises(ConfigError, match="that time is reached; run that app instead of plant"):
        edition_to_run(line.place, before)
    assert edition_to_run(line.place, after)[1] is not None
    under_way.take_over(None)
    line.run(after, 24)
    at_us, known = under_way.at_us, known_in(line.data / PROCESSES).decided
    for one in line.situations(after=BEFORE_ALL):
        started = {f"{name}-overheating-{one.stamp.time}-{one.stamp.ordinal}" for name in ("cool", "warn", "tell")}
        gone = "tell" if one.stamp.time <= at_us else "warn"
        assert {instance for instance in started if instance in known} == {
            instance for instance in started if not instance.startswith(gone)
        }
    assert len(line.situations(after=Stamp(at_us))) > 1
    assert reconcile(after, line.data) == Audited()
    assert number_of(line.place, before) == 0
    assert number_of(line.place, after) == number_of(line.place, plant(10)) == 1


@pytest.mark.long
@pytest.mark.xdist_group("spark")
def test_a_run_on_spark_lets_reactions_change_while_it_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    line, before, after = Line(tmp_path), plant(10, cool="peak"), plant(10, warn="peak")
    line.run(before, 12)
    running = SparkEngine(before, tmp_path, SparkConfig(), resident=True)
    running.start(lambda text: None)
    try:
        under_way = agree_on_upgrade(line.place, "plant:app", after)
        pause, until_s = threading.Event(), time.monotonic() + 240
        while running.upgraded != "plant:app":
            running._look_s = 0.0
            running.check()
            assert time.monotonic() < until_s
            pause.wait(0.05)
    finally:
        running.stop()
    with pytest.raises(ConfigError, match="run that app instead of plant"):
        SparkEngine(before, tmp_path, SparkConfig())
    SparkEngine(after, tmp_path, SparkConfig()).run_once(lambda text: None)
    assert pending_in(line.place) is None
    line.run(after, 24)
    started = [name.split("-") for name in known_in(line.data / PROCESSES).decided]
    assert {process for process, *_ in started} == {"cool", "warn"}
    assert all((process == "cool") == (int(at) <= under_way.at_us) for process, _, at, _ in started)
    assert reconcile(after, line.data) == Audited()


def test_an_app_whose_reactions_an_upgrade_ended_comes_back_by_another_one(tmp_path: Path) -> None:
    line, before, after = Line(tmp_path), plant(10, cool="peak"), plant(10, warn="peak")
    line.run(before, 12)
    line.upgrade(after)
    for check in (check_rules, edition_to_run):
        with pytest.raises(ConfigError, match="has the reactions of plant:app, which took over from those of app plan"):
            check(line.place, before)
        check(line.place, after)
        check(line.place, plant(10, warn="peak", tell="peak"))
    line.detect(after, 15)
    line.upgrade(before)
    assert number_of(line.place, before) == 2
    check_rules(line.place, before)


def test_a_reaction_that_gives_something_else_without_an_upgrade_may_have_done_so_at_any_time(tmp_path: Path) -> None:
    line, later = Line(tmp_path), plant(10, cool="begun")
    line.run(plant(10, cool="peak"), 12)
    line.run(later, 15)
    assert reconcile(later, line.data) == Audited()


def test_a_reaction_that_went_before_it_had_acted_on_everything_is_a_note(tmp_path: Path) -> None:
    line = Line(tmp_path)
    line.run(plant(10, cool="peak", warn="peak"), 12)
    left = line.situations(after=BEFORE_ALL)[-2:]
    Positions(line.log.store, "overheating").commit("starts-warn", left[0].stamp)
    forget_instance(line.data / PROCESSES, FIRST.reactions[1].instance(left[1]))
    line.upgrade(plant(11, cool="peak"))
    assert reconcile(plant(11, cool="peak"), line.data) == Audited(
        notes=("overheating starts warn: 1 situations were still to be acted on when that ended, and start none",)
    )


def test_a_reaction_ends_where_it_gives_something_else() -> None:
    cool = FIRST.reactions[0]

    def following(app: App) -> Proposal:
        return Proposal(
            1, "plant:app", (), (), 1, reactions=(("overheating", "cool"),), given=(app.reactions[0].given,)
        )

    assert goes_on(cool, following(FIRST))
    assert not goes_on(cool, following(SECOND))
    assert goes_on(cool, msgspec.structs.replace(following(SECOND), given=())), "an earlier release did not say"
    assert not goes_on(FIRST.reactions[1], following(FIRST))


def _summary(instance: str) -> str:
    time_us = int(instance.split("-")[2])
    return f"overheating at {moment(time_us)} #0"
