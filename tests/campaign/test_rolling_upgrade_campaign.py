"""Three hosts around a store go from the last release to this one, one after the other, under load: nothing is lost,
nothing is done twice, and situations do not wait longer than for a host that is lost."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.campaign.plant.spread_world import HOT_EVERY
from tests.campaign.spread import PATIENCE_S, PER_S, Spread, lags, longest, spread_hosts

GOAL_S = {"Warm": 5.0, "heat": 5.0, "live": 1.0}
"""How much longer than otherwise a stream may stand still, and a situation come after its event."""
PORT = 9464
READY = f"import urllib.request; urllib.request.urlopen('http://127.0.0.1:{PORT}/readyz', timeout=60)"


@pytest.fixture
def spread(tmp_path: Path, server: Any, java: Path) -> Iterator[Spread]:
    with spread_hosts(tmp_path, server, older=True) as made:
        yield made


def until_ready(spread: Spread, host: str) -> None:
    """As docs/operations.md says: before the next host is taken down."""
    until_s = time.monotonic() + PATIENCE_S
    while spread.hosts[host].run(sys.executable, "-c", READY).returncode:
        assert time.monotonic() < until_s, (spread.folder / f"{host}.log").read_text()
        spread.pause.wait(0.5)


@pytest.mark.timeout(3600)
def test_each_host_in_turn_gets_the_new_release(spread: Spread, blows: Counter[str]) -> None:
    with spread.around(), spread.received() as received:
        for host in "abc":
            spread.run(host, source="older/src")
        spread.ask("sealed", 5 * PER_S)
        spread.until_whole({})
        calm_s = time.monotonic()
        spread.pause.wait(20)
        calm = calm_s, time.monotonic()
        rolled: dict[str, tuple[float, float]] = {}
        for host in "abc":
            before, from_s = spread.on(host), time.monotonic()
            spread.take_down(host)
            spread.run(host, f"--metrics-port={PORT}")
            until_ready(spread, host)
            spread.until_whole(before)
            spread.ask("sealed", len(spread.ask("numbers")) + 5 * PER_S)
            rolled[host] = from_s, time.monotonic()
            blows["host upgraded"] += 1
        published = spread.ask("end")
        spread.ask("sealed", published)
        moved = spread.ask("moved")
        hot = list(range(0, published, HOT_EVERY))
        until_s = time.monotonic() + PATIENCE_S
        while len(spread.ask("noted")) < len(hot) and time.monotonic() < until_s:
            spread.pause.wait(0.5)
        noted, numbers, audited = spread.ask("noted"), spread.ask("numbers"), spread.audit()
    calm_pauses = {stream: longest(moved[stream], *calm) for stream in ("Warm", "heat")}
    made = {"received": received.moved, "sealed": moved["heat"]}
    calm_lags = {name: max(lags(moved["Warm"], one, *calm)) for name, one in made.items()}
    print(f"calm: pauses {calm_pauses}, lags {calm_lags}")
    for host, (from_s, to_s) in rolled.items():
        more = {stream: longest(moved[stream], from_s, to_s) - calm_pauses[stream] for stream in ("Warm", "heat")}
        for name, one in made.items():
            more[name] = max(lags(moved["Warm"], one, from_s - 1, to_s)) - calm_lags[name]
        print(f"{host} in {to_s - from_s:.0f} s: {', '.join(f'{name} {s:.2f} s' for name, s in more.items())} longer")
    assert numbers == list(range(published)), "each event is a situation, once and in order"
    assert sorted(number for number, _ in noted) == hot, "what is to be acted on is"
    assert all(times == 1 for _, times in noted), "and only once"
    assert audited.returncode == 0, audited.stdout + audited.stderr
