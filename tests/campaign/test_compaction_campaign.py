"""2 000 random schedules of writers, compactors, retention, sweeping and readers of one chain."""

from __future__ import annotations

import random

import pytest

from tests.log.test_compaction_schedules import KINDS, World

SCHEDULES = 2000
TOGETHER = 100


@pytest.mark.parametrize("first", range(0, SCHEDULES, TOGETHER))
def test_random_schedules_read_as_the_plain_list(first: int) -> None:
    for seed in range(first, first + TOGETHER):
        rng = random.Random(seed)
        schedule = [(rng.choice(KINDS), rng.randrange(10**6)) for _ in range(rng.randint(10, 150))]
        try:
            World().run(schedule)
        except Exception as error:
            error.add_note(f"seed {seed}: {schedule}")
            raise
