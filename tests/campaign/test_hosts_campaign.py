"""Each of three hosts in turn is killed for good under load and replaced by an empty one."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.campaign.plant.spread_world import HOT_EVERY
from tests.campaign.spread import PATIENCE_S, PER_S, Spread, lags, longest, spread_hosts

GOAL_S = {"received": 1.0, "sealed": 5.0, "Warm": 5.0, "heat": 5.0}
"""How much longer than otherwise, when a host is lost, an application replica may have to wait for situations, they may
take until they are sealed, feeds may write nothing, and nothing may be sealed."""


@pytest.fixture
def spread(tmp_path: Path, server: Any, java: Path) -> Iterator[Spread]:
    with spread_hosts(tmp_path, server) as made:
        yield made


@pytest.mark.timeout(3600)
def test_each_host_in_turn_is_lost_for_good_and_replaced_by_an_empty_one(spread: Spread, blows: Counter[str]) -> None:
    with spread.around(), spread.received() as received:
        for host in "abc":
            spread.run(host)
        spread.ask("sealed", 5 * PER_S)
        spread.until_whole({})
        calm_s = time.monotonic()
        spread.pause.wait(20)
        lost: dict[str, tuple[float, float]] = {}
        calm = calm_s, time.monotonic()
        for host in "abc":
            before = spread.on(host)
            sealed = len(spread.ask("numbers"))
            spread.hosts[host].lose()
            blows["host lost"] += 1
            lost_s = time.monotonic()
            spread.ask("sealed", sealed + 15 * PER_S)
            lost[host] = lost_s, time.monotonic()
            spread.replace(host)
            spread.until_whole(before)
            spread.ask("sealed", len(spread.ask("numbers")) + 5 * PER_S)
        published = spread.ask("end")
        spread.ask("sealed", published)
        moved = spread.ask("moved")
        until_s = time.monotonic() + PATIENCE_S
        hot = list(range(0, published, HOT_EVERY))
        while len(spread.ask("noted")) < len(hot) and time.monotonic() < until_s:
            spread.pause.wait(0.5)
        noted = spread.ask("noted")
        numbers = spread.ask("numbers")
        audited = spread.audit()
    without = {stream: longest(moved[stream], *calm) for stream in ("Warm", "heat")}
    made = {"received": received.moved, "sealed": moved["heat"]}
    calm_lags = {name: lags(moved["Warm"], one, *calm) for name, one in made.items()}
    said = [f"{name} p50 {statistics.median(lag):.2f} max {max(lag):.2f} s" for name, lag in calm_lags.items()]
    print(f"calm: pauses {without}, lags: {', '.join(said)}")
    worst: dict[str, list[float]] = {name: [] for name in GOAL_S}
    for host, (from_s, to_s) in lost.items():
        for stream in ("Warm", "heat"):
            worst[stream].append(longest(moved[stream], from_s, to_s) - without[stream])
        for name, one in made.items():
            worst[name].append(max(lags(moved["Warm"], one, from_s - 1, to_s)) - max(calm_lags[name]))
        print(
            f"{host} lost: {', '.join(f'{name} {found[-1]:.2f} s' for name, found in worst.items())} longer than calm"
        )
    for name, found in worst.items():
        print(f"{name}: p50 {statistics.median(found):.2f} s, max {max(found):.2f} s (goal {GOAL_S[name]} s)")
    assert numbers == list(range(published)), "each event is a situation, once and in order"
    assert sorted(number for number, _ in noted) == hot, "what is to be acted on is"
    assert all(times == 1 for _, times in noted), "and only once"
    assert audited.returncode == 0, audited.stdout + audited.stderr
