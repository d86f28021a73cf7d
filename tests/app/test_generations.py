"""Replicas in memory that all go, after retention has cut the log that they were made of."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import msgspec
import pytest

from tests.app.live_tree import LiveRun, perfect_run, readings
from unerring.app.generations import begin_anew
from unerring.app.live_needs import needs_of, retained_levels
from unerring.correlation import moved
from unerring.correlation.application import _key, _Position
from unerring.log import events_of
from unerring.model import BEFORE_ALL, TIME_MAX, TIME_MIN, ConfigError, Event, Stamp
from unerring.pipeline import savepoints
from unerring.pipeline.retention import cut_here

TREE = "tests.app.tree_app:app"


def cut(run: LiveRun) -> int:
    before_us = min(run.log(stream).refresh() for stream in run.streams)
    removed = cut_here(retained_levels(run.app, run.data), before_us, needs_of(run.data))
    assert all(removed.values()), removed
    return before_us


@pytest.mark.timeout(600)
def test_they_begin_again_at_the_cut_with_the_states_that_it_kept(tmp_path: Path) -> None:
    run = LiveRun(tmp_path, TREE, readings(240), f=0)
    asyncio.run(run.play(0, 80))
    run.cluster = begin_anew(run.cluster, tmp_path)
    assert (run.cluster.generation, run.cluster.begins_us) == (2, TIME_MIN)
    for generation, last in ((3, 120), (4, 160)):
        asyncio.run(run.play(last - 40, last))
        cut_us = cut(run)
        run.cluster = begin_anew(run.cluster, tmp_path)
        assert (run.cluster.generation, run.cluster.begins_us) == (generation, cut_us)
        kept = {tuple(savepoints.times(level)) for level in run.app.levels(tmp_path)}
        assert kept == {(cut_us,)} if generation == 3 else len(kept.pop()) == 2, "the one in use, and the new one"
    asyncio.run(run.play(160, 240, end=True))
    perfect = perfect_run(run.app, run.events)
    for stream in run.streams:
        chain = run.log(stream)
        base_us = chain.base.from_us
        assert TIME_MIN < base_us <= cut_us
        wanted = [event for event in perfect if event.stream == stream and event.stamp.time > base_us]
        assert wanted[-1].stamp.time > cut_us
        assert list(events_of(chain.read(base_us, TIME_MAX), chain.schema)) == wanted


def test_where_nothing_comes_after_the_cut_everybody_stays_responsive(tmp_path: Path) -> None:
    """A source that had nothing to hand over after the beginning did not let its process do anything else."""
    run = LiveRun(tmp_path, TREE, readings(80), f=0)
    asyncio.run(run.play(0, 80))
    cut(run)
    run.cluster = begin_anew(run.cluster, tmp_path)
    run.supervisor = run.new_supervisor()

    async def look() -> None:
        running = asyncio.create_task(run.supervisor.run())
        try:
            began_s = time.time()
            await run.until(lambda: run.status("source_Reading/0").get("at", 0) > began_s + 3)
        finally:
            run.supervisor.stop()
            await running

    asyncio.run(look())


def test_without_the_states_they_are_refused(tmp_path: Path) -> None:
    run = LiveRun(tmp_path, TREE, readings(80), f=0)
    asyncio.run(run.play(0, 80))
    cut_us = cut(run)
    [level, *_] = run.app.levels(tmp_path)
    savepoints.drop_before(level, cut_us + 1)
    with pytest.raises(ConfigError, match=r"was cut at \d+ without states of their rules"):
        begin_anew(run.cluster, tmp_path)


@pytest.mark.parametrize("last", range(8))
@pytest.mark.parametrize("sealed", range(8))
@pytest.mark.parametrize("cut_after", range(8))
def test_an_applications_position_is_counted_from_the_cut(last: int, sealed: int, cut_after: int) -> None:
    """Of events 1 to 7 so many are committed, so many sealed, and the log is cut after one that is both."""
    cut_after, sealed = min(cut_after, last, sealed), min(last, sealed)
    stamps = [Stamp(10 * number, 0) for number in range(1, 8)]
    records = {_key("S", n): msgspec.msgpack.encode(Event("S", stamps[n], (), {})) for n in range(sealed, last)}
    if last:
        records["application/S/position"] = msgspec.msgpack.encode(_Position(stamps[last - 1], last))

    def count(through: Stamp) -> int:
        return sum(stamp <= through for stamp in stamps[cut_after:sealed])

    changes = moved(records, "S", count, 10 * sealed)
    for key in changes.deletes:
        del records[key]
    records |= dict(changes.puts)
    left = records.pop("application/S/position", msgspec.msgpack.encode(_Position(BEFORE_ALL, 0)))
    position = msgspec.msgpack.decode(left, type=_Position)
    assert position == _Position(stamps[last - 1] if last > cut_after else BEFORE_ALL, last - cut_after)
    assert {key: msgspec.msgpack.decode(event, type=Event).stamp for key, event in records.items()} == {
        _key("S", n - cut_after): stamps[n] for n in range(sealed, last)
    }
