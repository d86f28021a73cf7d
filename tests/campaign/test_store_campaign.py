"""Runs on a real S3 server whose hosts are lost again and again; executors that see nothing but the store."""

from __future__ import annotations

import os
import random
import stat
import sys
from pathlib import Path

import pytest

from tests.app.store_runs import StoreRun, level_at, sealed_objects, sealed_segments
from tests.pipeline import kills
from unerring.app.place import Place, place_of

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
        run = StoreRun(host, "--once", "--master", "local[2]")
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
    run = StoreRun(host, "--once", "--master", "local-cluster[2,1,1024]")
    blind: set[int] = set()

    def sealed() -> bool:
        blind.update(pid for pid in run.pids() if _sees(pid, host.scratch / ".blind"))
        return sealed_segments(place) >= 3

    run.until(sealed)
    assert run.end() == 0, run.output
    assert blind, "no worker of an executor had a world of its own"
    assert sealed_objects(place) == wanted


def _sees(pid: int, path: Path) -> bool:
    return os.path.exists(f"/proc/{pid}/root{path}")
