"""`unerring simulate`: exit codes, replay, sweeps on all cores, mutants, JSON, and a clean Ctrl-C."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from unerring.cli import main

BROKEN = "answers before it has persisted"


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


Simulate = Callable[..., Done]


@pytest.fixture
def simulate(capsys: pytest.CaptureFixture[str]) -> Simulate:
    """The command in this process: starting one for each call would take most of the time."""

    def call(*arguments: str) -> Done:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(["simulate", *arguments])
        said = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Done(ended.value.code, said.out, said.err)

    return call


def test_one_seed_is_replayable(simulate: Simulate) -> None:
    first, second = (simulate("counter:Counting", "--seed", "3", "--json") for _ in range(2))
    assert first.returncode == 0
    assert first.stdout == second.stdout
    told = json.loads(first.stdout)
    assert told["violations"] == []
    assert told["messages"] > 100


def test_a_violation_is_told_with_its_witness_and_the_command_that_replays_it(simulate: Simulate) -> None:
    swept = simulate("counter:Counting", "--mutant", BROKEN, "--seeds", "20", "--cores", "2")
    assert swept.returncode == 1
    assert "request n makes the sum n" in swept.stdout
    [replay, *_] = [line.split("replay it: ")[1] for line in swept.stdout.splitlines() if "replay it: " in line]
    assert shlex.split(replay)[:2] == ["unerring", "simulate"]
    again = simulate(*shlex.split(replay)[2:])
    assert again.returncode == 1
    assert "request n makes the sum n" in again.stdout


def test_a_sweep_counts_on_all_cores(simulate: Simulate) -> None:
    told = [json.loads(simulate("counter:Counting", "--seeds", "40", "--json", "--cores", n).stdout) for n in "12"]
    for one in told:
        assert one["seeds"] == 40
        assert one["violated"] == 0
        assert one["messages_per_s"] > 0
        assert one["never_reached"] == []
    assert told[0]["messages"] == told[1]["messages"]
    assert told[0]["reached"] == told[1]["reached"]


def test_mutants_are_caught(simulate: Simulate) -> None:
    done = simulate("counter:Counting", "--mutants", "--json")
    assert done.returncode == 0
    caught = json.loads(done.stdout)["mutants"]
    assert {one["mutant"] for one in caught} == {BROKEN, "counts a repeated request again", "asks once only"}
    assert all(one["caught_by"] is not None for one in caught)


def test_an_uncaught_mutant_fails(simulate: Simulate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "harmless.py").write_text(
        textwrap.dedent("""
        from counter import Counting, Server
        from unerring.simulation import mutant
        class Harmless(Counting):
            must_reach = ("the moon",)
        class Right(Server):
            pass
        mutant(Harmless, "is not broken at all", seeds_max=3, server=Right)
        """)
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    done = simulate("harmless:Harmless", "--mutants")
    assert done.returncode == 1
    assert "mutant not caught in 3 seeds: is not broken at all" in done.stdout
    lenient = simulate("harmless:Harmless", "--seeds", "3", "--cores", "1")
    assert (lenient.returncode, "never reached: the moon" in lenient.stdout) == (0, True)
    assert simulate("harmless:Harmless", "--seeds", "3", "--cores", "1", "--strict").returncode == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing"], "there is no scenario 'nothing'"),
        (["counter:Counting", "--seed", "1", "--seeds", "2"], "--seed runs one seed"),
        (["counter:Counting", "--trace"], "select it with --seed"),
        (["counter:Counting", "--mutant", "sings"], "has no mutant 'sings'"),
        (["counter:Counting", "--mutant", BROKEN, "--mutants"], "use one of the two"),
        (["counter:Counting", "--seeds", "0"], "--seeds"),
        (["counter:Counting", "--seed", "1", "--shrink", "fewest.jsonl"], "there is nothing to shrink"),
        (["counter:Counting", "--shrink", "fewest.jsonl"], "select it with --seed"),
        (["counter:Counting", "--seed", "1", "--faults", "/no/such/file"], "cannot read /no/such/file"),
    ],
)
def test_wrong_use_is_told(simulate: Simulate, arguments: list[str], said: str) -> None:
    done = simulate(*arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_trace_shows_inputs_answers_and_faults(simulate: Simulate) -> None:
    done = simulate("counter:Counting", "--seed", "5", "--trace")
    assert "from client Add(request=1)" in done.stdout
    assert "answers [Persist(" in done.stdout
    assert "FAULT" in done.stdout


def test_ctrl_c_ends_with_what_was_done(environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "unerring", "simulate", "counter:Counting", "--seeds", "1000000", "--cores", "2"]
    # Its own session: the signal goes to it and its workers, as from a terminal. A line of progress says it runs.
    forced = {**environment, "FORCE_COLOR": "1", "TTY_COMPATIBLE": "1"}
    with subprocess.Popen(
        command, env=forced, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        seen = b""
        while b"seeds/s" not in seen:
            some = process.stderr.read1(4096)  # type: ignore[attr-defined]
            assert some, seen
            seen += some
        os.killpg(process.pid, signal.SIGINT)
        said, complained = process.communicate(timeout=600)
    assert process.returncode == 130, complained
    assert b"interrupted: " in said
    assert b" of 1000000 seeds done" in said
    assert b"0 violations" in said
    assert b"Traceback" not in complained


def test_a_failing_seed_shrinks_to_the_faults_that_matter(simulate: Simulate, tmp_path: Path) -> None:
    fewest = tmp_path / "fewest.jsonl"
    done = simulate("counter:Counting", "--mutant", BROKEN, "--seed", "3", "--shrink", str(fewest))
    assert done.returncode == 1
    faults = [json.loads(line) for line in fewest.read_text().splitlines()]
    assert 1 <= len(faults) <= 3
    # Answering too early shows only when the server forgets.
    assert any(fault["type"] in ("Crash", "FullDisk", "FailedSync") and fault["node"] == "server" for fault in faults)
    [replay] = [line.split("replay it: ")[1] for line in done.stdout.splitlines() if "replay it: " in line]
    assert simulate(*shlex.split(replay)[2:]).returncode == 1
    fewest.write_text("")
    assert simulate(*shlex.split(replay)[2:]).returncode == 0
    for wrong in ("not json", '{"type": "Crash"}', '{"type": "Crash", "at_us": 1, "node": "moon"}'):
        fewest.write_text(wrong)
        told = simulate(*shlex.split(replay)[2:])
        assert told.returncode == 2
        assert "Traceback" not in told.stderr
