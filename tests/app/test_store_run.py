"""A run whose log is on a real S3 server: the host may be lost in the middle, and nothing but time is lost with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.app.store_runs import StoreRun, level_at, sealed_objects, sealed_segments
from tests.pipeline import kills
from tests.s3 import OWNER
from unerring.app.place import place_of
from unerring.pipeline.versions import enter

ON_THE_STORE = {"check", "log", "owner.json", "roots", "run.json", "savepoints", "states"}
"""All that must survive a host, and what the check of a store leaves on some of them: an empty folder."""


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return kills.undisturbed(tmp_path_factory.mktemp("undisturbed"), seed=5)


@pytest.mark.long
def test_the_host_is_lost_in_the_middle_and_another_goes_on(
    s3_bucket: str, java: Path, tmp_path: Path, wanted: dict[str, bytes]
) -> None:
    address = f"{s3_bucket}/{tmp_path.name}"
    first, second = (place_of(address, tmp_path / name) for name in ("first", "second"))
    kills.prepare_level(level_at(first), seed=5)
    run = StoreRun(first, "--once", "--micro-batches", "--master", "local[2]")
    try:
        assert run.until(lambda: sealed_segments(first) >= 2), run.output
    finally:
        run.lose_the_host()
    before = sealed_objects(first)
    assert 2 <= len([name for name in before if name.startswith("W1/")]) < len(wanted) / 3, "it was killed too late"
    again = StoreRun(second, "--once", "--micro-batches", "--master", "local[2]")
    assert again.until(lambda: sealed_segments(first) > 2), again.output
    assert not [line for line in again.command_lines() if OWNER[1] in line], "process lists are for everybody"
    assert again.end() == 0, again.output
    written = [path for path in second.scratch.rglob("*") if path.is_file()]
    assert len(written) > 5
    assert not [path for path in written if OWNER[1].encode() in path.read_bytes()]
    assert sealed_objects(second) == wanted
    assert {name: wanted[name] for name in before} == before
    assert set(first.store.names("")) <= ON_THE_STORE
    assert not first.scratch.exists()
    enter(level_at(second))  # its rules are known on the store
