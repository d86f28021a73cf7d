"""A night's folder: what it is, and a line for each piece that ended. A night that was ended goes on from it.

| file | what |
|---|---|
| `NIGHT/night.json` | when it began, how long it is, on which release, and where its seeds begin |
| `NIGHT/journal.jsonl` | a line for each piece |
| `NIGHT/faults-ID.jsonl` | the fewest faults of a finding |
| `report.html`, `report.json` | of the newest night |
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from unerring.model import UNDECODABLE, CallerError, DiskError
from unerring.night.findings import Findings
from unerring.night.parts import Part
from unerring.night.piece import Piece, Trial

NIGHTS_REMEMBERED: Final = 5
"""Earlier nights whose findings say where to look longer."""
_NIGHTS: Final = 10**9
_PARTS: Final = 1_000
_SEEDS: Final = 10**6
"""So many seeds of its own each part of a night has."""


class Night(msgspec.Struct, frozen=True):
    """What a night is."""

    began: str
    release: str
    seconds: float
    cores: int
    seed: int
    """Where its seeds begin."""

    @property
    def budget_s(self) -> float:
        """How many seconds its pieces may take together."""
        return self.seconds * self.cores

    def first_seed(self, part: Part) -> int:
        """Where a part's seeds begin: the tests of a file share them."""
        number = hashlib.blake2b(part.group.encode(), digest_size=8).digest()
        return (self.seed * _PARTS + int.from_bytes(number) % _PARTS) * _SEEDS


class Line(msgspec.Struct, frozen=True):
    """A piece that ended."""

    piece: Piece
    trial: Trial
    seconds: float
    at: str
    hung: int | None = None
    """The seed at which it hung or died; None: it came to its end."""


class Journal:
    """One night's folder."""

    def __init__(self, folder: Path, night: Night) -> None:
        self.folder = folder
        self.night = night
        self.path = folder / "journal.jsonl"

    def add(self, line: Line) -> None:
        """Kept when this returns."""
        try:
            with self.path.open("ab") as file:
                file.write(msgspec.json.encode(line) + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise DiskError(f"{self.path} cannot be written ({error.strerror}); the night ends") from None

    def lines(self) -> Iterator[Line]:
        """What was kept. A last line that was cut off is no line."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return
        for line in data.split(b"\n")[:-1]:
            try:
                yield msgspec.json.decode(line, type=Line)
            except UNDECODABLE as error:
                raise CallerError(
                    f"{self.path} has a line that is none ({error}); move the folder away, and begin another night"
                ) from None

    def keep_faults(self, finding: str, schedule: str) -> str:
        """The file's name."""
        path = self.folder / f"faults-{finding}.jsonl"
        path.write_text(schedule)
        return str(path)

    def cut_off(self) -> None:
        """Cut off a line that a killed process left without its end."""
        if self.path.exists():
            data = self.path.read_bytes()
            whole = data[: data.rfind(b"\n") + 1]
            if len(whole) < len(data):
                self.path.write_bytes(whole)


def open_night(
    home: Path, seconds: float, cores: int, seed: int | None = None, *, now: datetime | None = None
) -> Journal:
    """The newest night of a folder if it has time left, or a new one."""
    now = now or datetime.now(UTC)
    newest = _newest(home)
    if newest is not None and seed in (None, newest.night.seed):
        spent_s = sum(line.seconds for line in newest.lines())
        if spent_s < newest.night.budget_s and newest.night.release == release():
            newest.cut_off()
            return newest
    began = now.strftime("%Y-%m-%dT%H-%M-%S")
    drawn = hashlib.blake2b(f"{began} {release()}".encode(), digest_size=8).digest()
    seed = int.from_bytes(drawn) % _NIGHTS if seed is None else seed
    night = Night(began, release(), seconds, cores, seed)
    folder = home / began
    try:
        folder.mkdir(parents=True)
        (folder / "night.json").write_bytes(msgspec.json.encode(night))
    except OSError as error:
        raise CallerError(f"{folder} cannot be written ({error.strerror}); choose another folder with --out") from None
    return Journal(folder, night)


def found_lately(home: Path) -> dict[str, int]:
    """How many causes each group of parts found in the last nights."""
    found: dict[str, int] = {}
    for folder in sorted(home.glob("*/night.json"))[-NIGHTS_REMEMBERED:]:
        findings = Findings()
        for line in _opened(folder.parent).lines():
            for one in line.trial.found:
                findings.add(line.piece.part, one)
        for finding in findings.by_id.values():
            found[finding.part.group] = found.get(finding.part.group, 0) + 1
    return found


def took_lately(home: Path) -> dict[str, float]:
    """How long each test took in the last nights, on average, so that a night begins what it can end."""
    took: dict[str, list[float]] = {}
    for folder in sorted(home.glob("*/night.json"))[-NIGHTS_REMEMBERED:]:
        for line in _opened(folder.parent).lines():
            if line.piece.part.kind == "tests" and line.hung is None:
                took.setdefault(line.piece.part.name, []).append(line.seconds)
    return {name: sum(seconds) / len(seconds) for name, seconds in took.items()}


def release() -> str:
    """The commit of a working copy, with a mark if it was changed since; else the version."""
    from unerring import __version__

    here = Path(__file__).parent
    try:
        commit = _git(here, "rev-parse", "--short=12", "HEAD")
        changed = _git(here, "status", "--porcelain", "--untracked-files=no", "--", ".")
    except (OSError, subprocess.CalledProcessError):
        return __version__
    return f"{__version__}+{commit}{'.changed' if changed else ''}"


def _git(here: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _newest(home: Path) -> Journal | None:
    nights = sorted(home.glob("*/night.json"))
    return _opened(nights[-1].parent) if nights else None


def _opened(folder: Path) -> Journal:
    try:
        night = msgspec.json.decode((folder / "night.json").read_bytes(), type=Night)
    except (OSError, *UNDECODABLE) as error:
        raise CallerError(f"{folder / 'night.json'} cannot be read ({error}); move the folder away") from None
    return Journal(folder, night)
