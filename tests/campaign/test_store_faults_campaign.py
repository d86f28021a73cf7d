"""Real runs on a real S3 server behind a gate that loses, refuses, delays and cuts."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from tests.app.live_tree import readings
from tests.app.store_hosts import store_hosts
from tests.app.store_runs import StoreRun, level_at, sealed_objects
from tests.pipeline import kills
from tests.s3 import S3Server
from tests.store_gate import KINDS, store_gate
from unerring.app import place_of

EVENTS = 4000
ROWS = 400
SHARE = 0.04
PIECES = 30


@pytest.mark.timeout(1800)
def test_three_hosts_go_on_while_their_store_fails_and_one_is_lost(
    seed: int, blows: Counter[str], s3: S3Server, s3_bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = readings(20 * PIECES)
    draw = random.Random(seed)
    address = f"{s3_bucket}/{tmp_path.name}"
    place_of(address, tmp_path / "mine").store.names("")  # the test itself goes to the server, not through the gate
    with store_gate(s3.endpoint, seed, SHARE) as gate:
        monkeypatch.setenv("AWS_ENDPOINT_URL", gate.endpoint)
        with store_hosts(tmp_path, address, events, "--evict-after=10s") as hosts:
            lost = draw.randrange(PIECES // 4, PIECES // 2)
            for piece in range(PIECES):
                hosts.feed(20 * piece, 20 * (piece + 1))
                hosts.until(lambda piece=piece: hosts.reached(events[max(0, 20 * piece - 20)].stamp.time))  # type: ignore[misc]
                if piece == lost:
                    hosts.lose(draw.choice("abc"))
                    blows["host lost"] += 1
            hosts.end()
        blows.update({f"store: {kind}": count for kind, count in gate.done.items()})
        assert all(gate.done[kind] for kind in KINDS), gate.done
    assert hosts.violations() == []


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("way", ["--micro-batches", "--resident"])
def test_a_run_on_spark_seals_the_same_although_its_store_fails(
    way: str,
    seed: int,
    blows: Counter[str],
    s3: S3Server,
    s3_bucket: str,
    java: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted = kills.undisturbed(tmp_path / "undisturbed", 7, EVENTS, ROWS)
    place = place_of(f"{s3_bucket}/{tmp_path.name}", tmp_path / "prepared")
    kills.prepare_level(level_at(place), 7, EVENTS, ROWS)
    with store_gate(s3.endpoint, seed, SHARE) as gate:
        monkeypatch.setenv("AWS_ENDPOINT_URL", gate.endpoint)
        options = ["--micro-batches"] if way == "--micro-batches" else []
        run = StoreRun(place_of(place.address, tmp_path / "host"), "--once", *options, "--master", "local[2]")
        assert run.end() == 0, run.output
        blows.update({f"store: {kind}": count for kind, count in gate.done.items()})
        assert gate.done.total() >= 10, gate.done
    assert sealed_objects(place) == wanted
