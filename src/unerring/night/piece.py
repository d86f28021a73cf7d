"""A piece of a night, carried out in a process of its own: `python -m unerring.night.piece PIECE`.

It says which seed it begins, line by line, and at the end what it did. Whoever started it knows from that where a piece
hangs, or died.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec

from unerring.model import UNDECODABLE, CallerError
from unerring.night.parts import FUZZER, Part, scenario_of
from unerring.simulation import catch, encode_schedule, pour, run, schedule_of, shrink

TEXT_CHARS_MAX: Final = 4_000
STEPS_KEPT_MAX: Final = 20
STEP_CHARS_MAX: Final = 300
SHRINK_RUNS_MAX: Final = 100
SEED: Final = "UNERRING_SEED"
"""For tests: where what they draw begins."""
BLOWS: Final = "UNERRING_BLOWS"
"""For tests: the file to which they add how often each kind of fault struck, an object of JSON a line."""
HOSTILE_MESSAGES: Final = 2_000


class Piece(msgspec.Struct, frozen=True):
    """Some of a part: `count` seeds from `first` on. Of mutants it is one of them, of tests one, of a target of
    the fuzzer so many seconds."""

    part: Part
    first: int
    count: int = 1
    mutant: str = ""
    folder: str = ""
    """Where a fuzzer keeps what it finds."""
    favour: str = ""
    """Of seeds: the pair of a fault and a state that is sought."""
    shrinks: bool = False
    """Look for the fewest faults that make this seed fail, instead."""


class Found(msgspec.Struct, frozen=True):
    """Something that must not be."""

    seed: int
    what: str
    """The promise that was broken, or the error: the same words each time."""
    text: str
    """What shows it."""
    steps: tuple[str, ...] = ()
    """The lines of the history that show it, in order."""


class Trial(msgspec.Struct, frozen=True):
    """What a piece did."""

    tried: int
    """Seeds, or tests."""
    messages: int = 0
    virtual_us: int = 0
    reached: dict[str, int] = {}
    """In how many seeds each rare state was reached."""
    pairs: dict[str, int] = {}
    """In how many seeds each pair of a fault and a state was reached."""
    found: tuple[Found, ...] = ()
    caught_after: int | None = None
    """How many seeds a mutant needed."""
    schedule: str = ""
    """The fewest faults."""
    blows: dict[str, int] = {}
    """How often each kind of fault struck real processes."""


class Begins(msgspec.Struct, frozen=True, tag=True):
    seed: int


class Ends(msgspec.Struct, frozen=True, tag=True):
    trial: Trial


def carry_out(piece: Piece, begins: Callable[[int], object] = lambda seed: None) -> Trial:
    """Do it. `begins` is told of each seed."""
    if piece.shrinks:
        begins(piece.first)
        return _shrink(piece)
    match piece.part.kind:
        case "seeds":
            return _seeds(piece, begins)
        case "mutants":
            begins(piece.first)
            return _mutant(piece)
        case "altered" | "repeated":
            return _hostile(piece, begins)
        case "fuzz":
            begins(piece.first)
            return _fuzz(piece)
        case _:
            begins(piece.first)
            return _tests(piece)


def _seeds(piece: Piece, begins: Callable[[int], object]) -> Trial:
    scenario = scenario_of(piece.part.subject)
    messages = virtual_us = 0
    reached: dict[str, int] = {}
    pairs: Counter[str] = Counter()
    found: list[Found] = []
    for seed in range(piece.first, piece.first + piece.count):
        begins(seed)
        outcome = run(scenario, seed, favour=piece.favour)
        pairs.update(outcome.pairs.keys())
        messages += outcome.messages
        virtual_us += outcome.virtual_us
        for what in outcome.reached:
            reached[what] = reached.get(what, 0) + 1
        if outcome.violations:
            violation = outcome.violations[0]
            what, text = f"{outcome.phase}: {violation.promise}", str(violation)[:TEXT_CHARS_MAX]
            steps = tuple(line[:STEP_CHARS_MAX] for line in violation.witness[-STEPS_KEPT_MAX:])
            found.append(Found(seed, what, text, steps))
    return Trial(piece.count, messages, virtual_us, reached, dict(pairs), tuple(found))


def _mutant(piece: Piece) -> Trial:
    name = piece.part.subject
    mutant = scenario_of(name).mutants[piece.mutant]
    caught = catch(name, piece.mutant, mutant.seeds_max, piece.first)
    if caught.outcome is not None:
        needed = caught.outcome.seed - piece.first + 1
        return Trial(needed, caught.outcome.messages, caught.outcome.virtual_us, caught_after=needed)
    what = f"the mutant {piece.mutant!r} was not caught"
    return Trial(mutant.seeds_max, found=(Found(piece.first, what, f"{what} in {mutant.seeds_max} seeds"),))


def _hostile(piece: Piece, begins: Callable[[int], object]) -> Trial:
    sent = 0
    found: list[Found] = []
    for seed in range(piece.first, piece.first + piece.count):
        begins(seed)
        fell = pour(piece.part.subject, seed, HOSTILE_MESSAGES, repeated=piece.part.kind == "repeated")
        sent += fell.sent
        for finding in fell.findings[:1]:
            text = f"{finding.what}\n{finding.where}\n{finding.message}"
            found.append(Found(seed, f"{finding.what} at {finding.where}", text[:TEXT_CHARS_MAX]))
    return Trial(piece.count, messages=sent, found=tuple(found))


class _Fuzzed(msgspec.Struct):
    """What a fuzzer says at its end."""

    inputs: int
    found: tuple[Found, ...]


def _fuzz(piece: Piece) -> Trial:
    """A target of the fuzzer, which goes on from what it knew in its folder."""
    target = Path(piece.part.subject)
    program = target.parent.parent / FUZZER
    options = ["--seconds", str(piece.count), "--seed", str(piece.first), "--out", piece.folder or "night/fuzz"]
    done = subprocess.run(
        [sys.executable, str(program), target.name, *options], capture_output=True, text=True, errors="replace"
    )
    try:
        fuzzed = msgspec.json.decode(done.stdout.splitlines()[-1], type=_Fuzzed)
    except (IndexError, *UNDECODABLE):
        text = (done.stdout + done.stderr)[-TEXT_CHARS_MAX:]
        return Trial(0, found=(Found(piece.first, f"{program} ended with {done.returncode}", text),))
    return Trial(fuzzed.inputs, found=fuzzed.found)


def runs_of(piece: Piece, process: int) -> Path:
    """The folder of what the tests of a piece do in a process. A short name: sockets lie in it."""
    return Path(tempfile.gettempdir()) / f"unerring-night-{process}-{piece.first % 1_000_000_007}"


def _tests(piece: Piece) -> Trial:
    """A long test, by pytest: real processes, servers, disks and Spark. What fails keeps its folder."""
    home = runs_of(piece, os.getpid())
    shutil.rmtree(home, ignore_errors=True)  # of another process that had this number
    home.mkdir(mode=0o700)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-rfE"]
    done = subprocess.run(
        [*command, "--basetemp", str(home / "runs"), piece.part.subject],
        capture_output=True,
        text=True,
        errors="replace",
        env={**os.environ, SEED: str(piece.first), BLOWS: str(home / "blows")},
    )
    trial = _judged(piece, done, f"its runs are in {home / 'runs'}; unerring status, audit and dashboard read them")
    blows = _blows(home / "blows")
    if not trial.found:
        shutil.rmtree(home)
    return msgspec.structs.replace(trial, blows=blows)


def _blows(told: Path) -> dict[str, int]:
    struck: Counter[str] = Counter()
    for line in told.read_text().splitlines() if told.exists() else ():
        struck.update(msgspec.json.decode(line, type=dict[str, int]))
    return dict(sorted(struck.items()))


def _judged(piece: Piece, done: subprocess.CompletedProcess[str], where: str) -> Trial:
    said = done.stdout.splitlines()
    failed = [line.removeprefix("FAILED ") for line in said if line.startswith(("FAILED ", "ERROR "))]
    text = f"{where}\n" + "\n".join(said)[-TEXT_CHARS_MAX:]
    found = [Found(piece.first, f"failed: {line.partition(' - ')[0]}", text) for line in failed]
    if done.returncode and not found:
        found = [Found(piece.first, f"pytest ended with {done.returncode}", text + done.stderr[-TEXT_CHARS_MAX:])]
    return Trial(_number_of(said), found=tuple(found))


def _number_of(said: list[str]) -> int:
    """How many tests there were, from pytest's last line."""
    words = said[-1].replace(",", "").split() if said else []
    return sum(int(number) for number, word in pairwise(words) if word in ("passed", "failed", "error", "errors"))


def _shrink(piece: Piece) -> Trial:
    scenario = scenario_of(piece.part.subject)
    if not schedule_of(scenario, piece.first, piece.favour):
        return Trial(0)
    try:
        _, fewest = shrink(scenario, piece.first, SHRINK_RUNS_MAX, favour=piece.favour)
    except CallerError:  # it does not fail by itself: something of the machine it ran on made it fail
        return Trial(1)
    return Trial(1, schedule=encode_schedule(fewest).decode())


def main() -> None:
    """Carry out the piece that the first argument says."""
    piece = msgspec.json.decode(sys.argv[1], type=Piece)

    def say(what: Begins | Ends) -> None:
        sys.stdout.write(msgspec.json.encode(what).decode() + "\n")
        sys.stdout.flush()

    say(Ends(carry_out(piece, lambda seed: say(Begins(seed)))))


if __name__ == "__main__":
    main()
