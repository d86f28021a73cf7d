"""The factory's demonstration with twenty seeds, and with every canary: the judge says yes, and can say no."""

from __future__ import annotations

import pytest

from tests.test_demo import played
from unerring.app.demo.canaries import CANARIES
from unerring.app.demo.factory import Shape


@pytest.mark.parametrize("seed", range(20))
def test_the_verdict_holds(seed: int) -> None:
    code, verdict, said = played("--fast", "--seed", str(seed))
    assert code == 0, said
    assert verdict["holds"] is True
    assert said.count("kill -9") == 3
    live, spark = verdict["gears"]["live"], verdict["gears"]["spark"]
    assert live["events"] == spark["events"] == verdict["published"] == Shape.fast().events
    assert live["delivered"] == spark["delivered"] == live["perfect"]
    assert live["delivered"]["Standstill"] + live["delivered"]["Shortage"] == verdict["instances"]["completed"] > 0


@pytest.mark.parametrize("canary", CANARIES)
def test_the_judge_can_say_no(canary: str) -> None:
    code, verdict, said = played("--fast", "--seed", "100", "--canary", canary)
    assert code == 1, said
    assert verdict["holds"] is False
