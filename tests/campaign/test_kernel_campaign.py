"""The compiled kernel against the oracle: many more random plans as Python, and some hundreds as machine code."""

from __future__ import annotations

from random import Random

import pytest

from tests.rules import generators
from tests.rules.conformance import check
from tests.rules.kernel_pairs import plan_of
from tests.rules.test_kernel import hold_to_the_oracle, plain, texts
from unerring.rules.kernel import KernelEngine, why_interpreted
from unerring.rules.oracle import outputs_of

FIRST = 1_000_000
PLANS = 20_000
CHUNKS = 20


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_generated_source(chunk: int) -> None:
    for seed in range(FIRST + chunk, FIRST + PLANS, CHUNKS):
        maker, plan = plan_of(seed)
        if why_interpreted(plan) is None:
            for stream in range(20):
                rows = maker.rows(maker.random.randrange(30))
                hold_to_the_oracle(plan, rows, maker.through(rows), Random(seed + stream))


@pytest.mark.parametrize("kinds", ["p", "w", "j"])
def test_pairs_of_all_engines(kinds: str) -> None:
    for seed in range(FIRST, FIRST + 50_000):
        pair = generators.pair(seed, kinds)
        if why_interpreted(pair.plan) is None:
            check(plain, pair)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_machine_code(chunk: int) -> None:
    for seed in range(FIRST + chunk, FIRST + 200, CHUNKS):
        maker, plan = plan_of(seed)
        if why_interpreted(plan) is None:
            for _ in range(50):
                rows = maker.rows(40)
                through = maker.through(rows)
                engine = KernelEngine(plan, compile_after=0)
                assert texts(plan, engine.feed(rows, through)) == texts(plan, outputs_of(plan, rows, through)), seed
                assert engine.is_compiled
