"""Stable storage: one conformance body for memory and SQLite, then what only a real disk can do to us."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from unerring.model import ConfigError, DiskError, Persist
from unerring.runtime.storage import MemoryStorage, SqliteStorage, StorageConfig


@pytest.fixture(params=["memory", "sqlite"])
def storage(request, tmp_path):
    made = MemoryStorage() if request.param == "memory" else SqliteStorage(tmp_path / "state" / "storage.db")
    yield made
    made.close()


def put(**records):
    return Persist(puts=tuple(records.items()))


def test_what_was_written_is_loaded_in_key_order(storage):
    assert storage.load() == {}
    storage.write([put(b=b"2", a=b"1"), put(c=b"3", a=b"one")])
    assert list(storage.load().items()) == [("a", b"one"), ("b", b"2"), ("c", b"3")]


def test_deletes_and_puts_apply_in_order(storage):
    storage.write([put(a=b"1"), Persist(deletes=("a", "never there")), put(b=b"2")])
    assert storage.load() == {"b": b"2"}
    storage.write([Persist(puts=(("b", b"new"),), deletes=("b",))])
    assert storage.load() == {"b": b"new"}, "within one Persist, deletes come first"
    storage.write([])
    storage.write([Persist()])
    assert storage.load() == {"b": b"new"}


def test_a_prefix_selects(storage):
    storage.write(
        [put(**{"view": b"", "view/1": b"x", "view/2": b"y", "vote": b"z", "ä": b"\x00", "view/\U0010ffff!": b"w"})]
    )
    assert list(storage.load("view/")) == ["view/1", "view/2", "view/\U0010ffff!"]
    assert list(storage.load("ä")) == ["ä"]
    assert list(storage.load("view/", without="/1")) == ["view/2", "view/\U0010ffff!"]
    assert list(storage.load(without="w/1")) == [key for key in storage.load() if not key.endswith("w/1")]
    assert storage.load("w") == {}


def test_after_close_nothing_is_taken(storage):
    storage.close()
    with pytest.raises(DiskError, match="closed"):
        storage.write([put(a=b"1")])
    with pytest.raises(DiskError, match="closed"):
        storage.load()


_KEYS = st.text(max_size=4)
_PERSISTS = st.builds(
    Persist,
    puts=st.lists(st.tuples(_KEYS, st.binary(max_size=20)), max_size=4).map(tuple),
    deletes=st.lists(_KEYS, max_size=3).map(tuple),
)


@settings(max_examples=20)
@given(st.lists(st.lists(_PERSISTS, max_size=3), max_size=5), st.text(max_size=2))
def test_sqlite_is_memory_that_survives(tmp_path_factory, batches, prefix):
    path = tmp_path_factory.mktemp("property") / "storage.db"
    memory = MemoryStorage()
    for batch in batches:
        disk = SqliteStorage(path, StorageConfig(checkpoint_bytes=4096))
        memory.write(batch)
        disk.write(batch)
        assert list(disk.load().items()) == list(memory.load().items())
        disk.close()
    disk = SqliteStorage(path)
    assert list(disk.load(prefix).items()) == list(memory.load(prefix).items())
    disk.close()


def test_one_process_owns_it(tmp_path):
    path = tmp_path / "storage.db"
    storage = SqliteStorage(path)
    with pytest.raises(DiskError, match=r"in use by another process; stop that one first"):
        SqliteStorage(path)
    other = subprocess.run(
        [sys.executable, "-c", "import sys; from unerring.runtime.storage import *; SqliteStorage(sys.argv[1])", path],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert "in use by another process" in other.stderr
    storage.write([put(a=b"still mine")])
    storage.close()
    storage = SqliteStorage(path)
    assert storage.load() == {"a": b"still mine"}
    storage.close()


def test_the_write_ahead_log_stays_small(tmp_path):
    path = tmp_path / "storage.db"
    storage = SqliteStorage(path, StorageConfig(checkpoint_bytes=100_000))
    log = Path(f"{path}-wal")
    largest = 0
    for n in range(200):
        storage.write([put(state=bytes([n % 251]) * 10_000)])
        largest = max(largest, log.stat().st_size)
    storage.close()
    assert largest < 1_000_000


def test_another_programs_file_is_left_alone(tmp_path):
    path = tmp_path / "theirs.db"
    theirs = sqlite3.connect(path)
    theirs.execute("CREATE TABLE records (key TEXT)")
    theirs.commit()
    theirs.close()
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="of another program"):
        SqliteStorage(path)
    assert path.read_bytes() == before


def test_a_later_format_is_refused(tmp_path):
    path = tmp_path / "storage.db"
    SqliteStorage(path).close()
    newer = sqlite3.connect(path)
    newer.execute("PRAGMA user_version=2")
    newer.commit()
    newer.close()
    with pytest.raises(ConfigError, match="version 2"):
        SqliteStorage(path)


@pytest.mark.parametrize("damage", ["not a database", "flipped bit in a value", "pages overwritten"])
def test_corruption_is_noticed_and_nothing_is_invented(tmp_path, damage):
    path = tmp_path / "storage.db"
    storage = SqliteStorage(path)
    storage.write([put(**{f"key{n:04}": b"value of the record" * 20 for n in range(200)})])
    storage.close()
    data = bytearray(path.read_bytes())
    if damage == "not a database":
        data = bytearray(b"garbage" * 1000)
    elif damage == "flipped bit in a value":
        data[data.index(b"value of the record") + 3] ^= 0x10
    else:
        data[8192:24576] = b"\xa5" * 16384
    path.write_bytes(data)
    with pytest.raises(DiskError, match=r"storage\.db could not be"):
        SqliteStorage(path).load()


def test_a_key_that_is_no_text_stops_the_storage_but_loses_nothing(tmp_path):
    storage = SqliteStorage(tmp_path / "storage.db")
    storage.write([put(a=b"kept")])
    with pytest.raises(UnicodeEncodeError):
        storage.write([put(b=b"not kept"), Persist(puts=(("\ud800", b""),))])
    with pytest.raises(DiskError):
        storage.write([put(c=b"")])
    storage.close()
    storage = SqliteStorage(tmp_path / "storage.db")
    assert storage.load() == {"a": b"kept"}
    storage.close()


WRITER = """
import sys
from unerring.model import DiskError, Persist
from unerring.runtime.storage import SqliteStorage, StorageConfig

storage = SqliteStorage(sys.argv[1], StorageConfig(checkpoint_bytes=40_000))
n = len(storage.load("record"))
print("open", n, flush=True)
while n < int(sys.argv[2]):
    try:
        storage.write([Persist(puts=((f"record{n:08}", b"%08d" % n * 100), ("last", b"%d" % n)))])
    except DiskError as error:
        print("failed", error, flush=True)
        try:
            storage.write([Persist()])
        except DiskError as error:
            print("again", error, flush=True)
        break
    print("kept", n, flush=True)
    n += 1
"""


def start_writer(path, count=1_000_000, before=()):
    environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    return subprocess.Popen(
        [*before, sys.executable, "-c", WRITER, str(path), str(count)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )


def check_kept(path, kept):
    """Everything acknowledged is there; at most the one write under way is there besides; nothing is torn."""
    storage = SqliteStorage(path)
    records = storage.load("record")
    assert kept < len(records) <= kept + 2
    assert list(records.values()) == [b"%08d" % n * 100 for n in range(len(records))]
    assert int(storage.load("last")["last"]) == len(records) - 1
    storage.close()


def test_kill_in_the_middle_of_writes_loses_nothing_acknowledged(tmp_path):
    path = tmp_path / "storage.db"
    kept = -1
    for round in range(6):
        writer = start_writer(path)
        for line in writer.stdout:
            if line.startswith("kept"):
                kept = int(line.split()[1])
                if kept >= (round + 1) * 23:
                    break
        writer.kill()  # SIGKILL, most likely inside a write
        whole = writer.stdout.read().rpartition("\n")[0]  # the kill may have cut the last line
        kept = max([kept, *(int(line.split()[1]) for line in whole.splitlines() if "kept" in line)])
        writer.stdout.close()
        assert writer.wait(600) == -9
        check_kept(path, kept)


def test_a_failing_sync_is_never_tried_again(tmp_path, server):
    """fsync fails for real, by libfiu's preloaded library: the commit under way fails, and so does every later one."""
    path = tmp_path / "storage.db"
    control = tmp_path / "control"
    control.mkdir()
    writer = start_writer(path, before=[server("fiu-run"), "-x", "-f", str(control / "fiu")])
    kept = -1
    failed = again = ""
    for line in writer.stdout:
        word, _, rest = line.strip().partition(" ")
        if word == "kept":
            kept = int(rest)
            if kept == 20:
                enable_fault(server("fiu-ctrl"), control, writer, "posix/io/sync/fsync", "posix/io/sync/fdatasync")
        elif word == "failed":
            failed = rest
        elif word == "again":
            again = rest
    writer.stdout.close()
    assert writer.wait(600) == 0
    assert re.search(r"could not be written .*; this replica must stop", failed)
    assert "is closed after a failure" in again
    check_kept(path, kept)


def enable_fault(program, control, writer, *names):
    commands = [argument for name in names for argument in ("-c", f"enable name={name},failinfo=5")]
    subprocess.run([program, "-f", str(control / "fiu"), *commands, str(writer.pid)], check=True, timeout=600)


ON_TINY_DISK = """
mount -t tmpfs -o size=256k tmpfs "$1" && shift && "$@"
status=$?
cp -r "$0/." "$RESCUED" && exit $status
"""


def on_tiny_disk(mounted, rescued):
    """Run what follows with a 256 KiB disk at `mounted`, in a mount namespace that ends with it."""
    space = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
    return ["env", f"RESCUED={rescued}", *space, "sh", "-c", ON_TINY_DISK, str(mounted), str(mounted)]


def test_a_full_disk_stops_the_writer_and_loses_nothing_acknowledged(tmp_path):
    tiny, rescued = tmp_path / "tiny", tmp_path / "rescued"
    tiny.mkdir()
    rescued.mkdir()
    writer = start_writer(tiny / "storage.db", before=on_tiny_disk(tiny, rescued))
    output, _ = writer.communicate(timeout=600)
    assert writer.returncode == 0, output
    lines = output.splitlines()
    kept = max(int(line.split()[1]) for line in lines if line.startswith("kept"))
    assert any(re.search(r"failed .*full.*; this replica must stop", line) for line in lines)
    assert any("is closed after a failure" in line for line in lines)
    check_kept(rescued / "storage.db", kept)
