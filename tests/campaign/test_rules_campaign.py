"""Millions of random rules on random streams: oracle = interpreter, however cut, wherever restored."""

from __future__ import annotations

import pytest

from tests.rules.conformance import check
from tests.rules.generators import pair
from unerring.rules.interpreter import Interpreter

FIRST = 1_000_000
PAIRS = 1_000_000
CHUNKS = 20


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_small_pairs(chunk: int) -> None:
    for seed in range(FIRST + chunk, FIRST + PAIRS, CHUNKS):
        check(Interpreter, pair(seed))


@pytest.mark.parametrize("kind", "pqwj")
def test_longer_streams(kind: str) -> None:
    for seed in range(FIRST, FIRST + 20_000):
        check(Interpreter, pair(seed, kind, events_max=24))
