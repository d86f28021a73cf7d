"""Trailing windows that do not fold anew: the same as the oracle, whatever comes and goes, wherever it is restored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from unerring.matching.interpreter import Interpreter
from unerring.matching.kernel import kernel as kernel_module, why_interpreted
from unerring.matching.kernel.programs import Program, program_of
from unerring.matching.oracle import outputs_of
from unerring.matching.outputs import Row
from unerring.model import TIME_MAX, Event, Stamp
from unerring.rules import expressions as ex
from unerring.rules.plan import Emit, Measure, Plan, Trailing

from .kernel_pairs import splits
from .test_deltas import check as check_deltas
from .test_kernel import hold_to_the_oracle, lower_limits, plain, texts
from .trailing_pairs import EVERYTHING, attribute, draw, plan_of

PLANS = 30
STREAMS = 2
"""For each plan; the campaign has more."""


def hold_plans(plans: range, streams: int = STREAMS) -> int:
    found = 0
    for seed in plans:
        plan = plan_of(seed)
        assert why_interpreted(plan) is None
        for stream in range(streams):
            random = Random(seed * streams + stream)
            rows, through = draw(random)
            try:
                found += hold_to_the_oracle(plan, rows, through, random)
                expected = texts(plan, outputs_of(plan, rows, through))
                assert texts(plan, Interpreter(plan).feed(rows, through)) == expected
            except AssertionError as difference:
                raise AssertionError(f"plan {seed}, stream {stream}: {plan.measures}") from difference
    return found


@pytest.mark.parametrize("low", [False, True])
def test_trailing_windows_are_the_oracle(low: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if low:
        lower_limits(monkeypatch)
    assert hold_plans(range(PLANS * low, PLANS * (low + 1))) > 10 * PLANS * STREAMS


def test_states_of_trailing_windows_are_cut_and_put_together() -> None:
    counted = 0
    for seed in range(20):
        plan, random = plan_of(seed), Random(seed)
        rows, through = draw(random)
        counted += check_deltas(plain, plan, splits(rows, through, random), random)
    assert counted > 30


def long_stream(value: Callable[[int, Random], float]) -> list[Row]:
    random = Random(1)
    payloads = [{"k": 0, "v": value(n, random), "x": n, "note": None} for n in range(240)]
    return [Row(0, Event("Reading", Stamp(n // 2, n % 2), (0,), payload)) for n, payload in enumerate(payloads)]


@pytest.mark.parametrize(
    "value",
    [
        lambda n, random: random.gauss(0, 1) * 10.0 ** random.randrange(-3, 12),
        lambda n, random: float(n),
        lambda n, random: 1e300 if n == 100 else random.random(),
    ],
    ids=["mixed", "rising", "one that does not fit"],
)
def test_long_windows_are_the_oracle(value: Callable[[int, Random], float]) -> None:
    """Long enough that the two parts change places many times."""
    measures = tuple(
        Measure(name, ex.Aggregate(name, (attribute("v"),))) for name in ("sum", "avg", "min", "max", "first")
    )
    plan = replace(EVERYTHING, window=Trailing(15), measures=measures, emit=Emit.EVERY)
    assert hold_to_the_oracle(plan, long_stream(value), TIME_MAX, Random(3)) == 240 + 120


def test_what_saves_folding_is_in_no_state() -> None:
    """A key whose rows have changed parts has the bytes of one whose rows have not."""
    rows = long_stream(lambda n, random: random.random())
    moved, fresh = plain(EVERYTHING), plain(EVERYTHING)
    moved.feed(rows, 119)
    fresh.feed(rows[-18:], 119)
    assert moved.snapshot() == fresh.snapshot()


MUTANTS = [
    ("a row counts that has left", "I[r, 7] <= t", "I[r, 7] < t"),
    ("a row is not taken out of a total", "W[k, 1] += -1", "pass"),
    ("a number is not taken out of a sum", ", -1)", ", 0)"),
    ("the older part is not seen", "if middle[k] != -1:", "if False:"),
    ("the newer part is not seen", "N[e, 0] == 0", "False"),
    ("the newer part is not emptied", "N[e, 0] = N[0, 0]", "pass"),
    ("rows of the older part stand alone", "if q != -1:", "if False:"),
    ("a number that does not fit is passed over", "add_wide(Z", "add_wide(1 * Z"),
    ("a state is not whole after a restore", "while s != -1:", "while False:"),
]


@pytest.mark.parametrize(("what", "right", "wrong"), MUTANTS, ids=[what for what, *_ in MUTANTS])
def test_broken_trailing_windows_are_caught(what: str, right: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = 0

    def broken(plan: Plan) -> Program:
        nonlocal changed
        program = program_of(plan)
        changed += right in program.source
        return replace(program, source=program.source.replace(right, wrong))

    monkeypatch.setattr(kernel_module, "program_of", broken)
    with pytest.raises((AssertionError, IndexError)):
        hold_plans(range(PLANS))
    assert changed, "no rule has this in it"
