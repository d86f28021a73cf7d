"""Learned costs: quantiles over exported histories, recent executions weighted more; what grouping makes of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from unerring import Embedded
from unerring.app.learned import COSTS_KEPT_MAX, keep, kept_in, priced
from unerring.app.process_export import export
from unerring.log import EventLog, MemoryStore
from unerring.model import TIME_MAX, CallerError
from unerring.pipeline.costs import learn
from unerring.processes.build import Process
from unerring.processes.costs import STREAM, VIEW_CHANGE, Cost, view_change_of, with_costs
from unerring.processes.explain import explain
from unerring.processes.graph import Service

HOUR_US = 3_600_000_000


def told(number: int, at_us: int, took_us: int, undo_us: int | None = None) -> dict[str, Any]:
    action = {"vertex": "book", "iid": f"i{number}/book/0@0", "write": True, "took_us": took_us}
    return {
        "instance": f"i{number}",
        "process": "trip",
        "version": "v",
        "status": "completed" if undo_us is None else "failed",
        "groups": [{"group": 1, "view": 0, "master": "n0", "at_us": at_us, "actions": [action]}],
        "undone": [] if undo_us is None else [{"iid": action["iid"], "vertex": "book", "took_us": undo_us}],
    }


def test_histories_are_exported_once_and_recent_ones_weigh_more(tmp_path: Path, spark: Any) -> None:
    with pytest.raises(CallerError, match="no histories"):
        learn(spark, str(tmp_path))
    log = EventLog(tmp_path / "log")
    old = [told(n, HOUR_US + n, 1_000) for n in range(30)]
    new = [told(100 + n, 100 * HOUR_US + n, 9_000, 500 if n < 3 else None) for n in range(10)]
    assert export(old, log) == 30
    assert export([*old, *new], log) == 10
    assert export([*old, *new], log) == 0
    [cost] = learn(spark, str(tmp_path), half_life_s=6 * 3600)
    assert cost == Cost("trip", "book", 40, 9_000, 9_000, 3, 500)
    [flat] = learn(spark, str(tmp_path), half_life_s=1e9)
    assert (flat.p50_us, flat.p95_us) == (1_000, 9_000)
    changes = [{"node": "n0", "at_us": 100 * HOUR_US + n, "took_us": 300_000 + n} for n in range(3)]
    assert export(new, log, changes) == export(new, log, changes) == 0  # no instance, and each change once
    learned = learn(spark, str(tmp_path))
    assert [(cost.process, cost.action, cost.seen) for cost in learned] == [("", VIEW_CHANGE, 3), ("trip", "book", 40)]
    assert view_change_of(learned) == 300_002


def test_an_export_that_another_one_overtook_brings_what_is_missing() -> None:
    class Overtaken(MemoryStore):
        def create(self, name: str, data: bytes) -> bool:
            if "/segments/" in name and others:
                export([others.pop()], EventLog(self))
            return MemoryStore.create(self, name, data)

    others = [told(1, HOUR_US, 1_000)]
    log = EventLog(Overtaken())
    assert export([told(1, HOUR_US, 1_000), told(2, HOUR_US, 2_000)], log) == 1
    chain = log.chain(STREAM)
    assert chain.read(chain.base.from_us, TIME_MAX).column("instance").to_pylist() == ["i1", "i2"]


def test_a_write_stays_passive_whatever_its_learned_cost() -> None:
    trip = Process("trip", services=[Service("hotel")])

    @trip.action(service="hotel", write=True, cost=5)
    async def book() -> None: ...

    @trip.action(service="hotel", cost=5)
    async def look() -> None: ...

    trip.flow(book, look)
    for learned in ((0, 0), (1, 0), (10**9, 1)):
        priced = with_costs(trip, {"book": learned, "look": learned})
        modes = {name: group["active"] for group in explain(priced)["groups"] for name in group["actions"]}
        assert "book" not in modes["book"]


def test_groups_follow_what_was_learned_and_running_instances_keep_theirs() -> None:
    trip = Process("trip", services=[Service("hotel")])

    @trip.action(service="hotel", write=True, time=1_000)
    async def book() -> None: ...

    @trip.action(service="hotel", write=True, time=1_000)
    async def pay() -> None: ...

    trip.flow(book, pay)
    slow = with_costs(trip, {"book": (1_400_000, 0), "pay": (1_400_000, 0)})
    assert [group["actions"] for group in explain(trip)["groups"]] == [["book", "pay"]]
    assert [group["actions"] for group in explain(slow)["groups"]] == [["book"], ["pay"]]
    assert slow.graph.version != trip.graph.version
    assert with_costs(trip, {"book": (1_400_001, 0), "pay": (1_399_999, 0)}).graph.version == slow.graph.version


class Trip(msgspec.Struct):
    place: str = ""
    paid: bool = False


def trips() -> Process:
    trip = Process("trip", state=Trip)

    @trip.action(writes="place", time=1_000_000)
    async def book() -> str:
        return "sea"

    trip.flow(book, trip.receive("payment", writes="paid"))
    return trip


def test_from_the_histories_of_a_run_to_the_groups_of_the_next(tmp_path: Path, spark: Any) -> None:
    """What `process export`, `costs --write` and `node --costs` do one after the other."""
    trip = trips()

    async def first() -> list[dict[str, Any]]:
        async with Embedded([trip], tmp_path / "n.db") as engine:
            for number in range(5):
                await engine.start("trip", f"t{number}")
            for number in range(4):
                await engine.signal(f"t{number}", "payment", True)
                await engine.result(f"t{number}")
            return [engine.history(f"t{number}") for number in range(5)]

    assert export(asyncio.run(first()), EventLog(tmp_path / "log")) == 4  # one is still open
    learned = learn(spark, str(tmp_path))
    [book] = [cost for cost in learned if cost.action == "book"]
    assert (book.process, book.seen) == ("trip", 4)
    assert book.p95_us > 0
    (tmp_path / "costs.json").write_bytes(msgspec.json.encode(learned))

    async def again(costs: Path | None, also: list[Path], new: str, old: str) -> tuple[str, str]:
        """Start one, and let one that waits go on, with the version it was started with."""
        async with Embedded(priced([trip], costs, also), tmp_path / "n.db") as engine:
            await engine.start("trip", new)
            await engine.signal(old, "payment", True)
            await engine.result(old)
            return engine.query(new)["version"], engine.history(old)["version"]

    kept = keep(tmp_path / "costs.json", tmp_path)
    version, before = asyncio.run(again(kept, [], "t5", "t4"))
    assert before == trip.graph.version != version
    # Without costs again: an instance that was started with them is still served.
    assert asyncio.run(again(None, kept_in(tmp_path), "t6", "t5")) == (trip.graph.version, version)


def test_a_folder_keeps_the_costs_that_it_was_run_with_up_to_a_bound(tmp_path: Path) -> None:
    with pytest.raises(CallerError, match="write it with `unerring costs --write"):
        keep(tmp_path / "none.json", tmp_path)
    given = tmp_path / "given.json"
    given.write_text("[{}]")
    with pytest.raises(CallerError, match="invalid costs file"):
        keep(given, tmp_path)
    for number in range(COSTS_KEPT_MAX + 3):
        given.write_bytes(msgspec.json.encode([Cost("p", "a", number, 1, 1, 0, 0)]))
        newest = keep(given, tmp_path)
    assert kept_in(tmp_path)[-1] == newest == keep(given, tmp_path)
    assert len(kept_in(tmp_path)) == COSTS_KEPT_MAX
