"""Parts of a run that some of its hosts do, by turn."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from unerring.app.by_turn import ByTurn


class Recorded:
    def __init__(self, happened: list[str]) -> None:
        self.happened = happened

    def start(self, say: Callable[[str], None]) -> None:
        self.happened.append("start")

    def check(self) -> None:
        self.happened.append("check")

    def stop(self) -> None:
        self.happened.append("stop")


def test_a_part_is_made_anew_for_each_turn_and_stopped_after_it() -> None:
    happened: list[str] = []
    turns = iter([False, True, True, False, False, True])
    asked: list[bool] = []

    def turn(on: bool) -> bool:
        asked.append(on)
        return next(turns)

    said: list[str] = []
    part = ByTurn("feeding", lambda: Recorded(happened), turn, said.append)
    part.start(said.append)
    for _ in range(6):
        part.check()
    part.stop()
    part.stop()
    assert happened == ["start", "check", "check", "stop", "start", "check", "stop"]
    assert asked == [False, False, True, True, False, False]
    assert said == [
        "feeding is done here from now on",
        "feeding is left to another host",
        "feeding is done here from now on",
    ]


def test_what_cannot_be_started_ends_the_run_with_its_sentence() -> None:
    def cannot() -> Recorded:
        raise ValueError("no such channel")

    with pytest.raises(ValueError, match="no such channel"):
        ByTurn("feeding", cannot, lambda on: True, lambda text: None).check()
