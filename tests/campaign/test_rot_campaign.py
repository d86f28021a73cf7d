"""Every byte of every kind of file of small runs flipped once, and every bit of a segment: nothing stays unnoticed."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.live_tree import readings
from tests.app.small_run import APP, files, flips, make
from tests.app.tree_app import Reading
from tests.log.worlds import READING, table
from unerring.app.verifying import verify
from unerring.log import EventLog, LogWriter, MemoryStore
from unerring.log.segments import segment_name
from unerring.model import TIME_MIN, LogError, UnerringError, schema_of
from unerring.runtime.storage import SqliteStorage, StorageConfig

ROOT = Path(__file__).parent.parent.parent
DATABASES = "databases of nodes"
DATABASE_FLIPS = 250


def fill(data: Path) -> None:
    writer = LogWriter(EventLog(data / "log"), schema_of(Reading), None, 1)
    for number, event in enumerate(readings(200), 1):
        writer.append("p", (1, number), event.stamp, dict(event.payload), 0)
        if number % 20 == 0:
            writer.seal()
    writer.end(0)
    writer.seal()


def run_live(data: Path) -> None:
    fill(data)
    command = [sys.executable, "-m", "unerring", "run", APP, "--engine", "live", "--f", "0", "--durable"]
    run = subprocess.Popen([*command, "--data", str(data)], cwd=ROOT)
    deadline = time.monotonic() + 120
    while not list((data / "log" / "Peaks" / "segments").glob("*.parquet")):
        assert time.monotonic() < deadline
        with contextlib.suppress(subprocess.TimeoutExpired):
            raise AssertionError(f"the run ended with {run.wait(0.1)}")
    run.send_signal(signal.SIGINT)
    assert run.wait(60) == 0


def run_spark(data: Path) -> None:
    fill(data)
    command = [sys.executable, "-m", "unerring", "run", APP, "--once", "--master", "local[2]", "--data", str(data)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=300)


@pytest.fixture(scope="module", params=["made", "live", "spark"])
def data(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    {"made": make, "live": run_live, "spark": run_spark}[request.param](folder)
    found = verify(folder)
    assert not found.damage
    assert not sum(kind.unprotected for kind in found.kinds)
    return folder


def test_every_byte_of_every_kind_of_file(data: Path) -> None:
    """Of each kind, and each ending of names in it, the smallest file with something in it."""
    chosen: dict[tuple[str, str], Path] = {}
    for kind, _, path in sorted(files(data), key=lambda file: -file[2].stat().st_size):
        if path.stat().st_size:
            chosen[kind, path.suffix] = path
    silent = {}
    for kind, check, path in files(data):
        if kind == DATABASES or chosen.get((kind, path.suffix)) != path:
            continue
        tried, found = flips(path, check)
        sys.stdout.write(f"{data.name}: {kind}: {path.name}: {tried} flips, {found} found\n")
        if tried != found:
            silent[str(path)] = tried - found
    assert not silent


def records_in(path: Path) -> dict[str, bytes]:
    with contextlib.closing(SqliteStorage(path, StorageConfig(checkpoint_bytes=1 << 16))) as storage:
        return dict(storage.load())


def databases(data: Path) -> Iterator[Path]:
    return (path for kind, _, path in files(data) if kind == DATABASES)


def test_a_flip_in_a_database_is_found_or_changes_no_record(data: Path) -> None:
    path = next(databases(data), None)
    if path is None:
        return
    records = records_in(path)
    whole = path.read_bytes()
    tried = found = 0
    for at in range(0, len(whole), max(1, len(whole) // DATABASE_FLIPS)):
        for beside in path.parent.glob(f"{path.name}-*"):
            beside.unlink()
        path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << at % 8)]) + whole[at + 1 :])
        tried += 1
        try:
            assert records_in(path) == records
        except UnerringError:
            found += 1
    path.write_bytes(whole)
    sys.stdout.write(
        f"{data.name}: {DATABASES}: {path.name}: {tried} flips, {found} found, the others change nothing\n"
    )


def test_every_bit_of_a_segment() -> None:
    store = MemoryStore()
    chain = EventLog(store).create(READING, buckets=2)
    for end in (10, 20):
        chain.seal(end, table([end - 2, end - 1, end]), producers={"p": (0, end)})
    name = f"Reading/segments/{segment_name(TIME_MIN)}"
    whole = store.read(name) or b""
    for bit in range(8 * len(whole)):
        at = bit // 8
        store.replace(name, whole[:at] + bytes([whole[at] ^ (1 << bit % 8)]) + whole[at + 1 :])
        with pytest.raises(LogError, match=segment_name(TIME_MIN)):
            EventLog(store).chain("Reading").read(TIME_MIN, 20)
    sys.stdout.write(f"segment of {len(whole)} bytes: {8 * len(whole)} bits, all found\n")
