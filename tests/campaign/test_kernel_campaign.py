"""The compiled kernel against the oracle: many more random plans as Python, and some hundreds as machine code."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from random import Random

import pytest

from tests.matching import generators
from tests.matching.conformance import check
from tests.matching.expression_pairs import expressions_of
from tests.matching.kernel_pairs import GroupMaker, NarrowMaker, PairMaker, StoppedGroupMaker, StoppedMaker, plan_of
from tests.matching.test_kernel import hold_expressions, hold_to_the_oracle, lower_limits, plain
from tests.matching.test_machine_code import RULES, expressions, hold_rule, pattern
from tests.matching.test_trailing import hold_plans
from tests.matching.trailing_pairs import EVERYTHING, draw as draw_readings
from unerring.matching.interpreter import Interpreter
from unerring.matching.kernel import programs, why_interpreted
from unerring.model import RuleError

FIRST = 1_000_000
PLANS = 20_000
CHUNKS = 20


@contextlib.contextmanager
def _named(seed: int, stream: int | None = None) -> Iterator[None]:
    """Says which pair differs; one on which the oracle gives up is passed over."""
    try:
        yield
    except (AssertionError, RuleError) as difference:
        if not str(difference).partition(": ")[2].startswith("the oracle gave up"):
            raise AssertionError(f"plan {seed}" + ("" if stream is None else f", stream {stream}")) from difference


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_generated_source(chunk: int) -> None:
    for seed in range(FIRST + chunk, FIRST + PLANS, CHUNKS):
        maker, plan = plan_of(seed)
        if why_interpreted(plan) is None:
            for stream in range(20):
                rows = maker.rows(maker.random.randrange(30))
                with _named(seed, stream):
                    hold_to_the_oracle(plan, rows, maker.through(rows), Random(seed + stream))


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_narrow_kernels(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if chunk % 2:
        lower_limits(monkeypatch)
    for seed in range(FIRST + chunk, FIRST + PLANS, CHUNKS):
        maker, plan = plan_of(seed, NarrowMaker)
        for stream in range(20):
            rows = maker.rows(maker.random.randrange(30))
            with _named(seed, stream):
                hold_to_the_oracle(plan, rows, maker.through(rows), Random(seed + stream))


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_expressions_of_every_type(chunk: int) -> None:
    for seed in range(FIRST + chunk, FIRST + PLANS, CHUNKS):
        maker, plan = expressions_of(seed)
        for stream in range(8):
            rows = maker.rows(maker.random.randrange(12))
            with _named(seed, stream):
                hold_expressions(plan, rows, maker.through(rows), Random(seed + stream))


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_trailing_windows(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if chunk % 2:
        lower_limits(monkeypatch)
    hold_plans(range(FIRST + chunk, FIRST + PLANS // 4, CHUNKS))


def test_machine_code_of_all_aggregates_of_a_trailing_window() -> None:
    assert hold_rule(EVERYTHING, draw_readings, 2000) > 20_000


@pytest.mark.parametrize("low", [False, True])
def test_keys_of_every_kind(low: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if low:
        lower_limits(monkeypatch)
    for seed in range(FIRST + low, FIRST + 100_000, 2):
        pair = generators.rekeyed(generators.pair(seed, "pqwwjj"))
        check(Interpreter, pair)
        if why_interpreted(pair.plan) is None:
            check(plain, pair)


@pytest.mark.parametrize("kinds", ["p", "w", "j"])
def test_pairs_of_all_matchers(kinds: str) -> None:
    for seed in range(FIRST, FIRST + 50_000):
        pair = generators.pair(seed, kinds)
        if why_interpreted(pair.plan) is None:
            check(plain, pair)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_generated_source_of_groups(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "MERGED_RUNS_MAX", 300)
    monkeypatch.setattr(programs, "RUNS_MAX", 300)
    for seed in range(FIRST + chunk, FIRST + PLANS, CHUNKS):
        maker, plan = plan_of(seed, GroupMaker)
        if why_interpreted(plan) is None:
            for stream in range(20):
                rows = maker.rows(maker.random.randrange(20))
                with _named(seed, stream), contextlib.suppress(RuleError):  # more ways than oracle or kernel follow
                    hold_to_the_oracle(plan, rows, maker.through(rows), Random(seed + stream))


@pytest.mark.parametrize("kind", [StoppedMaker, StoppedGroupMaker])
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_generated_source_of_loops_with_stops(
    chunk: int, kind: type[PairMaker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "MERGED_RUNS_MAX", 300)
    monkeypatch.setattr(programs, "RUNS_MAX", 300)
    for seed in range(FIRST + chunk, FIRST + PLANS, CHUNKS):
        maker, plan = plan_of(seed, kind)
        if why_interpreted(plan) is None:
            for stream in range(10):
                rows = maker.rows(maker.random.randrange(16))
                with _named(seed, stream), contextlib.suppress(RuleError):  # more ways than oracle or kernel follow
                    hold_to_the_oracle(plan, rows, maker.through(rows), Random(seed + stream))


@pytest.mark.parametrize("name", RULES)
def test_machine_code_on_many_streams(name: str) -> None:
    """Twelve rules, 20 400 pairs."""
    plan, draw = RULES[name]
    assert hold_rule(plan, draw, 1700, 10_000) > 17


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_machine_code(chunk: int) -> None:
    """Two hundred rules of each kind, compiled, on a thousand streams: 900 000 pairs."""
    for seed in range(FIRST + chunk, FIRST + 200, CHUNKS):
        drawn = [pattern(seed, kind) for kind in (PairMaker, GroupMaker, NarrowMaker, StoppedGroupMaker)]
        for plan, draw in (*drawn, expressions(seed)):
            if why_interpreted(plan) is None:
                with _named(seed), contextlib.suppress(RuleError):
                    hold_rule(plan, draw, 1000, seed)
