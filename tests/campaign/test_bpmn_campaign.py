"""Imported models under crashes, on many seeds."""

from __future__ import annotations

import pytest

from tests.processes.miwg import CASES, Case
from tests.processes.test_bpmn_miwg import SEED, is_within, rehearse

SEEDS = 100


@pytest.mark.parametrize("case", [case for case in CASES if not case.refused], ids=lambda case: case.model)
def test_a_model_has_one_executions_effects_whatever_dies(case: Case) -> None:
    for seed in range(SEED + 1_000, SEED + 1_000 + SEEDS):
        done = rehearse(case, seed, seed % 4)
        assert all(is_within(wanted, done) for wanted in case.effects), (seed, done)
