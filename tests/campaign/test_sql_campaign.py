"""Many more random statements than fit into a test run: every matcher against the oracle."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.sql.test_random_statements import GAVE_UP, check

FIRST = 1_000_000
STATEMENTS = 20_000
CHUNKS = 20


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_statements(chunk: int) -> None:
    seen = Counter(check(seed) for seed in range(FIRST + chunk, FIRST + STATEMENTS, CHUNKS))
    assert seen[GAVE_UP] < seen.total() / 50, f"the oracle gave up too often to compare: {seen}"
