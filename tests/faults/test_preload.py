"""The preloaded library itself: a fault that nobody feels tries nothing, and none may hang its process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults import HOUR_S, Faults
from tests.runtime.test_storage import check_kept, start_writer

CLOCKS = """
import asyncio, json, sys, threading, time
from time import sleep  # what is tried, not how a test waits

def waits():
    threading.Event().wait(0.05)  # sem_clockwait
    sleep(0.05)  # clock_nanosleep until a time
    asyncio.run(asyncio.sleep(0.05))
    busy = [threading.Thread(target=lambda: sum(range(1_000_000))) for _ in range(3)]
    [thread.start() for thread in busy]  # pthread_cond_timedwait, for the interpreter's lock
    [thread.join(60) for thread in busy]

for line in sys.stdin:
    waits()
    told = time.time(), time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME), time.process_time()
    print(json.dumps(told), flush=True)
"""


@contextmanager
def clocks(faults: Faults) -> Iterator[Callable[[], list[float]]]:
    """How far a process's clocks are ahead of ours, as often as it is asked, each time after it has waited."""
    command = [sys.executable, "-c", CLOCKS]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **faults.environment}, text=True
    )
    asked, answered = process.stdin, process.stdout
    assert asked is not None
    assert answered is not None

    def ask() -> list[float]:
        asked.write("\n")
        asked.flush()
        told = json.loads(answered.readline())
        ours = time.time(), time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME)
        return [theirs - mine for theirs, mine in zip(told[:3], ours, strict=True)] + told[3:]

    try:
        yield ask
    finally:
        asked.close()
        answered.close()
        process.wait(600)


@pytest.mark.timeout(120)
def test_clocks_leap_and_nobody_waits_for_them(faulty: Path, tmp_path: Path) -> None:
    faults = Faults(faulty, tmp_path / "control", tmp_path)
    near = 60.0
    with clocks(faults) as ask:
        assert ask()[:3] == pytest.approx([0, 0, 0], abs=near)
        assert faults.clocks_read == 0
        faults.leap(wall_s=HOUR_S)
        assert ask()[:3] == pytest.approx([HOUR_S, 0, 0], abs=near)
        faults.leap(wall_s=-2 * HOUR_S, elapsed_s=HOUR_S)
        assert ask()[:3] == pytest.approx([-HOUR_S, HOUR_S, HOUR_S], abs=near)
        assert ask()[3] < near, "the time that it works is nobody's clock"
        assert faults.clocks_read > 0
    with clocks(faults) as ask:  # a host's clock stays wrong when a process is started again
        assert ask()[:3] == pytest.approx([-HOUR_S, HOUR_S, HOUR_S], abs=near)


@pytest.mark.parametrize(("blow", "why"), [(Faults.fail_syncs, "disk I/O error"), (Faults.fill, "full")])
def test_a_disk_that_fails_stops_its_writer(
    blow: Callable[[Faults], None], why: str, faulty: Path, tmp_path: Path
) -> None:
    path = tmp_path / "storage.db"
    faults = Faults(faulty, tmp_path / "control", path)
    writer = start_writer(path, before=["env", *(f"{k}={v}" for k, v in faults.environment.items())])
    kept, failed = -1, ""
    for line in writer.stdout:
        word, _, rest = line.strip().partition(" ")
        if word == "kept":
            kept = int(rest)
            if kept == 20:
                assert faults.disk_felt == 0
                blow(faults)
        elif word == "failed":
            failed = rest
    writer.stdout.close()
    assert writer.wait(600) == 0
    assert re.search(rf"could not be written .*{why}.*; this replica must stop", failed)
    assert faults.disk_felt > 0
    check_kept(path, kept)


def test_a_disk_that_is_slow_or_lies_is_felt_and_elsewhere_nothing_is(faulty: Path, tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    faults = Faults(faulty, tmp_path / "control", tmp_path / "bad")
    for folder, felt in ((tmp_path, 0), (tmp_path / "bad", 1)):
        for blow in (faults.lie, lambda: faults.slow_syncs(0.2)):
            faults.mend()
            before, began_s = faults.disk_felt, time.monotonic()
            blow()
            synced = f"import os; file = os.open({str(folder / 'file')!r}, os.O_CREAT | os.O_WRONLY); os.fsync(file)"
            subprocess.run(
                [sys.executable, "-c", synced], check=True, timeout=600, env={**os.environ, **faults.environment}
            )
            assert faults.disk_felt - before == felt
    assert time.monotonic() - began_s >= 0.2
    assert faults.struck == {"disk lies": 2, "disk slow": 2}


def test_a_monotonic_clock_does_not_go_back(faulty: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not go back"):
        Faults(faulty, tmp_path / "control", tmp_path).leap(elapsed_s=-1)
