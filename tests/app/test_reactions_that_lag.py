"""A host that lags has an app's reactions still, when another host has let those of the next app take over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.test_reactions_upgraded import Line, plant
from unerring import App
from unerring.app.acting import Acting
from unerring.app.counted_reactions import reactions_in
from unerring.app.editions import proposal_by
from unerring.model import BEFORE_ALL, ORDINAL_MAX, Stamp
from unerring.pipeline.agreements import Agreement, Done, create, proposals
from unerring.processes import Reaction
from unerring.runtime import ClusterShape, Command

OLD = plant(10, cool="peak", warn="peak", tell="peak")
NEW = plant(11, cool="begun", tell="peak")
"""`cool` is given something else, and `warn` is gone."""
LOOKS = 3


class Host(Acting):
    """What it asks process nodes for is written down. Its turn lasts for a few looks."""

    def __init__(self, app: App, line: Line) -> None:
        shape = ClusterShape(f=0, hosts=(("a", "127.0.0.1"), ("b", "127.0.0.2")), here="a")
        super().__init__("plant:app", app, 0, line.place, shape=shape, turn=lambda on: next(self.looks, False))
        self.looks: Iterator[bool] = iter(())
        self.asked: list[Command] = []

    def _ask(self, command: Command) -> None:
        self.asked.append(command)

    def act(self, reaction: Reaction) -> tuple[bool, list[str]]:
        """Whether the reaction is over, and which instances it has started."""
        self.looks, self.asked = iter([True] * LOOKS), []
        over = self._react_in_turn(reaction)
        return over, sorted(command.instance for command in self.asked)


@pytest.fixture
def line(tmp_path: Path) -> Line:
    return Line(tmp_path)


def test_it_acts_until_the_agreed_time_and_not_after_it(line: Line) -> None:
    line.detect(OLD, 12)
    lags = Host(OLD, line)
    cool, warn, tell = OLD.reactions
    for reaction in OLD.reactions:
        assert lags.act(reaction) == (False, instances(line, reaction))
    at_us = line.upgrade(NEW)
    line.detect(NEW, 24)
    follows = Host(NEW, line)
    for reaction in NEW.reactions:
        assert follows.act(reaction) == (False, instances(line, reaction, Stamp(at_us, ORDINAL_MAX)))
    line.detect(NEW, 36)
    assert lags.act(cool) == (True, [])
    assert lags.act(warn) == (True, [])
    assert lags.act(tell) == (False, instances(line, tell, Stamp(24_000_000, ORDINAL_MAX))), "it goes on"
    assert lags.has_ended()


def test_what_was_left_until_the_agreed_time_is_done(line: Line) -> None:
    line.detect(OLD, 12)
    lags = Host(OLD, line)
    before = {reaction: instances(line, reaction) for reaction in OLD.reactions}
    at_us = line.upgrade(NEW)
    line.detect(NEW, 24)
    warn = OLD.reactions[1]
    assert lags.act(warn) == (True, before[warn])
    assert all(one.stamp.time <= at_us for one in line.situations(BEFORE_ALL) if warn.instance(one) in before[warn])


def test_what_a_reaction_has_done_is_not_asked_for_again_with_something_else(line: Line) -> None:
    """One segment has the last situations before the agreed time and the first ones after it."""
    line.detect(OLD, 24)
    at = Stamp(12_000_000, ORDINAL_MAX)
    for what in (proposal_by(1, "plant:app", NEW), Agreement(1, at.time, ()), Done(1)):
        create(line.log, what)
    (cool, *_), (later, *_) = OLD.reactions, NEW.reactions
    rest = instances(line, later, at)
    assert Host(OLD, line).act(cool) == (True, sorted({*instances(line, cool)} - {*rest}))
    assert Host(NEW, line).act(later) == (False, rest)


def test_a_second_upgrade_does_not_bring_back_what_the_first_one_ended(line: Line) -> None:
    line.detect(OLD, 12)
    lags = Host(OLD, line)
    line.upgrade(NEW)
    line.detect(NEW, 24)
    line.upgrade(OLD)
    line.detect(OLD, 36)
    assert ("overheating", "warn") in reactions_in(proposals(line.log)[-1])
    over, started = lags.act(OLD.reactions[0])
    assert over, "the reaction that came is another host's"
    assert not started or max(int(one.split("-")[2]) for one in started) <= 12_000_000


def test_a_host_that_starts_with_the_app_that_came_back_goes_on_with_it(line: Line) -> None:
    line.detect(OLD, 12)
    line.upgrade(NEW)
    line.detect(NEW, 24)
    at_us = line.upgrade(OLD)
    line.detect(OLD, 36)
    warn = OLD.reactions[1]
    assert Host(OLD, line).act(warn) == (False, instances(line, warn, Stamp(at_us, ORDINAL_MAX)))


def instances(line: Line, reaction: Reaction, after: Stamp = BEFORE_ALL) -> list[str]:
    return sorted(reaction.instance(situation) for situation in line.situations(after))
