"""The simulator finds nothing in a right protocol, and each canary in a broken one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from unerring.simulation import run

sys.path.insert(0, str(Path(__file__).parent))

from counter import Counting


@pytest.mark.parametrize("seed", range(20))
def test_a_right_protocol_passes(seed: int) -> None:
    assert run(Counting, seed).violations == ()


@pytest.mark.parametrize("name", Counting.canaries)
def test_a_canary_is_caught(name: str) -> None:
    broken = Counting.canaries[name]
    assert any(run(broken.scenario, seed).violations for seed in range(broken.seeds_max))
