"""What of a run is where: a folder has everything, a store what must survive, this host the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from unerring.app.place import Place, clear, place_of, scratch_for
from unerring.log import LocalStore, MemoryStore


def test_a_folder_is_its_own_scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("run", Path("run"), f"file://{tmp_path}/run"):
        assert place_of(name) == Place(str(tmp_path / "run"), tmp_path / "run")
    assert place_of("run").is_folder
    assert place_of("run", "here") == Place(str(tmp_path / "run"), tmp_path / "here")
    assert place_of(place_of("run", "here")) == place_of("run", "here")


def test_a_store_has_a_scratch_folder_of_this_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    place = place_of("s3://bucket/run/")
    assert place.address == "s3://bucket/run"
    assert place.scratch == scratch_for("s3://bucket/run")
    assert place.scratch.parent == tmp_path / "unerring"
    assert place.scratch != place_of("s3://bucket-run").scratch, "addresses that look alike as names"
    assert not place.is_folder
    assert place.log.store.locate("") == "s3://bucket/run/log"
    assert not list(tmp_path.iterdir()), "naming a place makes nothing"


def test_looking_costs_money_at_a_store() -> None:
    assert place_of("s3://bucket/run").look_s(0.05) == 1.0
    assert place_of("s3://bucket/run").look_s(5.0) == 5.0
    assert place_of("folder").look_s(0.05) == 0.05


def test_what_is_cleared_is_gone_with_all_that_is_in_it(tmp_path: Path) -> None:
    for store in (MemoryStore(), LocalStore(tmp_path)):
        for name in ("keep", "audit/a", "audit/b/c", "audit/b/d"):
            store.replace(name, b"x")
        clear(store.within("audit"))
        assert [name for name in ("keep", "audit/a", "audit/b/c", "audit/b/d") if store.read(name)] == ["keep"]
