"""Many producers and racing writers on a faulty store, simulated: the log is the canonical merge of what they said."""

from __future__ import annotations

import pytest

from unerring.simulation import find, run
from unerring.simulation.scenarios.intake import IntakeOnStore

SEEDS = 25
FOUND = (1, 17, 55, 85, 32_000_094, 32_000_261)
"""Seeds that found something: an epoch that began while another writer was further, a producer that had ended with
events still held, one that had ended long ago and counted as idle, a loss of one writer that another had a part of."""


def test_the_log_is_the_canonical_merge_of_what_was_published() -> None:
    reached: set[str] = set()
    for seed in (*range(SEEDS), *FOUND):
        outcome = run(IntakeOnStore, seed)
        assert not outcome.violations, f"unerring simulate intake --seed {seed}\n{outcome.violations[0]}"
        reached |= set(outcome.reached)
    assert set(IntakeOnStore.must_reach) <= reached


def test_a_seed_is_a_run() -> None:
    assert run(IntakeOnStore, 3).digest == run(IntakeOnStore, 3).digest


@pytest.mark.parametrize("name", IntakeOnStore.mutants)
def test_a_writer_that_is_broken_on_purpose_is_caught(name: str) -> None:
    broken = find("intake", name)
    assert any(run(broken, seed).violations for seed in range(IntakeOnStore.mutants[name].seeds_max))
