"""Learned costs: quantiles over exported histories, recent executions weighted more; what grouping makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from unerring.log import EventLog
from unerring.model import CallerError
from unerring.pipeline.costs import learn
from unerring.processes.build import Process
from unerring.processes.costs import with_costs
from unerring.processes.explain import explain
from unerring.processes.graph import Service
from unerring.runtime.process_export import Cost, export

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
        learn(spark, tmp_path)
    log = EventLog(tmp_path / "log")
    old = [told(n, HOUR_US + n, 1_000) for n in range(30)]
    new = [told(100 + n, 100 * HOUR_US + n, 9_000, 500 if n < 3 else None) for n in range(10)]
    assert export(old, log) == 30
    assert export([*old, *new], log) == 10
    assert export([*old, *new], log) == 0
    [cost] = learn(spark, tmp_path, half_life_s=6 * 3600)
    assert cost == Cost("trip", "book", 40, 9_000, 9_000, 3, 500)
    [flat] = learn(spark, tmp_path, half_life_s=1e9)
    assert (flat.p50_us, flat.p95_us) == (1_000, 9_000)


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
