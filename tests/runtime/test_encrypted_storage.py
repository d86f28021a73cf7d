"""A storage whose records may hold secret values: none of them can be read without the ring of keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from unerring.log import KEYS_VARIABLE, MissingKey, new_ring, rotate
from unerring.model import DiskError, Persist
from unerring.runtime.storage import SqliteStorage, settled


def test_records_are_encrypted_and_read_by_any_who_have_the_ring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_ring(tmp_path / "ring")
    monkeypatch.setenv(KEYS_VARIABLE, str(tmp_path / "ring"))
    path = tmp_path / "replica.db"
    storage = SqliteStorage(path, encrypted=True)
    storage.write([Persist(puts=(("event/1", b"card 4111"), ("event/2", b"")))])
    rotate(tmp_path / "ring")
    storage.write([Persist(puts=(("event/3", b"card 4222"),), deletes=("event/2",))])
    assert storage.load("event/") == {"event/1": b"card 4111", "event/3": b"card 4222"}
    assert not any(b"card" in file.read_bytes() for file in tmp_path.iterdir())
    storage.close()
    assert settled(path, "event/3") == b"card 4222"
    plain = SqliteStorage(path)
    assert plain.load()["event/1"] == b"card 4111"
    plain.write([Persist(puts=(("event/4", b"open"),))])
    monkeypatch.delenv(KEYS_VARIABLE)
    with pytest.raises((MissingKey, DiskError), match="no keys are named"):
        plain.load()
    plain.close()
