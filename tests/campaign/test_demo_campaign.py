"""The factory's demonstration with twenty seeds, and with every canary: the judge says yes, and can say no."""

from __future__ import annotations

import pytest

from tests.test_demo import played
from unerring.app.demo.canaries import CANARIES


@pytest.mark.parametrize("seed", range(20))
def test_the_verdict_holds(seed: int) -> None:
    code, verdict, said = played("--fast", "--seed", str(seed))
    assert code == 0, said
    assert verdict["holds"] is True


@pytest.mark.parametrize("canary", CANARIES)
def test_the_judge_can_say_no(canary: str) -> None:
    code, verdict, said = played("--fast", "--seed", "100", "--canary", canary)
    assert code == 1, said
    assert verdict["holds"] is False
