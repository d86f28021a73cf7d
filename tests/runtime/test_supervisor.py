"""The supervisor: processes are started, started again when they died, found by a successor, and ended in order."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from unerring.model import DiskError
from unerring.runtime import os_processes
from unerring.runtime.restarts import EXIT_FINAL, GivenUp, RestartsConfig
from unerring.runtime.supervisor import Supervisor
from unerring.runtime.timeline import Timeline

AT_ONCE = RestartsConfig(pause_s_min=0.0, pause_s_max=0.0, tries_max=3)
LIVING = [sys.executable, "-c", "import signal; signal.pause()"]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(600):
        while not condition():
            await asyncio.sleep(0.01)


def supervisor(
    folder: Path, command: list[str], stuck: tuple[str, ...] = (), say: list[str] | None = None
) -> Supervisor:
    spoken = [] if say is None else say
    return Supervisor(folder, lambda name: command, lambda name: stuck, spoken.append, AT_ONCE)


def test_what_died_is_started_again_and_all_end_with_the_run(tmp_path: Path) -> None:
    said: list[str] = []

    async def play() -> list[int]:
        kept = supervisor(tmp_path, LIVING, say=said)
        kept.begin("a/0")
        await until(lambda: "a/0" in kept.processes)
        first = kept.processes["a/0"].pid
        os.kill(first, signal.SIGKILL)
        await until(lambda: kept.processes["a/0"].pid != first)
        second = kept.processes["a/0"].pid
        assert kept.restarts == 1
        await kept.end_all()
        kept.check()
        return [first, second]

    first, second = asyncio.run(play())
    assert all(os_processes.began_at(pid) is None for pid in (first, second))
    assert [(entry.who, entry.what, entry.said) for entry in Timeline(tmp_path).added()] == [
        ("a/0", "started", f"as process {first}"),
        ("a/0", "died", f"process {first} ended by SIGKILL"),
        ("a/0", "started", f"as process {second}"),
        ("a/0", "ended", "with the run"),
    ]
    assert said == [f"a/0 ended by SIGKILL; it is started again (see {tmp_path / 'logs' / 'a.0.log'})"]


def test_a_successor_finds_the_processes_of_one_that_was_killed(tmp_path: Path) -> None:
    async def play() -> None:
        log = os_processes.log_of(tmp_path, "a/0")
        left = await os_processes.start(tmp_path, "a/0", LIVING, log, {})
        kept = supervisor(tmp_path, LIVING)
        kept.begin("a/0")
        await until(lambda: "a/0" in kept.processes)
        assert kept.processes["a/0"].pid == left.pid
        await kept.end("a/0")
        await until(lambda: not left.alive)  # it is gone, and its parent, which is this process, is told so
        await kept.end_all()

    asyncio.run(play())
    assert Timeline(tmp_path).added() == [], "it was neither started nor did it end with this run"


@pytest.mark.parametrize(("code", "starts"), [(1, 3), (EXIT_FINAL, 1)])
def test_what_the_run_needs_and_what_keeps_ending_ends_the_run(tmp_path: Path, code: int, starts: int) -> None:
    program = f"import sys; print('no rules here', flush=True); sys.exit({code})"

    async def play() -> None:
        kept = supervisor(tmp_path, [sys.executable, "-c", program], stuck=("a/0", "a/1"))
        kept.begin("a/0")
        async with asyncio.timeout(600):
            await kept.stopping.wait()
        await kept.end_all()
        kept.check()

    with pytest.raises(GivenUp, match=r"a/0 and a/1 cannot go on: no rules here \(see .*a\.0\.log\)"):
        asyncio.run(play())
    assert [entry.what for entry in Timeline(tmp_path).added()].count("started") == starts


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("no folder")

    async def play() -> None:
        kept = supervisor(tmp_path, LIVING)
        kept.begin("a/0")
        async with asyncio.timeout(600):
            await kept.stopping.wait()
        await kept.end_all()
        kept.check()

    with pytest.raises(DiskError, match=r"cannot be written \(.*logs.*\); free space there, then start the run again"):
        asyncio.run(play())
