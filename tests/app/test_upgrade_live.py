"""A live run is stopped, upgraded on its log, and started again with the new rules: they go on at the agreed time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.app import tree_app
from tests.app.live_tree import LiveRun, readings
from unerring.app import Audit, agree_on_upgrade, load, place_of
from unerring.app.folder import remember
from unerring.app.upgrading import changes_while_it_runs, check_rules, upgrade_here
from unerring.log import events_of
from unerring.matching.oracle import run
from unerring.model import TIME_MAX, ConfigError, Event
from unerring.rules import ranks_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.timeout(900)
@pytest.mark.xdist_group("spark")
def test_stopped_upgraded_and_started_again(spark: SparkSession, tmp_path: Path) -> None:
    place = place_of(tmp_path)
    remember(place, "tests.app.tree_app:app")
    before = LiveRun(tmp_path, "tests.app.tree_app:app", readings(120), f=0)
    asyncio.run(before.play(0, 80))
    assert changes_while_it_runs(place)
    under_way = agree_on_upgrade(place, "tests.app.tree_app:wider", tree_app.wider)
    with pytest.raises(ConfigError, match=r"is under way; complete it with `unerring upgrade tests.app.tree_app:wider"):
        check_rules(place, tree_app.app)
    assert upgrade_here(place, under_way, spark) == ""
    with pytest.raises(ConfigError, match=r"has the rules of tests.app.tree_app:wider, .* \(changed: Steps\)"):
        check_rules(place, tree_app.app)
    after = LiveRun(tmp_path, "tests.app.tree_app:wider", readings(120), f=0)
    assert after.cluster.begins_us == under_way.at_us
    asyncio.run(after.play(80, 120, end=True))
    streams = {"Reading": after.events}
    ranks = ranks_of(tree_app.app.plans, tree_app.app.streams)
    for old, new in zip(tree_app.app.plans, tree_app.wider.plans, strict=True):
        below = streams[new.inputs[0].schema.name]
        wanted = [event for event in run(old, below, ranks) if event.stamp.time <= under_way.at_us]
        wanted += [event for event in run(new, below, ranks) if event.stamp.time > under_way.at_us]
        assert found(after, new.name) == wanted
        assert wanted
        streams[new.output.name] = wanted
    report = Audit(load("tests.app.tree_app:wider"), tmp_path).run(spark)
    assert not report.wrong, report


def found(after: LiveRun, stream: str) -> list[Event]:
    chain = after.log(stream)
    return list(events_of(chain.read(chain.base.from_us, TIME_MAX), chain.schema))
