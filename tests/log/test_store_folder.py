"""A folder as a store: what it leaves on disk."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from unerring.log import LocalStore


def test_what_a_crashed_writer_left_aside_is_swept_after_an_hour(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.create("s/x", b"1")
    left = tmp_path / "s" / ".tmp" / "x.host.1.1"
    left.write_bytes(b"half")
    now = left.stat().st_mtime
    assert store.sweep(now + 60) == 0
    assert store.sweep(now + 3601) == 1
    assert store.names("s") == ["x"]


def test_a_lock_is_not_swept(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.replace_if("record", b"2", store.replace_if("record", b"1", None))
    (lock,) = (tmp_path / ".tmp").iterdir()
    assert store.sweep(lock.stat().st_mtime + 3601) == 0
    assert store.names("") == ["record"]


RAISE = """
import sys
from unerring.log import LocalStore
store = LocalStore(sys.argv[1])
for _ in range(20):
    while True:
        data, tag = store.read_tagged("counter")
        if store.replace_if("counter", b"%d" % (int(data) + 1), tag) is not None:
            break
"""


def test_processes_replace_one_after_the_other(tmp_path: Path) -> None:
    LocalStore(tmp_path).replace_if("counter", b"0", None)
    workers = [subprocess.Popen([sys.executable, "-c", RAISE, str(tmp_path)]) for _ in range(3)]
    assert [worker.wait(600) for worker in workers] == [0, 0, 0]
    assert LocalStore(tmp_path).read("counter") == b"60"


def test_its_folders_are_for_their_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        LocalStore(tmp_path / "run").create("s/t/x", b"1")
    finally:
        os.umask(before)
    for name in ("run", "run/s", "run/s/t"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o700
