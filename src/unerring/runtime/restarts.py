"""How soon a part of a run is started again after it failed, and when that has been tried often enough."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from unerring.model import ProcessConfig, WorldError, check
from unerring.runtime.logs import said

EXIT_FINAL: Final = 78
"""EX_CONFIG of sysexits.h: how a process ends that would fail of the same if it were started again."""
WORDS_BYTES: Final = 4096
WORDS_MAX: Final = 400


class GivenUp(WorldError):
    """Something of a run failed as often as it may: the run ends with it."""


class RestartsConfig(ProcessConfig, frozen=True):
    """The pauses double while something keeps failing."""

    pause_s_min: float = 0.05
    pause_s_max: float = 5.0
    well_s: float = 10.0
    """After a part ran this long, its failures are counted anew."""
    tries_max: int = 20
    """After this many failures in a row it is given up."""

    def __post_init__(self) -> None:
        check(self, "tries_max", 1, 1_000_000)


class Restarts:
    """The restarts of one part. It holds no clock: how long the part ran is handed in."""

    def __init__(self, config: RestartsConfig | None = None) -> None:
        self.config = config or RestartsConfig()
        self.total = 0
        self.in_row = 0

    def failed(self, ran_s: float) -> float:
        """It failed after it ran so long; the pause before it is tried again, in seconds."""
        self.total += 1
        self.in_row = 1 if ran_s > self.config.well_s else self.in_row + 1
        return min(self.config.pause_s_min * 2.0 ** min(self.in_row - 1, 30), self.config.pause_s_max)

    def give_up(self) -> None:
        """Another try would fail of the same."""
        self.in_row = max(self.in_row, self.config.tries_max)

    @property
    def used_up(self) -> bool:
        return self.in_row >= self.config.tries_max


def last_words(log: Path) -> str:
    """The last line that a process left in its log file."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - WORDS_BYTES))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return "it left no word"
    words = [said(line.strip()) for line in lines if line.strip()]
    return words[-1][:WORDS_MAX] if words else "it left no word"
