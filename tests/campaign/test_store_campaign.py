"""Runs on a real S3 server whose hosts are lost again and again; executors that see nothing but the store."""

from __future__ import annotations

import os
import random
import stat
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.app.store_app import app
from tests.app.store_runs import StoreRun, level_at, sealed_objects, sealed_segments
from tests.pipeline import kills
from unerring.app.place import Place, place_of
from unerring.log import EventLog
from unerring.pipeline.rescaling import rescale
from unerring.runtime import processes

EVENTS = 4000
ROWS = 400
BLIND = """#!/bin/sh
# A Python worker of an executor finds an empty folder where the driver has its scratch; the driver's own do not.
case "$PWD" in
*/work/app-*)
    exec unshare -rm sh -c 'mount -t tmpfs none "$0" && touch "$0/.blind" && exec "$@"' {scratch} {python} "$@" ;;
*) exec {python} "$@" ;;
esac
"""


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return kills.undisturbed(tmp_path_factory.mktemp("undisturbed"), 7, EVENTS, ROWS)


def prepared(address: str, tmp_path: Path) -> Place:
    place = place_of(address, tmp_path / "prepared")
    kills.prepare_level(level_at(place), 7, EVENTS, ROWS)
    return place


@pytest.mark.parametrize("seed", range(3))
def test_a_host_after_the_other_is_lost(
    seed: int, s3_bucket: str, java: Path, tmp_path: Path, wanted: dict[str, bytes]
) -> None:
    drawn = random.Random(seed)
    place = prepared(f"{s3_bucket}/{tmp_path.name}", tmp_path)
    segments = len([name for name in wanted if name.startswith("W1/")])
    lost = 0
    for number in range(segments):
        host = place_of(place.address, tmp_path / f"host-{number}")
        run = StoreRun(host, "--once", "--micro-batches", "--master", "local[2]")
        goal = sealed_segments(place) + drawn.randrange(1, 4)
        if not run.until(lambda goal=goal: sealed_segments(place) >= goal):  # type: ignore[misc]
            assert run.end() == 0, run.output
            break
        run.lose_the_host()
        lost += 1
    assert lost >= 2
    assert sealed_objects(place) == wanted


def test_executors_that_see_nothing_but_the_store(
    s3_bucket: str, java: Path, tmp_path: Path, wanted: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = prepared(f"{s3_bucket}/{tmp_path.name}", tmp_path)
    host = place_of(place.address, tmp_path / "driver")
    worker = tmp_path / "python"
    worker.write_text(BLIND.format(scratch=host.scratch, python=sys.executable))
    worker.chmod(worker.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PYSPARK_PYTHON", str(worker))
    run = StoreRun(host, "--once", "--micro-batches", "--master", "local-cluster[2,1,1024]")
    blind: set[int] = set()

    def sealed() -> bool:
        blind.update(pid for pid in run.pids() if _sees(pid, host.scratch / ".blind"))
        return sealed_segments(place) >= 3

    run.until(sealed)
    assert run.end() == 0, run.output
    assert blind, "no worker of an executor had a world of its own"
    assert sealed_objects(place) == wanted


@pytest.mark.parametrize("lost", ["a", "b"])
def test_hot_standby_on_hosts_that_share_the_store_alone(lost: str, s3_bucket: str, java: Path, tmp_path: Path) -> None:
    """Two drivers, each on a host of its own; one host is lost for good, whether its driver leads or not."""
    kills.undisturbed(tmp_path / "undisturbed", 7, EVENTS, ROWS)
    whole = place_of(tmp_path / "undisturbed").log
    address = f"{s3_bucket}/{tmp_path.name}"
    place = place_of(address, tmp_path / "writer")
    events = whole.chain("Typed")
    chain = place.log.create(events.schema, 2)
    spans = events.spans(events.base.from_us, events.through_us)
    hosts = [option for name, at in (("a", "127.0.0.1"), ("b", "127.0.0.2")) for option in ("--host", f"{name}={at}")]
    runs = {
        name: StoreRun(place_of(address, tmp_path / name), "--f", "1", *hosts, "--here", name, "--master", "local[1]")
        for name in ("a", "b")
    }
    try:
        for number, span in enumerate(spans):
            chain.seal(span.through_us, events.read(span.from_us, span.through_us))
            if number == len(spans) // 2:
                for run in runs.values():
                    assert run.until(partial(_caught_up, run.place, span.through_us)), run.output
                runs[lost].lose_the_host()
        left = next(run for name, run in runs.items() if name != lost)
        assert left.until(partial(_sealed_through, place, events.through_us)), left.output
    finally:
        for run in runs.values():
            run.kill()
    for schema in app.outputs:
        assert _rows(place.log, schema.name) == _rows(whole, schema.name)


def _caught_up(place: Place, through_us: int) -> bool:
    """Whether the driver of a host may be counted on, and the outputs are sealed up to a time."""
    if not (place.live / "cluster.json").exists():
        return False
    states = [one["state"] for one in processes(place.live) if one["name"].startswith("spark/")]
    return "member" in states and _sealed_through(place, through_us)


def _sealed_through(place: Place, through_us: int) -> bool:
    return all(place.log.chain(schema.name).through_us >= through_us for schema in app.outputs)


def _rows(log: EventLog, stream: str) -> list[dict[str, object]]:
    chain = log.chain(stream)
    return list(chain.read(chain.base.from_us, chain.refresh()).to_pylist())


def _sees(pid: int, path: Path) -> bool:
    return os.path.exists(f"/proc/{pid}/root{path}")


def test_a_run_on_a_store_is_rescaled(s3_bucket: str, java: Path, tmp_path: Path) -> None:
    """In the middle, between two hosts."""
    kills.undisturbed(tmp_path / "undisturbed", 7, EVENTS, ROWS)
    whole = place_of(tmp_path / "undisturbed").log
    place = place_of(f"{s3_bucket}/{tmp_path.name}", tmp_path / "writer")
    events = whole.chain("Typed")
    chain = place.log.create(events.schema, 2)
    spans = events.spans(events.base.from_us, events.through_us)
    half = len(spans) // 2
    for number, part in enumerate((spans[:half], spans[half:])):
        for span in part:
            chain.seal(span.through_us, events.read(span.from_us, span.through_us))
        run = StoreRun(
            place_of(place.address, tmp_path / f"host-{number}"), "--once", "--micro-batches", "--master", "local[2]"
        )
        assert run.end() == 0, run.output
        if number == 0:
            assert rescale([level_at(place)], 5) == {1: spans[half - 1].through_us}
    assert level_at(place).buckets == 5
    for schema in app.outputs:
        assert _rows(place.log, schema.name) == _rows(whole, schema.name)
