"""The compiled kernel gives what the oracle gives on random pairs, however the input is cut, wherever it is stopped."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from unerring.matching.interpreter import Interpreter
from unerring.matching.kernel import (
    Kernel,
    explain,
    kernel as kernel_module,
    keys,
    latest,
    programs,
    run_lists,
    single,
    why_interpreted,
)
from unerring.matching.kernel.programs import Program, program_of
from unerring.matching.kernel.registers import UNBOUND
from unerring.matching.matcher import Matcher, schemas_of
from unerring.matching.oracle import outputs_of
from unerring.matching.outputs import Output, Row, number
from unerring.model import TIME_MAX, Event, RuleError
from unerring.rules.plan import Plan, Sliding

from . import generators
from .conformance import check
from .expression_pairs import expressions_of
from .kernel_pairs import GroupMaker, NarrowMaker, PairMaker, plan_of, splits

SHARDS = 8
PLANS = 60
"""For each shard."""
STREAMS = 10
"""For each plan: the source is generated once and runs on many streams."""


def plain(plan: Plan) -> Matcher:
    """The generated source as Python: no compiler in the way of thousands of rules."""
    return Kernel(plan, compile_after=None)


def texts(plan: Plan, outputs: list[Output]) -> list[str]:
    """Numbered and comparable: NaN is NaN, -0.0 is not 0.0."""
    events: list[Event] = number(outputs, schemas_of(plan))
    return [repr(event) for event in events]


def hold_to_the_oracle(plan: Plan, rows: list[Row], through: int, random: Random) -> int:
    """Fed at once, and fed in pieces with a restore somewhere; the number of outputs."""
    expected = texts(plan, outputs_of(plan, rows, through, attempts_max=20_000))
    whole = plain(plan)
    assert texts(plan, whole.feed(rows, through)) == expected
    state = whole.snapshot()
    matcher = plain(plan)
    pieces = splits(rows, through, random)
    stop = random.randrange(len(pieces))
    outputs: list[Output] = []
    for place, (piece, until) in enumerate(pieces):
        outputs += matcher.feed(piece, until)
        if place == stop:
            kept = matcher.snapshot()
            matcher = plain(plan)
            matcher.restore(kept)
            assert matcher.snapshot() == kept
    assert texts(plan, outputs) == expected
    assert matcher.snapshot() == state
    return len(expected)


def shards(count: int, often: int) -> list[Any]:
    """Parts of a search; after the first few they are long tests."""
    return [*range(often), *(pytest.param(shard, marks=pytest.mark.long) for shard in range(often, count))]


@pytest.mark.parametrize("shard", shards(SHARDS, 3))
def test_generated_source_is_the_oracle(shard: int) -> None:
    found = compiled = 0
    for seed in range(shard * PLANS, (shard + 1) * PLANS):
        maker, plan = plan_of(seed)
        if why_interpreted(plan) is not None:
            continue
        for stream in range(STREAMS):
            rows = maker.rows(maker.random.randrange(16))
            try:
                found += hold_to_the_oracle(plan, rows, maker.through(rows), Random(seed * STREAMS + stream))
            except AssertionError as difference:
                raise AssertionError(f"plan {seed}, stream {stream}, {explain(plan)}") from difference
            compiled += 1
    assert compiled > 0.9 * PLANS * STREAMS
    assert found > compiled / 4


@pytest.mark.parametrize("seed", [1_003_341])
def test_a_plan_that_was_once_compiled_wrongly(seed: int) -> None:
    """1 003 341: the latest of `a`, relaxed, until something: what ended the wait was not heeded."""
    maker, plan = plan_of(seed)
    assert why_interpreted(plan) is None
    for stream in range(20):
        rows = maker.rows(maker.random.randrange(30))
        hold_to_the_oracle(plan, rows, maker.through(rows), Random(seed + stream))


def lower_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What happens to many keys and to large batches, with a few."""
    monkeypatch.setattr(kernel_module, "IDLE_MIN", 2)
    monkeypatch.setattr(keys, "DIRECT_MAX", 2)
    monkeypatch.setattr(keys, "FEW_MAX", 2)
    monkeypatch.setattr(latest, "KEYS_CACHED", 1)
    monkeypatch.setattr(latest, "BLOCK", 2)
    monkeypatch.setattr(single, "OUTPUTS_MIN", 1)
    monkeypatch.setattr(run_lists, "OUTPUTS_MIN", 1)


@pytest.mark.parametrize("shard", shards(4, 2))
def test_narrow_kernels_are_the_oracle(shard: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if shard % 2:
        lower_limits(monkeypatch)
    found: dict[str, int] = {}
    for seed in range(shard * PLANS, (shard + 1) * PLANS):
        maker, plan = plan_of(seed, NarrowMaker)
        for stream in range(STREAMS):
            rows = maker.rows(maker.random.randrange(24))
            try:
                outputs = hold_to_the_oracle(plan, rows, maker.through(rows), Random(seed * STREAMS + stream))
            except AssertionError as difference:
                raise AssertionError(f"narrow {seed}, stream {stream}, {explain(plan)}") from difference
            found[program_of(plan).kernel] = found.get(program_of(plan).kernel, 0) + outputs
    assert all(found[kernel] > PLANS / 6 for kernel in ("latest", "absence", "single run")), found


@pytest.mark.parametrize("shard", shards(4, 2))
def test_expressions_of_every_type_are_the_oracle(shard: int) -> None:
    found = compiled = 0
    for seed in range(shard * PLANS, (shard + 1) * PLANS):
        maker, plan = expressions_of(seed)
        for stream in range(STREAMS):
            rows = maker.rows(maker.random.randrange(12))
            try:
                found += hold_expressions(plan, rows, maker.through(rows), Random(stream))
            except AssertionError as difference:
                raise AssertionError(f"expressions {seed}, stream {stream}, {explain(plan)}") from difference
        compiled += why_interpreted(plan) is None
    assert compiled > 0.4 * PLANS
    assert found > PLANS * STREAMS / 4


def hold_expressions(plan: Plan, rows: list[Row], through: int, random: Random) -> int:
    """Interpreted, and compiled where that can be."""
    expected = outputs_of(plan, rows, through)
    assert texts(plan, Interpreter(plan).feed(rows, through)) == texts(plan, expected)
    if why_interpreted(plan) is None:
        hold_to_the_oracle(plan, rows, through, random)
    return len(expected)


@pytest.mark.parametrize("low", [False, True])
def test_keys_of_every_kind(low: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if low:
        lower_limits(monkeypatch)
    compiled = 0
    for seed in range(500 * low, 500 * (low + 1)):
        pair = generators.rekeyed(generators.pair(seed, "pqwwjj"))
        check(Interpreter, pair)
        if why_interpreted(pair.plan) is None:
            check(plain, pair)
            compiled += 1
    assert compiled > 100


@pytest.mark.parametrize("shard", shards(2, 1))
def test_groups_are_the_oracle(shard: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups, permutations and alternatives within each other; where too many ways are open, both may give up."""
    monkeypatch.setattr(programs, "MERGED_RUNS_MAX", 300)
    monkeypatch.setattr(programs, "RUNS_MAX", 300)
    found = compiled = gave_up = 0
    for seed in range(shard * PLANS, (shard + 1) * PLANS):
        maker, plan = plan_of(seed, GroupMaker)
        if why_interpreted(plan) is not None:
            continue
        for stream in range(STREAMS):
            rows = maker.rows(maker.random.randrange(14))
            try:
                found += hold_to_the_oracle(plan, rows, maker.through(rows), Random(seed * STREAMS + stream))
            except RuleError as error:
                if "skip" in str(error):  # a match that cannot be skipped from: refused by all
                    with pytest.raises(RuleError, match="skip"):
                        plain(plan).feed(rows, TIME_MAX)
                else:
                    gave_up += 1
            except AssertionError as difference:
                raise AssertionError(f"groups {seed}, stream {stream}") from difference
            compiled += 1
    assert compiled > 0.6 * PLANS * STREAMS
    assert found > compiled / 4
    assert gave_up < compiled / 20


@pytest.mark.parametrize("kinds", ["p", "w", "j"])
def test_pairs_of_all_matchers(kinds: str) -> None:
    """Those of the interpreter's own pairs that compile."""
    compiled = found = 0
    for seed in range(250):
        pair = generators.pair(seed, kinds)
        if why_interpreted(pair.plan) is None:
            found += check(plain, pair)
            compiled += 1
    assert compiled > 5
    assert found > compiled / 4


@pytest.mark.parametrize("overlap", [62, 63, 64])
def test_as_many_windows_as_can_overlap(overlap: int) -> None:
    """More than a fresh pool has slots for: the first row asks for a larger one."""
    pair = generators.pair(10, "w")
    plan = replace(pair.plan, window=Sliding(overlap, 1))
    assert why_interpreted(plan) is None
    assert check(plain, replace(pair, plan=plan, through=TIME_MAX)) > overlap


MUTANTS = [
    ("a deadline that does not count", "if t > I[s, 7]:", "if t >= I[s, 7]:", PairMaker),
    ("a run that is not copied", "I[o, 4] = I[b, 4]", "pass", PairMaker),
    ("a match that ends too little", "I[s, 3] <= bar", "I[s, 3] < bar", PairMaker),
    ("a time that is over too late", "HT[0] <= through", "HT[0] < through", PairMaker),
    ("the latest, at its deadline", "(t <= d)", "(t < d)", NarrowMaker),
    ("an absence, at its deadline", "(x > d)", "(x >= d)", NarrowMaker),
    ("an absence of an earlier batch", "LB[k] = rows_before", "pass", NarrowMaker),
    ("a single run, at its deadline", "if t <= I[k, 2]:", "if t < I[k, 2]:", NarrowMaker),
    ("what a run before has left", f"N[k, 0] = {UNBOUND}", "pass", NarrowMaker),
    ("what was given is forgotten", "is_empty = False", "pass", None),
    ("a window that has become empty is passed over", "if I[s, 1] > 0 and", "if False and", None),
]
"""None: windows."""


@pytest.mark.parametrize(("what", "right", "wrong", "kind"), MUTANTS, ids=[what for what, *_ in MUTANTS])
def test_broken_kernels_are_caught(
    what: str, right: str, wrong: str, kind: type[PairMaker] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(plan: Plan) -> Program:
        program = program_of(plan)
        return replace(program, source=program.source.replace(right, wrong))

    monkeypatch.setattr(kernel_module, "program_of", broken)
    with pytest.raises((AssertionError, IndexError)):
        hold_plans_to_the_oracle(right, 200, kind)


def hold_plans_to_the_oracle(source: str, plans: int, kind: type[PairMaker] | None) -> None:
    """Those whose source has this in it."""
    for seed in range(plans):
        if kind is None:
            check(plain, generators.pair(seed, "w"))
            continue
        maker, plan = plan_of(seed, kind)
        if why_interpreted(plan) is None and source in program_of(plan).source:
            for stream in range(STREAMS):
                rows = maker.rows(16)
                hold_to_the_oracle(plan, rows, maker.through(rows), Random(stream))
