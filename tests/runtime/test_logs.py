"""Logs of a run's processes: each line has its time, or is an object that a program reads; files are bounded."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from unerring.runtime import os_processes, own_log
from unerring.runtime.lines import before
from unerring.runtime.logs import BYTES_MAX, LINES_PER_S_MAX, LOG_FILE, LOG_FORM, Logs, said
from unerring.runtime.restarts import last_words

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ")


def test_a_line_has_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    Logs().say("n0 runs")
    Logs().say("it fails", "error")
    first, second = capsys.readouterr().err.splitlines()
    assert LINE.match(first)
    assert [said(first), said(second)] == ["n0 runs", "it fails"]
    assert said("unerring: no time here") == "unerring: no time here"


def test_an_object_has_run_role_instance_and_trace(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LOG_FORM, "json")

    class Traces:
        def trace_id(self, of: int | str) -> str:
            return f"{of:032x}" if isinstance(of, int) else ""

    monkeypatch.setattr("unerring.runtime.logs.tracer", Traces)
    log = Logs()
    log.run, log.role = "plant", "n0"
    log.say("courier did not answer", "error", "relieve-Shortage-255-0")
    log.say("n0 runs")
    about, plain = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert LINE.match(about.pop("at") + " ")
    assert about == {
        "level": "error",
        "run": "plant",
        "role": "n0",
        "says": "courier did not answer",
        "instance": "relieve-Shortage-255-0",
        "trace_id": f"{255:032x}",
    }
    assert set(plain) == {"at", "level", "run", "role", "says"}


def test_of_a_flood_the_rest_is_counted(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1_000
    monkeypatch.setattr("unerring.runtime.logs.time.time_ns", lambda: now_s * 1_000_000_000)
    log = Logs()
    for number in range(LINES_PER_S_MAX + 17):
        log.say(str(number))
    now_s += 1
    log.say("later")
    lines = [said(line) for line in capsys.readouterr().err.splitlines()]
    assert lines[LINES_PER_S_MAX - 1 :] == ["49", "17 further lines of that second were left out", "later"]


def test_a_file_turns_once_it_is_too_large(tmp_path: Path) -> None:
    path = tmp_path / "n0.log"
    path.write_bytes(b"x" * (BYTES_MAX - 10) + b"\n")
    program = "from unerring.runtime import own_log as log\nfor n in range(3): log.say(f'line {n}')\nprint('to stdout')"
    with path.open("ab") as file:
        subprocess.run(
            [sys.executable, "-c", program],
            stdout=file,
            stderr=file,
            check=True,
            env={**os.environ, LOG_FILE: str(path)},
        )
    assert [said(line) for line in path.read_text().splitlines()] == ["line 1", "line 2", "to stdout"]
    assert before(path).read_text().endswith("line 0\n")


def test_what_a_process_wrote_without_end_is_set_aside_before_it_starts_again(tmp_path: Path) -> None:
    log = os_processes.log_of(tmp_path, "wild/0")
    log.parent.mkdir()
    log.write_bytes(b"x" * (BYTES_MAX + 1))

    async def play() -> None:
        process = await os_processes.start(tmp_path, "wild/0", [sys.executable, "-c", "print('begun')"], log, {})
        await process.wait()

    asyncio.run(play())
    assert log.read_text() == "begun\n"
    assert before(log).stat().st_size > BYTES_MAX


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_last_words_are_what_was_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setenv(LOG_FORM, form)
    own_log.say("no space left", "error")
    (tmp_path / "a.log").write_text(capsys.readouterr().err)
    assert last_words(tmp_path / "a.log") == "no space left"
