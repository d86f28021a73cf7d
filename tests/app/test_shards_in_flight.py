"""Rules of a live run get other shards while it runs, and a sharded rule changes; Spark finds the same."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.app import shard_app
from tests.app.editions import sealed, wanted
from tests.app.live_tree import APART_US, ShardedRun
from unerring.app import App, Audit, agree_on_upgrade, load, place_of
from unerring.app.folder import remember
from unerring.app.live_cluster import make_cluster
from unerring.app.live_upgrade import LiveUpgrade
from unerring.app.sharding import shards_of
from unerring.app.upgrading import note_first
from unerring.cli import main
from unerring.correlation import Role
from unerring.model import CallerError, ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

APP = "tests.app.shard_app:app"
WIDER = "tests.app.shard_app:wider"
ENDLESS = "tests.app.shard_app:endless"


class Resharded(ShardedRun):
    """Fed as fast as time goes by, while it is changed."""

    done = False

    async def change(self, changes: list[tuple[str, App, dict[str, int]]], *, whole: bool = False) -> list[int]:
        """`whole`: rules that look back without end read the whole log."""
        place, times = place_of(self.data), []
        self.supervisor = self.new_supervisor()
        running = asyncio.create_task(self.supervisor.run())
        feeding = asyncio.create_task(self._feed_on())
        step = LiveUpgrade(place, self.supervisor, 0, lambda callback: callback(), print)
        try:
            await self.until(lambda: self.log(self.streams[-1]).refresh() > self.events[40].stamp.time)
            for address, app, shards in changes:
                if whole:
                    with pytest.raises(CallerError, match="looks back without end"):
                        agree_on_upgrade(place, address, app, prepared=True, shards=shards)
                under_way = agree_on_upgrade(place, address, app, from_beginning=whole, prepared=True, shards=shards)
                await self.until(lambda: bool(step.look()))
                step.conclude()
                times.append(under_way.at_us)
            self.done = True
            await feeding
            self.end()
            await self.until(self.sealed)
        finally:
            feeding.cancel()
            self.supervisor.stop()
            await running
        return times

    async def _feed_on(self) -> None:
        fed = rest = 0
        while rest < 10:
            self.feed(self.events[fed : fed + 8])
            fed += 8
            rest += self.done
            await asyncio.sleep(2 * APART_US / 1e6)
        del self.events[fed:]


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.xdist_group("spark")
def test_shards_split_and_merge_while_it_runs(spark: SparkSession, tmp_path: Path) -> None:
    place = place_of(tmp_path)
    remember(place, APP)
    live = Resharded(tmp_path, 60_000, {"Rate": 2}, f=0)
    note_first(place, APP, shard_app.app)
    changes = [(APP, shard_app.app, {"Rate": 3, "Steps": 2}), (WIDER, shard_app.wider, {"Rate": 1})]
    times = asyncio.run(live.change(changes))
    assert times == sorted(times)
    assert times[-1] < live.events[-1].stamp.time
    for stream, situations in wanted(shard_app.app, shard_app.wider, live.events, times[1]).items():
        assert sealed(place.log, stream) == situations
        assert situations[-1].stamp.time > times[-1]
    again = make_cluster(WIDER, 0, place, shards={"Rate": 2})
    assert shards_of(again.topology.nodes) == {"Steps": 2}, "what was agreed while it ran counts"
    names = [node.name for node in again.topology.nodes if node.role is Role.CORRELATION]
    assert sorted(names) == ["Rate-2", "Steps-s0-1", "Steps-s1-1", "Total"]
    report = Audit(load(WIDER), tmp_path).run(spark)
    assert not report.wrong, report


@pytest.mark.timeout(600)
def test_a_rule_that_looks_back_without_end_reads_the_whole_log(tmp_path: Path) -> None:
    place = place_of(tmp_path)
    remember(place, ENDLESS)
    live = Resharded(tmp_path, 60_000, {}, f=0, address=ENDLESS)
    note_first(place, ENDLESS, shard_app.endless)
    [at_us] = asyncio.run(live.change([(ENDLESS, shard_app.endless, {"Fives": 3})], whole=True))
    situations = wanted(shard_app.endless, shard_app.endless, live.events, at_us)["Fives"]
    assert sealed(place.log, "Fives") == situations
    assert situations[0].stamp.time <= at_us < situations[-1].stamp.time


@pytest.mark.parametrize(
    ("shards", "why"),
    [
        ({"Rate": 0}, "0 shards of Rate; choose between 1 and 8"),
        ({"Rate": 9}, "9 shards of Rate; choose between 1 and 8"),
        ({"Rates": 2}, "shards of 'Rates'; there are nodes Rate, Steps, Total"),
        ({"Total": 2}, "rule Total has no key"),
    ],
)
def test_another_number_that_cannot_be_is_a_sentence(shards: dict[str, int], why: str, tmp_path: Path) -> None:
    place = place_of(tmp_path)
    remember(place, APP)
    live = ShardedRun(tmp_path, 40, {"Rate": 2}, f=0)
    live.feed(live.events[:8])
    note_first(place, APP, shard_app.app)
    with pytest.raises(ConfigError, match=why):
        agree_on_upgrade(place, APP, shard_app.app, prepared=True, shards=shards)


def test_the_number_that_it_has_is_nothing_to_change(tmp_path: Path) -> None:
    place = place_of(tmp_path)
    remember(place, APP)
    ShardedRun(tmp_path, 40, {"Rate": 2}, f=0)
    note_first(place, APP, shard_app.app)
    with pytest.raises(CallerError, match="there is nothing to upgrade"):
        agree_on_upgrade(place, APP, shard_app.app, prepared=True, shards={"Rate": 2})


def test_another_beginning_than_the_logs_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    remember(place_of(tmp_path), ENDLESS)
    ShardedRun(tmp_path, 40, {}, f=0, address=ENDLESS)
    for options, why in (
        (["--shards", "Fives=3", "--since", "24h"], "only --since beginning is known, beside --shards"),
        (["--buckets", "3", "--since", "beginning"], "only --since beginning is known, beside --shards"),
        (["--shards", "Fives=3", "--since", "beginning"], "is not going on"),
    ):
        with pytest.raises(SystemExit):
            main(["rescale", str(tmp_path), *options])
        assert why in capsys.readouterr().err
