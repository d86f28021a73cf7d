"""A bit that flipped in SQLite's write-ahead log of a node that was killed: what was acknowledged is not forgotten."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import pytest

from unerring.model import DiskError, Persist
from unerring.runtime.storage import SqliteStorage, StorageConfig, check_file

SMALL = StorageConfig(checkpoint_bytes=1 << 16)
WRITES = 5


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """The files as they lie when the process is gone at once."""
    folder = tmp_path / "killed"
    folder.mkdir()
    with contextlib.closing(SqliteStorage(tmp_path / "a.db", SMALL)) as storage:
        for number in range(WRITES):
            storage.write([Persist(puts=((f"k{number}", b"x" * 50),))])
        for path in tmp_path.glob("a.db*"):
            shutil.copy(path, folder / path.name)
    return folder / "a.db"


def loaded(path: Path) -> list[str]:
    with contextlib.closing(SqliteStorage(path, SMALL)) as storage:
        return list(storage.load())


def test_all_is_there(killed: Path) -> None:
    check_file(killed)
    assert loaded(killed) == [f"k{number}" for number in range(WRITES)]


def test_a_flip_in_any_but_the_last_transaction_stops_the_replica(killed: Path) -> None:
    """SQLite would pass over that transaction and all after it."""
    wal = killed.with_name("a.db-wal")
    whole = wal.read_bytes()
    pages = 2 * (WRITES - 1)  # a page of the table and one of its index each
    for at in range(0, 32 + pages * (24 + 4096), 389):
        wal.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << at % 8)]) + whole[at + 1 :])
        with pytest.raises(DiskError, match="write-ahead log"):
            loaded(killed)
        with pytest.raises(DiskError, match="write-ahead log"):
            check_file(killed)
        assert wal.exists(), "nothing is removed"
    wal.write_bytes(whole)
    assert len(loaded(killed)) == WRITES


def test_a_transaction_that_power_was_lost_in_is_none(killed: Path) -> None:
    wal = killed.with_name("a.db-wal")
    whole = wal.read_bytes()
    half = 32 + (2 * WRITES - 1) * (24 + 4096) + 1000
    wal.write_bytes(whole[:half] + bytes(len(whole) - half))
    assert loaded(killed) == [f"k{number}" for number in range(WRITES - 1)]
