"""Two hundred publisher processes of one stream and both its log writers, killed with kill -9."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.app.producer_kills import play


def test_two_hundred_publishers_and_both_writers_are_killed(seed: int, blows: Counter[str], tmp_path: Path) -> None:
    play(tmp_path, publishers=200, events=500, kills=60, seed=seed)
    blows["kill -9"] += 60
