"""2 400 random pairs: oracle = interpreter = machine code, cut and restored anywhere.

Numba takes seconds for a rule, so few rules meet many streams here; the generated source as Python meets many rules in
`test_kernel.py`, and the campaign compiles hundreds and has more streams.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numba
import pytest

from unerring.matching.interpreter import Interpreter
from unerring.matching.kernel import Kernel, arithmetic, explain
from unerring.matching.matcher import schemas_of
from unerring.matching.oracle import merged, outputs_of
from unerring.matching.outputs import Output, Row, number
from unerring.rules import expressions as ex, patterns as pt
from unerring.rules.plan import Input, Measure, PatternPlan, Plan, Variable

from . import generators
from .conformance import check_stamps
from .expression_pairs import expressions_of
from .kernel_pairs import LEFT, GroupMaker, PairMaker, column, last, plan_of, splits
from .test_kernel import texts
from .trailing_pairs import SOME, draw as draw_readings

STREAMS = 200
"""For each of twelve rules."""

Draw = Callable[[Random], tuple[list[Row], int]]
"""Random rows for a rule, and how far time is complete."""


def pattern(seed: int, kind: type[PairMaker] = PairMaker) -> tuple[Plan, Draw]:
    maker, plan = plan_of(seed, kind)

    def draw(random: Random) -> tuple[list[Row], int]:
        maker.random = random
        rows = maker.rows(random.randrange(18))
        return rows, maker.through(rows)

    return plan, draw


def expressions(seed: int) -> tuple[Plan, Draw]:
    maker, plan = expressions_of(seed)

    def draw(random: Random) -> tuple[list[Row], int]:
        maker.random = random
        rows = maker.rows(random.randrange(14))
        return rows, maker.through(rows)

    return plan, draw


def other(kind: str, seed: int) -> tuple[Plan, Draw]:
    plan = generators.pair(seed, kind).plan
    streams = {source.schema.name for source in plan.inputs}

    def draw(random: Random) -> tuple[list[Row], int]:
        events = [event for event in generators.stream_events(random, 12) if event.stream in streams]
        rows = merged(events, generators.RANKS)
        last = rows[-1].event.stamp.time if rows else 0
        return rows, last + random.choice((0, 0, 3))

    return plan, draw


def hold_all_three(plan: Plan, machine: Kernel, blank: bytes, rows: list[Row], through: int, cut: Random) -> int:
    """Oracle, interpreter and machine code, at once and in pieces with a restore; the number of outputs."""
    expected = texts(plan, outputs_of(plan, rows, through))
    assert texts(plan, Interpreter(plan).feed(rows, through)) == expected, "interpreted"
    machine.restore(blank)
    whole = machine.feed(rows, through)
    assert texts(plan, whole) == expected, "machine code"
    check_stamps(number(whole, schemas_of(plan)))
    state = machine.snapshot()
    machine.restore(blank)
    pieces = splits(rows, through, cut)
    stop = cut.randrange(len(pieces))
    outputs: list[Output] = []
    for place, (piece, until) in enumerate(pieces):
        outputs += machine.feed(piece, until)
        if place == stop:
            kept = machine.snapshot()
            machine.restore(kept)
            assert machine.snapshot() == kept, "restored"
    assert texts(plan, outputs) == expected, f"cut into {len(pieces)}"
    assert machine.snapshot() == state, "another state when cut"
    return len(expected)


def hold_rule(plan: Plan, draw: Draw, streams: int, first: int = 0) -> int:
    """One rule, compiled once, on many random streams; the number of outputs."""
    machine = Kernel(plan, compile_after=0)
    blank = machine.snapshot()
    found = 0
    for seed in range(first, first + streams):
        random = Random(seed)
        rows, through = draw(random)
        try:
            found += hold_all_three(plan, machine, blank, rows, through, random)
        except AssertionError as difference:
            raise AssertionError(f"stream {seed}, {explain(plan)}, {plan}") from difference
    assert machine.is_compiled, machine.compilation_fault
    return found


def contiguous() -> tuple[Plan, Draw]:
    """One run a key: A, rising Bs, C."""
    kinds = [ex.Comparison("=", column("kind"), ex.literal(kind)) for kind in "ABC"]
    rising = ex.Comparison(">", column("v"), column("v", ex.At(shift=-1)))
    plan = PatternPlan(
        "Contiguous",
        (Input(LEFT, ("k",)),),
        (Variable("a", kinds[0]), Variable("b", ex.And((kinds[1], rising))), Variable("c", kinds[2])),
        pt.Sequence((pt.Step("a"), pt.Quantified(pt.Step("b"), 1, None), pt.Step("c"))),
        (Measure("first", column("v", last("a"))), Measure("n", ex.Aggregate("count")), Measure("top", column("v"))),
        within_us=9,
    )
    return plan, pattern(0)[1]


RULES: dict[str, tuple[Plan, Draw]] = {
    "latest": pattern(1),
    "absence": pattern(94),
    "single run": contiguous(),
    "relaxed": pattern(2),
    "alternation": pattern(30),
    "any": pattern(34),
    "remainder": pattern(8),
    "groups": pattern(10, GroupMaker),
    "windows": other("w", 0),
    "trailing on change": (SOME, draw_readings),
    "join": other("j", 37),
    "join with itself": other("j", 29),
}


OFTEN = ("latest", "absence", "single run", "windows", "join")
"""One for each kernel. The compiler takes seconds for each of the others."""


@pytest.mark.parametrize(
    "name", [name if name in OFTEN else pytest.param(name, marks=pytest.mark.long) for name in RULES]
)
def test_machine_code_is_the_oracle(name: str) -> None:
    plan, draw = RULES[name]
    assert hold_rule(plan, draw, STREAMS) > STREAMS / 100


@pytest.mark.parametrize("seed", [1_000_069])
def test_expressions_that_once_did_not_compile(seed: int) -> None:
    """1 000 069: a truth value that is a constant, as a number."""
    plan, draw = expressions(seed)
    assert hold_rule(plan, draw, 50) > 10


EDGES = (0, 1, -1, 2, -2, 3, 7, -7, 2**31, 2**32 + 1, 2**62, -(2**62), 2**63 - 1, -(2**63), -(2**63) + 1)


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "quotient", "modulo"])
def test_machine_integers_overflow_where_pythons_grow(name: str) -> None:
    """Also with constants, which a compiler uses to conclude that a check is not needed."""
    jit = numba.njit(error_model="numpy")
    machine, python = arithmetic.compiled_names(jit), getattr(arithmetic, name)
    constants = "".join(f"    if which == {n}: return op(a, {edge})\n" for n, edge in enumerate(EDGES))
    names = {"op": machine[name]}
    exec(f"def with_constant(which, a):\n{constants}    return op(a, 1)\n", names)
    with_constant = jit(names["with_constant"])
    for a in EDGES:
        for number_of, b in enumerate(EDGES):
            value, lost = python(a, b)
            for found, gone in (machine[name](a, b), with_constant(number_of, a)):
                assert bool(gone) == lost, (a, b)
                assert lost or found == value, (a, b)
