"""Publishers and both log writers of a stream, killed with kill -9: every event is in the log once."""

from __future__ import annotations

from pathlib import Path

from .producer_kills import play


def test_publishers_and_both_writers_are_killed_and_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    play(tmp_path, publishers=5, events=250, kills=5, seed=1)
